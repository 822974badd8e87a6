//! pressure-listen-overflows: connections dropped because a server did not accept them in time.

use crate::counters::counter;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "pressure-listen-overflows",
    group: Group::Pressure,
    title: "accept queue overflows",
    mechanism: "ListenOverflows counts handshakes dropped because the accept queue of a listener was full; \
        ListenDrops also counts other causes. Each dropped handshake delays its client by at least one second.",
    avoid: "This item only reports and changes nothing. A longer queue helps against bursts, not against \
        sustained overload.",
    gain: Gain {
        benefit: Benefit::Stability,
        percent: 5.0,
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
    let (overflows, drops) = (count("ListenOverflows")?, count("ListenDrops")?);
    Ok(Finding::good_if(
        overflows == 0,
        format!("{overflows} overflows, {drops} drops since boot"),
    )
    .because("a listener on this host accepted too slowly or had too short a queue")
    .advise("Run ss -ltn to find the full queue (Recv-Q is its current length, Send-Q its limit), then see capacity-somaxconn"))
}
