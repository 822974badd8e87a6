//! Runs whole workers on the simulator: hundreds of random runs, named cases, and runs with an injected fault that the
//! checks must detect.
//! In: seeds. TIDEGATE_SEEDS sets their number and TIDEGATE_FIRST_SEED the first one, TIDEGATE_SEED plays a
//! single one, TIDEGATE_TRACE=1 prints a line for each event.
//! Out: each failing seed, with the command that replays it.
//! Never: waits for a real clock.

mod asked;
mod bandwidth;
mod client;
mod copies;
mod floods;
mod glitches;
mod hashing;
mod host;
mod http2;
mod http2_named;
mod http2_origin;
mod http2_servers;
mod http2_smuggling;
mod http2_tunnel;
mod http2_websocket;
mod inspection;
mod lapps;
mod limits;
mod line;
mod lua;
mod lua_balance;
mod lua_bodies;
mod lua_certificates;
mod lua_channels;
mod lua_datagrams;
mod lua_frames;
mod lua_heads;
mod lua_leak;
mod lua_lookups;
mod lua_queues;
mod lua_reload;
mod lua_requests;
mod lua_share;
mod lua_sockets;
mod lua_uploads;
mod memory;
mod mirror;
mod named;
mod oracle;
mod origin;
#[allow(dead_code, reason = "shared by several tests, each of which uses a part")]
#[path = "../peer/mod.rs"]
mod peer;
mod permits;
mod plan;
mod progress;
mod proxy_header;
mod proxy_protocol;
mod push;
mod push_backend;
mod push_cache;
mod push_clients;
mod push_compression;
mod push_crowd;
mod push_lua_backend;
mod push_tokens;
mod push_url_tokens;
mod push_welcome;
mod questions;
mod records;
mod reload;
mod run;
mod secured;
mod settings;
mod settings_waiting;
mod slow;
mod slow_servers;
mod speaker;
mod stage;
mod stays;
mod tokens;
mod unsolicited;
mod websocket;
mod websocket_tunnel;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use oracle::Oracle;
use origin::InjectedFault;

const SEEDS_DEFAULT: u64 = 800;
/// Seeds outside the default range that once broke an invariant. They are always played.
const REGRESSION_SEEDS: [u64; 20] = [
    // A response that waited for a hook until its request was complete closed a connection on which the next request waited.
    352_242_614,
    // A hook that had waited resumed a TLS server whose bytes were decrypted already: they reached an HTTP/2 client one turn late.
    352_230_320,
    // A client that read a response slowly was reset by the body timeout, although it made progress.
    900_064_862,
    // A client that reads 4 bytes every 66 ms: the run counted as failed after 1200 s, before the response was complete.
    8_001_739,
    // Two workers without room for a connection sent a permit back and forth thousands of times in a second.
    2677,
    // An HTTP/2 client that disconnected in the middle of an upload left its connection without a deadline.
    18_862,
    // HTTP/2 streams used up the places for synthetic responses, so that clients got 503.
    21_659,
    // An origin that had received a request sent an unsolicited response: a fault of the simulation, not of the server.
    310_053_935,
    // The same, after a part of the request's TLS record had arrived.
    330_029_896,
    // A server chose HTTP/1.1 while several requests waited for its connection: the others counted as a broken invariant.
    350_000_078,
    // A server of HTTP/2 stopped reading while its connection's output held parts of uploads: they waited without a deadline.
    350_004_151,
    350_004_473,
    // A client reset its connection before its malformed head was refused: the access log had a status that was not sent.
    350_022_570,
    // A request waited in a hook while reloads removed the pool of its settings and gave its index to another pool.
    350_022_787,
    // A worker with newer settings asked for a permit; this request was lost when the other worker applied the settings.
    350_028_752,
    // A server ended its connection while the last bytes of the body, received over TLS, waited for the bandwidth limit,
    // and were lost.
    351_000_380,
    351_001_564,
    // A worker resumed reading from a TLS client that had half-closed its connection, and closed the connection at once: the
    // end of input was reported after the close.
    350_352_544,
    350_353_345,
    // A client read slowly while new responses filled its output, which therefore never became smaller; the worker reset it.
    352_102_216,
];
/// A long run prints how far it is after this many seeds.
const SEEDS_BETWEEN_REPORTS: usize = 50_000;
/// The test stops after this many failing seeds.
const FAILURES_MAX: usize = 10;

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn play(seed: u64, injected_fault: Option<InjectedFault>) -> Result<Oracle, String> {
    let traces = std::env::var("TIDEGATE_TRACE").is_ok_and(|value| value == "1");
    let traces = traces && injected_fault.is_none();
    catch_unwind(AssertUnwindSafe(|| run::play(seed, traces, injected_fault)))
        .unwrap_or_else(|_| Err("the run panicked (see above)".to_owned()))
}

/// The sums over all runs that ended without a violation.
#[derive(Default)]
struct Sums {
    good: u64,
    failed: u64,
    cut: u64,
    resends: u64,
    tunnels: u64,
    refused: u64,
    header_reuses: u64,
    intrusions: u64,
    handshakes: u64,
    resumptions: u64,
    truncations: u64,
    evicted: u64,
    permits: u64,
    streams: u64,
    reloads: u64,
}

impl Sums {
    fn add(&mut self, oracle: &Oracle) {
        self.good += oracle.answers_good;
        self.failed += oracle.answers_failed;
        self.cut += oracle.answers_cut;
        self.resends += oracle.resends;
        self.tunnels += oracle.tunnels;
        self.refused += oracle.refused;
        self.header_reuses += oracle.header_reuses;
        self.intrusions += oracle.intrusions;
        self.handshakes += oracle.handshakes;
        self.resumptions += oracle.resumptions;
        self.truncations += oracle.truncations;
        self.evicted += oracle.evicted;
        self.permits += oracle.permits;
        self.streams += oracle.streams;
        self.reloads += oracle.reloads;
    }
}

/// Plays the seeds on all CPUs until `FAILURES_MAX` have failed. Returns the sums and the failing seeds.
fn play_all(seeds: &[RangeInclusive<u64>]) -> (Sums, Vec<String>) {
    let count: u64 = seeds.iter().map(|range| range.end() - range.start() + 1).sum();
    let seeds = Mutex::new(seeds.iter().cloned().flatten().enumerate());
    let results = Mutex::new((Sums::default(), BTreeMap::new()));
    let work = || loop {
        let Some((at, seed)) = seeds.lock().expect("no thread panics").next() else { return };
        if at > 0 && at % SEEDS_BETWEEN_REPORTS == 0 {
            eprintln!("{at} of {count} seeds");
        }
        let outcome = play(seed, None);
        let (sums, failures) = &mut *results.lock().expect("no thread panics");
        match outcome {
            Ok(oracle) => sums.add(&oracle),
            Err(violation) => {
                let text = format!(
                    "seed {seed}: {violation}\n  replay: TIDEGATE_SEED={seed} TIDEGATE_TRACE=1 cargo \
                     test --package tidegate-server --test simulation no_seed -- --nocapture"
                );
                failures.insert(seed, text);
            }
        }
        if failures.len() >= FAILURES_MAX {
            return;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let (sums, failures) = results.into_inner().expect("no thread panics");
    (sums, failures.into_values().collect())
}

#[test]
fn no_seed_breaks_an_invariant() {
    let first = env_number("TIDEGATE_FIRST_SEED").unwrap_or(0);
    let count = env_number("TIDEGATE_SEEDS").unwrap_or(SEEDS_DEFAULT).max(1);
    let (seeds, count) = match env_number("TIDEGATE_SEED") {
        Some(seed) => (vec![seed..=seed], 1),
        None => {
            let kept = REGRESSION_SEEDS.iter().map(|&seed| seed..=seed);
            (kept.chain([first..=first.saturating_add(count - 1)]).collect(), count)
        }
    };
    let (sums, failures) = play_all(&seeds);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let Sums { good, failed, cut, resends, tunnels, refused, header_reuses, .. } = sums;
    let Sums { intrusions, handshakes, resumptions, truncations, permits, evicted, .. } = sums;
    let (streams, reloads) = (sums.streams, sums.reloads);
    eprintln!(
        "{count} seeds from {}: {good} responses ({failed} of them failures), {cut} cut off, {resends} \
         requests sent again, {tunnels} tunnels, {refused} invalid PROXY headers, {header_reuses} \
         further requests on connections with a PROXY header, {intrusions} unsolicited responses, \
         {handshakes} TLS handshakes \
         ({resumptions} resumed), {truncations} TLS truncations, {permits} permits given to \
         other workers, {evicted} connections closed to make room, {streams} responses over HTTP/2, \
         {reloads} changes of the configuration",
        seeds.last().map_or(0, |range| *range.start())
    );
    if count > 100 {
        let all = [good, failed, cut, resends, tunnels, refused, header_reuses];
        let all = [&all[..], &[intrusions, handshakes, resumptions, truncations]].concat();
        let all = [&all[..], &[permits, evicted, streams, reloads]].concat();
        assert!(
            all.iter().all(|number| *number > 0),
            "one of these numbers must not be 0: {all:?}"
        );
    }
}

#[test]
fn regression_seeds_keep_their_plans() {
    let changed = REGRESSION_SEEDS.into_iter().find(|seed| http2::has_websockets(*seed));
    assert_eq!(changed, None, "the plan of this seed has changed: it now opens WebSockets");
}

#[test]
fn seed_repeats_its_run() {
    for seed in 0..20 {
        let seen = || play(seed, None).map(|oracle| (oracle.answers_good, oracle.trace_hash));
        assert_eq!(seen(), seen());
    }
}

/// How many of the first 30 seeds fail with a violation that contains `word`.
fn caught(fault: InjectedFault, word: &str) -> usize {
    (0..30).filter(|&seed| play(seed, Some(fault)).is_err_and(|text| text.contains(word))).count()
}

#[test]
fn wrong_body_hash_is_caught() {
    assert!(caught(InjectedFault::Hash, "reports the body hash") > 10);
}

#[test]
fn wrong_response_length_is_caught() {
    assert!(caught(InjectedFault::Bytes, "ended cleanly after") > 10);
}

#[test]
fn bug_of_a_worker_is_caught() {
    assert_eq!(caught(InjectedFault::Bug, "workers have counted 1 bugs"), 30);
}

#[test]
fn wrong_client_identity_is_caught() {
    assert!(caught(InjectedFault::Name, "carried a request of") > 2);
}

#[test]
fn request_that_is_held_without_end_is_caught() {
    assert!(caught(InjectedFault::Silence, "the run is stuck: no byte has moved") > 10);
}

#[test]
fn response_to_another_request_is_caught() {
    assert!(caught(InjectedFault::Id, "got the response to") > 10);
}
