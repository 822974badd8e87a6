//! Reads the address of a service that Tidegate itself uses: `https://id.example/jwks.json`.
//! In: the table with the setting, and with that of the authorities. Out: the parts of the address.
//! Never: connects.
//! Limits: `URL_BYTES_MAX`.

use core::net::IpAddr;

use crate::auth::read_file;
use crate::listeners::refused;
use crate::model::{KeyContent, RemoteAddress};
use crate::pattern::ValueError;
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Table};

/// Maximum length of an address in bytes.
const URL_BYTES_MAX: usize = 2048;

/// The settings of an address.
pub(crate) struct Form {
    /// The name of the setting.
    pub(crate) key: &'static str,
    /// The name of the setting with the authorities that verify the server.
    pub(crate) ca: &'static str,
    /// An address that is right.
    pub(crate) example: &'static str,
    /// Why http is only for this machine; `None`: it is for all machines.
    pub(crate) only_tls: Option<&'static str>,
}

/// Reads the address in `text`, and the authorities.
pub(crate) fn read(
    form: &Form,
    text: &Located,
    table: &Table<'_>,
    notes: &mut Notes,
) -> Option<RemoteAddress> {
    let ca = read_file(form.ca, table, notes);
    let parsed = parse(&text.text, form.only_tls);
    if let (Ok(RemoteAddress { is_tls: false, .. }), true) = (&parsed, ca.is_some()) {
        let what = format!("`{}` has no effect with http://", form.ca);
        let note = Note::new(Kind::Conflict, table.key_place(form.ca), what);
        notes.error(note.help("remove it, or write https://"));
    }
    match parsed {
        Ok(remote) => Some(RemoteAddress { ca, ..remote }),
        Err(what) => {
            let help = format!("write {:?}", form.example);
            notes.error(refused(form.key, text, ValueError { what: what.to_owned(), help }));
            None
        }
    }
}

/// What is wrong with a string without a scheme, or with another scheme.
const NOT_A_URL: &str = "not an http:// or https:// address";

/// The parts of an address (RFC 3986). `only_tls`: the reason why addresses of other machines need https.
fn parse(url: &str, only_tls: Option<&'static str>) -> Result<RemoteAddress, &'static str> {
    if url.len() > URL_BYTES_MAX {
        return Err("the address has more than 2048 bytes");
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the address has a character that must be percent-encoded");
    }
    let (scheme, rest) = url.split_once("://").ok_or(NOT_A_URL)?;
    let is_tls = scheme.eq_ignore_ascii_case("https");
    if !is_tls && !scheme.eq_ignore_ascii_case("http") {
        return Err(NOT_A_URL);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at_checked(end).ok_or(NOT_A_URL)?;
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
    if let Some(why) = only_tls.filter(|_| !is_tls && !is_own) {
        return Err(why);
    }
    let target = match target.as_bytes().first() {
        Some(b'/') => target.to_owned(),
        Some(_) | None => format!("/{target}"),
    };
    Ok(RemoteAddress {
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
            let parsed = parse(url, Some("")).unwrap_or_else(|what| panic!("{url}: {what}"));
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
            assert!(parse(url, Some("")).is_err(), "{url}");
        }
        assert!(parse("http://id.example/", None).is_ok(), "a service that needs no TLS");
        assert!(parse("ftp://id.example/", None).is_err());
    }
}
