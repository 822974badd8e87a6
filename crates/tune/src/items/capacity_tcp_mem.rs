//! capacity-tcp-mem: the limit of memory pages that all TCP sockets together may hold.

use crate::action::Action;
use crate::capacity::{Needs, PAGE_BYTES, gib};
use crate::environment::Environment;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-tcp-mem",
    group: Group::Capacity,
    title: "memory pages for TCP buffers (tcp_mem)",
    mechanism: "net.ipv4.tcp_mem limits the memory pages in the TCP buffers of all sockets. Above its \
        second number the kernel shrinks windows; above its third number it drops packets and refuses \
        sockets. With a million connections the default limit is reached even if memory is free.",
    avoid: "A limit above the available memory lets TCP displace all other memory use.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 20.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let path = "/proc/sys/net/ipv4/tcp_mem";
    let numbers = host.read_numbers(path, 3)?;
    let [_, _, high, ..] = numbers[..] else {
        return Err(Unreadable::unexpected(path, "fewer than three numbers"));
    };
    let needs = Needs::of(host, workload);
    let wanted = needs.tcp_pages;
    let memory_pages = Environment::of(host).memory_bytes / PAGE_BYTES;
    let used = host
        .read("/proc/net/sockstat")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("TCP:"))?.to_owned();
            line.split_whitespace().skip_while(|word| *word != "mem").nth(1)?.parse::<u64>().ok()
        })
        .unwrap_or(0);
    let found = format!(
        "limit {high} pages ({}), {used} in use; {} connections need {wanted}",
        gib(high.saturating_mul(PAGE_BYTES)),
        needs.connections
    );
    if high >= wanted && used < high / 10 * 9 {
        return Ok(Finding::good(found));
    }
    let finding = Finding::costs(found).because("TCP would drop packets even if memory is free");
    let top = wanted.max(high);
    if memory_pages > 0 && top > memory_pages / 5 * 4 {
        return Ok(finding.advise(
            "this host has too little memory for this number of connections: see capacity-memory",
        ));
    }
    // Memory pressure begins at three quarters of the limit, as with the kernel's defaults.
    Ok(finding.action(Action::setting(path, format!("{} {} {top}", top / 2, top / 4 * 3))))
}
