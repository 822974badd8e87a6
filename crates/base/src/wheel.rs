//! A hierarchical timer wheel, one for each worker: scheduling, moving and cancelling a timer take O(1) and
//! no system call.
//! In: a dense key (a slot's index) and a moment. Out: the keys whose moment has passed.
//! Never: fires a key early. A key fires at most one tick (8.4 ms) late relative to `advance`.
//! Limits: 4 levels of 64 buckets cover 39 hours. A key due later waits in the last bucket of the top level
//! and is placed again when the wheel reaches that bucket.
//! Invariant: a key is in at most one bucket. A bucket's bit is set exactly while its list is not empty.

use crate::time::Moment;

/// A tick is 2^23 ns (8.4 ms).
const TICK_BITS: u32 = 23;
const LEVEL_BITS: u32 = 6;
const BUCKETS: usize = 1 << LEVEL_BITS;
const LEVELS: usize = 4;
/// Ends a bucket's list.
const NONE: u32 = u32::MAX;

/// The state of one key.
#[derive(Clone, Copy)]
struct Node {
    /// The next key in the bucket's list, or `NONE`.
    next: u32,
    /// The previous key in the bucket's list, or `NONE` for the first one.
    previous: u32,
    /// In the upper 48 bits, the tick at which the key fires. In the lower 16 bits, the bucket that holds the key
    /// (`level * BUCKETS + index`), or `OUT` if the key is not scheduled. The tick of `Moment::NEVER` has 41 bits.
    place: u64,
}

const _: () = assert!(size_of::<Node>() <= 16);

/// The bucket number of a key that is not scheduled.
const OUT: u16 = u16::MAX;
/// Bits of the bucket in `Node::place`.
const BUCKET_BITS: u32 = u16::BITS;
const EMPTY: Node = Node { next: NONE, previous: NONE, place: OUT as u64 };

impl Node {
    const fn tick(self) -> u64 {
        self.place >> BUCKET_BITS
    }

    const fn bucket(self) -> u16 {
        self.place as u16
    }

    const fn set_tick(&mut self, tick: u64) {
        self.place = tick << BUCKET_BITS | self.bucket() as u64;
    }

    const fn set_bucket(&mut self, bucket: u16) {
        self.place = self.tick() << BUCKET_BITS | bucket as u64;
    }
}

/// A hierarchical timer wheel over dense keys.
pub struct Wheel {
    /// The state of each key, indexed by key.
    nodes: Vec<Node>,
    /// The first key of each bucket's list, or `NONE`.
    heads: [u32; LEVELS * BUCKETS],
    /// For each level, one bit per bucket: set exactly while the bucket's list is not empty.
    taken: [u64; LEVELS],
    /// The wheel's current time, in ticks. It never decreases.
    tick: u64,
    /// Number of scheduled keys.
    scheduled: usize,
}

impl Wheel {
    /// Creates an empty wheel whose time starts at `now`.
    #[must_use]
    pub fn new(now: Moment) -> Self {
        Self {
            nodes: Vec::new(),
            heads: [NONE; LEVELS * BUCKETS],
            taken: [0; LEVELS],
            tick: now.as_nanos() >> TICK_BITS,
            scheduled: 0,
        }
    }

    /// As `new`, with memory reserved (but not touched) for keys below `keys`. A worker whose table grows
    /// by one connection at a time then never copies the table.
    #[must_use]
    pub fn with_capacity(now: Moment, keys: usize) -> Self {
        Self { nodes: Vec::with_capacity(keys), ..Self::new(now) }
    }

    /// The number of scheduled keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.scheduled
    }

    /// Whether no key is scheduled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scheduled == 0
    }

    /// Whether `key` is scheduled.
    #[must_use]
    pub fn contains(&self, key: u32) -> bool {
        self.nodes.get(key as usize).is_some_and(|node| node.bucket() != OUT)
    }

    /// Schedules `key` for `at`; if it was already scheduled, moves it.
    pub fn schedule(&mut self, key: u32, at: Moment) {
        if self.nodes.len() <= key as usize {
            self.nodes.resize(key as usize + 1, EMPTY);
        }
        self.cancel(key);
        let tick = self.tick_of(at);
        self.nodes[key as usize].set_tick(tick);
        self.link(key);
        self.scheduled += 1;
    }

    /// Schedules `key` for `at`, unless it is already scheduled to fire at or before that tick.
    pub fn schedule_by(&mut self, key: u32, at: Moment) {
        let fires = self.nodes.get(key as usize).filter(|node| node.bucket() != OUT);
        if fires.is_none_or(|node| node.tick() > self.tick_of(at)) {
            self.schedule(key, at);
        }
    }

    /// The tick at which a key for `at` fires: rounded up, so that it never fires before its moment.
    fn tick_of(&self, at: Moment) -> u64 {
        (at.as_nanos() >> TICK_BITS).saturating_add(1).max(self.tick + 1)
    }

    /// Cancels `key`; does nothing if it is not scheduled.
    pub fn cancel(&mut self, key: u32) {
        if self.contains(key) {
            self.unlink(key);
            self.scheduled -= 1;
        }
    }

    /// Advances the wheel to `now` and calls `fire` for each key that became due.
    pub fn advance(&mut self, now: Moment, mut fire: impl FnMut(u32)) {
        let target = now.as_nanos() >> TICK_BITS;
        while self.tick < target {
            if self.scheduled == 0 {
                self.tick = target;
                return;
            }
            self.tick = self.next_busy_tick().min(target);
            self.cascade();
            let bucket = (self.tick as usize) & (BUCKETS - 1);
            while self.heads[bucket] != NONE {
                let key = self.heads[bucket];
                self.unlink(key);
                self.scheduled -= 1;
                fire(key);
            }
        }
    }

    /// When to call `advance` next: a moment no later than the firing of the first key; `None` if the wheel
    /// is empty.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        (self.scheduled > 0).then(|| Moment::from_nanos(self.next_busy_tick() << TICK_BITS))
    }

    /// The first tick after the current one at which a bucket is due or must be redistributed to finer buckets.
    fn next_busy_tick(&self) -> u64 {
        let mut best = u64::MAX;
        for level in 0..LEVELS {
            if self.taken[level] == 0 {
                continue;
            }
            let shift = LEVEL_BITS * level as u32;
            let here = self.tick >> shift;
            // At every level, the current bucket is last: it is due a whole round from now.
            let rotated = self.taken[level].rotate_right(((here + 1) as u32) % BUCKETS as u32);
            let steps = u64::from(rotated.trailing_zeros()) + 1;
            best = best.min((here + steps) << shift);
        }
        best
    }

    /// Redistributes the coarser buckets that begin at the current tick to finer buckets.
    fn cascade(&mut self) {
        for level in (1..LEVELS).rev() {
            let shift = LEVEL_BITS * level as u32;
            if self.tick & ((1 << shift) - 1) != 0 {
                continue;
            }
            let bucket = level * BUCKETS + ((self.tick >> shift) as usize & (BUCKETS - 1));
            let mut key = core::mem::replace(&mut self.heads[bucket], NONE);
            self.taken[level] &= !(1 << (bucket % BUCKETS));
            while key != NONE {
                let next = self.nodes[key as usize].next;
                self.link(key);
                key = next;
            }
        }
    }

    /// Puts `key` into the bucket of its tick.
    fn link(&mut self, key: u32) {
        let tick = self.nodes[key as usize].tick().max(self.tick);
        let distance = tick - self.tick;
        let mut level = 0;
        while level + 1 < LEVELS && distance >= 1 << (LEVEL_BITS * (level as u32 + 1)) {
            level += 1;
        }
        let shift = LEVEL_BITS * level as u32;
        let reach = (BUCKETS as u64 - 1) << shift;
        let place = (self.tick + distance.min(reach)) >> shift;
        let bucket = level * BUCKETS + (place as usize & (BUCKETS - 1));
        let head = self.heads[bucket];
        if head != NONE {
            self.nodes[head as usize].previous = key;
        }
        let node = &mut self.nodes[key as usize];
        node.next = head;
        node.previous = NONE;
        node.set_bucket(bucket as u16);
        self.heads[bucket] = key;
        self.taken[level] |= 1 << (bucket % BUCKETS);
    }

    /// Takes `key` out of its bucket.
    fn unlink(&mut self, key: u32) {
        let node = self.nodes[key as usize];
        let bucket = usize::from(node.bucket());
        if node.previous == NONE {
            self.heads[bucket] = node.next;
        } else {
            self.nodes[node.previous as usize].next = node.next;
        }
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        if self.heads[bucket] == NONE {
            self.taken[bucket / BUCKETS] &= !(1 << (bucket % BUCKETS));
        }
        self.nodes[key as usize].set_bucket(OUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::time::Span;
    use std::collections::BTreeMap;

    const TICK: u64 = 1 << TICK_BITS;

    /// Goal: the wheel behaves like a sorted map. Method: random schedules, cancels and clock jumps
    /// across all levels; each key must fire once, never early and at most one tick late.
    #[test]
    fn wheel_behaves_like_a_sorted_map() {
        for seed in 0..200 {
            let mut prng = Prng::new(seed);
            let mut now = Moment::from_nanos(prng.below(1 << 40));
            let mut wheel = Wheel::new(now);
            let mut model: BTreeMap<u32, Moment> = BTreeMap::new();
            for _ in 0..300 {
                let key = prng.below(40) as u32;
                let scale = prng.below(48);
                match prng.below(4) {
                    0 | 1 => {
                        let at = now.after(Span::from_nanos(prng.below(1 << scale)));
                        wheel.schedule(key, at);
                        model.insert(key, at);
                    }
                    2 => {
                        wheel.cancel(key);
                        model.remove(&key);
                    }
                    _ => {
                        now = now.after(Span::from_nanos(prng.below(1 << scale)));
                        let mut fired = Vec::new();
                        wheel.advance(now, |key| fired.push(key));
                        for key in fired {
                            let at =
                                model.remove(&key).expect("a key fires only while it is scheduled");
                            assert!(at <= now, "seed {seed}: {key} fired early");
                        }
                        for (key, at) in &model {
                            assert!(
                                at.as_nanos() + 2 * TICK > now.as_nanos(),
                                "seed {seed}: {key} is late"
                            );
                        }
                    }
                }
                assert_eq!(wheel.len(), model.len(), "seed {seed}");
                if let (Some(due), Some(first)) = (wheel.next_due(), model.values().min()) {
                    assert!(due.as_nanos() <= first.as_nanos() + TICK, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn schedule_by_keeps_an_earlier_tick_and_replaces_a_later_one() {
        let at = |tick: u64| Moment::from_nanos(tick * TICK);
        let mut wheel = Wheel::new(Moment::ZERO);
        for (tick, fires) in [(100, 101), (200, 101), (100, 101), (50, 51), (70, 51)] {
            wheel.schedule_by(1, at(tick));
            assert_eq!((wheel.nodes[1].tick(), wheel.len()), (fires, 1), "scheduled by {tick}");
        }
        let mut fired = 0;
        wheel.advance(at(60), |_| fired += 1);
        wheel.schedule_by(1, Moment::NEVER);
        assert_eq!((fired, wheel.len()), (1, 1));
    }

    #[test]
    fn next_due_is_after_the_current_tick() {
        let mut wheel = Wheel::new(Moment::ZERO);
        assert_eq!(wheel.next_due(), None);
        wheel.schedule(3, Moment::ZERO);
        assert!(wheel.next_due().unwrap() > Moment::ZERO, "a wait of zero would spin");
        let mut fired = 0;
        wheel.advance(wheel.next_due().unwrap(), |_| fired += 1);
        assert_eq!(fired, 1);
    }
}
