//! The claims of the tokens that clients connect and subscribe with (JSON Web Tokens, RFC 7519).
//! In: a token, keys, the time. Out: claims, or why the token is refused. Never: verifies a signature itself (`wire::jwt`).

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_config::model::{Push, RemoteAddress};
use tidegate_wire::jwt::{
    FetchedKeys, FetchedKeysReader, KeySet, Refusal as Signature, Unverified,
};

use crate::server_subscription::{ServerSubscription, Subs, collect, json_of};
use crate::settings::Hubs;

/// Why a token is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is malformed, its signature is wrong, or it is for another service.
    Invalid,
    /// It has expired or is not valid yet.
    Expired,
    /// The keys are not fetched yet, or a newer set is being fetched. The same token may be valid in a moment.
    Unavailable,
}

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
    /// When the connection ends, in place of `exp`; 0: never; negative: the token is refused.
    expire_at: Option<i64>,
    /// The data about the user that other clients see; in a token for a subscription, only in its channel.
    info: Option<Box<RawValue>>,
    #[serde(default)]
    b64info: Option<String>,
    /// Data about the connection in events to the backend, which clients do not see.
    meta: Option<Box<RawValue>>,
    /// The channel that the token is for, if it is not for a connection.
    pub channel: Option<String>,
    /// The channels that the client is subscribed to when it connects.
    #[serde(default)]
    channels: Vec<String>,
    /// The same, with details, in place of `channels`.
    #[serde(default)]
    subs: Subs,
    /// Data for a client that subscribes with the token.
    data: Option<Box<RawValue>>,
    #[serde(default)]
    b64data: Option<String>,
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

/// The verifier of the tokens of a hub.
#[derive(Debug, Default)]
pub struct Keys {
    signers: Signers,
    /// The audiences of which a token must name one; empty: any.
    audience: Vec<String>,
    /// The issuer that a token must name; `None`: any.
    issuer: Option<String>,
    /// The difference of clocks that is tolerated, in seconds.
    leeway: u64,
}

/// The keys that sign tokens.
#[derive(Debug)]
enum Signers {
    /// A secret. Empty: no token is valid.
    Secret(KeySet),
    /// Public keys of a file.
    Public(KeySet),
    /// Public keys that are fetched while the process serves.
    Fetched(Arc<FetchedKeys>),
}

impl Default for Signers {
    fn default() -> Self {
        Self::Secret(KeySet::default())
    }
}

impl Keys {
    /// The keys of a hub. `find` returns those of an address. Without usable keys, which loading a configuration reports,
    /// no token is valid.
    #[must_use]
    pub fn new(push: &Push, find: impl FnOnce(&RemoteAddress) -> Option<Arc<FetchedKeys>>) -> Self {
        let remote = push.token_keys.as_ref().and_then(|keys| keys.remote.as_ref());
        let signers = match (&push.token_keys, remote) {
            (_, Some(remote)) => find(remote).map_or_else(Signers::default, Signers::Fetched),
            (Some(keys), None) => {
                Signers::Public(KeySet::parse(&keys.content.0).unwrap_or_default())
            }
            (None, None) => Signers::Secret(KeySet::of_secret(push.token_secret.as_bytes())),
        };
        let (audience, issuer) = (push.token_audience.clone(), push.token_issuer.clone());
        Self { signers, audience, issuer, leeway: push.token_leeway.as_secs() }
    }

    /// Whether a token may be valid.
    #[must_use]
    pub fn is_some(&self) -> bool {
        match &self.signers {
            Signers::Secret(keys) | Signers::Public(keys) => !keys.is_empty(),
            Signers::Fetched(_) => true,
        }
    }

    /// Whether a signature takes so long that a worker must bound how many it verifies in a turn.
    #[must_use]
    pub const fn is_slow(&self) -> bool {
        match self.signers {
            Signers::Secret(_) => false,
            Signers::Public(_) | Signers::Fetched(_) => true,
        }
    }

    /// Verifies a token at a time in seconds since 1970.
    fn verify(
        &self,
        reader: Option<&FetchedKeysReader>,
        token: &str,
        unix_seconds: u64,
    ) -> Result<Claims, Refusal> {
        let text = match (&self.signers, reader) {
            (Signers::Secret(keys) | Signers::Public(keys), _) => keys.verify(token)?,
            (Signers::Fetched(_), Some(keys)) => keys.verify(token, unix_seconds)?,
            (Signers::Fetched(_), None) => return Err(Refusal::Unavailable),
        };
        let claims: Claims = serde_json::from_slice(&text).map_err(|_| Refusal::Invalid)?;
        let (now, leeway) = (unix_seconds as f64, self.leeway as f64);
        let is_over = claims.exp.is_some_and(|end| end + leeway <= now);
        if is_over || claims.nbf.is_some_and(|begin| begin > now + leeway) {
            return Err(Refusal::Expired);
        }
        let is_known = self.issuer.is_none() || claims.iss == self.issuer;
        let is_meant = self.audience.is_empty()
            || claims.aud.as_ref().is_some_and(|named| named.has_one_of(&self.audience));
        // A time before 1970 is a mistake of the application, which did not mean a connection without an end.
        let has_end = claims.expire_at.is_none_or(|at| at >= 0);
        if is_known && is_meant && has_end { Ok(claims) } else { Err(Refusal::Invalid) }
    }
}

impl From<Signature> for Refusal {
    fn from(refusal: Signature) -> Self {
        match refusal {
            Signature::Invalid => Self::Invalid,
            Signature::Expired => Self::Expired,
        }
    }
}

impl From<Unverified> for Refusal {
    fn from(unverified: Unverified) -> Self {
        match unverified {
            Unverified::Refused(refusal) => refusal.into(),
            Unverified::UnknownKey => Self::Invalid,
            Unverified::Unavailable => Self::Unavailable,
        }
    }
}

/// A worker's way to the keys of its hubs.
#[derive(Debug, Default)]
pub struct Verifier {
    /// By hub; `None` if its keys are not fetched.
    readers: Vec<Option<FetchedKeysReader>>,
}

impl Verifier {
    /// Readers of the keys of `hubs`.
    #[must_use]
    pub fn new(hubs: &Hubs) -> Self {
        let reader = |keys: &Keys| match &keys.signers {
            Signers::Secret(_) | Signers::Public(_) => None,
            Signers::Fetched(keys) => Some(keys.reader()),
        };
        Self { readers: hubs.all().map(|hub| reader(&hub.keys)).collect() }
    }

    /// Verifies a token for hub `index` at a time in seconds since 1970.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn verify(
        &self,
        (hubs, index): (&Hubs, u16),
        token: &str,
        unix_seconds: u64,
    ) -> Result<Claims, Refusal> {
        let hub = hubs.get(index).ok_or(Refusal::Invalid)?;
        let reader = self.readers.get(usize::from(index)).and_then(Option::as_ref);
        hub.keys.verify(reader, token, unix_seconds)
    }
}

impl Audience {
    fn has_one_of(&self, wanted: &[String]) -> bool {
        match self {
            Self::One(name) => wanted.contains(name),
            Self::Many(names) => names.iter().any(|name| wanted.contains(name)),
        }
    }
}

impl Claims {
    /// When the permission of the token ends, in seconds since 1970; `None`: never.
    #[must_use]
    pub fn ends_at(&self) -> Option<u64> {
        match self.expire_at {
            Some(at) => u64::try_from(at).ok().filter(|at| *at > 0),
            None => self.exp.map(|end| end as u64),
        }
    }

    /// Whether the token permits a subscription to this channel by its name: it is for this subscription, or it is for a
    /// connection and subscribes it to the channel.
    #[must_use]
    pub fn names(&self, channel: &str) -> bool {
        match &self.channel {
            Some(own) => own == channel,
            None if self.subs.is_empty() => self.channels.iter().any(|own| own == channel),
            None => self.subs.contains_key(channel),
        }
    }

    /// Data about the user that other clients see, or that clients in the channel of a subscription token see: JSON in one line;
    /// empty: nothing.
    ///
    /// # Errors
    /// It is no JSON, or nested too deeply.
    pub fn info(&self) -> Result<Box<str>, Refusal> {
        stated(self.info.as_deref(), self.b64info.as_deref())
    }

    /// Data for a client that subscribes with the token: JSON in one line; empty: no data.
    ///
    /// # Errors
    /// It is no JSON, or nested too deeply.
    pub fn data(&self) -> Result<Box<str>, Refusal> {
        stated(self.data.as_deref(), self.b64data.as_deref())
    }

    /// Data about the connection for events to the backend: JSON in one line; empty: nothing.
    ///
    /// # Errors
    /// It is nested too deeply.
    pub fn meta(&self) -> Result<Box<str>, Refusal> {
        stated(self.meta.as_deref(), None)
    }

    /// The channels that the client is subscribed to when it connects. As in Centrifugo, `channels` has no effect together with
    /// `subs`.
    ///
    /// # Errors
    /// A detail of one is no JSON, or nested too deeply.
    pub fn subscriptions(&self) -> Result<Vec<ServerSubscription>, Refusal> {
        let channels = if self.subs.is_empty() { self.channels.as_slice() } else { &[] };
        collect(channels, &self.subs).map_err(|_| Refusal::Invalid)
    }
}

fn stated(plain: Option<&RawValue>, encoded: Option<&str>) -> Result<Box<str>, Refusal> {
    json_of(plain, encoded).map(Option::unwrap_or_default).map_err(|_| Refusal::Invalid)
}

#[cfg(test)]
pub(crate) mod tests {
    use aws_lc_rs::hmac;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
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

    fn signed(header: &str, claims: &str) -> String {
        format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()))
    }

    /// A key of Ed25519, chosen by its number.
    fn pair(number: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[number; 32]).expect("a seed")
    }

    /// A set (RFC 7517) with the key of this number, which is its name, too.
    pub(crate) fn key_set(number: u8) -> String {
        let key = encode(pair(number).public_key().as_ref());
        format!(
            "{{\"keys\":[{{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"{number}\",\"x\":\"{key}\"}}]}}"
        )
    }

    /// A token signed by the key of this number.
    pub(crate) fn public_token(number: u8, claims: &str) -> String {
        let signed = signed(&format!("{{\"alg\":\"EdDSA\",\"kid\":\"{number}\"}}"), claims);
        format!("{signed}.{}", encode(pair(number).sign(signed.as_bytes()).as_ref()))
    }

    fn token(header: &str, claims: &str, secret: &str) -> String {
        let signed = signed(header, claims);
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signature = encode(hmac::sign(&key, signed.as_bytes()).as_ref());
        format!("{signed}.{signature}")
    }

    /// A token signed with a secret.
    pub(crate) fn secret_token(secret: &str, claims: &str) -> String {
        token(HEADER, claims, secret)
    }

    fn keys_of(secret: &str) -> Keys {
        let signers = Signers::Secret(KeySet::of_secret(secret.as_bytes()));
        Keys { signers, ..Keys::default() }
    }

    const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

    #[test]
    fn example_of_rfc_7515_is_valid_until_it_expires() {
        let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let secret = base64::decode(secret.as_bytes()).expect("base64");
        let signers = Signers::Secret(KeySet::of_secret(&secret));
        let keys = Keys { signers, ..Keys::default() };
        let text = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6\
                    Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let claims = keys.verify(None, text, 1_300_819_379).expect("valid");
        assert_eq!((claims.iss.as_deref(), claims.ends_at()), (Some("joe"), Some(1_300_819_380)));
        assert_eq!(keys.verify(None, text, 1_300_819_380).err(), Some(Refusal::Expired));
    }

    #[test]
    fn only_valid_tokens_are_accepted() {
        let keys = keys_of("secret");
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
            let found = keys.verify(None, &token(header, claims, secret), 100);
            assert_eq!(
                found.as_ref().map(|claims| claims.sub.as_str()),
                expected.as_ref().copied()
            );
        }
        for wrong in ["", ".", "..", "a.b.c", "a.b", &"a".repeat(TOKEN_BYTES_MAX + 1)] {
            assert_eq!(keys.verify(None, wrong, 0).err(), Some(Refusal::Invalid), "{wrong}");
        }
        let unsigned = token(HEADER, "{}", "");
        assert_eq!(
            keys_of("").verify(None, &unsigned, 0).err(),
            Some(Refusal::Invalid),
            "no secret"
        );
    }

    fn hubs(settings: &str, keys: &str, find: impl Fn() -> Option<Arc<FetchedKeys>>) -> Hubs {
        let text = format!("[[listener]]\nbind = \"127.0.0.1:0\"\n[push.p]\n{settings}");
        let config = tidegate_config::parse(&text, "the test");
        let mut config = config.unwrap_or_else(|errors| panic!("{errors}"));
        let supplied = tidegate_config::supply(&mut config, |_| Ok(keys.into()));
        assert_eq!(supplied, Ok(()));
        Hubs::with_keys(&config, |_| find())
    }

    #[test]
    fn public_keys_verify_tokens_of_their_issuer_for_this_audience() {
        let settings = "token-keys = \"keys.json\"\ntoken-audience = [\"app\", \"web\"]\ntoken-issuer = \"id\"\n";
        let hubs = hubs(settings, &key_set(1), || None);
        let verifier = Verifier::new(&hubs);
        assert!(hubs.lets_commands_wait());
        let good = "{\"sub\":\"7\",\"aud\":\"app\",\"iss\":\"id\"";
        for (token, expected) in [
            (public_token(1, &format!("{good}}}")), Ok("7")),
            (public_token(1, "{\"sub\":\"7\",\"aud\":[\"x\",\"web\"],\"iss\":\"id\"}"), Ok("7")),
            (public_token(1, &format!("{good},\"exp\":71}}")), Ok("7")),
            (public_token(1, &format!("{good},\"exp\":70}}")), Err(Refusal::Expired)),
            (
                public_token(1, "{\"sub\":\"7\",\"aud\":\"x\",\"iss\":\"id\"}"),
                Err(Refusal::Invalid),
            ),
            (public_token(1, "{\"sub\":\"7\",\"aud\":[],\"iss\":\"id\"}"), Err(Refusal::Invalid)),
            (public_token(1, "{\"sub\":\"7\",\"iss\":\"id\"}"), Err(Refusal::Invalid)),
            (
                public_token(1, "{\"sub\":\"7\",\"aud\":\"app\",\"iss\":\"x\"}"),
                Err(Refusal::Invalid),
            ),
            (public_token(1, "{\"sub\":\"7\",\"aud\":\"app\"}"), Err(Refusal::Invalid)),
            (public_token(2, &format!("{good}}}")), Err(Refusal::Invalid)),
            // A public key is no secret.
            (token(HEADER, &format!("{good}}}"), &key_set(1)), Err(Refusal::Invalid)),
            (token(HEADER, &format!("{good}}}"), ""), Err(Refusal::Invalid)),
        ] {
            let found = verifier.verify((&hubs, 0), &token, 100).map(|claims| claims.sub);
            assert_eq!(found.as_deref(), expected.as_ref().map(|sub| *sub), "{token}");
        }
    }

    #[test]
    fn fetched_keys_verify_tokens_from_the_first_set_on() {
        let live = FetchedKeys::new();
        let settings = "token-keys = \"https://id.example/keys\"\n";
        let hubs = hubs(settings, "", || Some(Arc::clone(&live)));
        let verifier = Verifier::new(&hubs);
        let verify = |number, at| {
            let found = verifier.verify((&hubs, 0), &public_token(number, "{\"sub\":\"7\"}"), at);
            found.map(|claims| claims.sub)
        };
        assert_eq!(verify(1, 100), Err(Refusal::Unavailable));
        live.offer(key_set(1).as_bytes(), 100).expect("a set");
        assert_eq!(verify(1, 100).as_deref(), Ok("7"));
        assert_eq!(verify(2, 100), Err(Refusal::Invalid), "the set is new");
        assert_eq!(verify(2, 200), Err(Refusal::Unavailable), "a newer set may have the key");
        live.offer(key_set(2).as_bytes(), 200).expect("a set");
        assert_eq!(verify(2, 200).as_deref(), Ok("7"));
    }

    #[test]
    fn clocks_may_differ_by_the_leeway() {
        let keys = Keys { leeway: 30, ..keys_of("secret") };
        for (claims, is_valid) in [
            (r#"{"exp":71}"#, true),
            (r#"{"exp":70}"#, false),
            (r#"{"nbf":130}"#, true),
            (r#"{"nbf":131}"#, false),
            (r#"{"exp":1e300,"nbf":-1e300}"#, true),
        ] {
            let found = keys.verify(None, &token(HEADER, claims, "secret"), 100);
            assert_eq!(found.is_ok(), is_valid, "{claims}");
        }
    }

    #[test]
    fn channels_of_a_connection_are_those_of_subs_or_else_of_channels() {
        let keys = keys_of("secret");
        let read =
            |claims| keys.verify(None, &token(HEADER, claims, "secret"), 100).expect("valid");
        for (claims, expected) in [
            ("{}", &[][..]),
            (r#"{"channels":["b","a","b"]}"#, &["a", "b"]),
            (r#"{"channels":["b"],"subs":{}}"#, &["b"]),
            (r#"{"channels":["b"],"subs":{"a":{"info":1}}}"#, &["a"]),
        ] {
            let found = read(claims).subscriptions().expect("JSON");
            let names: Vec<&str> = found.iter().map(|one| &*one.channel).collect();
            assert_eq!(names, expected, "{claims}");
        }
        assert_eq!(
            read(r#"{"subs":{"a":{"b64info":"?"}}}"#).subscriptions(),
            Err(Refusal::Invalid)
        );
        let claims = read("{\"info\":{\"n\":\n1},\"meta\":[2],\"b64data\":\"eyJhIjoxfQ==\"}");
        let texts = [claims.info(), claims.meta(), claims.data()].map(|text| text.expect("JSON"));
        assert_eq!(texts.each_ref().map(|text| &**text), ["{\"n\": 1}", "[2]", "{\"a\":1}"]);
    }

    #[test]
    fn end_of_a_connection_may_differ_from_that_of_its_token() {
        let keys = keys_of("secret");
        for (claims, expected) in [
            ("{}", None),
            (r#"{"exp":200}"#, Some(200)),
            (r#"{"exp":200,"expire_at":300}"#, Some(300)),
            (r#"{"exp":200,"expire_at":0}"#, None),
        ] {
            let found = keys.verify(None, &token(HEADER, claims, "secret"), 100).expect("valid");
            assert_eq!(found.ends_at(), expected, "{claims}");
        }
        for claims in [r#"{"exp":200,"expire_at":-1}"#, r#"{"expire_at":-9223372036854775808}"#] {
            let found = keys.verify(None, &token(HEADER, claims, "secret"), 100).err();
            assert_eq!(found, Some(Refusal::Invalid), "{claims}");
        }
    }
}
