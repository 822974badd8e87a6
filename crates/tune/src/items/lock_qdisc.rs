//! lock-qdisc: the queueing discipline and its lock.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "lock-qdisc",
    group: Group::Locks,
    title: "queueing discipline",
    mechanism: "Packets to be sent pass a queueing discipline under a lock. A single root discipline on a \
        card with several queues means one lock for all CPUs. `mq` has one lock per queue, and `noqueue` \
        below it has no lock (2 % in the nine-steps article).",
    avoid: "With bbr pacing on kernels before 4.13 keep fq. Keep a discipline that shapes traffic. noqueue \
        drops packets that the card cannot take at once.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 2.0,
        source: NINE_STEPS,
        published: Published::Step(2.0),
    },
    risk: Risk::Trade,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let shown = host.ask(&["tc", "qdisc", "show"])?;
    let default = host.read("/proc/sys/net/core/default_qdisc").unwrap_or_default();
    let (mut lines, mut actions, mut by_hand) = (Vec::new(), Vec::new(), Vec::new());
    for interface in data_interfaces(host, workload)? {
        let name = &interface.name;
        let Some(root) = root_of(&shown, name) else {
            continue;
        };
        lines.push(format!("{name}: {}, {} transmit queues", root.kind, interface.tx_queues));
        let plain = ["pfifo_fast", "pfifo", "fq_codel", "fq"].contains(&root.kind);
        if interface.tx_queues <= 1 || !plain {
            continue;
        }
        let replace = format!("tc qdisc replace dev {name} root mq");
        match root.arguments() {
            Some(arguments) => actions.push(Action::run(
                &replace,
                &format!("tc qdisc replace dev {name} root {arguments}"),
                &format!("tc qdisc show dev {name}"),
            )),
            None => by_hand.push(format!("{replace} (undo cannot restore the current discipline)")),
        }
    }
    if lines.is_empty() {
        return Ok(Finding::skipped(
            "tc shows no root discipline for the network cards in the path",
        ));
    }
    lines.push(format!("default: {default}"));
    let is_good = actions.is_empty() && by_hand.is_empty();
    let finding =
        Finding::good_if(is_good, lines.join("; ")).because("all CPUs take the same lock to send");
    let finding = by_hand.into_iter().fold(finding, Finding::advise);
    Ok(actions.into_iter().fold(finding, Finding::action))
}

/// The root discipline of an interface, as `tc qdisc show` prints it.
struct Root<'a> {
    kind: &'a str,
    handle: &'a str,
    options: Vec<&'a str>,
}

impl Root<'_> {
    /// The arguments with which `tc qdisc replace` restores this discipline with its handle and options. `None` if
    /// it cannot be restored: the handle `0:` of a discipline that the kernel chose itself cannot be requested.
    fn arguments(&self) -> Option<String> {
        if self.handle == "0:" || self.options.contains(&"offloaded") {
            return None;
        }
        let mut words = vec![format!("handle {} {}", self.handle, self.kind)];
        // pfifo_fast prints its bands but takes no options.
        if self.kind != "pfifo_fast" {
            words.extend(self.options.iter().map(|word| as_argument(word).to_owned()));
        }
        Some(words.join(" "))
    }
}

/// A printed option in the form that `tc` accepts: packet counts are printed as `777p` and accepted as `777`.
fn as_argument(word: &str) -> &str {
    let is_number =
        |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    word.strip_suffix('p').filter(is_number).unwrap_or(word)
}

/// The root discipline of an interface: `qdisc KIND HANDLE dev NAME root [refcnt N] OPTIONS`.
fn root_of<'a>(shown: &'a str, name: &str) -> Option<Root<'a>> {
    shown.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (kind, handle) = (words.get(1)?, words.get(2)?);
        let is_wanted = words.get(3..6).is_some_and(|place| place == ["dev", name, "root"]);
        let mut options: Vec<&str> = words.get(6..).filter(|_| is_wanted)?.to_vec();
        if let Some(at) = options.iter().position(|word| *word == "refcnt") {
            options.drain(at..options.len().min(at + 2));
        }
        Some(Root { kind, handle, options })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Option<String> {
        root_of(line, "eth0").unwrap().arguments()
    }

    #[test]
    fn undo_restores_handle_and_options_of_a_discipline() {
        let pfifo = "qdisc noqueue 0: dev lo root refcnt 2\n\
            qdisc pfifo 7: dev eth0 root refcnt 5 limit 777p";
        assert_eq!(arguments(pfifo).unwrap(), "handle 7: pfifo limit 777");
        let fast = "qdisc pfifo_fast 8019: dev eth0 root refcnt 5 bands 3 priomap 1 2 2 2";
        assert_eq!(arguments(fast).unwrap(), "handle 8019: pfifo_fast");
        let fair =
            "qdisc fq 1: dev eth0 root limit 10000p flow_limit 100p quantum 3028b horizon_drop";
        assert_eq!(
            arguments(fair).unwrap(),
            "handle 1: fq limit 10000 flow_limit 100 quantum 3028b horizon_drop"
        );
    }

    #[test]
    fn default_discipline_of_the_kernel_cannot_be_restored() {
        assert_eq!(arguments("qdisc pfifo_fast 0: dev eth0 root refcnt 2 bands 3"), None);
    }

    #[test]
    fn discipline_below_the_root_is_ignored() {
        assert!(root_of("qdisc pfifo_fast 0: dev eth0 parent :1 bands 3", "eth0").is_none());
        assert!(root_of("qdisc pfifo 7: dev eth1 root refcnt 5", "eth0").is_none());
        assert!(root_of("qdisc", "eth0").is_none());
    }
}
