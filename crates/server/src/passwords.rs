//! Verifies passwords on separate threads, because verification is slow on purpose.
//! In: a hash and a password; the ticket of a waiting request. Out: a verdict in the mailbox of the request's worker.
//! Never: blocks a worker; lets the time of a verdict depend on whether the user exists.
//! Limits: `VERIFIERS` threads, which start with the first configuration that needs them; the places of
//! `password_queue.rs`. A request that finds no place, or has to give it up, is refused (503).

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_base::Id;
use tidegate_config::model::Config;
use tidegate_config::password_hash::HashCost;
use tidegate_gate::basic::Verified;
use tidegate_gate::handling::Decoys;
use tidegate_reactor::Sender;

use crate::action::proxy::exchange::Exchange;
use crate::action::unverified::UnverifiedRequest;
use crate::password_queue::{Added, Origin, PasswordQueue, Place};
use crate::start::Mail;
use crate::threads::{self, Ended};

/// The threads that verify passwords.
const VERIFIERS: usize = 2;
/// How often a verdict is offered to a full mailbox, and the time in between. Then the request's deadline ends it.
const OFFERS_MAX: usize = 1000;
const OFFER_PAUSE: Duration = Duration::from_millis(1);

/// The longest password of a hash by bcrypt.
const BCRYPT_BYTES_MAX: usize = 72;

/// A request that waits for the result of its password.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ticket {
    /// A request to a server.
    Exchange(Id<Exchange>),
    /// A request whose action has not begun.
    Request(Id<UnverifiedRequest>),
}

/// A password to verify.
pub(crate) struct Job {
    /// The stored hash, with its algorithm; `None` if the user does not exist.
    pub(crate) hash: Option<String>,
    /// The hashes that a wrong password is verified against, so that it takes the same time for every user.
    pub(crate) decoys: Decoys,
    /// The password of the request.
    pub(crate) password: Vec<u8>,
    /// The request that waits.
    pub(crate) ticket: Ticket,
}

/// The result of verifying a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// It is right.
    Right,
    /// It is wrong, or its user does not exist.
    Wrong,
    /// Nothing: the job had to give its place to one of another origin.
    Displaced,
}

/// The result of verifying the password of a waiting request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PasswordResult {
    /// The request. It may have ended.
    pub(crate) ticket: Ticket,
    /// The result.
    pub(crate) finding: Finding,
}

/// The way of a worker to the threads.
pub(crate) struct Verifiers {
    /// The queue of the threads, which is closed when the last worker has dropped it.
    door: Arc<SharedQueue>,
    /// The worker's own mailbox.
    own: Sender<Mail>,
}

/// A worker's state of authentication.
#[derive(Default)]
pub(crate) struct Passwords {
    /// Credentials that were verified recently.
    pub(crate) verified: Verified,
    /// The threads; `None` in tests without threads, which verify on the worker.
    pub(crate) verifiers: Option<Verifiers>,
}

impl Passwords {
    /// Hands a job to a thread.
    pub(crate) fn submit(&self, origin: Origin, job: Job) -> Submitted {
        let Some(verifiers) = &self.verifiers else { return Submitted::Judged(judge(&job)) };
        let added = verifiers.door.0.add(origin, (job, verifiers.own.clone()));
        let Some(Added { place, displaced }) = added else { return Submitted::Refused };
        if let Some((job, worker)) = displaced {
            let verdict = PasswordResult { ticket: job.ticket, finding: Finding::Displaced };
            // If the mailbox is full, the deadline of the request ends it.
            drop(worker.send(Mail::PasswordResult(verdict)));
        }
        Submitted::Waits(place)
    }
}

/// The result of a job.
pub(crate) enum Submitted {
    /// A thread verifies it if the request keeps the place until then.
    Waits(Place<Task>),
    /// There is no thread; the verdict is known at once.
    Judged(PasswordResult),
    /// Too many passwords wait, or too many of this origin.
    Refused,
}

/// A job, and the mailbox for its verdict.
pub(crate) type Task = (Job, Sender<Mail>);

/// A worker's handle for submitting jobs to the threads.
pub(crate) struct JobSender(Arc<SharedQueue>);

/// Closes the queue when the last `JobSender` is dropped.
struct SharedQueue(Arc<PasswordQueue<Task>>);

impl Drop for SharedQueue {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl JobSender {
    /// A queue without threads.
    pub(crate) fn new() -> Self {
        Self(Arc::new(SharedQueue(Arc::new(PasswordQueue::new()))))
    }

    /// The threads of the queue, of which none runs yet.
    pub(crate) fn threads(&self) -> VerifierThreads {
        VerifierThreads { queue: Arc::downgrade(&self.0), running: 0 }
    }

    /// The way of the worker with this mailbox.
    pub(crate) fn for_worker(&self, own: Sender<Mail>) -> Verifiers {
        Verifiers { door: Arc::clone(&self.0), own }
    }
}

/// The threads that verify passwords. They end when the entrance and the workers have ended.
#[derive(Default)]
pub(crate) struct VerifierThreads {
    /// The queue.
    queue: Weak<SharedQueue>,
    /// The number of threads.
    running: usize,
}

impl VerifierThreads {
    /// Starts the threads that are missing, if a route of `config` requires passwords.
    ///
    /// # Errors
    /// The kernel refused a thread.
    pub(crate) fn follow(&mut self, config: &Config) -> io::Result<()> {
        let is_needed = config.routes.iter().any(|route| route.handling.auth.is_some());
        let Some(queue) = self.queue.upgrade().filter(|_| is_needed) else { return Ok(()) };
        while self.running < VERIFIERS {
            let queue = Arc::clone(&queue.0);
            threads::spawn(format!("passwords-{}", self.running), move || verify(&queue))?;
            self.running += 1;
        }
        Ok(())
    }
}

fn verify(queue: &PasswordQueue<Task>) -> Ended {
    loop {
        let Some((job, worker)) = queue.take() else { return Ended::AsPlanned };
        let verdict = judge(&job);
        for _ in 0..OFFERS_MAX {
            if worker.send(Mail::PasswordResult(verdict)).is_ok() {
                break;
            }
            std::thread::sleep(OFFER_PAUSE);
        }
    }
}

/// Verifies a password. A wrong one is verified against one hash of each cost in the file, its own among them.
fn judge(job: &Job) -> PasswordResult {
    let own = job.hash.as_deref();
    let is_right = own.is_some_and(|hash| matches(hash, &job.password));
    if !is_right {
        let cost = own.and_then(|hash| HashCost::of(hash).ok());
        for (_, decoy) in job.decoys.iter().filter(|(other, _)| Some(*other) != cost) {
            core::hint::black_box(matches(decoy, &job.password));
        }
    }
    let finding = if is_right { Finding::Right } else { Finding::Wrong };
    PasswordResult { ticket: job.ticket, finding }
}

/// Whether the password has this hash. The libraries compare in constant time.
fn matches(hash: &str, password: &[u8]) -> bool {
    if hash.starts_with("$2") {
        // bcrypt reads only so many bytes, so that any longer password with the same beginning would be right. The time
        // of the refusal is that of a wrong password.
        let is_right = bcrypt::verify(password, hash).unwrap_or(false);
        return is_right && password.len() <= BCRYPT_BYTES_MAX;
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
        let hash = bcrypt::hash("p".repeat(72), 4).expect("a hash");
        assert!(matches(&hash, "p".repeat(72).as_bytes()));
        assert!(!matches(&hash, "p".repeat(73).as_bytes()), "bcrypt reads 72 bytes");
        assert!(!matches("$6$", b"") && !matches("$argon2id$", b"") && !matches("$2y$", b""));
    }
}
