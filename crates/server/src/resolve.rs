//! Resolves the names of servers: all of them at start and at a reload, those of edits, or as a check within a given time
//! (`tidegate check`).
//! In: a configuration, the longest wait of a check; a name. Out: addresses; a finding for each name that has no address.
//! Never: waits longer than the given time, whatever the resolver does, except at the start. Holds up the thread that reloads for
//! the name of an edit. Resolves the name of a removed server.
//! Limits: `THREADS_MAX` names are resolved at once by reloads, and as many by edits; a reload waits for `RELOAD_WAIT_MAX`
//! for all names together, an edit for `EDIT_WAIT_MAX`. A lookup that takes longer keeps its thread until it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tidegate_base::{Address, loopback_addresses};
use tidegate_config::arrange::Arranged;
use tidegate_config::findings::{Finding, Owner};
use tidegate_config::model::{Config, Families, Pool, ServerAddress, SlotSource, Upstream};
use tidegate_config::report::Kind;
use tidegate_gate::name_book::{self, SRV_PORT, text_of};
use tidegate_gate::slots::Marks;

use crate::name_client;
use crate::slots::{KnownMarks, SlotAddresses, fill, socket_addresses, templates};
use crate::threads::{self, Ended};

/// How many names are resolved at once.
const THREADS_MAX: usize = 16;
/// How long a reload waits for all names. Shorter than a command waits for a reload, or for an edit that follows one.
const RELOAD_WAIT_MAX: Duration = Duration::from_secs(15);
/// How long an edit waits for all of its names.
const EDIT_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a command that waits checks whether its connection was closed for a new one.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// A name and its port.
pub(crate) type Server = (String, u16);
/// By name: its addresses, or why it has none.
pub(crate) type Found = BTreeMap<Server, Result<Located, String>>;
/// Resolves a name.
type LookUp = Arc<dyn Fn(&Server) -> Result<Located, String> + Send + Sync>;

/// The addresses of a name, at least one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Located {
    addresses: Vec<Address>,
    /// What SRV records state about them.
    marks: Marks,
    /// The family whose addresses are not known.
    unanswered: Option<Families>,
}

impl From<Vec<Address>> for Located {
    fn from(addresses: Vec<Address>) -> Self {
        Self { addresses, ..Self::default() }
    }
}

impl Located {
    /// With those of the addresses which the name had that it may still have.
    fn after(mut self, earlier: &[Address]) -> Self {
        if self.unanswered.is_some() {
            let own = socket_addresses(&self.addresses).collect();
            let mut found = name_book::Addresses {
                unanswered: self.unanswered,
                ..name_book::Addresses::of(own, None)
            };
            found.keep_open(socket_addresses(earlier));
            self.addresses = found.addresses.into_iter().map(Address::Tcp).collect();
        }
        self
    }
}

/// The names of a configuration, resolved.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Resolution {
    /// The addresses of all servers.
    pub(crate) addresses: Addresses,
    /// What SRV records state, by the name that was resolved.
    pub(crate) marks: KnownMarks,
    /// The names that could not be resolved, which the configuration permits.
    pub(crate) unresolved: Vec<Unresolved>,
}

/// The lookup that a configuration states.
fn look_up_of(config: &Config) -> LookUp {
    if config.resolver.is_none() {
        return Arc::new(|server| resolve(server).map(Located::from));
    }
    let look_up = name_client::of(config);
    Arc::new(move |server| match look_up(server) {
        Ok(found) => Ok(Located {
            addresses: found.addresses.into_iter().map(Address::Tcp).collect(),
            marks: found.marks,
            unanswered: found.unanswered,
        }),
        Err(failure) => Err(format!("the name cannot be resolved: {}", failure.text())),
    })
}

/// A finding for each server name of `config` that cannot be resolved within `wait_max`, which is the time for all
/// names together.
#[must_use]
pub fn check(config: &Config, wait_max: Duration) -> Vec<Finding> {
    check_with(config, wait_max, &look_up_of(config))
}

/// A name that could not be resolved. It keeps the addresses that it had, if there were any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unresolved {
    /// The pool.
    pub(crate) pool: String,
    /// The name with its port.
    pub(crate) name: String,
    /// Why it could not be resolved.
    pub(crate) what: String,
    /// It had addresses.
    pub(crate) is_kept: bool,
}

impl core::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { pool, name, what, is_kept } = self;
        let then = match is_kept {
            true => "its earlier addresses stay in use",
            false => "the server is down until it has an address (`at-start`)",
        };
        write!(f, "pool {pool}: {name}: {what}; {then}")
    }
}

/// By pool and server: its addresses, in the resolver's order. Empty only for slots of a template and for servers whose name may lack
/// an address at start.
pub type Addresses = Vec<Vec<Vec<Address>>>;

/// Resolves the names of all servers, without a bound on the time that the resolver takes.
pub(crate) fn find_all(arranged: &Arranged) -> Found {
    let look_up = look_up_of(&arranged.config);
    Lookups::default().find_all((names_of(arranged), None), &|| false, &look_up)
}

/// The addresses of all servers at the start of a process. Slots keep the addresses in `slots` that were found again.
///
/// # Errors
/// A finding for each server name that was not found.
pub(crate) fn resolve_first(
    arranged: &Arranged,
    found: &Found,
    slots: &SlotAddresses,
) -> Result<Resolution, Vec<Finding>> {
    let none = (&Arranged::default(), &Vec::new());
    let late = || Err("the name was not resolved".to_owned());
    resolve_keeping(slots, arranged, none, |server, _| {
        found.get(server).cloned().unwrap_or_else(late)
    })
}

/// As [`resolve_first`], for the configuration that follows `known`. Resolves nothing: names that `known` does not contain have the
/// addresses in `found`.
///
/// # Errors
/// A finding for each of these names that could not be resolved.
pub(crate) fn resolve_new(
    next: &Arranged,
    known: (&Arranged, &Addresses),
    found: &Found,
) -> Result<Resolution, Vec<Finding>> {
    resolve_with(next, known, |server, earlier| match (earlier, found.get(server)) {
        (Some([]), _) => Err("the name has no address yet".to_owned()),
        (Some(addresses), _) => Ok(addresses.to_vec().into()),
        (None, Some(found)) => found.clone(),
        (None, None) => Err("another change has just removed the name; help: try again".to_owned()),
    })
}

/// As [`resolve_first`], for the configuration that follows `known`, within `RELOAD_WAIT_MAX`. A name that cannot be resolved now
/// keeps the addresses that it had; also returns each such name.
///
/// # Errors
/// A finding for each other name that cannot be resolved.
pub(crate) fn resolve_after(
    next: &Arranged,
    known: (&Arranged, &Addresses),
    lookups: &Lookups,
) -> Result<Resolution, Vec<Finding>> {
    let deadline = Instant::now() + RELOAD_WAIT_MAX;
    let found =
        lookups.find_all((names_of(next), Some(deadline)), &|| false, &look_up_of(&next.config));
    let late = || Err(format!("the name was not resolved within {RELOAD_WAIT_MAX:?}"));
    resolve_with(next, known, |server, earlier| {
        let located = found.get(server).cloned().unwrap_or_else(late)?;
        Ok(located.after(earlier.unwrap_or_default()))
    })
}

/// The names of the servers of a configuration. Removed ones are left out.
pub(crate) fn names_of(arranged: &Arranged) -> BTreeSet<Server> {
    arranged.servers().filter_map(|(_, server)| name_of(&server.address)).collect()
}

/// Those of the names that were resolved.
pub(crate) fn resolved_of(
    mut names: BTreeSet<Server>,
    unresolved: &[Unresolved],
) -> BTreeSet<Server> {
    names.retain(|name| unresolved.iter().all(|one| one.name != text_of(name)));
    names
}

/// The name in an address.
pub(crate) fn name_of(address: &ServerAddress) -> Option<Server> {
    match address {
        ServerAddress::Name(name, port) => Some((name.clone(), *port)),
        ServerAddress::Slot(slot) => Some(match &*slot.source {
            SlotSource::Name(name, port) => (name.clone(), *port),
            SlotSource::Srv(name) => (name.clone(), SRV_PORT),
        }),
        ServerAddress::Ip(_) | ServerAddress::Unix(_) => None,
    }
}

/// Lookups of names on threads of their own. Clones count the same threads.
#[derive(Clone, Default)]
pub(crate) struct Lookups {
    /// The number of threads, including those whose results are no longer awaited.
    running: Arc<AtomicUsize>,
}

/// A thread that resolves names. Dropping it ends its count.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The names that no thread has taken yet.
type Waiting = Arc<Mutex<BTreeSet<Server>>>;
/// The channel for the results.
type Results = mpsc::Sender<(Server, Result<Located, String>)>;

impl Lookups {
    /// The addresses of the names in an edit. Waits for `EDIT_WAIT_MAX` for all of them together, or until `was_ended`.
    pub(crate) fn find(
        &self,
        names: BTreeSet<Server>,
        config: &Config,
        was_ended: &dyn Fn() -> bool,
    ) -> Found {
        self.find_within((names, EDIT_WAIT_MAX), was_ended, &look_up_of(config))
    }

    fn find_within(
        &self,
        (names, wait_max): (BTreeSet<Server>, Duration),
        was_ended: &dyn Fn() -> bool,
        look_up: &LookUp,
    ) -> Found {
        let deadline = Instant::now() + wait_max;
        let mut found = self.find_all((names.clone(), Some(deadline)), was_ended, look_up);
        for name in names {
            found.entry(name).or_insert_with(|| {
                Err(format!(
                    "the name was not resolved within {wait_max:?}; help: try again, or use an IP address"
                ))
            });
        }
        found
    }

    /// Resolves names, several at once. Those without a result were not resolved before the deadline (`None`: all are waited
    /// for), or before `was_ended`.
    fn find_all(
        &self,
        (names, deadline): (BTreeSet<Server>, Option<Instant>),
        was_ended: &dyn Fn() -> bool,
        look_up: &LookUp,
    ) -> Found {
        let waiting = Arc::new(Mutex::new(names));
        let (sender, results) = mpsc::channel();
        let mut refusal = None;
        for number in 0..THREADS_MAX {
            let Some(first) = take_name(&waiting) else { break };
            let begun = self.begin((number, first.clone()), (&waiting, &sender), look_up);
            // The threads that have begun resolve the names of the others, too.
            if let Err(why) = begun {
                lock(&waiting).insert(first);
                refusal = Some(why);
                break;
            }
        }
        drop(sender);
        let mut found = Found::new();
        while !was_ended() {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match results.recv_timeout(left.unwrap_or(POLL_EVERY).min(POLL_EVERY)) {
                Ok((server, result)) => _ = found.insert(server, result),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if left.is_some_and(|left| left.is_zero()) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        // No thread resolves the rest: there was none left, or the time is up.
        let rest = core::mem::take(&mut *lock(&waiting));
        if let Some(why) = refusal {
            found.extend(rest.into_iter().map(|name| (name, Err(why.clone()))));
        }
        found
    }

    /// Begins a thread that resolves `first` and the names in `waiting`, one after the other.
    fn begin(
        &self,
        (number, first): (usize, Server),
        (waiting, sender): (&Waiting, &Results),
        look_up: &LookUp,
    ) -> Result<(), String> {
        let before = self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.running));
        if before >= THREADS_MAX {
            return Err(format!("{THREADS_MAX} other names are being resolved; help: try again"));
        }
        let (waiting, sender, look_up) = (Arc::clone(waiting), sender.clone(), Arc::clone(look_up));
        let work = move || {
            let mut next = Some(first);
            while let Some(server) = next {
                let result = look_up(&server);
                next = sender.send((server, result)).ok().and_then(|()| take_name(&waiting));
            }
            drop(running);
            Ended::AsPlanned
        };
        let begun = threads::spawn(format!("names-{number}"), work);
        begun.map(drop).map_err(|error| format!("the name cannot be resolved: {error}"))
    }
}

fn take_name(waiting: &Waiting) -> Option<Server> {
    lock(waiting).pop_first()
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, BTreeSet<Server>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`resolve_after`]. `look_up` gets each name with the addresses that it had. Removed servers keep their addresses.
fn resolve_with(
    next: &Arranged,
    known: (&Arranged, &Addresses),
    look_up: impl Fn(&Server, Option<&[Address]>) -> Result<Located, String>,
) -> Result<Resolution, Vec<Finding>> {
    resolve_keeping(&SlotAddresses::new(), next, known, look_up)
}

/// As `resolve_with`. Slots that `known` does not have begin with the addresses in `slots`.
fn resolve_keeping(
    slots: &SlotAddresses,
    next: &Arranged,
    known: (&Arranged, &Addresses),
    look_up: impl Fn(&Server, Option<&[Address]>) -> Result<Located, String>,
) -> Result<Resolution, Vec<Finding>> {
    let earlier = addresses_by_name(known);
    let mut resolving = Resolving {
        earlier,
        resolved: BTreeMap::new(),
        findings: Vec::new(),
        unresolved: Vec::new(),
    };
    let mut pools = Vec::with_capacity(next.config.pools.len());
    for (index, (pool, life)) in next.config.pools.iter().zip(&next.pools).enumerate() {
        let known_at = |at: usize| known.1.get(index)?.get(at).cloned();
        let mut servers: Vec<Vec<Address>> = Vec::with_capacity(pool.servers.len());
        for (at, server) in pool.servers.iter().enumerate() {
            servers.push(match &server.address {
                ServerAddress::Ip(address) => vec![Address::Tcp(*address)],
                ServerAddress::Unix(path) => vec![Address::Unix(path.clone())],
                // It has the index that it had.
                ServerAddress::Name(..) | ServerAddress::Slot(_) if life.is_server_gone(at) => {
                    known_at(at).unwrap_or_default()
                }
                ServerAddress::Name(name, port) => {
                    resolving.find((index, pool), server, (name.clone(), *port), &look_up)
                }
                ServerAddress::Slot(_) => {
                    let is_same = known.0.config.pools.get(index).is_some_and(|of| {
                        of.name == pool.name
                            && of.servers.get(at).is_some_and(|of| of.address == server.address)
                    });
                    let inherited = || {
                        let address =
                            slots.get(&(pool.name.clone(), server.address.to_string()))?;
                        Some(vec![Address::Tcp(*address)])
                    };
                    known_at(at).filter(|_| is_same).or_else(inherited).unwrap_or_default()
                }
            });
        }
        for template in templates(pool, life) {
            let Some(first) = template.slots.first() else { continue };
            let (server, name) = (&pool.servers[*first], template.name.clone());
            let found = resolving.find((index, pool), server, name, &look_up);
            let found: Vec<SocketAddr> = socket_addresses(&found).collect();
            let located = resolving.resolved.get(&template.name);
            let none = Marks::new();
            let marks = located.and_then(|of| of.as_ref().ok()).map_or(&none, |of| &of.marks);
            fill(&mut servers, &template.slots, (&found, marks));
        }
        pools.push(servers);
    }
    if !resolving.findings.is_empty() {
        return Err(resolving.findings);
    }
    let of_name = |(name, found): (Server, Result<Located, String>)| {
        found.ok().filter(|found| !found.marks.is_empty()).map(|found| (name, found.marks))
    };
    let marks = resolving.resolved.into_iter().filter_map(of_name).collect();
    Ok(Resolution { addresses: pools, marks, unresolved: resolving.unresolved })
}

/// By name: all addresses that servers with this name have.
fn addresses_by_name(
    (arranged, addresses): (&Arranged, &Addresses),
) -> BTreeMap<Server, Vec<Address>> {
    let mut known: BTreeMap<Server, Vec<Address>> = BTreeMap::new();
    for ((pool, at), server) in arranged.servers() {
        let Some(name) = name_of(&server.address) else { continue };
        let of_server = addresses.get(pool).and_then(|pool| pool.get(at));
        let all = known.entry(name).or_default();
        for address in of_server.into_iter().flatten() {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
    }
    known
}

/// The names of a configuration while they are resolved.
struct Resolving {
    /// The addresses that they had.
    earlier: BTreeMap<Server, Vec<Address>>,
    resolved: Found,
    findings: Vec<Finding>,
    unresolved: Vec<Unresolved>,
}

impl Resolving {
    /// The addresses of the name of a server.
    fn find(
        &mut self,
        (index, pool): (usize, &Pool),
        server: &Upstream,
        name: Server,
        look_up: impl Fn(&Server, Option<&[Address]>) -> Result<Located, String>,
    ) -> Vec<Address> {
        let known = self.earlier.get(&name).map(|known| known.as_slice());
        let found = self.resolved.entry(name.clone()).or_insert_with(|| look_up(&name, known));
        let what = match found {
            Ok(found) => return found.addresses.clone(),
            Err(what) => what.clone(),
        };
        let known = known.filter(|known| !known.is_empty());
        if known.is_none() && !server.may_lack_address {
            self.findings.push(finding(index, text_of(&name), what));
            return Vec::new();
        }
        let (pool, name, is_kept) = (pool.name.clone(), text_of(&name), known.is_some());
        let addresses = known.unwrap_or_default().to_vec();
        self.unresolved.push(Unresolved { pool, name, what, is_kept });
        addresses
    }
}

/// A finding about the name of a server of the pool with this index.
fn finding(pool: usize, subject: String, what: String) -> Finding {
    let owner = Owner::Pool(pool);
    Finding { kind: Kind::Name, owner, subject, what, help: None }
}

fn check_with(config: &Config, wait_max: Duration, look_up: &LookUp) -> Vec<Finding> {
    let late =
        format!("the name was not resolved within {wait_max:?}; help: --offline skips this check");
    let servers = config.pools.iter().flat_map(|pool| &pool.servers);
    let names = servers.filter_map(|server| name_of(&server.address)).collect();
    let deadline = Instant::now() + wait_max;
    let found = Lookups::default().find_all((names, Some(deadline)), &|| false, look_up);
    let mut findings = Vec::new();
    for (index, pool) in config.pools.iter().enumerate() {
        let mut seen = BTreeSet::new();
        for server in pool.servers.iter().filter(|server| !server.may_lack_address) {
            let Some(name) = name_of(&server.address) else { continue };
            if !seen.insert(name.clone()) {
                continue;
            }
            let what = match found.get(&name) {
                Some(Ok(_)) => continue,
                Some(Err(what)) => what.clone(),
                None => late.clone(),
            };
            findings.push(finding(index, text_of(&name), what));
        }
    }
    findings
}

/// The addresses of a name by the system's resolver, at least one, or why it has none.
fn resolve((name, port): &Server) -> Result<Vec<Address>, String> {
    if *port == SRV_PORT {
        return Err("SRV records need [resolver]".to_owned());
    }
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
    fn play((name, _): &Server) -> Result<Located, String> {
        match name.as_str() {
            "stuck" => loop {
                std::thread::park();
            },
            "bad" => Err("no such name".to_owned()),
            _ => Ok(address().into()),
        }
    }

    fn player() -> LookUp {
        Arc::new(play)
    }

    fn address() -> Vec<Address> {
        vec![Address::Tcp(([10, 0, 0, 9], 1).into())]
    }

    #[test]
    fn faults_and_late_names_are_found_and_the_wait_is_bounded() {
        let config = config_of("good:1\", \"bad:2\", \"10.0.0.1:3\", \"stuck:4");
        let findings = check_with(&config, Duration::from_secs(2), &player());
        let found: Vec<_> =
            findings.iter().map(|f| (f.subject.as_str(), f.what.as_str())).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], ("bad:2", "no such name"));
        assert!(found[1].0 == "stuck:4" && found[1].1.contains("not resolved within 2s"));
        assert!(check(&config_of("127.0.0.1:1"), Duration::from_secs(1)).is_empty());
    }

    #[test]
    fn edits_resolve_no_names_on_the_thread_that_reloads() {
        let (before, after) = (arranged("known:1"), arranged("known:1\", \"new:2"));
        let known = (&before, &vec![vec![address()]]);
        let server = ("new".to_owned(), 2);
        let found = |result| Found::from([(server.clone(), result)]);
        let both = resolve_new(&after, known, &found(Ok(address().into()))).expect("both");
        assert_eq!(both.addresses, [[address(), address()]]);
        for (found, text) in [(found(Err("late".to_owned())), "late"), (Found::new(), "try again")]
        {
            let findings = resolve_new(&after, known, &found).expect_err("new:2 has no address");
            assert_eq!((findings.len(), findings[0].subject.as_str()), (1, "new:2"));
            assert!(findings[0].what.contains(text), "{}", findings[0].what);
        }
    }

    #[test]
    fn removed_names_keep_their_addresses_and_are_resolved_when_they_come_back() {
        let other = |last| vec![Address::Tcp(([10, 0, 0, last], 1).into())];
        let first = arranged("a:1\", \"b:2");
        let addresses = vec![vec![other(1), other(2)]];
        let after = |before: &Arranged, servers| {
            let in_use = before.removed().collect();
            before.next(config_of(servers), &in_use).expect("indexes are free")
        };
        let removed = after(&first, "a:1");
        assert_eq!(names_of(&removed), [("a".to_owned(), 1)].into());
        // Neither an edit nor a reload needs the name of the removed server.
        let known = (&first, &addresses);
        let kept = resolve_new(&removed, known, &Found::new()).expect("it keeps its own");
        assert_eq!(kept.addresses, addresses);
        let play = |server: &Server, _: Option<&[Address]>| {
            assert_eq!(server.0, "a");
            Ok(other(1).into())
        };
        let resolved = resolve_with(&removed, known, play).expect("it is resolved");
        assert_eq!((resolved.addresses, resolved.unresolved), (addresses.clone(), Vec::new()));
        let back = after(&removed, "a:1\", \"b:2");
        let found = Found::from([(("b".to_owned(), 2), Ok(other(3).into()))]);
        let renewed = resolve_new(&back, (&removed, &addresses), &found).expect("both");
        assert_eq!(renewed.addresses, [[other(1), other(3)]]);
    }

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<Server> {
        names.map(|name| (name.to_owned(), 1)).into()
    }

    #[test]
    fn lookups_of_edits_are_bounded_in_time_and_number() {
        let lookups = Lookups::default();
        let find = |of, wait_max, was_ended: &dyn Fn() -> bool| {
            lookups
                .find_within((of, wait_max), was_ended, &player())
                .into_values()
                .collect::<Vec<_>>()
        };
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(1));
        let both = find(names(["bad", "good"]), long, &|| false);
        assert_eq!(both, [Err("no such name".to_owned()), Ok(address().into())]);
        let left = find(names(["stuck"]), long, &|| true);
        assert!(left[0].is_err(), "the client was disconnected");
        let began = Instant::now();
        let many: BTreeSet<Server> =
            (2..THREADS_MAX as u16).map(|at| ("stuck".into(), at)).collect();
        let late = find(many, Duration::from_millis(100), &|| false);
        assert!(began.elapsed() < long / 2, "the time is for all of them together");
        for result in late {
            let error = result.expect_err("it is late");
            assert!(error.contains("was not resolved within 100ms"), "{error}");
        }
        // One thread is left for two names, and no thread after that.
        assert_eq!(
            find(names(["a", "good"]), long, &|| false),
            [Ok(address().into()), Ok(address().into())]
        );
        assert!(find(names(["stuck"]), short, &|| false)[0].is_err());
        let refused = find(names(["bad", "good"]), long, &|| false);
        for result in refused {
            let error = result.expect_err("all threads are in use");
            assert!(error.contains("16 other names are being resolved"), "{error}");
        }
    }

    #[test]
    fn names_that_are_late_at_a_reload_do_not_delay_others() {
        let lookups = Lookups::default();
        let find = |names, deadline| lookups.find_all((names, deadline), &|| false, &player());
        let deadline = Some(Instant::now() + Duration::from_secs(2));
        let found = find(names(["stuck", "good", "bad"]), deadline);
        let known: Vec<&str> = found.keys().map(|(name, _)| name.as_str()).collect();
        assert_eq!(known, ["bad", "good"]);
        assert_eq!(find(names(["good"]), None).len(), 1);
        assert_eq!(lookups.running.load(Ordering::SeqCst), 1, "the thread that waits counts");
    }

    #[test]
    fn slots_keep_their_addresses_when_the_configuration_is_read_again() {
        let text =
            |slots: u16| format!("ip:1\", {{ address = \"many:80\", slots = {slots} }}, \"ip:2");
        let ip = |last: u8| Address::Tcp(([10, 0, 0, last], 80).into());
        let with = |all: &[u8]| {
            let all: Vec<Address> = all.iter().copied().map(ip).collect();
            move |server: &Server, _: Option<&[Address]>| match server.0.as_str() {
                "many" => Ok(Located::from(all.clone())),
                _ => Ok(Located::from(vec![ip(99)])),
            }
        };
        let first = arranged(&text(3));
        let none = (&Arranged::default(), &Vec::new());
        let before = resolve_with(&first, none, with(&[7, 5])).expect("both are resolved");
        let slots = |of: &Addresses, at: core::ops::RangeInclusive<usize>| of[0][at].to_vec();
        assert_eq!(slots(&before.addresses, 1..=3), [vec![ip(5)], vec![ip(7)], vec![]]);
        // A reload with fewer slots: the address of the removed one is that of a drained server.
        let next =
            first.next(config_of(&text(2)), &first.removed().collect()).expect("indexes are free");
        let known = (&first, &before.addresses);
        let after = resolve_with(&next, known, with(&[4, 7])).expect("both are resolved");
        assert_eq!(
            slots(&after.addresses, 1..=2),
            [vec![ip(4)], vec![ip(7)]],
            "the slot of 5 is reused"
        );
        // While the name cannot be resolved, nothing changes; an edit resolves nothing.
        let fails = |_: &Server, _: Option<&[Address]>| Err("no".to_owned());
        let kept = resolve_with(&first, known, fails).expect("there are earlier addresses");
        assert_eq!((kept.addresses, kept.unresolved.len()), (before.addresses.clone(), 3));
        let edited = resolve_new(&first, known, &Found::new()).expect("all are known");
        assert_eq!(edited.addresses, before.addresses);
        let findings = resolve_with(&first, none, fails).expect_err("they are required");
        let subjects: Vec<&str> = findings.iter().map(|of| of.subject.as_str()).collect();
        assert_eq!(subjects, ["ip:1", "ip:2", "many:80"], "one for all slots");
    }

    #[test]
    fn slots_keep_the_addresses_of_the_process_that_is_replaced() {
        let first = arranged("ip:1\", { address = \"many:80\", slots = 3 }, \"ip:2");
        let ip = |last: u8| Address::Tcp(([10, 0, 0, last], 80).into());
        let found = |all: &[u8]| {
            let many: Vec<Address> = all.iter().copied().map(ip).collect();
            let all = [(("ip", 1), vec![ip(99)]), (("ip", 2), vec![ip(99)]), (("many", 80), many)];
            let all = all
                .map(|((name, port), found)| ((name.to_owned(), port), Ok(Located::from(found))));
            Found::from(all)
        };
        let slots = |earlier: &[(&str, u8)], all: &[u8]| {
            let pair = |(name, last): &(&str, u8)| {
                (("p".to_owned(), (*name).to_owned()), ([10, 0, 0, *last], 80).into())
            };
            let earlier: SlotAddresses = earlier.iter().map(pair).collect();
            let resolved = resolve_first(&first, &found(all), &earlier).expect("all are found");
            resolved.addresses[0][1..=3].to_vec()
        };
        let [one, two, three] = [1, 2, 3].map(|last| vec![ip(last)]);
        let earlier = [("many:80#1", 2), ("many:80#3", 1), ("ip:1", 7), ("gone", 3)];
        assert_eq!(slots(&[], &[2, 1]), [one.clone(), two.clone(), vec![]]);
        assert_eq!(slots(&earlier, &[1, 2]), [two.clone(), vec![], one.clone()]);
        assert_eq!(slots(&earlier, &[1, 3, 2]), [two, three.clone(), one.clone()]);
        assert_eq!(slots(&earlier, &[1, 3]), [vec![], three, one], "2 is gone");
    }

    #[test]
    fn optional_names_may_lack_addresses() {
        let optional = "at-start = \"optional\"";
        let server = format!(
            "ip:1\", {{ address = \"a:1\", {optional} }}, {{ address = \"b:1\", slots = 2, {optional} }}, \"ip:2"
        );
        let next = arranged(&server);
        let play = |server: &Server, _: Option<&[Address]>| match server.0.as_str() {
            "ip" => Ok(Located::from(address())),
            _ => Err("no such name".to_owned()),
        };
        let none = (&Arranged::default(), &Vec::new());
        let found = resolve_with(&next, none, play).expect("the others are resolved");
        assert_eq!(found.addresses, [[address(), vec![], vec![], vec![], address()]]);
        let lines: Vec<String> = found.unresolved.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("a:1: no such name; the server is down until"), "{lines:?}");
        let known = (&next, &found.addresses);
        let edited = resolve_new(&next, known, &Found::new()).expect("nothing is resolved");
        assert_eq!(edited.addresses, found.addresses);
        assert!(check_with(&next.config, Duration::from_secs(2), &player()).is_empty());
    }

    fn arranged(server: &str) -> Arranged {
        Arranged::first(config_of(server))
    }

    fn config_of(server: &str) -> Config {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"p\"\n[pool.p]\nservers = [\"{server}\"]\n"
        );
        tidegate_config::parse(&text, "the test").expect("it is valid")
    }
}
