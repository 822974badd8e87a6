//! Runs every item's detection and weighs what came out.
//! In: a host, a workload. Out: a `Report`, sorted by gain.
//! Never: changes anything; stops at an item that cannot be read (it is skipped with its reason).

use crate::action::{Action, sysctl_key};
use crate::capacity::Needs;
use crate::environment::Environment;
use crate::finding::{Finding, State};
use crate::host::{Cause, Host, Unreadable};
use crate::item::{Item, Risk};
use crate::items;
use crate::mounts::read_only_mount;
use crate::workload::Workload;

/// Who can change what an item found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// `tune apply` can.
    Apply,
    /// Tidegate does it by itself when it serves.
    Itself,
    /// There is nothing to change.
    Nobody,
    /// A person has to.
    You,
}

impl Hand {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apply => "tune apply",
            Self::Itself => "by itself",
            Self::Nobody => "nothing to do",
            Self::You => "by hand",
        }
    }
}

/// One item with what was found.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The item.
    pub item: &'static Item,
    /// What was found.
    pub finding: Finding,
}

impl Entry {
    /// The gain to expect, percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        self.finding.percent.unwrap_or(self.item.gain.percent)
    }

    /// Who can change it.
    #[must_use]
    pub fn hand(&self) -> Hand {
        match self.finding.state {
            State::Good | State::Skipped(_) => Hand::Nobody,
            State::Blocked(_) => Hand::You,
            State::Costs if !self.finding.actions.is_empty() => Hand::Apply,
            State::Costs if self.finding.by_itself && self.finding.advice.is_empty() => {
                Hand::Itself
            }
            State::Costs => Hand::You,
        }
    }
}

/// What `tune check` found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where we are.
    pub environment: Environment,
    /// What the advice is for.
    pub workload: Workload,
    /// Every item that matters for it: those that cost first, the dearest on top.
    pub entries: Vec<Entry>,
    /// The capacity plan in words; empty unless connections were asked for.
    pub plan: Vec<String>,
    /// 0 to 100: what the host reaches of what it could, security trades left out.
    pub score: u32,
}

impl Report {
    /// The entries in one state's word, in order.
    pub fn in_state(&self, name: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.finding.state.name() == name)
    }
}

/// Looks at a host for a workload.
#[must_use]
pub fn check(host: &Host, workload: &Workload) -> Report {
    let environment = Environment::of(host);
    let mut entries: Vec<Entry> = items::ALL
        .iter()
        .filter(|item| item.matters_for(workload.kind))
        .map(|item| Entry { item, finding: detect(item, host, workload, &environment) })
        .collect();
    entries.sort_by(|one, other| {
        rank(one).cmp(&rank(other)).then_with(|| match one.finding.state {
            State::Costs | State::Blocked(_) => other.percent().total_cmp(&one.percent()),
            State::Good | State::Skipped(_) => std::cmp::Ordering::Equal,
        })
    });
    let plan = match workload.asked_connections {
        Some(_) => Needs::of(host, workload).lines(&environment),
        None => Vec::new(),
    };
    Report { score: score(&entries), environment, workload: workload.clone(), entries, plan }
}

/// One item's finding, with what cannot be changed from here marked so.
#[must_use]
pub fn detect(item: &Item, host: &Host, workload: &Workload, environment: &Environment) -> Finding {
    let mut finding = match (item.detect)(host, workload) {
        Ok(finding) => finding,
        Err(error) => Finding::skipped(reason_of(&error, environment)),
    };
    if finding.state == State::Costs
        && let Some(reason) = environment
            .blocks(item.scope)
            .or_else(|| read_only(host, &finding.actions, environment))
    {
        finding.state = State::Blocked(reason);
        finding.actions.clear();
        finding.kept.clear();
    }
    finding
}

/// Why an item is skipped. Settings of the whole host are not missing from the kernel when a container's
/// network namespace does not show them.
fn reason_of(error: &Unreadable, environment: &Environment) -> String {
    let is_hidden = error.cause == Cause::Missing && error.what.starts_with("/proc/sys/net/");
    match &environment.container {
        Some(kind) if is_hidden => {
            format!("{} is not shown inside a container ({kind}): look on the host", error.what)
        }
        _ => error.to_string(),
    }
}

/// Why none of the settings can be written from here; `None` when they can.
fn read_only(host: &Host, actions: &[Action], environment: &Environment) -> Option<String> {
    actions.iter().find_map(|action| {
        let Action::Setting { path, value } = action else {
            return None;
        };
        let mount = read_only_mount(host, path)?;
        let mend = match sysctl_key(path) {
            Some(key) if key.starts_with("net.") && environment.container.is_some() => format!(
                "give it when the container starts (docker run --sysctl {key}=\"{value}\") or set it outside"
            ),
            _ => "set it outside".to_owned(),
        };
        Some(format!("{mount} is mounted read-only here: {mend}"))
    })
}

const fn rank(entry: &Entry) -> u8 {
    match entry.finding.state {
        State::Costs => 0,
        State::Blocked(_) => 1,
        State::Good => 2,
        State::Skipped(_) => 3,
    }
}

/// 100 divided by the product of all gains left: two items of 25 % each give 64.
fn score(entries: &[Entry]) -> u32 {
    let left: f64 = entries
        .iter()
        .filter(|entry| entry.finding.state == State::Costs)
        .filter(|entry| entry.item.risk != Risk::SecurityTrade)
        .map(|entry| 1.0 + entry.percent().max(0.0) / 100.0)
        .product();
    (100.0 / left).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_host_that_shows_nothing_gives_reasons_not_crashes() {
        let report = check(
            &Host::recorded(Path::new("/nonexistent")),
            &Workload::of(crate::workload::For::All),
        );
        assert_eq!(report.entries.len(), items::ALL.len());
        for entry in &report.entries {
            assert_ne!(entry.finding.state, State::Costs, "{}", entry.item.id);
        }
    }
}
