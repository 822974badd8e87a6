//! The commands about sets of addresses.
//! In: words; the sets in force. Out: text, or an error.
//! Limits: `SHOWN_MAX` ranges are shown.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use tidegate_gate::live_set::LiveSet;

use super::Operations;
use super::command::Outcome;
use super::command::Reply::{Changed, Shown};
use super::map::number_of;
use super::rows::listed;

/// Maximum number of ranges that one command shows.
const SHOWN_MAX: usize = 100_000;

fn find(name: &str, operations: &Operations) -> Result<Arc<LiveSet>, String> {
    let sets = operations.process().sets;
    sets.find(name).cloned().ok_or_else(|| {
        let known: Vec<&str> = sets.all().map(|(name, _)| name).take(20).collect();
        format!("no set {name:?}; the sets are: {}", listed(&known))
    })
}

/// Shows all sets, or the ranges of one.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    let mut text = String::new();
    match arguments {
        [] => {
            text.push_str("# name ranges changes\n");
            for (name, set) in operations.process().sets.all() {
                let _ = writeln!(text, "{name} {} {}", set.networks().len(), set.changes());
            }
        }
        [name] => {
            let networks = find(name, operations)?.networks();
            let mut networks = networks.networks();
            for network in networks.by_ref().take(SHOWN_MAX) {
                let _ = writeln!(text, "{network}");
            }
            if networks.next().is_some() {
                text.push_str("# more ranges are not shown\n");
            }
        }
        _ => return Err("usage: show set [NAME]".to_owned()),
    }
    Ok(Shown(text))
}

/// Shows whether an address is in a set.
pub(super) fn get(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name, address] = arguments else { return Err("usage: get set NAME ADDRESS".to_owned()) };
    let set = find(name, operations)?;
    let parsed =
        address.parse::<IpAddr>().map_err(|_| format!("{address:?} is not an IP address"))?;
    match set.networks().contains(parsed) {
        true => Ok(Shown(format!("{address}\n"))),
        false => Err(absent(name, address)),
    }
}

fn absent(name: &str, network: &str) -> String {
    format!("set {name:?} does not contain {network:?}")
}

/// Adds a range to the set in force or to a version.
pub(super) fn add(arguments: &[&str], operations: &Operations) -> Outcome {
    let usage = "usage: add set NAME NETWORK, or add set @VERSION NAME NETWORK";
    match arguments {
        [name, network] => match find(name, operations)?.add(network)? {
            true => Ok(Changed(String::new())),
            false => Ok(Shown(format!("# {network} is in the set already\n"))),
        },
        [version, name, network] => {
            let version = number_of(version).ok_or(usage)?;
            find(name, operations)?.add_to(version, network)?;
            Ok(Shown(String::new()))
        }
        _ => Err(usage.to_owned()),
    }
}

/// Removes all addresses of a range.
pub(super) fn remove(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name, network] = arguments else { return Err("usage: del set NAME NETWORK".to_owned()) };
    match find(name, operations)?.remove(network)? {
        true => Ok(Changed(String::new())),
        false => Err(absent(name, network)),
    }
}

/// Removes all addresses.
pub(super) fn clear(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name] = arguments else { return Err("usage: clear set NAME".to_owned()) };
    find(name, operations)?.clear();
    Ok(Changed(String::new()))
}

/// Begins a new version of a set.
pub(super) fn prepare(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name] = arguments else { return Err("usage: prepare set NAME".to_owned()) };
    let draft = find(name, operations)?.prepare();
    Ok(Shown(format!("New version created: {draft}\n")))
}

/// Puts a version in force.
pub(super) fn commit(arguments: &[&str], operations: &Operations) -> Outcome {
    let usage = "usage: commit set @VERSION NAME";
    let [version, name] = arguments else { return Err(usage.to_owned()) };
    let version = number_of(version).ok_or(usage)?;
    let count = find(name, operations)?.commit(version)?;
    Ok(Changed(format!("ranges: {count}\n")))
}
