//! Which faults the simulated kernel shows, each with its own probability.
//! In: nothing, or a seeded generator. Out: a `Faults`.
//! Invariant: each fault is one that the real kernel may show; bytes are never lost or reordered but by
//! a reset.

use tidegate_base::Prng;

/// Probabilities in parts per million of the operations they can strike, and sizes of what is random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// A receive brings fewer bytes than there are (an edge for the rest follows).
    pub short_read_ppm: u32,
    /// A send takes fewer bytes than there is room for.
    pub short_write_ppm: u32,
    /// A receive or send finds nothing to do though there is (an edge follows).
    pub would_block_ppm: u32,
    /// A receive or send finds the connection reset; the other end is reset too.
    pub reset_ppm: u32,
    /// A reset throws away what had arrived but was not read yet (Linux keeps it, others do not).
    pub reset_discards_ppm: u32,
    /// An accept finds no descriptor or memory.
    pub accept_shortage_ppm: u32,
    /// An accept finds that the connection died in the backlog.
    pub accept_lost_ppm: u32,
    /// A registration finds no memory.
    pub register_shortage_ppm: u32,
    /// A connect finds no descriptor, memory or port at once.
    pub connect_shortage_ppm: u32,
    /// A connect is refused.
    pub connect_refused_ppm: u32,
    /// A connect finds no way.
    pub connect_unreachable_ppm: u32,
    /// A connect never ends.
    pub connect_silent_ppm: u32,
    /// A connect takes up to this long more.
    pub connect_delay_ms_max: u32,
    /// A segment takes up to this long to arrive.
    pub latency_us_max: u32,
    /// A wait brings its edges in another order.
    pub reorder_ppm: u32,
    /// A wait brings only some of its edges; the rest comes with the next one.
    pub partial_wait_ppm: u32,
    /// The worker stands still after a wait: the clock jumps.
    pub stall_ppm: u32,
    /// How long a stall is at most.
    pub stall_ms_max: u32,
}

impl Faults {
    /// A kernel and a net without fault or delay.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            short_read_ppm: 0,
            short_write_ppm: 0,
            would_block_ppm: 0,
            reset_ppm: 0,
            reset_discards_ppm: 0,
            accept_shortage_ppm: 0,
            accept_lost_ppm: 0,
            register_shortage_ppm: 0,
            connect_shortage_ppm: 0,
            connect_refused_ppm: 0,
            connect_unreachable_ppm: 0,
            connect_silent_ppm: 0,
            connect_delay_ms_max: 0,
            latency_us_max: 0,
            reorder_ppm: 0,
            partial_wait_ppm: 0,
            stall_ppm: 0,
            stall_ms_max: 0,
        }
    }

    /// Random weights: each fault is off in half of the cases, and else anywhere from rare to common.
    /// (A mix of all faults at once hides what two of them do together.)
    #[must_use]
    pub fn swarm(prng: &mut Prng) -> Self {
        let harmless = [300_000; 7].map(|top| weight(prng, top));
        let harmful = [20_000; 9].map(|top| weight(prng, top));
        Self {
            short_read_ppm: harmless[0],
            short_write_ppm: harmless[1],
            would_block_ppm: harmless[2],
            reorder_ppm: harmless[3],
            partial_wait_ppm: harmless[4],
            latency_us_max: harmless[5] / 10,
            connect_delay_ms_max: harmless[6] / 1000,
            reset_ppm: harmful[0],
            reset_discards_ppm: harmful[1] * 50,
            accept_shortage_ppm: harmful[2] * 5,
            accept_lost_ppm: harmful[3],
            register_shortage_ppm: harmful[4],
            connect_shortage_ppm: harmful[5],
            connect_refused_ppm: harmful[6],
            connect_unreachable_ppm: harmful[7],
            connect_silent_ppm: harmful[8],
            stall_ppm: weight(prng, 10_000),
            stall_ms_max: weight(prng, 5_000),
        }
    }

    /// `swarm` without what ends a connection or keeps it from beginning: all bytes must arrive.
    #[must_use]
    pub fn swarm_harmless(prng: &mut Prng) -> Self {
        Self {
            reset_ppm: 0,
            reset_discards_ppm: 0,
            accept_lost_ppm: 0,
            register_shortage_ppm: 0,
            connect_shortage_ppm: 0,
            connect_refused_ppm: 0,
            connect_unreachable_ppm: 0,
            connect_silent_ppm: 0,
            ..Self::swarm(prng)
        }
    }
}

/// 0 in half of the cases, else up to `top` with small numbers as likely as large ones.
fn weight(prng: &mut Prng, top: u64) -> u32 {
    if prng.chance(500_000) {
        return 0;
    }
    let bound = top >> prng.below(8);
    (1 + prng.below(bound.max(1))) as u32
}
