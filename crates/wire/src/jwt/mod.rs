//! JSON Web Tokens (RFC 7519) in compact form: signatures and claims.
//! In: a token, keys, the time. Out: claims, or why the token is refused.
//! Never: accepts a token in another form than that of RFC 7515 (base64url without padding), `none`, or an algorithm
//! that the key is not meant for: the key decides, and the token only chooses among the algorithms of one key (RFC 8725
//! section 3.1).
//! Limits: `TOKEN_BYTES_MAX`, `TRIES_MAX`; `KEYS_MAX` keys in a set.

mod claims;
mod fetched_keys;
mod keys;

pub use claims::Claims;
pub use fetched_keys::{
    CONTENT_BYTES_MAX, FetchedKeys, FetchedKeysFacts, FetchedKeysReader, Unverified,
    WANT_SECONDS_MIN,
};
pub use keys::{KEYS_MAX, KeySet};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::base64;

/// The longest token.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of signatures that are verified for one token. A token without `kid`, or keys without IDs, may fit several
/// keys; each try takes the time of a signature.
const TRIES_MAX: usize = 4;

/// The claims that a token states, whoever made it: for people who look at a token, never for a decision. `None`: it is
/// malformed.
#[must_use]
pub fn stated_claims(token: &str) -> Option<Claims> {
    let claims = token.split('.').nth(1)?;
    Claims::parse(&base64::decode_canonical(claims.as_bytes())?).ok()
}

/// Why a token is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is malformed, or its signature is wrong.
    Invalid,
    /// It has expired or is not valid yet.
    Expired,
}

/// The header of a token (RFC 7515 section 4.1).
#[derive(Deserialize)]
struct Header {
    /// The algorithm of the signature.
    alg: String,
    /// The ID of the key.
    kid: Option<String>,
    /// Extensions that a recipient must understand (RFC 7515 section 4.1.11). None is supported.
    crit: Option<IgnoredAny>,
}

impl KeySet {
    /// Verifies the signature of a token. Returns the text of its claims.
    ///
    /// # Errors
    /// It is malformed, or no key of the set has signed it.
    pub fn verify(&self, token: &str) -> Result<Vec<u8>, Refusal> {
        self.payload(token).ok_or(Refusal::Invalid)
    }

    /// Whether the token names a key that is not in the set, so that a newer set may verify it.
    #[must_use]
    pub fn lacks_key_of(&self, token: &str) -> bool {
        let header = token.split_once('.').and_then(|(header, _)| header_of(header));
        header.and_then(|header| header.kid).is_some_and(|name| !self.has_named(&name))
    }

    fn payload(&self, token: &str) -> Option<Vec<u8>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = header_of(header)?;
        if header.crit.is_some() {
            return None;
        }
        let signature = base64::decode_canonical(signature.as_bytes())?;
        let mut fitting = self.fitting(&header.alg, header.kid.as_deref()).take(TRIES_MAX);
        if !fitting.any(|key| key.has_signed(&header.alg, signed.as_bytes(), &signature)) {
            return None;
        }
        base64::decode_canonical(claims.as_bytes())
    }
}

fn header_of(text: &str) -> Option<Header> {
    let header = base64::decode_canonical(text.as_bytes())?;
    serde_json::from_slice(&header).ok()
}

#[cfg(test)]
mod tests;
