//! Clock values: what a clock said, never the clock itself.
//! In: nanoseconds handed down by the reactor. Out: comparisons and sums.
//! Invariant: a `Moment` only means something beside another `Moment` of the same worker.

pub use core::time::Duration as Span;

/// A point on a worker's monotonic (or simulated) clock, in nanoseconds since an arbitrary start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(u64);

impl Moment {
    /// The clock's zero: before every other moment.
    pub const ZERO: Self = Self(0);
    /// After every other moment: a deadline that never comes.
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

    /// Time from `earlier` until `self`; zero when `earlier` is the later one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` moved on by `span`, stopping at [`Moment::NEVER`].
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
    fn a_moment_never_wraps() {
        assert_eq!(Moment::from_nanos(5).after(Span::MAX), Moment::NEVER);
        assert_eq!(Moment::NEVER.after(Span::from_secs(1)), Moment::NEVER);
        assert_eq!(Moment::from_nanos(5).since(Moment::from_nanos(9)), Span::ZERO);
    }
}
