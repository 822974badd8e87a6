//! last-congestion-control: the TCP congestion control algorithm.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "last-congestion-control",
    group: Group::LastPercent,
    title: "congestion control",
    mechanism: "bbr paces each connection with timers. This costs CPU time per packet and pays off on \
        long, lossy paths. reno and cubic cost almost nothing on a short clean path, which was part of the \
        last 4 % in the nine-steps article. A server may also choose the algorithm per listener \
        (TCP_CONGESTION, from tcp_allowed_congestion_control).",
    avoid: "Towards clients on the internet bbr often delivers faster: apply this only for back-end links \
        and benchmarks.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 2.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(4.0),
    },
    risk: Risk::Trade,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let present = host.read(path)?;
    let available =
        host.read("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let found = format!("{present}; available: {available}");
    if present != "bbr" {
        return Ok(Finding::good(found));
    }
    if workload.kind == For::Push {
        return Ok(Finding::good(format!("{found}; the right choice for clients on the internet")));
    }
    let plain = ["cubic", "reno"]
        .into_iter()
        .find(|name| available.split_whitespace().any(|offered| offered == *name));
    let finding = Finding::costs(found)
        .because("on short clean links the pacing timers of bbr only cost CPU time");
    let Some(name) = plain else {
        return Ok(finding.advise("load another algorithm first: modprobe tcp_cubic"));
    };
    // The kernel adds the default algorithm to the allowed list and never removes it. Writing the list first
    // means that undo restores it last.
    let allowed_path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    let allowed = host.read(allowed_path).unwrap_or_default();
    let finding = if allowed.is_empty() || allowed.split_whitespace().any(|known| known == name) {
        finding
    } else {
        finding.action(Action::setting(allowed_path, format!("{allowed} {name}")))
    };
    Ok(finding.action(Action::setting(path, name)))
}
