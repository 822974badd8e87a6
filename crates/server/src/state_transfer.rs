//! The state that a process passes to its successor: its statistics and the states of its servers, by their names.
//! In: a [`StateTransfer`]; bytes of the earlier process. Out: bytes for the next process; a [`StateTransfer`].
//! Never: makes a start fail; malformed bytes and unknown versions end the reading and change nothing. Never: returns an
//! incomplete transfer.
//! Limits: `LINE_BYTES_MAX` bytes of a line, `TRANSFER_BYTES_MAX` of a transfer; further entries are left out.
//! Invariant: a transfer contains the totals since the start of the first process of a chain of upgrades, so a later transfer
//! replaces an earlier transfer.
//!
//! A transfer is lines of JSON: a header with the version, one line for each part, and an end. Lines and members that are unknown
//! to a version are skipped.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tidegate_base::Span;
use tidegate_base::histogram::Durations;
use tidegate_gate::agent::{AgentState, Operation};
use tidegate_gate::eject::Ejection;
use tidegate_gate::health::ServerState;
use tidegate_gate::maintenance::Position;

use crate::slots::SlotAddresses;
use crate::stats::Subject;

/// The version of the lines. Another version is ignored.
const VERSION: u64 = 1;
/// Bytes of a line. The longest names are those of routes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a transfer: about 50,000 listeners, routes and servers.
const TRANSFER_BYTES_MAX: usize = 32 << 20;

/// The statistics and the states of servers that a process passes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateTransfer {
    /// Counters of the process, by name.
    pub(crate) process: BTreeMap<String, u64>,
    /// The counts and durations of the requests of each listener, route and server.
    pub(crate) traffic: BTreeMap<Subject, PassedTraffic>,
    /// The same for those that were removed from the configuration. If there is no room for all entries, these are left out first. The
    /// reader finds them in `traffic`.
    pub(crate) gone: BTreeMap<Subject, PassedTraffic>,
    /// The servers, by the name of the pool and the name of the server.
    pub(crate) servers: BTreeMap<(String, String), PassedServer>,
    /// The switches of `maintenance` that commands have set, by name.
    pub(crate) switches: BTreeMap<String, Position>,
}

/// The counts and durations of the requests of a listener, route or server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedTraffic {
    /// Counters that never decrease, by name.
    pub(crate) counts: BTreeMap<String, u64>,
    /// How long requests took in total.
    pub(crate) latency: Durations,
}

/// The state of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedServer {
    /// The state that an operator has set.
    pub(crate) state: ServerState,
    /// The weight that an operator has set, if one has.
    pub(crate) weight: Option<u16>,
    /// The weight in the file. If the next process has another weight in its file, it ignores `weight`.
    pub(crate) configured: u16,
    /// The address of a slot that has one.
    pub(crate) slot: Option<SocketAddr>,
    /// The results of its checks; `None` if the server is not checked.
    pub(crate) checked: Option<PassedChecks>,
    /// By worker: the ejection that is in force for the worker.
    pub(crate) ejected: BTreeMap<usize, Ejection>,
    /// Its agent, if it has one.
    pub(crate) agent: Option<PassedAgent>,
    /// Milliseconds since the server last began or stopped taking requests.
    pub(crate) unchanged_ms: u64,
    /// Milliseconds in which the server has taken no requests, in total.
    pub(crate) down_ms: u64,
}

/// The checks of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedChecks {
    /// The score, `rise` and `fall`.
    pub(crate) numbers: (u32, u32, u32),
    /// Checks so far.
    pub(crate) checks: u64,
    /// Checks that failed.
    pub(crate) failures: u64,
    /// How often the server went down.
    pub(crate) downs: u64,
}

/// The agent of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassedAgent {
    /// The values that the agent has reported.
    pub(crate) state: AgentState,
    /// Checks so far.
    pub(crate) checks: u64,
    /// Checks that returned no valid text.
    pub(crate) failures: u64,
}

impl StateTransfer {
    /// The addresses of slots, by the name of the pool and the name of the server.
    pub(crate) fn slots(&self) -> SlotAddresses {
        let known = self.servers.iter();
        known.filter_map(|(name, server)| Some((name.clone(), server.slot?))).collect()
    }

    /// The servers, without those slots that have another address in `now`.
    pub(crate) fn servers_as_in(
        &self,
        now: &BTreeMap<(String, String), PassedServer>,
    ) -> BTreeMap<(String, String), PassedServer> {
        let is_same = |name: &(String, String), earlier: &PassedServer| {
            earlier.slot.is_none() || now.get(name).is_some_and(|own| own.slot == earlier.slot)
        };
        let known = self.servers.iter().filter(|(name, earlier)| is_same(name, earlier));
        known.map(|(name, earlier)| (name.clone(), earlier.clone())).collect()
    }

    /// The transfer as bytes, and how many of its entries were left out because there are too many or they are too long.
    pub(crate) fn encode(&self) -> (Vec<u8>, usize) {
        let mut out = format!("{{\"transfer\":{VERSION}}}\n").into_bytes();
        let mut left_out = 0;
        let servers = self.servers.iter().map(|(name, server)| encode_server(name, server));
        let traffic =
            self.traffic.iter().chain(&self.gone).map(|(subject, of)| encode_traffic(subject, of));
        let process = core::iter::once(json!({ "process": self.process }));
        let words = self.switches.iter().map(|(name, position)| (name, position.word()));
        let switches = json!({ "switches": words.collect::<BTreeMap<_, _>>() });
        for line in process.chain([switches]).chain(servers).chain(traffic) {
            let line = line.to_string();
            if line.len() >= LINE_BYTES_MAX || out.len() + line.len() >= TRANSFER_BYTES_MAX - 64 {
                left_out += 1;
                continue;
            }
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
        out.extend_from_slice(b"{\"end\":true}\n");
        (out, left_out)
    }

    /// Takes a line between the header and the end. Skips unknown members.
    fn take(&mut self, line: &Map<String, Value>) {
        if let Some(counts) = line.get("process") {
            self.process = decode_counts(counts);
        }
        if let Some(switches) = line.get("switches").and_then(Value::as_object) {
            self.switches = switches.iter().filter_map(decode_switch).collect();
        }
        if let Some(server) = line.get("server").and_then(decode_pair) {
            self.servers.insert(server, decode_server(line));
        }
        if let Some(subject) = line.get("of").and_then(decode_subject) {
            self.traffic.insert(subject, decode_traffic(line));
        }
    }
}

/// Why the reader ignores the rest of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferFault {
    /// The transfer has another version.
    Version(u64),
    /// A line is not JSON of the expected form.
    Malformed,
    /// A line or the whole transfer is too long.
    TooLong,
}

impl core::fmt::Display for TransferFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "the data has version {version} instead of {VERSION}")
            }
            Self::Malformed => write!(f, "the data is malformed"),
            Self::TooLong => write!(f, "the data is too long"),
        }
    }
}

/// Reads transfers from pieces of bytes.
#[derive(Debug, Default)]
pub(crate) struct TransferReader {
    /// The part of a line that has arrived.
    line: Vec<u8>,
    /// The transfer that is being read, and its bytes so far; `None` before a header.
    draft: Option<(StateTransfer, usize)>,
    /// Why nothing more is read, if so.
    fault: Option<TransferFault>,
}

impl TransferReader {
    /// Takes bytes. Returns the last transfer that they complete.
    ///
    /// # Errors
    /// The bytes are not a transfer of this version. Later calls return the same error.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Option<StateTransfer>, TransferFault> {
        let mut complete = None;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Some(fault) = self.fault {
                return Err(fault);
            }
            if self.line.len() + piece.len() > LINE_BYTES_MAX {
                return Err(self.fail(TransferFault::TooLong));
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = core::mem::take(&mut self.line);
                match self.read_line(&line) {
                    Ok(Some(transfer)) => complete = Some(transfer),
                    Ok(None) => {}
                    Err(fault) => return Err(self.fail(fault)),
                }
            }
        }
        self.fault.map_or(Ok(complete), Err)
    }

    fn fail(&mut self, fault: TransferFault) -> TransferFault {
        *self = Self { fault: Some(fault), ..Self::default() };
        fault
    }

    /// Reads a whole line. Returns the transfer that it completes.
    fn read_line(&mut self, line: &[u8]) -> Result<Option<StateTransfer>, TransferFault> {
        let Ok(Value::Object(members)) = serde_json::from_slice(line) else {
            return Err(TransferFault::Malformed);
        };
        let Some((draft, bytes)) = &mut self.draft else {
            return match members.get("transfer").and_then(Value::as_u64) {
                Some(VERSION) => {
                    self.draft = Some((StateTransfer::default(), line.len()));
                    Ok(None)
                }
                Some(other) => Err(TransferFault::Version(other)),
                None => Err(TransferFault::Malformed),
            };
        };
        *bytes += line.len();
        if *bytes > TRANSFER_BYTES_MAX {
            return Err(TransferFault::TooLong);
        }
        if members.contains_key("end") {
            return Ok(self.draft.take().map(|(transfer, _)| transfer));
        }
        draft.take(&members);
        Ok(None)
    }
}

fn encode_traffic(subject: &Subject, traffic: &PassedTraffic) -> Value {
    let of = match subject {
        Subject::Listener(name) => json!(["listener", name]),
        Subject::Route(name) => json!(["route", name]),
        Subject::Pool(name) => json!(["pool", name]),
        Subject::Server(pool, name) => json!(["server", pool, name]),
    };
    let (counts, sum_us) = traffic.latency.parts();
    json!({ "of": of, "counts": traffic.counts, "durations": counts, "sum_us": sum_us })
}

fn decode_traffic(line: &Map<String, Value>) -> PassedTraffic {
    let counts = line.get("counts").map(decode_counts).unwrap_or_default();
    let durations = line.get("durations").and_then(Value::as_array);
    let durations: Option<Vec<u64>> =
        durations.and_then(|all| all.iter().map(Value::as_u64).collect());
    let latency = durations.and_then(|all| Durations::of_parts(&all, number(line, "sum_us")));
    PassedTraffic { counts, latency: latency.unwrap_or_default() }
}

fn encode_server((pool, name): &(String, String), server: &PassedServer) -> Value {
    let mut line = json!({
        "server": [pool, name],
        "state": word_of(&ServerState::WORDS, server.state),
        "weight": server.weight,
        "configured": server.configured,
        "unchanged_ms": server.unchanged_ms,
        "down_ms": server.down_ms,
    });
    if let Some(address) = server.slot {
        line["slot"] = json!(address.to_string());
    }
    if !server.ejected.is_empty() {
        let row = |(worker, of): (&usize, &Ejection)| {
            json!([worker, of.left.as_millis() as u64, of.times])
        };
        line["ejected"] = server.ejected.iter().map(row).collect();
    }
    if let Some(checked) = &server.checked {
        let (score, rise, fall) = checked.numbers;
        line["health"] = json!([score, rise, fall]);
        line["checks"] = json!([checked.checks, checked.failures, checked.downs]);
    }
    if let Some(agent) = &server.agent {
        line["agent"] = json!({
            "state": word_of(&ServerState::WORDS, agent.state.state),
            "operation": word_of(&Operation::WORDS, agent.state.operation),
            "percent": agent.state.percent,
            "checks": [agent.checks, agent.failures],
        });
    }
    line
}

fn decode_server(line: &Map<String, Value>) -> PassedServer {
    let small =
        |name: &str| line.get(name).and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok());
    let health = line.get("health").and_then(decode_numbers::<3>);
    let health =
        health.map(|numbers| numbers.map(|number| u32::try_from(number).unwrap_or(u32::MAX)));
    let checks = line.get("checks").and_then(decode_numbers).unwrap_or_default();
    let checked = health.map(|[score, rise, fall]| {
        let [checks, failures, downs] = checks;
        PassedChecks { numbers: (score, rise, fall), checks, failures, downs }
    });
    let agent = line.get("agent").and_then(Value::as_object).map(|agent| {
        let [checks, failures] = agent.get("checks").and_then(decode_numbers).unwrap_or_default();
        let percent = agent.get("percent").and_then(Value::as_u64);
        let state = AgentState {
            state: word(agent, "state", &ServerState::WORDS),
            operation: word(agent, "operation", &Operation::WORDS),
            percent: percent.and_then(|percent| u16::try_from(percent).ok()).unwrap_or(100),
        };
        PassedAgent { state, checks, failures }
    });
    let slot = line.get("slot").and_then(Value::as_str).and_then(|text| text.parse().ok());
    PassedServer {
        slot,
        state: word(line, "state", &ServerState::WORDS),
        weight: small("weight"),
        configured: small("configured").unwrap_or_default(),
        checked,
        ejected: decode_ejections(line),
        agent,
        unchanged_ms: number(line, "unchanged_ms"),
        down_ms: number(line, "down_ms"),
    }
}

fn decode_ejections(line: &Map<String, Value>) -> BTreeMap<usize, Ejection> {
    let rows = line.get("ejected").and_then(Value::as_array).into_iter().flatten();
    let decode = |row: &Value| {
        let [worker, left_ms, times] = decode_numbers(row)?;
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        Some((usize::try_from(worker).ok()?, Ejection { left: Span::from_millis(left_ms), times }))
    };
    rows.filter_map(decode).collect()
}

fn decode_counts(value: &Value) -> BTreeMap<String, u64> {
    let members = value.as_object().into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}

fn decode_numbers<const N: usize>(value: &Value) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = value.as_array()?.iter().map(Value::as_u64).collect();
    numbers?.try_into().ok()
}

fn decode_switch((name, word): (&String, &Value)) -> Option<(String, Position)> {
    let word = word.as_str()?;
    let position = Position::WORDS.into_iter().find(|(known, _)| *known == word)?;
    Some((name.clone(), position.1))
}

fn decode_pair(value: &Value) -> Option<(String, String)> {
    match value.as_array()?.as_slice() {
        [Value::String(pool), Value::String(name)] => Some((pool.clone(), name.clone())),
        _ => None,
    }
}

fn decode_subject(value: &Value) -> Option<Subject> {
    let words: Option<Vec<&str>> = value.as_array()?.iter().map(Value::as_str).collect();
    match words?.as_slice() {
        ["listener", name] => Some(Subject::Listener((*name).to_owned())),
        ["route", name] => Some(Subject::Route((*name).to_owned())),
        ["pool", name] => Some(Subject::Pool((*name).to_owned())),
        ["server", pool, name] => Some(Subject::Server((*pool).to_owned(), (*name).to_owned())),
        _ => None,
    }
}

fn number(line: &Map<String, Value>, name: &str) -> u64 {
    line.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// The word for a value.
fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, known)| *known == value).map_or("", |(word, _)| word)
}

/// The value for the word in a member; the default if the word is not in `words`.
fn word<T: Copy + Default>(line: &Map<String, Value>, name: &str, words: &[(&str, T)]) -> T {
    let text = line.get(name).and_then(Value::as_str).unwrap_or_default();
    words.iter().find(|(known, _)| *known == text).map_or(T::default(), |(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::histogram::BOUNDS;

    fn sample() -> StateTransfer {
        let counts = BTreeMap::from([("begun".to_owned(), u64::MAX), ("status_2xx".to_owned(), 7)]);
        let latency = Durations::of_parts(&[3; BOUNDS + 1], 12_345).expect("as many as buckets");
        let traffic = PassedTraffic { counts, latency };
        let name = |text: &str| text.to_owned();
        let checked = PassedChecks { numbers: (1, 2, 3), checks: 4, failures: 5, downs: 6 };
        let state =
            AgentState { state: ServerState::Drain, operation: Operation::Stopped, percent: 75 };
        let server = PassedServer {
            state: ServerState::Maintenance,
            weight: Some(0),
            configured: 3,
            slot: Some(([10, 0, 0, 1], 80).into()),
            checked: Some(checked),
            ejected: BTreeMap::from([(3, Ejection { left: Span::from_millis(1500), times: 2 })]),
            agent: Some(PassedAgent { state, checks: 8, failures: 9 }),
            unchanged_ms: 10,
            down_ms: 11,
        };
        let bare = PassedServer { configured: 1, ..PassedServer::default() };
        StateTransfer {
            process: BTreeMap::from([(name("accepted"), 1)]),
            gone: BTreeMap::new(),
            traffic: BTreeMap::from([
                (Subject::Listener(name("web \"1\"\n")), traffic.clone()),
                (Subject::Route(name("/é/*")), PassedTraffic::default()),
                (Subject::Pool(name("p")), PassedTraffic::default()),
                (Subject::Server(name("p"), name("10.0.0.1:1")), traffic),
            ]),
            servers: BTreeMap::from([
                ((name("p"), name("10.0.0.1:1")), server),
                ((name("p"), name("b")), bare),
            ]),
            switches: BTreeMap::from([
                (name("shop \"2\""), Position::On),
                (name("wiki"), Position::Off),
            ]),
        }
    }

    #[test]
    fn transfer_survives_any_split() {
        let (bytes, left_out) = sample().encode();
        assert_eq!(left_out, 0);
        for cut in 0..bytes.len() {
            let mut reader = TransferReader::default();
            assert_eq!(reader.read(&bytes[..cut]), Ok(None), "{cut}");
            assert_eq!(reader.read(&bytes[cut..]), Ok(Some(sample())), "{cut}");
        }
        let mut reader = TransferReader::default();
        let last =
            bytes.iter().filter_map(|byte| reader.read(&[*byte]).expect("a transfer")).last();
        assert_eq!(last, Some(sample()));
        // Another transfer, followed by an empty transfer.
        let both = [bytes, StateTransfer::default().encode().0].concat();
        assert_eq!(reader.read(&both), Ok(Some(StateTransfer::default())));
    }

    #[test]
    fn subjects_that_left_the_configuration_are_passed_last() {
        let name = |text: &str| Subject::Route(text.to_owned());
        let of = |text: &str| [(name(text), PassedTraffic::default())].into();
        let transfer =
            StateTransfer { traffic: of("/b"), gone: of("/a"), ..StateTransfer::default() };
        let (bytes, _) = transfer.encode();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.find("\"/b\"") < text.find("\"/a\""), "{text}");
        let read = TransferReader::default().read(&bytes).expect("a transfer").expect("an end");
        let subjects: Vec<Subject> = read.traffic.into_keys().collect();
        assert_eq!((subjects, read.gone.len()), (vec![name("/a"), name("/b")], 0));
    }

    #[test]
    fn other_versions_and_garbage_end_the_reading() {
        let next = TransferFault::Version(VERSION + 1);
        for (bytes, fault) in [
            (&b"{\"transfer\":2}\n"[..], next),
            (b"{\"transfer\":\"1\"}\n", TransferFault::Malformed),
            (b"{\"end\":true}\n", TransferFault::Malformed),
            (b"1\n", TransferFault::Malformed),
            (b"\n", TransferFault::Malformed),
            (b"\xff\xfe\n", TransferFault::Malformed),
            (b"{\"transfer\":1}\n{\"process\":\n", TransferFault::Malformed),
            (&vec![b'['; 60_000], TransferFault::Malformed),
        ] {
            let mut reader = TransferReader::default();
            let line = [bytes, b"\n"].concat();
            assert_eq!(reader.read(&line), Err(fault), "{:?}", String::from_utf8_lossy(bytes));
            assert_eq!(reader.read(&sample().encode().0), Err(fault), "nothing is read after that");
        }
    }

    #[test]
    fn unknown_lines_and_members_are_skipped() {
        let text = b"{\"transfer\":1,\"by\":\"a later one\"}\n{\"table\":[1]}\n{\"process\":{\"a\":1,\"b\":-1,\"c\":\"x\"}}\n\
            {\"server\":[\"p\",\"s\"],\"state\":\"odd\",\"weight\":70000,\"slot\":\"10.0.0.1\",\
            \"health\":[1,2],\"agent\":3,\"ejected\":[[1,2],[0,-1,0],7]}\n\
            {\"server\":[\"p\"]}\n{\"of\":[\"moon\",\"x\"]}\n{\"of\":[\"route\",\"/\"],\"durations\":[1,2]}\n{\"end\":1}\n";
        let transfer =
            TransferReader::default().read(text).expect("lines of JSON").expect("an end");
        assert_eq!(transfer.process, BTreeMap::from([("a".to_owned(), 1)]));
        let servers: Vec<_> = transfer.servers.values().cloned().collect();
        assert_eq!(servers, [PassedServer::default()]);
        let traffic: Vec<_> = transfer.traffic.into_iter().collect();
        assert_eq!(traffic, [(Subject::Route("/".to_owned()), PassedTraffic::default())]);
    }

    #[test]
    fn lines_and_transfers_are_bounded() {
        let mut reader = TransferReader::default();
        assert_eq!(reader.read(&vec![b' '; LINE_BYTES_MAX]), Ok(None));
        assert_eq!(reader.read(b" "), Err(TransferFault::TooLong));
        let mut reader = TransferReader::default();
        let line = format!("{{\"x\":\"{}\"}}\n", "x".repeat(60_000));
        assert_eq!(reader.read(b"{\"transfer\":1}\n"), Ok(None));
        let lines = (0..).take_while(|_| reader.read(line.as_bytes()).is_ok()).count();
        assert_eq!(lines, TRANSFER_BYTES_MAX / line.len());
        // The encoded state is within the bounds.
        let mut transfer = sample();
        transfer
            .traffic
            .insert(Subject::Route("x".repeat(LINE_BYTES_MAX)), PassedTraffic::default());
        let name = |at: usize| format!("{at}{}", "x".repeat(60_000));
        transfer.servers.extend((0..600).map(|at| ((name(at), name(0)), PassedServer::default())));
        transfer
            .servers
            .extend((0..600).map(|at| ((name(at), String::new()), PassedServer::default())));
        let (bytes, left_out) = transfer.encode();
        assert!(bytes.len() <= TRANSFER_BYTES_MAX && left_out > 600, "{} {left_out}", bytes.len());
        let read = TransferReader::default().read(&bytes).expect("a transfer").expect("an end");
        assert_eq!(
            read.servers.len() + read.traffic.len() + left_out,
            transfer.servers.len() + transfer.traffic.len()
        );
    }
}
