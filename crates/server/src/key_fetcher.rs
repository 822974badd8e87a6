//! Fetches the keys of tokens (`keys = "https://..."`) at intervals, on a separate thread.
//! In: the addresses of the configuration in force; requests of workers for newer keys. Out: keys in force for all workers; log lines.
//! Never: runs on a worker; gives up keys because newer ones cannot be fetched.
//! Limits: one fetch at a time, first of addresses that could be fetched last time; a reload makes each due at once. A set is
//! fetched again after `USABLE_MIN` to `USABLE_MAX`, after a failure after
//! `RETRY_MIN` to `RETRY_MAX`, and for an unknown key after `WANT_SECONDS_MIN`. Times vary by up to a tenth, so that
//! machines that started together do not fetch together.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_base::Prng;
use tidegate_config::model::RemoteAddress;
use tidegate_gate::live_keys::KeySources;
use tidegate_wire::jwt::FetchedKeys;

use crate::key_client::{self, Fetched};
use crate::log;
use crate::randomness::random_seed;
use crate::reload::unix_seconds;
use crate::threads::{self, Ended};

/// How often the thread checks whether a fetch is due or demanded.
const TICK: Duration = Duration::from_millis(200);
/// The shortest time between two fetches that succeed, unless an unknown key requires one.
const USABLE_MIN: Duration = Duration::from_secs(60);
/// The longest time between two fetches: a withdrawn key is accepted for no longer.
const USABLE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The time between two fetches if the server announces none.
const USABLE_DEFAULT: Duration = Duration::from_secs(600);
/// The time until the first retry. It doubles with each failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest time until a retry.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The thread, and the key sets that it fetches.
#[derive(Default)]
pub(crate) struct KeyFetcher {
    /// The requirements of the configuration in force.
    followed: Arc<Mutex<Followed>>,
    /// The thread runs.
    runs: bool,
}

/// The requirements of the configuration in force.
#[derive(Clone, Default)]
struct Followed {
    /// The addresses.
    sources: KeySources,
    /// How many configurations were in force.
    count: u64,
}

impl KeyFetcher {
    /// Fetches the keys of these addresses now and from time to time, and of no others. Starts the thread when there is a first
    /// address.
    ///
    /// # Errors
    /// The kernel refused the thread.
    pub(crate) fn follow(&mut self, sources: &KeySources) -> io::Result<()> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        *followed = Followed { sources: sources.clone(), count: followed.count + 1 };
        drop(followed);
        if self.runs || sources.all().next().is_none() {
            return Ok(());
        }
        let followed = Arc::clone(&self.followed);
        threads::spawn("keys", move || fetch_forever(&followed))?;
        self.runs = true;
        Ok(())
    }
}

/// When an address is fetched.
#[derive(Clone, Copy)]
struct Schedule {
    /// When the next fetch is due.
    due: Instant,
    /// The failures since the last success.
    failures: u32,
}

/// When each address is fetched.
#[derive(Default)]
struct Schedules {
    of: BTreeMap<RemoteAddress, Schedule>,
    /// `Followed::count` of the addresses.
    count: u64,
}

impl Schedules {
    /// Adopts the addresses of a configuration. If it is a later one, each address is due: an operator who reloads expects new
    /// keys, and the keys of an address that was absent in between are no longer stored.
    fn adopt(&mut self, followed: &Followed, now: Instant) {
        if followed.count == self.count {
            return;
        }
        self.count = followed.count;
        self.of.retain(|remote, _| followed.sources.find(remote).is_some());
        self.of.values_mut().for_each(|schedule| schedule.due = now);
        for (remote, _) in followed.sources.all() {
            self.of.entry(remote.clone()).or_insert(Schedule { due: now, failures: 0 });
        }
    }

    /// The address that is fetched next: of those that are due or wanted, one with the fewest failures, because each failure may
    /// take long.
    fn next(&self, sources: &KeySources, now: Instant) -> Option<RemoteAddress> {
        let is_due = |(remote, schedule): &(&RemoteAddress, &Schedule)| {
            now >= schedule.due
                || sources.find(remote).is_some_and(|keys| keys.is_wanted(unix_seconds()))
        };
        let due = self.of.iter().filter(is_due);
        let next = due.min_by_key(|(_, schedule)| (schedule.failures, schedule.due));
        next.map(|(remote, _)| remote.clone())
    }
}

fn fetch_forever(followed: &Mutex<Followed>) -> Ended {
    let mut schedules = Schedules::default();
    let mut prng = Prng::new(random_seed());
    loop {
        let current = followed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        schedules.adopt(&current, Instant::now());
        let next = schedules.next(&current.sources, Instant::now());
        let found = next.as_ref().and_then(|remote| {
            Some((remote, current.sources.find(remote)?, schedules.of.get_mut(remote)?))
        });
        let Some((remote, keys, schedule)) = found else {
            thread::sleep(TICK);
            continue;
        };
        keys.take_wanted();
        let fetched = key_client::fetch(remote);
        let wait = note(remote, keys, fetched, schedule);
        let tenth = wait.as_millis() as u64 / 10;
        let earlier = Duration::from_millis(prng.below(tenth.max(1)));
        schedule.due = Instant::now() + (wait - earlier);
    }
}

/// Puts fetched keys in force. Returns the time until the next fetch.
fn note(
    remote: &RemoteAddress,
    keys: &FetchedKeys,
    fetched: Result<Fetched, String>,
    schedule: &mut Schedule,
) -> Duration {
    // A query may contain a secret.
    let url = remote.url.split('?').next().unwrap_or_default();
    let now = unix_seconds();
    let offered = match fetched {
        Ok(Fetched { content, usable }) => {
            keys.offer(&content, now).map(|changed| (changed, usable))
        }
        Err(what) => {
            keys.note_failure(now);
            Err(what)
        }
    };
    match offered {
        Ok((changed, usable)) => {
            if let Some(count) = changed {
                log::info(format_args!("{count} token keys fetched from {url}"));
            } else if schedule.failures > 0 {
                log::info(format_args!("the token keys at {url} can be fetched again"));
            }
            schedule.failures = 0;
            usable.unwrap_or(USABLE_DEFAULT).clamp(USABLE_MIN, USABLE_MAX)
        }
        Err(what) => {
            let effect = match keys.facts().fetched_at {
                0 => "all tokens are refused until a fetch succeeds".to_owned(),
                at => format!("the keys fetched {} s ago stay in force", now.saturating_sub(at)),
            };
            log::warning(format_args!(
                "the token keys at {url} cannot be fetched: {what}; {effect}"
            ));
            let wait = RETRY_MIN * 2_u32.saturating_pow(schedule.failures.min(10));
            schedule.failures = schedule.failures.saturating_add(1);
            wait.min(RETRY_MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = r#"{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

    #[test]
    fn reload_makes_each_address_due_and_failures_delay_no_other_address() {
        let file = |names: &[&str]| {
            let route = |name: &&str| {
                format!(
                    "[[route]]\npath = \"/{name}\"\nrespond = {{}}\n\
                     auth = {{ jwt = {{ keys = \"https://{name}.example/\" }} }}\n"
                )
            };
            let routes: String = names.iter().map(route).collect();
            let text = format!("[[listener]]\nbind = \"127.0.0.1:0\"\n{routes}");
            tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
        };
        let (mut schedules, start) = (Schedules::default(), Instant::now());
        let name = |remote: Option<RemoteAddress>| remote.map(|remote| remote.host);
        let sources = KeySources::new(&file(&["a", "b"]));
        let mut followed = Followed { sources, count: 1 };
        schedules.adopt(&followed, start);
        let finish = |schedules: &mut Schedules, sources: &KeySources, failures| {
            let next = schedules.next(sources, start);
            if let Some(schedule) = next.as_ref().and_then(|remote| schedules.of.get_mut(remote)) {
                *schedule = Schedule { due: start + USABLE_MIN, failures };
            }
            name(next)
        };
        assert_eq!(finish(&mut schedules, &followed.sources, 3), Some("a.example".to_owned()));
        assert_eq!(finish(&mut schedules, &followed.sources, 0), Some("b.example".to_owned()));
        assert_eq!(finish(&mut schedules, &followed.sources, 0), None, "nothing is due");
        schedules.adopt(&followed, start);
        assert_eq!(finish(&mut schedules, &followed.sources, 0), None, "no new configuration");
        // A reload with another address: those with failures are last.
        followed = Followed { sources: followed.sources.after(&file(&["a", "b", "c"])), count: 2 };
        schedules.adopt(&followed, start);
        let order: Vec<_> =
            core::iter::from_fn(|| finish(&mut schedules, &followed.sources, 3)).collect();
        assert_eq!(order, ["b.example", "c.example", "a.example"]);
        // An address that is removed and added again has no keys, and is fetched although it was fetched a moment ago.
        let without = followed.sources.after(&file(&["b"]));
        followed = Followed { sources: without.after(&file(&["a", "b"])), count: 4 };
        schedules.adopt(&followed, start);
        assert_eq!(schedules.of.len(), 2);
        assert_eq!(name(schedules.next(&followed.sources, start)).as_deref(), Some("a.example"));
    }

    #[test]
    fn time_until_the_next_fetch_is_bounded() {
        let text = "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nrespond = { status = 200 }\n\
            auth = { jwt = { keys = \"https://id.example/keys?secret\" } }\n";
        let config = tidegate_config::parse(text, "the test");
        let config = config.unwrap_or_else(|errors| panic!("{errors}"));
        let sources = KeySources::new(&config);
        let (remote, keys) = sources.all().next().expect("an address");
        let mut schedule = Schedule { due: Instant::now(), failures: 0 };
        let mut waits = Vec::new();
        for _ in 0..9 {
            let failed = Err("no address".to_owned());
            waits.push(note(remote, keys, failed, &mut schedule).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        for (usable, expected) in
            [(None, 600), (Some(0), 60), (Some(300), 300), (Some(u64::MAX), 24 * 3600)]
        {
            let content = KEY.as_bytes().to_vec();
            let fetched = Fetched { content, usable: usable.map(Duration::from_secs) };
            let wait = note(remote, keys, Ok(fetched), &mut schedule);
            assert_eq!((wait.as_secs(), schedule.failures), (expected, 0));
        }
        let wrong = Fetched { content: b"{}".to_vec(), usable: None };
        assert_eq!(note(remote, keys, Ok(wrong), &mut schedule).as_secs(), 1);
        let facts = keys.facts();
        assert_eq!((facts.keys, facts.fetches, facts.failures), (1, 4, 10));
    }
}
