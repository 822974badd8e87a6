//! Runs the detection of every item and computes the score.
//! In: a host, a workload. Out: a `Report`, sorted by gain.
//! Never: changes anything; stops at an item that cannot be read (it is skipped, with the reason).

use crate::action::{Action, sysctl_key};
use crate::capacity::Needs;
use crate::environment::Environment;
use crate::finding::{Finding, State};
use crate::host::{Cause, Host, Unreadable};
use crate::item::{Item, Risk};
use crate::items;
use crate::mounts::read_only_mount;
use crate::workload::Workload;

/// The party that can change the setting of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    /// `tune apply`.
    Apply,
    /// Tidegate itself, when it serves.
    Tidegate,
    /// There is nothing to change.
    Nothing,
    /// The operator, by hand.
    Operator,
}

impl ChangedBy {
    /// The value in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apply => "tune apply",
            Self::Tidegate => "by Tidegate",
            Self::Nothing => "nothing to do",
            Self::Operator => "by hand",
        }
    }
}

/// One item with its finding.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The item.
    pub item: &'static Item,
    /// The finding on this host.
    pub finding: Finding,
}

impl Entry {
    /// The expected gain, percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        self.finding.percent.unwrap_or(self.item.gain.percent)
    }

    /// The party that can change the setting.
    #[must_use]
    pub fn changed_by(&self) -> ChangedBy {
        match self.finding.state {
            State::Good | State::Skipped(_) => ChangedBy::Nothing,
            State::Blocked(_) => ChangedBy::Operator,
            State::Costs if !self.finding.actions.is_empty() => ChangedBy::Apply,
            State::Costs if self.finding.applied_by_tidegate && self.finding.advice.is_empty() => {
                ChangedBy::Tidegate
            }
            State::Costs => ChangedBy::Operator,
        }
    }
}

/// The result of `tune check`.
#[derive(Clone, Debug)]
pub struct Report {
    /// The machine, virtual machine or container.
    pub environment: Environment,
    /// The purpose of the advice.
    pub workload: Workload,
    /// Every item that matters for the workload. Items that cost performance come first, sorted by gain, largest first.
    pub entries: Vec<Entry>,
    /// The capacity plan as text; empty unless a number of connections was requested.
    pub plan: Vec<String>,
    /// 0 to 100: the share of its potential that the host reaches, without security trade-offs.
    pub score: u32,
}

impl Report {
    /// The entries whose state has this name, in order.
    pub fn in_state(&self, name: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.finding.state.name() == name)
    }
}

/// Checks a host for a workload.
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
    let plan = match workload.requested_connections {
        Some(_) => Needs::of(host, workload).lines(&environment),
        None => Vec::new(),
    };
    Report { score: score(&entries), environment, workload: workload.clone(), entries, plan }
}

/// The finding of one item. A setting that cannot be changed from here is marked as blocked.
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

/// The reason why an item is skipped. A setting of the whole host that the network namespace of a container
/// does not show is not missing from the kernel.
fn reason_of(error: &Unreadable, environment: &Environment) -> String {
    let is_hidden = error.cause == Cause::Missing && error.what.starts_with("/proc/sys/net/");
    match &environment.container {
        Some(kind) if is_hidden => {
            format!(
                "{} is not visible inside a container ({kind}): run `tidegate tune check` on the host",
                error.what
            )
        }
        _ => error.to_string(),
    }
}

/// Why the settings cannot be written from here; `None` if they can.
fn read_only(host: &Host, actions: &[Action], environment: &Environment) -> Option<String> {
    actions.iter().find_map(|action| {
        let Action::Setting { path, value } = action else {
            return None;
        };
        let mount = read_only_mount(host, path)?;
        let help = match sysctl_key(path) {
            Some(key) if key.starts_with("net.") && environment.container.is_some() => format!(
                "set it when the container starts (docker run --sysctl {key}=\"{value}\") or on the host"
            ),
            _ => "set it on the host".to_owned(),
        };
        Some(format!("{mount} is mounted read-only here: {help}"))
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

/// 100 divided by the product of the gains that are not used yet: two items of 25 % each give 64.
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
    fn host_without_files_skips_every_item() {
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
