//! TLS of the admin interface: its certificate, and the certificates of operators.
//! In: `tls` of `[admin]`. Out: the sessions of accepted connections.
//! Never: takes part of changed files: if one cannot be used, the previous ones stay in use, and the log says why.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

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
    /// The content of the files, and their signature when they were read.
    in_use: Mutex<(Signature, Acceptor)>,
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
        Ok(Some(Self { admin: admin.clone(), clock, in_use: Mutex::new((seen, acceptor)) }))
    }

    /// The permissions of a client with a valid certificate with these names. A certificate without names, or whose names cannot
    /// be read, may belong to a client that may only read.
    pub(super) fn rights_of(&self, names: Option<&[String]>) -> Rights {
        let readers = self.admin.tls.as_ref().map_or(&[][..], |tls| &tls.read_clients);
        rights_among(readers, names)
    }

    /// The session of a new connection.
    pub(super) fn accept(&self) -> Option<TlsSession> {
        self.clock.set(unix_seconds());
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Signature::of_paths(&paths(&self.admin));
        if now != in_use.0 {
            in_use.0 = now;
            match load(&self.admin, &self.clock) {
                Ok(Some(acceptor)) => in_use.1 = acceptor,
                Ok(None) => {}
                Err(text) => log::error(format_args!("{text}; the previous ones stay in use")),
            }
        }
        in_use.1.accept().ok()
    }
}

fn rights_among(readers: &[String], names: Option<&[String]>) -> Rights {
    let is_listed = |name: &String| readers.iter().any(|reader| covers(name, reader));
    let may_do_all = match names {
        // A certificate without such a name cannot be listed.
        Some(names) => !names.is_empty() && !names.iter().any(is_listed),
        None => false,
    };
    if may_do_all || readers.is_empty() { Rights::All } else { Rights::Read }
}

/// Whether a name of a certificate is the listed one, or a wildcard name that stands for it.
fn covers(name: &str, reader: &str) -> bool {
    if is_same(name, reader) {
        return true;
    }
    let parent = reader.split_once('.').map(|(_, parent)| parent);
    name.strip_prefix("*.").zip(parent).is_some_and(|(of, parent)| is_same(of, parent))
}

/// Whether two names differ at most in the case of letters, in spaces that have no meaning (RFC 4518 section 2.6.1), and in a final dot.
fn is_same(one: &str, other: &str) -> bool {
    let words = |text: &'_ str| -> Vec<String> {
        let text = text.trim().to_ascii_lowercase();
        text.strip_suffix('.').unwrap_or(&text).split_whitespace().map(str::to_owned).collect()
    };
    words(one) == words(other)
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
    fn certificate_with_a_listed_name_may_only_read() {
        let texts =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let readers = texts(&["monitoring", "Prom.example"]);
        for (names, rights) in [
            (Some(&["monitoring"][..]), Rights::Read),
            (Some(&["MONITORING"]), Rights::Read),
            (Some(&["alice", "prom.EXAMPLE"]), Rights::Read),
            (Some(&["alice"]), Rights::All),
            (Some(&["monitoring2", "a.prom.example"]), Rights::All),
            (Some(&["alice", " Monitoring "]), Rights::Read),
            (Some(&["prom.example."]), Rights::Read),
            (Some(&["*.example"]), Rights::Read),
            (Some(&["*.prom.example", "*.a.example", "*"]), Rights::All),
            (Some(&[]), Rights::Read),
            (None, Rights::Read),
        ] {
            let names = names.map(texts);
            assert_eq!(rights_among(&readers, names.as_deref()), rights, "{names:?}");
            assert_eq!(rights_among(&[], names.as_deref()), Rights::All, "{names:?}");
        }
    }
}
