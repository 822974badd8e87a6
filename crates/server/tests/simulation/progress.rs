//! Decides whether a run is stuck: bytes must continue to move, and their number is limited.
//! In: after each step the virtual time, and the number of bytes that clients and origins have moved so far.
//! Out: the reason why the run will not end.
//! Never: limits the time or the turns of a run whose bytes move. A client that reads slowly keeps its response,
//! however long that takes, so a run may last for hours of virtual time.
//! Limits: `QUIET_MAX`, `QUIET_STEPS_MAX`, `BYTES_MAX`.
//! Invariant: a run ends or fails. Its bytes stop moving, or their number exceeds `BYTES_MAX`.

use tidegate_base::{Moment, Span};

/// The longest time without a byte: longer than all timeouts of a plan in sequence.
const QUIET_MAX: Span = Span::from_secs(120);
/// The same in a calm run, where pools have timeouts of about 1000 s.
const CALM_QUIET_MAX: Span = Span::from_secs(1200);
/// Maximum number of steps without a byte. In most of them, the clock advances to an event of another kind.
const QUIET_STEPS_MAX: u64 = 100_000;
/// More bytes than all scripts and responses of a plan have, with all their retries: 12 clients with 8 requests,
/// each of 200 kB and sent up to 4 times, with responses of 300 kB. Chunks of one byte multiply this by six.
const BYTES_MAX: u64 = 1 << 30;

/// What is known about the progress of a run.
pub struct Progress {
    quiet_max: Span,
    /// Bytes that had moved in the latest step.
    bytes: u64,
    /// When a byte last moved, or the run began.
    moved_at: Moment,
    /// Steps since then.
    quiet_steps: u64,
}

impl Progress {
    /// A run that begins now.
    pub fn new(now: Moment, is_calm: bool) -> Self {
        let quiet_max = if is_calm { CALM_QUIET_MAX } else { QUIET_MAX };
        Self { quiet_max, bytes: 0, moved_at: now, quiet_steps: 0 }
    }

    /// Records a step, after which `bytes` bytes have moved since the run began.
    ///
    /// # Errors
    /// The run will not end. The text is the reason.
    pub fn note_step(&mut self, now: Moment, bytes: u64) -> Result<(), String> {
        if bytes > BYTES_MAX {
            return Err(format!("more bytes have moved than the plan has: {bytes}"));
        }
        if bytes > self.bytes {
            *self = Self { quiet_max: self.quiet_max, bytes, moved_at: now, quiet_steps: 0 };
            return Ok(());
        }
        self.quiet_steps += 1;
        let quiet = now.since(self.moved_at);
        if quiet > self.quiet_max || self.quiet_steps > QUIET_STEPS_MAX {
            return Err(format!("no byte has moved for {quiet:?} and {} steps", self.quiet_steps));
        }
        Ok(())
    }
}

/// A run that begins at the time 0.
#[cfg(test)]
fn begun(is_calm: bool) -> Progress {
    Progress::new(Moment::ZERO, is_calm)
}

#[test]
fn slow_run_is_not_stuck() {
    let (mut progress, mut now) = (begun(false), Moment::ZERO);
    for byte in 1..5_000_000 {
        now = now.after(Span::from_millis(60));
        assert_eq!(progress.note_step(now, byte), Ok(()));
    }
    assert!(now.since(Moment::ZERO) > Span::from_secs(80 * 3600));
}

#[test]
fn bytes_at_one_moment_are_progress() {
    let mut progress = begun(false);
    for byte in 1..5_000_000 {
        assert_eq!(progress.note_step(Moment::ZERO, byte), Ok(()));
    }
}

#[test]
fn time_without_a_byte_is_reported_as_stuck() {
    for (is_calm, quiet_max) in [(false, QUIET_MAX), (true, CALM_QUIET_MAX)] {
        let mut progress = begun(is_calm);
        let start = Moment::ZERO.after(Span::from_secs(5));
        assert_eq!(progress.note_step(start, 1), Ok(()));
        assert_eq!(progress.note_step(start.after(quiet_max), 1), Ok(()));
        let late = start.after(quiet_max).after(Span::from_nanos(1));
        let stuck = progress.note_step(late, 1);
        assert!(stuck.is_err_and(|why| why.starts_with("no byte has moved")));
    }
}

#[test]
fn steps_without_a_byte_are_reported_as_stuck() {
    let mut progress = begun(true);
    assert_eq!(progress.note_step(Moment::ZERO, 1), Ok(()));
    for _ in 0..QUIET_STEPS_MAX {
        assert_eq!(progress.note_step(Moment::ZERO, 1), Ok(()));
    }
    assert!(progress.note_step(Moment::ZERO, 1).is_err());
}

#[test]
fn endless_bytes_are_reported_as_stuck() {
    let mut progress = begun(false);
    assert_eq!(progress.note_step(Moment::ZERO, BYTES_MAX), Ok(()));
    assert!(progress.note_step(Moment::ZERO, BYTES_MAX + 1).is_err());
}
