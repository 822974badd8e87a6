//! pressure-syn-cookies: handshakes answered without memory.

use crate::counters::counter;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "pressure-syn-cookies",
    group: Group::Pressure,
    title: "SYN cookies sent",
    mechanism: "When a listener's queue of half-open connections is full, the kernel answers with cookies: no memory is \
        taken, but options such as window scaling survive only through timestamps. It means an attack or a queue too short.",
    avoid: "Do not turn cookies off: without them a flood shuts everybody out.",
    gain: Gain { benefit: Benefit::Stability, percent: 3.0, source: KERNEL_DOCS },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let count = |name| counter(host, "/proc/net/netstat", "TcpExt", name);
    let (sent, failed) = (count("SyncookiesSent")?, count("SyncookiesFailed")?);
    let mode = host.read_number("/proc/sys/net/ipv4/tcp_syncookies").unwrap_or(1);
    let found = format!("{sent} sent, {failed} answers invalid; tcp_syncookies is {mode}");
    Ok(Finding::good_if(sent == 0 && mode > 0, found)
        .because(if mode == 0 {
            "cookies are off: a flood of SYNs would shut everybody out"
        } else {
            "a queue of half-open connections was full"
        })
        .advise(if mode == 0 {
            "sysctl -w net.ipv4.tcp_syncookies=1"
        } else {
            "see capacity-syn-backlog and capacity-somaxconn"
        }))
}
