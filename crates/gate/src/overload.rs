//! Overload: which new requests are admitted, by how long requests wait.
//! In: the lengths of turns; whether a queue is empty; the time. Out: whether a request is admitted, and how long it may wait.
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

/// The admission of requests by a worker. A request that arrives during a turn waits for its end, so the length of turns is the time that
/// requests wait. If even the shortest turn of an interval is too long, requests wait all the time (as in CoDel, RFC 8289), and
/// a larger share of them is refused; otherwise the share falls.
#[derive(Debug)]
pub struct Admission {
    /// The end of the interval.
    until: Moment,
    /// The shortest turn in the interval.
    shortest: Span,
    /// How many requests in `PARTS` are refused.
    refused: u32,
    /// What the requests since the last refusal have added.
    credit: u32,
}

impl Default for Admission {
    fn default() -> Self {
        Self { until: Moment::ZERO, shortest: Span::MAX, refused: 0, credit: 0 }
    }
}

impl Admission {
    /// A turn has begun and ended. Returns whether an interval of overload has ended with it.
    pub fn note_turn(&mut self, settings: &Overload, (began, ended): (Moment, Moment)) -> bool {
        if self.until == Moment::ZERO || began >= self.until.after(settings.interval) {
            // The worker has just started, or had nothing to do.
            (self.refused, self.shortest) = (0, Span::MAX);
            self.until = began.after(settings.interval);
        }
        self.shortest = self.shortest.min(ended.since(began));
        if ended < self.until {
            return false;
        }
        let is_over = self.shortest > settings.turn_target;
        self.refused = match is_over {
            true => (self.refused + STEP).min(REFUSED_MAX),
            false => self.refused / 8 * 7,
        };
        self.shortest = Span::MAX;
        self.until = ended.after(settings.interval);
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

    /// Turns of `length` milliseconds, one after the other, until `end`. Returns how many intervals of overload ended.
    fn turns(admission: &mut Admission, mut now: u64, end: u64, length: u64) -> usize {
        let mut over = 0;
        while now < end {
            over += usize::from(admission.note_turn(&SETTINGS, (at(now), at(now + length))));
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
        let (mut now, mut late) = (0, Vec::new());
        for _ in 0..2000 {
            let admitted = (0..60).filter(|_| admission.admits()).count() as u64;
            let length = admitted.max(1);
            admission.note_turn(&SETTINGS, (at(now), at(now + length)));
            now += length;
            late.push(length);
        }
        let settled = &late[1000..];
        let mean = settled.iter().sum::<u64>() / settled.len() as u64;
        assert!((12..=26).contains(&mean), "{mean}");
    }

    #[test]
    fn pause_ends_the_overload() {
        let mut admission = Admission::default();
        turns(&mut admission, 0, 10_000, 30);
        assert!(admission.is_refusing());
        admission.note_turn(&SETTINGS, (at(20_000), at(20_030)));
        assert!(!admission.is_refusing());
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
