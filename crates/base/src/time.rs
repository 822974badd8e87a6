//! Clock values: readings of a clock, never the clock itself.
//! In: nanoseconds read by the reactor. Out: comparisons and sums.
//! Invariant: a `Moment` can only be compared with another `Moment` of the same worker.

pub use core::time::Duration as Span;

/// A point in time on a worker's monotonic (or simulated) clock, in nanoseconds since an arbitrary start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(u64);

impl Moment {
    /// The clock's zero, before every other moment.
    pub const ZERO: Self = Self(0);
    /// After every other moment: as a deadline, it never expires.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, or zero if `earlier` is later than `self`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` plus `span`, saturating at [`Moment::NEVER`].
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        let nanos = span.as_nanos();
        if nanos > u64::MAX as u128 {
            return Self::NEVER;
        }
        Self(self.0.saturating_add(nanos as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_arithmetic_saturates() {
        assert_eq!(Moment::from_nanos(5).after(Span::MAX), Moment::NEVER);
        assert_eq!(Moment::NEVER.after(Span::from_secs(1)), Moment::NEVER);
        assert_eq!(Moment::from_nanos(5).since(Moment::from_nanos(9)), Span::ZERO);
    }
}
