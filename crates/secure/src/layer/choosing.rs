//! Handshakes whose certificate the handler chooses, on listeners that ask for it (`AcceptorSettings::asks_for_choice`).
//! In: the first bytes of a connection; choices of the handler. Out: a session with the chosen certificate.
//! Never: delays a connection of another listener; passes a byte to the session before the choice.
//! Limits: `PEEK_BYTES_MAX` bytes wait for a ClientHello, and one read while the handler chooses; the timeout of the handshake
//! applies to the choice, too.

use tidegate_base::CertificateChoice;
use tidegate_reactor::{CloseReason, Reactor, SockId};
use tidegate_wire::tls::{Acceptor, HelloPeek, Peeked};

use super::{Stack, TlsLayer};
use crate::handler::{Event, Hello, LayerHandler, TlsObserver};

/// A connection whose certificate is not chosen yet. Its received bytes are in `Conn::input`.
pub(super) struct Choosing {
    /// The part of the ClientHello that was examined.
    peek: HelloPeek,
    /// The acceptor of the connection.
    acceptor: Acceptor,
    /// The handler was asked.
    is_asked: bool,
    /// What the handler has chosen.
    choice: Option<CertificateChoice>,
}

impl Choosing {
    /// The state of a connection that was just accepted; `None` if the listener does not ask for choices.
    pub(super) fn of(acceptor: &Acceptor) -> Option<Box<Self>> {
        acceptor.asks_for_choice().then(|| {
            Box::new(Self {
                peek: HelloPeek::default(),
                acceptor: acceptor.clone(),
                is_asked: false,
                choice: None,
            })
        })
    }
}

impl<O: TlsObserver> TlsLayer<O> {
    /// Notes the choice of the handler. `settle` continues the handshake.
    pub(super) fn note_choice(&mut self, sock: SockId, choice: CertificateChoice) {
        let Some(conn) = self.conn(sock) else { return };
        let Some(choosing) = conn.choosing.as_deref_mut() else { return };
        if choosing.is_asked && choosing.choice.is_none() {
            choosing.choice = Some(choice);
            self.chosen.push(sock);
        }
    }
}

impl<O: TlsObserver, H: LayerHandler> Stack<'_, O, H> {
    /// Takes the first bytes of a connection. Once its ClientHello is complete, asks the handler for the certificate.
    pub(super) fn receive_hello<R: Reactor>(&mut self, inner: &mut R, sock: SockId, bytes: &[u8]) {
        let Some(conn) = self.layer.conn(sock) else { return };
        conn.input.extend_from_slice(bytes);
        let Some(choosing) = conn.choosing.as_deref_mut().filter(|own| !own.is_asked) else {
            return;
        };
        let mut scratch = Vec::new();
        let name = match choosing.peek.look(&conn.input, &mut scratch) {
            Peeked::Incomplete => return,
            Peeked::Hello(name) => name.map(str::to_owned),
            // The session reports what is wrong.
            Peeked::NotTls | Peeked::Malformed => {
                choosing.is_asked = true;
                return self.layer.note_choice(sock, CertificateChoice::Requested);
            }
        };
        choosing.is_asked = true;
        let certificates = choosing.acceptor.certificates().clone();
        inner.set_receiving(sock, false);
        let hello = Hello { name: name.as_deref(), certificates: &certificates };
        self.with_handler(inner, |handler, view| handler.choose_certificate(view, sock, &hello));
    }

    /// Continues a handshake whose certificate is chosen, in this turn if its budget for handshakes permits.
    pub(super) fn continue_chosen<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let Some(conn) = self.layer.conn(sock) else { return };
        let Some(choosing) = conn.choosing.take() else { return };
        let Choosing { acceptor, choice, .. } = *choosing;
        match acceptor.accept_with(choice.unwrap_or_default()) {
            Ok(session) => conn.session = session,
            Err(_) => {
                self.layer.observer.count(Event::Bug);
                return self.give_up(inner, sock, CloseReason::Reset);
            }
        }
        if self.layer.handshakes_left == 0 {
            return self.postpone(inner, sock);
        }
        self.layer.handshakes_left -= 1;
        let Some(conn) = self.layer.conn(sock) else { return };
        let mut input = core::mem::take(&mut conn.input);
        inner.set_receiving(sock, true);
        self.process(inner, sock, &mut input);
    }
}
