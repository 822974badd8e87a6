//! A section `resolvers` as `[resolver]`.
//! In: the lines of the section, what servers need. Out: a block.
//! Invariant: there is one block, that of the first section.

use crate::document::{Block, BlockKind, Value};
use crate::finding::Findings;
use crate::plan::Plan;
use crate::units;

use super::backend::Resolved;
use super::words::{Line, Section};

/// As many as `[resolver]` may have.
const NAME_SERVERS_MAX: usize = 3;

/// Reads a section.
pub(super) fn read(section: &Section, plan: &mut Plan, findings: &mut Findings<'_>) {
    if plan.resolver.is_some() {
        let why = "all names are resolved by the same DNS servers";
        findings.untranslated(section.line, why);
        section.lines.iter().for_each(|line| findings.untranslated(line.number, why));
        return;
    }
    let mut block = Block::new(BlockKind::Process, "[resolver]", section.line);
    let mut servers = Vec::new();
    let mut first = section.line;
    for line in &section.lines {
        if line.word(0) != "nameserver" {
            setting(line, &mut block, findings);
            continue;
        }
        let text = line.word(2);
        let address =
            text.strip_prefix("udp@").or_else(|| text.strip_prefix("tcp@")).unwrap_or(text);
        if text.starts_with("tcp@") {
            findings.differs(line.number, "queries use UDP, and TCP for answers that do not fit");
        }
        first = if servers.is_empty() { line.number } else { first };
        match servers.len() < NAME_SERVERS_MAX {
            true => servers.push(Value::Text(address.to_owned())),
            false => findings.untranslated(line.number, "up to 3 name servers are allowed"),
        }
    }
    if !servers.is_empty() {
        block.set("name-servers", Value::List(servers), first);
        if let Some(line) = section.last(&["parse-resolv-conf"]) {
            findings.differs(
                line.number,
                "the servers of /etc/resolv.conf are not asked beside `name-servers`",
            );
        }
    }
    plan.resolver = Some(block);
}

/// Settings that servers state.
pub(super) fn settle(resolved: Resolved, plan: &mut Plan, findings: &mut Findings<'_>) {
    if let (None, Some(line)) = (&plan.resolver, resolved.line) {
        findings.differs(line, "[resolver] queries the servers of /etc/resolv.conf");
        plan.resolver = Some(Block::new(BlockKind::Process, "[resolver]", line));
    }
    if let (Some(block), Some((families, line))) = (&mut plan.resolver, resolved.families) {
        findings.differs(line, "addresses of the other family are not used");
        block.set("families", families, line);
    }
}

fn setting(line: &Line, block: &mut Block, findings: &mut Findings<'_>) {
    let number = line.number;
    let time = |text: &str| units::milliseconds(text, "ms").map(units::timeout);
    let count = |text: &str, (least, most): (u64, u64)| {
        text.parse::<u64>().ok().map(|count| count.clamp(least, most))
    };
    let name = match (line.word(0), line.word(1)) {
        ("hold", "obsolete") => "valid",
        ("hold", "nx") => "nx",
        ("hold", "timeout") => "timeout",
        ("hold", "other" | "refused") => "other",
        ("hold", "valid") => {
            findings.differs(number, "names are resolved again as their records expire, and after `ttl-max` at the latest");
            match time(line.word(2)) {
                Some(time) => block.set("ttl-max", time, number),
                None => findings.untranslated(number, "not a time"),
            }
            return;
        }
        ("timeout", "retry") => {
            match time(line.word(2)) {
                Some(time) => block.set("timeout", time, number),
                None => findings.untranslated(number, "not a time"),
            }
            return;
        }
        ("timeout", "resolve") => {
            return findings.unneeded(number, "names are resolved again as their records expire");
        }
        ("resolve_retries", text) => {
            return match count(text, (1, 10)) {
                Some(count) => block.set("attempts", Value::Number(count), number),
                None => findings.untranslated(number, "not a number"),
            };
        }
        ("accepted_payload_size", text) => {
            return match count(text, (512, 8192)) {
                Some(count) => block.set("udp-payload", Value::Number(count), number),
                None => findings.untranslated(number, "not a number"),
            };
        }
        ("parse-resolv-conf", _) => {
            return findings.unneeded(
                number,
                "the servers of /etc/resolv.conf are asked without `name-servers`",
            );
        }
        _ => return findings.untranslated(number, "[resolver] has no counterpart of this line"),
    };
    // `refused` and `other` are one setting; the first one counts.
    match time(line.word(2)) {
        Some(_) if has_hold(block, name) => {
            findings
                .differs(number, "`other` of `hold` also applies to servers that refuse to answer");
        }
        Some(time) => block.set_in("hold", name, time, number),
        None => findings.untranslated(number, "not a time"),
    }
}

fn has_hold(block: &Block, name: &str) -> bool {
    block.get("hold").is_some_and(|hold| hold.entry(name).is_some())
}
