//! pressure-retransmits: retransmitted TCP segments.

use crate::counters::counter;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "pressure-retransmits",
    group: Group::Pressure,
    title: "retransmitted segments",
    mechanism: "A lost segment costs at least one round trip and often 200 ms. A share above one percent \
        means loss on the path, a network card or queue that drops packets, or a cloud's packet \
        allowance.",
    avoid: "Clients on mobile networks lose packets anyway: compare with your usual share.",
    gain: Gain {
        benefit: Benefit::Latency,
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
    let count = |name| counter(host, "/proc/net/snmp", "Tcp", name);
    // OutSegs does not count segments that contain only retransmitted bytes (RFC 4022, tcpOutSegs).
    let again = count("RetransSegs")?;
    let sent = count("OutSegs")?.saturating_add(again);
    let hundredths = again.saturating_mul(10_000).checked_div(sent).unwrap_or(0);
    let found = format!(
        "{again} of {sent} segments since boot were retransmissions ({}.{:02} %)",
        hundredths / 100,
        hundredths % 100
    );
    Ok(Finding::good_if(hundredths < 100 || again < 1000, found)
        .because("packet loss raises the tail latency")
        .advise(
            "look at ip -s link (drops at the card), nstat | grep -i retrans, and pressure-cloud-allowance",
        ))
}
