//! Tokens of requests (RFC 6750): JSON Web Tokens in the Authorization field or in a cookie.
//! In: the head of a request, the time. Out: the claims of a valid token, or the response to the request.
//! Never: keeps a token; verifies one twice within its time, as long as it is remembered.
//! Limits: `TOKENS_MAX` tokens with `CLAIMS_BYTES_MAX` bytes of claims are remembered; the oldest is forgotten first.
//! Invariant: only valid tokens are remembered, for one route's settings. Their key is a keyed hash of 128 bits.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use tidegate_config::model::JwtAuth;
use tidegate_wire::jwt::{Claims, KeySet, Refusal, TOKEN_BYTES_MAX};
use tidegate_wire::message::RequestHead;

use crate::basic::{CredentialKey, CredentialSecret};
use crate::denial::Denial;
use crate::parameters::find_cookie;

/// The most tokens that are remembered.
pub const TOKENS_MAX: usize = 4096;
/// The most bytes of the tokens whose claims are remembered.
pub const CLAIMS_BYTES_MAX: usize = 4 << 20;

/// Why a request is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenFault {
    /// It has no token.
    Missing,
    /// It has more than one token, or one that cannot be read.
    Malformed,
    /// The token is not valid.
    Invalid,
    /// The token has expired or is not valid yet.
    Expired,
    /// The token lacks a claim that the route demands.
    Insufficient,
}

/// `auth = { jwt = ... }` of a route, prepared.
#[derive(Debug)]
pub struct TokenGuard {
    /// As configured.
    settings: JwtAuth,
    /// The keys that verify tokens. Empty if the file has no usable key.
    keys: KeySet,
    /// Identifies the settings and the keys.
    identity: Vec<u8>,
    /// The values of WWW-Authenticate, by `TokenFault`.
    challenges: [String; 5],
}

impl TokenGuard {
    /// Prepares the settings. Without usable keys, which loading a configuration reports, every token is refused.
    #[must_use]
    pub fn new(settings: &JwtAuth) -> Self {
        let keys = key_set(settings).unwrap_or_default();
        let realm = &settings.realm;
        let with = |error: &str, what: &str| {
            format!("Bearer realm=\"{realm}\", error=\"{error}\", error_description=\"{what}\"")
        };
        let mut identity = format!("{settings:?}").into_bytes();
        identity.extend_from_slice(&settings.content.0);
        Self {
            settings: settings.clone(),
            keys,
            identity,
            challenges: [
                format!("Bearer realm=\"{realm}\""),
                with(
                    "invalid_request",
                    "the request has more than one token, or none that can be read",
                ),
                with("invalid_token", "the token is not valid here"),
                with("invalid_token", "the token has expired or is not valid yet"),
                with("insufficient_scope", "the token lacks a claim that this needs"),
            ],
        }
    }

    /// The token of a request.
    ///
    /// # Errors
    /// It has none, or more than one.
    pub fn token<'h>(&self, head: &RequestHead<'h>) -> Result<&'h str, TokenFault> {
        let mut fields =
            head.fields().filter(|field| field.name.eq_ignore_ascii_case("authorization"));
        let (field, second) = (fields.next(), fields.next());
        if second.is_some() {
            return Err(TokenFault::Malformed);
        }
        let bearer = field.and_then(|field| {
            let (scheme, token) = field.value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
        });
        let cookie = || find_cookie(head, self.settings.cookie.as_deref()?);
        let token = bearer.or_else(cookie).filter(|token| !token.is_empty());
        let token = token.ok_or(TokenFault::Missing)?;
        match core::str::from_utf8(token) {
            Ok(token) if token.len() <= TOKEN_BYTES_MAX => Ok(token),
            Ok(_) | Err(_) => Err(TokenFault::Malformed),
        }
    }

    /// The key under which a token is remembered for this route.
    #[must_use]
    pub fn key(&self, token: &str, secret: &CredentialSecret) -> CredentialKey {
        secret.key_of(&[&self.identity, token.as_bytes()])
    }

    /// Verifies a token at a time in seconds since 1970.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn verify(&self, token: &str, unix_seconds: u64) -> Result<Claims, TokenFault> {
        let invalid = |refusal: Refusal| match refusal {
            Refusal::Invalid => TokenFault::Invalid,
            Refusal::Expired => TokenFault::Expired,
        };
        let text = self.keys.verify(token).map_err(invalid)?;
        let claims = Claims::parse(&text).map_err(invalid)?;
        claims.check_times(unix_seconds, self.leeway()).map_err(invalid)?;
        let settings = &self.settings;
        if settings.issuer.as_deref().is_some_and(|issuer| claims.text("iss") != Some(issuer)) {
            return Err(TokenFault::Invalid);
        }
        let audience = &settings.audience;
        if !audience.is_empty() && !audience.iter().any(|one| claims.holds("aud", one)) {
            return Err(TokenFault::Invalid);
        }
        match settings.claims.iter().all(|(name, wanted)| claims.holds(name, wanted)) {
            true => Ok(claims),
            false => Err(TokenFault::Insufficient),
        }
    }

    /// The response to a request whose token was refused.
    #[must_use]
    pub fn denial(&self, fault: TokenFault) -> Denial<'_> {
        let (status, text) = match fault {
            TokenFault::Missing => (401, "this needs a token"),
            TokenFault::Malformed => {
                (400, "the request has more than one token, or none that can be read")
            }
            TokenFault::Invalid => (401, "the token is not valid"),
            TokenFault::Expired => (401, "the token has expired or is not valid yet"),
            TokenFault::Insufficient => (403, "the token does not permit this"),
        };
        Denial { challenge: &self.challenges[fault as usize], ..Denial::new(status, text) }
    }

    /// The difference of clocks that is tolerated, in seconds.
    #[must_use]
    pub fn leeway(&self) -> u64 {
        self.settings.leeway.as_secs()
    }
}

/// The keys of a route.
///
/// # Errors
/// What is wrong with the content of the file.
pub fn key_set(settings: &JwtAuth) -> Result<KeySet, String> {
    match settings.is_secret {
        false => KeySet::parse(&settings.content.0),
        true => match settings.content.0.trim_ascii() {
            secret if secret.len() < SECRET_BYTES_MIN => {
                Err(format!("a secret of less than {SECRET_BYTES_MIN} bytes"))
            }
            secret => Ok(KeySet::of_secret(secret)),
        },
    }
}

/// The shortest secret: shorter ones can be found by trying (RFC 7518 section 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// A token that was verified.
#[derive(Debug)]
struct Remembered {
    /// The claims of the token.
    claims: Rc<Claims>,
    /// When it ends, in seconds since 1970, the leeway included.
    until: u64,
    /// Bytes of the token.
    bytes: usize,
}

/// The tokens that were verified lately.
#[derive(Debug, Default)]
pub struct Tokens {
    /// The tokens, each by its key.
    known: BTreeMap<CredentialKey, Remembered>,
    /// The keys in the order in which they were verified; each once.
    order: VecDeque<CredentialKey>,
    /// Bytes of the tokens in `known`.
    bytes: usize,
}

impl Tokens {
    /// The claims of a token that was verified and has not expired.
    #[must_use]
    pub fn find(&self, key: CredentialKey, unix_seconds: u64) -> Option<Rc<Claims>> {
        let known = self.known.get(&key)?;
        (unix_seconds < known.until).then(|| Rc::clone(&known.claims))
    }

    /// Remembers a token of `bytes` bytes that was verified. Returns its claims.
    pub fn insert(
        &mut self,
        key: CredentialKey,
        claims: Claims,
        bytes: usize,
        leeway: u64,
    ) -> Rc<Claims> {
        let until = claims.ends_at().map_or(u64::MAX, |end| end.saturating_add(leeway));
        let claims = Rc::new(claims);
        let remembered = Remembered { claims: Rc::clone(&claims), until, bytes };
        if let Some(before) = self.known.insert(key, remembered) {
            self.bytes -= before.bytes;
            self.order.retain(|known| *known != key);
        }
        self.bytes += bytes;
        self.order.push_back(key);
        while self.order.len() > TOKENS_MAX || self.bytes > CLAIMS_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.known.remove(&oldest).map_or(0, |known| known.bytes);
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::Span;
    use tidegate_config::model::KeyContent;
    use tidegate_wire::http1::{HeadDecoder, HeadLimits};
    use tidegate_wire::message::FieldStorage;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    /// By `SECRET`: {"sub":"bob","role":"admin","aud":["app","x"],"iss":"id","exp":2000000000}
    const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJib2IiLCJyb2xlIjoiYWRtaW4iLCJhdWQiOlsiYXBwI\
        iwieCJdLCJpc3MiOiJpZCIsImV4cCI6MjAwMDAwMDAwMH0.DNbGnHc8yry6SeeExBsRyun-s9J-_PzIkiwAWcBsJ1A\
        ";

    fn settings() -> JwtAuth {
        JwtAuth {
            file: "secret".to_owned(),
            is_secret: true,
            content: KeyContent(SECRET.as_bytes().into()),
            realm: "Area".to_owned(),
            audience: vec!["other".to_owned(), "app".to_owned()],
            issuer: Some("id".to_owned()),
            claims: vec![("role".to_owned(), "admin".to_owned())],
            leeway: Span::from_secs(30),
            cookie: Some("session".to_owned()),
        }
    }

    fn token_of(fields: &str) -> Result<String, TokenFault> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        let mut decoder = HeadDecoder::default();
        let decoded =
            decoder.decode_request(bytes.as_bytes(), &HeadLimits::default(), &mut storage);
        let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}") };
        TokenGuard::new(&settings()).token(&head).map(str::to_owned)
    }

    #[test]
    fn token_is_in_one_field_or_in_the_cookie() {
        for (fields, expected) in [
            ("Authorization: Bearer a.b.c\r\n", Ok("a.b.c")),
            ("authorization: bEARER   a\r\n", Ok("a")),
            ("Cookie: x=y; session=a.b\r\n", Ok("a.b")),
            ("Authorization: Bearer a\r\nCookie: session=b\r\n", Ok("a")),
            ("Authorization: Basic YTpi\r\nCookie: session=b\r\n", Ok("b")),
            ("Authorization: Bearer a\r\nAuthorization: Bearer a\r\n", Err(TokenFault::Malformed)),
            ("Authorization: Bearer \r\n", Err(TokenFault::Missing)),
            ("Authorization: Bearer\r\n", Err(TokenFault::Missing)),
            ("Cookie: other=b\r\n", Err(TokenFault::Missing)),
            ("", Err(TokenFault::Missing)),
        ] {
            assert_eq!(token_of(fields), expected.map(str::to_owned), "{fields}");
        }
        let long = format!("Authorization: Bearer {}\r\n", "a".repeat(15 * 1024));
        assert!(token_of(&long).is_ok());
    }

    #[test]
    fn each_setting_must_be_met() {
        let verify = |change: fn(&mut JwtAuth), now: u64| {
            let mut settings = settings();
            change(&mut settings);
            let claims = TokenGuard::new(&settings).verify(TOKEN, now)?;
            Ok(claims.text("sub").unwrap_or_default().to_owned())
        };
        let bob = || Ok("bob".to_owned());
        assert_eq!(verify(|_| {}, 1_999_999_999), bob());
        assert_eq!(verify(|_| {}, 2_000_000_029), bob(), "within the leeway");
        assert_eq!(verify(|_| {}, 2_000_000_030), Err(TokenFault::Expired));
        assert_eq!(verify(|s| s.audience = vec!["ap".into()], 1), Err(TokenFault::Invalid));
        assert_eq!(verify(|s| s.audience.clear(), 1), bob());
        assert_eq!(verify(|s| s.issuer = Some("di".into()), 1), Err(TokenFault::Invalid));
        assert_eq!(verify(|s| s.issuer = None, 1), bob());
        let user = |s: &mut JwtAuth| s.claims = vec![("role".into(), "user".into())];
        assert_eq!(verify(user, 1), Err(TokenFault::Insufficient));
        let key = |s: &mut JwtAuth| {
            s.content = KeyContent(b"0123456789abcdef0123456789abcdeg"[..].into())
        };
        assert_eq!(verify(key, 1), Err(TokenFault::Invalid));
        let short = |s: &mut JwtAuth| s.content = KeyContent(b"short"[..].into());
        assert_eq!(verify(short, 1), Err(TokenFault::Invalid), "no key");
    }

    #[test]
    fn responses_are_those_of_rfc_6750() {
        let guard = TokenGuard::new(&settings());
        for (fault, status, challenge) in [
            (TokenFault::Missing, 401, "Bearer realm=\"Area\""),
            (TokenFault::Malformed, 400, "Bearer realm=\"Area\", error=\"invalid_request\""),
            (TokenFault::Invalid, 401, "Bearer realm=\"Area\", error=\"invalid_token\""),
            (TokenFault::Expired, 401, "Bearer realm=\"Area\", error=\"invalid_token\""),
            (TokenFault::Insufficient, 403, "Bearer realm=\"Area\", error=\"insufficient_scope\""),
        ] {
            let denial = guard.denial(fault);
            assert_eq!(denial.status, status, "{fault:?}");
            assert!(denial.challenge.starts_with(challenge), "{fault:?}: {}", denial.challenge);
        }
        assert!(!guard.denial(TokenFault::Missing).challenge.contains("error"));
    }

    #[test]
    fn tokens_are_remembered_until_they_end_and_within_bounds() {
        let guard = TokenGuard::new(&settings());
        let claims =
            |end: u64| Claims::parse(format!("{{\"exp\":{end}}}").as_bytes()).expect("claims");
        let [secret, other_secret] = [7, 8].map(|byte| CredentialSecret::new(&[byte; 32]));
        let key = |token: &str| guard.key(token, &secret);
        let mut tokens = Tokens::default();
        tokens.insert(key("a"), claims(100), 10, 30);
        assert!(tokens.find(key("a"), 129).is_some());
        assert!(tokens.find(key("a"), 130).is_none() && tokens.find(key("b"), 0).is_none());
        let mut other = settings();
        other.claims.clear();
        assert_ne!(
            TokenGuard::new(&other).key("a", &secret),
            key("a"),
            "another route demands other claims"
        );
        assert_ne!(guard.key("a", &other_secret), key("a"));
        tokens.insert(key("big"), claims(100), CLAIMS_BYTES_MAX - 5, 30);
        assert!(tokens.find(key("a"), 0).is_none(), "the oldest makes room");
        tokens.insert(key("big"), claims(100), 20, 30);
        for number in 0..TOKENS_MAX {
            tokens.insert(key(&number.to_string()), claims(100), 1, 30);
        }
        assert!(tokens.find(key("big"), 0).is_none() && tokens.find(key("0"), 0).is_some());
        assert_eq!((tokens.order.len(), tokens.known.len()), (TOKENS_MAX, TOKENS_MAX));
        assert_eq!(tokens.bytes, TOKENS_MAX);
    }
}
