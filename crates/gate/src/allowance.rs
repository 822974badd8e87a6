//! How much of a body may be transferred now, if its rate is limited (`bandwidth` of a route).
//! In: the rate, the time, the bytes that were transferred. Out: how many bytes may follow, and when the next ones may.
//! Never: reads a clock; lets the total exceed the rate by more than `BURST_PIECES` pieces.
//! Limits: a sender that was slow may make up for one piece.
//! Invariant: rounding errors do not add up, because bytes are compared with the whole time since `since`.

use tidegate_base::{Moment, Span};

/// The allowance is granted in pieces, this many in a second: often enough for a steady flow, and seldom enough that the cost of
/// each piece does not matter.
const PIECES_PER_SECOND: u64 = 16;
/// The smallest piece, unless it would take more than a second.
const PIECE_BYTES_MIN: u64 = 1024;
/// Maximum number of pieces that may be sent at once: a piece that is due, and a piece whose time has passed because the timer or
/// the sender was late.
const BURST_PIECES: u64 = 2;
const NANOS: u128 = 1_000_000_000;

/// How many bytes of one body may be transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Bytes per second; at least 1.
    rate: u64,
    /// Bytes that may still be transferred before the rate applies.
    free: u64,
    /// When counting began; `None` before the first byte to which the rate applies.
    since: Option<Moment>,
    /// The bytes that were admitted at `since`.
    base: u64,
    /// The bytes that were transferred since `since`. At most the amount that the rate admits until now.
    spent: u64,
}

impl Allowance {
    /// The allowance of a body of which nothing was transferred. The first `free` bytes are not limited.
    #[must_use]
    pub const fn new(rate: u64, free: u64) -> Self {
        let rate = if rate == 0 { 1 } else { rate };
        let mut new = Self { rate, free, since: None, base: 0, spent: 0 };
        new.base = new.piece();
        new
    }

    /// The bytes that are given out at once.
    const fn piece(&self) -> u64 {
        let part = self.rate / PIECES_PER_SECOND;
        let least = if self.rate < PIECE_BYTES_MIN { self.rate } else { PIECE_BYTES_MIN };
        if part > least { part } else { least }
    }

    /// How many bytes may be transferred now.
    #[must_use]
    pub fn room(&mut self, now: Moment) -> u64 {
        let Some(since) = self.since else { return self.free.saturating_add(self.base) };
        let most = BURST_PIECES * self.piece();
        let earned = u128::from(self.rate) * now.since(since).as_nanos() / NANOS;
        let room = (earned + u128::from(self.base)).saturating_sub(u128::from(self.spent));
        if room < u128::from(most) {
            return room as u64;
        }
        // The part that a slow sender has not used expires.
        (self.since, self.base, self.spent) = (Some(now), most, 0);
        most
    }

    /// Notes that `bytes`, at most the result of `room`, were transferred.
    pub fn spend(&mut self, now: Moment, bytes: u64) {
        let limited = bytes.saturating_sub(self.free);
        self.free -= bytes - limited;
        if limited > 0 {
            self.since.get_or_insert(now);
            self.spent += limited;
        }
    }

    /// When the next piece may be transferred.
    #[must_use]
    pub fn next_at(&self) -> Moment {
        let Some(since) = self.since else { return Moment::ZERO };
        let missing = (self.spent + self.piece()).saturating_sub(self.base);
        let nanos = (u128::from(missing) * NANOS).div_ceil(u128::from(self.rate));
        since.after(Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transfers `total` bytes as fast as the allowance lets them, with timers that fire `late` after their time. Returns when
    /// the last byte was sent, and the most bytes sent at once.
    fn transfer(mut allowance: Allowance, total: u64, late: Span) -> (Moment, u64) {
        let (mut now, mut left, mut largest) = (Moment::from_nanos(77), total, 0);
        loop {
            let sent = allowance.room(now).min(left);
            allowance.spend(now, sent);
            (left, largest) = (left - sent, largest.max(sent));
            if left == 0 {
                return (now, largest);
            }
            assert_eq!(allowance.room(now), 0, "the rest must wait");
            let at = allowance.next_at();
            assert!(at > now, "{at:?} is not later than {now:?}");
            now = at.after(late);
        }
    }

    #[test]
    fn body_takes_the_time_that_the_rate_implies() {
        for (rate, total) in [
            (1, 3),
            (1024, 10_240),
            (100_000, 1_000_000),
            (1 << 20, 64 << 20),
            ((1 << 20) + 7, 64 << 20),
            (1 << 40, 1 << 43),
        ] {
            for late in [Span::ZERO, Span::from_millis(17)] {
                let (end, largest) = transfer(Allowance::new(rate, 0), total, late);
                let exact = total as f64 / rate as f64;
                let took = end.since(Moment::from_nanos(77)).as_secs_f64();
                let piece = Allowance::new(rate, 0).piece();
                let tick = piece as f64 / rate as f64;
                let earliest = exact - tick - 1e-6;
                assert!(took >= earliest && took <= exact + 0.018, "{took} s at {rate}: {exact} s");
                assert!(largest <= BURST_PIECES * piece, "{largest} at once of {piece}");
            }
        }
    }

    #[test]
    fn first_bytes_are_not_limited() {
        let mut allowance = Allowance::new(100_000, 1_000_000);
        let now = Moment::from_nanos(5);
        assert_eq!(allowance.room(now), 1_000_000 + 6250);
        allowance.spend(now, 400_000);
        assert_eq!(allowance.room(now), 600_000 + 6250);
        assert_eq!(allowance.next_at(), Moment::ZERO);
        let later = now.after(Span::from_secs(60));
        allowance.spend(later, 606_250);
        assert_eq!(allowance.room(later), 0);
        assert_eq!(allowance.next_at(), later.after(Span::from_micros(62_500)));
        let (end, _) = transfer(Allowance::new(100_000, 1_000_000), 2_000_000, Span::ZERO);
        let took = end.since(Moment::ZERO);
        assert!(took > Span::from_millis(9900) && took <= Span::from_secs(10), "{took:?}");
    }

    #[test]
    fn slow_sender_makes_up_for_one_piece_only() {
        let mut allowance = Allowance::new(160_000, 0);
        let mut now = Moment::from_nanos(9);
        allowance.spend(now, 10_000);
        now = now.after(Span::from_secs(3600));
        assert_eq!(allowance.room(now), 20_000);
        assert_eq!(allowance.room(now), 20_000, "asking for the room changes nothing");
        allowance.spend(now, 20_000);
        assert_eq!(allowance.next_at(), now.after(Span::from_micros(62_500)));
    }

    #[test]
    fn small_rates_have_pieces_of_a_useful_size() {
        for (rate, piece) in [(1, 1), (1000, 1000), (1024, 1024), (8192, 1024), (1 << 20, 1 << 16)]
        {
            assert_eq!(Allowance::new(rate, 0).piece(), piece, "{rate} bytes a second");
        }
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let mut allowance = Allowance::new(u64::MAX, u64::MAX);
        assert_eq!(allowance.room(Moment::NEVER), u64::MAX);
        allowance.spend(Moment::ZERO, 5);
        let mut allowance = Allowance::new(1 << 40, 0);
        allowance.spend(Moment::ZERO, allowance.piece());
        assert_eq!(allowance.room(Moment::NEVER), 2 * allowance.piece());
        assert_eq!(Allowance::new(0, 0).room(Moment::ZERO), 1);
    }
}
