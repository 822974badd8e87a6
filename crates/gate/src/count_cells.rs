//! The entries of a table that counts what the requests of each key do: numbers that all workers share.
//! In: hashes of keys, the time. Out: what was counted for a key.
//! Never: takes a lock, waits without a bound, or allocates after its creation.
//! Limits: a table has a fixed number of entries, in sets of `WAYS`. If all entries of a key's set are in use, the key with the
//! fewest requests recently loses its entry (its `heat`, which halves every eighth of the time to expire, and its requests in
//! progress); a key with a mark loses it last. A flood of keys with few requests therefore displaces quiet keys, but no key with
//! more recent requests. If two workers add keys to one set at the same moment, one of them waits for the other, for at most
//! `TRIES_MAX` tries; then its request is not counted (`uncounted`).
//! Invariant: an entry whose key is `BUSY` is being written by one worker; others pass over it. An entry belongs to one key per
//! generation; the reference of a request to an entry names the generation of the entry, so that it never changes another key's
//! number of requests in progress.
//!
//! Tolerance: exact for every interleaving of the workers, as long as no entry in use is displaced; a request that is counted at the
//! moment of a displacement may count for the other key. Windows: each is counted in `PARTS` parts, and the part that is leaving
//! the window counts in proportion, so a count differs from the exact one by less than the events in that part. A part holds up
//! to `PART_MAX` (2^40 - 1), after which it stays the same.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use tidegate_base::prng::mix64;
use tidegate_base::{Moment, Span};
use tidegate_config::model::{COUNTS_MAX, Count, CountTable, Counted, Placeholder};

/// The entries in which a key may be.
const WAYS: usize = 8;
/// The key of an entry that is not in use.
const FREE: u64 = 0;
/// The key of an entry that is being written.
const BUSY: u64 = 1;
/// How many times a worker tries to add a key to a set while another worker adds a key there.
const TRIES_MAX: usize = 1000;

/// The parts of a window.
const PARTS: u64 = 7;
/// The words of a count with a window: one for each part, and one for the part that leaves the window.
const WINDOW_WORDS: usize = PARTS as usize + 1;
/// The low bits of such a word are the count; the bits above are the number of its part.
const PART_BITS: u32 = 40;
const PART_MAX: u64 = (1 << PART_BITS) - 1;
/// The mask of the numbers of parts, which wrap around.
const NUMBER_MASK: u64 = u64::MAX >> PART_BITS;

/// The words of an entry before its text: key, use, owner.
const KEY: usize = 0;
const USE: usize = 1;
const OWNER: usize = 2;
const TEXT: usize = 3;
/// Words of the text of a key: of a key that is an address, and of any other key.
const ADDRESS_WORDS: usize = 3;
const TEXT_WORDS: usize = 8;
/// Maximum size in bytes of the text of a key.
pub const TEXT_BYTES_MAX: usize = TEXT_WORDS * 8;

/// The bits of `OWNER` that count requests in progress; those above are the generation of the entry.
const PROGRESS_BITS: u32 = 24;
const PROGRESS_MASK: u64 = (1 << PROGRESS_BITS) - 1;
/// A unit of the time of the last use, in nanoseconds.
const TICK: u64 = 100_000_000;
/// The heat of an entry halves after each of this many parts of the time to expire.
const HALVINGS: u64 = 8;

/// The counts of a key, in the order of the table's settings. Absent counts are 0.
pub type Counts = [u64; COUNTS_MAX];

/// One request in progress of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The index of the entry.
    entry: u32,
    /// The generation of the entry.
    generation: u64,
}

/// The facts about an exchange that are counted.
#[derive(Clone, Copy, Default, Debug)]
pub struct Outcome {
    /// The status of the response; 0 if there was none.
    pub status: u16,
    /// Bytes of the request body.
    pub bytes_received: u64,
    /// Bytes of the response.
    pub bytes_sent: u64,
}

/// An entry as commands show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The text of the key.
    pub text: String,
    /// How long ago the last request of the key began or ended.
    pub unused: Span,
    /// The counts.
    pub counts: Counts,
}

/// A count, prepared.
#[derive(Clone, Copy, Debug)]
struct Field {
    /// The kind of event that it counts.
    what: Counted,
    /// The length of a part of its window in nanoseconds; `None`: the count has no window.
    part: Option<u64>,
    /// The index of its first word in an entry.
    word: usize,
}

/// The entries of one table.
#[derive(Debug)]
pub struct CountCells {
    /// `stride` words for each entry, `WAYS` entries for each set.
    words: Box<[AtomicU64]>,
    /// For each set: whether a worker is adding a key.
    adding: Box<[AtomicBool]>,
    /// Words of an entry.
    stride: usize,
    /// Words of the text of a key.
    text_words: usize,
    /// The counts.
    fields: Vec<Field>,
    /// A secret that is mixed into each key, so that a client can choose neither keys that share a set nor a key that equals
    /// the key of another client.
    seed: u64,
    /// Entries with a key, including expired ones.
    entries: AtomicU64,
    /// Keys that have lost their entry before they expired.
    displaced: AtomicU64,
    /// Requests that were not counted because another worker was changing the set.
    uncounted: AtomicU64,
}

impl CountCells {
    /// No entries. `seed` is not known to clients.
    #[must_use]
    pub fn new(table: &CountTable, seed: u64) -> Self {
        let is_address = table.key.placeholders().all(|part| matches!(part, Placeholder::Client));
        let text_words = if is_address { ADDRESS_WORDS } else { TEXT_WORDS };
        let mut stride = TEXT + text_words;
        let field = |count: &Count| {
            let part = count.window.map(|window| window.as_nanos() as u64 / PARTS);
            let word = stride;
            stride += if part.is_some() { WINDOW_WORDS } else { 1 };
            Field { what: count.what, part, word }
        };
        let fields = table.counts.iter().map(field).collect();
        let sets = (table.entries_max as usize).div_ceil(WAYS).max(1);
        Self {
            words: (0..sets * WAYS * stride).map(|_| AtomicU64::new(0)).collect(),
            adding: (0..sets).map(|_| AtomicBool::new(false)).collect(),
            stride,
            text_words,
            fields,
            seed: mix64(seed),
            entries: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
            uncounted: AtomicU64::new(0),
        }
    }

    /// The secret that is mixed into each key.
    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.len() * 8 + self.adding.len()
    }

    /// The number of entries with a key.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// How many entries the table has.
    #[must_use]
    pub fn entries_max(&self) -> usize {
        self.adding.len() * WAYS
    }

    /// How many keys have lost their entry before they expired.
    #[must_use]
    pub fn displaced(&self) -> u64 {
        self.displaced.load(Ordering::Relaxed)
    }

    /// How many requests were not counted.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        self.uncounted.load(Ordering::Relaxed)
    }

    /// The requests in progress of all keys.
    #[must_use]
    pub fn in_progress(&self) -> u64 {
        let owners = (0..self.entries_max()).map(|entry| self.load(entry, OWNER));
        owners.map(|owner| owner & PROGRESS_MASK).sum()
    }

    /// Counts a request with the key `hash` that begins at `now`. `text` writes the text of the key, and is only called if
    /// the key is new. `None`: the request is not counted.
    pub fn begin(
        &self,
        hash: u64,
        now: Moment,
        expire: Span,
        text: impl FnOnce(&mut KeyText),
    ) -> Option<Held> {
        let key = self.key_of(hash);
        let entry = match self.find_current(key, now, expire) {
            Some(entry) => entry,
            None => self.add(key, now, expire, text)?,
        };
        let held = self.hold(entry, key)?;
        self.touch(entry, now, expire, 1);
        self.count(entry, now, |what| u64::from(what == Counted::Requests));
        Some(held)
    }

    /// Gives the key `hash` an entry, as a request would, but counts no request. Returns whether the key has an entry.
    pub fn admit(
        &self,
        hash: u64,
        now: Moment,
        expire: Span,
        text: impl FnOnce(&mut KeyText),
    ) -> bool {
        let key = self.key_of(hash);
        let entry = self.find_current(key, now, expire);
        let entry = entry.or_else(|| self.add(key, now, expire, text));
        entry.inspect(|entry| self.touch(*entry, now, expire, 1)).is_some()
    }

    /// Counts the results of a request that ends at `now`.
    pub fn end(&self, held: Held, now: Moment, expire: Span, outcome: &Outcome) {
        let entry = held.entry as usize;
        let own =
            |owner: u64| owner >> PROGRESS_BITS == held.generation && owner & PROGRESS_MASK > 0;
        let Some(word) = self.word(entry, OWNER) else { return };
        let less = |owner: u64| own(owner).then(|| owner - 1);
        // The time of the last use comes first: an entry without requests in progress may expire.
        if own(word.load(Ordering::Acquire)) {
            self.touch(entry, now, expire, 0);
            self.count(entry, now, |what| match what {
                Counted::Errors => u64::from((400..500).contains(&outcome.status)),
                Counted::Failures => u64::from(outcome.status >= 500),
                Counted::BytesReceived => outcome.bytes_received,
                Counted::BytesSent => outcome.bytes_sent,
                Counted::Requests | Counted::Connections | Counted::Mark => 0,
            });
        }
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }

    /// The counts of the key `hash`; zeros if the key is not known.
    #[must_use]
    pub fn read(&self, hash: u64, now: Moment, expire: Span) -> Counts {
        let key = self.key_of(hash);
        let Some(entry) = self.find_current(key, now, expire) else { return [0; COUNTS_MAX] };
        self.read_entry(entry, key, now).unwrap_or_default()
    }

    /// The counts of an entry; `None` if it does not belong to `key` any more.
    fn read_entry(&self, entry: usize, key: u64, now: Moment) -> Option<Counts> {
        let mut counts = [0; COUNTS_MAX];
        for (field, count) in self.fields.iter().zip(&mut counts) {
            *count = match (field.what, field.part) {
                (Counted::Connections, _) => self.load(entry, OWNER) & PROGRESS_MASK,
                (_, None) => self.load(entry, field.word),
                (_, Some(part)) => self.sum(entry, field.word, part, now),
            };
        }
        fence(Ordering::Acquire);
        (self.load(entry, KEY) == key).then_some(counts)
    }

    /// The count within a window.
    fn sum(&self, entry: usize, first: usize, part: u64, now: Moment) -> u64 {
        let (number, into) = (now.as_nanos() / part, now.as_nanos() % part);
        let mut total: u64 = 0;
        for word in first..first + WINDOW_WORDS {
            let value = self.load(entry, word);
            let count = value & PART_MAX;
            let age = number.wrapping_sub(value >> PART_BITS) & NUMBER_MASK;
            total += match age {
                _ if count == 0 => 0,
                // The clock of another worker is ahead.
                NUMBER_MASK => count,
                0..PARTS => count,
                PARTS => (u128::from(count) * u128::from(part - into)).div_ceil(part.into()) as u64,
                _ => 0,
            };
        }
        total
    }

    /// Adds to the counts of an entry.
    fn count(&self, entry: usize, now: Moment, amount: impl Fn(Counted) -> u64) {
        for field in &self.fields {
            let more = amount(field.what);
            if more == 0 {
                continue;
            }
            let Some(part) = field.part else {
                if let Some(word) = self.word(entry, field.word) {
                    word.fetch_add(more, Ordering::Relaxed);
                }
                continue;
            };
            let number = now.as_nanos() / part;
            let place = field.word + (number % WINDOW_WORDS as u64) as usize;
            if let Some(word) = self.word(entry, place) {
                add_to_part(word, number & NUMBER_MASK, more);
            }
        }
    }

    /// The key in the form that entries have.
    fn key_of(&self, hash: u64) -> u64 {
        mix64(hash ^ self.seed).max(BUSY + 1)
    }

    /// The set of a key.
    fn set_of(&self, key: u64) -> usize {
        ((u128::from(key) * self.adding.len() as u128) >> 64) as usize
    }

    fn word(&self, entry: usize, word: usize) -> Option<&AtomicU64> {
        self.words.get(entry * self.stride + word)
    }

    fn load(&self, entry: usize, word: usize) -> u64 {
        self.word(entry, word).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn store(&self, entry: usize, word: usize, value: u64) {
        if let Some(word) = self.word(entry, word) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The entry of a key.
    fn find(&self, key: u64) -> Option<usize> {
        let first = self.set_of(key) * WAYS;
        (first..first + WAYS)
            .find(|entry| self.word(*entry, KEY).is_some_and(|w| w.load(Ordering::Acquire) == key))
    }

    /// The entry of a key, unless it has expired.
    fn find_current(&self, key: u64, now: Moment, expire: Span) -> Option<usize> {
        self.find(key).filter(|entry| !self.has_expired(*entry, now, expire))
    }

    fn has_expired(&self, entry: usize, now: Moment, expire: Span) -> bool {
        let unused = ticks(now).saturating_sub(last_use(self.load(entry, USE)));
        unused > ticks_of(expire) && self.load(entry, OWNER) & PROGRESS_MASK == 0
    }

    /// Adds a request in progress to the key in `entry`; `None` if the key has lost the entry.
    fn hold(&self, entry: usize, key: u64) -> Option<Held> {
        let word = self.word(entry, OWNER)?;
        let mut owner = word.load(Ordering::Acquire);
        loop {
            if self.load(entry, KEY) != key || owner & PROGRESS_MASK == PROGRESS_MASK {
                self.uncounted.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            // A displacement changes the generation. If it comes first, the compare-exchange fails; if it comes later, the added
            // request is dropped with the earlier generation.
            match word.compare_exchange_weak(owner, owner + 1, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    return Some(Held { entry: entry as u32, generation: owner >> PROGRESS_BITS });
                }
                Err(newer) => owner = newer,
            }
        }
    }

    /// Notes that the key in `entry` is in use, with `requests` more requests.
    fn touch(&self, entry: usize, now: Moment, expire: Span, requests: u64) {
        let Some(word) = self.word(entry, USE) else { return };
        let before = word.load(Ordering::Relaxed);
        let heat = heat_at(before, ticks(now), expire);
        let next = pack(heat + requests, ticks(now).max(last_use(before)));
        // If another worker notes a use at the same moment, one of the two is not noted.
        let _ = word.compare_exchange(before, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Gives the key an entry.
    fn add(
        &self,
        key: u64,
        now: Moment,
        expire: Span,
        text: impl FnOnce(&mut KeyText),
    ) -> Option<usize> {
        let set = self.set_of(key);
        let adding = self.adding.get(set)?;
        for _ in 0..TRIES_MAX {
            if adding.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                let added = self.add_alone(set, key, now, expire, text);
                adding.store(false, Ordering::Release);
                return added;
            }
            core::hint::spin_loop();
            if let Some(entry) = self.find_current(key, now, expire) {
                return Some(entry);
            }
        }
        self.uncounted.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Gives the key an entry of its set, in which no other worker adds a key.
    fn add_alone(
        &self,
        set: usize,
        key: u64,
        now: Moment,
        expire: Span,
        text: impl FnOnce(&mut KeyText),
    ) -> Option<usize> {
        let own = self.find(key);
        if let Some(entry) = own.filter(|entry| !self.has_expired(*entry, now, expire)) {
            return Some(entry);
        }
        let rank = |entry: &usize| {
            let (last, owner) = (self.load(*entry, USE), self.load(*entry, OWNER));
            match self.load(*entry, KEY) {
                FREE => (0, 0, 0),
                _ if self.has_expired(*entry, now, expire) => (1, 0, last_use(last)),
                _ => {
                    let heat = heat_at(last, ticks(now), expire) + (owner & PROGRESS_MASK);
                    (2 + u64::from(self.is_marked(*entry)), heat, last_use(last))
                }
            }
        };
        let entry = own.or_else(|| (set * WAYS..set * WAYS + WAYS).min_by_key(rank))?;
        match rank(&entry).0 {
            0 => _ = self.entries.fetch_add(1, Ordering::Relaxed),
            1 => {}
            _ => _ = self.displaced.fetch_add(1, Ordering::Relaxed),
        }
        self.vacate(entry);
        let mut written = KeyText::default();
        text(&mut written);
        for (at, word) in written.words().take(self.text_words).enumerate() {
            self.store(entry, TEXT + at, word);
        }
        self.store(entry, USE, pack(0, ticks(now)));
        self.word(entry, KEY)?.store(key, Ordering::Release);
        Some(entry)
    }

    /// Takes an entry from its key. Afterwards, the words of the entry are zero, except for the generation.
    fn vacate(&self, entry: usize) {
        self.store(entry, KEY, BUSY);
        fence(Ordering::Release);
        let generation = (self.load(entry, OWNER) >> PROGRESS_BITS) + 1;
        self.store(entry, OWNER, generation << PROGRESS_BITS);
        for word in TEXT..self.stride {
            self.store(entry, word, 0);
        }
    }

    /// The entries that have not expired.
    pub fn shown(&self, now: Moment, expire: Span) -> impl Iterator<Item = Shown> {
        (0..self.entries_max()).filter_map(move |entry| self.show(entry, now, expire))
    }

    fn show(&self, entry: usize, now: Moment, expire: Span) -> Option<Shown> {
        let key = self.word(entry, KEY)?.load(Ordering::Acquire);
        if key <= BUSY || self.has_expired(entry, now, expire) {
            return None;
        }
        let text = self.text_of(entry);
        let last = last_use(self.load(entry, USE));
        let counts = self.read_entry(entry, key, now)?;
        let unused = Span::from_nanos(ticks(now).saturating_sub(last) * TICK);
        Some(Shown { text, unused, counts })
    }

    fn text_of(&self, entry: usize) -> String {
        let words = (0..self.text_words).map(|at| self.load(entry, TEXT + at));
        let bytes = words.flat_map(u64::to_le_bytes).take_while(|byte| *byte != 0);
        bytes.map(char::from).collect()
    }

    /// Sets all counts to zero, or those of the key with this text, except for requests in progress. Returns the number of
    /// keys. Waits for workers that add keys.
    pub fn clear(&self, text: Option<&str>) -> u64 {
        let mut cleared = 0;
        self.for_each_locked(|entry| {
            if text.is_some_and(|text| self.text_of(entry) != text) {
                return;
            }
            cleared += 1;
            if self.load(entry, OWNER) & PROGRESS_MASK == 0 {
                self.vacate(entry);
                if let Some(word) = self.word(entry, KEY) {
                    word.store(FREE, Ordering::Release);
                }
                self.entries.fetch_sub(1, Ordering::Relaxed);
            } else {
                for word in TEXT + self.text_words..self.stride {
                    self.store(entry, word, 0);
                }
            }
        });
        cleared
    }

    /// Sets the mark of the key with this text. Returns whether the table has the key.
    pub fn mark(&self, text: &str, mark: u64) -> bool {
        let mut is_known = false;
        let field = self.fields.iter().find(|field| field.what == Counted::Mark);
        let Some(field) = field else { return false };
        self.for_each_locked(|entry| {
            if self.text_of(entry) == text {
                self.store(entry, field.word, mark);
                is_known = true;
            }
        });
        is_known
    }

    /// Whether a command has set the mark of the key in `entry`, which then loses its entry last.
    fn is_marked(&self, entry: usize) -> bool {
        let mut marks = self.fields.iter().filter(|field| field.what == Counted::Mark);
        marks.any(|field| self.load(entry, field.word) != 0)
    }

    /// Calls `each` with every entry that has a key, while no worker adds keys to its set. Only for commands: the caller waits
    /// for workers. A worker waits for the caller for at most `TRIES_MAX` tries.
    fn for_each_locked(&self, mut each: impl FnMut(usize)) {
        for (set, adding) in self.adding.iter().enumerate() {
            while adding
                .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                core::hint::spin_loop();
            }
            (set * WAYS..set * WAYS + WAYS)
                .filter(|entry| self.load(*entry, KEY) > BUSY)
                .for_each(&mut each);
            adding.store(false, Ordering::Release);
        }
    }
}

/// Adds to the part `number` of a window.
fn add_to_part(word: &AtomicU64, number: u64, more: u64) {
    let next = |before: u64| {
        let ahead = (before >> PART_BITS).wrapping_sub(number) & NUMBER_MASK;
        match before & PART_MAX {
            count if ahead == 0 => {
                Some(number << PART_BITS | (count + more.min(PART_MAX)).min(PART_MAX))
            }
            // A worker whose clock is ahead has reused the word for a later part, so the part of this event has left the window.
            1.. if ahead <= 2 * WINDOW_WORDS as u64 => None,
            _ => Some(number << PART_BITS | more.min(PART_MAX)),
        }
    };
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
}

/// A moment in units of the time of the last use.
const fn ticks(now: Moment) -> u64 {
    now.as_nanos() / TICK
}

/// A span in units of the time of the last use.
const fn ticks_of(span: Span) -> u64 {
    span.as_nanos() as u64 / TICK
}

/// The word `USE`: the heat in its upper half, the time of the last use in the other.
const fn pack(heat: u64, tick: u64) -> u64 {
    let heat = if heat > u32::MAX as u64 { u32::MAX as u64 } else { heat };
    heat << 32 | (tick & u32::MAX as u64)
}

const fn heat_of(word: u64) -> u64 {
    word >> 32
}

const fn last_use(word: u64) -> u64 {
    word & u32::MAX as u64
}

/// The heat of an entry at the time `tick`: it halves at the end of each eighth of the time to expire.
fn heat_at(word: u64, tick: u64, expire: Span) -> u64 {
    let step = (ticks_of(expire) / HALVINGS).max(1);
    let steps = (tick / step).saturating_sub(last_use(word) / step);
    heat_of(word) >> steps.min(63)
}

/// The text of a key, as commands show it. Text that does not fit is replaced by "...".
#[derive(Clone, Debug)]
pub struct KeyText {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl Default for KeyText {
    fn default() -> Self {
        Self { bytes: [0; TEXT_BYTES_MAX], length: 0 }
    }
}

impl KeyText {
    /// Appends a byte.
    pub fn push(&mut self, byte: u8) {
        match self.bytes.get_mut(self.length) {
            Some(place) => {
                *place = byte;
                self.length += 1;
            }
            None => self.bytes[TEXT_BYTES_MAX - 3..].copy_from_slice(b"..."),
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> String {
        self.bytes.iter().take(self.length).map(|byte| char::from(*byte)).collect()
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        self.bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk))
    }
}

impl core::fmt::Write for KeyText {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}
