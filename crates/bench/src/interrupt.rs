//! Ctrl-C, SIGTERM and SIGHUP end a run early, together with the programs that it started. SIGINT and SIGHUP have
//! no effect if this process was started with them ignored (nohup(1), background processes of shells).
//! In: signals. Out: a flag, or the end of the process.
//! Never: blocks a signal: started programs would inherit the block and could not be stopped by SIGTERM.
//! Invariant: the handlers are registered before the first program is started. Before a signal ends this process, the
//! programs that it started are ended and its directories are removed.

use crate::{process, scratch};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustix::process::Signal;
use signal_hook::low_level::pipe;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use tidegate_reactor::signals;

static STOP: AtomicBool = AtomicBool::new(false);
/// Exit code if a signal ended the process.
const STOPPED: i32 = 1;

/// Returns the flag that the first signal sets; the second signal ends the process at once.
pub(crate) fn stop_on_signal() -> &'static AtomicBool {
    watch(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            end(Duration::ZERO);
        }
    });
    &STOP
}

/// Makes the first signal end the process after cleaning up.
pub(crate) fn end_on_signal() {
    watch(|| {
        // After a hangup stderr may be a closed terminal.
        let _ = writeln!(io::stderr(), "\ntidegate: stopped by a signal");
        end(process::STOP_MAX);
    });
}

/// Calls `act` for each signal, on a separate thread.
fn watch(mut act: impl FnMut() + Send + 'static) {
    // Without signal handlers the default actions apply.
    let Ok(mut signals) = register() else {
        return;
    };
    thread::spawn(move || {
        // One byte per signal.
        while signals.read_exact(&mut [0]).is_ok() {
            act();
        }
    });
}

fn register() -> io::Result<UnixStream> {
    let (signals, handler) = UnixStream::pair()?;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        // A signal that was ignored when this process was started stays ignored, for example under nohup(1).
        let is_ignored = match signal {
            Signal::HUP => signals::is_ignored(signals::Signal::HangUp),
            Signal::INT => signals::is_ignored(signals::Signal::Interrupt),
            _ => false,
        };
        if !is_ignored {
            pipe::register(signal.as_raw(), handler.try_clone()?)?;
        }
    }
    Ok(signals)
}

fn end(patience: Duration) -> ! {
    process::stop_all(patience);
    scratch::remove_all();
    std::process::exit(STOPPED)
}
