//! The thread of the prober, and how a reload reaches it.
//! In: the configuration in force, the addresses of its servers, its TLS settings. Out: a thread "health" as soon as a
//! pool has `health`; mail to it after each reload.
//! Never: starts a thread that no configuration needs.
//! Limits: `MAILS_MAX` messages wait; `CONNECTIONS_MAX` connections at once, further checks wait for a slot.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tidegate_base::Span;
use tidegate_config::arrange::Arranged;
use tidegate_reactor::{EpollReactor, Mailbox, Sender, make_wakers, worker};
use tidegate_secure::{TlsLayer, TlsPlan};

use super::Roster;
use super::prober::Prober;
use super::target::{self, Target};
use crate::log;
use crate::resolve::Addresses;
use crate::slots::NameState;
use crate::threads::{self, Ended};

/// Messages that wait for the prober.
const MAILS_MAX: usize = 16;
/// How long a message that the prober's mailbox refused waits.
const MAIL_PAUSE: Duration = Duration::from_millis(1);
/// Connections of checks at once.
const CONNECTIONS_MAX: u64 = 65_536;
/// Descriptors of the process that are left to its other threads.
const OTHER_DESCRIPTORS: u64 = 256;
/// Connections of checks at once, however few descriptors the process has.
const CONNECTIONS_MIN: u64 = 16;
/// How long the prober waits for events.
const TURN_MAX: Span = Span::from_secs(1);
/// The same, while a worker's mailbox is full.
const RETRY_TURN_MAX: Span = Span::from_millis(10);

/// Mail to the prober.
enum ProberMail {
    /// Check these servers, with this TLS plan.
    Targets(Vec<Target>, TlsPlan),
    /// Check these servers, with the same TLS plan.
    Addresses(Vec<Target>),
    /// Use this TLS plan.
    Tls(TlsPlan),
}

/// The checks of a process.
pub(crate) struct Checks {
    /// The servers of the process.
    roster: Arc<Roster>,
    /// The prober's mailbox; `None` until a configuration has checks.
    prober: Option<Sender<ProberMail>>,
}

impl Checks {
    /// The checks of the configuration that the process starts with.
    ///
    /// # Errors
    /// The kernel refused the thread, or a descriptor that it needs.
    pub(crate) fn start(
        roster: Arc<Roster>,
        arranged: &Arranged,
        addresses: &Addresses,
        plan: &TlsPlan,
    ) -> io::Result<Self> {
        let mut checks = Self { roster, prober: None };
        checks.give_targets(arranged, addresses, plan)?;
        Ok(checks)
    }

    /// Continues with another configuration.
    pub(crate) fn change(
        &mut self,
        arranged: &Arranged,
        addresses: &Addresses,
        (plan, names): (&TlsPlan, &[Vec<NameState>]),
    ) {
        self.roster.arrange(arranged);
        self.roster.note_names(names);
        self.roster.publish_to_all();
        if let Err(error) = self.give_targets(arranged, addresses, plan) {
            log::error(format_args!(
                "health checks are not running: starting their thread failed: {error}"
            ));
        }
    }

    /// Notes what is known about the names of servers, and tells the workers if that has changed.
    pub(crate) fn note_names(&self, names: &[Vec<NameState>]) {
        if self.roster.note_names(names) {
            self.roster.publish_to_all();
        }
    }

    /// Checks servers at these addresses, with the same configuration.
    pub(crate) fn change_addresses(&self, arranged: &Arranged, addresses: &Addresses) {
        self.send(ProberMail::Addresses(target::targets(arranged, addresses)));
    }

    /// Uses other TLS settings for the same configuration.
    pub(crate) fn change_tls(&self, arranged: &Arranged, plan: &TlsPlan) {
        self.send(ProberMail::Tls(target::plan(arranged, plan)));
    }

    fn give_targets(
        &mut self,
        arranged: &Arranged,
        addresses: &Addresses,
        plan: &TlsPlan,
    ) -> io::Result<()> {
        let targets = target::targets(arranged, addresses);
        if self.prober.is_none() && !targets.is_empty() {
            self.prober = Some(spawn(Arc::clone(&self.roster))?);
        }
        self.send(ProberMail::Targets(targets, target::plan(arranged, plan)));
        Ok(())
    }

    fn send(&self, mail: ProberMail) {
        let Some(prober) = &self.prober else { return };
        let mut mail = mail;
        while let Err(refused) = prober.send(mail) {
            mail = refused;
            thread::sleep(MAIL_PAUSE);
        }
    }
}

/// Starts the prober on its own thread.
fn spawn(roster: Arc<Roster>) -> io::Result<Sender<ProberMail>> {
    let waker = make_wakers(1)?.remove(0);
    let mailbox = Mailbox::new(MAILS_MAX, waker.clone());
    let sender = mailbox.sender();
    let socks_max = socks_max(worker::descriptor_limit());
    let prober = Prober::new(roster, crate::randomness::random_seed(), socks_max);
    let (report, reported) = mpsc::sync_channel(1);
    threads::spawn("health", move || match EpollReactor::new(socks_max, waker) {
        Ok(reactor) => {
            let _ = report.send(Ok(()));
            run(reactor, prober, &mailbox)
        }
        Err(error) => {
            let _ = report.send(Err(error));
            Ended::AsPlanned
        }
    })?;
    // The thread always reports; if it panicked, the process ends.
    reported.recv().unwrap_or(Ok(()))?;
    Ok(sender)
}

/// How many connections checks may have at once, in a process with this many descriptors.
fn socks_max(descriptors: u64) -> usize {
    let own = descriptors.saturating_sub(OTHER_DESCRIPTORS);
    usize::try_from(own.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)).unwrap_or(1)
}

/// Checks servers until the process ends.
fn run(mut reactor: EpollReactor, mut prober: Prober, mailbox: &Mailbox<ProberMail>) -> Ended {
    let mut layer = TlsLayer::new(&TlsPlan::default(), Vec::new(), ());
    let mut wait = TURN_MAX;
    loop {
        layer.turn(&mut reactor, &mut prober, wait);
        while let Some(mail) = mailbox.take() {
            match mail {
                ProberMail::Targets(targets, plan) => {
                    layer.replace_plan(&plan);
                    layer.between_turns(&mut reactor, &mut prober, |prober, view| {
                        prober.change(view, targets);
                        prober.drop_secured(view);
                    });
                }
                ProberMail::Addresses(targets) => {
                    layer.between_turns(&mut reactor, &mut prober, |prober, view| {
                        prober.change(view, targets);
                    });
                }
                ProberMail::Tls(plan) => {
                    layer.replace_plan(&plan);
                    layer.between_turns(&mut reactor, &mut prober, |prober, view| {
                        prober.drop_secured(view);
                    });
                }
            }
        }
        wait = if prober.publish() { RETRY_TURN_MAX } else { TURN_MAX };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prober_has_slots_however_few_descriptors_the_process_has() {
        let slots = [64, 256, 272, 1024, 1 << 20].map(socks_max);
        assert_eq!(slots, [16, 16, 16, 768, 65_536]);
    }
}
