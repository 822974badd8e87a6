//! capacity-systemd: the limits that systemd sets for the service.

use crate::capacity::Needs;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-systemd",
    group: Group::Capacity,
    title: "systemd limits of the service",
    mechanism: "A service starts with the limits of systemd (LimitNOFILE=, often 1024 soft and 524288 \
        hard), whatever a shell or limits.conf sets. If a limit is in effect when Tidegate is started by \
        hand but not after a restart of the host, this is nearly always the cause.",
    avoid: "Set the limit in the unit of the service, not for all services.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 15.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

const DROP_IN: &str = "/etc/systemd/system/tidegate.service.d/90-tidegate-nofile.conf";

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    if !host.exists("/run/systemd/system") {
        return Ok(Finding::skipped("systemd is not running on this host"));
    }
    let shown = host.ask(&[
        "systemctl",
        "show",
        "-p",
        "LoadState",
        "-p",
        "LimitNOFILE",
        "tidegate.service",
    ])?;
    // For a unit that is not installed, systemd prints the maximum of the kernel, not the limit it would set.
    let is_installed = value_of(&shown, "LoadState") != Some("not-found");
    let (limit, whose) = if is_installed {
        (value_of(&shown, "LimitNOFILE").unwrap_or_default().to_owned(), "of tidegate.service")
    } else {
        let manager = host.ask(&["systemctl", "show", "-p", "DefaultLimitNOFILE"])?;
        let default = value_of(&manager, "DefaultLimitNOFILE").unwrap_or_default().to_owned();
        (default, "of services by default (tidegate.service is not installed)")
    };
    let wanted = Needs::of(host, workload).files_per_worker;
    let number = if limit == "infinity" { u64::MAX } else { limit.parse().unwrap_or(0) };
    // systemd prints the value in the unit. The kernel grants no more than nr_open, and systemd silently accepts
    // that.
    let ceiling = host.read_number("/proc/sys/fs/nr_open").unwrap_or(u64::MAX);
    let cut = if number.min(wanted) > ceiling {
        format!(", which fs.nr_open lowers to {ceiling}")
    } else {
        String::new()
    };
    let found = format!("LimitNOFILE {whose} is {limit}{cut}; wanted: at least {wanted}");
    let mut finding = Finding::good_if(number.min(ceiling) >= wanted, found)
        .because("the service reaches this limit even if a shell has a higher one");
    if number < wanted {
        finding = finding
            .advise(format!(
                "set LimitNOFILE={wanted} in {DROP_IN} (`apply --persist` writes this file), then: \
                    systemctl daemon-reload"
            ))
            .keep(DROP_IN, format!("[Service]\nLimitNOFILE={wanted}\n"));
    }
    if ceiling < wanted {
        finding = finding
            .advise("raise fs.nr_open too: tidegate tune apply capacity-file-max --yes --persist");
    }
    Ok(finding)
}

/// The value of the line `NAME=VALUE`.
fn value_of<'a>(shown: &'a str, name: &str) -> Option<&'a str> {
    shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}
