//! Determines whether network interrupts are spread over the workers' CPUs. Only then does steering
//! connections by CPU distribute the load; otherwise it concentrates the load on the few CPUs that take the
//! interrupts.
//! In: /proc/interrupts, /proc/irq/*/effective_affinity_list, /sys/class/net. Out: yes, no or unknown.
//! Never: changes a setting. Limits: the result is a best guess; callers treat unknown as no.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The interrupt lines of network devices: their numbers, and the CPUs that each line may interrupt now.
pub type Affinities = BTreeMap<u32, BTreeSet<usize>>;

/// Whether each of `cpus` takes receive interrupts of a network device. `None` if the system lists no
/// interrupt of a network device (in a container, or with virtual devices only).
#[must_use]
pub fn are_spread_over(cpus: &[usize]) -> Option<bool> {
    let text = fs::read_to_string("/proc/interrupts").ok()?;
    let numbers = parse_receive_interrupts(&text, &device_names());
    let affinities: Affinities = numbers
        .into_iter()
        .filter_map(|number| {
            let path = format!("/proc/irq/{number}/effective_affinity_list");
            Some((number, parse_cpu_list(&fs::read_to_string(path).ok()?)))
        })
        .collect();
    cover(&affinities, cpus)
}

/// Whether each of `cpus` is among the CPUs of at least one line; `None` if there is no line.
#[must_use]
pub fn cover(affinities: &Affinities, cpus: &[usize]) -> Option<bool> {
    if affinities.is_empty() {
        return None;
    }
    Some(cpus.iter().all(|cpu| affinities.values().any(|line| line.contains(cpu))))
}

/// The numbers of the interrupt lines in /proc/interrupts that announce received packets for one of `names`.
///
/// Drivers name lines `eth0-TxRx-3`, `mlx5_comp3@pci:...` or `virtio2-input.0`. A line belongs to a device
/// if its name begins with the device's name or bus name, or contains that bus name after `@pci:`. Lines that
/// only transmit (`tx`, `output`) or configure are ignored: they do not show where connections arrive.
#[must_use]
pub fn parse_receive_interrupts(text: &str, names: &[String]) -> Vec<u32> {
    let mut numbers = Vec::new();
    for line in text.lines() {
        let Some((number, rest)) = line.split_once(':') else {
            continue;
        };
        let Ok(number) = number.trim().parse() else {
            continue;
        };
        let Some(action) = rest.split_whitespace().next_back() else {
            continue;
        };
        if names.iter().any(|name| is_receive_line(action, name)) {
            numbers.push(number);
        }
    }
    numbers
}

fn is_receive_line(action: &str, name: &str) -> bool {
    let words = [
        action.strip_prefix(name),
        action.split_once("@pci:").map(|(queue, bus)| if bus == name { queue } else { "" }),
    ];
    words.into_iter().flatten().any(|queue| {
        // A digit right after the name means another device: `eth10` is not a line of `eth1`.
        let is_other = queue.is_empty() || queue.starts_with(|c: char| c.is_ascii_digit());
        let queue = queue.to_ascii_lowercase();
        let only_sends =
            (queue.contains("tx") && !queue.contains("rx")) || queue.contains("output");
        !is_other && !only_sends && !queue.contains("config") && !queue.contains("async")
    })
}

/// Parses a CPU list in the format of the kernel, such as `0-2,5`.
#[must_use]
pub fn parse_cpu_list(text: &str) -> BTreeSet<usize> {
    let mut cpus = BTreeSet::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            // Linux has no CPU with a higher number.
            cpus.extend(first..=last.min(8191));
        }
    }
    cpus
}

/// The names under which the interrupt lines of this machine's network devices may appear: the names of the
/// devices and of the bus devices behind them.
fn device_names() -> Vec<String> {
    let mut names = Vec::new();
    let Ok(devices) = fs::read_dir("/sys/class/net") else {
        return names;
    };
    for device in devices.flatten() {
        let behind = device.path().join("device");
        if !behind.exists() {
            continue; // Loopback, bridges and other virtual devices have no interrupts.
        }
        names.push(device.file_name().to_string_lossy().into_owned());
        if let Ok(target) = fs::canonicalize(&behind) {
            names.extend(target.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.retain(|name| !name.is_empty() && Path::new(name).components().count() == 1);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
            CPU0       CPU1
  24:          1          0  IO-APIC   5-edge      ACPI:Ged
  36:          0      64839 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
  37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
  38:          0       1542 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
  39:       1055          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
  50:          0          0 PCI-MSIX-0000:05:00.0   0-edge      eth0
  51:          9          0 PCI-MSIX-0000:05:00.0   1-edge      eth0-TxRx-0
  52:          0          9 PCI-MSIX-0000:05:00.0   2-edge      eth0-TxRx-1
  53:          0          9 PCI-MSIX-0000:06:00.0   2-edge      eth01-TxRx-1
  60:          9          0 PCI-MSIX-0000:07:00.0   0-edge      mlx5_async0@pci:0000:07:00.0
  61:          9          0 PCI-MSIX-0000:07:00.0   1-edge      mlx5_comp0@pci:0000:07:00.0
 NMI:          0          0   Non-maskable interrupts
 ERR:          0
";

    fn numbers(names: &[&str]) -> Vec<u32> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        parse_receive_interrupts(SAMPLE, &names)
    }

    #[test]
    fn receive_lines_are_found_by_device_and_bus_name() {
        assert_eq!(numbers(&["enp0s3", "virtio2"]), [38]);
        assert_eq!(numbers(&["eth0"]), [51, 52]);
        assert_eq!(numbers(&["ens1", "0000:07:00.0"]), [61]);
        assert!(numbers(&["wlan0"]).is_empty());
    }

    #[test]
    fn cpus_are_covered_if_each_has_a_line() {
        let affinities: Affinities =
            [(51, parse_cpu_list("0\n")), (52, parse_cpu_list("1,3-4\n"))].into();
        assert_eq!(cover(&affinities, &[0, 1, 3, 4]), Some(true));
        assert_eq!(cover(&affinities, &[0, 2]), Some(false));
        assert_eq!(cover(&Affinities::new(), &[0]), None);
    }

    #[test]
    fn reading_this_machine_does_not_panic() {
        let _ = are_spread_over(&[0]);
    }
}
