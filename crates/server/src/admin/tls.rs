//! TLS of the admin interface: its certificate, and the certificates of operators.
//! In: `tls` of `[admin]`. Out: the sessions of accepted connections.
//! Never: takes part of changed files: if one cannot be used, the previous ones stay in use, and the log says why.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_config::model::Admin;
use tidegate_wire::tls::{Acceptor, TlsClock, TlsSession};

use super::token::Rights;
use crate::certificates::load_admin;
use crate::log;
use crate::reload::{Signature, unix_seconds};

/// The TLS settings of the interface.
pub(super) struct Secrets {
    /// The settings.
    admin: Admin,
    /// The time by which certificates are verified.
    clock: TlsClock,
    /// What the files contain.
    in_use: Mutex<InUse>,
}

/// The content of the files.
struct InUse {
    /// The signature of the files when they were read.
    seen: Signature,
    /// Begins sessions with the certificates.
    acceptor: Acceptor,
    /// How often the files have been replaced.
    generation: u64,
}

impl Secrets {
    /// Reads the files; `None` if the interface does not use TLS.
    ///
    /// # Errors
    /// The files cannot be used; the message says which.
    pub(super) fn read(admin: &Admin) -> Result<Option<Self>, String> {
        let clock = TlsClock::default();
        clock.set(unix_seconds());
        let seen = Signature::of_paths(&paths(admin));
        let Some(acceptor) = load(admin, &clock)? else { return Ok(None) };
        let in_use = Mutex::new(InUse { seen, acceptor, generation: 0 });
        Ok(Some(Self { admin: admin.clone(), clock, in_use }))
    }

    /// The permissions of a client with a valid certificate with these names. `None`: the names cannot be read.
    pub(super) fn rights_of(&self, names: Option<&[String]>) -> Rights {
        let writers = self.admin.tls.as_ref().and_then(|tls| tls.write_clients.as_deref());
        rights_among(writers, names)
    }

    /// The session of a new connection, and the generation of the files, for `is_current`.
    pub(super) fn accept(&self) -> Option<(TlsSession, u64)> {
        self.clock.set(unix_seconds());
        let in_use = self.renew();
        in_use.acceptor.accept().ok().map(|session| (session, in_use.generation))
    }

    /// Whether the files are those with which a session began: the certificate of its client may have been revoked since.
    pub(super) fn is_current(&self, generation: u64) -> bool {
        self.renew().generation == generation
    }

    /// Reads the files again if they have changed.
    fn renew(&self) -> MutexGuard<'_, InUse> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Signature::of_paths(&paths(&self.admin));
        if now != in_use.seen {
            in_use.seen = now;
            match load(&self.admin, &self.clock) {
                Ok(Some(acceptor)) => {
                    in_use.acceptor = acceptor;
                    in_use.generation += 1;
                }
                Ok(None) => {}
                Err(text) => log::error(format_args!("{text}; the previous ones stay in use")),
            }
        }
        in_use
    }
}

/// The permissions of a certificate with these names. `writers`: the names of certificates that may change something; `None`: all
/// certificates may. A certificate whose names cannot be read has no listed name.
fn rights_among(writers: Option<&[String]>, names: Option<&[String]>) -> Rights {
    let is_writer = |name: &String| {
        writers.is_none_or(|list| list.iter().any(|one| one.eq_ignore_ascii_case(name)))
    };
    match writers.is_none() || names.unwrap_or_default().iter().any(is_writer) {
        true => Rights::All,
        false => Rights::Read,
    }
}

fn load(admin: &Admin, clock: &TlsClock) -> Result<Option<Acceptor>, String> {
    let mut faults = Vec::new();
    let acceptor = load_admin(admin, clock, &mut faults);
    match faults.is_empty() {
        true => Ok(acceptor),
        false => {
            let texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
            Err(format!(
                "the certificates of the admin interface cannot be used: {}",
                texts.join("; ")
            ))
        }
    }
}

fn paths(admin: &Admin) -> Vec<PathBuf> {
    let Some(tls) = &admin.tls else { return Vec::new() };
    let own = [&tls.certificate.cert, &tls.certificate.key];
    own.into_iter().chain(&tls.client_ca).chain(&tls.client_crl).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certificates_with_a_listed_name_may_change_something() {
        let texts =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let writers = texts(&["alice", "Ops.example"]);
        for (names, rights) in [
            (Some(&["alice"][..]), Rights::All),
            (Some(&["ALICE"]), Rights::All),
            (Some(&["monitoring", "ops.EXAMPLE"]), Rights::All),
            (Some(&["monitoring"]), Rights::Read),
            (Some(&["alice2", "a.ops.example", "ali"]), Rights::Read),
            (Some(&["*.example", "*"]), Rights::Read),
            (Some(&[""]), Rights::Read),
            (Some(&[]), Rights::Read),
            (None, Rights::Read),
        ] {
            let names = names.map(texts);
            assert_eq!(rights_among(Some(&writers), names.as_deref()), rights, "{names:?}");
            assert_eq!(rights_among(Some(&[]), names.as_deref()), Rights::Read, "{names:?}");
            assert_eq!(rights_among(None, names.as_deref()), Rights::All, "{names:?}");
        }
    }
}
