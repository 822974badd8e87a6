//! Reads `tls` of a listener and of a pool.
//! In: tables of the file. Out: checked settings; certificates, keys and revocation lists as paths.
//! Never: opens a certificate, key or revocation list. The server crate checks that these files exist and fit together.
//! Invariant: client certificates are requested only if there are authorities to verify them against.

use tidegate_base::tls_names::{CIPHER_NAMES, GROUP_NAMES};

use crate::findings::{SERVER_NAME, TLS};
use crate::keys::{CLIENT_PROTOCOLS, LISTENER_TLS, SERVER_PROTOCOLS};
use crate::listeners::refused;
use crate::lua::Apps;
use crate::model::{
    AdminTls, CertificatePaths, ClientAuth, ListenerTls, PoolTls, TicketSource, TlsIdentity,
};
use crate::nearest::nearest;
use crate::pattern::{ValueError, is_host_name};
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Table, describe, wrong_type};
use crate::words::TlsWord;

/// Characters of a common name (RFC 5280 appendix A.1).
const COMMON_NAME_CHARS_MAX: usize = 64;

/// `tls` of a listener.
pub(crate) fn read_listener(
    table: &Table<'_>,
    apps: &Apps,
    notes: &mut Notes,
) -> Option<ListenerTls> {
    let value = table.value("tls")?;
    notes.places.mark(TLS, table.key_place("tls"));
    if value.get_ref().as_table().is_none() {
        return table.word("tls", notes).map(|word| match word {
            TlsWord::SelfSigned => ListenerTls::default(),
        });
    }
    let table = table.open_table("tls", notes)?;
    let mut tls = ListenerTls::default();
    let certificates = read_certificates(&table, notes);
    if !certificates.is_empty() {
        tls.identity = TlsIdentity::Files(certificates);
    }
    tls.strict_sni = table.is_true("strict-sni", notes).unwrap_or(false);
    table.set_word("min-version", &mut tls.version_min, notes);
    tls.ciphers = read_names(&table, "ciphers", CIPHER_NAMES, notes);
    tls.curves = read_names(&table, "curves", GROUP_NAMES, notes);
    if table.value("alpn").is_some() {
        tls.alpn = read_names(&table, "alpn", CLIENT_PROTOCOLS, notes);
    }
    let client_auth = table.word("client-auth", notes);
    tls.client_auth = client_auth.unwrap_or(tls.client_auth);
    tls.client_ca = read_path(&table, "client-ca", notes);
    tls.client_crl = read_path(&table, "client-crl", notes);
    let is_known = client_auth.is_some() || table.value("client-auth").is_none();
    match (tls.client_auth, &tls.client_ca) {
        // The error about the value of `client-auth` has already been noted.
        (ClientAuth::Off, Some(_)) if !is_known => {}
        (ClientAuth::Off, Some(_)) => {
            let what = "`client-ca` has no effect, because no client certificates are requested";
            let note = Note::new(Kind::Conflict, table.key_place("client-ca"), what);
            notes.error(
                note.help("add client-auth = \"required\" or \"optional\", or remove `client-ca`"),
            );
        }
        (ClientAuth::Optional | ClientAuth::Required, None) => {
            let what =
                "client certificates are requested, but there are no authorities to verify them";
            let note = Note::new(Kind::Missing, table.key_place("client-auth"), what);
            notes.error(note.help("add client-ca = \"clients-ca.pem\""));
        }
        (ClientAuth::Off, None) | (_, Some(_)) => {}
    }
    if tls.client_auth == ClientAuth::Off
        && tls.client_ca.is_none()
        && tls.client_crl.is_some()
        && is_known
    {
        let what = "`client-crl` has no effect, because no client certificates are requested";
        let note = Note::new(Kind::Conflict, table.key_place("client-crl"), what);
        notes.error(note.help("add client-auth and client-ca, or remove `client-crl`"));
    }
    if let Some(text) = table.text("tickets", notes) {
        tls.tickets = match text.text.as_str() {
            "own" => TicketSource::Own,
            "off" => TicketSource::Off,
            _ => TicketSource::File(resolve(text, notes)),
        };
    }
    table.set_duration("handshake-timeout", &mut tls.handshake_timeout, notes);
    if let Some(app) = table.text("lua", notes) {
        apps.find(&app, notes);
        tls.lua = Some(app.text);
    }
    Some(tls)
}

/// `tls` of a pool.
pub(crate) fn read_pool(table: &Table<'_>, notes: &mut Notes) -> Option<PoolTls> {
    let value = table.value("tls")?;
    notes.places.mark(TLS, table.key_place("tls"));
    if value.get_ref().as_table().is_none() {
        table.flag("tls", notes).then_some(())?;
        return Some(PoolTls::default());
    }
    let table = table.open_table("tls", notes)?;
    let mut tls = PoolTls {
        verify: table.is_true("verify", notes).unwrap_or(true),
        ca: read_path(&table, "ca", notes),
        ..PoolTls::default()
    };
    if !tls.verify && tls.ca.is_some() {
        let what = "`ca` has no effect, because verify = false accepts any certificate";
        let note = Note::new(Kind::Conflict, table.key_place("verify"), what);
        notes.error(note.help("remove `verify`"));
    }
    tls.crl = read_paths(&table, "crl", notes);
    if !tls.verify && !tls.crl.is_empty() {
        let what = "`crl` has no effect, because verify = false accepts any certificate";
        let note = Note::new(Kind::Conflict, table.key_place("verify"), what);
        notes.error(note.help("remove `verify`"));
    }
    if let Some(name) = table.text("server-name", notes) {
        notes.places.mark(SERVER_NAME, name.place);
        tls.server_name = Some(name.text);
    }
    if let Some(client) = table.open_table("client-cert", notes) {
        tls.client_cert = read_certificate(&client, notes);
    }
    table.set_word("min-version", &mut tls.version_min, notes);
    tls.ciphers = read_names(&table, "ciphers", CIPHER_NAMES, notes);
    tls.curves = read_names(&table, "curves", GROUP_NAMES, notes);
    tls.alpn = read_names(&table, "alpn", SERVER_PROTOCOLS, notes);
    tls.resume = table.is_true("resume", notes).unwrap_or(true);
    Some(tls)
}

/// `tls` of `[admin]`.
pub(crate) fn read_admin(table: &Table<'_>, notes: &mut Notes) -> Option<AdminTls> {
    let table = table.open_table("tls", notes)?;
    let certificate = read_certificate(&table, notes);
    let client_ca = read_path(&table, "client-ca", notes);
    let client_crl = read_path(&table, "client-crl", notes);
    if client_crl.is_some() && table.value("client-ca").is_none() {
        let what = "`client-crl` has no effect, because no client certificates are requested";
        let note = Note::new(Kind::Conflict, table.key_place("client-crl"), what);
        notes.error(note.help("add client-ca = \"operators-ca.pem\", or remove `client-crl`"));
    }
    let write_clients = read_write_clients(&table, notes);
    Some(AdminTls { certificate: certificate?, client_ca, client_crl, write_clients })
}

/// The names of certificates that may do everything.
fn read_write_clients(table: &Table<'_>, notes: &mut Notes) -> Option<Vec<String>> {
    table.value("write-clients")?;
    if table.value("client-ca").is_none() {
        let what = "`write-clients` has no effect, because no client certificates are requested";
        let note = Note::new(Kind::Conflict, table.key_place("write-clients"), what);
        notes.error(note.help("add client-ca = \"operators-ca.pem\", or remove `write-clients`"));
    }
    let names = table.texts("write-clients", notes).into_iter();
    Some(names.filter_map(|name| check_client_name(name, notes)).collect())
}

/// The name, unless no certificate can have it, or it may be another spelling of a name that a certificate has.
fn check_client_name(name: Located, notes: &mut Notes) -> Option<String> {
    let text = name.text.as_str();
    let alone = "write the common name alone, such as write-clients = [\"alice\"]";
    let (what, help) = match text.chars().find(|c| c.is_control()) {
        Some(odd) => (format!("a name in `write-clients` cannot contain {odd:?}"), alone),
        None if text.trim().is_empty() => ("a name in `write-clients` is empty".to_owned(), alone),
        None if text.contains('=') => (format!("{text:?} is a subject, not a name"), alone),
        None if !text.is_ascii() => (
            format!(
                "a name in `write-clients` cannot contain other characters than ASCII: {text:?}"
            ),
            "write a DNS name with such characters as in the certificate (xn--...), or give the certificate another name",
        ),
        None if text.contains('*') => (
            format!("a name in `write-clients` cannot be a pattern: {text:?}"),
            "list the names of the certificates",
        ),
        None if text.len() > COMMON_NAME_CHARS_MAX && !is_host_name(text) => (
            format!(
                "a name in `write-clients` has more than {COMMON_NAME_CHARS_MAX} characters and is no DNS name"
            ),
            alone,
        ),
        None => return Some(name.text),
    };
    notes.error(Note::new(Kind::Value, name.place, what).help(help));
    None
}

fn read_certificates(table: &Table<'_>, notes: &mut Notes) -> Vec<CertificatePaths> {
    let Some(value) = table.value("certificates") else {
        return Vec::new();
    };
    let rows = table.open_rows("certificates", notes);
    if value.get_ref().as_array().is_some_and(|rows| rows.is_empty()) {
        let note = Note::new(Kind::Missing, value.span(), "`certificates` is empty");
        notes.error(note.help(
            "add { cert = \"site.pem\", key = \"site.key\" }, or write tls = \"self-signed\"",
        ));
    }
    rows.iter().filter_map(|row| read_certificate(row, notes)).collect()
}

fn read_certificate(table: &Table<'_>, notes: &mut Notes) -> Option<CertificatePaths> {
    let cert = read_path(table, "cert", notes);
    let key = read_path(table, "key", notes);
    let ocsp = table.text_if_known("ocsp", notes).map(|text| resolve(text, notes));
    Some(CertificatePaths { cert: cert?, key: key?, ocsp, given: None })
}

fn read_path(table: &Table<'_>, name: &str, notes: &mut Notes) -> Option<String> {
    let text = table.text(name, notes)?;
    check_path(name, text, notes)
}

/// One path, or an array of paths.
fn read_paths(table: &Table<'_>, name: &str, notes: &mut Notes) -> Vec<String> {
    let texts = table.texts(name, notes);
    texts.into_iter().filter_map(|text| check_path(name, text, notes)).collect()
}

fn check_path(name: &str, text: Located, notes: &mut Notes) -> Option<String> {
    if text.text.is_empty() || text.text.contains('\0') {
        let complaint = ValueError {
            what: "not the path of a file".to_owned(),
            help: format!("write {name} = \"/etc/tidegate/site.pem\""),
        };
        notes.error(refused(name, &text, complaint));
        return None;
    }
    Some(resolve(text, notes))
}

/// Resolves a path in the file and records its place.
fn resolve(text: Located, notes: &mut Notes) -> String {
    let path = notes.resolve(&text.text);
    notes.places.mark(&path, text.place);
    path
}

fn read_names(
    table: &Table<'_>,
    name: &str,
    words: &'static [&'static str],
    notes: &mut Notes,
) -> Vec<String> {
    let Some(value) = table.value(name) else {
        return Vec::new();
    };
    if value.get_ref().as_array().is_none() {
        let allowed = LISTENER_TLS.key(name).map(|key| describe(&key.shape)).unwrap_or_default();
        notes.error(wrong_type(&format!("`{name}`"), value, &allowed));
        return Vec::new();
    }
    let mut found = Vec::new();
    for text in table.texts(name, notes) {
        if words.contains(&text.text.as_str()) {
            found.push(text.text);
            continue;
        }
        let what = format!("`{name}` cannot contain {:?}", text.text);
        let note = Note::new(Kind::Value, text.place.clone(), what).allowed(words.join(", "));
        notes.error(match nearest(&text.text, words.iter().copied()) {
            Some(near) => note.help(format!("write {near:?}")),
            None => note.help("remove it"),
        });
    }
    found
}
