//! pressure-syn-cookies: handshakes answered with SYN cookies because a queue was full.

use crate::counters::counter;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "pressure-syn-cookies",
    group: Group::Pressure,
    title: "SYN cookies sent",
    mechanism: "When the queue of half-open connections of a listener is full, the kernel replies with SYN \
        cookies. They take no memory, but options such as window scaling survive only through timestamps. \
        Cookies mean an attack or a queue that is too short.",
    avoid: "Do not turn cookies off: without them, a SYN flood locks out all clients.",
    gain: Gain {
        benefit: Benefit::Stability,
        percent: 3.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let count = |name| counter(host, "/proc/net/netstat", "TcpExt", name);
    let (sent, failed) = (count("SyncookiesSent")?, count("SyncookiesFailed")?);
    let mode = host.read_number("/proc/sys/net/ipv4/tcp_syncookies").unwrap_or(1);
    let found = format!("{sent} sent, {failed} invalid ones received; tcp_syncookies is {mode}");
    Ok(Finding::good_if(sent == 0 && mode > 0, found)
        .because(if mode == 0 {
            "cookies are off: a SYN flood would lock out all clients"
        } else {
            "a queue of half-open connections was full"
        })
        .advise(if mode == 0 {
            "sysctl -w net.ipv4.tcp_syncookies=1"
        } else {
            "see capacity-syn-backlog and capacity-somaxconn"
        }))
}
