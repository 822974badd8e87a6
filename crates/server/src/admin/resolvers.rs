//! `show resolvers`: the DNS servers, in HAProxy's form.
//! In: the counts of queries. Out: HAProxy's lines, by name and in its order. What is not counted is 0.

use core::fmt::Write as _;
use core::net::SocketAddr;

use tidegate_gate::name_servers::{QueryCounts, QueryEnd};

use super::Operations;
use super::command::Outcome;
use super::command::Reply::Shown;
use super::parts;
use crate::name_client;

/// The name of the section: there is one, and HAProxy's name for that of the system is this.
const SECTION: &str = "default";

/// HAProxy's counts, and the ends of queries that each of them counts.
const COUNTS: [(&str, &[QueryEnd]); 14] = [
    ("snd_error", &[QueryEnd::NotSent]),
    ("valid", &[QueryEnd::Records]),
    ("update", &[]),
    ("cname", &[]),
    ("cname_error", &[]),
    ("any_err", &[QueryEnd::Empty]),
    ("nx", &[QueryEnd::UnknownName]),
    ("timeout", &[QueryEnd::Timeout]),
    ("refused", &[QueryEnd::Refused]),
    ("other", &[QueryEnd::Failed]),
    ("invalid", &[QueryEnd::Malformed]),
    ("too_big", &[]),
    ("truncated", &[QueryEnd::Truncated]),
    ("outdated", &[]),
];

/// The command.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    let servers = name_client::server_counts(&operations.config());
    match (arguments, servers) {
        (["json"] | [SECTION, "json"], _) => parts::names(&["json"], operations),
        ([] | [SECTION], None) => Ok(Shown("No resolvers found\n".to_owned())),
        ([] | [SECTION], Some(servers)) => Ok(Shown(text(&servers))),
        _ => Err(format!(
            "`show resolvers` does not accept {:?}; allowed: `show resolvers`, `show resolvers {SECTION}`, `show resolvers json`; \
             the names are in: show names",
            arguments.join(" ")
        )),
    }
}

fn text(servers: &[(SocketAddr, QueryCounts)]) -> String {
    let mut text = format!("Resolvers section {SECTION}\n");
    for (server, counts) in servers {
        let sum = |ends: &[QueryEnd]| {
            ends.iter().map(|end| counts.get(end).copied().unwrap_or(0)).sum::<u64>()
        };
        // What was not sent was not answered either.
        let sent = counts.values().sum::<u64>() - sum(&[QueryEnd::NotSent]);
        let _ = writeln!(text, " nameserver {server}:\n  sent:        {sent}");
        for (name, ends) in COUNTS {
            let _ = writeln!(text, "  {:<12} {}", format!("{name}:"), sum(ends));
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_haproxy() {
        let ends = [
            (QueryEnd::Records, 8),
            (QueryEnd::NotSent, 1),
            (QueryEnd::UnknownName, 2),
            (QueryEnd::Truncated, 3),
        ];
        let servers = [
            (([10, 0, 0, 2], 53).into(), QueryCounts::from(ends)),
            (([10, 0, 0, 3], 53).into(), QueryCounts::new()),
        ];
        let shown = text(&servers);
        let first = "Resolvers section default\n nameserver 10.0.0.2:53:\n  sent:        13\n  snd_error:   1\n  \
            valid:       8\n  update:      0\n  cname:       0\n  cname_error: 0\n  any_err:     0\n  nx:          2\n  \
            timeout:     0\n  refused:     0\n  other:       0\n  invalid:     0\n  too_big:     0\n  truncated:   3\n  \
            outdated:    0\n nameserver 10.0.0.3:53:\n  sent:        0\n";
        assert!(shown.starts_with(first) && shown.ends_with("  outdated:    0\n\n"), "{shown}");
    }
}
