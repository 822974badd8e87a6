//! Overload: which new requests are admitted, by how long requests wait.
//! In: when the waits for events ended, and what they had found; whether a queue is empty; the time. Out: whether a request is admitted,
//! and how long it may wait.
//! Never: refuses everything: some requests show whether the load has fallen.
//! Limits: `REFUSED_MAX` of the requests are refused.

use tidegate_base::{Moment, Span};
use tidegate_config::model::Overload;

/// The unit of the share of requests that are refused.
const PARTS: u32 = 1024;
/// The largest share of requests that are refused: 15 of 16.
const REFUSED_MAX: u32 = PARTS / 16 * 15;
/// How much the share grows with each interval of overload.
const STEP: u32 = PARTS / 16;

/// A turn of a worker that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// When its wait for events ended.
    pub began: Moment,
    /// How long the wait lasted because nothing was ready; zero if something was ready when it began.
    pub idle: Span,
    /// After how many more waits everything is served that was ready at this one; 0: all of it is served in this turn.
    pub behind: u32,
    /// Some of the requests wait that had been put off for later turns when the measurement began.
    pub is_put_off: bool,
}

/// What a turn has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    /// An interval of overload has ended with it.
    pub is_over: bool,
    /// Another measurement begins: from now on, `Turn::is_put_off` is about the requests that wait now.
    pub begins_measurement: bool,
}

/// The admission of requests by a worker. It measures how long events wait that are ready: from the end of a wait for events until a later
/// turn has begun to serve the last of those that arrived first. After a wait in which nothing was ready, that is no time, however long
/// turns are. If even the shortest wait of an interval is too long, requests wait all the time (as in CoDel, RFC 8289), and a larger share
/// of them is refused; otherwise the share falls.
#[derive(Debug)]
pub struct Admission {
    /// The end of the interval.
    until: Moment,
    /// The shortest wait of an event that was measured in the interval.
    shortest: Span,
    /// How long the worker had nothing to do in the interval.
    idle: Span,
    /// When the measurement began.
    since: Moment,
    /// After how many more waits everything is served that was ready then; at least 1.
    behind: u32,
    /// How many requests in `PARTS` are refused.
    refused: u32,
    /// What the requests since the last refusal have added.
    credit: u32,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            until: Moment::ZERO,
            shortest: Span::MAX,
            idle: Span::ZERO,
            since: Moment::ZERO,
            behind: 1,
            refused: 0,
            credit: 0,
        }
    }
}

impl Admission {
    /// A turn has ended.
    pub fn note_turn(&mut self, settings: &Overload, turn: Turn) -> Noted {
        if self.until == Moment::ZERO {
            self.until = turn.began.after(settings.interval);
        }
        let begins_measurement = self.measure(&turn);
        self.idle += turn.idle;
        if self.idle >= settings.interval / 4 * 3 {
            // The load is gone.
            self.refused = 0;
        }
        let is_over = turn.began >= self.until && self.end_interval(settings, turn.began);
        Noted { is_over, begins_measurement }
    }

    /// Ends the measurement if everything is served that was ready when it began, and begins another one.
    fn measure(&mut self, turn: &Turn) -> bool {
        self.behind = self.behind.saturating_sub(1).min(turn.behind);
        if !turn.idle.is_zero() {
            self.shortest = Span::ZERO;
        } else if self.behind > 0 || turn.is_put_off {
            return false;
        } else if self.since != Moment::ZERO {
            self.shortest = self.shortest.min(turn.began.since(self.since));
        }
        self.since = turn.began;
        self.behind = turn.behind.max(1);
        true
    }

    /// Ends the interval. Returns whether it was one of overload.
    fn end_interval(&mut self, settings: &Overload, now: Moment) -> bool {
        let wait = match self.shortest {
            // Events have waited at least since the measurement began.
            Span::MAX => now.since(self.since),
            shortest => shortest,
        };
        let is_over = wait > settings.turn_target;
        self.refused = match is_over {
            true => (self.refused + STEP).min(REFUSED_MAX),
            false => self.refused / 8 * 7,
        };
        (self.shortest, self.idle) = (Span::MAX, Span::ZERO);
        self.until = now.after(settings.interval);
        is_over
    }

    /// Whether requests are being refused.
    #[must_use]
    #[inline]
    pub fn is_refusing(&self) -> bool {
        self.refused > 0
    }

    /// Whether the next request is admitted. The refused ones are spread evenly.
    pub fn admits(&mut self) -> bool {
        self.credit += self.refused;
        let is_refused = self.credit >= PARTS;
        self.credit -= if is_refused { PARTS } else { 0 };
        !is_refused
    }
}

/// The queue of a pool: whether it was empty at some time lately.
#[derive(Clone, Copy, Debug)]
pub struct StandingQueue {
    /// When it was last found empty.
    last_empty: Moment,
}

impl Default for StandingQueue {
    fn default() -> Self {
        Self { last_empty: Moment::ZERO }
    }
}

impl StandingQueue {
    /// How long a request may wait that joins the queue now. `usual`: in a queue that was empty within this time, which takes up a burst;
    /// `standing`: in a queue that was not, which only delays every request.
    pub fn wait_max(
        &mut self,
        is_empty: bool,
        now: Moment,
        (usual, standing): (Span, Option<Span>),
    ) -> Span {
        if is_empty {
            self.last_empty = now;
        }
        match standing {
            Some(standing) if now >= self.last_empty.after(usual) => standing.min(usual),
            Some(_) | None => usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Overload = Overload {
        turn_target: Span::from_millis(20),
        interval: Span::from_millis(100),
        memory_max: None,
    };

    fn at(millis: u64) -> Moment {
        Moment::ZERO.after(Span::from_millis(millis))
    }

    /// A turn that began at `millis`, after a wait that found all of its events at once.
    fn turn_at(millis: u64) -> Turn {
        Turn { began: at(millis), idle: Span::ZERO, behind: 0, is_put_off: false }
    }

    /// Turns of `length` milliseconds, one after the other, until `end`. Returns how many intervals of overload ended.
    fn turns(admission: &mut Admission, mut now: u64, end: u64, length: u64) -> usize {
        let mut over = 0;
        while now < end {
            over += usize::from(admission.note_turn(&SETTINGS, turn_at(now)).is_over);
            now += length;
        }
        over
    }

    fn refused_of_1000(admission: &mut Admission) -> usize {
        (0..1000).filter(|_| !admission.admits()).count()
    }

    #[test]
    fn short_turns_refuse_nothing() {
        let mut admission = Admission::default();
        assert_eq!(turns(&mut admission, 0, 10_000, 20), 0);
        assert!(!admission.is_refusing());
        assert_eq!(refused_of_1000(&mut admission), 0);
    }

    #[test]
    fn one_short_turn_in_an_interval_is_enough() {
        let mut admission = Admission::default();
        for begin in (0..10_000).step_by(91) {
            turns(&mut admission, begin, begin + 90, 30);
            turns(&mut admission, begin + 90, begin + 91, 1);
        }
        assert!(!admission.is_refusing());
    }

    #[test]
    fn long_turns_delay_nothing_if_nothing_waits() {
        // A request of 35 ms every 40 ms, and one that arrives during the next one.
        let mut admission = Admission::default();
        for begin in (0..10_000).step_by(200) {
            for (after, idle) in [(0, 5), (40, 5), (75, 0), (115, 5), (155, 5)] {
                let turn = Turn { idle: Span::from_millis(idle), ..turn_at(begin + after) };
                assert!(!admission.note_turn(&SETTINGS, turn).is_over, "{begin} {after}");
            }
        }
        assert!(!admission.is_refusing());
    }

    #[test]
    fn short_turns_that_do_not_take_all_events_are_overload() {
        // 4000 sockets are ready all the time; a turn takes 512 of them and 15 ms.
        let mut admission = Admission::default();
        let over = (0..10_000u64).step_by(15).filter(|begin| {
            let turn = Turn { behind: 7, ..turn_at(*begin) };
            admission.note_turn(&SETTINGS, turn).is_over
        });
        assert!(over.count() > 60);
        // 600 sockets that take 5 ms wait for 10 ms.
        let mut admission = Admission::default();
        for begin in (0..10_000).step_by(5) {
            let turn = Turn { behind: 1, ..turn_at(begin) };
            assert!(!admission.note_turn(&SETTINGS, turn).is_over);
        }
    }

    #[test]
    fn requests_that_are_put_off_for_long_are_overload() {
        let mut admission = Admission::default();
        let (mut over, mut measured) = (0, 0);
        for turn in 0..1000 {
            let turn = Turn { is_put_off: turn % 5 > 0, ..turn_at(turn * 10) };
            let noted = admission.note_turn(&SETTINGS, turn);
            over += usize::from(noted.is_over);
            measured += usize::from(noted.begins_measurement);
        }
        assert!(over > 60 && measured == 200, "they wait for 50 ms: {over} {measured}");
        // They wait for longer than an interval.
        let put_off = |begin| Turn { is_put_off: true, ..turn_at(begin) };
        let over = (10_000..12_000).step_by(10).filter(|begin| {
            let noted = admission.note_turn(&SETTINGS, put_off(*begin));
            noted.is_over && !noted.begins_measurement
        });
        assert!(over.count() > 10);
    }

    #[test]
    fn overload_ends_when_the_worker_has_nothing_to_do() {
        for interval in [10, 100, 1000, 60_000] {
            let settings = Overload { interval: Span::from_millis(interval), ..SETTINGS };
            let mut admission = Admission::default();
            let end = interval * 20;
            for begin in (0..end).step_by(30) {
                admission.note_turn(&settings, turn_at(begin));
            }
            assert!(refused_of_1000(&mut admission) > 100, "{interval}");
            // The wait of an idle worker ends every second.
            let mut now = end;
            while admission.is_refusing() {
                now += 1000;
                let turn = Turn { idle: Span::from_secs(1), ..turn_at(now) };
                admission.note_turn(&settings, turn);
            }
            assert!(now - end <= interval * 2 + 1000, "{interval}: {}", now - end);
        }
    }

    #[test]
    fn share_of_refused_requests_grows_and_falls() {
        let mut admission = Admission::default();
        assert!(turns(&mut admission, 0, 130, 30) <= 1);
        turns(&mut admission, 130, 1000, 30);
        let half = refused_of_1000(&mut admission);
        assert!((300..700).contains(&half), "{half}");
        turns(&mut admission, 1000, 60_000, 30);
        let most = refused_of_1000(&mut admission);
        assert!((930..945).contains(&most), "some are admitted: {most}");
        turns(&mut admission, 60_000, 60_500, 1);
        let fewer = refused_of_1000(&mut admission);
        assert!((1..most).contains(&fewer), "{fewer}");
        turns(&mut admission, 60_500, 70_000, 1);
        assert!(!admission.is_refusing());
    }

    #[test]
    fn load_that_refusals_reduce_settles_near_the_target() {
        // A turn takes 1 ms for each of 60 requests in it that are admitted.
        let mut admission = Admission::default();
        let (mut now, mut late) = (1, Vec::new());
        for _ in 0..2000 {
            let admitted = (0..60).filter(|_| admission.admits()).count() as u64;
            admission.note_turn(&SETTINGS, turn_at(now));
            now += admitted.max(1);
            late.push(admitted.max(1));
        }
        let settled = &late[1000..];
        let mean = settled.iter().sum::<u64>() / settled.len() as u64;
        assert!((12..=26).contains(&mean), "{mean}");
    }

    #[test]
    fn requests_wait_shortly_in_a_queue_that_stands() {
        let mut queue = StandingQueue::default();
        let (usual, short) = (Span::from_millis(1000), Span::from_millis(50));
        let mut wait = |is_empty, now| queue.wait_max(is_empty, at(now), (usual, Some(short)));
        assert_eq!(wait(true, 5000), usual);
        assert_eq!(wait(false, 5999), usual, "a burst");
        assert_eq!(wait(false, 6000), short);
        assert_eq!(wait(false, 9000), short);
        assert_eq!(wait(true, 9001), usual, "it was empty");
        assert_eq!(queue.wait_max(false, at(90_000), (usual, None)), usual, "without the setting");
    }
}
