//! syscall-tracing: tracers that were left on.

use crate::action::Action;
use crate::environment::status_field;
use crate::finding::Finding;
use crate::host::{Cause, Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "syscall-tracing",
    group: Group::Syscalls,
    title: "tracing left on",
    mechanism: "Function tracers, enabled events, kprobes and tracing debuggers (strace, gdb) run code on \
        every traced call. A forgotten `strace -f` alone makes a server several times slower.",
    avoid: "Ask first whether a colleague is using the tracer.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 20.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let tracer_pid = status_field(host, "TracerPid").unwrap_or_else(|| "0".to_owned());
    if tracer_pid != "0" {
        return Ok(Finding::costs(format!(
            "process {tracer_pid} traces this process (strace or a debugger)"
        ))
        .percent(200.0)
        .advise(format!("end it if it is no longer needed; ps {tracer_pid} shows the program")));
    }
    let folders = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let mut denied = None;
    for folder in folders {
        let tracer = match host.read(&format!("{folder}/current_tracer")) {
            Ok(tracer) => tracer,
            Err(error) => {
                denied = Some(error).filter(|error| error.cause == Cause::Denied).or(denied);
                continue;
            }
        };
        let events = host.read(&format!("{folder}/events/enable")).unwrap_or_else(|_| "0".into());
        let probes = host.read(&format!("{folder}/kprobe_events")).unwrap_or_default();
        let found = format!(
            "tracer {tracer}, events {}, {} kprobes",
            if events == "0" { "off" } else { "on" },
            probes.lines().count()
        );
        let quiet = tracer == "nop" && events == "0" && probes.is_empty();
        let mut finding = Finding::good_if(quiet, found);
        if tracer != "nop" {
            finding = finding.action(Action::setting(format!("{folder}/current_tracer"), "nop"));
        }
        if events != "0" || !probes.is_empty() {
            finding = finding.advise(format!(
                "turn the events and probes off: see {folder}/set_event and {folder}/kprobe_events"
            ));
        }
        return Ok(finding);
    }
    match denied {
        Some(error) => Err(error),
        None => Ok(Finding::good("no debugger traces this process; tracefs is not mounted")),
    }
}
