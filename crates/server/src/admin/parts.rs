//! The commands that show the parts of the process: `show pools`, `show tls`, `show names`, `show push`, `show lua`.
//! In: the configuration in force; the reports of the workers. Out: rows with the sums over all workers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_config::model::{
    ClientAuth, ListenerTls, Slow, TicketSource, TlsIdentity, TlsVersion,
};
use tidegate_gate::access::Names;
use tidegate_gate::health::ServerState;
use tidegate_wire::tls::CertificateFacts;

use super::Operations;
use super::command::Outcome;
use super::rows::{Rows, wants_json};
use super::sess::{ask_all, missing_note};
use crate::figures::{AppFigures, HubFigures, PoolFigures, ServerFigures};
use crate::inspection::{Question, Report, Reports};
use crate::log::Stamp;
use crate::reload::unix_seconds;

/// Shows the servers of all pools, with the requests and connections of the workers.
pub(super) fn pools(arguments: &[&str], operations: &Operations) -> Outcome {
    let is_json = wants_json("show pools", arguments)?;
    let reports = ask_all(operations, Question::Pools);
    let config = operations.config();
    let names = Names::new(&config);
    let mut rows = Rows::new(&[
        "pool",
        "server",
        "state",
        "weight",
        "requests",
        "idle",
        "kept",
        "http2_connections",
        "workers_up",
        "pool_requests",
        "pool_queued",
    ]);
    rows.note(&missing_note(&reports));
    for (at, pool) in config.pools.iter().enumerate() {
        let mut of_workers: Vec<&PoolFigures> = Vec::new();
        for (_, report) in &reports.reports {
            if let Report::Pools(pools) = report {
                of_workers.extend(pools.get(at));
            }
        }
        let queued: u64 = of_workers.iter().map(|pool| pool.queued).sum();
        let requests: u64 = of_workers.iter().map(|pool| pool.requests).sum();
        for (server, settings) in pool.servers.iter().enumerate() {
            let Some(view) = operations.roster.view(at, server) else { continue };
            let mut sum = ServerFigures::default();
            let mut workers_up: u64 = 0;
            for one in of_workers.iter().filter_map(|pool| pool.servers.get(server)) {
                sum.requests += one.requests;
                sum.idle += one.idle;
                sum.kept += one.kept;
                sum.shared += one.shared;
                workers_up += u64::from(one.is_up);
            }
            let state = match view.state_now() {
                ServerState::Ready if view.is_up() => "up",
                ServerState::Ready if view.is_unresolved => "no-address",
                ServerState::Ready => "down",
                ServerState::Drain => "drain",
                ServerState::Maintenance => "maint",
            };
            rows.push([
                names.server(at, server).0.into(),
                names.server(at, server).1.into(),
                state.into(),
                view.weight_now(settings.weight).into(),
                sum.requests.into(),
                sum.idle.into(),
                sum.kept.into(),
                sum.shared.into(),
                workers_up.into(),
                requests.into(),
                queued.into(),
            ]);
        }
    }
    rows.shown(is_json)
}

/// Shows the certificates that listeners present, and the counts of handshakes.
pub(super) fn tls(arguments: &[&str], operations: &Operations) -> Outcome {
    let is_json = wants_json("show tls", arguments)?;
    let config = operations.config();
    let plan = operations.tls();
    let mut rows = Rows::new(&[
        "listener",
        "certificate",
        "names",
        "expires",
        "days_left",
        "version_min",
        "alpn",
        "client_auth",
        "tickets",
    ]);
    let counters = operations.counters();
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    rows.note(&format!(
        "# handshakes {}, resumed {}, failed {}, timed out {}, postponed {}; sessions now {}\n",
        count("tls_handshakes"),
        count("tls_resumptions"),
        count("tls_handshake_failures"),
        count("tls_handshake_timeouts"),
        count("tls_handshakes_postponed"),
        count("tls_sessions_now"),
    ));
    for (listener, plan) in config.listeners.iter().zip(&plan.listeners) {
        let (Some(tls), Some(plan)) = (&listener.tls, plan) else { continue };
        for (at, facts) in plan.acceptor.certificates().iter().enumerate() {
            rows.push(certificate_row(&listener.name, tls, (at, facts)));
        }
    }
    rows.shown(is_json)
}

fn certificate_row(
    listener: &str,
    tls: &ListenerTls,
    (at, facts): (usize, &CertificateFacts),
) -> [Value; 9] {
    let certificate = match &tls.identity {
        TlsIdentity::SelfSigned => "self-signed".into(),
        TlsIdentity::Files(files) => files.get(at).map(|files| files.cert.as_str()).into(),
    };
    let expires = facts.not_after.map(|end| {
        let end = std::time::Duration::from_secs(end);
        Stamp(std::time::SystemTime::UNIX_EPOCH + end).to_string()
    });
    let seconds_left = facts.not_after.map(|end| end as i64 - unix_seconds() as i64);
    let version = match tls.version_min {
        TlsVersion::Tls12 => "1.2",
        TlsVersion::Tls13 => "1.3",
    };
    let client_auth = match tls.client_auth {
        ClientAuth::Off => "off",
        ClientAuth::Optional => "optional",
        ClientAuth::Required => "required",
    };
    let tickets = match &tls.tickets {
        TicketSource::Off => "off",
        // They would skip the verification of the client's certificate.
        TicketSource::Own | TicketSource::File(_) if tls.client_auth != ClientAuth::Off => "off",
        TicketSource::Own => "own",
        TicketSource::File(path) => path,
    };
    [
        listener.into(),
        certificate,
        json!(facts.names),
        expires.into(),
        seconds_left.map(|left| left.div_euclid(86_400)).into(),
        version.into(),
        json!(tls.alpn),
        client_auth.into(),
        tickets.into(),
    ]
}

/// Shows the names of servers and their addresses.
pub(super) fn names(arguments: &[&str], operations: &Operations) -> Outcome {
    let is_json = wants_json("show names", arguments)?;
    let mut rows = Rows::new(&[
        "name",
        "state",
        "addresses",
        "resolved",
        "lookups",
        "changes",
        "failures",
        "last_failure",
    ]);
    let by = match &operations.config().resolver {
        None => "# resolved by the system\n",
        Some(_) => "# resolved by DNS servers, as [resolver] defines\n",
    };
    rows.note(by);
    for (name, known) in operations.names.all() {
        rows.push([
            name.into(),
            if known.is_used { "up" } else { "lost" }.into(),
            json!(known.addresses),
            Stamp(known.resolved).to_string().into(),
            known.lookups.into(),
            known.changes.into(),
            known.failures.into(),
            known.last_failure.into(),
        ]);
    }
    rows.shown(is_json)
}

/// Shows the push hubs.
pub(super) fn push(arguments: &[&str], operations: &Operations) -> Outcome {
    let is_json = wants_json("show push", arguments)?;
    let reports = ask_all(operations, Question::Hubs);
    let config = operations.config();
    let mut rows = Rows::new(&[
        "hub",
        "channels",
        "history_bytes",
        "history_bytes_max",
        "subscriptions",
        "users",
        "slow",
        "queued",
        "dropped",
        "slow_closes",
    ]);
    let counters = operations.counters();
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    rows.note(&format!(
        "# clients {}, published {}, delivered {}, dropped {}, closed because they did not read {}\n",
        count("push_clients_now"),
        count("push_publications"),
        count("push_deliveries"),
        count("push_dropped"),
        count("push_slow_closes"),
    ));
    rows.note(&missing_note(&reports));
    for (at, hub) in config.push.iter().enumerate() {
        let mut sum = HubFigures::default();
        for (_, report) in &reports.reports {
            let Report::Hubs(hubs) = report else { continue };
            let one = hubs.get(at).copied().unwrap_or_default();
            sum.channels += one.channels;
            sum.history_bytes += one.history_bytes;
            sum.subscriptions += one.subscriptions;
            sum.users += one.users;
        }
        let [queued, dropped, slow_closes] = operations.push_losses(at as u16);
        rows.push([
            hub.name.as_str().into(),
            sum.channels.into(),
            sum.history_bytes.into(),
            hub.history_bytes_max.into(),
            sum.subscriptions.into(),
            sum.users.into(),
            policy(hub.slow).into(),
            queued.into(),
            dropped.into(),
            slow_closes.into(),
        ]);
    }
    rows.shown(is_json)
}

/// The setting's value for the treatment of a client that does not read.
const fn policy(slow: Slow) -> &'static str {
    match slow {
        Slow::Disconnect => "disconnect",
        Slow::DropOldest => "drop-oldest",
        Slow::DropNewest => "drop-newest",
        Slow::Conflate => "conflate",
    }
}

/// Shows the Lua applications: a row for each application and worker.
pub(super) fn lua(arguments: &[&str], operations: &Operations) -> Outcome {
    let is_json = wants_json("show lua", arguments)?;
    let reports = ask_all(operations, Question::Apps);
    let mut rows = Rows::new(&[
        "application",
        "worker",
        "state",
        "memory_bytes",
        "memory_bytes_max",
        "clients",
        "requests",
        "waiting",
        "timers",
        "failures",
        "restarts",
    ]);
    rows.note(&missing_note(&reports));
    for (name, of_workers) in by_application(&reports) {
        for (worker, app) in of_workers {
            let state = match (app.is_earlier, app.runs) {
                (true, _) => "earlier",
                (false, true) => "running",
                (false, false) => "paused",
            };
            rows.push([
                name.into(),
                worker.into(),
                state.into(),
                app.used_bytes.into(),
                app.bytes_max.into(),
                app.clients.into(),
                app.requests.into(),
                app.waiting.into(),
                app.timers.into(),
                app.failures.into(),
                app.restarts.into(),
            ]);
        }
    }
    rows.shown(is_json)
}

/// The reports of the workers by the name of the application.
fn by_application(reports: &Reports) -> BTreeMap<&str, Vec<(usize, &AppFigures)>> {
    let mut found: BTreeMap<&str, Vec<(usize, &AppFigures)>> = BTreeMap::new();
    for (worker, report) in &reports.reports {
        let Report::Apps(apps) = report else { continue };
        for app in apps {
            found.entry(&app.name).or_default().push((*worker, app));
        }
    }
    found
}
