//! netfilter-containers: container networking between the network card and this process.

use crate::environment::Environment;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "netfilter-containers",
    group: Group::Netfilter,
    title: "container networking in the path",
    mechanism: "A packet to a bridged container passes the network stack of the host, NAT with connection \
        tracking, a bridge, a veth pair, and then a second network stack. Published ports may also pass a \
        user-space proxy. With host networking, the packet passes one stack.",
    avoid: "Do not apply this if containers must not share the ports of the host or see its network.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 15.0,
        source: "Docker manual, host network driver; no figure is published, the weight is our estimate",
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let names = host.list("/sys/class/net")?;
    let environment = Environment::of(host);
    let has_device = |name: &String| host.exists(&format!("/sys/class/net/{name}/device"));
    if let Some(container) = environment.container {
        // In a separate network namespace, no interface has hardware behind it.
        let own = !names.iter().any(has_device);
        let found = format!(
            "inside a container ({container}), {}",
            if own { "behind a virtual interface" } else { "with host networking" }
        );
        return Ok(Finding::good_if(!own, found).advise(
            "docker run --network host; Kubernetes: hostNetwork: true; or use an SR-IOV or ipvlan \
                interface",
        ));
    }
    let bridges: Vec<&str> = names
        .iter()
        .filter(|name| {
            ["docker", "br-", "cni", "cali", "flannel", "cilium"]
                .iter()
                .any(|p| name.starts_with(p))
        })
        .map(String::as_str)
        .collect();
    if bridges.is_empty() {
        return Ok(Finding::good("this host has no container bridge"));
    }
    Ok(Finding::good(format!(
        "this host has container bridges ({}), but this process is not behind one",
        bridges.join(", ")
    )))
}
