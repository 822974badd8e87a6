//! The names of fields in which proxies state the client's address, other than the standard ones.
//! In: the names that a listener lists. Out: whether a field has one of them; trailers without them.
//! Never: compares a name with each listed name, unless it is probably one of them.
//! Invariant: `_` in a name matches `-`, because gateway interfaces such as CGI map both to the same variable.

use tidegate_wire::http1::encode_last_chunk;
use tidegate_wire::message::{fold, is_alike};

/// A set of field names.
#[derive(Clone, Debug, Default)]
pub struct ClientAddressFields {
    /// Bit `key(name)` is set for each name.
    filter: [u64; 4],
    /// The names, in lower case.
    names: Vec<Box<[u8]>>,
}

impl ClientAddressFields {
    /// Prepares the set of `names`, which must be in lower case. `_` in them counts as `-`.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let mut fields = Self::default();
        for name in names {
            let name: Box<[u8]> = name.bytes().map(fold).collect();
            let key = key(&name);
            fields.filter[usize::from(key / 64)] |= 1 << (key % 64);
            fields.names.push(name);
        }
        fields
    }

    /// Whether the set has this name; case is ignored.
    #[must_use]
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        let name = name.as_bytes();
        let key = key(name);
        self.filter[usize::from(key / 64)] >> (key % 64) & 1 == 1
            && self.names.iter().any(|known| known.len() == name.len() && is_alike(name, known))
    }

    /// Appends the end of a chunked request with `trailers`, which are lines as `BodyDecoder::trailers` returns
    /// them, except those of this set: no proxy states the client's address in a trailer.
    pub fn encode_last_chunk(&self, out: &mut Vec<u8>, trailers: &[u8]) {
        if trailers.is_empty() {
            return encode_last_chunk(out, trailers);
        }
        out.extend_from_slice(b"0\r\n");
        for line in self.admitted_lines(trailers) {
            out.extend_from_slice(line);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The lines of `trailers` except those of this set, each with its CRLF.
    pub fn admitted_lines<'t>(&self, trailers: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
        trailers.split_inclusive(|&byte| byte == b'\n').filter(|line| {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            !core::str::from_utf8(name).is_ok_and(|name| self.contains(name))
        })
    }
}

/// A number that differs for most names. Any hyphen among the bytes that it depends on counts as `_`.
#[inline]
fn key(name: &[u8]) -> u8 {
    let [first, .., second_last, last] = name else { return name.len() as u8 };
    let sum = name.len() as u32
        + u32::from(fold(*first)) * 3
        + u32::from(fold(*last)) * 10
        + u32::from(fold(*second_last));
    (sum & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_spelling_and_near_names_are_not() {
        let names = ["x-real-ip", "true_client_ip", "ip", "x"].map(str::to_owned);
        let fields = ClientAddressFields::new(&names);
        for name in
            ["X-Real-IP", "x_real_ip", "X_REAL-IP", "True-Client-IP", "TRUE_CLIENT_IP", "IP", "x"]
        {
            assert!(fields.contains(name), "{name}");
        }
        for name in ["", "X-Real-I", "X-Real-IPs", "X.Real-IP", "X-Fake-IP", "y", "Host"] {
            assert!(!fields.contains(name), "{name}");
        }
        assert!(!ClientAddressFields::default().contains("x-real-ip"));
    }

    #[test]
    fn trailers_of_the_set_are_left_out() {
        let fields = ClientAddressFields::new(&["x-real-ip".to_owned()]);
        for (trailers, wanted) in [
            ("", "0\r\n\r\n"),
            ("A: b\r\n", "0\r\nA: b\r\n\r\n"),
            ("X_Real_IP: 1\r\nA: b\r\nx-real-ip: 2\r\n", "0\r\nA: b\r\n\r\n"),
        ] {
            let mut out = Vec::new();
            fields.encode_last_chunk(&mut out, trailers.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }
}
