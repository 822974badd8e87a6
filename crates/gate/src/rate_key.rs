//! The key by which `rate` and tables count a request, and by which `split` divides requests.
//! In: the values that the setting names, a secret. Out: a hash; the key as text for the admin interface.
//! Never: gives requests different keys because of different forms that servers read as the same value; gives a request without a
//! value the key of a request with one.
//! Limits: one pass over each value.
//! Invariant: each part of a key is hashed with its kind and its length, so that no value of one kind equals one of
//! another, and no two neighbouring values equal two others that are divided differently.

use core::fmt::Write as _;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv6Addr};
use std::hash::DefaultHasher;

use tidegate_config::model::{Placeholder, Template};
use tidegate_wire::message::Method;

use crate::count_cells::KeyText;
use crate::name_set::fields_named;
use crate::parameters::{cookies, decoded, parameters};
use crate::path::{Normalized, Reach, normalize_path};
use crate::router::host_name;
use crate::template::{Values, push_plain};

/// The kind of a part of a key.
#[derive(Clone, Copy)]
enum Part {
    /// The client's address: 4 bytes (IPv4), 8 bytes (the first 64 bits of an IPv6 address) or no bytes (a unix socket).
    Client = 1,
    /// The client's address, because the request does not have exactly one value.
    Absent = 2,
    /// A value of the request other than its path.
    Value = 3,
    /// The path.
    Path = 4,
}

/// The hash of the values of `key` for the request. `scratch` is overwritten.
pub(crate) fn hash_key(
    key: &Template,
    values: &Values<'_>,
    secret: u64,
    scratch: &mut Vec<u8>,
) -> u64 {
    hash_parts(key, values, secret, scratch).0
}

/// As [`hash_key`]; `None` if a part of the key has no value or several values in the request, or if the address is part of
/// the key and the client has no address.
pub(crate) fn hash_present(
    key: &Template,
    values: &Values<'_>,
    secret: u64,
    scratch: &mut Vec<u8>,
) -> Option<u64> {
    let (hash, is_present) = hash_parts(key, values, secret, scratch);
    is_present.then_some(hash)
}

/// The hash that [`hash_present`] returns for a request from this address; `None` if the key has other parts.
pub(crate) fn hash_address(key: &Template, address: Option<IpAddr>, secret: u64) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(secret);
    let mut bytes = Vec::new();
    push_address(&mut bytes, Some(address?.to_canonical()));
    for placeholder in key.placeholders() {
        let Placeholder::Client = placeholder else { return None };
        hash_part(&mut hasher, Part::Client, &bytes);
    }
    Some(hasher.finish())
}

/// Writes the values of `key` as text, separated by `|`. Separators and all bytes but visible ASCII are percent-encoded.
/// The client's address in place of an absent value is in parentheses. `scratch` is overwritten.
pub(crate) fn show_key(
    key: &Template,
    values: &Values<'_>,
    scratch: &mut Vec<u8>,
    out: &mut KeyText,
) {
    for (at, placeholder) in key.placeholders().enumerate() {
        if at > 0 {
            out.push(b'|');
        }
        scratch.clear();
        match placeholder {
            Placeholder::Client => show_address(values.client(), out),
            Placeholder::Path => {
                let mut is_root = true;
                each_path_byte(values.head.path, scratch, |byte| {
                    is_root = false;
                    show_byte(byte, out);
                });
                if is_root {
                    out.push(b'/');
                }
            }
            other => {
                push_value(scratch, other, values);
                match scratch.is_empty() {
                    true => {
                        out.push(b'(');
                        show_address(values.client(), out);
                        out.push(b')');
                    }
                    false => scratch.iter().for_each(|byte| show_byte(*byte, out)),
                }
            }
        }
    }
}

/// As [`show_key`], for a key that has no other part than the client's address.
pub(crate) fn show_addresses(key: &Template, client: IpAddr, out: &mut KeyText) {
    for (at, _) in key.placeholders().enumerate() {
        if at > 0 {
            out.push(b'|');
        }
        show_address(Some(client), out);
    }
}

/// Writes the part of the client's address by which requests are counted.
fn show_address(client: Option<IpAddr>, out: &mut KeyText) {
    // Writing into a string of bounded length cannot fail.
    let _ = match client.map(|address| address.to_canonical()) {
        Some(IpAddr::V4(address)) => write!(out, "{address}"),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            write!(out, "{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        None => out.write_str("unix"),
    };
}

fn show_byte(byte: u8, out: &mut KeyText) {
    match byte {
        // The text can be pasted into commands of the admin interface, where a semicolon ends a command.
        b'|' | b'%' | b'(' | b')' | b';' => {}
        byte if byte.is_ascii_graphic() => return out.push(byte),
        _ => {}
    }
    let _ = write!(out, "%{byte:02X}");
}

/// The hash that [`hash_present`] returns for a request with a cookie of this value, if the cookie is the whole key.
pub(crate) fn hash_cookie(value: &[u8], secret: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(secret);
    hash_part(&mut hasher, Part::Value, value);
    hasher.finish()
}

fn hash_part(hasher: &mut DefaultHasher, part: Part, bytes: &[u8]) {
    hasher.write_u8(part as u8);
    hasher.write(bytes);
    hasher.write_usize(bytes.len());
}

/// The hash of the values of `key`, and whether the request has exactly one value for each part of the key.
fn hash_parts(
    key: &Template,
    values: &Values<'_>,
    secret: u64,
    scratch: &mut Vec<u8>,
) -> (u64, bool) {
    let mut is_present = true;
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(secret);
    for placeholder in key.placeholders() {
        scratch.clear();
        let part = match placeholder {
            Placeholder::Client => Part::Client,
            Placeholder::Path => {
                hasher.write_u8(Part::Path as u8);
                let length = hash_path(&mut hasher, values.head.path, scratch);
                hasher.write_usize(length);
                continue;
            }
            other => {
                push_value(scratch, other, values);
                if scratch.is_empty() { Part::Absent } else { Part::Value }
            }
        };
        if matches!(part, Part::Client | Part::Absent) {
            push_address(scratch, values.client());
            is_present &= matches!(part, Part::Client) && !scratch.is_empty();
        }
        hash_part(&mut hasher, part, scratch);
    }
    (hasher.finish(), is_present)
}

/// Appends the client's address; of an IPv6 address, only the first 64 bits.
fn push_address(out: &mut Vec<u8>, client: Option<IpAddr>) {
    match client {
        Some(IpAddr::V4(address)) => out.extend_from_slice(&address.octets()),
        Some(IpAddr::V6(address)) => {
            let [network @ .., _, _, _, _, _, _, _, _] = address.octets();
            out.extend_from_slice(&network);
        }
        // All clients of unix sockets share one key.
        None => {}
    }
}

/// Appends a value in the form in which it is counted. Appends nothing if the request has no value, or if it has several
/// values: any of them may be the one that the server reads.
fn push_value(out: &mut Vec<u8>, placeholder: &Placeholder, values: &Values<'_>) {
    let head = values.head;
    match placeholder {
        Placeholder::Host => {
            let host = host_name(head.host.unwrap_or_default());
            out.extend(host.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        // All unknown methods count as one.
        Placeholder::Method => out.extend_from_slice(match &head.method {
            Method::Other(_) => b"other",
            known => known.as_str().as_bytes(),
        }),
        Placeholder::QueryValue(name) => {
            let all = parameters(head.query.unwrap_or_default(), name);
            out.extend(decoded(only(all).unwrap_or_default()));
        }
        Placeholder::Cookie(name) => {
            out.extend_from_slice(only(cookies(head, name)).unwrap_or_default());
        }
        Placeholder::Header(name) => {
            out.extend_from_slice(only(fields_named(head, name)).map_or(b"", |field| field.value));
        }
        other => push_plain(out, other, values),
    }
}

/// The first value, if there is no second one.
fn only<T>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next();
    first.filter(|_| values.next().is_none())
}

/// Hashes the path as the most lenient server reads it: percent-encodings decoded and dot segments resolved as for
/// routes, slashes of all kinds merged, parameters and the slash at the end removed. Returns the number of bytes.
/// `scratch` is overwritten.
fn hash_path(hasher: &mut DefaultHasher, path: &str, scratch: &mut Vec<u8>) -> usize {
    let mut count = 0;
    each_path_byte(path, scratch, |byte| {
        hasher.write_u8(byte);
        count += 1;
    });
    count
}

/// Calls `each` with the bytes of the path as [`hash_path`] reads it.
fn each_path_byte(path: &str, scratch: &mut Vec<u8>, each: impl FnMut(u8)) {
    match normalize_path(path, Reach::UNLIMITED, scratch) {
        Normalized::Same => each_lenient(path.as_bytes(), each),
        Normalized::Equivalent(text) | Normalized::Changed { resolved: text, .. } => {
            each_lenient(text.as_bytes(), each);
        }
        Normalized::Ambiguous(mut readings) => {
            each_lenient(readings.next().unwrap_or_default().as_bytes(), each);
        }
        // Such a request has no route.
        Normalized::Refused(_) => {}
    }
}

/// Calls `each` with the bytes of a path whose encodings are canonical, in its most lenient reading.
fn each_lenient(path: &[u8], mut each: impl FnMut(u8)) {
    let mut rest = path;
    let mut slash_pending = false;
    while let Some((&first, mut after)) = rest.split_first() {
        let mut byte = first;
        match rest {
            [b'%', b'2', b'F', tail @ ..] | [b'%', b'5', b'C', tail @ ..] => {
                (byte, after) = (b'/', tail);
            }
            [b'%', b'3', b'B', tail @ ..] => (byte, after) = (b';', tail),
            [b'\\', ..] => byte = b'/',
            _ => {}
        }
        rest = after;
        match byte {
            b';' => {
                // Servers differ in whether an encoded slash ends a parameter: only a plain one certainly does.
                let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
                rest = rest.get(end..).unwrap_or_default();
            }
            b'/' => slash_pending = true,
            _ => {
                if slash_pending {
                    each(b'/');
                }
                slash_pending = false;
                each(byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;
    use tidegate_config::model::TemplatePiece;
    use tidegate_wire::http1::{HeadDecoder, HeadLimits};
    use tidegate_wire::message::FieldStorage;

    use crate::rewrite::MatchedPath;
    use crate::scheme::Scheme;

    fn query(name: &str) -> Placeholder {
        Placeholder::QueryValue(name.to_owned())
    }

    /// The key of a request of `client` with this first line and these fields, with the secret 7.
    fn key(by: &[Placeholder], client: &str, head: &str) -> u64 {
        let pieces = by.iter().cloned().map(TemplatePiece::Value).collect();
        let template = Template { pieces };
        let bytes = [head.as_bytes(), b"\r\n\r\n"].concat();
        let mut storage = FieldStorage::new();
        let mut decoder = HeadDecoder::default();
        let decoded = decoder.decode_request(&bytes, &HeadLimits::default(), &mut storage);
        let Ok(Some((head, _))) = decoded else { panic!("{head:?}: {decoded:?}") };
        let values = Values {
            head: &head,
            path: &MatchedPath::whole(head.path),
            peer: client.parse::<IpAddr>().ok(),
            trusted: &[],
            scheme: Scheme::Http,
            server_name: None,
            allowed_origin: None,
            user: None,
            claims: None,
            identity: crate::identity::Identity::plain(0),
        };
        hash_key(&template, &values, 7, &mut Vec::new())
    }

    fn get(by: &[Placeholder], path: &str) -> u64 {
        key(by, "192.0.2.1", &format!("GET {path} HTTP/1.1\r\nHost: h"))
    }

    #[test]
    fn spellings_of_one_path_have_one_key() {
        let by = [Placeholder::Client, Placeholder::Path];
        for path in [
            "/%72l",
            "/r%6c",
            "/%72%6C",
            "/rl/",
            "/./rl",
            "/x/../rl",
            "/%2e/rl",
            "//rl",
            "///rl//",
            "/rl;x",
            "/rl;x=%2Fy",
            "/rl%3bx",
            "/%2frl",
            "/rl%2F",
            "/%5Crl",
            "/rl?a=b",
        ] {
            assert_eq!(get(&by, path), get(&by, "/rl"), "{path}");
        }
        for path in ["/", "/r", "/RL", "/rl/x", "/r/l", "/rl%20"] {
            assert_ne!(get(&by, path), get(&by, "/rl"), "{path}");
        }
        assert_eq!(get(&by, "/a/%2F;x/b//"), get(&by, "/a/b"));
    }

    #[test]
    fn spellings_of_one_host_have_one_key() {
        let of = |host| {
            let head = format!("GET / HTTP/1.1\r\nHost: {host}");
            key(&[Placeholder::Host], "192.0.2.1", &head)
        };
        for host in ["LOCALHOST", "lOcalhost", "localhost.", "localhost:1", "LocalHost.:2"] {
            assert_eq!(of(host), of("localhost"), "{host}");
        }
        assert_eq!(of("[::1]:80"), of("[::1]"));
        assert_ne!(of("localhost"), of("other"));
    }

    #[test]
    fn unknown_methods_have_one_key() {
        let of = |method| {
            let head = format!("{method} / HTTP/1.1\r\nHost: h");
            key(&[Placeholder::Method], "192.0.2.1", &head)
        };
        assert_eq!(of("X0"), of("get"));
        assert_ne!(of("X0"), of("GET"));
        assert_ne!(of("POST"), of("GET"));
    }

    #[test]
    fn absent_value_never_equals_a_present_one() {
        // 203.0.113.7, and 2001:db8:1:2::/64.
        for (client, bytes) in
            [("203.0.113.7", "%cb%00%71%07"), ("2001:db8:1:2::9", "%20%01%0d%b8%00%01%00%02")]
        {
            let victim = key(&[query("k")], client, "GET / HTTP/1.1\r\nHost: h");
            assert_ne!(victim, get(&[query("k")], &format!("/?k={bytes}")), "{client}");
            assert_ne!(victim, key(&[Placeholder::Client], client, "GET / HTTP/1.1\r\nHost: h"));
        }
        // The boundary between two values is part of the key.
        let by = [query("a"), query("b")];
        assert_ne!(get(&by, "/?a=12&b=3"), get(&by, "/?a=1&b=23"));
        assert_ne!(get(&by, "/?a=1"), get(&by, "/?b=1"));
    }

    #[test]
    fn several_values_count_as_no_value() {
        let by = [query("k")];
        assert_eq!(get(&by, "/?k=1&%6b=2"), get(&by, "/"));
        assert_eq!(get(&by, "/?k="), get(&by, "/"));
        assert_ne!(get(&by, "/?k=1"), get(&by, "/"));
        let of = |by: &Placeholder, fields: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: h{fields}");
            key(core::slice::from_ref(by), "192.0.2.1", &head)
        };
        let header = Placeholder::Header("x-key".to_owned());
        assert_eq!(of(&header, "\r\nX-Key: 1\r\nX_Key: 2"), of(&header, ""));
        assert_ne!(of(&header, "\r\nX-Key: 1"), of(&header, ""));
        let cookie = Placeholder::Cookie("sid".to_owned());
        assert_eq!(of(&cookie, "\r\nCookie: sid=1; sid=2"), of(&cookie, ""));
        assert_ne!(of(&cookie, "\r\nCookie: sid=1"), of(&cookie, ""));
        assert_eq!(of(&cookie, "\r\nCookie: a=b; sid=1"), hash_cookie(b"1", 7));
    }
}
