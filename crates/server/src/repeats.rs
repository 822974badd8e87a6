//! Limits how often the log repeats a line, such as the traceback of a script that fails for every request.
//! In: lines, the time. Out: whether a line is written; at the end of its window, how many were not.
//! Never: omits a line whose text differs from those before it in a single byte.
//! Limits: `BURST` lines with the same text within `WINDOW`; `TEXTS_MAX` lines are remembered.
//! Invariant: each line that is left out is counted and reported once.

use std::time::{Duration, Instant};

/// Lines with the same text that are written within `WINDOW`.
pub(crate) const BURST: u64 = 20;
/// How long lines with the same text are counted together.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// Texts that are remembered. With more within `WINDOW`, further ones are not limited.
const TEXTS_MAX: usize = 64;

/// A line that was logged within the last `WINDOW`.
struct Known<L> {
    level: L,
    text: String,
    /// When it was logged first.
    began: Instant,
    /// How often it was logged since then.
    count: u64,
}

/// The lines that were logged recently. `L`: the level of a line.
pub(crate) struct Repeats<L>(Vec<Known<L>>);

impl<L> Default for Repeats<L> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<L: Copy + PartialEq> Repeats<L> {
    /// Whether a line is written.
    pub(crate) fn admits(&mut self, level: L, text: &str, now: Instant) -> bool {
        if let Some(known) = self.0.iter_mut().find(|of| of.level == level && of.text == text) {
            known.count += 1;
            return known.count <= BURST;
        }
        if self.0.len() == TEXTS_MAX {
            // The oldest text of which no line was left out.
            let Some(oldest) = self.0.iter().position(|known| known.count <= BURST) else {
                return true;
            };
            self.0.remove(oldest);
        }
        self.0.push(Known { level, text: text.to_owned(), began: now, count: 1 });
        true
    }

    /// The next text whose window has ended, with how many of its lines were left out.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(L, String, u64)> {
        while self.0.first().is_some_and(|known| now.duration_since(known.began) >= WINDOW) {
            let known = self.0.remove(0);
            if known.count > BURST {
                return Some((known.level, known.text, known.count - BURST));
            }
        }
        None
    }

    /// When lines that were left out are to be reported; `None`: none was.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.0.iter().find(|known| known.count > BURST).map(|known| known.began + WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_text_is_written_up_to_the_burst_and_counted_after_it() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let written = (0..100).filter(|_| repeats.admits('e', "failed", now)).count() as u64;
        assert_eq!(written, BURST);
        assert!(repeats.admits('e', "failed differently", now), "another text");
        assert!(repeats.admits('w', "failed", now), "another level");
        assert_eq!(repeats.due_at(), Some(now + WINDOW));
        assert_eq!(repeats.take_due(now + WINDOW / 2), None);
        let due = repeats.take_due(now + WINDOW);
        assert_eq!(due, Some(('e', "failed".to_owned(), 100 - BURST)));
        assert_eq!((repeats.take_due(now + WINDOW), repeats.due_at()), (None, None));
        assert!(repeats.admits('e', "failed", now + WINDOW), "its next window has begun");
    }

    #[test]
    fn more_texts_than_are_remembered_are_written() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        for _ in 0..=BURST {
            repeats.admits('e', "often", now);
        }
        for number in 0..10 * TEXTS_MAX {
            assert!(repeats.admits('e', &number.to_string(), now));
        }
        assert!(repeats.0.len() <= TEXTS_MAX);
        assert!(!repeats.admits('e', "often", now), "a text that was left out is not forgotten");
    }
}
