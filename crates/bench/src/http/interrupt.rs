//! Ctrl-C and SIGTERM end a run early; its report is printed all the same.
//! In: signals. Out: a flag. Invariant: a second signal ends the process at once.

use core::sync::atomic::{AtomicBool, Ordering};
use tidegate_reactor::signals::{self, Signal};

static STOP: AtomicBool = AtomicBool::new(false);

/// The flag that the first signal sets. To be called before any thread is started.
pub(super) fn stop_on_signal() -> &'static AtomicBool {
    // Without signals the run ends as the plan says, or as the kernel ends it.
    if signals::block().is_ok() {
        std::thread::spawn(|| {
            loop {
                match signals::wait() {
                    Ok(Signal::Interrupt | Signal::Terminate) => {
                        if STOP.swap(true, Ordering::Relaxed) {
                            std::process::exit(1);
                        }
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
    }
    &STOP
}
