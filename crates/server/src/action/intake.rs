//! How much of a request body has arrived, and whether it arrives fast enough.
//! In: the bytes of the body, the listener's minimum rate. Out: the time by which more must arrive.
//! Never: reads a clock.

use tidegate_base::{Moment, Span};

/// The progress of a request body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intake {
    /// Bytes of the body received so far, without framing. Checked against the listener's `limits.body`.
    pub(crate) bytes: u64,
    /// The deadline at which the client counts as too slow. Each byte of the body postpones this moment according to
    /// `limits.body-rate-min`, up to `timeouts.body` from now. `NEVER` while the action does not wait for the client.
    pub(crate) deadline: Moment,
}

impl Intake {
    /// Nothing has arrived.
    pub(crate) const NONE: Self = Self { bytes: 0, deadline: Moment::NEVER };

    /// Postpones the deadline by the time in which `count` bytes must arrive. `count` includes the framing, `data_bytes` does
    /// not. Without a minimum rate, the whole timeout begins again.
    pub(crate) fn note(&mut self, count: usize, data_bytes: usize, rate_min: usize) {
        self.bytes += data_bytes as u64;
        self.deadline = match rate_min {
            0 => Moment::NEVER,
            rate => self.deadline.after(Span::from_secs(count as u64) / rate as u32),
        };
    }
}
