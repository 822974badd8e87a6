//! Counters: one block a worker, one writer, any reader; the reader sums over workers.
//! In: `add` by the owning worker. Out: `load` by whoever shows them.
//! Invariant: only the owning worker writes a block, so a plain load and store suffice (no lock
//! prefix on the data path); a block is padded to cache lines of its own.

use core::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread counts up and others may read.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`; to be called by the owning worker alone.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Takes `amount` off a gauge; to be called by the owning worker alone.
    #[inline]
    pub fn sub(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
    }

    /// The number now, as any thread may see it.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares a block of counters: the struct, the names in order, and a read-out of all.
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[repr(align(128))]
        #[derive(Default, Debug)]
        $vis struct $name { $($(#[$doc])* pub $field: $crate::counters::Counter,)* }

        impl $name {
            /// Every counter's name and value, in the order of declaration.
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
            /// Second.
            second,
        }
    }

    #[test]
    fn a_block_reads_out_by_name() {
        let pair = Pair::default();
        pair.first.add(3);
        pair.second.add(5);
        pair.second.sub(1);
        assert_eq!(pair.all(), vec![("first", 3), ("second", 4)]);
        assert_eq!(align_of::<Pair>(), 128);
    }
}
