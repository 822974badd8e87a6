//! netfilter-conntrack: connection tracking: whether it is used, and the size of its table.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "netfilter-conntrack",
    group: Group::Netfilter,
    title: "connection tracking",
    mechanism: "Connection tracking looks up every packet in a table and keeps 256 bytes or more per \
        connection. When nf_conntrack_max is reached, packets of new connections are dropped. This is the \
        most common hidden limit below a million connections.",
    avoid: "A larger table takes memory. Turning tracking off for a port breaks NAT and rules with `ct \
        state` for it.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 20.0,
        source: NINE_STEPS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let max_path = "/proc/sys/net/netfilter/nf_conntrack_max";
    if !host.exists(max_path) {
        return Ok(Finding::good("this kernel has no connection tracking"));
    }
    let max = host.read_number(max_path)?;
    let count = host.read_number("/proc/sys/net/netfilter/nf_conntrack_count")?;
    if count == 0 {
        return Ok(Finding::good(format!(
            "present (table of {max} entries), but tracks no connections"
        )));
    }
    let ends = if workload.connects_out() { 2 } else { 1 };
    // TIME_WAIT entries stay 120 s: plan for half as many entries more.
    let wanted = (workload.connections() * ends * 3 / 2).max(max);
    let found = format!("{count} of {max} entries in use; {wanted} wanted");
    Ok(Finding::good_if(wanted <= max && count < max / 10 * 9, found)
        .because("a full table drops new connections without notifying the client")
        .action(Action::setting(max_path, wanted.max(max.saturating_mul(2))))
        .advise(
            "or turn tracking off for the port of the service: nft add rule ip raw prerouting tcp dport \
                443 notrack",
        ))
}
