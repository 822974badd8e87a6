//! Sessions that a client may resume, and how long: a resumed handshake does not verify the certificate.
//! In: tickets from servers, and the time when a verification expires. Out: each ticket once, newest first.
//! Never: returns a ticket twice (RFC 8446 appendix C.4), or a session whose server must be verified again.
//! Limits: `SERVERS_MAX` names; `tickets_max` tickets for each.
//! Invariant: a resumed session brings new tickets, but does not extend the time until the server must be
//! verified again (RFC 8446 section 4.6.1).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

use super::clock::TlsClock;

/// Servers whose sessions are kept; a further server replaces the oldest.
const SERVERS_MAX: usize = 256;

/// Sessions by server name.
#[derive(Debug)]
pub(super) struct Sessions {
    /// TLS 1.3 tickets kept for each server; at least 1.
    tickets_max: usize,
    /// The time that `verified_until` is compared with.
    clock: TlsClock,
    /// The servers, oldest first, up to `SERVERS_MAX`; searched linearly, since there are few.
    servers: Mutex<VecDeque<ServerSessions>>,
}

/// The sessions of one server.
#[derive(Debug)]
struct ServerSessions {
    name: ServerName<'static>,
    /// When the certificate must be verified again, in seconds since 1970; 0 if it was never verified.
    verified_until: u64,
    /// The key exchange group that the server chose last.
    group: Option<NamedGroup>,
    /// The latest TLS 1.2 session.
    tls12: Option<Tls12ClientSessionValue>,
    /// TLS 1.3 tickets, oldest first, up to `tickets_max`.
    tls13: VecDeque<Tls13ClientSessionValue>,
}

impl Sessions {
    /// Creates a store for `tickets_max` tickets of each server.
    pub(super) fn new(tickets_max: usize, clock: TlsClock) -> Self {
        Self { tickets_max: tickets_max.max(1), clock, servers: Mutex::default() }
    }

    /// Records that the server was verified and that its sessions may be resumed until this time.
    pub(super) fn note_verified(&self, name: &ServerName<'_>, until_unix_seconds: u64) {
        self.edit(name, |known| known.verified_until = until_unix_seconds);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ServerSessions>> {
        // A thread that panicked while it held the lock left the sessions in a valid state.
        self.servers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn edit(&self, name: &ServerName<'_>, act: impl FnOnce(&mut ServerSessions)) {
        let mut servers = self.lock();
        if !servers.iter().any(|known| known.name == *name) {
            if servers.len() == SERVERS_MAX {
                servers.pop_front();
            }
            servers.push_back(ServerSessions {
                name: name.to_owned(),
                verified_until: 0,
                group: None,
                tls12: None,
                tls13: VecDeque::new(),
            });
        }
        if let Some(known) = servers.iter_mut().find(|known| known.name == *name) {
            act(known);
        }
    }

    fn find<T>(
        &self,
        name: &ServerName<'_>,
        of: impl FnOnce(&mut ServerSessions) -> Option<T>,
    ) -> Option<T> {
        self.lock().iter_mut().find(|known| known.name == *name).and_then(of)
    }

    /// Like `find`, but `None` if the server must be verified again.
    fn find_verified<T>(
        &self,
        name: &ServerName<'_>,
        of: impl FnOnce(&mut ServerSessions) -> Option<T>,
    ) -> Option<T> {
        let now = self.clock.unix_seconds();
        self.find(name, |known| if now < known.verified_until { of(known) } else { None })
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.edit(&name, |known| known.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.find(name, |known| known.group)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.edit(&name, |known| known.tls12 = Some(value));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.find_verified(name, |known| known.tls12.clone())
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.find(name, |known| known.tls12.take());
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.edit(&name, |known| {
            if known.tls13.len() == self.tickets_max {
                known.tls13.pop_front();
            }
            known.tls13.push_back(value);
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.find_verified(name, |known| known.tls13.pop_back())
    }
}
