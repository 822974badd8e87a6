//! The names of fields that are not forwarded: those in which proxies state the client's address, other than the standard
//! ones, and lookalikes of those that conditions of routes test.
//! In: the names that a listener lists, the names in conditions. Out: whether a field has one of them; trailers without
//! them.

use tidegate_wire::http1::encode_last_chunk;

use crate::name_set::NameSet;

/// The names of a listener.
#[derive(Clone, Debug, Default)]
pub struct ClientAddressFields {
    /// Forwarded only if they are from a trusted client.
    claims: NameSet,
    /// The names in conditions, in any form.
    tested: NameSet,
    /// The same, as they are written.
    exact: Vec<String>,
}

impl ClientAddressFields {
    /// Prepares the set of `names`, which must be in lower case. `_` in them counts as `-`.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        Self { claims: NameSet::new(names), ..Self::default() }
    }

    /// Adds the names of fields that conditions test.
    #[must_use]
    pub fn testing<'n>(mut self, names: impl IntoIterator<Item = &'n String>) -> Self {
        self.exact.extend(names.into_iter().cloned());
        self.exact.sort();
        self.exact.dedup();
        self.tested = NameSet::new(&self.exact);
        self
    }

    /// Whether a condition tests a field of this name, but for `_` in place of `-`. A condition does not see such a field:
    /// a proxy in front that sets `X-User` may pass on the client's `X_User`. A server that reads both as one field, as with
    /// CGI, must not get it either, because a condition may be there to refuse the field.
    #[must_use]
    #[inline]
    pub fn is_lookalike(&self, name: &str) -> bool {
        self.tested.contains(name)
            && name.contains('_')
            && !self.exact.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Whether the set has this name; case is ignored.
    #[must_use]
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.claims.contains(name)
    }

    /// Appends the end of a chunked request with `trailers`, which are lines as `BodyDecoder::trailers` returns
    /// them, except those of this set: no proxy sends the client's address in a trailer, and a condition that may refuse a
    /// field was tested before the trailers came.
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

    /// The lines of `trailers` except those of this set and those that conditions test, each with its CRLF.
    pub fn admitted_lines<'t>(&self, trailers: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
        trailers.split_inclusive(|&byte| byte == b'\n').filter(|line| {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            !core::str::from_utf8(name)
                .is_ok_and(|name| self.contains(name) || self.tested.contains(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookalikes_have_underscores_and_are_not_tested_themselves() {
        let tested = ["x-user", "x_old", "host"].map(str::to_owned);
        let fields = ClientAddressFields::new(&[]).testing(&tested);
        assert!(fields.is_lookalike("X_User") && fields.is_lookalike("x_USER"));
        for name in ["X-User", "X_Old", "X-Old", "X_Users", "X.User", "Host", ""] {
            assert!(!fields.is_lookalike(name), "{name}");
        }
        assert!(!ClientAddressFields::default().is_lookalike("X_User"));
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
