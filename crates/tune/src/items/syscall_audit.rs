//! syscall-audit: checks whether every system call passes the audit code.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Cause, Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "syscall-audit",
    group: Group::Syscalls,
    title: "audit of system calls",
    mechanism: "While audit is enabled, each task has an audit context and every system call takes the \
        slow path in and out, even if no rule matches. The rule `never,task` exempts tasks that start \
        after it. Together with seccomp, this gained 11 % in the nine-steps article.",
    avoid: "Do not apply this where the audit trail is required (PCI DSS, FedRAMP and similar), or where \
        you rely on it after a break-in.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 8.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(11.0),
    },
    risk: Risk::SecurityTrade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let boot = host.read("/proc/cmdline").unwrap_or_default();
    if boot.split_whitespace().any(|word| word == "audit=0" || word == "audit=off") {
        return Ok(Finding::good("audit was turned off at boot (audit=0)"));
    }
    if !host.exists(&host.process_path("loginuid")) {
        return Ok(Finding::good("this kernel has no audit support"));
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
                (true, true) => {
                    "audit is enabled; the rule never,task exempts new tasks".to_owned()
                }
                (true, false) => format!(
                    "audit is enabled with {} rules; every system call takes the slow path",
                    rules.lines().filter(|line| line.starts_with('-')).count()
                ),
            };
            Ok(Finding::good_if(!enabled || spared, found)
                .action(Action::run(
                    "auditctl -a never,task",
                    "auditctl -d never,task",
                    "auditctl -l",
                ))
                .advise("then restart the server: the rule only exempts tasks that start after it")
                .advise("to keep it after a reboot: add `-a never,task` to a file in /etc/audit/rules.d/, \
                    then: augenrules --load"))
        }
        Err(error) if error.cause == Cause::MissingTool && !daemon => {
            Ok(Finding::good("auditd is not running and auditctl is not installed"))
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
