//! The commands about routes that are closed for maintenance.
//! In: words; the switches in force. Out: text, or an error.

use std::fmt::Write as _;
use std::sync::PoisonError;

use tidegate_gate::maintenance::Position;

use super::Operations;
use super::command::Outcome;
use super::command::Reply::{Changed, Shown};

/// Shows each name, the setting by a command, and how many of its routes are closed.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: show maintenance".to_owned());
    }
    let config = operations.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut text = String::from("# name switch routes closed\n");
    for (name, switch) in operations.process().switches.all() {
        let downs = config.routes.iter().filter_map(|route| route.handling.maintenance.as_ref());
        let named = downs.filter(|down| down.name.as_deref() == Some(name));
        let closed: Vec<bool> = named.map(|down| switch.closes(down.active)).collect();
        let count = closed.iter().filter(|is_closed| **is_closed).count();
        let _ = writeln!(text, "{name} {} {} {count}", switch.position().word(), closed.len());
    }
    Ok(Shown(text))
}

/// Closes or opens the routes of a name.
pub(super) fn set(arguments: &[&str], operations: &Operations) -> Outcome {
    let usage = "usage: set maintenance NAME on|off|default";
    let [name, word] = arguments else { return Err(usage.to_owned()) };
    let known = Position::WORDS.iter().find(|(known, _)| known == word);
    let Some((_, position)) = known else {
        return Err(format!("{word:?} is not on, off or default; {usage}"));
    };
    let switches = operations.process().switches;
    let Some(switch) = switches.find(name) else {
        let known: Vec<&str> = switches.all().map(|(name, _)| name).take(20).collect();
        return Err(match known.is_empty() {
            true => "no route has `maintenance` with a `name`".to_owned(),
            false => format!("no maintenance {name:?}; the names are: {}", known.join(", ")),
        });
    };
    switch.set(*position);
    Ok(Changed(String::new()))
}
