//! The memory of the process: whether it is so large that new requests are refused, for all workers together.
//! In: the limit of the configuration, measurements. Out: whether requests are refused; the use and the limit in bytes.
//! Never: takes a lock. A request reads one number.
//! Invariant: requests are refused only while there is a limit. After the limit was exceeded, they are refused until the use is
//! `1 / GAP_PART` lower.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use tidegate_config::model::{Config, MemoryMax};

/// After refusals, the use must fall below the limit by this part of it.
const GAP_PART: u64 = 20;
/// The limit as a number: percentages are these, sizes are larger.
const PERCENT_MAX: u64 = 100;

/// A measurement.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryUse {
    /// The resident memory of the process, in bytes.
    pub resident: u64,
    /// The use and the size of the memory of which a percentage is a share, in bytes.
    pub shared: (u64, u64),
}

/// The memory of the process. Clones share it.
#[derive(Clone, Default, Debug)]
pub struct Memory(Arc<Cells>);

#[derive(Default, Debug)]
struct Cells {
    /// The limit: 0, a percentage or a size.
    max: AtomicU64,
    /// The last measurement, compared with the limit: bytes in use, and bytes that may be in use.
    measured: [AtomicU64; 2],
    /// New requests are refused.
    is_exceeded: AtomicBool,
}

impl Memory {
    /// The memory of a process that begins with this configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let memory = Self::default();
        memory.set_max(config);
        memory
    }

    /// Uses the limit of this configuration.
    pub fn set_max(&self, config: &Config) {
        let max = config.server.overload.and_then(|overload| overload.memory_max);
        let number = match max {
            None => 0,
            Some(MemoryMax::Percent(percent)) => u64::from(percent).min(PERCENT_MAX),
            Some(MemoryMax::Bytes(bytes)) => bytes.max(PERCENT_MAX + 1),
        };
        let cells = &*self.0;
        if cells.max.swap(number, Ordering::SeqCst) != number {
            cells.measured.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
        }
        if number == 0 {
            cells.is_exceeded.store(false, Ordering::SeqCst);
        }
    }

    /// The limit; `None`: the memory need not be measured.
    #[must_use]
    pub fn max(&self) -> Option<MemoryMax> {
        match self.0.max.load(Ordering::Relaxed) {
            0 => None,
            percent @ 1..=PERCENT_MAX => {
                Some(MemoryMax::Percent(u8::try_from(percent).unwrap_or(u8::MAX)))
            }
            bytes => Some(MemoryMax::Bytes(bytes)),
        }
    }

    /// Takes a measurement. Returns whether requests are refused from now on, if that has changed.
    pub fn note(&self, usage: MemoryUse) -> Option<bool> {
        let (used, max) = match self.max()? {
            MemoryMax::Bytes(max) => (usage.resident, max),
            MemoryMax::Percent(percent) => {
                let (used, size) = usage.shared;
                (used, size / PERCENT_MAX * u64::from(percent))
            }
        };
        let cells = &*self.0;
        cells.measured[0].store(used, Ordering::Relaxed);
        cells.measured[1].store(max, Ordering::Relaxed);
        let was_exceeded = cells.is_exceeded.load(Ordering::Relaxed);
        let gap = if was_exceeded { max / GAP_PART } else { 0 };
        // A size of 0 is unknown.
        let is_exceeded = max > 0 && used > max - gap;
        cells.is_exceeded.store(is_exceeded, Ordering::SeqCst);
        if cells.max.load(Ordering::SeqCst) == 0 {
            // The limit was removed meanwhile.
            cells.is_exceeded.store(false, Ordering::SeqCst);
        }
        (was_exceeded != is_exceeded).then_some(is_exceeded)
    }

    /// Whether new requests are refused.
    #[must_use]
    #[inline]
    pub fn is_exceeded(&self) -> bool {
        self.0.is_exceeded.load(Ordering::Relaxed)
    }

    /// The bytes in use, as they count for the limit, and the limit in bytes; `None` before the first measurement.
    #[must_use]
    pub fn measured(&self) -> Option<(u64, u64)> {
        let [used, max] = [0, 1].map(|at| self.0.measured[at].load(Ordering::Relaxed));
        (max > 0).then_some((used, max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn config(max: &str) -> Config {
        let text = format!(
            "{max}\n[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nrespond = {{ status = 204 }}\n"
        );
        tidegate_config::parse(&text, "the test").expect("it is valid")
    }

    fn limited(max: &str) -> Config {
        config(&format!("[server.overload]\nmemory-max = {max:?}"))
    }

    fn resident(mib: u64) -> MemoryUse {
        MemoryUse { resident: mib * MIB, shared: (0, 1000 * MIB) }
    }

    #[test]
    fn requests_are_refused_until_the_use_is_lower_by_a_twentieth() {
        let memory = Memory::new(&limited("100MiB"));
        assert_eq!(memory.measured(), None);
        for (mib, change, is_exceeded) in [
            (100, None, false),
            (101, Some(true), true),
            (100, None, true),
            (96, None, true),
            (95, Some(false), false),
            (100, None, false),
            (300, Some(true), true),
            (10, Some(false), false),
        ] {
            assert_eq!(memory.note(resident(mib)), change, "{mib}");
            assert_eq!(memory.is_exceeded(), is_exceeded, "{mib}");
            assert_eq!(memory.measured(), Some((mib * MIB, 100 * MIB)));
        }
    }

    #[test]
    fn percentage_is_a_share_of_the_common_memory() {
        let memory = Memory::new(&limited("90%"));
        let note = |used: u64, size: u64| {
            memory.note(MemoryUse { resident: MIB, shared: (used * MIB, size * MIB) })
        };
        assert_eq!(note(450, 500), None);
        assert_eq!(note(451, 500), Some(true));
        assert_eq!(note(451, 1000), Some(false));
        assert_eq!(note(5, 0), None, "the size is unknown");
        assert_eq!(memory.measured(), None);
    }

    #[test]
    fn limit_changes_with_the_configuration() {
        let memory = Memory::new(&config(""));
        assert_eq!((memory.max(), memory.note(resident(900))), (None, None));
        memory.set_max(&limited("800MiB"));
        assert_eq!(memory.max(), Some(MemoryMax::Bytes(800 * MIB)));
        assert!(!memory.is_exceeded(), "not measured yet");
        assert_eq!(memory.note(resident(900)), Some(true));
        memory.set_max(&limited("800MiB"));
        assert!(memory.is_exceeded() && memory.measured().is_some(), "the same limit");
        memory.set_max(&limited("100%"));
        assert_eq!((memory.max(), memory.measured()), (Some(MemoryMax::Percent(100)), None));
        assert!(memory.is_exceeded(), "until the next measurement");
        memory.set_max(&config("[server]\noverload = {}"));
        assert!(!memory.is_exceeded() && memory.max().is_none());
    }
}
