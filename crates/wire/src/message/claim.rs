//! Fields with claims that only a trusted proxy may make: where a message came from, and its client.
//! In: the name of a field. Out: whether it has the prefix of a claim.
//! Never: decides which peer may make the claim.

/// Prefix of the fields in which a proxy in front reports the client's connection.
pub const FORWARDING_CLAIM: &[u8] = b"x-forwarded-";
/// Prefix of the fields in which a proxy in front reports the client's certificate.
pub const CERTIFICATE_CLAIM: &[u8] = b"x-client-cert-";

/// Whether a name begins with `prefix`, which must be in lower case. `_` in the name matches `-`, because
/// gateway interfaces such as CGI map both to the same variable.
#[must_use]
#[inline]
pub fn is_claim(name: &str, prefix: &[u8]) -> bool {
    name.as_bytes().get(..prefix.len()).is_some_and(|start| is_alike(start, prefix))
}

/// Whether `name` is `lower`, which must be in lower case; `_` in the name matches `-`.
#[must_use]
#[inline]
pub fn is_alike(name: &[u8], lower: &[u8]) -> bool {
    name.iter().map(|&byte| fold(byte)).eq(lower.iter().copied())
}

/// `byte` in lower case, with `-` for `_`.
#[must_use]
#[inline]
pub const fn fold(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_recognized_in_any_spelling() {
        for name in ["X-Forwarded-For", "x_forwarded_for", "X-FORWARDED_", "x-forwarded-"] {
            assert!(is_claim(name, FORWARDING_CLAIM), "{name}");
        }
        for name in ["", "X-Forwarded", "X.Forwarded-For", "Forwarded", "X-Client-Cert-Sha256"] {
            assert!(!is_claim(name, FORWARDING_CLAIM), "{name}");
        }
    }
}
