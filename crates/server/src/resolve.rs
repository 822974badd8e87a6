//! Resolves the names of servers: all of them at start, or as a check within a given time (`tidegate check`).
//! In: a configuration, the longest wait of a check. Out: addresses; a finding for each name that has no address.
//! Never: waits longer than the given time in a check, whatever the resolver does.
//! Limits: `THREADS_MAX` names are resolved at once.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tidegate_base::{Address, loopback_addresses};
use tidegate_config::findings::{Finding, Owner};
use tidegate_config::model::{Config, ServerAddress};
use tidegate_config::report::Kind;

use crate::threads::{self, Ended};

/// How many names are resolved at once.
const THREADS_MAX: usize = 16;

/// A name and its port.
type Server = (String, u16);
/// A name, and why it cannot be resolved.
type Resolved = (Server, Option<String>);

/// A finding for each server name of `config` that cannot be resolved within `wait_max`, which is the time for all
/// names together.
#[must_use]
pub fn check(config: &Config, wait_max: Duration) -> Vec<Finding> {
    check_with(config, wait_max, |server| resolve(server).err())
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
    resolve_after(config, (&Config::default(), &Vec::new())).map(|(addresses, _)| addresses)
}

/// As [`resolve_all`], for the configuration that follows `known`. Only names that `known` does not contain are resolved.
///
/// # Errors
/// A finding for each of these names that cannot be resolved.
pub(crate) fn resolve_new(
    config: &Config,
    known: (&Config, &Addresses),
) -> Result<(Addresses, Vec<Unresolved>), Vec<Finding>> {
    resolve_with(config, known, |server, earlier| match earlier {
        Some(addresses) => Ok(addresses.to_vec()),
        None => resolve_one(server),
    })
}

/// As [`resolve_all`], for the configuration that follows `known`. A name that cannot be resolved now keeps the
/// addresses that it had; also returns each such name.
///
/// # Errors
/// A finding for each other name that cannot be resolved.
pub(crate) fn resolve_after(
    config: &Config,
    known: (&Config, &Addresses),
) -> Result<(Addresses, Vec<Unresolved>), Vec<Finding>> {
    resolve_with(config, known, |server, _| resolve_one(server))
}

fn resolve_one(server: &Server) -> Result<Vec<Address>, String> {
    Ok(resolve(server)?.into_iter().map(Address::Tcp).collect())
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

fn check_with(
    config: &Config,
    wait_max: Duration,
    resolve: fn(&Server) -> Option<String>,
) -> Vec<Finding> {
    let late =
        format!("the name was not resolved within {wait_max:?}; help: --offline skips this check");
    let mut reasons: BTreeMap<Server, Option<String>> = BTreeMap::new();
    for pool in &config.pools {
        for server in &pool.servers {
            if let ServerAddress::Name(name, port) = &server.address {
                reasons.insert((name.clone(), *port), Some(late.clone()));
            }
        }
    }
    let waiting: Vec<Server> = reasons.keys().cloned().collect();
    let (count, waiting) = (waiting.len(), Arc::new(Mutex::new(waiting)));
    let (sender, results) = mpsc::channel::<Resolved>();
    for number in 0..count.min(THREADS_MAX) {
        let (waiting, sender) = (Arc::clone(&waiting), sender.clone());
        let work = move || {
            while let Some(server) = waiting.lock().ok().and_then(|mut names| names.pop()) {
                let reason = resolve(&server);
                if sender.send((server, reason)).is_err() {
                    break;
                }
            }
            Ended::AsPlanned
        };
        // If the thread cannot be started, the other threads resolve its names, or they count as late.
        let _ = threads::spawn(format!("names-{number}"), work);
    }
    drop(sender);
    let deadline = Instant::now() + wait_max;
    // Ends when every name is resolved, because the threads then drop their senders.
    while let Ok((server, reason)) =
        results.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        reasons.insert(server, reason);
    }
    let mut findings = Vec::new();
    for (index, pool) in config.pools.iter().enumerate() {
        for server in &pool.servers {
            let ServerAddress::Name(name, port) = &server.address else { continue };
            if let Some(Some(what)) = reasons.get(&(name.clone(), *port)) {
                findings.push(finding(index, name, *port, what.clone()));
            }
        }
    }
    findings
}

/// The addresses of a name, at least one, or why it has none.
fn resolve((name, port): &Server) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = (name.as_str(), *port)
        .to_socket_addrs()
        .map(Iterator::collect)
        .or_else(|error| loopback_addresses(name, *port).map(Vec::from).ok_or(error))
        .map_err(|error| format!("the name cannot be resolved: {error}"))?;
    if found.is_empty() { Err("the name has no address".to_owned()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_and_late_names_are_found_and_the_wait_is_bounded() {
        let text = "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"p\"\n[pool.p]\n\
                    servers = [\"good:1\", \"bad:2\", \"10.0.0.1:3\", \"stuck:4\"]\n";
        let config = tidegate_config::parse(text, "the test").expect("it is valid");
        let findings = check_with(&config, Duration::from_millis(300), |(name, _)| {
            if name == "stuck" {
                loop {
                    std::thread::park();
                }
            }
            (name == "bad").then(|| "no such name".to_owned())
        });
        let found: Vec<_> =
            findings.iter().map(|f| (f.subject.as_str(), f.what.as_str())).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], ("bad:2", "no such name"));
        assert!(found[1].0 == "stuck:4" && found[1].1.contains("not resolved within 300ms"));
        assert!(check(&config_of("127.0.0.1:1"), Duration::from_secs(1)).is_empty());
    }

    fn config_of(server: &str) -> Config {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"p\"\n[pool.p]\nservers = [\"{server}\"]\n"
        );
        tidegate_config::parse(&text, "the test").expect("it is valid")
    }
}
