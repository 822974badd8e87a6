//! Reads where public keys of tokens come from: `keys = "https://id.example/jwks.json"`, or a file.
//! In: the table with the setting, and with that of the authorities. Out: the path of the file, or the parts of the address.
//! Never: fetches; accepts http except from this machine: whoever changes the response on its way could sign tokens.
//! Limits: `URL_BYTES_MAX`.

use core::net::IpAddr;

use crate::auth::read_file;
use crate::listeners::refused;
use crate::model::{KeyContent, PublicKeys, RemoteKeys};
use crate::pattern::ValueError;
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Table};

/// Maximum length of an address in bytes.
const URL_BYTES_MAX: usize = 2048;

/// The names of two settings: that of the keys, and that of the authorities that verify the server of an address.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) keys: &'static str,
    pub(crate) ca: &'static str,
}

/// Reads the settings; `None` if there are no keys.
pub(crate) fn read(names: Names, table: &Table<'_>, notes: &mut Notes) -> Option<PublicKeys> {
    let text = table.value(names.keys).and_then(|_| table.text(names.keys, notes));
    if let Some(text) = text.filter(|text| is_url(&text.text)) {
        let remote = read_address(names, &text, table, notes)?;
        return Some(PublicKeys { remote: Some(remote), ..PublicKeys::default() });
    }
    let file = read_file(names.keys, table, notes);
    refuse_authorities(names, table, notes);
    Some(PublicKeys { file: file?, ..PublicKeys::default() })
}

/// Notes an error if authorities are set, which only the server of an address needs.
pub(crate) fn refuse_authorities(Names { keys, ca }: Names, table: &Table<'_>, notes: &mut Notes) {
    if table.text(ca, notes).is_some() {
        let what = format!("`{ca}` has no effect without an address in `{keys}`");
        let note = Note::new(Kind::Conflict, table.key_place(ca), what);
        notes.error(
            note.help(format!("remove it, or write {keys} = \"https://id.example/jwks.json\"")),
        );
    }
}

/// Whether a text is meant as an address, not as the path of a file.
fn is_url(text: &str) -> bool {
    text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"))
        || text.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("http://"))
}

/// Reads the address in `text`, and the authorities.
fn read_address(
    Names { keys, ca: name }: Names,
    text: &Located,
    table: &Table<'_>,
    notes: &mut Notes,
) -> Option<RemoteKeys> {
    let ca = read_file(name, table, notes);
    let parsed = parse(&text.text);
    if let (Ok(RemoteKeys { is_tls: false, .. }), true) = (&parsed, ca.is_some()) {
        let what = format!("`{name}` has no effect with http://");
        let note = Note::new(Kind::Conflict, table.key_place(name), what);
        notes.error(note.help("remove it, or write https://"));
    }
    match parsed {
        Ok(remote) => Some(RemoteKeys { ca, ..remote }),
        Err(what) => {
            let help = "write \"https://id.example/.well-known/jwks.json\"".to_owned();
            notes.error(refused(keys, text, ValueError { what: what.to_owned(), help }));
            None
        }
    }
}

/// The parts of an address (RFC 3986).
fn parse(url: &str) -> Result<RemoteKeys, &'static str> {
    if url.len() > URL_BYTES_MAX {
        return Err("the address has more than 2048 bytes");
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the address has a character that must be percent-encoded");
    }
    let (scheme, rest) = url.split_once("://").ok_or("not an address")?;
    let is_tls = scheme.eq_ignore_ascii_case("https");
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at_checked(end).ok_or("not an address")?;
    if target.contains('#') {
        return Err("the address has a fragment (#), which servers do not receive");
    }
    if authority.contains('@') {
        return Err("the address has a user name, which Tidegate does not send");
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    };
    let port = match port {
        None if is_tls => 443,
        None => 80,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or("the port is invalid")?,
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let (name, address) = match bracketed {
        Some(inner) => (inner, Some(inner.parse::<IpAddr>().map_err(|_| "the host is invalid")?)),
        None => (host, host.parse::<IpAddr>().ok()),
    };
    let is_name = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let dotted = name.strip_suffix('.').unwrap_or(name);
    if address.is_none() && (dotted.len() > 253 || !dotted.split('.').all(is_name)) {
        return Err("the host is invalid");
    }
    let is_own = address.map_or(name.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback());
    if !is_tls && !is_own {
        return Err("keys are fetched by https, except from this machine");
    }
    let target = match target.as_bytes().first() {
        Some(b'/') => target.to_owned(),
        Some(_) | None => format!("/{target}"),
    };
    Ok(RemoteKeys {
        url: url.to_owned(),
        is_tls,
        host: name.to_owned(),
        authority: authority.to_owned(),
        port,
        target,
        ca: None,
        authorities: KeyContent::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_a_port_and_a_target() {
        for (url, host, port, target) in [
            ("https://id.example/jwks.json", "id.example", 443, "/jwks.json"),
            ("HTTPS://id.example:8443?a=b", "id.example", 8443, "/?a=b"),
            ("https://192.0.2.1", "192.0.2.1", 443, "/"),
            ("https://[2001:db8::1]:444/a?b", "2001:db8::1", 444, "/a?b"),
            ("https://[2001:db8::1]/", "2001:db8::1", 443, "/"),
            ("http://127.0.0.1:8000/k", "127.0.0.1", 8000, "/k"),
            ("http://[::1]/k", "::1", 80, "/k"),
            ("http://localhost/k", "localhost", 80, "/k"),
        ] {
            let parsed = parse(url).unwrap_or_else(|what| panic!("{url}: {what}"));
            let found = (parsed.host.as_str(), parsed.port, parsed.target.as_str());
            assert_eq!(found, (host, port, target), "{url}");
        }
        for url in [
            "http://id.example/",
            "http://192.0.2.1/",
            "http://localhost.example/",
            "https://",
            "https:///a",
            "https://a b/",
            "https://a/\u{e4}",
            "https://user@id.example/",
            "https://id.example/#a",
            "https://id.example:0/",
            "https://id.example:70000/",
            "https://[id]/",
            "https://a..b/",
            "https://a%2fb/",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
        assert!(is_url("HTTP://x") && !is_url("httpx://") && !is_url("keys.json"));
    }
}
