//! What a record keeps of settings that it no longer holds.
//! In: the settings that a request uses, when they have changed. Out: the names and the counters of the request's route and server.
//! Never: holds settings that no client connection, no stream and no later request uses.
//! Invariant: the index of the route belongs to the settings of the record. Indexes of listeners, pools and servers mean the same in all
//! settings, as long as the request uses them; a server that it does not use any more is kept by name.

use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::Moment;
use tidegate_gate::count_cells::Outcome;

use super::Record;
use crate::snapshot::Snapshot;
use crate::stats::Traffic;
use crate::worker::Worker;

/// A route of earlier settings.
pub(super) struct KeptRoute {
    name: String,
    traffic: Option<Arc<Traffic>>,
    /// Index of the application whose hooks it has.
    app: Option<usize>,
}

/// The last server, from earlier settings.
pub(super) struct KeptServer {
    /// The names of the pool and the server.
    names: (String, String),
    traffic: Option<Arc<Traffic>>,
}

impl Record {
    /// Uses other settings from now on.
    pub(super) fn move_to(&mut self, settings: &Rc<Snapshot>) {
        let Some(before) = self.settings.take() else { return };
        if !Rc::ptr_eq(&before, settings) {
            if let Some(route) = self.route.take() {
                self.kept_route = Some(Box::new(KeptRoute {
                    name: before.names.route(route.into()).to_owned(),
                    traffic: before.counted.share_route(route),
                    app: app_of(&before, route),
                }));
            }
            if let Some(server) = self.server.filter(|_| self.kept_server.is_none()) {
                let (pool, name) = before.names.server(server.0.into(), server.1.into());
                self.kept_server = Some(Box::new(KeptServer {
                    names: (pool.to_owned(), name.to_owned()),
                    traffic: before.counted.share_server(server),
                }));
            }
            if !self.tracked.is_empty() && self.kept_tables.is_none() {
                self.kept_tables = Some(before.process.tables.clone());
            }
        }
        self.settings = Some(Rc::clone(settings));
    }

    /// The name of the route.
    pub(super) fn route_name(&self) -> Option<&str> {
        match (self.route, &self.kept_route) {
            (Some(route), _) => Some(self.settings.as_deref()?.names.route(route.into())),
            (None, kept) => kept.as_ref().map(|kept| kept.name.as_str()),
        }
    }

    /// The names of the pool and the last server.
    pub(super) fn server_names(&self) -> Option<(&str, &str)> {
        match (&self.kept_server, self.server) {
            (Some(kept), _) => Some((&kept.names.0, &kept.names.1)),
            (None, server) => {
                let (pool, server) = server?;
                Some(self.settings.as_deref()?.names.server(pool.into(), server.into()))
            }
        }
    }

    /// The counters of the route.
    pub(super) fn route_traffic(&self) -> Option<&Traffic> {
        match (self.route, &self.kept_route) {
            (Some(route), _) => self.settings.as_deref()?.counted.route(route),
            (None, kept) => kept.as_ref()?.traffic.as_deref(),
        }
    }

    /// The counters of the last server.
    pub(super) fn server_traffic(&self) -> Option<&Traffic> {
        match &self.kept_server {
            Some(kept) => kept.traffic.as_deref(),
            None => self.settings.as_deref()?.counted.server(self.server?),
        }
    }

    /// The application whose hooks the route has.
    pub(super) fn hooked_app(&self) -> Option<usize> {
        match (self.route, &self.kept_route) {
            (Some(route), _) => app_of(self.settings.as_deref()?, route),
            (None, kept) => kept.as_ref()?.app,
        }
    }

    /// The route of the request is one of these settings.
    pub(super) fn change_route(&mut self, settings: &Rc<Snapshot>, route: u16) {
        let is_same = self.settings.as_ref().is_some_and(|own| Rc::ptr_eq(own, settings));
        if is_same && self.route == Some(route) {
            return;
        }
        if let Some(traffic) = self.route_traffic() {
            traffic.withdraw();
        }
        if !is_same {
            self.move_to(settings);
        }
        (self.route, self.kept_route) = (Some(route), None);
        if let Some(traffic) = self.route_traffic() {
            traffic.begin();
        }
    }

    /// The request goes to a server of the settings of the record.
    pub(super) fn change_server(&mut self, server: (u16, u16)) {
        if let Some(traffic) = self.server_traffic() {
            traffic.leave();
        }
        (self.server, self.kept_server) = (Some(server), None);
        if let Some(traffic) = self.server_traffic() {
            traffic.begin();
        }
    }

    /// Ends the entries of tables that count the request.
    pub(super) fn end_tracked(&mut self, now: Moment) {
        if self.tracked.is_empty() {
            return;
        }
        let Self { status, bytes_in: bytes_received, bytes_out: bytes_sent, .. } = *self;
        let outcome = Outcome { status, bytes_received, bytes_sent };
        let own = self.settings.as_deref().map(|settings| &settings.process.tables);
        if let Some(tables) = self.kept_tables.as_ref().or(own) {
            for tracked in self.tracked.drain(..) {
                tables.end(tracked, now, &outcome);
            }
        }
    }
}

/// The application whose hooks a route has.
fn app_of(settings: &Snapshot, route: u16) -> Option<usize> {
    let handling = settings.handlings.of_route(route.into())?;
    handling.hooks.as_ref().map(|hooks| hooks.app)
}

impl Worker {
    /// Lets records use the newest settings whose own ones nothing else uses any more: a tunnel may last through any number of changes.
    pub(crate) fn move_records(&mut self) {
        let newest = self.settings.newest();
        for record in &mut self.recorder.records {
            let is_held = record.settings.as_ref().is_none_or(|own| self.settings.holds(own));
            if !is_held {
                record.move_to(newest);
            }
        }
    }

    /// How many generations of settings records hold beyond those of the worker. For tests.
    #[must_use]
    pub fn settings_held_by_records(&self) -> usize {
        let records = self.recorder.records.iter().filter_map(|record| record.settings.as_ref());
        records.filter(|own| !self.settings.holds(own)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Registry, Subject};

    /// Settings of pools and routes with these names.
    fn settings(registry: &Registry, names: &[&str]) -> Rc<Snapshot> {
        let mut text = "[[listener]]\nbind = \"10.0.0.1:80\"\n".to_owned();
        for name in names {
            text += &format!("[[route]]\npath = \"/{name}\"\nproxy = \"{name}\"\n");
        }
        for name in names {
            text += &format!("[pool.{name}]\nservers = [\"10.0.0.2:80\"]\n");
        }
        let config = tidegate_config::parse(&text, "the test").expect("it is valid");
        let addresses = names.iter().map(|_| vec![Vec::new()]).collect();
        Rc::new(Snapshot::new(config, addresses).counted_in(registry, 0))
    }

    #[test]
    fn record_keeps_its_own_parts_of_earlier_settings() {
        let registry = Registry::new(1);
        let (early, late) = (settings(&registry, &["a"]), settings(&registry, &["b", "a", "c"]));
        let mut record = Record::vacant();
        record.settings = Some(Rc::clone(&early));
        record.change_route(&early, 0);
        record.change_server((0, 0));
        for _ in 0..2 {
            record.move_to(&late);
            assert_eq!(record.route_name(), Some("/a"));
            assert_eq!(record.server_names(), Some(("a", "10.0.0.2:80")));
        }
        assert_eq!(Rc::strong_count(&early), 1, "they are freed");
        let under_way = || {
            let totals = registry.totals();
            let of = |subject: &Subject| totals[subject].get("under_way_now");
            let server = |pool: &str| of(&Subject::Server(pool.into(), "10.0.0.2:80".into()));
            let route = |name: &str| of(&Subject::Route(name.into()));
            ([route("/a"), route("/c")], [server("a"), server("c")])
        };
        assert_eq!(under_way(), ([1, 0], [1, 0]));
        // It is judged again, and goes to a pool that the earlier settings do not have.
        record.change_route(&late, 2);
        record.change_server((2, 0));
        assert_eq!(record.route_name(), Some("/c"));
        assert_eq!(record.server_names(), Some(("c", "10.0.0.2:80")));
        assert_eq!(under_way(), ([0, 1], [0, 1]));
    }
}
