//! last-timestamps: TCP timestamps and window scaling.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "last-timestamps",
    group: Group::LastPercent,
    title: "TCP timestamps",
    mechanism: "Timestamps (RFC 7323) take 12 bytes per segment. They give exact round-trip times, \
        protection against old segments, and the reuse of outgoing ports in TIME_WAIT. A proxy without \
        them runs out of ports sooner.",
    avoid: "Keep timestamps on. Some old guides turn them off for a fraction of a percent.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 3.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let path = "/proc/sys/net/ipv4/tcp_timestamps";
    let timestamps = host.read_number(path)?;
    let scaling = host.read_number("/proc/sys/net/ipv4/tcp_window_scaling").unwrap_or(1);
    let found = format!("timestamps {timestamps}, window scaling {scaling}");
    let mut finding = Finding::good_if(timestamps > 0 && scaling > 0, found);
    if timestamps == 0 {
        finding = finding.action(Action::setting(path, 1));
    }
    if scaling == 0 {
        finding = finding.action(Action::setting("/proc/sys/net/ipv4/tcp_window_scaling", 1));
    }
    Ok(finding)
}
