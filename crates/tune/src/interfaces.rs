//! The network interfaces in the data path, with their driver, queues and interrupts.
//! In: a host. Out: one `Interface` for each network interface, in name order.
//! Never: fails because of one unreadable file; the value from that file is then absent.

use crate::cpu_list::parse_list;
use crate::host::{Cause, Host, Unreadable};
use crate::workload::Workload;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name.
    pub name: String,
    /// The driver; empty if unknown.
    pub driver: String,
    /// Receive queues.
    pub rx_queues: usize,
    /// Transmit queues.
    pub tx_queues: usize,
    /// Interrupts of the queues in use, in the order of the card.
    pub interrupts: Vec<u32>,
    /// NUMA node of the card; `None` if the card reports none.
    pub node: Option<u32>,
}

impl Interface {
    /// The path of a file of this interface.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        format!("/sys/class/net/{}/{file}", self.name)
    }

    /// The number of interrupts per queue pair: two if receiving and sending have one each, as with virtio,
    /// otherwise one.
    #[must_use]
    pub fn interrupts_per_pair(&self) -> usize {
        let split = self.rx_queues > 0 && self.interrupts.len() == self.rx_queues + self.tx_queues;
        if split { 2 } else { 1 }
    }
}

/// The interfaces that the workload names, or all interfaces with a device (so neither `lo` nor bridges). An
/// interface that is down is left out, because it carries no traffic.
///
/// # Errors
/// [`Unreadable`] if there is no interface; its text is the reason for skipping the item.
pub fn data_interfaces(host: &Host, workload: &Workload) -> Result<Vec<Interface>, Unreadable> {
    let mut found = Vec::new();
    for name in host.list("/sys/class/net")? {
        let requested = workload.interfaces.contains(&name);
        let usable = host.exists(&format!("/sys/class/net/{name}/device"))
            && host.read(&format!("/sys/class/net/{name}/operstate")).as_deref() != Ok("down");
        if requested || (workload.interfaces.is_empty() && usable) {
            found.push(look_at(host, name));
        }
    }
    if found.is_empty() {
        let cause =
            Cause::Absent("network interface with a device (name an interface with --interface)");
        return Err(Unreadable { what: "/sys/class/net".to_owned(), cause });
    }
    Ok(found)
}

/// The CPUs of the interrupts of an interface, one entry per readable interrupt.
#[must_use]
pub fn interrupt_cpus(host: &Host, interface: &Interface) -> Vec<(u32, Vec<u32>)> {
    let list_of = |interrupt: &u32, file: &str| {
        let list = host.read(&format!("/proc/irq/{interrupt}/{file}")).ok()?;
        parse_list(&list).filter(|cpus| !cpus.is_empty())
    };
    let cpus_of = |interrupt: &u32| {
        let allowed = list_of(interrupt, "smp_affinity_list");
        let effective = list_of(interrupt, "effective_affinity_list");
        // The kernel moves an interrupt when it next fires; until then the effective CPU is the old one.
        let is_moved = |cpus: &Vec<u32>| match &allowed {
            Some(allowed) => cpus.iter().all(|cpu| allowed.contains(cpu)),
            None => true,
        };
        effective.filter(is_moved).or(allowed).map(|cpus| (*interrupt, cpus))
    };
    interface.interrupts.iter().filter_map(cpus_of).collect()
}

fn look_at(host: &Host, name: String) -> Interface {
    let path = |file: &str| format!("/sys/class/net/{name}/{file}");
    let queues = host.list(&path("queues")).unwrap_or_default();
    let count = |prefix: &str| queues.iter().filter(|queue| queue.starts_with(prefix)).count();
    let (rx_queues, tx_queues) = (count("rx-"), count("tx-"));
    let driver = host
        .read(&path("device/uevent"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("DRIVER=").map(str::to_owned))
        .unwrap_or_default();
    // A virtio device has no numa_node file; its parent PCI device has one.
    let node = ["device/numa_node", "device/../numa_node"]
        .into_iter()
        .find_map(|file| host.read(&path(file)).ok())
        .and_then(|text| text.parse().ok());
    Interface {
        driver,
        rx_queues,
        tx_queues,
        interrupts: interrupts_of(host, &name)
            .into_iter()
            .filter(|(_, action)| serves(action, rx_queues, tx_queues))
            .map(|(number, _)| number)
            .collect(),
        node,
        name,
    }
}

/// Whether an interrupt serves a queue in use. virtio keeps the interrupts of queues that were turned off
/// (`virtio2-input.5` on a card with two pairs); other drivers free them.
fn serves(action: &str, rx_queues: usize, tx_queues: usize) -> bool {
    let number_after = |word: &str| {
        let (_, number) = action.rsplit_once(word)?;
        number.parse::<usize>().ok()
    };
    if !action.starts_with("virtio") {
        return true;
    }
    number_after("-input.").is_none_or(|queue| queue < rx_queues)
        && number_after("-output.").is_none_or(|queue| queue < tx_queues)
}

/// Queue interrupts with the names of their handlers: the interrupts of the device (with virtio, of the parent
/// device) and those named after the interface, without configuration interrupts.
#[must_use]
pub fn interrupts_of(host: &Host, name: &str) -> Vec<(u32, String)> {
    let of_device: Vec<String> = ["device/msi_irqs", "device/../msi_irqs"]
        .into_iter()
        .find_map(|folder| host.list(&format!("/sys/class/net/{name}/{folder}")).ok())
        .unwrap_or_default();
    let table = host.read("/proc/interrupts").unwrap_or_default();
    let mut found = Vec::new();
    for line in table.lines() {
        let Some((number, rest)) = line.split_once(':') else {
            continue;
        };
        let Ok(interrupt) = number.trim().parse::<u32>() else {
            continue;
        };
        let action = rest.split_whitespace().next_back().unwrap_or_default();
        let named = action.split(['-', '@', ':']).any(|part| part == name);
        let ours = named || of_device.iter().any(|known| known == number.trim());
        let serves_no_queue = ["config", "mgmnt", "async", "event", "ctrl", "control"]
            .into_iter()
            .any(|word| action.contains(word));
        if ours && !serves_no_queue {
            found.push((interrupt, action.to_owned()));
        }
    }
    found
}
