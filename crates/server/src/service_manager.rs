//! Messages to the service manager (sd_notify(3)): ready, reloading, stopping, alive.
//! In: NOTIFY_SOCKET and WATCHDOG_USEC of the environment. Out: datagrams to systemd; log lines for a worker that hangs, and where.
//! Never: delays a worker, except one that hangs, or fails. Without a service manager, nothing is sent.
//! Invariant: the process is reported alive only while every worker has finished a turn within half of WatchdogSec, or 2 s.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::counters::Accounts;
use crate::log;
use crate::stuck;
use crate::threads;

/// The shortest interval between reports that does not mistake a busy worker for one that hangs: an idle worker finishes a turn
/// once a second. A shorter interval causes a warning.
const REPORT_EVERY_RECOMMENDED_MIN: Duration = Duration::from_secs(3);

/// Without a service manager that expects reports: how long a worker may take for a turn.
const POLL_EVERY: Duration = Duration::from_secs(10);
/// A worker is never stuck before this time: an idle worker finishes a turn once a second.
const STUCK_AFTER_MIN: Duration = Duration::from_secs(2);
/// How often workers are checked between two reports. A worker that continues is reported after this fraction.
const TICKS_PER_REPORT: u32 = 8;

/// Reports that the process serves, or that it serves again after a reload.
pub(crate) fn ready() {
    tell("READY=1\nSTATUS=serving");
}

/// Reports that the process reads its configuration again; a call of `ready` follows.
pub(crate) fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reloading"));
}

/// Reports that the process completes its exchanges and then ends.
pub(crate) fn stopping() {
    tell("STOPPING=1\nSTATUS=completing exchanges");
}

/// Reports that process `process` has replaced this one as the main process of the service, and serves.
pub(crate) fn main_process(process: u32) {
    tell(&format!("MAINPID={process}\nREADY=1\nSTATUS=serving"));
}

/// Sends one message, if there is a service manager.
fn tell(message: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = UnixDatagram::unbound().and_then(|socket| {
        // systemd's socket buffer is large. A message that does not fit is dropped: the caller does not wait.
        socket.set_nonblocking(true)?;
        socket.send_to_addr(message.as_bytes(), &address?)
    });
    if let Err(error) = sent {
        log::warning(format_args!("cannot send {message:?} to the service manager: {error}"));
    }
}

/// The time within which the service manager expects a report that the process is alive; `None` if it expects none.
fn watchdog_span() -> Option<Duration> {
    let pid = std::env::var("WATCHDOG_PID").ok().and_then(|pid| pid.parse::<u32>().ok());
    if pid.is_some_and(|pid| pid != std::process::id()) {
        return None;
    }
    let micros: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// Starts the thread that finds workers that are stuck, and reports that the process is alive if the service manager expects
/// that.
///
/// # Errors
/// The kernel refused the thread.
pub(crate) fn start_watchdog(accounts: Vec<Arc<Accounts>>) -> std::io::Result<()> {
    let span = watchdog_span();
    if let Some(span) = span
        && span < 2 * REPORT_EVERY_RECOMMENDED_MIN
    {
        log::warning(format_args!(
            "WatchdogSec of the service is {span:?}; set it to {:?} or more, or systemd may restart a process that is only busy",
            2 * REPORT_EVERY_RECOMMENDED_MIN
        ));
    }
    let report_every = span.map_or(POLL_EVERY, |span| span / 2);
    let stuck_after = report_every.max(STUCK_AFTER_MIN);
    let tick = report_every / TICKS_PER_REPORT;
    let work = move || {
        let mut alive = Alive::new(accounts.len(), Instant::now());
        let mut reported_at: Option<Instant> = None;
        loop {
            let turns: Vec<u64> = accounts.iter().map(|of| of.counters.turns.load()).collect();
            let now = Instant::now();
            alive.check(&turns, now, 2 * tick);
            note_stuck(&accounts, &alive.stuck(now, stuck_after), stuck_after);
            let is_stuck = |of: &Arc<Accounts>| of.is_stuck.load(Ordering::Relaxed);
            let is_due = reported_at.is_none_or(|at| now - at + tick / 2 >= report_every);
            if span.is_some() && is_due && !accounts.iter().any(is_stuck) {
                tell("WATCHDOG=1");
                reported_at = Some(now);
            }
            thread::sleep(tick);
        }
    };
    threads::spawn("watchdog", work).map(drop)
}

/// Logs which workers are stuck, and describes one that was not stuck before. The others are described by the next calls: a
/// description takes a while, in which the process is not reported alive.
fn note_stuck(accounts: &[Arc<Accounts>], stuck: &[usize], after: Duration) {
    let mut has_described = false;
    for (worker, accounts) in accounts.iter().enumerate() {
        let is_stuck = stuck.contains(&worker) && !accounts.has_stopped.load(Ordering::Relaxed);
        let is_new = is_stuck && !accounts.is_stuck.load(Ordering::Relaxed);
        if is_new && core::mem::replace(&mut has_described, true) {
            continue;
        }
        let was_stuck = accounts.is_stuck.swap(is_stuck, Ordering::Relaxed);
        match (was_stuck, is_stuck) {
            (false, false) => {}
            (true, false) => log::info(format_args!("worker {worker} is no longer stuck")),
            (_, true) => log::error(format_args!(
                "worker {worker} is stuck: it has finished no turn for {after:?}; /live returns 503, and the watchdog gets no report"
            )),
        }
        if let Some(thread) = accounts.thread.get().filter(|_| is_stuck && !was_stuck) {
            for line in stuck::describe(thread) {
                log::error(format_args!("worker {worker}: {line}"));
            }
        }
    }
}

/// When each worker was last seen to have finished a turn.
struct Alive {
    /// By worker: how many turns it had finished, and when that number was first seen.
    workers: Vec<(u64, Instant)>,
    /// The time of the last look.
    checked_at: Instant,
}

impl Alive {
    fn new(workers: usize, now: Instant) -> Self {
        Self { workers: vec![(0, now); workers], checked_at: now }
    }

    /// Records the turns that the workers have finished until `now`. If the check is later than `late_after`, the process
    /// itself did not run: it was stopped, or its machine was. The workers then have the whole time again.
    fn check(&mut self, turns: &[u64], now: Instant, late_after: Duration) {
        let is_late = now.saturating_duration_since(self.checked_at) > late_after;
        self.checked_at = now;
        for (worker, turns) in self.workers.iter_mut().zip(turns) {
            if is_late || worker.0 != *turns {
                *worker = (*turns, now);
            }
        }
    }

    /// The workers that have finished no turn for `after`.
    fn stuck(&self, now: Instant, after: Duration) -> Vec<usize> {
        let all = self.workers.iter().enumerate();
        let stuck = all.filter(|(_, (_, since))| now.saturating_duration_since(*since) >= after);
        stuck.map(|(worker, _)| worker).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(10);
    const LATE: Duration = Duration::from_secs(2);

    #[test]
    fn process_is_alive_if_every_worker_has_finished_a_turn() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut alive = Alive::new(2, begin);
        for second in 1..=30 {
            // The second worker is stuck between the times 5 and 20.
            let second_turns = if (5..20).contains(&second) { 5 } else { second };
            alive.check(&[second, second_turns], at(second), LATE);
            let expected: &[usize] = if (15..20).contains(&second) { &[1] } else { &[] };
            assert_eq!(alive.stuck(at(second), AFTER), expected, "after {second} s");
        }
    }

    #[test]
    fn workers_are_not_stuck_because_the_process_was_stopped() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut alive = Alive::new(1, begin);
        alive.check(&[1], at(1), LATE);
        alive.check(&[1], at(60), LATE);
        assert!(alive.stuck(at(60), AFTER).is_empty(), "the look is late");
        (61..70).for_each(|second| alive.check(&[1], at(second), LATE));
        assert!(alive.stuck(at(69), AFTER).is_empty());
        alive.check(&[1], at(70), LATE);
        assert_eq!(alive.stuck(at(70), AFTER), [0], "it does not run again");
    }
}
