//! The origin of each route and pool of a configuration: its file, or a command that has edited it.
//! In: edits. Out: data, from which the edits can be repeated.
//! Invariant: routes of the file keep the order of the file.

use std::sync::Arc;

use super::Pool;

/// The origins of routes and pools; `None`: all are from the file, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origins {
    /// By route.
    pub routes: Option<Vec<Origin<()>>>,
    /// By pool.
    pub pools: Option<Vec<Origin<Pool>>>,
}

/// The origin of a part: the file or a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin<T> {
    /// From the file: its index there.
    File(usize),
    /// From a command.
    Command(Arc<Stated<T>>),
}

/// A part as a command wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated<T> {
    /// The table, as TOML.
    pub text: String,
    /// The part before further edits.
    pub part: T,
}

impl Origins {
    /// The origins of `count` routes, before one of them is added or removed.
    pub(crate) fn routes(&mut self, count: usize) -> &mut Vec<Origin<()>> {
        fill(&mut self.routes, count)
    }

    /// The origins of `count` pools, before one of them is added or removed.
    pub(crate) fn pools(&mut self, count: usize) -> &mut Vec<Origin<Pool>> {
        fill(&mut self.pools, count)
    }
}

fn fill<T>(origins: &mut Option<Vec<Origin<T>>>, count: usize) -> &mut Vec<Origin<T>> {
    origins.get_or_insert_with(|| (0..count).map(Origin::File).collect())
}
