//! The claims of the tokens that clients connect and subscribe with (JSON Web Tokens, RFC 7519).
//! In: a token, keys, the time. Out: claims, or why the token is refused. Never: verifies a signature itself (`wire::jwt`).

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_wire::jwt::KeySet;
pub use tidegate_wire::jwt::Refusal;

/// The claims of a token.
#[derive(Debug, Default, Deserialize)]
pub struct Claims {
    /// The user; empty: anonymous.
    #[serde(default)]
    pub sub: String,
    /// When the token ends, in seconds since 1970.
    exp: Option<f64>,
    /// When the token begins.
    nbf: Option<f64>,
    /// When the connection ends, in place of `exp`; not positive: never.
    expire_at: Option<i64>,
    /// What other clients see of the user.
    pub info: Option<Box<RawValue>>,
    /// The channel that the token is for, if it is not for a connection.
    pub channel: Option<String>,
    /// The audience.
    #[serde(default)]
    pub aud: Option<Audience>,
    /// The issuer.
    #[serde(default)]
    pub iss: Option<String>,
}

/// One audience, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// The keys that sign tokens.
#[derive(Debug, Default)]
pub struct Keys(KeySet);

impl Keys {
    /// Keys with this secret; none if it is empty.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(KeySet::of_secret(secret.as_bytes()))
    }

    /// Verifies a token at a time in seconds since 1970.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn verify(&self, token: &str, unix_seconds: u64) -> Result<Claims, Refusal> {
        let text = self.0.verify(token)?;
        let claims: Claims = serde_json::from_slice(&text).map_err(|_| Refusal::Invalid)?;
        let now = unix_seconds as f64;
        match claims.exp.is_some_and(|end| end <= now)
            || claims.nbf.is_some_and(|begin| begin > now)
        {
            true => Err(Refusal::Expired),
            false => Ok(claims),
        }
    }
}

impl Claims {
    /// When what the token permits ends, in seconds since 1970; `None`: never.
    #[must_use]
    pub fn ends_at(&self) -> Option<u64> {
        match self.expire_at {
            Some(at) => u64::try_from(at).ok().filter(|at| *at > 0),
            None => self.exp.map(|end| end as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::hmac;
    use tidegate_wire::base64;
    use tidegate_wire::jwt::TOKEN_BYTES_MAX;

    use super::*;

    fn encode(bytes: &[u8]) -> String {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut out = String::new();
        for group in bytes.chunks(3) {
            let mut bits = [0; 4];
            bits[1..=group.len()].copy_from_slice(group);
            let bits = u32::from_be_bytes(bits);
            for place in 0..=group.len() {
                out.push(char::from(ALPHABET[(bits >> (18 - 6 * place)) as usize & 63]));
            }
        }
        out
    }

    fn token(header: &str, claims: &str, secret: &str) -> String {
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signature = encode(hmac::sign(&key, signed.as_bytes()).as_ref());
        format!("{signed}.{signature}")
    }

    const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

    #[test]
    fn example_of_rfc_7515_is_valid_until_it_expires() {
        let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let secret = base64::decode(secret.as_bytes()).expect("base64");
        let keys = Keys(KeySet::of_secret(&secret));
        let text = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6\
                    Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let claims = keys.verify(text, 1_300_819_379).expect("valid");
        assert_eq!((claims.iss.as_deref(), claims.ends_at()), (Some("joe"), Some(1_300_819_380)));
        assert_eq!(keys.verify(text, 1_300_819_380).err(), Some(Refusal::Expired));
    }

    #[test]
    fn only_valid_tokens_are_accepted() {
        let keys = Keys::new("secret");
        for (header, claims, secret, expected) in [
            (HEADER, r#"{"sub":"42"}"#, "secret", Ok("42")),
            (HEADER, r#"{"sub":"42","exp":101}"#, "secret", Ok("42")),
            (HEADER, r#"{"sub":"42","exp":100}"#, "secret", Err(Refusal::Expired)),
            (HEADER, r#"{"sub":"42","nbf":101}"#, "secret", Err(Refusal::Expired)),
            (HEADER, r#"{"sub":"42"}"#, "Secret", Err(Refusal::Invalid)),
            (r#"{"alg":"none"}"#, r#"{"sub":"42"}"#, "secret", Err(Refusal::Invalid)),
            (r#"{"alg":"HS512"}"#, r#"{"sub":"42"}"#, "secret", Err(Refusal::Invalid)),
            (r#"{"alg":"RS256"}"#, r#"{"sub":"42"}"#, "secret", Err(Refusal::Invalid)),
            (HEADER, r#"{"sub":42}"#, "secret", Err(Refusal::Invalid)),
            (HEADER, "[]", "secret", Err(Refusal::Invalid)),
        ] {
            let found = keys.verify(&token(header, claims, secret), 100);
            assert_eq!(
                found.as_ref().map(|claims| claims.sub.as_str()),
                expected.as_ref().copied()
            );
        }
        for wrong in ["", ".", "..", "a.b.c", "a.b", &"a".repeat(TOKEN_BYTES_MAX + 1)] {
            assert_eq!(keys.verify(wrong, 0).err(), Some(Refusal::Invalid), "{wrong}");
        }
        let unsigned = token(HEADER, "{}", "");
        assert_eq!(Keys::new("").verify(&unsigned, 0).err(), Some(Refusal::Invalid), "no secret");
    }

    #[test]
    fn end_of_a_connection_may_differ_from_that_of_its_token() {
        let keys = Keys::new("secret");
        for (claims, expected) in [
            ("{}", None),
            (r#"{"exp":200}"#, Some(200)),
            (r#"{"exp":200,"expire_at":300}"#, Some(300)),
            (r#"{"exp":200,"expire_at":-1}"#, None),
            (r#"{"exp":200,"expire_at":0}"#, None),
        ] {
            let found = keys.verify(&token(HEADER, claims, "secret"), 100).expect("valid");
            assert_eq!(found.ends_at(), expected, "{claims}");
        }
    }
}
