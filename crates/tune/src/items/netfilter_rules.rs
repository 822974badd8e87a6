//! netfilter-rules: firewall hooks in the path of every packet.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "netfilter-rules",
    group: Group::Netfilter,
    title: "firewall rules in the path",
    mechanism: "Every packet passes every netfilter chain hooked into its path, even a chain without \
        rules, and rules are tried one after another. Removing ip_tables completely (with connection \
        tracking) gained 22 % in the nine-steps article.",
    avoid: "Keep these rules if they are your firewall and nothing filters traffic before the host. Cloud \
        security groups or the access lists of a switch can filter outside of the host.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 22.0,
        source: NINE_STEPS,
        published: Published::Step(22.0),
    },
    risk: Risk::SecurityTrade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let tables: Vec<String> = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"]
        .into_iter()
        .filter_map(|path| host.read(path).ok())
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let modules_shown = host.exists("/proc/modules");
    let is_present = nf_tables_is_present(host);
    // If root ran nft, the kernel would load nf_tables only to report that it has no rules.
    let nft = (is_present || !modules_shown).then(|| host.ask(&["nft", "list", "ruleset"]));
    if let Some(Ok(rules)) = &nft {
        let chains = rules.lines().filter(|line| line.trim_start().starts_with("type ")).count();
        let count = rules.lines().filter(|line| is_rule(line)).count();
        if chains == 0 && tables.is_empty() {
            return Ok(Finding::good("no netfilter chain is hooked into the path"));
        }
        return Ok(Finding::costs(format!(
            "nftables: {chains} hooked chains with {count} rules; iptables: {} tables",
            tables.len()
        ))
        .percent(if count < 5 { 8.0 } else { 22.0 })
        .advise("put the rules that most packets match first, or add an early `ct state established accept`")
        .advise("filter traffic before the host instead, then: nft flush ruleset"));
    }
    if !tables.is_empty() {
        return Ok(Finding::costs(format!("iptables tables in use: {}", tables.join(", ")))
            .advise(
                "filter traffic before the host instead, then: iptables -F; modprobe -rv ip_tables",
            ));
    }
    if is_present {
        return Ok(Finding::skipped(format!(
            "nf_tables is loaded, but its rules cannot be listed: {}",
            nft.and_then(Result::err).map(|error| error.to_string()).unwrap_or_default()
        )));
    }
    Ok(Finding::good(if modules_shown {
        "no iptables table is in use; nf_tables is not loaded"
    } else {
        "no iptables table is in use; listing nftables rules requires the tool nft"
    }))
}

/// Whether nf_tables is loaded or built in. A kernel without /proc/modules cannot load it.
fn nf_tables_is_present(host: &Host) -> bool {
    let modules = host.read("/proc/modules").unwrap_or_default();
    let release = host.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let built_in = host.read(&format!("/lib/modules/{release}/modules.builtin"));
    modules.lines().any(|line| line.split(' ').next() == Some("nf_tables"))
        || built_in.is_ok_and(|list| list.lines().any(|line| line.ends_with("/nf_tables.ko")))
}

fn is_rule(line: &str) -> bool {
    let line = line.trim();
    let frame =
        ["table ", "chain ", "type ", "set ", "map ", "elements", "flags ", "}", "policy ", "#"];
    !line.is_empty() && !frame.iter().any(|start| line.starts_with(start))
}
