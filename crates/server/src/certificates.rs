//! Loads the TLS files: certificates, keys, certificate authorities, revocation lists, ticket keys.
//! In: a configuration. Out: a `TlsPlan`, or a list of the files that cannot be used, each with the reason.
//! Never: returns a partial plan: if anything is wrong, the previous plan stays in force.
//! Limits: each file has up to `FILE_BYTES_MAX` bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_config::arrange::{Arranged, Life};
use tidegate_config::findings::{Finding, Owner, SERVER_NAME, TLS};
use tidegate_config::model::{
    Admin, CertificatePaths, ClientAuth, Config, ListenerTls, Pool, PoolTls, ProxyVersion,
    ServerAddress, SlotSource, TicketSource, TlsIdentity, TlsVersion,
};
use tidegate_config::report::Kind;
use tidegate_gate::handling::needs_server_name;
use tidegate_secure::{ListenerPlan, PoolPlan, ServerPlan, TlsPlan};
use tidegate_wire::tls::{
    self, Acceptor, AcceptorSettings, CertificateFiles, Connector, ConnectorSettings, PeerIdentity,
    Roots, SetupFault, SetupKind, TicketKeys, TlsClock, Version,
};

use crate::files;

/// Maximum size in bytes of one file. Bundles of certificate authorities are the largest files.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A TLS file or setting that cannot be used.
#[derive(Debug)]
pub struct TlsFault {
    /// The listener or pool that uses it.
    pub owner: Owner,
    /// Its name, for messages: `listener web`.
    pub place: String,
    /// The file, or the setting if no file is at fault.
    pub subject: String,
    /// What is wrong, and the fix.
    pub what: String,
}

impl core::fmt::Display for TlsFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.subject, self.what)
    }
}
impl std::error::Error for TlsFault {}

impl From<TlsFault> for Finding {
    fn from(fault: TlsFault) -> Self {
        let TlsFault { owner, subject, what, .. } = fault;
        Self { kind: Kind::Certificate, owner, subject, what, help: None }
    }
}

/// Loads TLS files, and holds the state that outlives a reload: the clock and the ticket keys.
#[derive(Debug, Default)]
pub struct TlsLoader {
    clock: TlsClock,
    /// Random ticket keys of this process.
    own_tickets: Option<Arc<TicketKeys>>,
    /// Ticket keys that were read from files, by path.
    file_tickets: BTreeMap<String, Arc<TicketKeys>>,
    /// Ticket keys in use, with the new contents of their files. Applied only if the whole load succeeds.
    changed_tickets: Vec<(Arc<TicketKeys>, TicketKeys)>,
    self_signed: Option<CertificateFiles>,
    /// The last plan, from which removed listeners and pools keep their settings.
    last: TlsPlan,
    /// A route uses the server name that clients request, or a pool sends PROXY headers of version 2, which contain it.
    keeps_names: bool,
}

impl TlsLoader {
    /// Reads every file that `config` names. A missing self-signed certificate is generated and stored if
    /// `make` is true; pass false to check a configuration.
    ///
    /// # Errors
    /// A fault for each file or setting that cannot be used.
    pub fn load(
        &mut self,
        config: &Config,
        now_unix_seconds: u64,
        make: bool,
    ) -> Result<TlsPlan, Vec<TlsFault>> {
        self.load_except(config, now_unix_seconds, make, |_| false)
    }

    /// Reads every file that the configuration names. Removed listeners and pools keep their settings: their files may have been
    /// deleted, too.
    ///
    /// # Errors
    /// A fault for each file or setting that cannot be used.
    pub(crate) fn load_arranged(
        &mut self,
        arranged: &Arranged,
        now_unix_seconds: u64,
    ) -> Result<TlsPlan, Vec<TlsFault>> {
        let is_gone = |owner| match owner {
            Owner::Listener(index) => arranged.listeners.get(index).is_some_and(Life::is_gone),
            Owner::Pool(index) => arranged.pools.get(index).is_some_and(|pool| pool.life.is_gone()),
            Owner::Lua(_)
            | Owner::Push(_)
            | Owner::Route(_)
            | Owner::Set(_)
            | Owner::Map(_)
            | Owner::Admin
            | Owner::Log
            | Owner::Traces => false,
        };
        self.load_except(&arranged.config, now_unix_seconds, true, is_gone)
    }

    fn load_except(
        &mut self,
        config: &Config,
        now_unix_seconds: u64,
        make: bool,
        keeps: impl Fn(Owner) -> bool,
    ) -> Result<TlsPlan, Vec<TlsFault>> {
        self.clock.set(now_unix_seconds);
        let mut plan = TlsPlan { clock: self.clock.clone(), ..TlsPlan::default() };
        self.keeps_names = needs_server_name(config)
            || config.pools.iter().any(|pool| pool.proxy_protocol == Some(ProxyVersion::V2));
        let mut faults = Vec::new();
        for (index, listener) in config.listeners.iter().enumerate() {
            if keeps(Owner::Listener(index)) {
                plan.listeners.push(self.last.listeners.get(index).cloned().flatten());
                continue;
            }
            plan.listeners.push(listener.tls.as_ref().and_then(|tls| {
                let mut reading = Reading::new(Owner::Listener(index), &listener.name, &mut faults);
                self.load_listener(tls, &mut reading, now_unix_seconds, make)
            }));
        }
        for (index, pool) in config.pools.iter().enumerate() {
            if keeps(Owner::Pool(index)) {
                plan.pools.push(self.last.pools.get(index).cloned().flatten());
                continue;
            }
            plan.pools.push(pool.tls.as_ref().and_then(|tls| {
                let mut reading = Reading::new(Owner::Pool(index), &pool.name, &mut faults);
                load_pool(pool, tls, &mut reading, &self.clock)
            }));
        }
        let changed = core::mem::take(&mut self.changed_tickets);
        if !faults.is_empty() {
            return Err(faults);
        }
        for (keys, by) in changed {
            keys.replace(by);
        }
        self.last = plan.clone();
        Ok(plan)
    }

    /// Renews the random ticket keys of this process if they are old.
    pub fn rotate_tickets(&self, now_unix_seconds: u64) {
        if let Some(keys) = &self.own_tickets {
            keys.rotate(now_unix_seconds);
        }
    }

    fn load_listener(
        &mut self,
        tls: &ListenerTls,
        reading: &mut Reading<'_>,
        now_unix_seconds: u64,
        make: bool,
    ) -> Option<ListenerPlan> {
        // All files are read before the first fault ends the load, so that every fault is reported at once.
        let (certificates, paths) = match &tls.identity {
            TlsIdentity::SelfSigned if !make => (None, Vec::new()),
            TlsIdentity::SelfSigned => (self.self_signed(reading).map(|own| vec![own]), Vec::new()),
            TlsIdentity::Files(paths) => {
                let files: Vec<_> = paths.iter().map(|paths| reading.certificate(paths)).collect();
                (files.into_iter().collect(), paths.clone())
            }
        };
        let authorities = reading.file_if_named(tls.client_ca.as_ref());
        let revocations = reading.file_if_named(tls.client_crl.as_ref());
        let tickets = match &tls.tickets {
            TicketSource::Off => Some(None),
            TicketSource::Own => self.own_tickets(reading, now_unix_seconds).map(Some),
            TicketSource::File(path) => self.file_tickets(path, reading).map(Some),
        };
        let (client_authorities_pem, client_revocations_pem) =
            (authorities?.unwrap_or_default(), revocations?);
        let settings = AcceptorSettings {
            certificates: certificates?,
            strict_names: tls.strict_sni,
            version_min: version(tls.version_min),
            ciphers: tls.ciphers.clone(),
            groups: tls.curves.clone(),
            alpn: tls.alpn.clone(),
            client_auth: match tls.client_auth {
                ClientAuth::Off => tls::ClientAuth::Off,
                ClientAuth::Optional => tls::ClientAuth::Optional,
                ClientAuth::Required => tls::ClientAuth::Required,
            },
            client_authorities_pem,
            client_revocations_pem,
            keeps_names: self.keeps_names,
            asks_for_choice: tls.lua.is_some(),
            ..AcceptorSettings::default()
        };
        match Acceptor::new(&settings, tickets?, self.clock.clone()) {
            Ok(acceptor) => {
                Some(ListenerPlan { acceptor, handshake_timeout: tls.handshake_timeout })
            }
            Err(fault) => {
                let lists: Vec<_> = tls.client_crl.iter().cloned().collect();
                reading.fault(subject_of(&fault, &paths, tls.client_ca.as_ref(), &lists), fault);
                None
            }
        }
    }

    fn own_tickets(&mut self, reading: &mut Reading<'_>, now: u64) -> Option<Arc<TicketKeys>> {
        if self.own_tickets.is_none() {
            match TicketKeys::random(now) {
                Ok(keys) => self.own_tickets = Some(Arc::new(keys)),
                Err(fault) => reading.fault("tickets".to_owned(), fault),
            }
        }
        self.own_tickets.clone()
    }

    fn file_tickets(&mut self, path: &str, reading: &mut Reading<'_>) -> Option<Arc<TicketKeys>> {
        let text = String::from_utf8_lossy(&reading.file(path)?).into_owned();
        let read = match TicketKeys::from_text(&text) {
            Ok(read) => read,
            Err(fault) => {
                reading.fault(path.to_owned(), fault);
                return None;
            }
        };
        if let Some(keys) = self.file_tickets.get(path) {
            self.changed_tickets.push((Arc::clone(keys), read));
            return Some(Arc::clone(keys));
        }
        let keys = Arc::new(read);
        self.file_tickets.insert(path.to_owned(), Arc::clone(&keys));
        Some(keys)
    }

    fn self_signed(&mut self, reading: &mut Reading<'_>) -> Option<CertificateFiles> {
        if self.self_signed.is_none() {
            match self_signed_in(&state_folder()) {
                Ok(files) => self.self_signed = Some(files),
                Err(error) => {
                    let what = format!("cannot store the self-signed certificate: {error}");
                    reading.note(state_folder().display().to_string(), what);
                }
            }
        }
        self.self_signed.clone()
    }
}

/// Reads the TLS files of the admin interface; `None` if it does not use TLS, or a file cannot be used.
pub(crate) fn load_admin(
    admin: &Admin,
    clock: &TlsClock,
    faults: &mut Vec<TlsFault>,
) -> Option<Acceptor> {
    let tls = admin.tls.as_ref()?;
    let mut reading = Reading::new(Owner::Admin, "[admin]", faults);
    let certificate = reading.certificate(&tls.certificate);
    let authorities = reading.file_if_named(tls.client_ca.as_ref());
    let revocations = reading.file_if_named(tls.client_crl.as_ref());
    let settings = AcceptorSettings {
        certificates: vec![certificate?],
        client_auth: match (&tls.client_ca, &admin.token_file) {
            (None, _) => tls::ClientAuth::Off,
            (Some(_), Some(_)) => tls::ClientAuth::Optional,
            (Some(_), None) => tls::ClientAuth::Required,
        },
        client_authorities_pem: authorities?.unwrap_or_default(),
        client_revocations_pem: revocations?,
        ..AcceptorSettings::default()
    };
    match Acceptor::new(&settings, None, clock.clone()) {
        Ok(acceptor) => Some(acceptor),
        Err(fault) => {
            let (own, lists) = ([tls.certificate.clone()], tls.client_crl.iter().cloned());
            let lists: Vec<_> = lists.collect();
            reading.fault(subject_of(&fault, &own, tls.client_ca.as_ref(), &lists), fault);
            None
        }
    }
}

fn load_pool(
    pool: &Pool,
    tls: &PoolTls,
    reading: &mut Reading<'_>,
    clock: &TlsClock,
) -> Option<PoolPlan> {
    // All files are read before the first fault ends the load, so that every fault is reported at once.
    let roots = match (&tls.ca, tls.verify) {
        (_, false) => Some(Roots::Unverified),
        (Some(path), true) => reading.file(path).map(Roots::Authorities),
        (None, true) => Some(Roots::System(tidegate_secure::system_roots())),
    };
    let lists: Vec<_> = tls.crl.iter().map(|path| reading.file(path)).collect();
    let client_certificate = match &tls.client_cert {
        Some(paths) => reading.certificate(paths).map(Some),
        None => Some(None),
    };
    let servers = plan_servers(pool, tls, reading);
    let lists = lists.into_iter().collect::<Option<Vec<_>>>()?;
    let settings = ConnectorSettings {
        roots: roots?,
        // The last line of a file may lack its newline.
        revocations_pem: (!lists.is_empty()).then(|| lists.join(&b'\n')),
        client_certificate: client_certificate?,
        version_min: version(tls.version_min),
        ciphers: tls.ciphers.clone(),
        groups: tls.curves.clone(),
        alpn: tls.alpn.clone(),
        resume: tls.resume,
        ..ConnectorSettings::default()
    };
    match Connector::new(&settings, clock.clone()) {
        Ok(connector) => Some(PoolPlan { name: pool.name.clone(), connector, servers: servers? }),
        Err(fault) => {
            let own: Vec<_> = tls.client_cert.iter().cloned().collect();
            reading.fault(subject_of(&fault, &own, tls.ca.as_ref(), &tls.crl), fault);
            None
        }
    }
}

/// The name that each server's certificate is verified against, and the server's name in the log.
fn plan_servers(pool: &Pool, tls: &PoolTls, reading: &mut Reading<'_>) -> Option<Vec<ServerPlan>> {
    let (mut servers, mut sound) = (Vec::new(), true);
    for server in &pool.servers {
        let (own_name, mut place) = match &server.address {
            ServerAddress::Ip(address) => (address.ip().to_string(), address.to_string()),
            ServerAddress::Name(name, port) => (name.clone(), format!("{name}:{port}")),
            ServerAddress::Unix(path) => (String::new(), format!("unix:{path}")),
            ServerAddress::Slot(slot) => match &*slot.source {
                SlotSource::Name(name, _) => (name.clone(), slot.source.to_string()),
                SlotSource::Srv(name) => (String::new(), name.clone()),
            },
        };
        if let Some(name) = &tls.server_name {
            place = format!("{place} as {name}");
        }
        let name = tls.server_name.clone().unwrap_or(own_name);
        if Connector::check_name(&name).is_err() {
            let what = match name.as_str() {
                "" => format!(
                    "{place} has no host name to verify; add server-name = \"app.internal\""
                ),
                name => {
                    format!("{name:?} is not a valid host name; set server-name = \"app.internal\"")
                }
            };
            reading.note(SERVER_NAME.to_owned(), what);
            sound = false;
        }
        servers.push(ServerPlan { name, place });
    }
    sound.then_some(servers)
}

/// Checks that every TLS file of `config` can be used. Generates and stores nothing.
///
/// # Errors
/// A fault for each file or setting that cannot be used.
pub fn check(config: &Config) -> Result<(), Vec<TlsFault>> {
    let loaded = TlsLoader::default().load(config, crate::reload::unix_seconds(), false);
    let mut faults = loaded.err().unwrap_or_default();
    if let Some(admin) = &config.admin {
        // A running interface reads these files itself.
        let _ = load_admin(admin, &TlsClock::default(), &mut faults);
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The paths of all TLS files of `config`.
#[must_use]
pub fn paths(config: &Config) -> Vec<PathBuf> {
    let mut found: Vec<&String> = Vec::new();
    for tls in config.listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
        if let TlsIdentity::Files(files) = &tls.identity {
            for paths in files {
                found.extend([&paths.cert, &paths.key]);
                found.extend(&paths.ocsp);
            }
        }
        found.extend(&tls.client_ca);
        found.extend(&tls.client_crl);
        if let TicketSource::File(path) = &tls.tickets {
            found.push(path);
        }
    }
    for tls in config.pools.iter().filter_map(|pool| pool.tls.as_ref()) {
        found.extend(&tls.ca);
        found.extend(&tls.crl);
        if let Some(paths) = &tls.client_cert {
            found.extend([&paths.cert, &paths.key]);
        }
    }
    found.into_iter().map(PathBuf::from).collect()
}

fn version(version: TlsVersion) -> Version {
    match version {
        TlsVersion::Tls12 => Version::Tls12,
        TlsVersion::Tls13 => Version::Tls13,
    }
}

/// The file that a fault is about, or `tls` if it is about no file.
fn subject_of(
    fault: &SetupFault,
    certificates: &[CertificatePaths],
    authorities: Option<&String>,
    revocations: &[String],
) -> String {
    use SetupKind::{
        AuthoritiesBroken, AuthoritiesEmpty, KeyBroken, KeyMismatch, KeyMissing, OcspBroken,
        RevocationBroken, RevocationForeign, RevocationForged,
    };
    let own = fault.certificate.and_then(|at| certificates.get(at));
    let file = match (fault.kind, own) {
        (KeyBroken | KeyMismatch | KeyMissing, Some(paths)) => Some(paths.key.clone()),
        (OcspBroken, Some(paths)) => paths.ocsp.clone(),
        (_, Some(paths)) => Some(paths.cert.clone()),
        (AuthoritiesBroken | AuthoritiesEmpty, None) => authorities.cloned(),
        (RevocationBroken | RevocationForeign | RevocationForged, None) => {
            revocations.first().cloned()
        }
        (_, None) => None,
    };
    file.unwrap_or_else(|| TLS.to_owned())
}

/// Reads the files of one listener or pool, and collects their faults.
struct Reading<'a> {
    /// The listener or pool.
    owner: Owner,
    /// Its name, for messages.
    place: String,
    /// All faults so far.
    faults: &'a mut Vec<TlsFault>,
}

impl<'a> Reading<'a> {
    fn new(owner: Owner, name: &str, faults: &'a mut Vec<TlsFault>) -> Self {
        let place = match owner {
            Owner::Listener(_) => format!("listener {name}"),
            Owner::Pool(_) => format!("pool {name}"),
            Owner::Lua(_) => format!("application {name}"),
            Owner::Push(_) => format!("hub {name}"),
            Owner::Route(_)
            | Owner::Set(_)
            | Owner::Map(_)
            | Owner::Admin
            | Owner::Log
            | Owner::Traces => name.to_owned(),
        };
        Self { owner, place, faults }
    }

    fn note(&mut self, subject: String, what: String) {
        self.faults.push(TlsFault { owner: self.owner, place: self.place.clone(), subject, what });
    }

    fn fault(&mut self, subject: String, fault: SetupFault) {
        self.note(subject, fault.to_string());
    }

    fn file(&mut self, path: &str) -> Option<Vec<u8>> {
        match read(Path::new(path)) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.note(path.to_owned(), format!("cannot be read: {error}"));
                None
            }
        }
    }

    /// Returns `Some(None)` if no file is named, and `None` if the file cannot be read.
    fn file_if_named(&mut self, path: Option<&String>) -> Option<Option<Vec<u8>>> {
        match path {
            Some(path) => self.file(path).map(Some),
            None => Some(None),
        }
    }

    fn certificate(&mut self, paths: &CertificatePaths) -> Option<CertificateFiles> {
        if let Some(given) = &paths.given {
            // The stapled response is about the certificate in the file.
            let (chain_pem, key_pem) = (given.pem.clone(), given.pem.clone());
            return Some(CertificateFiles { chain_pem, key_pem, ocsp: None });
        }
        let (chain_pem, key_pem) = (self.file(&paths.cert), self.file(&paths.key));
        let ocsp = self.file_if_named(paths.ocsp.as_ref());
        Some(CertificateFiles { chain_pem: chain_pem?, key_pem: key_pem?, ocsp: ocsp? })
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = files::read(path, FILE_BYTES_MAX)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("larger than 16 MiB"));
    }
    Ok(bytes)
}

/// The folder for files generated at start: the service manager's state folder, or the user's.
fn state_folder() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = variable("STATE_DIRECTORY") {
        return PathBuf::from(folder);
    }
    if let Some(folder) = variable("XDG_STATE_HOME") {
        return PathBuf::from(folder).join("tidegate");
    }
    match variable("HOME") {
        Some(home) => PathBuf::from(home).join(".local/state/tidegate"),
        None => PathBuf::from("/var/lib/tidegate"),
    }
}

/// Reads the self-signed certificate in `folder`, or generates and stores one.
fn self_signed_in(folder: &Path) -> io::Result<CertificateFiles> {
    let (cert, key) = (folder.join("self-signed.pem"), folder.join("self-signed.key"));
    let kept = read(&cert).and_then(|chain_pem| Ok((chain_pem, read(&key)?)));
    let (chain_pem, key_pem) = match kept {
        Ok(kept) => kept,
        Err(_) => {
            let (chain_pem, key_pem) = make_self_signed().map_err(io::Error::other)?;
            fs::create_dir_all(folder)?;
            write_private(&key, &key_pem)?;
            write_private(&cert, &chain_pem)?;
            (chain_pem, key_pem)
        }
    };
    let fingerprint = PeerIdentity::of_pem(&chain_pem).map(|identity| identity.fingerprint_hex());
    crate::log::banner(format_args!(
        "tidegate: self-signed certificate {} (SHA-256 {})",
        cert.display(),
        fingerprint.unwrap_or_default()
    ));
    Ok(CertificateFiles { chain_pem, key_pem, ocsp: None })
}

fn make_self_signed() -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(names)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "tidegate self-signed");
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2044, 1, 1);
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem().into_bytes(), key.serialize_pem().into_bytes()))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
[[listener]]
bind = "127.0.0.1:0"
tls = { certificates = [{ cert = "DIR/cert.pem", key = "DIR/key.pem" }], tickets = "DIR/tickets" }
[[route]]
path = "/*"
respond = { status = 204 }
"#;

    #[test]
    fn rejected_reload_keeps_ticket_keys() {
        let folder = std::env::temp_dir().join(format!("tidegate-tickets-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (old, new) = ("11".repeat(32), "22".repeat(32));
        let (cert, key) = make_self_signed().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
        write("cert.pem", &cert);
        write("key.pem", &key);
        write("tickets", old.as_bytes());
        let text = CONFIG.replace("DIR", folder.to_str().unwrap());
        let config = tidegate_config::parse(&text, "the test").unwrap();
        let mut loader = TlsLoader::default();
        loader.load(&config, 1, false).unwrap();
        let used = Arc::clone(loader.file_tickets.values().next().unwrap());
        let seals_with = |text: &str| used.seals_like(&TicketKeys::from_text(text).unwrap());
        assert!(seals_with(&old));

        write("tickets", new.as_bytes());
        write("key.pem", b"not a key");
        assert_eq!(loader.load(&config, 1, false).unwrap_err().len(), 1);
        assert!(seals_with(&old), "the reload was rejected");
        write("key.pem", &key);
        loader.load(&config, 1, false).unwrap();
        assert!(seals_with(&new));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn exactly_the_faulty_files_are_reported() {
        let folder = std::env::temp_dir().join(format!("tidegate-faults-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (cert, key) = make_self_signed().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
        write("cert", &cert);
        write("key", &key);
        write("broken", b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
        let faults = |tls: &str, pool_tls: &str| {
            let text = format!(
                "[[listener]]\nname = \"l\"\nbind = \"127.0.0.1:0\"\ntls = {tls}\n\
                 [[route]]\nproxy = \"p\"\n[pool.p]\nservers = [\"127.0.0.1:1\"]\ntls = {pool_tls}\n"
            );
            let text = text.replace("DIR", folder.to_str().unwrap());
            let config = tidegate_config::parse(&text, "the test").unwrap();
            let faults = check(&config).err().unwrap_or_default();
            let file = |fault: &TlsFault| {
                let (_, name) = fault.subject.rsplit_once('/').unwrap_or(("", &fault.subject));
                format!("{}: {name}", fault.place)
            };
            faults.iter().map(file).collect::<Vec<_>>()
        };
        let own = r#"certificates = [{ cert = "DIR/cert", key = "DIR/key" }]"#;
        let asks = r#"client-auth = "optional", client-ca = "DIR/cert""#;
        assert_eq!(faults(&format!("{{ {own}, {asks} }}"), "true"), Vec::<String>::new());
        let lists = format!(r#"{{ {own}, {asks}, client-crl = "DIR/broken" }}"#);
        assert_eq!(faults(&lists, "true"), ["listener l: broken"]);
        let empty = format!(r#"{{ {own}, client-auth = "optional", client-ca = "DIR/key" }}"#);
        assert_eq!(faults(&empty, "true"), ["listener l: key"]);
        let all = r#"{ certificates = [{ cert = "DIR/1", key = "DIR/2", ocsp = "DIR/3" }],
            client-auth = "optional", client-ca = "DIR/4", client-crl = "DIR/5", tickets = "DIR/6" }"#;
        let of_pool = r#"{ ca = "DIR/7", crl = ["DIR/8", "DIR/9"], server-name = "not a name",
            client-cert = { cert = "DIR/10", key = "DIR/11" } }"#;
        let named: Vec<_> = (1..=6).map(|n| format!("listener l: {n}")).collect();
        let names = ["7", "8", "9", "10", "11", "server-name"].map(|n| format!("pool p: {n}"));
        assert_eq!(faults(all, of_pool), [&named[..], &names].concat());
        let admin = "true\n[admin]\nbind = \"127.0.0.1:1\"\n\
            tls = { cert = \"DIR/12\", key = \"DIR/13\", client-ca = \"DIR/14\", client-crl = \"DIR/15\" }";
        let names = ["12", "13", "14", "15"].map(|n| format!("[admin]: {n}"));
        assert_eq!(faults(&format!("{{ {own} }}"), admin), names);
        let mixed = "true\n[admin]\nbind = \"127.0.0.1:1\"\n\
            tls = { cert = \"DIR/cert\", key = \"DIR/cert\", client-ca = \"DIR/key\" }";
        assert_eq!(faults(&format!("{{ {own} }}"), mixed), ["[admin]: cert"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
