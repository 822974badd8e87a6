//! Verifies passwords on threads of their own, because that is slow on purpose.
//! In: a hash and a password; the ticket of a waiting request. Out: a verdict in the mailbox of the request's worker.
//! Never: blocks a worker; lets the time of a verdict depend on whether the user exists.
//! Limits: `VERIFIERS` threads; `JOBS_MAX` passwords wait. A request that finds no place is refused (503).

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_base::Id;
use tidegate_gate::basic::Verified;
use tidegate_reactor::Sender;

use crate::action::proxy::exchange::Exchange;
use crate::start::Mail;
use crate::threads::{self, Ended};

/// The threads that verify passwords.
const VERIFIERS: usize = 2;
/// The passwords that wait for a thread.
const JOBS_MAX: usize = 64;
/// How often a verdict is offered to a full mailbox, and the time in between. Then the request's deadline ends it.
const OFFERS_MAX: usize = 1000;
const OFFER_PAUSE: Duration = Duration::from_millis(1);

/// A password to verify.
pub(crate) struct Job {
    /// The stored hash, with its algorithm; of another user if this one does not exist.
    pub(crate) hash: String,
    /// The password of the request.
    pub(crate) password: Vec<u8>,
    /// The user exists. Otherwise the verdict is negative, after the same work.
    pub(crate) is_known: bool,
    /// The request that waits.
    pub(crate) ticket: Id<Exchange>,
}

/// Whether the password of a waiting request is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    /// The request. It may have ended.
    pub(crate) ticket: Id<Exchange>,
    /// The password is right.
    pub(crate) is_right: bool,
}

/// The way of a worker to the threads.
pub(crate) struct Verifiers {
    jobs: SyncSender<(Job, Sender<Mail>)>,
    /// The worker's own mailbox.
    own: Sender<Mail>,
}

/// A worker's state of authentication.
#[derive(Default)]
pub(crate) struct Passwords {
    /// Credentials that were verified lately.
    pub(crate) verified: Verified,
    /// The threads; `None` in tests without threads, which verify on the worker.
    pub(crate) verifiers: Option<Verifiers>,
}

impl Passwords {
    /// Hands a job to a thread. Returns the verdict if it is known at once, and `Err` if too many passwords wait.
    pub(crate) fn submit(&self, job: Job) -> Result<Option<Verdict>, ()> {
        let Some(verifiers) = &self.verifiers else { return Ok(Some(judge(&job))) };
        let sent = verifiers.jobs.try_send((job, verifiers.own.clone()));
        sent.map(|()| None).map_err(|_| ())
    }
}

/// The entrance to the threads, of which each worker gets its own.
#[derive(Clone)]
pub(crate) struct Entrance(SyncSender<(Job, Sender<Mail>)>);

impl Entrance {
    /// Starts the threads. They end when the last entrance is gone.
    ///
    /// # Errors
    /// The kernel refused a thread.
    pub(crate) fn open() -> io::Result<Self> {
        let (jobs, waiting) = sync_channel(JOBS_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        for number in 0..VERIFIERS {
            let waiting = Arc::clone(&waiting);
            threads::spawn(format!("passwords-{number}"), move || verify(&waiting))?;
        }
        Ok(Self(jobs))
    }

    /// The way of the worker with this mailbox.
    pub(crate) fn for_worker(&self, own: Sender<Mail>) -> Verifiers {
        Verifiers { jobs: self.0.clone(), own }
    }
}

fn verify(waiting: &Mutex<Receiver<(Job, Sender<Mail>)>>) -> Ended {
    loop {
        // The lock is held while waiting, so that one thread waits and the other verifies or waits for the lock.
        let Ok(queue) = waiting.lock() else { return Ended::Failed("another thread panicked") };
        let next = queue.recv();
        drop(queue);
        let Ok((job, worker)) = next else { return Ended::AsPlanned };
        let verdict = judge(&job);
        for _ in 0..OFFERS_MAX {
            if worker.send(Mail::Verdict(verdict)).is_ok() {
                break;
            }
            std::thread::sleep(OFFER_PAUSE);
        }
    }
}

fn judge(job: &Job) -> Verdict {
    let is_right = matches(&job.hash, &job.password) && job.is_known;
    Verdict { ticket: job.ticket, is_right }
}

/// Whether the password has this hash. The libraries compare in constant time.
fn matches(hash: &str, password: &[u8]) -> bool {
    if hash.starts_with("$2") {
        return bcrypt::verify(password, hash).unwrap_or(false);
    }
    if hash.starts_with("$argon2") {
        use argon2::{Argon2, PasswordHash, PasswordVerifier as _};
        let parsed = PasswordHash::new(hash);
        return parsed
            .is_ok_and(|parsed| Argon2::default().verify_password(password, &parsed).is_ok());
    }
    use sha_crypt::{PasswordVerifier as _, ShaCrypt};
    ShaCrypt::default().verify_password(password, hash).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_verified_with_each_algorithm() {
        for (hash, password) in [
            ("$2y$05$qEpkPzW0/J.jS9imiNqDKuhXu4JtS0Z/IEc/C85N39bFS2750KosS", "secret"),
            ("$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM.", "secret"),
            (
                "$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.",
                "secret",
            ),
            (
                "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
                "password",
            ),
        ] {
            assert!(matches(hash, password.as_bytes()), "{hash}");
            for wrong in ["", "Secret", "secret ", "passwor"] {
                assert!(!matches(hash, wrong.as_bytes()), "{hash}");
            }
        }
        assert!(!matches("$6$", b"") && !matches("$argon2id$", b"") && !matches("$2y$", b""));
    }
}
