//! Handshakes of TLS for which a script chooses the certificate (`on_certificate`).
//! In: what the client requests, the certificates of the listener. Out: choices (`Effect::ChooseCertificate`).
//! Never: chooses twice for a handshake, or after its deadline; chooses a certificate that the listener does not have.
//! Limits: `HELLOS_MAX` handshakes at once; the deadline of each.
//! Invariant: a handshake names its coroutine exactly while it waits.

use std::sync::Arc;

use tidegate_base::{CertificateChoice, Id, Moment};
use tidegate_wire::tls::CertificateFacts;

use crate::engine::{Argument, Entry};
use crate::host::{Effect, Host};
use crate::schedule::{Owner, TaskId};
use crate::vm::{CallbackEnd, Vm, numbers};

/// Maximum number of handshakes that wait for a script.
pub(crate) const HELLOS_MAX: usize = 4096;
/// The name of the handler in messages.
pub(crate) const ON_CERTIFICATE: &str = "on_certificate";

/// A handshake for which a script chooses the certificate.
#[derive(Debug)]
pub struct TlsHello {
    /// The worker's tag of the handshake.
    tag: u64,
    /// When its handler is stopped at the latest.
    pub(crate) by: Moment,
    /// The coroutine of its handler, while it waits.
    pub(crate) task: TaskId,
    /// What `on_certificate` gets.
    parts: TlsHelloParts,
}

impl TlsHello {
    /// The worker's tag.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }
}

/// Names a handshake of a VM.
pub type TlsHelloId = Id<TlsHello>;

/// What `on_certificate` gets.
#[derive(Clone, Debug)]
pub struct TlsHelloParts {
    /// The name that the client requests; empty if it requests none.
    pub name: String,
    /// The name of the listener.
    pub listener: String,
    /// The client's address.
    pub client: String,
    /// The certificates of the listener.
    pub certificates: Arc<[CertificateFacts]>,
}

impl Host {
    /// The script has chosen a certificate.
    pub(crate) fn choose_certificate(
        &mut self,
        id: TlsHelloId,
        choice: CertificateChoice,
    ) -> Result<(), String> {
        let hello = self.hellos.get(id).ok_or("the handshake has ended")?;
        let certificates = &hello.parts.certificates;
        match &choice {
            CertificateChoice::Named(name) if !certificates.iter().any(|own| own.covers(name)) => {
                return Err(format!("the listener has no certificate for the name '{name}'"));
            }
            CertificateChoice::Index(at) if *at >= certificates.len() => {
                let (number, count) = (at.saturating_add(1), certificates.len());
                return Err(format!("the listener has no certificate {number}; it has {count}"));
            }
            CertificateChoice::Named(_)
            | CertificateChoice::Index(_)
            | CertificateChoice::Requested
            | CertificateChoice::Refused => {}
        }
        let tag = hello.tag;
        self.hellos.remove(id);
        self.outbox.effects.push(Effect::ChooseCertificate { tag, choice });
        Ok(())
    }
}

impl Vm {
    /// Takes over a handshake; `tag` is the worker's tag, `by` the deadline. `None` if too many wait.
    pub fn open_hello(&mut self, tag: u64, by: Moment, parts: TlsHelloParts) -> Option<TlsHelloId> {
        self.engine.host().hellos.insert(TlsHello { tag, by, task: Id::NONE, parts }).ok()
    }

    /// Runs `on_certificate`. Unless it fails, `Effect::ChooseCertificate` follows, now or later.
    pub fn hello(&mut self, id: TlsHelloId) -> CallbackEnd {
        let Some(hello) = self.engine.host().hellos.get(id) else { return CallbackEnd::Done };
        let parts = hello.parts.clone();
        let [index, generation] = numbers(id);
        let arguments = [
            index,
            generation,
            Argument::Bytes(parts.name.as_bytes()),
            Argument::Bytes(parts.listener.as_bytes()),
            Argument::Bytes(parts.client.as_bytes()),
        ];
        self.run(Entry::Certificate, (Owner::Hello(id), ON_CERTIFICATE), &arguments)
    }

    /// Forgets a handshake whose choice is not wanted any more.
    pub fn close_hello(&mut self, id: TlsHelloId) {
        let host = self.engine.host();
        if let Some(hello) = host.hellos.remove(id) {
            host.schedule.cancel(hello.task);
        }
        self.forget_dropped();
    }

    /// The number of handshakes that wait for the script.
    #[must_use]
    pub fn hellos(&self) -> usize {
        self.engine.peek().hellos.len()
    }
}
