//! Keys of requests that stay with a server: `sticky = { by = ... }` of a pool.
//! In: the values of a request, the head of its response, the time. Out: the server that has responded to requests with the
//! same values, or has set a cookie with this value.
//! Never: takes a lock, waits, or allocates after its creation. Keeps a value of a request: keys are hashed with a secret.
//! Limits: a table has a fixed number of cells, in sets of `WAYS`. If all cells of a key's set are in use, a key that was
//! seen only once loses its cell before one that has come back, and among these the one that was used least recently. A
//! flood of keys that are seen once therefore displaces only such keys; one of keys that are seen twice also displaces idle ones.
//! Invariant: a cell whose key is `BUSY` is being written by one worker; other workers pass over it. A key is published
//! after its server, so that no request of one key is sent to the server of another key.
//!
//! A key is noted when its first request is sent, so that requests which arrive before the response go to the same server.
//! Until a server has responded, the note is preliminary: if the request is sent again, the server that responds gets the key.
//!
//! All workers share the cells. If the first two requests of a key arrive at two workers at the same moment, they may be
//! sent to different servers; the requests after them stay with one.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use core::net::IpAddr;
use tidegate_base::prng::{hash_bytes, mix64};
use tidegate_base::{Moment, Span};
use tidegate_config::model::{Config, Placeholder, Pool, Stay, Template, TemplatePiece};
use tidegate_wire::message::{FieldName, ResponseHead};

use crate::parameters::set_cookie;
use crate::rate_key::{hash_address, hash_cookie, hash_present};
use crate::sticky;
use crate::template::Values;

/// The cells in which a key may be: two cache lines.
const WAYS: usize = 8;
/// The key of a cell that was never used.
const FREE: u64 = 0;
/// The key of a cell that is being written.
const BUSY: u64 = 1;
/// The bit of a cell's state that is set if the key was used again after a response.
const BACK: u64 = 1 << 31;
/// The bit of a cell's state that is set if the server has responded to a request with the key, or has set the key.
const ANSWERED: u64 = 1 << 30;
/// The bits of a cell's state that contain the time of the last use, in seconds: 34 years of a process.
const SECONDS: u64 = ANSWERED - 1;

/// A cell of a table.
#[derive(Debug, Default)]
struct Cell {
    /// The hash of the key.
    key: AtomicU64,
    /// The mark of the server in the upper half, then `BACK`, `ANSWERED` and `SECONDS`.
    state: AtomicU64,
}

/// The keys of one pool, and their servers.
#[derive(Debug)]
pub struct StickyTable {
    /// `WAYS` cells for each set. The number of sets is a power of two.
    cells: Box<[Cell]>,
    /// The secret of each key.
    seed: u64,
}

/// Why the server of a key is noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    /// A request with the key is sent to the server.
    Sent,
    /// The server has responded to a request with the key, or has set a cookie that is the key.
    Answered,
}

/// The effect of a note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StickyChange {
    /// Nothing but the time of the last use, or the server of a key to which no server had responded.
    Kept,
    /// The key is new.
    New,
    /// The key is new, and another key that was still valid has lost its cell.
    Displaced,
    /// The key has another server now.
    Moved,
}

fn seconds(now: Moment) -> u64 {
    (now.as_nanos() / 1_000_000_000) & SECONDS
}

impl StickyTable {
    fn new(entries_max: u32, seed: u64) -> Self {
        let cells = (entries_max as usize).next_multiple_of(WAYS).next_power_of_two();
        Self { cells: (0..cells).map(|_| Cell::default()).collect(), seed: mix64(seed) }
    }

    /// The cells in which a key may be, and the key in the form that they have.
    fn set_of(&self, hash: u64) -> (&[Cell], u64) {
        let key = mix64(hash ^ self.seed).max(BUSY + 1);
        let sets = self.cells.len() / WAYS;
        let start = (key as usize & (sets - 1)) * WAYS;
        (self.cells.get(start..start + WAYS).unwrap_or_default(), key)
    }

    /// The state of a key, and its cell.
    fn cell_of(set: &[Cell], key: u64) -> Option<(&Cell, u64)> {
        let cell = set.iter().find(|cell| cell.key.load(Ordering::Acquire) == key)?;
        let state = cell.state.load(Ordering::Acquire);
        // The cell may have been given to another key in between.
        (cell.key.load(Ordering::Acquire) == key).then_some((cell, state))
    }

    /// The mark of the server of a key that was used within `span`, and whether a server has responded to its requests.
    fn find(&self, hash: u64, now: Moment, span: Span) -> Option<(u32, bool)> {
        let (set, key) = self.set_of(hash);
        let (_, state) = Self::cell_of(set, key)?;
        is_valid(state, now, span).then_some(((state >> 32) as u32, state & ANSWERED != 0))
    }

    /// Notes the server `mark` of the key.
    fn note(&self, hash: u64, mark: u32, now: Moment, span: Span, reason: Reason) -> StickyChange {
        let (set, key) = self.set_of(hash);
        let mut state = u64::from(mark) << 32 | seconds(now);
        if reason == Reason::Answered {
            state |= ANSWERED;
        }
        if let Some((cell, before)) = Self::cell_of(set, key) {
            let is_valid = is_valid(before, now, span);
            let is_same = before >> 32 == state >> 32;
            let was_answered = before & ANSWERED != 0;
            let next = match reason {
                _ if !is_valid => state,
                Reason::Sent if is_same => state | before & (BACK | ANSWERED),
                Reason::Answered if was_answered => state | BACK,
                Reason::Sent | Reason::Answered => state | before & BACK,
            };
            if next != before {
                // If another worker changes the same key, one of the two states is as good as the other.
                let _ =
                    cell.state.compare_exchange(before, next, Ordering::AcqRel, Ordering::Relaxed);
            }
            return match (is_valid, is_same || !was_answered) {
                (true, true) => StickyChange::Kept,
                (true, false) => StickyChange::Moved,
                (false, _) => StickyChange::New,
            };
        }
        let rank = |cell: &&Cell| {
            let state = cell.state.load(Ordering::Relaxed);
            let is_valid = is_valid(state, now, span);
            (is_valid, is_valid && state & BACK != 0, state & SECONDS)
        };
        let free = |cell: &&Cell| cell.key.load(Ordering::Relaxed) != BUSY;
        let Some(cell) = set.iter().filter(free).min_by_key(rank) else { return StickyChange::New };
        let before = cell.key.load(Ordering::Relaxed);
        let displaces = before > BUSY && is_valid(cell.state.load(Ordering::Relaxed), now, span);
        let taken = cell.key.compare_exchange(before, BUSY, Ordering::AcqRel, Ordering::Relaxed);
        if before == BUSY || taken.is_err() {
            // Another worker takes the cell; the next request of the key finds another one.
            return StickyChange::New;
        }
        cell.state.store(state, Ordering::Release);
        cell.key.store(key, Ordering::Release);
        if displaces { StickyChange::Displaced } else { StickyChange::New }
    }

    /// The number of cells with a key.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.cells.iter().filter(|cell| cell.key.load(Ordering::Relaxed) != FREE).count()
    }
}

/// Whether a key with this state was used within `span`. The clock of another worker may be ahead.
fn is_valid(state: u64, now: Moment, span: Span) -> bool {
    seconds(now).saturating_sub(state & SECONDS) <= span.as_secs()
}

/// The tables of all pools, shared by all workers.
#[derive(Clone, Debug, Default)]
pub struct StickyTables(Arc<[Option<Arc<StickyTable>>]>);

impl StickyTables {
    /// The tables for `config`. `seed` is not known to clients.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        let table = |pool: &Pool| {
            pool.stay.as_ref().map(|stay| Arc::new(StickyTable::new(stay.entries_max, seed)))
        };
        Self(config.pools.iter().map(table).collect())
    }

    /// The tables for `config`, which follows `earlier` with the tables `self`. A pool of the same name whose keys and
    /// size are the same keeps its table.
    #[must_use]
    pub fn after(&self, config: &Config, earlier: &Config, seed: u64) -> Self {
        let table = |pool: &Pool| {
            let stay = pool.stay.as_ref()?;
            let shape = |stay: &Stay| (stay.key.clone(), stay.entries_max);
            let is_same = |other: &Pool| {
                other.name == pool.name && other.stay.as_ref().map(shape) == Some(shape(stay))
            };
            let before = earlier.pools.iter().position(is_same);
            let known = before.and_then(|at| self.0.get(at)).and_then(Option::as_ref);
            Some(
                known
                    .map_or_else(|| Arc::new(StickyTable::new(stay.entries_max, seed)), Arc::clone),
            )
        };
        Self(config.pools.iter().map(table).collect())
    }

    /// The keys of the pool with this index, for a worker; `None` if its requests do not stay by a key.
    #[must_use]
    pub fn of_pool(&self, index: usize, pool: &Pool) -> Option<StickyKeys> {
        let (stay, table) = (pool.stay.as_ref()?, self.0.get(index)?.as_ref()?);
        let mark = |name: String| hash_bytes(name.as_bytes()) as u32;
        Some(StickyKeys {
            key: stay.key.clone(),
            span: stay.span,
            marks: sticky::names_of(pool).into_iter().map(mark).collect(),
            table: Arc::clone(table),
        })
    }
}

/// `sticky = { by = ... }` of a pool, prepared.
#[derive(Debug)]
pub struct StickyKeys {
    /// The values that are the key.
    key: Template,
    /// How long a key without requests keeps its server.
    span: Span,
    /// By server: its mark in the table, which depends on the names of the pool and the server only.
    marks: Vec<u32>,
    table: Arc<StickyTable>,
}

impl StickyKeys {
    /// The key of a request; `None` if the request does not have exactly one of each value. `scratch` is overwritten.
    #[must_use]
    pub fn key_of(&self, values: &Values<'_>, scratch: &mut Vec<u8>) -> Option<u64> {
        hash_present(&self.key, values, self.table.seed, scratch)
    }

    /// The key of a connection without requests; `None` if keys are not addresses.
    #[must_use]
    pub fn key_of_connection(&self, address: Option<IpAddr>) -> Option<u64> {
        hash_address(&self.key, address, self.table.seed)
    }

    /// The key that the head of a response sets: the value of a cookie, if this cookie alone is the key. Of several
    /// cookies with its name, browsers keep the last one.
    #[must_use]
    pub fn key_set_by(&self, head: &ResponseHead<'_>) -> Option<u64> {
        let [TemplatePiece::Value(Placeholder::Cookie(name))] = self.key.pieces.as_slice() else {
            return None;
        };
        let fields = head.fields().filter(|field| field.id == FieldName::SetCookie);
        let set = fields.map(|field| set_cookie(field.value));
        let (_, value) = set.filter(|(own, _)| *own == name.as_bytes()).last()?;
        // A server removes a cookie with an empty value, or with a time that has passed (PHP: the value "deleted").
        (!value.is_empty() && value != b"deleted").then(|| hash_cookie(value, self.table.seed))
    }

    /// The server of a key.
    #[must_use]
    pub fn server_of(&self, key: u64, now: Moment) -> Option<usize> {
        self.known(key, now).map(|(server, _)| server)
    }

    /// The server of a key, and whether it has responded to requests with the key.
    fn known(&self, key: u64, now: Moment) -> Option<(usize, bool)> {
        let (mark, is_answered) = self.table.find(key, now, self.span)?;
        let server = self.marks.iter().position(|known| *known == mark)?;
        Some((server, is_answered))
    }

    /// Notes that a request is sent to `server`. A key whose server is not lost keeps it, although this request is sent to
    /// another one.
    #[must_use]
    pub fn note_sent(
        &self,
        key: u64,
        server: usize,
        now: Moment,
        is_lost: impl FnOnce(usize) -> bool,
    ) -> StickyChange {
        let known = self.server_of(key, now);
        let stays_with = known.filter(|known| *known == server || !is_lost(*known));
        self.note(key, stays_with.unwrap_or(server), now, Reason::Sent)
    }

    /// Notes that `server` has responded to a request. A key whose server has responded before and is not lost keeps it.
    #[must_use]
    pub fn note_answered(
        &self,
        key: u64,
        server: usize,
        now: Moment,
        is_lost: impl FnOnce(usize) -> bool,
    ) -> StickyChange {
        let stays_with = match self.known(key, now) {
            Some((known, true)) if known != server && !is_lost(known) => known,
            _ => server,
        };
        self.note(key, stays_with, now, Reason::Answered)
    }

    /// Notes that `server` has set the key: it has the session, wherever requests with the key were sent before.
    #[must_use]
    pub fn note_set(&self, key: u64, server: usize, now: Moment) -> StickyChange {
        self.note(key, server, now, Reason::Answered)
    }

    fn note(&self, key: u64, server: usize, now: Moment, reason: Reason) -> StickyChange {
        let Some(mark) = self.marks.get(server) else { return StickyChange::Kept };
        self.table.note(key, *mark, now, self.span, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span::from_secs(60);

    fn at(secs: u64) -> Moment {
        Moment::ZERO.after(Span::from_secs(1000 + secs))
    }

    #[test]
    fn key_keeps_its_server_until_it_was_unused_for_the_span() {
        let table = StickyTable::new(100, 1);
        let find = |key, time| table.find(key, time, SPAN).map(|(mark, _)| mark);
        let note = |mark, time| table.note(7, mark, time, SPAN, Reason::Answered);
        assert_eq!(find(7, at(0)), None);
        assert_eq!(note(3, at(0)), StickyChange::New);
        assert_eq!(find(7, at(60)), Some(3));
        assert_eq!(note(3, at(60)), StickyChange::Kept);
        assert_eq!((find(7, at(120)), find(8, at(60))), (Some(3), None));
        assert_eq!(find(7, at(121)), None);
        assert_eq!(note(4, at(120)), StickyChange::Moved);
        assert_eq!(find(7, at(120)), Some(4));
        assert_eq!(note(5, at(500)), StickyChange::New);
        // The clock of another worker is behind this one.
        assert_eq!(find(7, at(0)), Some(5));
        assert_eq!(table.keys(), 1);
    }

    #[test]
    fn key_comes_back_with_the_request_after_a_response() {
        let table = StickyTable::new(100, 1);
        let level = || {
            let (set, key) = table.set_of(7);
            let (_, state) = StickyTable::cell_of(set, key).expect("the key is known");
            (state & ANSWERED != 0, state & BACK != 0)
        };
        for (reason, mark, expected) in [
            (Reason::Sent, 3, (false, false)),
            // The request is sent again.
            (Reason::Sent, 4, (false, false)),
            (Reason::Answered, 4, (true, false)),
            (Reason::Sent, 4, (true, false)),
            (Reason::Answered, 4, (true, true)),
            // The server is lost.
            (Reason::Sent, 5, (false, true)),
            (Reason::Answered, 5, (true, true)),
        ] {
            let _ = table.note(7, mark, at(0), SPAN, reason);
            assert_eq!(level(), expected, "{reason:?} {mark}");
        }
        let _ = table.note(7, 5, at(100), SPAN, Reason::Answered);
        assert_eq!(level(), (true, false), "the key is new again");
    }

    #[test]
    fn flood_of_keys_does_not_displace_keys_that_come_back() {
        let table = StickyTable::new(1024, 1);
        let loyal: Vec<u64> = (1..=256).map(mix64).collect();
        for second in 0..2 {
            for key in &loyal {
                let _ = table.note(*key, 9, at(second), SPAN, Reason::Answered);
            }
        }
        // A set of eight may have had more than eight of these keys.
        let known = |now| loyal.iter().filter(|key| table.find(**key, now, SPAN).is_some()).count();
        let before = known(at(1));
        assert!(before > 240, "{before}");
        let mut displaced = 0;
        for key in 1_000_000..1_100_000 {
            let key = mix64(key);
            displaced += usize::from(
                table.note(key, 1, at(10), SPAN, Reason::Sent) == StickyChange::Displaced,
            );
            let _ = table.note(key, 1, at(10), SPAN, Reason::Answered);
        }
        assert_eq!((known(at(20)), table.keys()), (before, 1024));
        assert!(displaced > 90_000, "{displaced}");
    }

    #[test]
    fn workers_agree_about_the_server_of_a_key() {
        let table = Arc::new(StickyTable::new(64, 1));
        std::thread::scope(|scope| {
            for worker in 0..4_u64 {
                let table = Arc::clone(&table);
                scope.spawn(move || {
                    for step in 0..20_000_u64 {
                        // The mark of each key is known, and no request ever gets that of another key.
                        let key = mix64(step * 7 % 512 + 1);
                        if let Some((mark, _)) = table.find(key, at(worker), SPAN) {
                            assert_eq!(mark, key as u32);
                        }
                        let _ = table.note(key, key as u32, at(worker), SPAN, Reason::Answered);
                    }
                });
            }
        });
        assert_eq!(table.keys(), 64);
    }

    #[test]
    fn reload_keeps_the_table_of_a_pool_with_the_same_keys() {
        let config = |sticky: &str, name: &str| {
            let text = format!(
                "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"{name}\"\n[pool.{name}]\n\
                 servers = [\"10.0.0.1:80\", \"10.0.0.2:80\"]\nsticky = {{ {sticky} }}\n"
            );
            tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
        };
        let by = "by = \"header:x-user\", entries-max = 100";
        let before = config(&format!("{by}, for = \"1m\""), "app");
        let tables = StickyTables::new(&before, 1);
        let stays = tables.of_pool(0, &before.pools[0]).expect("requests stay");
        assert_eq!(stays.note_sent(5, 1, at(0), |_| false), StickyChange::New);
        for (sticky, name, expected) in [
            (format!("{by}, for = \"2m\""), "app", Some(1)),
            (format!("{by}, for = \"2m\""), "other", None),
            ("by = \"header:x-user\"".to_owned(), "app", None),
            ("by = \"cookie:id\", entries-max = 100".to_owned(), "app", None),
        ] {
            let next = config(&sticky, name);
            let after = tables.after(&next, &before, 2);
            let stays = after.of_pool(0, &next.pools[0]).expect("requests stay");
            assert_eq!(stays.server_of(5, at(0)), expected, "{sticky} {name}");
        }
    }

    /// Keys of a pool of two servers.
    fn stays_by(by: &str) -> StickyKeys {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"app\"\n[pool.app]\n\
             servers = [\"10.0.0.1:80\", \"10.0.0.2:80\"]\nsticky = {{ by = {by} }}\n"
        );
        let config = tidegate_config::parse(&text, "the test").unwrap_or_else(|e| panic!("{e}"));
        StickyTables::new(&config, 1).of_pool(0, &config.pools[0]).expect("they stay")
    }

    #[test]
    fn key_moves_only_if_its_server_is_lost() {
        let stays = stays_by("\"client-address\"");
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let key = stays.key_of_connection(address("192.0.2.1")).expect("a key");
        assert_ne!(stays.key_of_connection(address("192.0.2.2")), Some(key));
        assert_eq!(stays.key_of_connection(None), None);
        assert_eq!(stays.note_sent(key, 0, at(0), |_| false), StickyChange::New);
        assert_eq!(stays.note_answered(key, 0, at(0), |_| false), StickyChange::Kept);
        for note in [StickyKeys::note_sent, StickyKeys::note_answered] {
            assert_eq!(note(&stays, key, 1, at(0), |_| false), StickyChange::Kept);
            assert_eq!(stays.server_of(key, at(0)), Some(0));
        }
        assert_eq!(stays.note_sent(key, 1, at(0), |lost| lost == 0), StickyChange::Moved);
        assert_eq!(stays.server_of(key, at(0)), Some(1));
    }

    #[test]
    fn server_that_responds_first_gets_the_key() {
        let stays = stays_by("\"client-address\"");
        assert_eq!(stays.note_sent(7, 0, at(0), |_| false), StickyChange::New);
        // The request is sent again, to the other server, and another request follows before the response.
        assert_eq!(stays.note_sent(7, 1, at(0), |_| false), StickyChange::Kept);
        assert_eq!(stays.server_of(7, at(0)), Some(0));
        assert_eq!(stays.note_answered(7, 1, at(0), |_| false), StickyChange::Kept);
        assert_eq!(stays.server_of(7, at(0)), Some(1));
        assert_eq!(stays.note_answered(7, 0, at(0), |_| false), StickyChange::Kept);
        assert_eq!(stays.server_of(7, at(0)), Some(1));
    }

    #[test]
    fn cookie_of_a_response_is_a_key() {
        use tidegate_wire::http1::{HeadDecoder, ResponseLimits};
        use tidegate_wire::message::{RequestKind, ResponseStorage};
        let key_set_by = |stays: &StickyKeys, fields: &str| {
            let bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
            let mut storage = ResponseStorage::new();
            let (limits, kind) = (ResponseLimits::default(), RequestKind::default());
            let decoded = HeadDecoder::default().decode_response(
                bytes.as_bytes(),
                &limits,
                kind,
                &mut storage,
            );
            let Ok(Some((head, _))) = decoded else { panic!("{fields}: {decoded:?}") };
            stays.key_set_by(&head)
        };
        let stays = stays_by("\"cookie:SID\"");
        let of = |value: &str| Some(hash_cookie(value.as_bytes(), stays.table.seed));
        for (fields, expected) in [
            ("Set-Cookie: SID=a1; Path=/; HttpOnly\r\n", of("a1")),
            ("set-cookie: SID = a1 ;Path=/\r\n", of("a1")),
            ("Set-Cookie: SID=a=1\r\n", of("a=1")),
            ("Set-Cookie: SID=a\r\nSet-Cookie: x=y\r\nSet-Cookie: SID=b\r\n", of("b")),
            ("", None),
            ("Set-Cookie: SID=; Max-Age=0\r\n", None),
            ("Set-Cookie: SID\r\n", None),
            ("Set-Cookie: sid=a1\r\n", None),
            ("Set-Cookie: x=y; SID=a1\r\n", None),
            ("X-Cookie: SID=a1\r\n", None),
        ] {
            assert_eq!(key_set_by(&stays, fields), expected, "{fields}");
        }
        for other in ["[\"cookie:SID\", \"client-address\"]", "\"header:set-cookie\""] {
            assert_eq!(key_set_by(&stays_by(other), "Set-Cookie: SID=a1\r\n"), None, "{other}");
        }
        // A server may take over a session.
        assert_eq!(stays.note_set(7, 0, at(0)), StickyChange::New);
        assert_eq!(stays.note_set(7, 1, at(0)), StickyChange::Moved);
        assert_eq!(stays.server_of(7, at(0)), Some(1));
    }
}
