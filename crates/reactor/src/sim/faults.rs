//! The faults that the simulated kernel injects, each with its own probability.
//! In: nothing, or a seeded generator. Out: a `Faults`.
//! Invariant: the real kernel can show each of these faults. Bytes of a connection are never reordered, and only a
//! reset loses them. Datagrams may be lost, repeated and reordered.

use tidegate_base::Prng;

/// Probabilities, in parts per million of the affected operations, and upper bounds of random sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// A receive returns fewer bytes than have arrived. An edge for the rest follows.
    pub short_read_ppm: u32,
    /// A send takes fewer bytes than the window allows.
    pub short_write_ppm: u32,
    /// A receive or send reports that it would block although it would not. An edge follows.
    pub would_block_ppm: u32,
    /// A receive or send finds the connection reset. The other end is reset too.
    pub reset_ppm: u32,
    /// A reset discards bytes that arrived but were not read yet. (Linux keeps them; other systems do not.)
    pub reset_discards_ppm: u32,
    /// An accept fails for lack of a descriptor or memory.
    pub accept_shortage_ppm: u32,
    /// An accept finds that the connection failed in the backlog.
    pub accept_lost_ppm: u32,
    /// A registration fails for lack of memory.
    pub register_shortage_ppm: u32,
    /// A connect fails at once for lack of a descriptor, memory or a port.
    pub connect_shortage_ppm: u32,
    /// A connect is refused.
    pub connect_refused_ppm: u32,
    /// A connect finds the address unreachable.
    pub connect_unreachable_ppm: u32,
    /// A connect never completes.
    pub connect_silent_ppm: u32,
    /// A connect takes up to this much longer.
    pub connect_delay_ms_max: u32,
    /// A segment takes up to this long to arrive.
    pub latency_us_max: u32,
    /// A wait returns its edges in a random order.
    pub reorder_ppm: u32,
    /// A wait returns only some of its edges; the rest comes with the next wait.
    pub partial_wait_ppm: u32,
    /// The worker stalls after a wait: the clock jumps ahead.
    pub stall_ppm: u32,
    /// The longest stall.
    pub stall_ms_max: u32,
    /// A datagram does not arrive.
    pub datagram_lost_ppm: u32,
    /// A datagram arrives twice.
    pub datagram_repeated_ppm: u32,
}

impl Faults {
    /// No faults and no delays.
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
            datagram_lost_ppm: 0,
            datagram_repeated_ppm: 0,
        }
    }

    /// Random probabilities: each fault is off in half of the runs, otherwise anywhere from rare to common. (If all
    /// faults were always enabled, bugs that need a combination of only a few would stay hidden.)
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
            // No draws, because runs with a seed would change. Tests of datagrams set them.
            datagram_lost_ppm: 0,
            datagram_repeated_ppm: 0,
        }
    }

    /// As `swarm`, without the faults that end a connection or prevent it: all bytes must arrive.
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

/// 0 in half of the cases, otherwise up to `top`, with all orders of magnitude about equally likely.
fn weight(prng: &mut Prng, top: u64) -> u32 {
    if prng.chance(500_000) {
        return 0;
    }
    let bound = top >> prng.below(8);
    (1 + prng.below(bound.max(1))) as u32
}
