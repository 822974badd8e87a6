//! One timer wheel a worker: O(1) to schedule, move and cancel, no system call a timer.
//! In: a dense key (a slot's index) and a moment. Out: the keys whose moment has come.
//! Never: fires early; fires at most one tick (8.4 ms) late relative to `advance`.
//! Limits: 4 levels of 64 buckets reach 39 hours; later moments wait in the last bucket and are re-sorted.
//! Invariant: a key is in at most one bucket; a bucket's bit is set exactly when its list is not empty.

use crate::time::Moment;

const TICK_BITS: u32 = 23;
const LEVEL_BITS: u32 = 6;
const BUCKETS: usize = 1 << LEVEL_BITS;
const LEVELS: usize = 4;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    previous: u32,
    tick: u64,
    bucket: u16,
}

const OUT: u16 = u16::MAX;
const EMPTY: Node = Node { next: NONE, previous: NONE, tick: 0, bucket: OUT };

/// A hierarchical timer wheel over dense keys.
pub struct Wheel {
    nodes: Vec<Node>,
    heads: [u32; LEVELS * BUCKETS],
    taken: [u64; LEVELS],
    tick: u64,
    scheduled: usize,
}

impl Wheel {
    /// An empty wheel whose time starts at `now`.
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

    /// The same, with room reserved (not touched) for keys below `keys`: a worker whose table grows by
    /// one connection at a time then never copies it.
    #[must_use]
    pub fn with_capacity(now: Moment, keys: usize) -> Self {
        Self { nodes: Vec::with_capacity(keys), ..Self::new(now) }
    }

    /// How many keys are scheduled.
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
        self.nodes.get(key as usize).is_some_and(|node| node.bucket != OUT)
    }

    /// Makes `key` due at `at`; moves it when it was scheduled already.
    pub fn schedule(&mut self, key: u32, at: Moment) {
        if self.nodes.len() <= key as usize {
            self.nodes.resize(key as usize + 1, EMPTY);
        }
        self.cancel(key);
        // Rounded up, so that a key never fires before its moment.
        let tick = (at.as_nanos() >> TICK_BITS).saturating_add(1).max(self.tick + 1);
        self.nodes[key as usize].tick = tick;
        self.link(key);
        self.scheduled += 1;
    }

    /// Takes `key` out; nothing happens when it is not in.
    pub fn cancel(&mut self, key: u32) {
        if self.contains(key) {
            self.unlink(key);
            self.scheduled -= 1;
        }
    }

    /// Moves time on to `now` and hands each key that came due to `fire`.
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

    /// A moment no later than the first key's: when to call `advance` next.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        (self.scheduled > 0).then(|| Moment::from_nanos(self.next_busy_tick() << TICK_BITS))
    }

    /// The first tick after this one at which a bucket is due or must be sorted into finer ones.
    fn next_busy_tick(&self) -> u64 {
        let mut best = u64::MAX;
        for level in 0..LEVELS {
            if self.taken[level] == 0 {
                continue;
            }
            let shift = LEVEL_BITS * level as u32;
            let here = self.tick >> shift;
            // The bucket under the hand is due a whole round from now at every level.
            let rotated = self.taken[level].rotate_right(((here + 1) as u32) % BUCKETS as u32);
            let steps = u64::from(rotated.trailing_zeros()) + 1;
            best = best.min((here + steps) << shift);
        }
        best
    }

    /// Sorts the coarser buckets that begin at this tick into finer ones.
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

    fn link(&mut self, key: u32) {
        let tick = self.nodes[key as usize].tick.max(self.tick);
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
        node.bucket = bucket as u16;
        self.heads[bucket] = key;
        self.taken[level] |= 1 << (bucket % BUCKETS);
    }

    fn unlink(&mut self, key: u32) {
        let node = self.nodes[key as usize];
        let bucket = usize::from(node.bucket);
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
        self.nodes[key as usize].bucket = OUT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::time::Span;
    use std::collections::BTreeMap;

    const TICK: u64 = 1 << TICK_BITS;

    /// Goal: the wheel agrees with a sorted map. Method: random schedules, cancels and jumps of
    /// the clock over all levels; each key fires once, never early, at most a tick late.
    #[test]
    fn the_wheel_agrees_with_a_sorted_map() {
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
                            let at = model.remove(&key).expect("fired once, while scheduled");
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
    fn next_due_never_lies_in_the_past_of_the_wheel() {
        let mut wheel = Wheel::new(Moment::ZERO);
        assert_eq!(wheel.next_due(), None);
        wheel.schedule(3, Moment::ZERO);
        assert!(wheel.next_due().unwrap() > Moment::ZERO, "a wait of zero would spin");
        let mut fired = 0;
        wheel.advance(wheel.next_due().unwrap(), |_| fired += 1);
        assert_eq!(fired, 1);
    }
}
