//! The names that a trailer field must not have, the same for every version (RFC 9110 section 6.5.1).
//! In: a name. Out: whether its field is allowed only in the header section.

use super::claim::{CERTIFICATE_CLAIM, FORWARDING_CLAIM, is_claim};

/// Whether a trailer field must not have this name. Forbidden are names for framing, routing, the client's
/// identity, request modifiers, authentication, response control data, and content processing. `_` matches
/// `-` here too.
#[must_use]
pub fn is_trailer_forbidden(name: &str) -> bool {
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
    // Routing and the client's identity.
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
    // Content processing.
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
    fn identity_and_framing_fields_are_forbidden_in_any_spelling() {
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
            assert!(is_trailer_forbidden(name), "{name}");
        }
        for name in ["X-Client-Certainty", "X-Forwarded", "X-Real-IP-Sum", "Via-Sum", "Iffy"] {
            assert!(!is_trailer_forbidden(name), "{name}");
        }
    }
}
