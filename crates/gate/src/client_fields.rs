//! The names of fields in which proxies state the client's address, other than the standard ones.
//! In: the names that a listener lists. Out: whether a field has one of them; trailers without them.

use tidegate_wire::http1::encode_last_chunk;

use crate::name_set::NameSet;

/// The names of a listener.
#[derive(Clone, Debug, Default)]
pub struct ClientAddressFields(NameSet);

impl ClientAddressFields {
    /// Prepares the set of `names`, which must be in lower case. `_` in them counts as `-`.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        Self(NameSet::new(names))
    }

    /// Whether the set has this name; case is ignored.
    #[must_use]
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
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

#[cfg(test)]
mod tests {
    use super::*;

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
