//! Requests that Tidegate sends for itself, not on behalf of a client's request.
//! In: the parts of a request, the settings of its pool. Out: its canonical head; what balancing needs to know.
//! Never: adds a field about a client, or Via: the request is not forwarded.
//! Invariant: the parts are valid: none of them contains a line break.

use std::borrow::Cow;

use tidegate_base::prng::hash_bytes;
use tidegate_config::model::{Balance, HashKey, Pool, ServerAddress, SlotSource};
use tidegate_wire::http1::{encode_field, encode_field_u64, encode_request_line};
use tidegate_wire::message::{BodyLength, Method};

/// The User-Agent of requests without one.
const USER_AGENT: &[u8] = b"tidegate";

/// A request of Tidegate's own.
#[derive(Clone, Copy, Debug)]
pub struct InternalRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The path and the query.
    pub target: &'a str,
    /// The Host field; empty: that of the first server of the pool.
    pub host: &'a str,
    /// The other fields: `name: value`, each followed by a line feed.
    pub fields: &'a [u8],
    /// The length of the content; `None`: there is no content.
    pub length: Option<u64>,
}

impl<'a> InternalRequest<'a> {
    fn fields(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.fields.split(|byte| *byte == b'\n').filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            let name = core::str::from_utf8(&line[..colon]).ok()?;
            Some((name, line[colon + 1..].trim_ascii()))
        })
    }

    fn find(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method<'a> {
        Method::from_token(self.method)
    }

    /// How the end of the content is found. A method that defines a meaning for content states that there is none
    /// (RFC 9110 section 8.6).
    #[must_use]
    pub fn length(&self) -> BodyLength {
        match (self.length, self.method) {
            (Some(length), _) => BodyLength::Length(length),
            (None, "POST" | "PUT" | "PATCH") => BodyLength::Length(0),
            (None, _) => BodyLength::None,
        }
    }

    /// Whether the request has credentials that authenticate its connection.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        let value = self.find("authorization").unwrap_or_default();
        let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
    }

    /// The hash of the key for hash balancing; `None` if the request has no such key.
    #[must_use]
    pub fn hash_key(&self, balance: &Balance) -> Option<u64> {
        let Balance::Hash(key) = balance else { return None };
        match key {
            HashKey::Path => self.target.split('?').next().map(|path| hash_bytes(path.as_bytes())),
            HashKey::Header(name) => self.find(name).map(hash_bytes),
            HashKey::ClientAddress => None,
        }
    }

    /// Appends the head of the request to a server of `pool`.
    pub fn encode(&self, out: &mut Vec<u8>, pool: &Pool) {
        encode_request_line(out, self.method, self.target);
        match self.host.is_empty() {
            true => encode_field(out, "Host", host_of(pool).as_bytes()),
            false => encode_field(out, "Host", self.host.as_bytes()),
        }
        for (name, value) in self.fields() {
            encode_field(out, name, value);
        }
        if self.find("user-agent").is_none() {
            encode_field(out, "User-Agent", USER_AGENT);
        }
        if let BodyLength::Length(length) = self.length() {
            encode_field_u64(out, "Content-Length", length);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The Host field of requests that state none: the name in the certificate of the servers, or else the address of the first
/// one as in `servers`.
fn host_of(pool: &Pool) -> Cow<'_, str> {
    if let Some(name) = pool.tls.as_ref().and_then(|tls| tls.server_name.as_deref()) {
        return name.into();
    }
    let default_port = if pool.tls.is_some() { 443 } else { 80 };
    match pool.servers.first().map(|server| &server.address) {
        Some(ServerAddress::Name(name, port)) if *port == default_port => name.into(),
        Some(ServerAddress::Name(name, port)) => format!("{name}:{port}").into(),
        Some(ServerAddress::Ip(address)) if address.port() == default_port => match address.ip() {
            core::net::IpAddr::V4(ip) => ip.to_string().into(),
            core::net::IpAddr::V6(ip) => format!("[{ip}]").into(),
        },
        Some(ServerAddress::Ip(address)) => address.to_string().into(),
        Some(ServerAddress::Unix(_)) | None => "localhost".into(),
        Some(ServerAddress::Slot(slot)) => match &*slot.source {
            SlotSource::Name(name, port) if *port == default_port => name.into(),
            source @ (SlotSource::Name(..) | SlotSource::Srv(_)) => source.host().into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: InternalRequest<'static> =
        InternalRequest { method: "GET", target: "/a?b=1", host: "", fields: b"", length: None };

    fn pool(server: &str) -> Pool {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nproxy = \"p\"\n[pool.p]\nservers = [\"{server}\"]\n"
        );
        tidegate_config::parse(&text, "the test").expect("it is valid").pools.remove(0)
    }

    fn encoded(request: &InternalRequest<'_>, server: &str) -> String {
        let mut out = Vec::new();
        request.encode(&mut out, &pool(server));
        String::from_utf8(out).expect("it is a text")
    }

    #[test]
    fn head_has_the_fields_of_the_script_and_those_that_are_missing() {
        let expected = "GET /a?b=1 HTTP/1.1\r\nHost: api:8080\r\nUser-Agent: tidegate\r\n\r\n";
        assert_eq!(encoded(&PLAIN, "api:8080"), expected);
        let fields = b"x-a:  1 \nUser-Agent: me\nx-a: 2\n";
        let request = InternalRequest {
            method: "POST",
            host: "example.com",
            fields,
            length: Some(5),
            ..PLAIN
        };
        let expected = "POST /a?b=1 HTTP/1.1\r\nHost: example.com\r\nx-a: 1\r\nUser-Agent: me\r\nx-a: 2\r\n\
                        Content-Length: 5\r\n\r\n";
        assert_eq!(encoded(&request, "api:8080"), expected);
    }

    #[test]
    fn host_field_defaults_to_the_address_of_the_server() {
        for (server, host) in [
            ("api:80", "api"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("10.0.0.1:9000", "10.0.0.1:9000"),
            ("[::1]:80", "[::1]"),
            ("unix:/run/app.sock", "localhost"),
        ] {
            assert!(encoded(&PLAIN, server).contains(&format!("\r\nHost: {host}\r\n")), "{server}");
        }
    }

    #[test]
    fn content_is_stated_by_methods_that_define_a_meaning_for_it() {
        for (method, length, expected) in [
            ("GET", None, BodyLength::None),
            ("DELETE", None, BodyLength::None),
            ("POST", None, BodyLength::Length(0)),
            ("GET", Some(3), BodyLength::Length(3)),
        ] {
            assert_eq!(InternalRequest { method, length, ..PLAIN }.length(), expected, "{method}");
        }
    }

    #[test]
    fn balancing_gets_the_key_of_the_request() {
        let request = InternalRequest { fields: b"X-Key: 7\n", ..PLAIN };
        let key = |key| request.hash_key(&Balance::Hash(key));
        assert_eq!(key(HashKey::Path), Some(hash_bytes(b"/a")));
        assert_eq!(key(HashKey::Header("x-key".to_owned())), Some(hash_bytes(b"7")));
        assert_eq!(key(HashKey::Header("x-other".to_owned())), None);
        assert_eq!(key(HashKey::ClientAddress), None);
        assert!(!request.authenticates());
        assert!(InternalRequest { fields: b"authorization: NTLM abc\n", ..PLAIN }.authenticates());
    }
}
