//! interrupt-busy-poll: polling for packets instead of waiting for interrupts.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "interrupt-busy-poll",
    group: Group::Interrupts,
    title: "busy polling",
    mechanism: "With net.core.busy_poll above 0, epoll_wait polls the queue of the network card for that \
        many microseconds before it sleeps, so under load packets are found without an interrupt. The same \
        setting exists per socket (SO_BUSY_POLL) and per epoll instance (EPIOCSPARAMS, Linux 6.9). All \
        sockets of an epoll instance must come from one queue, as with steering by CPU.",
    avoid: "Do not apply this on hosts that share their CPUs or pay for power, on loopback (there is no \
        queue to poll), or with drivers without NAPI busy polling.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 8.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(28.0),
    },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: &[For::Json, For::Proxy],
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let path = "/proc/sys/net/core/busy_poll";
    let poll = host.read_number(path)?;
    let read = host.read_number("/proc/sys/net/core/busy_read").unwrap_or(0);
    let interfaces = data_interfaces(host, workload)?;
    let one_queue = interfaces.iter().all(|interface| interface.rx_queues < 2);
    let found = format!("net.core.busy_poll is {poll} us, busy_read {read} us");
    if one_queue && poll == 0 {
        return Ok(Finding::good(format!(
            "{found}; with one receive queue, busy polling would only cost CPU time"
        )));
    }
    Ok(Finding::good_if(poll > 0, found).action(Action::setting(path, 1)))
}
