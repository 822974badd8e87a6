//! pressure-listen-overflows: connections dropped because nobody accepted them in time.

use crate::counters::counter;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "pressure-listen-overflows",
    group: Group::Pressure,
    title: "accept queues that ran over",
    mechanism: "ListenOverflows counts handshakes dropped because a listener's queue was full, ListenDrops these and other \
        causes. Each costs its client a second at least.",
    avoid: "Never wrong to know; a longer queue helps against bursts, not against too much load.",
    gain: Gain { benefit: Benefit::Stability, percent: 5.0, source: KERNEL_DOCS },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let count = |name| counter(host, "/proc/net/netstat", "TcpExt", name);
    let (overflows, drops) = (count("ListenOverflows")?, count("ListenDrops")?);
    Ok(Finding::good_if(
        overflows == 0,
        format!("{overflows} overflows, {drops} drops since the host started"),
    )
    .because("some listener of this host accepted too slowly or had too short a queue")
    .advise("ss -ltn shows queues (Recv-Q against Send-Q); then see capacity-somaxconn"))
}
