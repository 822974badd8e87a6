//! Counters: each worker has one block of them; a reader sums the blocks of all workers.
//! In: `add` and `sub` by the worker that owns the block. Out: `load` by any thread.
//! Invariant: only the owning worker writes to a block, so a plain load and store are enough (the data
//! path needs no lock prefix). A block is padded so that two blocks never share a cache line.

use core::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread changes and any thread may read.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`. Only the owning worker may call this.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Subtracts `amount` from a gauge. Only the owning worker may call this.
    #[inline]
    pub fn sub(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
    }

    /// The current value; any thread may call this.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares a block of counters: the struct, `all`, which lists every name and value, and `ABOUT`, which lists every name and
/// its doc comment.
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[doc = $doc:literal])* $field:ident,)* }) => {
        $(#[$meta])*
        #[repr(align(128))]
        #[derive(Default, Debug)]
        $vis struct $name { $($(#[doc = $doc])* pub $field: $crate::counters::Counter,)* }

        impl $name {
            /// The name and the description of every counter, in the order of declaration.
            pub const ABOUT: &[(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($doc),*).trim_ascii()),)*];

            /// The name and value of every counter, in the order of declaration.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field.load()),)*]
            }
        }
    };
}

#[cfg(test)]
mod tests {
    counters! {
        /// Two numbers.
        struct Pair {
            /// First.
            first,
            /// Second,
            /// in two lines.
            second,
        }
    }

    #[test]
    fn all_lists_names_and_values() {
        let pair = Pair::default();
        pair.first.add(3);
        pair.second.add(5);
        pair.second.sub(1);
        assert_eq!(pair.all(), vec![("first", 3), ("second", 4)]);
        assert_eq!(Pair::ABOUT, [("first", "First."), ("second", "Second, in two lines.")]);
        assert_eq!(align_of::<Pair>(), 128);
    }
}
