//! The trailer section of a chunked body (RFC 9112 section 7.1.2): read strictly, handed on in part.
//! In: its bytes, one by one. Out: the lines that may be handed on, canonical.
//! Never: lets a trailer field say what only a header field may (RFC 9110 section 6.5.1).
//! Limits: `TRAILER_BYTES_MAX`, `HEADER_FIELDS_MAX`; exists only when a trailer field comes.

use super::claim::{CERTIFICATE_CLAIM, FORWARDING_CLAIM, is_claim};
use super::encode::encode_field;
use super::fault::FaultKind;
use super::scan::{is_text, split_field_line};
use core::str::from_utf8;
use tidegate_base::limits::{HEADER_FIELDS_MAX, TRAILER_BYTES_MAX};

/// The trailer fields so far.
#[derive(Default, Debug)]
pub(super) struct TrailerSection {
    line: Vec<u8>,
    kept: Vec<u8>,
    bytes: usize,
    fields: usize,
}

impl TrailerSection {
    /// Takes a byte of a line.
    pub(super) fn push(&mut self, byte: u8) -> Result<(), FaultKind> {
        if !is_text(byte) {
            return Err(FaultKind::ControlByte);
        }
        self.bytes += 1;
        if self.bytes > TRAILER_BYTES_MAX {
            return Err(FaultKind::TrailerTooLarge);
        }
        self.line.push(byte);
        Ok(())
    }

    /// A line's CRLF is in.
    pub(super) fn end_line(&mut self) -> Result<(), FaultKind> {
        let (name, value) = split_field_line(&self.line)?;
        let name = from_utf8(name).map_err(|_| FaultKind::FieldNameInvalid)?;
        self.fields += 1;
        if self.fields > HEADER_FIELDS_MAX {
            return Err(FaultKind::TooManyFields);
        }
        if !is_forbidden(name) {
            encode_field(&mut self.kept, name, value);
        }
        self.line.clear();
        Ok(())
    }

    /// The lines that may be handed on, with CRLF each.
    pub(super) fn lines(&self) -> &[u8] {
        &self.kept
    }
}

/// Whether a trailer must not have that name: framing, routing, whom to believe, request modifiers,
/// authentication, response control data, and how to process the content. `_` counts as `-` here too.
fn is_forbidden(name: &str) -> bool {
    let is_named =
        |forbidden: &&str| forbidden.len() == name.len() && is_claim(name, forbidden.as_bytes());
    FORBIDDEN.iter().any(is_named)
        || [FORWARDING_CLAIM, CERTIFICATE_CLAIM, b"if-"].iter().any(|start| is_claim(name, start))
}

const FORBIDDEN: [&str; 42] = [
    // Message framing and the connection.
    "close",
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    // Routing and whom to believe.
    "forwarded",
    "host",
    "via",
    "x-real-ip",
    // Request modifiers.
    "cache-control",
    "expect",
    "max-forwards",
    "pragma",
    "prefer",
    "range",
    // Authentication and state.
    "authorization",
    "cookie",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "set-cookie",
    "www-authenticate",
    // Response control data.
    "age",
    "alt-svc",
    "clear-site-data",
    "date",
    "expires",
    "location",
    "retry-after",
    "strict-transport-security",
    "vary",
    "warning",
    // How to process the content.
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-type",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_keeps_what_it_may_say() {
        let mut section = TrailerSection::default();
        for line in ["X-Sum:  1 ", "Host: evil", "TE: x", "if-match: *", "X-Forwarded-For: 1.1.1.1"]
        {
            line.bytes().for_each(|byte| section.push(byte).unwrap());
            section.end_line().unwrap();
        }
        assert_eq!(section.lines(), b"X-Sum: 1\r\n");
    }

    #[test]
    fn a_trailer_makes_no_claims() {
        for name in [
            "X-Client-Cert-Subject",
            "x-client-cert-sha256",
            "X_Client_Cert_Subject",
            "X-Forwarded-Proto",
            "X_Forwarded_For",
            "x_forwarded-host",
            "X_Real_IP",
            "Content_Length",
            "Close",
            "If_Match",
        ] {
            assert!(is_forbidden(name), "{name}");
        }
        for name in ["X-Client-Certainty", "X-Forwarded", "X-Real-IP-Sum", "Via-Sum", "Iffy"] {
            assert!(!is_forbidden(name), "{name}");
        }
    }
}
