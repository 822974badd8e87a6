//! Messages to the service manager (sd_notify(3)): ready, reloading, stopping, alive.
//! In: NOTIFY_SOCKET and WATCHDOG_USEC of the environment. Out: datagrams to systemd; log lines for a worker that hangs, and where.
//! Never: delays a worker, except one that hangs, or fails. Without a service manager, nothing is sent.
//! Invariant: the process is reported alive only if every worker has finished a turn since the last report.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::counters::Accounts;
use crate::log;
use crate::stuck;
use crate::threads;

/// The shortest interval between reports that does not mistake a busy worker for one that hangs: an idle worker finishes a turn
/// once a second. A shorter interval causes a warning.
const REPORT_EVERY_RECOMMENDED_MIN: Duration = Duration::from_secs(3);

/// How often workers are looked at without a service manager that expects reports.
const LOOK_EVERY: Duration = Duration::from_secs(10);

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
    let every = span.map_or(LOOK_EVERY, |span| span / 2);
    let work = move || {
        let mut alive = Alive::new(accounts.len());
        loop {
            let turns: Vec<u64> = accounts.iter().map(|of| of.counters.turns.load()).collect();
            let stuck = alive.look(&turns);
            note_stuck(&accounts, &stuck, every);
            let is_stuck = |of: &Arc<Accounts>| of.is_stuck.load(Ordering::Relaxed);
            if span.is_some() && !accounts.iter().any(is_stuck) {
                tell("WATCHDOG=1");
            }
            thread::sleep(every);
        }
    };
    threads::spawn("watchdog", work).map(drop)
}

/// Logs which workers are stuck, and where they were when that was found.
fn note_stuck(accounts: &[Arc<Accounts>], stuck: &[usize], every: Duration) {
    for (worker, accounts) in accounts.iter().enumerate() {
        let is_stuck = stuck.contains(&worker) && !accounts.has_stopped.load(Ordering::Relaxed);
        let was_stuck = accounts.is_stuck.swap(is_stuck, Ordering::Relaxed);
        match (was_stuck, is_stuck) {
            (false, false) => {}
            (true, false) => log::info(format_args!("worker {worker} finishes its turns again")),
            (_, true) => log::error(format_args!(
                "worker {worker} has not finished its turn for {every:?}; the process is not alive (/live, WatchdogSec)"
            )),
        }
        if let Some(thread) = accounts.thread.get().filter(|_| is_stuck && !was_stuck) {
            for line in stuck::describe(thread) {
                log::error(format_args!("worker {worker}: {line}"));
            }
        }
    }
}

/// The turns that each worker had finished at the last look; `None` before the first look.
struct Alive(Vec<Option<u64>>);

impl Alive {
    fn new(workers: usize) -> Self {
        Self(vec![None; workers])
    }

    /// The workers that have finished no turn since the last look.
    fn look(&mut self, turns: &[u64]) -> Vec<usize> {
        let all = self.0.iter().zip(turns).enumerate();
        let stuck = all.filter(|(_, (before, now))| **before == Some(**now));
        let stuck = stuck.map(|(worker, _)| worker).collect();
        self.0 = turns.iter().copied().map(Some).collect();
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_alive_if_every_worker_has_finished_a_turn() {
        let mut alive = Alive::new(2);
        assert!(alive.look(&[0, 0]).is_empty(), "the first look");
        assert!(alive.look(&[1, 5]).is_empty());
        assert_eq!(alive.look(&[2, 5]), [1]);
        assert!(alive.look(&[3, 6]).is_empty(), "the worker continues");
    }
}
