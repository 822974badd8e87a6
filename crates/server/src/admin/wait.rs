//! The command `wait`: for scripts that continue once a server has no requests, or takes requests again.
//! In: words; the states of servers. Out: nothing at the end of the wait, or why the wait has failed.
//! Never: runs on a worker: the thread of the client polls the server.
//! Limits: `SPAN_MAX` for all waits of a line. A client that waits has one of the places of the interface until a new client
//! needs it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_config::model::Config;
use tidegate_gate::access::Names;

use super::Operations;
use super::command::{Outcome, Reply};
use super::profile::parse_span;
use crate::stats::Subject;

/// The longest wait, and the longest time of all waits of a line.
pub(super) const SPAN_MAX: Duration = Duration::from_secs(300);
/// How often the thread checks again.
const POLL_EVERY: Duration = Duration::from_millis(20);
const USAGE: &str = "usage: wait DURATION [server POOL/SERVER up|down|unused], such as: wait 30s server api/10.0.0.1:8000 unused";

/// The condition that a client waits for.
#[derive(PartialEq, Debug)]
pub(super) struct Wait {
    span: Duration,
    /// The names of a pool and of a server, and the condition that the server must meet.
    until: Option<(String, String, Condition)>,
}

/// The condition that a server must meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    /// The server takes requests.
    Up,
    /// The server takes no requests.
    Down,
    /// The server has no request in progress.
    Unused,
}

impl Condition {
    const WORDS: [(&'static str, Self); 3] =
        [("up", Self::Up), ("down", Self::Down), ("unused", Self::Unused)];
}

/// Reads the arguments of the command.
pub(super) fn plan(arguments: &[&str], operations: &Operations) -> Outcome {
    let [span, rest @ ..] = arguments else { return Err(USAGE.to_owned()) };
    let known = parse_span(span).filter(|span| *span <= SPAN_MAX);
    let span = known.ok_or_else(|| {
        format!(
            "the duration cannot be {span:?}; allowed: 0s to 5m, such as 500ms, 30s or 2m; {USAGE}"
        )
    })?;
    let until = match rest {
        [] => None,
        ["server", place, word] => {
            let known = Condition::WORDS.iter().find(|(known, _)| known == word);
            let (_, condition) = known
                .ok_or_else(|| format!("unknown condition {word:?}; allowed: up, down, unused"))?;
            let (pool, server) = place.split_once('/').ok_or(USAGE)?;
            let (pool, server) = (pool.to_owned(), server.to_owned());
            Finder::new(operations, &pool, &server).is_met(operations, *condition)?;
            Some((pool, server, *condition))
        }
        _ => return Err(USAGE.to_owned()),
    };
    Ok(Reply::Wait(Wait { span, until }))
}

impl Wait {
    /// Waits, until `latest` at most, or until `was_ended`. A client that has ended its side of the connection, as `socat`
    /// does at once, still waits for the reply.
    pub(super) fn run(
        &self,
        operations: &Operations,
        latest: Instant,
        was_ended: impl Fn() -> bool,
    ) -> Result<(), String> {
        let deadline = latest.min(Instant::now() + self.span);
        let turns = TurnsSince::new(operations);
        let until = self.until.as_ref();
        let mut until = until
            .map(|(pool, server, condition)| (Finder::new(operations, pool, server), *condition));
        loop {
            if let Some((finder, condition)) = &mut until
                && finder.is_met(operations, *condition)?
                && (*condition != Condition::Unused || turns.all_have_read_mail(operations))
                // This check counts requests that began before a worker read its mail.
                && finder.is_met(operations, *condition)?
            {
                return Ok(());
            }
            if was_ended() {
                return Err("the connection was closed for a new client".to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(POLL_EVERY));
        }
        match &self.until {
            None => Ok(()),
            Some((pool, server, condition)) => {
                let words = Condition::WORDS.iter().find(|(_, known)| known == condition);
                let word = words.map_or("", |(word, _)| word);
                Err(format!("server {pool}/{server} is not {word} after {:?}", self.span))
            }
        }
    }
}

/// The turns that each worker had finished when the wait began. A worker applies earlier commands, such as one that
/// disables the server, at the end of a turn at the latest.
struct TurnsSince(Vec<u64>);

impl TurnsSince {
    fn new(operations: &Operations) -> Self {
        Self(operations.accounts.iter().map(|of| of.counters.turns.load()).collect())
    }

    /// Whether every worker has begun and finished a turn since then. An idle worker finishes one each second.
    fn all_have_read_mail(&self, operations: &Operations) -> bool {
        let workers = operations.accounts.iter().zip(&self.0);
        workers.into_iter().all(|(of, before)| {
            of.counters.turns.load() >= before + 2 || of.has_stopped.load(Ordering::Relaxed)
        })
    }
}

/// Checks a server. The server is looked up again only after a reload, because a lookup computes the names of all servers.
struct Finder<'a> {
    pool: &'a str,
    server: &'a str,
    /// The configuration that `place` refers to.
    config: Arc<Config>,
    /// The indexes of the pool and of the server; `None` if the configuration does not have them.
    place: Option<(usize, usize)>,
}

impl<'a> Finder<'a> {
    fn new(operations: &Operations, pool: &'a str, server: &'a str) -> Self {
        let config = operations.config();
        let place = Names::new(&config).find_server(pool, server);
        Self { pool, server, config, place }
    }

    /// Whether the server meets the condition.
    fn is_met(&mut self, operations: &Operations, condition: Condition) -> Result<bool, String> {
        let (pool, server) = (self.pool, self.server);
        if !Arc::ptr_eq(&self.config, &operations.config()) {
            *self = Self::new(operations, pool, server);
        }
        let known = self.place.and_then(|(pool, server)| {
            let weight = self.config.pools.get(pool)?.servers.get(server)?.weight;
            Some((operations.roster.view(pool, server)?, weight))
        });
        let (view, weight) = known
            .ok_or_else(|| format!("no server {pool}/{server}; the servers are in: show pools"))?;
        Ok(match condition {
            Condition::Up => view.takes_requests(weight),
            Condition::Down => !view.takes_requests(weight),
            Condition::Unused => {
                let subject = Subject::Server(pool.to_owned(), server.to_owned());
                operations.registry.under_way(&subject) == 0
            }
        })
    }
}
