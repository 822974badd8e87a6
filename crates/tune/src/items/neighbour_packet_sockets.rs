//! neighbour-packet-sockets: programs that see every packet.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "neighbour-packet-sockets",
    group: Group::Neighbours,
    title: "packet sockets",
    mechanism: "A packet socket for IP or for all protocols (DHCP clients, tcpdump, monitoring agents) gets a clone of \
        every such packet before its filter throws it away. One forgotten DHCP client was 3 % of all CPU time and, with the daemon \
        beside it, 6 % of the throughput in the founding article.",
    avoid: "A DHCP client renews the address: make the lease permanent before you end it.",
    gain: Gain { benefit: Benefit::Throughput, percent: 6.0, source: NINE_STEPS },
    risk: Risk::Trade,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

/// ETH_P_ALL, as /proc/net/packet prints protocols: a socket that sees all of them.
const ALL_PROTOCOLS: &str = "0003";
/// ETH_P_IP and ETH_P_IPV6. The kernel hands a socket the frames of its own protocol alone, so one for LLDP
/// (88cc), as systemd-networkd and lldpd hold, costs a server nothing.
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
            others => format!("; {others} of them for rare protocols alone (LLDP and the like)"),
        };
        return Ok(Finding::good(format!(
            "{total} packet sockets, none of them receives IP packets{others}"
        )));
    }
    let owners = owners_of(host, &inodes);
    let taps = inodes.iter().filter(|(_, all)| *all).count();
    Ok(Finding::costs(format!(
        "{} receive IP packets ({taps} of them all protocols): {}",
        inodes.len(),
        if owners.is_empty() { "owners need root to see".to_owned() } else { owners.join(", ") }
    ))
    .percent(if taps > 0 { 6.0 } else { 3.0 })
    .advise("end what is not needed (sudo ss --packet --processes shows them too)")
    .advise(
        "for dhclient: make the lease permanent, then dhclient -x: \
         ip addr change ADDRESS dev IF valid_lft forever preferred_lft forever",
    ))
}

/// Names and numbers of the processes that hold these sockets.
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
