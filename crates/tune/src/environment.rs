//! The environment of the process: bare metal, virtual machine or container; kernel, CPUs, memory.
//! In: a host. Out: an `Environment`, and the reason why a scope cannot be changed from here.
//! Never: fails; a value that cannot be read counts as absent.

use crate::cpu_list::parse_list;
use crate::host::Host;
use crate::item::Scope;

/// The environment of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The name of the hypervisor; `None` on bare metal.
    pub hypervisor: Option<String>,
    /// The kind of container; `None` outside a container.
    pub container: Option<String>,
    /// The kernel release.
    pub kernel: String,
    /// Online CPUs.
    pub cpus: Vec<u32>,
    /// Memory in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Whether the process has the rights that the settings need (CAP_NET_ADMIN and CAP_SYS_ADMIN).
    pub root: bool,
}

impl Environment {
    /// Determines the environment of a host.
    #[must_use]
    pub fn of(host: &Host) -> Self {
        let online = host.read("/sys/devices/system/cpu/online").ok();
        Self {
            hypervisor: hypervisor(host),
            container: container(host),
            kernel: host.read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".into()),
            cpus: online.and_then(|list| parse_list(&list)).unwrap_or_default(),
            memory_bytes: memory_field(host, "MemTotal").unwrap_or(0),
            root: is_root(host),
        }
    }

    /// The environment as one line.
    #[must_use]
    pub fn line(&self) -> String {
        let place = match (&self.container, &self.hypervisor) {
            (Some(container), Some(hypervisor)) => {
                format!("container ({container}) in a virtual machine ({hypervisor})")
            }
            (Some(container), None) => format!("container ({container})"),
            (None, Some(hypervisor)) => format!("virtual machine ({hypervisor})"),
            (None, None) => "bare metal".to_owned(),
        };
        let gib = self.memory_bytes as f64 / f64::from(1u32 << 30);
        format!("{place}, Linux {}, {} CPUs, {gib:.1} GiB", self.kernel, self.cpus.len())
    }

    /// Why a setting of this scope cannot be changed from here; `None` if it can.
    #[must_use]
    pub fn blocks(&self, scope: Scope) -> Option<String> {
        if let Some(container) = &self.container {
            let whose = match scope {
                Scope::Card => "the network card belongs to the host",
                Scope::Kernel => "the setting belongs to the host's kernel",
                Scope::Boot => "the boot parameters belong to the host",
                Scope::Hardware => "the hardware belongs to the host",
                Scope::Process | Scope::NetNamespace => return None,
            };
            return Some(format!(
                "inside a container ({container}): {whose}; change it on the host"
            ));
        }
        match (&self.hypervisor, scope) {
            (Some(hypervisor), Scope::Hardware) => {
                Some(format!("inside a virtual machine ({hypervisor}): the hypervisor controls it"))
            }
            _ => None,
        }
    }
}

/// A field of /proc/meminfo in bytes.
#[must_use]
pub fn memory_field(host: &Host, field: &str) -> Option<u64> {
    let text = host.read("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(field))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// A field of /proc/PID/status of the checked process.
#[must_use]
pub fn status_field(host: &Host, field: &str) -> Option<String> {
    let text = host.read(&host.process_path("status")).ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(field))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// CPUs that the checked process may use, according to its affinity and its cpuset.
#[must_use]
pub fn allowed_cpus(host: &Host) -> Vec<u32> {
    status_field(host, "Cpus_allowed_list")
        .and_then(|list| parse_list(&list))
        .filter(|cpus| !cpus.is_empty())
        .unwrap_or_else(|| {
            let online = host.read("/sys/devices/system/cpu/online").unwrap_or_default();
            parse_list(&online).unwrap_or_default()
        })
}

fn is_root(host: &Host) -> bool {
    // CAP_NET_ADMIN is bit 12, CAP_SYS_ADMIN is bit 21: the settings need both.
    let mask = status_field(host, "CapEff").and_then(|text| u64::from_str_radix(&text, 16).ok());
    mask.is_some_and(|mask| mask >> 12 & 1 == 1 && mask >> 21 & 1 == 1)
}

fn hypervisor(host: &Host) -> Option<String> {
    let product = host.read("/sys/class/dmi/id/product_name").unwrap_or_default();
    let vendor = host.read("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    let flags = host.read("/proc/cpuinfo").unwrap_or_default();
    let flagged = flags
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
    let xen = host.read("/sys/hypervisor/type").ok();
    // Bare-metal instances also report the vendor of the cloud; the CPU flag distinguishes them.
    if !flagged && xen.is_none() {
        return None;
    }
    let named = [vendor, product, xen.unwrap_or_default()];
    Some(named.into_iter().find(|name| !name.is_empty()).unwrap_or_else(|| "unnamed".into()))
}

/// The initial namespaces have fixed inode numbers (include/linux/proc_ns.h): process IDs 0xEFFFFFFC, host name
/// 0xEFFFFFFE.
const FIRST_NAMESPACES: [(&str, &str); 2] =
    [("pid", "pid:[4026531836]"), ("uts", "uts:[4026531838]")];

/// The kind of container, or `None`. A process in the initial namespaces is outside a container, even if files of a
/// container image exist (such as /.dockerenv in a virtual machine built from an image).
fn container(host: &Host) -> Option<String> {
    let outside = FIRST_NAMESPACES.iter().all(|(name, first)| {
        host.link_text(&format!("/proc/self/ns/{name}")).as_deref() == Ok(*first)
    });
    if outside {
        return None;
    }
    if host.exists("/.dockerenv") {
        return Some("docker".to_owned());
    }
    if host.exists("/run/.containerenv") {
        return Some("podman".to_owned());
    }
    let groups = host.read("/proc/1/cgroup").unwrap_or_default();
    let mounts = host.read("/proc/self/mountinfo").unwrap_or_default();
    let root_is_overlay = mounts
        .lines()
        .any(|line| line.split_whitespace().nth(4) == Some("/") && line.contains(" - overlay "));
    ["kubepods", "docker", "lxc", "containerd"]
        .into_iter()
        .find(|kind| groups.contains(kind))
        .map(str::to_owned)
        .or_else(|| root_is_overlay.then(|| "overlay root".to_owned()))
}
