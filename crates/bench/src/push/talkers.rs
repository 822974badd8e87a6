//! The subscribers of one thread that send messages themselves, at intervals, while publications are sent.
//! In: the time, the Pongs of the server. Out: the bytes to send next; how long the server took to read it.
//! Never: sends on a connection whose last message was not read yet.
//! Limits: `SENT_PER_TURN_MAX` messages before the thread handles the events of its connections.
//! Invariant: each message is followed by a Ping, which the server answers when it has read both.

use crate::histogram::Times;
use core::time::Duration;
use tidegate_wire::websocket::{Kind, MaskKey, encode_message, encode_ping};

/// Maximum number of messages that a thread sends before it handles the events of its connections.
pub(super) const SENT_PER_TURN_MAX: usize = 64;
/// Bytes of the payload of a Ping: the talker and the number of its message.
const PING_BYTES: usize = 8;

/// A subscriber that sends messages itself.
#[derive(Clone, Copy, Default)]
struct Talker {
    /// The index of the subscriber.
    member: u32,
    /// The number of its last message; 0: it has sent no message.
    number: u32,
    /// When that message was sent, in nanoseconds from the start; `None` once the server has read it.
    sent_at: Option<u64>,
}

/// The results of the talkers of one thread, or of all threads.
#[derive(Clone, Debug)]
pub struct Talks {
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that were due and not sent, because the previous message had not been read.
    pub skipped: u64,
    /// Messages that were not read before the end of the run.
    pub unread: u64,
    /// The times from sending a message to the Pong that follows it.
    pub times: Times,
}

impl Talks {
    pub(super) fn new() -> Self {
        Self { sent: 0, skipped: 0, unread: 0, times: Times::fine() }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.skipped += other.skipped;
        self.unread += other.unread;
        self.times.add(&other.times);
    }
}

/// Whether connection `number` talks. The talkers, a `share` of all connections, are spread evenly over them.
pub(super) fn is_talker(number: u32, share: f64) -> bool {
    let until = |number: u32| (f64::from(number) * share).floor();
    until(number + 1) > until(number)
}

/// The talkers of one thread; see the module header.
pub(super) struct Talkers {
    all: Vec<Talker>,
    /// The time between two messages of a talker.
    every: Duration,
    /// How many turns have been taken.
    turns: u64,
    /// The data of a message.
    data: Vec<u8>,
}

impl Talkers {
    /// The talkers among the `count` connections from `first` on.
    pub(super) fn new((first, count): (u32, u32), plan: Option<&super::TalkPlan>) -> Self {
        let Some(plan) = plan else {
            return Self { all: Vec::new(), every: Duration::MAX, turns: 0, data: Vec::new() };
        };
        let members = (0..count).filter(|index| is_talker(first + index, plan.share));
        let talker = |member| Talker { member, ..Talker::default() };
        let all = members.map(talker).collect();
        Self { all, every: plan.every, turns: 0, data: vec![b'x'; plan.bytes] }
    }

    /// When the next talker is due, measured from the start of the publications; `None` without talkers.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let count = self.all.len() as u64;
        let (rounds, rest) = (self.turns.checked_div(count)?, self.turns.checked_rem(count)?);
        let whole = self.every.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        Some(whole + self.every.mul_f64(rest as f64 / count as f64))
    }

    /// Returns the talker whose turn it is and its subscriber, and gives the next turn to the next talker.
    pub(super) fn take_turn(&mut self) -> Option<(usize, u32)> {
        let at = self.turns.checked_rem(self.all.len() as u64)? as usize;
        self.turns += 1;
        Some((at, self.all.get(at)?.member))
    }

    /// Appends the next message of a talker and its Ping to `out`; false if its last message was not read.
    pub(super) fn encode(&mut self, at: usize, mask: MaskKey, out: &mut Vec<u8>) -> bool {
        let Some(talker) = self.all.get_mut(at).filter(|talker| talker.sent_at.is_none()) else {
            return false;
        };
        talker.number = talker.number.wrapping_add(1);
        let mut payload = [0; PING_BYTES];
        payload[..4].copy_from_slice(&(at as u32).to_be_bytes());
        payload[4..].copy_from_slice(&talker.number.to_be_bytes());
        encode_message(out, Kind::Text, &self.data, Some(mask));
        encode_ping(out, &payload, Some(mask)).is_ok()
    }

    /// Notes that the message which was encoded for a talker was sent.
    pub(super) fn note_sent(&mut self, at: usize, now: u64) {
        if let Some(talker) = self.all.get_mut(at) {
            talker.sent_at = Some(now);
        }
    }

    /// Notes a Pong that a subscriber received. Returns when the last message of the subscriber was sent, if this is the first
    /// Pong for that message.
    pub(super) fn take_pong(&mut self, member: u32, payload: &[u8]) -> Option<u64> {
        let (at, number) = payload.split_first_chunk()?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        let talker = self.all.get_mut(u32::from_be_bytes(*at) as usize)?;
        let is_newest = talker.member == member && talker.number == number;
        talker.sent_at.take_if(|_| is_newest)
    }

    /// The messages that were not read.
    pub(super) fn unread(&self) -> u64 {
        self.all.iter().filter(|talker| talker.sent_at.is_some()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::TalkPlan;

    fn talkers(count: u32) -> Talkers {
        let plan = TalkPlan { share: 0.25, every: Duration::from_secs(1), bytes: 20 };
        Talkers::new((100, count), Some(&plan))
    }

    #[test]
    fn talkers_are_a_share_of_all_connections_however_many_threads_there_are() {
        let count = |share, first, count| {
            (first..first + count).filter(|number| is_talker(*number, share)).count()
        };
        assert_eq!(count(0.05, 0, 1000), 50);
        assert_eq!(count(0.05, 0, 500) + count(0.05, 500, 500), 50);
        assert_eq!((count(1.0, 0, 10), count(0.001, 0, 999), count(0.001, 0, 1000)), (10, 0, 1));
        assert_eq!(talkers(40).all.len(), 10);
        assert!(Talkers::new((0, 100), None).next_due().is_none());
    }

    #[test]
    fn talkers_take_turns_spread_over_their_interval() {
        let mut talkers = talkers(16);
        let mut due = Vec::new();
        for _ in 0..6 {
            due.push(talkers.next_due().expect("a talker").as_millis());
            talkers.take_turn();
        }
        assert_eq!(due, [0, 250, 500, 750, 1000, 1250]);
    }

    #[test]
    fn only_the_first_pong_after_the_last_message_counts() {
        let mut talkers = talkers(8);
        let (at, member) = talkers.take_turn().expect("a talker");
        let mut out = Vec::new();
        assert!(talkers.encode(at, [0; 4], &mut out));
        talkers.note_sent(at, 5);
        assert!(!talkers.encode(at, [0; 4], &mut Vec::new()), "the last message was not read");
        assert_eq!(talkers.unread(), 1);
        let ping = out[out.len() - PING_BYTES..].to_vec();
        assert_eq!(talkers.take_pong(member + 1, &ping), None, "of another connection");
        assert_eq!(talkers.take_pong(member, b"hello"), None);
        assert_eq!(talkers.take_pong(member, &ping), Some(5));
        assert_eq!(talkers.take_pong(member, &ping), None, "again");
        assert_eq!(talkers.unread(), 0);
    }
}
