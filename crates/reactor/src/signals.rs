//! Signals as events of the main thread: blocked in all threads and received by `wait`.
//! In: SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2; `request_reload`. Out: `Signal`.
//! Never: runs code in a signal handler. Receives a SIGHUP or SIGINT that the process was started to ignore.
//! Invariant: `block` is called before any thread starts, because threads inherit the mask. Nothing changes the
//! action of these signals, so that `is_ignored` always reports what the process inherited.

use std::io;

/// A signal that the process handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGHUP: read the configuration again.
    HangUp,
    /// SIGINT: the user at the terminal requests a stop.
    Interrupt,
    /// SIGTERM: the supervisor requests a stop.
    Terminate,
    /// SIGUSR1: its meaning is up to the program.
    User1,
    /// SIGUSR2: likewise.
    User2,
    /// `request_reload`: as SIGHUP, also in a process that ignores SIGHUP.
    Reload,
}

const SIGNALS: [(libc::c_int, Signal); 6] = [
    (libc::SIGHUP, Signal::HangUp),
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGUSR1, Signal::User1),
    (libc::SIGUSR2, Signal::User2),
    // The kernel sends it only for sockets with an owner (F_SETOWN), and no socket has one.
    (libc::SIGURG, Signal::Reload),
];

/// Has the thread that waits for signals receive `Signal::Reload`.
///
/// # Errors
/// The error of kill(2). A process may send itself any signal.
pub fn request_reload() -> io::Result<()> {
    // SAFETY: the calls have no memory arguments.
    match unsafe { libc::kill(libc::getpid(), libc::SIGURG) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the process was started with this signal ignored. nohup(1) ignores SIGHUP, and a shell without job
/// control ignores SIGINT in its background processes; a program that honours that keeps the signal ignored.
/// SIGTERM, SIGUSR1 and SIGUSR2 are sent on purpose, so they are never reported as ignored.
#[must_use]
pub fn is_ignored(signal: Signal) -> bool {
    let number = match signal {
        Signal::HangUp => libc::SIGHUP,
        Signal::Interrupt => libc::SIGINT,
        Signal::Terminate | Signal::User1 | Signal::User2 | Signal::Reload => return false,
    };
    // SAFETY: all zeroes is a valid value of this plain type. Without a new action, sigaction only writes the
    // current one to the valid pointer.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        libc::sigaction(number, core::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Blocks the signals in the calling thread and in all threads that it starts afterwards.
///
/// # Errors
/// The error of pthread_sigmask(3). A valid set causes none.
pub fn block() -> io::Result<()> {
    block_set(&signal_set())
}

/// Blocks SIGHUP alone, before a program reads its configuration: otherwise one that arrives then would end the process.
/// `wait` receives it later. A SIGHUP that the process ignores needs no block.
///
/// # Errors
/// As [`block`].
pub fn hold_hang_up() -> io::Result<()> {
    if is_ignored(Signal::HangUp) {
        return Ok(());
    }
    // SAFETY: all zeroes is a valid value of this plain type, which sigemptyset initialises.
    let set = unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGHUP);
        set
    };
    block_set(&set)
}

fn block_set(set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` is a valid signal set, and a null pointer means that the old mask is not requested.
    let errno = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, core::ptr::null_mut()) };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Waits for the next of the signals that the process does not ignore. They must be blocked.
///
/// # Errors
/// The error of sigwait(3). A valid set causes none.
pub fn wait() -> io::Result<Signal> {
    let set = signal_set();
    loop {
        let mut number = 0;
        // SAFETY: both pointers refer to valid values that live until the call returns.
        let errno = unsafe { libc::sigwait(&set, &mut number) };
        if errno != 0 && errno != libc::EINTR {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if let Some(&(_, signal)) = SIGNALS.iter().find(|(of, _)| errno == 0 && *of == number) {
            return Ok(signal);
        }
    }
}

fn signal_set() -> libc::sigset_t {
    // A blocked signal is delivered to sigwait(3) even if it is ignored (signal(7)), so ignored ones are left out.
    let received = SIGNALS.into_iter().filter(|(_, signal)| !is_ignored(*signal));
    // SAFETY: all zeroes is a valid value of this plain type, and sigemptyset initialises it anyway. The
    // added numbers are valid signals.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut set);
        for (number, _) in received {
            libc::sigaddset(&mut set, number);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_returns_a_blocked_signal() {
        std::thread::spawn(|| {
            block().expect("the set is valid");
            // The tests may run under nohup(1). What happens then is tested with the binary.
            for (number, signal) in SIGNALS.into_iter().filter(|(_, signal)| !is_ignored(*signal)) {
                // SAFETY: the signal goes to this thread, where it is blocked.
                let sent = unsafe { libc::pthread_kill(libc::pthread_self(), number) };
                assert_eq!(sent, 0);
                assert_eq!(wait().expect("the set is valid"), signal);
            }
        })
        .join()
        .expect("the thread ends");
    }
}
