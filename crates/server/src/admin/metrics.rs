//! Metrics for Prometheus.
//! In: the counters of workers, listeners, routes, pools, servers and tables. Out: an exposition in one of its formats.
//! Limits: `SERIES_MAX` listeners, routes, pools and servers each; the others are left out, and counted in
//! `tidegate_metrics_left_out`.

use std::collections::BTreeSet;

use tidegate_gate::access::Names;
use tidegate_gate::count_cells::CountCells;

use super::exposition::{Exposition, Figure, Format, Kind, Labels};
use super::{Operations, process};
use crate::counters::WorkerCounters;
use crate::health::{Agent, Checked, View};
use crate::stats::{Subject, Totals};

/// How many listeners, routes, pools and servers have their own metrics, each.
const SERIES_MAX: usize = 1000;

/// The metrics of one kind of subject: the labels, and the sums.
type Series = Vec<(Labels, Totals)>;

/// Returns all metrics.
pub(super) fn encode(operations: &Operations, format: Format) -> Vec<u8> {
    let mut metrics = Metrics(Exposition::new(format));
    process::add(&mut metrics.0);
    metrics.process(operations);
    let (mut listeners, mut routes) = (Series::new(), Series::new());
    let (mut pools, mut servers) = (Series::new(), Series::new());
    let present = present(operations);
    let all = operations.registry.totals().into_iter();
    // Those that no longer exist are left out first.
    let (kept, gone): (Vec<_>, Vec<_>) = all.partition(|(subject, _)| present.contains(subject));
    for (subject, totals) in kept.into_iter().chain(gone) {
        match subject {
            Subject::Listener(name) => listeners.push((Labels::of("listener", &name), totals)),
            Subject::Route(name) => routes.push((Labels::of("route", &name), totals)),
            Subject::Pool(name) => pools.push((Labels::of("pool", &name), totals)),
            Subject::Server(pool, server) => {
                servers.push((of_server(&pool, &server), totals));
            }
        }
    }
    let mut left_out = 0;
    for series in [&mut listeners, &mut routes, &mut pools, &mut servers] {
        left_out += series.len().saturating_sub(SERIES_MAX);
        series.truncate(SERIES_MAX);
    }
    metrics.traffic("listener", &listeners);
    metrics.traffic("route", &routes);
    metrics.traffic("server", &servers);
    metrics.pools(&pools);
    metrics.servers(&servers);
    metrics.health(operations);
    metrics.tables(operations);
    metrics.keys(operations);
    metrics.hubs(operations);
    metrics.single(
        "metrics_left_out",
        Kind::Gauge,
        "Listeners, routes, pools and servers left out of these metrics, because there are too many.",
        left_out as u64,
    );
    metrics.0.end()
}

/// The listeners, routes and servers of the configuration in force.
fn present(operations: &Operations) -> BTreeSet<Subject> {
    let config = operations.config();
    let names = Names::new(&config);
    let mut present: BTreeSet<Subject> =
        config.listeners.iter().map(|listener| Subject::Listener(listener.name.clone())).collect();
    let routes = 0..config.routes.len();
    present.extend(routes.map(|route| Subject::Route(names.route(route).to_owned())));
    for (pool, settings) in config.pools.iter().enumerate() {
        present.insert(Subject::Pool(settings.name.clone()));
        let servers = 0..settings.servers.len();
        // A removed server keeps its index for a while, without a state.
        present.extend(
            servers.filter(|server| operations.roster.view(pool, *server).is_some()).map(
                |server| {
                    let (pool, server) = names.server(pool, server);
                    Subject::Server(pool.to_owned(), server.to_owned())
                },
            ),
        );
    }
    present
}

/// The description of a counter of the process.
fn about(name: &str) -> &'static str {
    let of_workers = WorkerCounters::ABOUT.iter().find(|(known, _)| *known == name);
    match (name, of_workers) {
        (_, Some((_, about))) => about,
        ("admin_connections_now", None) => "Open connections to the admin interface.",
        ("admin_connections_displaced", None) => {
            "Connections to the admin interface that were closed because newer ones took their places."
        }
        ("checks_postponed", None) => {
            "Checks of servers that had to wait, because the process lacked a descriptor, a port or memory for their connections."
        }
        ("key_fetches", None) => "Key sets for tokens (JWKS) that were fetched.",
        ("key_fetch_failures", None) => "Failed attempts to fetch keys for tokens.",
        ("memory_used_bytes_now", None) => {
            "Memory in use, as it counts for `memory-max`; 0 before it is measured."
        }
        ("memory_max_bytes_now", None) => "Memory that may be in use by `memory-max`.",
        ("memory_exceeded_now", None) => {
            "1 while new requests are refused because more memory than `memory-max` is in use."
        }
        ("log_lines_lost", None) => {
            "Lines of the log that were lost because stderr was read too slowly or could not be written."
        }
        (_, None) => "A counter of the process.",
    }
}

/// The labels of a server.
fn of_server(pool: &str, server: &str) -> Labels {
    Labels::of("pool", pool).with("server", server)
}

/// The metrics so far.
struct Metrics(Exposition);

impl Metrics {
    /// Begins a family. `name` has neither the prefix of the program nor the suffix of a counter.
    fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        self.0.begin(&format!("tidegate_{name}"), kind, help);
    }

    fn sample(&mut self, labels: &Labels, value: impl Into<Figure>) {
        self.0.sample(labels, value);
    }

    /// The fetched keys that verify tokens.
    fn keys(&mut self, operations: &Operations) {
        let keys = operations.process().keys;
        if keys.all().next().is_none() {
            return;
        }
        let labels = |url: &str| Labels::of("url", url.split('?').next().unwrap_or_default());
        self.begin(
            "token_keys",
            Kind::Gauge,
            "Keys that verify tokens, by the address they are fetched from.",
        );
        for (remote, keys) in keys.all() {
            self.sample(&labels(&remote.url), keys.facts().keys as u64);
        }
        let help = "When the keys in force were last fetched, in seconds since 1970; 0: never.";
        self.begin("token_keys_fetched_time_seconds", Kind::Gauge, help);
        for (remote, keys) in keys.all() {
            let fetched_at = keys.facts().fetched_at;
            self.sample(&labels(&remote.url), fetched_at);
        }
    }

    /// The messages of push hubs for clients that do not read.
    fn hubs(&mut self, operations: &Operations) {
        let config = operations.config();
        let hubs: Vec<(Labels, [u64; 3])> = (config.push.iter().enumerate().take(SERIES_MAX))
            .map(|(at, hub)| (Labels::of("hub", &hub.name), operations.push_losses(at as u16)))
            .collect();
        if hubs.is_empty() {
            return;
        }
        for (at, (name, help)) in [
            (
                "hub_queued",
                "Messages of a push hub that had to wait because a client did not read.",
            ),
            ("hub_dropped", "Messages of a push hub that were dropped because too many waited."),
            (
                "hub_slow_closes",
                "Clients of a push hub that were disconnected because they did not read.",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            self.begin(name, Kind::Counter, help);
            for (labels, losses) in &hubs {
                self.sample(labels, losses[at]);
            }
        }
    }

    fn single(&mut self, name: &str, kind: Kind, help: &str, value: u64) {
        self.begin(name, kind, help);
        self.sample(&Labels::default(), value);
    }

    /// The process, and the counters of its workers.
    fn process(&mut self, operations: &Operations) {
        self.begin("build_info", Kind::Gauge, "The version of Tidegate, as a label.");
        self.sample(&Labels::of("version", env!("CARGO_PKG_VERSION")), 1_u64);
        let start = operations.started.1.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.begin(
            "start_time_seconds",
            Kind::Gauge,
            "When the process started, in seconds since 1970.",
        );
        self.sample(&Labels::default(), start.as_secs());
        self.single("workers", Kind::Gauge, "Worker threads.", operations.accounts.len() as u64);
        for (name, value) in operations.counters() {
            // A gauge keeps its suffix, because a counter of the same name may exist.
            let kind = if name.ends_with("_now") { Kind::Gauge } else { Kind::Counter };
            self.single(name, kind, about(name), value);
        }
    }

    /// Counts, bytes and times of listeners, routes or servers.
    fn traffic(&mut self, kind: &str, series: &Series) {
        let name = format!("{kind}_responses");
        self.begin(&name, Kind::Counter, "Requests that ended, by class of the status.");
        for (labels, totals) in series {
            for (class, counter) in [
                ("none", "status_none"),
                ("1xx", "status_1xx"),
                ("2xx", "status_2xx"),
                ("3xx", "status_3xx"),
                ("4xx", "status_4xx"),
                ("5xx", "status_5xx"),
            ] {
                let labels = labels.with("status", class);
                self.sample(&labels, totals.get(counter));
            }
        }
        let name = format!("{kind}_failures");
        self.begin(&name, Kind::Counter, "Requests that failed, by cause.");
        for (labels, totals) in series {
            for (cause, counter) in [
                ("client", "client_failures"),
                ("refused", "refusals"),
                ("connect", "connect_failures"),
                ("server", "server_failures"),
                ("limit", "limit_failures"),
            ] {
                let labels = labels.with("cause", cause);
                self.sample(&labels, totals.get(counter));
            }
        }
        for (what, counter, help) in [
            ("received_bytes", "bytes_in", "Bytes of request bodies."),
            ("sent_bytes", "bytes_out", "Bytes of responses."),
        ] {
            let name = format!("{kind}_{what}");
            self.begin(&name, Kind::Counter, help);
            for (labels, totals) in series {
                self.sample(labels, totals.get(counter));
            }
        }
        let name = format!("{kind}_requests_under_way");
        self.begin(&name, Kind::Gauge, "Requests in progress.");
        for (labels, totals) in series {
            self.sample(labels, totals.get("under_way_now"));
        }
        self.durations(&format!("{kind}_duration_seconds"), series);
    }

    /// Histograms of the time from the first byte of a request head to the end of the response.
    fn durations(&mut self, name: &str, series: &Series) {
        self.begin(
            name,
            Kind::Histogram,
            "Time from the first byte of a request to the end of its response.",
        );
        for (labels, totals) in series {
            self.0.histogram(labels, &totals.latency);
        }
    }

    /// Metrics that only pools have.
    fn pools(&mut self, series: &Series) {
        let help =
            "Requests that ended without a server: none was available, or they waited too long.";
        self.begin("pool_unserved", Kind::Counter, help);
        for (labels, totals) in series {
            self.sample(labels, totals.get("ended"));
        }
        for (name, counter, help) in [
            ("pool_queued", "queued_now", "Requests that wait for a server."),
            (
                "pool_queued_max",
                "queued_max",
                "The most requests that waited for a server at once, summed over the workers.",
            ),
        ] {
            self.begin(name, Kind::Gauge, help);
            for (labels, totals) in series {
                self.sample(labels, totals.get(counter));
            }
        }
    }

    /// Metrics that only servers have.
    fn servers(&mut self, series: &Series) {
        for (what, counter, help) in [
            ("retries", "retries", "Failed attempts that were followed by another attempt."),
            ("reuses", "reuses", "Requests on a connection that was used before."),
        ] {
            let name = format!("server_{what}");
            self.begin(&name, Kind::Counter, help);
            for (labels, totals) in series {
                self.sample(labels, totals.get(counter));
            }
        }
    }
}

/// A counter of checks: its name, what it counts, its value.
type Counted = (&'static str, &'static str, fn(&Checked) -> u64);
/// A counter of agents: its name, what it counts, its value.
type CountedOfAgents = (&'static str, &'static str, fn(&Agent) -> u64);
/// A server with metrics of its health: its labels, its configured weight, and its status.
type Known = Vec<(Labels, u16, View)>;

impl Metrics {
    /// Which servers take requests, and their checks.
    fn health(&mut self, operations: &Operations) {
        let config = operations.config();
        let names = Names::new(&config);
        let places = config.pools.iter().enumerate();
        let places = places.flat_map(|(at, pool)| (0..pool.servers.len()).map(move |s| (at, s)));
        let known: Known = places
            .filter_map(|(at, server)| {
                let view = operations.roster.view(at, server)?;
                if view.is_empty_slot() {
                    return None;
                }
                let configured = config.pools[at].servers[server].weight;
                let (pool, server) = names.server(at, server);
                let labels = of_server(pool, server);
                Some((labels, configured, view))
            })
            .take(SERIES_MAX)
            .collect();
        self.begin("server_up", Kind::Gauge, "1 if the server takes requests.");
        for (labels, weight, view) in &known {
            self.sample(labels, u64::from(view.takes_requests(*weight)));
        }
        self.begin(
            "server_weight",
            Kind::Gauge,
            "The weight, as set by the file, an operator and an agent, rounded up.",
        );
        for (labels, weight, view) in &known {
            self.sample(labels, u64::from(view.weight_now(*weight)));
        }
        let agents = || known.iter().filter_map(|(labels, _, v)| Some((labels, v.agent.as_ref()?)));
        let counters: [CountedOfAgents; 2] = [
            ("server_agent_checks", "Checks of agents.", |agent| agent.checks),
            (
                "server_agent_failures",
                "Checks of agents that failed or returned an invalid line.",
                |agent| agent.failures,
            ),
        ];
        for (name, help, value) in counters {
            self.begin(name, Kind::Counter, help);
            for (labels, agent) in agents() {
                self.sample(labels, value(agent));
            }
        }
        let checked =
            || known.iter().filter_map(|(labels, _, v)| Some((labels, v.checked.as_ref()?)));
        let counters: [Counted; 3] = [
            ("server_checks", "Health checks.", |checked| checked.checks),
            ("server_check_failures", "Health checks that failed.", |checked| checked.failures),
            (
                "server_downs",
                "Times that failed health checks marked the server down.",
                |checked| checked.downs,
            ),
        ];
        for (name, help, value) in counters {
            self.begin(name, Kind::Counter, help);
            for (labels, checked) in checked() {
                self.sample(labels, value(checked));
            }
        }
        self.begin(
            "server_check_last",
            Kind::Gauge,
            "The result of the last health check, as a label.",
        );
        for (labels, checked) in checked() {
            if let Some((outcome, _)) = checked.last {
                let labels = labels.with("result", outcome.code());
                self.sample(&labels, 1_u64);
            }
        }
        self.begin(
            "server_check_duration_seconds",
            Kind::Gauge,
            "Duration of the last health check in seconds.",
        );
        for (labels, checked) in checked() {
            if let Some((_, took)) = checked.last {
                self.sample(labels, took.as_secs_f64());
            }
        }
    }
}

/// A figure of a table: its name, its kind, its description, its value.
type OfTable = (&'static str, Kind, &'static str, fn(&CountCells) -> u64);

impl Metrics {
    /// The tables that count what clients do.
    fn tables(&mut self, operations: &Operations) {
        let tables = operations.process().tables;
        if !tables.are_set() {
            return;
        }
        let figures: [OfTable; 4] = [
            ("table_entries", Kind::Gauge, "Keys in a table.", CountCells::entries),
            ("table_bytes", Kind::Gauge, "Memory of a table.", |cells| cells.bytes() as u64),
            (
                "table_evictions",
                Kind::Counter,
                "Keys that other keys displaced before they expired.",
                CountCells::displaced,
            ),
            (
                "table_uncounted",
                Kind::Counter,
                "Requests that were not counted because another worker was adding a key at the same moment.",
                CountCells::uncounted,
            ),
        ];
        for (name, kind, help, value) in figures {
            self.begin(name, kind, help);
            for table in tables.all() {
                let labels = Labels::of("table", &table.settings().name);
                self.sample(&labels, value(table.cells()));
            }
        }
    }
}
