//! Fields that claim what only a proxy may say: where a message came from, and who sent it.
//! In: a field's name. Out: whether it begins so. Never: judges who may make the claim.

/// How fields begin that say what a proxy in front has seen.
pub const FORWARDING_CLAIM: &[u8] = b"x-forwarded-";
/// How fields begin that say which certificate a client has shown.
pub const CERTIFICATE_CLAIM: &[u8] = b"x-client-cert-";

/// Whether a name begins so (`prefix` in lower case), also where `_` stands for `-`: gateway interfaces
/// map both to the same variable.
#[must_use]
#[inline]
pub fn is_claim(name: &str, prefix: &[u8]) -> bool {
    let Some(start) = name.as_bytes().get(..prefix.len()) else {
        return false;
    };
    let lower = |byte: &u8| {
        if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
    };
    start.iter().map(lower).eq(prefix.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_known_however_it_is_spelt() {
        for name in ["X-Forwarded-For", "x_forwarded_for", "X-FORWARDED_", "x-forwarded-"] {
            assert!(is_claim(name, FORWARDING_CLAIM), "{name}");
        }
        for name in ["", "X-Forwarded", "X.Forwarded-For", "Forwarded", "X-Client-Cert-Sha256"] {
            assert!(!is_claim(name, FORWARDING_CLAIM), "{name}");
        }
    }
}
