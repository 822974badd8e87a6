//! syscall-audit: whether each system call passes the audit code.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Cause, Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "syscall-audit",
    group: Group::Syscalls,
    title: "audit of system calls",
    mechanism: "While audit is enabled, a task carries an audit context and every system call takes the slow way in and \
        out, even when no rule matches. The rule `never,task` spares tasks started after it. With seccomp, this was \
        11 % in the founding article.",
    avoid: "Where the audit trail is required (PCI DSS, FedRAMP and the like), or where you rely on it after a break-in.",
    gain: Gain { benefit: Benefit::Throughput, percent: 8.0, source: NINE_STEPS },
    risk: Risk::SecurityTrade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let boot = host.read("/proc/cmdline").unwrap_or_default();
    if boot.split_whitespace().any(|word| word == "audit=0" || word == "audit=off") {
        return Ok(Finding::good("audit is off since boot (audit=0)"));
    }
    if !host.exists(&host.process_path("loginuid")) {
        return Ok(Finding::good("this kernel has no audit"));
    }
    let daemon = process_named(host, "auditd");
    match host.ask(&["auditctl", "-s"]) {
        Ok(status) => {
            let enabled = status
                .lines()
                .any(|line| line.starts_with("enabled") && !line.trim_end().ends_with(" 0"));
            let rules = host.ask(&["auditctl", "-l"]).unwrap_or_default();
            let spared = rules.contains("never,task") || rules.contains("task,never");
            let found = match (enabled, spared) {
                (false, _) => "audit is not enabled".to_owned(),
                (true, true) => "audit is enabled, new tasks are spared by never,task".to_owned(),
                (true, false) => format!(
                    "audit is enabled with {} rules; every system call pays",
                    rules.lines().filter(|line| line.starts_with('-')).count()
                ),
            };
            Ok(Finding::good_if(!enabled || spared, found)
                .action(Action::run(
                    "auditctl -a never,task",
                    "auditctl -d never,task",
                    "auditctl -l",
                ))
                .advise("restart the server after it: the rule only spares new tasks")
                .advise("to keep it: the same line in /etc/audit/rules.d/, then augenrules --load"))
        }
        Err(error) if error.cause == Cause::MissingTool && !daemon => {
            Ok(Finding::good("no audit daemon runs and auditctl is not installed"))
        }
        Err(error) => Err(error),
    }
}

fn process_named(host: &Host, name: &str) -> bool {
    host.list("/proc")
        .unwrap_or_default()
        .iter()
        .filter(|pid| pid.parse::<u32>().is_ok())
        .any(|pid| host.read(&format!("/proc/{pid}/comm")).as_deref() == Ok(name))
}
