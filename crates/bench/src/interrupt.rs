//! Ctrl-C, SIGTERM and SIGHUP: a run ends early, and nothing that it started stays behind.
//! In: signals. Out: a flag, or the end of the process.
//! Never: blocks a signal: programs that are started would inherit that and could not be ended in order.
//! Invariant: registered before the first program is started; a signal that must end the process ends its
//! programs and removes its folders first.

use crate::{process, scratch};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustix::process::Signal;
use signal_hook::low_level::pipe;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;

static STOP: AtomicBool = AtomicBool::new(false);
/// Exit code after a signal that ended the process.
const STOPPED: i32 = 1;

/// The flag that the first signal sets; the second one ends the process at once.
pub(crate) fn stop_on_signal() -> &'static AtomicBool {
    watch(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            end(Duration::ZERO);
        }
    });
    &STOP
}

/// The first signal ends the process, in order.
pub(crate) fn end_on_signal(command: &'static str) {
    watch(move || {
        // A hangup may be the end of the terminal that stderr is.
        let _ = writeln!(io::stderr(), "\n{command}: stopped by a signal");
        end(process::STOP_MAX);
    });
}

/// Calls `act` for each signal, on a thread of its own.
fn watch(mut act: impl FnMut() + Send + 'static) {
    // Without its signals the run ends as the plan says, or as the kernel ends it.
    let Ok(mut signals) = register() else {
        return;
    };
    thread::spawn(move || {
        // A byte a signal.
        while signals.read_exact(&mut [0]).is_ok() {
            act();
        }
    });
}

fn register() -> io::Result<UnixStream> {
    let (signals, handler) = UnixStream::pair()?;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        // nohup(1) ignores it on purpose.
        if signal != Signal::HUP || !ignores_hangup() {
            pipe::register(signal.as_raw(), handler.try_clone()?)?;
        }
    }
    Ok(signals)
}

/// Whether whoever started this process had SIGHUP ignored (proc(5): SigIgn, bit 0 is signal 1).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) & 1 == 1
}

fn end(patience: Duration) -> ! {
    process::stop_all(patience);
    scratch::remove_all();
    std::process::exit(STOPPED)
}
