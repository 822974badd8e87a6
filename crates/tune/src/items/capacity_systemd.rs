//! capacity-systemd: limits that systemd sets for the service.

use crate::capacity::Needs;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-systemd",
    group: Group::Capacity,
    title: "systemd's limits for the service",
    mechanism: "A service starts with systemd's limits (LimitNOFILE=, often 1024 soft and 524288 hard), whatever a shell or \
        limits.conf says. A limit that works by hand and not after a restart is nearly always this.",
    avoid: "Never; set it in the unit instead of everywhere.",
    gain: Gain { benefit: Benefit::Capacity, percent: 15.0, source: MILLION },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

const DROP_IN: &str = "/etc/systemd/system/tidegate.service.d/90-tidegate-nofile.conf";

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    if !host.exists("/run/systemd/system") {
        return Ok(Finding::skipped("systemd does not run here"));
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
    // Of a unit that is not installed, systemd shows what the kernel would allow, not what it would set.
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
    // systemd shows what the unit says; the kernel gives no more than nr_open, and systemd makes do with it.
    let ceiling = host.read_number("/proc/sys/fs/nr_open").unwrap_or(u64::MAX);
    let cut = if number.min(wanted) > ceiling {
        format!(", of which fs.nr_open lets it have {ceiling}")
    } else {
        String::new()
    };
    let found = format!("LimitNOFILE {whose} is {limit}{cut}; wanted: at least {wanted}");
    let mut finding = Finding::good_if(number.min(ceiling) >= wanted, found)
        .because("the service would run into it although a shell would not");
    if number < wanted {
        finding = finding
            .advise(format!(
                "LimitNOFILE={wanted} in {DROP_IN}, then: systemctl daemon-reload (--persist writes it)"
            ))
            .keep(DROP_IN, format!("[Service]\nLimitNOFILE={wanted}\n"));
    }
    if ceiling < wanted {
        finding = finding.advise("fs.nr_open too: tidegate tune apply capacity-file-max --persist");
    }
    Ok(finding)
}

/// The value in a line `NAME=VALUE`.
fn value_of<'a>(shown: &'a str, name: &str) -> Option<&'a str> {
    shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}
