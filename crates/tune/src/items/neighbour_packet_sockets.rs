//! neighbour-packet-sockets: programs that receive a copy of every packet.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "neighbour-packet-sockets",
    group: Group::Neighbours,
    title: "packet sockets",
    mechanism: "A packet socket for IP or for all protocols (DHCP clients, tcpdump, monitoring agents) \
        receives a clone of every such packet before its filter discards it. In the nine-steps article, \
        one forgotten DHCP client took 3 % of all CPU time; this client and another daemon cost 6 % of \
        the throughput.",
    avoid: "A DHCP client renews the address of the host: make the lease permanent before you stop the \
        client.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 6.0,
        source: NINE_STEPS,
        published: Published::Step(6.0),
    },
    risk: Risk::Trade,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

/// ETH_P_ALL, as /proc/net/packet prints protocols: a socket that receives all of them.
const ALL_PROTOCOLS: &str = "0003";
/// ETH_P_IP and ETH_P_IPV6. The kernel passes a socket only the frames of its own protocol, so a socket for LLDP
/// (88cc), as systemd-networkd and lldpd open it, costs a server nothing.
const IPV4: &str = "0800";
const IPV6: &str = "86dd";

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let text = host.read("/proc/net/packet")?;
    let (mut total, mut others, mut inodes) = (0, 0, Vec::new());
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // sk RefCnt Type Proto Iface R Rmem User Inode
        let (Some(protocol), Some(inode)) = (words.get(3), words.get(8)) else {
            continue;
        };
        total += 1;
        if [ALL_PROTOCOLS, IPV4, IPV6].contains(protocol) {
            inodes.push(((*inode).to_owned(), *protocol == ALL_PROTOCOLS));
        } else if *protocol != "0000" {
            others += 1;
        }
    }
    if inodes.is_empty() {
        let others = match others {
            0 => String::new(),
            others => format!("; {others} of them only for rare protocols (LLDP and similar)"),
        };
        return Ok(Finding::good(format!(
            "{total} packet sockets, none of which receives IP packets{others}"
        )));
    }
    let owners = owners_of(host, &inodes);
    let taps = inodes.iter().filter(|(_, all)| *all).count();
    Ok(Finding::costs(format!(
        "{} packet sockets receive IP packets ({taps} of them all protocols): {}",
        inodes.len(),
        if owners.is_empty() { "listing their owners requires root".to_owned() } else { owners.join(", ") }
    ))
    .percent(if taps > 0 { 6.0 } else { 3.0 })
    .advise("stop programs that you do not need (sudo ss --packet --processes lists them)")
    .advise(
        "for dhclient: make the lease permanent with ip addr change ADDRESS dev IF valid_lft forever \
         preferred_lft forever, then: dhclient -x",
    ))
}

/// Names and process IDs of the owners of these sockets.
fn owners_of(host: &Host, inodes: &[(String, bool)]) -> Vec<String> {
    let mut owners = Vec::new();
    for pid in host.list("/proc").unwrap_or_default() {
        if pid.parse::<u32>().is_err() {
            continue;
        }
        let folder = format!("/proc/{pid}/fd");
        let holds = host.list(&folder).unwrap_or_default().iter().any(|fd| {
            host.link_text(&format!("{folder}/{fd}")).is_ok_and(|target| {
                inodes.iter().any(|(inode, _)| target == format!("socket:[{inode}]"))
            })
        });
        if holds {
            let name = host.read(&format!("/proc/{pid}/comm")).unwrap_or_default();
            owners.push(format!("{name} ({pid})"));
        }
    }
    owners
}
