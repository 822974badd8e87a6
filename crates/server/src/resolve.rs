//! Resolves the names of servers: all of them at start and at a reload, those of edits, or as a check within a given time
//! (`tidegate check`).
//! In: a configuration, the longest wait of a check; a name. Out: addresses; a finding for each name that has no address.
//! Never: waits longer than the given time, whatever the resolver does, except at the start. Holds up the thread that reloads for
//! the name of an edit.
//! Limits: `THREADS_MAX` names of a configuration are resolved at once, and as many of edits; a reload waits for `RELOAD_WAIT_MAX`
//! for all names together, an edit for `EDIT_WAIT_MAX`. A lookup that takes longer keeps its thread until it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tidegate_base::{Address, loopback_addresses};
use tidegate_config::findings::{Finding, Owner};
use tidegate_config::model::{Config, ServerAddress};
use tidegate_config::report::Kind;

use crate::threads::{self, Ended};

/// How many names are resolved at once.
const THREADS_MAX: usize = 16;
/// How long a reload waits for all names. Shorter than a command waits for a reload, or for an edit that follows one.
const RELOAD_WAIT_MAX: Duration = Duration::from_secs(15);
/// How long an edit waits for its name.
const EDIT_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a command that waits looks whether its connection was closed for a new one.
const LOOK_SPAN: Duration = Duration::from_millis(50);

/// A name and its port.
pub(crate) type Server = (String, u16);
/// By name: its addresses, or why it has none.
pub(crate) type Found = BTreeMap<Server, Result<Vec<Address>, String>>;
/// Resolves a name.
type LookUp = fn(&Server) -> Result<Vec<Address>, String>;

/// A finding for each server name of `config` that cannot be resolved within `wait_max`, which is the time for all
/// names together.
#[must_use]
pub fn check(config: &Config, wait_max: Duration) -> Vec<Finding> {
    check_with(config, wait_max, resolve)
}

/// A name that could not be resolved and keeps the addresses that it had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unresolved {
    /// The pool.
    pub(crate) pool: String,
    /// The name with its port.
    pub(crate) name: String,
    /// Why it could not be resolved.
    pub(crate) what: String,
}

impl core::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { pool, name, what } = self;
        write!(f, "pool {pool}: {name}: {what}; its earlier addresses stay in use")
    }
}

/// By pool and server: its addresses, in the resolver's order. Never empty.
pub type Addresses = Vec<Vec<Vec<Address>>>;

/// The addresses of all servers, without a bound on the time that the resolver takes.
///
/// # Errors
/// A finding for each server name that cannot be resolved.
pub(crate) fn resolve_all(config: &Config) -> Result<Addresses, Vec<Finding>> {
    let found = look_up_all(names_of(config), None, resolve);
    let none = (&Config::default(), &Vec::new());
    resolve_with(config, none, |server, _| of_found(&found, server)).map(|(addresses, _)| addresses)
}

/// As [`resolve_all`], for the configuration that follows `known`. Resolves nothing: names that `known` does not contain have the
/// addresses in `found`.
///
/// # Errors
/// A finding for each of these names that could not be resolved.
pub(crate) fn resolve_new(
    config: &Config,
    known: (&Config, &Addresses),
    found: &Found,
) -> Result<(Addresses, Vec<Unresolved>), Vec<Finding>> {
    resolve_with(config, known, |server, earlier| match (earlier, found.get(server)) {
        (Some(addresses), _) => Ok(addresses.to_vec()),
        (None, Some(found)) => found.clone(),
        (None, None) => Err("another change has just removed the name; help: try again".to_owned()),
    })
}

/// As [`resolve_all`], for the configuration that follows `known`, within `RELOAD_WAIT_MAX`. A name that cannot be resolved now
/// keeps the addresses that it had; also returns each such name.
///
/// # Errors
/// A finding for each other name that cannot be resolved.
pub(crate) fn resolve_after(
    config: &Config,
    known: (&Config, &Addresses),
) -> Result<(Addresses, Vec<Unresolved>), Vec<Finding>> {
    let found = look_up_all(names_of(config), Some(RELOAD_WAIT_MAX), resolve);
    resolve_with(config, known, |server, _| of_found(&found, server))
}

/// The names of the servers of a configuration.
pub(crate) fn names_of(config: &Config) -> BTreeSet<Server> {
    let servers = config.pools.iter().flat_map(|pool| &pool.servers);
    let name = |address: &ServerAddress| match address {
        ServerAddress::Name(name, port) => Some((name.clone(), *port)),
        ServerAddress::Ip(_) | ServerAddress::Unix(_) => None,
    };
    servers.filter_map(|server| name(&server.address)).collect()
}

/// The result for a name. A name without one was not resolved in time.
fn of_found(found: &Found, server: &Server) -> Result<Vec<Address>, String> {
    let late = || Err(format!("the name was not resolved within {RELOAD_WAIT_MAX:?}"));
    found.get(server).cloned().unwrap_or_else(late)
}

/// The lookups of names in edits, each on a separate thread.
#[derive(Default)]
pub(crate) struct LookUps {
    /// How many are in progress, with those that no command waits for any longer.
    running: Arc<AtomicUsize>,
}

/// A lookup in progress.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl LookUps {
    /// The addresses of a name. Waits for `EDIT_WAIT_MAX` at most, or until `was_ended`.
    ///
    /// # Errors
    /// The name has no address, is not resolved in time, or too many others are being resolved.
    pub(crate) fn find(
        &self,
        server: &Server,
        was_ended: &dyn Fn() -> bool,
    ) -> Result<Vec<Address>, String> {
        self.find_with((server, EDIT_WAIT_MAX), was_ended, resolve)
    }

    fn find_with(
        &self,
        (server, wait_max): (&Server, Duration),
        was_ended: &dyn Fn() -> bool,
        look_up: LookUp,
    ) -> Result<Vec<Address>, String> {
        let before = self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.running));
        if before >= THREADS_MAX {
            return Err(format!("{THREADS_MAX} other names are being resolved; help: try again"));
        }
        let (sender, result) = mpsc::channel();
        let work = {
            let server = server.clone();
            move || {
                let found = look_up(&server);
                drop(running);
                // The command may wait no longer.
                let _ = sender.send(found);
                Ended::AsPlanned
            }
        };
        threads::spawn("name", work)
            .map_err(|error| format!("the name cannot be resolved: {error}"))?;
        let deadline = Instant::now() + wait_max;
        while Instant::now() < deadline && !was_ended() {
            match result.recv_timeout(LOOK_SPAN.min(wait_max)) {
                Ok(found) => return found,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Err(format!(
            "the name was not resolved within {wait_max:?}; help: try again, or use an IP address"
        ))
    }
}

/// As [`resolve_after`]. `look_up` gets each name with the addresses that it had.
fn resolve_with(
    config: &Config,
    known: (&Config, &Addresses),
    look_up: impl Fn(&Server, Option<&[Address]>) -> Result<Vec<Address>, String>,
) -> Result<(Addresses, Vec<Unresolved>), Vec<Finding>> {
    let mut earlier: BTreeMap<Server, &Vec<Address>> = BTreeMap::new();
    for (pool, addresses) in known.0.pools.iter().zip(known.1) {
        for (server, addresses) in pool.servers.iter().zip(addresses) {
            if let ServerAddress::Name(name, port) = &server.address {
                earlier.insert((name.clone(), *port), addresses);
            }
        }
    }
    let mut resolved: BTreeMap<Server, Result<Vec<Address>, String>> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut unresolved = Vec::new();
    let mut pools = Vec::with_capacity(config.pools.len());
    for (index, pool) in config.pools.iter().enumerate() {
        let addresses_of = |address: &ServerAddress| match address {
            ServerAddress::Ip(address) => vec![Address::Tcp(*address)],
            ServerAddress::Unix(path) => vec![Address::Unix(path.clone())],
            ServerAddress::Name(name, port) => {
                let server = (name.clone(), *port);
                let known = earlier.get(&server).map(|known| known.as_slice());
                let found = resolved.entry(server.clone());
                match (found.or_insert_with(|| look_up(&server, known)), known) {
                    (Ok(addresses), _) => addresses.clone(),
                    (Err(what), Some(addresses)) => {
                        let (pool, name) = (pool.name.clone(), format!("{name}:{port}"));
                        unresolved.push(Unresolved { pool, name, what: what.clone() });
                        addresses.to_vec()
                    }
                    (Err(what), None) => {
                        findings.push(finding(index, name, *port, what.clone()));
                        Vec::new()
                    }
                }
            }
        };
        let servers: Vec<_> = pool.servers.iter().map(|server| &server.address).collect();
        pools.push(servers.into_iter().map(addresses_of).collect());
    }
    if findings.is_empty() { Ok((pools, unresolved)) } else { Err(findings) }
}

/// A finding about the name of a server of the pool with this index.
fn finding(pool: usize, name: &str, port: u16, what: String) -> Finding {
    let (owner, subject) = (Owner::Pool(pool), format!("{name}:{port}"));
    Finding { kind: Kind::Name, owner, subject, what, help: None }
}

fn check_with(config: &Config, wait_max: Duration, look_up: LookUp) -> Vec<Finding> {
    let late =
        format!("the name was not resolved within {wait_max:?}; help: --offline skips this check");
    let found = look_up_all(names_of(config), Some(wait_max), look_up);
    let mut findings = Vec::new();
    for (index, pool) in config.pools.iter().enumerate() {
        for server in &pool.servers {
            let ServerAddress::Name(name, port) = &server.address else { continue };
            let what = match found.get(&(name.clone(), *port)) {
                Some(Ok(_)) => continue,
                Some(Err(what)) => what.clone(),
                None => late.clone(),
            };
            findings.push(finding(index, name, *port, what));
        }
    }
    findings
}

/// Resolves names, several at once. Those without a result were not resolved within `wait_max`; `None`: all are waited for.
fn look_up_all(names: BTreeSet<Server>, wait_max: Option<Duration>, look_up: LookUp) -> Found {
    let (count, waiting) = (names.len(), Arc::new(Mutex::new(names)));
    let (sender, results) = mpsc::channel::<(Server, Result<Vec<Address>, String>)>();
    for number in 0..count.min(THREADS_MAX) {
        let (waiting, sender) = (Arc::clone(&waiting), sender.clone());
        let work = move || {
            while let Some(server) = waiting.lock().ok().and_then(|mut names| names.pop_first()) {
                let result = look_up(&server);
                if sender.send((server, result)).is_err() {
                    break;
                }
            }
            Ended::AsPlanned
        };
        // If the thread cannot be started, the other threads resolve its names, or they count as late.
        let _ = threads::spawn(format!("names-{number}"), work);
    }
    drop(sender);
    let deadline = wait_max.map(|span| Instant::now() + span);
    let mut found = Found::new();
    loop {
        let next = match deadline {
            None => results.recv().ok(),
            Some(deadline) => {
                results.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
            }
        };
        // Without a result every name is resolved, because the threads have dropped their senders, or it is too late.
        let Some((server, result)) = next else { return found };
        found.insert(server, result);
    }
}

/// The addresses of a name, at least one, or why it has none.
fn resolve((name, port): &Server) -> Result<Vec<Address>, String> {
    let found: Vec<SocketAddr> = (name.as_str(), *port)
        .to_socket_addrs()
        .map(Iterator::collect)
        .or_else(|error| loopback_addresses(name, *port).map(Vec::from).ok_or(error))
        .map_err(|error| format!("the name cannot be resolved: {error}"))?;
    match found.is_empty() {
        true => Err("the name has no address".to_owned()),
        false => Ok(found.into_iter().map(Address::Tcp).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves names by their texts.
    fn play((name, _): &Server) -> Result<Vec<Address>, String> {
        match name.as_str() {
            "stuck" => loop {
                std::thread::park();
            },
            "bad" => Err("no such name".to_owned()),
            _ => Ok(address()),
        }
    }

    fn address() -> Vec<Address> {
        vec![Address::Tcp(([10, 0, 0, 9], 1).into())]
    }

    #[test]
    fn faults_and_late_names_are_found_and_the_wait_is_bounded() {
        let config = config_of("good:1\", \"bad:2\", \"10.0.0.1:3\", \"stuck:4");
        let findings = check_with(&config, Duration::from_secs(2), play);
        let found: Vec<_> =
            findings.iter().map(|f| (f.subject.as_str(), f.what.as_str())).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], ("bad:2", "no such name"));
        assert!(found[1].0 == "stuck:4" && found[1].1.contains("not resolved within 2s"));
        assert!(check(&config_of("127.0.0.1:1"), Duration::from_secs(1)).is_empty());
    }

    #[test]
    fn edits_resolve_no_names_on_the_thread_that_reloads() {
        let (before, after) = (config_of("known:1"), config_of("known:1\", \"new:2"));
        let known = (&before, &vec![vec![address()]]);
        let server = ("new".to_owned(), 2);
        let found = |result| Found::from([(server.clone(), result)]);
        let (addresses, _) = resolve_new(&after, known, &found(Ok(address()))).expect("both");
        assert_eq!(addresses, [[address(), address()]]);
        for (found, text) in [(found(Err("late".to_owned())), "late"), (Found::new(), "try again")]
        {
            let findings = resolve_new(&after, known, &found).expect_err("new:2 has no address");
            assert_eq!((findings.len(), findings[0].subject.as_str()), (1, "new:2"));
            assert!(findings[0].what.contains(text), "{}", findings[0].what);
        }
    }

    #[test]
    fn look_ups_of_edits_are_bounded_in_time_and_number() {
        let look_ups = LookUps::default();
        let find = |name: &str, wait_max| {
            look_ups.find_with((&(name.to_owned(), 1), wait_max), &|| false, play)
        };
        let long = Duration::from_secs(60);
        assert_eq!(find("good", long), Ok(address()));
        assert_eq!(find("bad", long), Err("no such name".to_owned()));
        let stuck = ("stuck".to_owned(), 1);
        let left = look_ups.find_with((&stuck, long), &|| true, play);
        assert!(left.is_err(), "the client was disconnected");
        for _ in 1..THREADS_MAX {
            let error = find("stuck", Duration::from_millis(1)).expect_err("it is late");
            assert!(error.contains("was not resolved within 1ms"), "{error}");
        }
        let error = find("good", long).expect_err("all threads are in use");
        assert!(error.contains("16 other names are being resolved"), "{error}");
    }

    #[test]
    fn names_that_are_late_at_a_reload_do_not_delay_others() {
        let names = ["stuck", "good", "bad"].map(|name| (name.to_owned(), 1));
        let found = look_up_all(names.into(), Some(Duration::from_secs(2)), play);
        let known: Vec<&str> = found.keys().map(|(name, _)| name.as_str()).collect();
        assert_eq!(known, ["bad", "good"]);
        assert_eq!(look_up_all([("good".to_owned(), 1)].into(), None, play).len(), 1);
    }

    fn config_of(server: &str) -> Config {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"p\"\n[pool.p]\nservers = [\"{server}\"]\n"
        );
        tidegate_config::parse(&text, "the test").expect("it is valid")
    }
}
