//! Flow-control windows of one direction of a stream or of the connection (RFC 9113 sections 5.2 and 6.9).
//! In: lengths of DATA frames, increments, bytes that the consumer has taken. Out: the amounts that may be sent or received,
//! increments to announce.
//! Never: announces a window for bytes that the consumer still holds.
//! Limits: `WINDOW_MAX`, `SEND_BYTES_MIN`, `SEND_BYTES_FLOOR`; a receive window grows up to the ceiling that the caller gives.
//! Invariant of `ReceiveWindow`: `open + held + credit == target`.
//!
//! Backpressure: bytes of a stream are credited to the *connection* on receipt and to the *stream* only when its consumer
//! releases them. So a stalled stream fills its own window and nothing else: the connection window never holds bytes of a
//! consumer. The bytes that all consumers together may hold are bounded by the streams and their windows; windows grow only out
//! of a pool that one connection's streams share.

use super::bounds::{SEND_BYTES_FLOOR, SEND_BYTES_MIN, WINDOW_INITIAL, WINDOW_MAX};

/// The number of bytes that may still be sent. The window of a stream is kept relative to the peer's initial window, so that a
/// change of that setting costs nothing per stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow {
    /// Increments minus bytes sent. With the initial window added it may be below 0 (RFC 9113 section
    /// 6.9.2), but never above `WINDOW_MAX`.
    delta: i64,
}

impl SendWindow {
    pub(super) const fn new() -> Self {
        Self { delta: 0 }
    }

    /// Bytes that may be sent, given the peer's initial window.
    pub(super) fn available(self, initial: u32) -> usize {
        usize::try_from(i64::from(initial) + self.delta).unwrap_or(0)
    }

    /// Adds an increment. False if the window overflows.
    pub(super) const fn credit(&mut self, increment: u32, initial: u32) -> bool {
        self.delta += increment as i64;
        self.fits(initial)
    }

    /// Whether the window is valid with this initial window.
    pub(super) const fn fits(self, initial: u32) -> bool {
        initial as i64 + self.delta <= WINDOW_MAX as i64
    }

    /// Subtracts sent bytes.
    pub(super) const fn take(&mut self, bytes: usize) {
        self.delta -= bytes as i64;
    }
}

/// How much the peer may still send, and how much its consumer holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveWindow {
    /// Bytes that the peer may send.
    open: u32,
    /// Bytes received and not released by the consumer.
    held: u32,
    /// Bytes released and not announced to the peer.
    credit: u32,
    /// The size of the window.
    target: u32,
    /// Bytes received since the window last grew; saturating.
    received: u32,
}

impl ReceiveWindow {
    pub(super) const fn new(target: u32) -> Self {
        Self { open: target, held: 0, credit: 0, target, received: 0 }
    }

    /// Counts received bytes. False if the peer exceeds the window.
    #[must_use]
    pub(super) const fn receive(&mut self, bytes: u32) -> bool {
        let Some(open) = self.open.checked_sub(bytes) else { return false };
        self.open = open;
        self.held += bytes;
        self.received = self.received.saturating_add(bytes);
        true
    }

    /// Counts bytes that the consumer has taken; at most those that it holds.
    pub(super) fn release(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.held);
        self.held -= bytes;
        self.credit += bytes;
    }

    /// Bytes that the consumer holds.
    pub(super) const fn held(&self) -> u32 {
        self.held
    }

    /// The increment to announce; 0 while it is below half of the window, which does not justify a frame. While less than half is
    /// missing, the peer can send the other half.
    pub(super) const fn take_increment(&mut self) -> u32 {
        if self.credit == 0 || self.credit < self.target / 2 {
            return 0;
        }
        let increment = self.credit;
        self.open += increment;
        self.credit = 0;
        increment
    }

    /// Shrinks the window of a consumer that does not keep up, by the bytes that it has taken since the last increment, to `target_min`
    /// at least. Returns by how much it shrank.
    pub(super) fn shrink(&mut self, target_min: u32) -> u32 {
        if self.held <= self.target / 2 {
            return 0;
        }
        let excess = self.credit.min(self.target.saturating_sub(target_min));
        self.credit -= excess;
        self.target -= excess;
        excess
    }

    /// Doubles the window, if a whole window was received since it last grew and the consumer keeps up with it: the window limits
    /// the peer. Grows up to `ceiling` and by `room` at most. Returns by how much it grew.
    pub(super) fn grow(&mut self, ceiling: u32, room: u32) -> u32 {
        if self.received < self.target || self.held > self.target / 4 {
            return 0;
        }
        let growth = self.target.min(room).min(ceiling.saturating_sub(self.target));
        self.target += growth;
        self.credit += growth;
        self.received = 0;
        growth
    }
}

/// The window that is worth a frame although more data waits. The windows of a peer with small initial windows may never be
/// larger.
pub(super) fn enough(initial_window: u32) -> usize {
    (initial_window as usize / 2).clamp(SEND_BYTES_FLOOR, SEND_BYTES_MIN)
}

/// The first increment of the connection's receive window, which begins with `WINDOW_INITIAL` whatever the
/// settings are (RFC 9113 section 6.9.2).
pub(super) const fn first_increment(connection_window: u32) -> u32 {
    connection_window.saturating_sub(WINDOW_INITIAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_window_follows_the_initial_window_and_may_be_negative() {
        let mut window = SendWindow::new();
        window.take(60_000);
        assert_eq!(window.available(WINDOW_INITIAL), 5_535);
        assert_eq!(window.available(10_000), 0, "the window is negative");
        assert!(window.credit(50_001, 10_000));
        assert_eq!(window.available(10_000), 1);
        assert_eq!(window.available(0), 0);
    }

    #[test]
    fn send_window_reaches_its_maximum_but_not_more() {
        let mut window = SendWindow::new();
        assert!(window.credit(WINDOW_MAX - WINDOW_INITIAL, WINDOW_INITIAL));
        assert_eq!(window.available(WINDOW_INITIAL), WINDOW_MAX as usize);
        assert!(!window.fits(WINDOW_INITIAL + 1));
        assert!(!window.credit(1, WINDOW_INITIAL));
    }

    #[test]
    fn receive_window_is_announced_only_after_release() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(100));
        assert!(!window.receive(1), "the window is used up");
        assert_eq!(window.take_increment(), 0);
        window.release(49);
        assert_eq!(window.take_increment(), 0, "less than half is not worth a frame");
        window.release(1);
        assert_eq!(window.take_increment(), 50);
        assert!(window.receive(50));
        window.release(1000);
        assert_eq!((window.held(), window.take_increment()), (0, 100));
    }

    #[test]
    fn receive_window_shrinks_while_its_consumer_holds_most_of_it() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(100));
        window.release(100);
        assert_eq!((window.grow(1000, 1000), window.take_increment()), (100, 200));
        assert!(window.receive(200));
        assert_eq!(window.shrink(100), 0, "the peer may not have sent less");
        window.release(60);
        assert_eq!(window.shrink(100), 60);
        window.release(60);
        assert_eq!(window.shrink(100), 40, "not below the floor");
        assert_eq!((window.held(), window.take_increment()), (80, 0));
        window.release(80);
        assert_eq!((window.shrink(100), window.take_increment()), (0, 100));
    }

    #[test]
    fn receive_window_grows_only_for_a_consumer_that_keeps_up() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(100));
        assert_eq!(window.grow(1000, 1000), 0, "the consumer holds everything");
        window.release(80);
        assert_eq!(window.grow(1000, 1000), 100);
        assert_eq!(window.take_increment(), 180);
        assert!(window.receive(180));
        window.release(200);
        assert_eq!(window.grow(1000, 1000), 0, "less than a window was received since");
        assert_eq!(window.take_increment(), 200);
        assert!(window.receive(200));
        window.release(200);
        assert_eq!(window.grow(250, 1000), 50, "the ceiling bounds the growth");
        assert_eq!(window.grow(1000, 7), 0, "the count of received bytes began again");
    }
}
