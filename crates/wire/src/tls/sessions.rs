//! Sessions that a client may resume, and until when: who resumes does not see a certificate again.
//! In: tickets as servers give them, ends of what was verified. Out: each ticket once, the newest first.
//! Never: a ticket twice (RFC 8446 appendix C.4); a session of a server that must be verified anew.
//! Limits: `SERVERS_MAX` names; tickets of each as the owner says.
//! Invariant: a resumed session gives further tickets, but puts off no end (RFC 8446 section 4.6.1).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

use super::clock::TlsClock;

/// Servers whose sessions are kept; another one takes the place of the oldest.
const SERVERS_MAX: usize = 256;

/// Sessions by server name.
#[derive(Debug)]
pub(super) struct Sessions {
    tickets_max: usize,
    clock: TlsClock,
    /// The oldest name first; few, so they are looked through.
    servers: Mutex<VecDeque<Known>>,
}

#[derive(Debug)]
struct Known {
    name: ServerName<'static>,
    /// When its certificate must be verified anew, in seconds since 1970.
    verified_until: u64,
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tls13: VecDeque<Tls13ClientSessionValue>,
}

impl Sessions {
    /// Room for `tickets_max` tickets of each server.
    pub(super) fn new(tickets_max: usize, clock: TlsClock) -> Self {
        Self { tickets_max: tickets_max.max(1), clock, servers: Mutex::default() }
    }

    /// The server of that name was verified: its sessions may be resumed until then.
    pub(super) fn note_verified(&self, name: &ServerName<'_>, until_unix_seconds: u64) {
        self.edit(name, |known| known.verified_until = until_unix_seconds);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Known>> {
        // A thread that panicked leaves sessions that are as good as before.
        self.servers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn edit(&self, name: &ServerName<'_>, act: impl FnOnce(&mut Known)) {
        let mut servers = self.lock();
        if !servers.iter().any(|known| known.name == *name) {
            if servers.len() == SERVERS_MAX {
                servers.pop_front();
            }
            let (name, tls13) = (name.to_owned(), VecDeque::new());
            servers.push_back(Known { name, verified_until: 0, group: None, tls12: None, tls13 });
        }
        if let Some(known) = servers.iter_mut().find(|known| known.name == *name) {
            act(known);
        }
    }

    fn find<T>(
        &self,
        name: &ServerName<'_>,
        of: impl FnOnce(&mut Known) -> Option<T>,
    ) -> Option<T> {
        self.lock().iter_mut().find(|known| known.name == *name).and_then(of)
    }

    /// `find`, of a server that need not be verified anew.
    fn find_verified<T>(
        &self,
        name: &ServerName<'_>,
        of: impl FnOnce(&mut Known) -> Option<T>,
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
