//! syscall-seccomp: filters that run before each system call of this process.

use crate::environment::status_field;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "syscall-seccomp",
    group: Group::Syscalls,
    title: "seccomp filters on this process",
    mechanism: "A seccomp filter is a small program that the kernel runs before every system call. \
        Container engines attach one with hundreds of instructions. Since Linux 5.11, calls that are \
        always allowed skip it; before that, every call paid.",
    avoid: "Keep the filter wherever the container isolates you from other tenants: the filter is a large \
        part of that isolation.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 3.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(11.0),
    },
    risk: Risk::SecurityTrade,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let Some(mode) = status_field(host, "Seccomp") else {
        return Ok(Finding::skipped("this kernel does not report the seccomp mode of a process"));
    };
    let filters = status_field(host, "Seccomp_filters").unwrap_or_else(|| "some".to_owned());
    if mode == "0" {
        return Ok(Finding::good("this process has no seccomp filter"));
    }
    Ok(Finding::costs(format!("mode {mode}; filters that run before each system call: {filters}"))
        .advise("docker run --security-opt seccomp=unconfined (or a profile that lists only the refused calls)")
        .advise("systemd: remove SystemCallFilter= from the unit"))
}
