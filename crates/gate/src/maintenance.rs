//! Switches that close routes for maintenance while the process serves, for all workers together.
//! In: the names in `maintenance` of a configuration; changes by commands. Out: whether the routes of a name are closed.
//! Never: takes a lock. A route without `maintenance` reads nothing.
//! Invariant: all routes with the same name have the same switch.

use core::sync::atomic::{AtomicU8, Ordering};
use std::collections::BTreeMap;

use tidegate_config::model::Config;

use crate::named::Named;

/// The state that a command has set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// Nothing: `active` of the configuration decides.
    Configured,
    /// The routes are closed.
    On,
    /// The routes are open.
    Off,
}

impl Position {
    /// The positions, with the words of commands.
    pub const WORDS: [(&'static str, Self); 3] =
        [("on", Self::On), ("off", Self::Off), ("default", Self::Configured)];

    /// The word of commands.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Configured => "default",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// The switch of all routes whose `maintenance` has the same name.
#[derive(Default, Debug)]
pub struct Switch(AtomicU8);

impl Switch {
    /// The state that a command has set.
    #[must_use]
    pub fn position(&self) -> Position {
        match self.0.load(Ordering::Relaxed) {
            1 => Position::On,
            2 => Position::Off,
            _ => Position::Configured,
        }
    }

    /// Sets the switch. Workers see it with their next requests.
    pub fn set(&self, position: Position) {
        let value = match position {
            Position::Configured => 0,
            Position::On => 1,
            Position::Off => 2,
        };
        self.0.store(value, Ordering::Relaxed);
    }

    /// Whether a route is closed whose configuration says `active`.
    #[must_use]
    pub fn closes(&self, active: bool) -> bool {
        match self.position() {
            Position::Configured => active,
            Position::On => true,
            Position::Off => false,
        }
    }
}

/// The switches of a configuration, shared by all workers.
pub type Switches = Named<Switch>;

impl Switches {
    /// The switches of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::default().after(config)
    }

    /// The switches of `next`, which follows the configuration with these switches. A name that stays keeps the setting by a
    /// command.
    #[must_use]
    pub fn after(&self, next: &Config) -> Self {
        let downs = next.routes.iter().filter_map(|route| route.handling.maintenance.as_ref());
        let mut names: Vec<&String> = downs.filter_map(|down| down.name.as_ref()).collect();
        names.sort_unstable();
        names.dedup();
        let switch = |name: &String| (name.clone(), self.find(name).cloned().unwrap_or_default());
        names.into_iter().map(switch).collect()
    }

    /// By name: the states that commands have set.
    #[must_use]
    pub fn set_by_commands(&self) -> BTreeMap<String, Position> {
        let positions = self.all().map(|(name, switch)| (name.to_owned(), switch.position()));
        positions.filter(|(_, position)| *position != Position::Configured).collect()
    }

    /// Continues with the states that commands have set in an earlier process.
    pub fn resume(&self, set: &BTreeMap<String, Position>) {
        for (name, switch) in self.all() {
            switch.set(set.get(name).copied().unwrap_or(Position::Configured));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let text = format!("[[listener]]\nbind = \"127.0.0.1:80\"\n{text}");
        tidegate_config::parse(&text, "the test").expect("the file is valid")
    }

    #[test]
    fn routes_of_a_name_share_a_switch_that_a_reload_keeps() {
        let route = |name: &str, path: &str| {
            format!(
                "[[route]]\npath = \"{path}\"\nmaintenance = {{ name = \"{name}\" }}\nrespond = {{ status = 200 }}\n"
            )
        };
        let first = Switches::new(&config(
            &[route("shop", "/a"), route("shop", "/b"), route("wiki", "/c")].concat(),
        ));
        assert_eq!(first.all().map(|(name, _)| name).collect::<Vec<_>>(), ["shop", "wiki"]);
        first.find("shop").expect("it exists").set(Position::Off);
        let second = first.after(&config(&[route("blog", "/b"), route("shop", "/d")].concat()));
        let shop = second.find("shop").expect("it exists");
        assert_eq!((shop.position(), shop.closes(true)), (Position::Off, false));
        assert_eq!(second.find("blog").expect("it exists").position(), Position::Configured);
        assert!(second.find("wiki").is_none());
        // The next process has another configuration, and a state that was set before another command.
        let set = second.set_by_commands();
        assert_eq!(set, BTreeMap::from([("shop".to_owned(), Position::Off)]));
        let next = Switches::new(&config(&[route("shop", "/"), route("wiki", "/w")].concat()));
        next.find("wiki").expect("it exists").set(Position::On);
        next.resume(&set);
        assert_eq!(next.set_by_commands(), set);
    }

    #[test]
    fn every_position_decides_for_every_configuration() {
        let switch = Switch::default();
        for (word, position) in Position::WORDS {
            switch.set(position);
            assert_eq!((switch.position(), position.word()), (position, word));
            let expected = match position {
                Position::Configured => [false, true],
                Position::On => [true, true],
                Position::Off => [false, false],
            };
            assert_eq!([switch.closes(false), switch.closes(true)], expected);
        }
    }
}
