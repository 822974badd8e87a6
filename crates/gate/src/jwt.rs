//! Tokens of requests (RFC 6750): JSON Web Tokens in the Authorization field or in a cookie.
//! In: the head of a request, the time. Out: the claims of a valid token, or the response to the request.
//! Never: keeps a token; verifies one twice within its time, as long as it is remembered.
//! Limits: `TOKENS_MAX` tokens whose claims take `CLAIMS_BYTES_MAX` bytes of memory are remembered, none with more than
//! `TOKEN_CLAIMS_BYTES_MAX`, and `REFUSED_MAX` refused tokens; the oldest is forgotten first.
//! Invariant: a token is remembered for one route's settings. Its key is an HMAC with SHA-256. A token that may be valid
//! later is not remembered as refused.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use aws_lc_rs::digest;
use tidegate_config::model::JwtAuth;
use tidegate_wire::jwt::{Claims, FetchedKeysReader, KeySet, Refusal, TOKEN_BYTES_MAX, Unverified};
use tidegate_wire::message::RequestHead;

use crate::basic::{CredentialKey, CredentialSecret};
use crate::denial::Denial;
use crate::live_keys::KeySources;
use crate::parameters::cookies;

/// Maximum number of tokens that are remembered.
pub const TOKENS_MAX: usize = 4096;
/// Maximum memory in bytes that remembered claims take.
pub const CLAIMS_BYTES_MAX: usize = 4 << 20;
/// Maximum memory in bytes of the claims of one remembered token. A token with more is verified for each request.
pub const TOKEN_CLAIMS_BYTES_MAX: usize = 64 << 10;
/// Maximum number of refused tokens that are remembered.
pub const REFUSED_MAX: usize = 1024;

/// Why a request is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenFault {
    /// It has no token.
    Missing,
    /// It has more than one token, or a token that cannot be read.
    Malformed,
    /// The token is not valid.
    Invalid,
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    Early,
    /// The token lacks a claim that the route requires.
    Insufficient,
    /// The token names a key that is not among the fetched ones.
    UnknownKey,
    /// The keys are not fetched yet, or a newer set of them is being fetched for the token.
    Unavailable,
}

impl TokenFault {
    /// Whether the same token will be refused at any later time, too.
    fn is_final(self) -> bool {
        match self {
            Self::Invalid | Self::Expired | Self::Insufficient => true,
            Self::Missing
            | Self::Malformed
            | Self::Early
            | Self::UnknownKey
            | Self::Unavailable => false,
        }
    }
}

/// `auth = { jwt = ... }` of a route, prepared.
#[derive(Debug)]
pub struct TokenGuard {
    /// As configured.
    settings: JwtAuth,
    /// The keys that verify tokens.
    keys: Keys,
    /// Identifies the settings and the keys: their digest, because a file of keys may be long.
    identity: digest::Digest,
    /// The values of WWW-Authenticate, by `TokenFault`.
    challenges: [String; 8],
}

/// The keys of a route.
#[derive(Debug)]
enum Keys {
    /// Of the configuration. Empty if the file has no usable key.
    Fixed(KeySet),
    /// Fetched while the process serves.
    Fetched(FetchedKeysReader),
}

impl TokenGuard {
    /// Prepares the settings. Without usable keys, which loading a configuration reports, every token is refused.
    #[must_use]
    pub fn new(settings: &JwtAuth, sources: &KeySources) -> Self {
        let source = settings.remote.as_ref().and_then(|remote| sources.find(remote));
        let keys = match source {
            Some(source) => Keys::Fetched(source.reader()),
            None => Keys::Fixed(key_set(settings).unwrap_or_default()),
        };
        let realm = &settings.realm;
        let with = |error: &str, what: &str| {
            format!("Bearer realm=\"{realm}\", error=\"{error}\", error_description=\"{what}\"")
        };
        let mut identity = format!("{settings:?}").into_bytes();
        identity.extend_from_slice(&settings.content.0);
        Self {
            settings: settings.clone(),
            keys,
            identity: digest::digest(&digest::SHA256, &identity),
            challenges: [
                format!("Bearer realm=\"{realm}\""),
                with(
                    "invalid_request",
                    "the request has more than one token, or a malformed token",
                ),
                with("invalid_token", "the token is not valid for this route"),
                with("invalid_token", "the token has expired or is not valid yet"),
                with("invalid_token", "the token has expired or is not valid yet"),
                with("insufficient_scope", "the token lacks a claim that this route requires"),
                with("invalid_token", "the token is not valid for this route"),
                String::new(),
            ],
        }
    }

    /// The token of a request. A token that does not have three parts (RFC 7515 section 7.1) is refused before it is hashed.
    ///
    /// # Errors
    /// It has none, or more than one, of which a server might read another one.
    pub fn token<'h>(&self, head: &RequestHead<'h>) -> Result<&'h str, TokenFault> {
        let mut fields =
            head.fields().filter(|field| field.name.eq_ignore_ascii_case("authorization"));
        let (field, second) = (fields.next(), fields.next());
        if second.is_some() {
            return Err(TokenFault::Malformed);
        }
        let bearer = field.and_then(|field| {
            let (scheme, token) = field.value.split_at_checked(b"bearer".len())?;
            let is_bearer = scheme.eq_ignore_ascii_case(b"bearer")
                && token.first().is_some_and(u8::is_ascii_whitespace);
            is_bearer.then(|| token.trim_ascii())
        });
        let token = self.only_token(head, bearer)?.ok_or(TokenFault::Missing)?;
        match core::str::from_utf8(token) {
            Ok(token) if token.len() <= TOKEN_BYTES_MAX => {
                let has_three_parts = token.bytes().filter(|byte| *byte == b'.').count() == 2;
                if has_three_parts { Ok(token) } else { Err(TokenFault::Invalid) }
            }
            Ok(_) | Err(_) => Err(TokenFault::Malformed),
        }
    }

    /// The token in the Authorization field or in cookies, which must be the same wherever it is.
    fn only_token<'h>(
        &self,
        head: &RequestHead<'h>,
        bearer: Option<&'h [u8]>,
    ) -> Result<Option<&'h [u8]>, TokenFault> {
        let name = self.settings.cookie.as_deref();
        let mut found = bearer.filter(|token| !token.is_empty());
        for cookie in name.into_iter().flat_map(|name| cookies(head, name)) {
            match found {
                Some(token) if token != cookie && !cookie.is_empty() => {
                    return Err(TokenFault::Malformed);
                }
                None if !cookie.is_empty() => found = Some(cookie),
                Some(_) | None => {}
            }
        }
        Ok(found)
    }

    /// The key under which a token is remembered for this route and the keys in force.
    #[must_use]
    pub fn key(&self, token: &str, secret: &CredentialSecret) -> CredentialKey {
        match &self.keys {
            Keys::Fixed(_) => secret.key_of(&[self.identity.as_ref(), token.as_bytes()]),
            Keys::Fetched(keys) => {
                secret.key_of(&[self.identity.as_ref(), &keys.version(), token.as_bytes()])
            }
        }
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
        let text = match &self.keys {
            Keys::Fixed(keys) => keys.verify(token).map_err(invalid)?,
            Keys::Fetched(keys) => {
                keys.verify(token, unix_seconds).map_err(|unverified| match unverified {
                    Unverified::Refused(refusal) => invalid(refusal),
                    Unverified::UnknownKey => TokenFault::UnknownKey,
                    Unverified::Unavailable => TokenFault::Unavailable,
                })?
            }
        };
        let claims = Claims::parse(&text).map_err(invalid)?;
        let leeway = self.leeway();
        if claims.check_times(unix_seconds, leeway).is_err() {
            let has_ended =
                claims.ends_at().is_some_and(|end| end.saturating_add(leeway) <= unix_seconds);
            return Err(if has_ended { TokenFault::Expired } else { TokenFault::Early });
        }
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
            TokenFault::Missing => (401, "this route requires a token"),
            TokenFault::Malformed => {
                (400, "the request has more than one token, or a malformed token")
            }
            TokenFault::Invalid | TokenFault::UnknownKey => (401, "the token is not valid"),
            TokenFault::Unavailable => (503, "the token keys are being fetched"),
            TokenFault::Expired | TokenFault::Early => {
                (401, "the token has expired or is not valid yet")
            }
            TokenFault::Insufficient => (403, "the token does not permit this"),
        };
        let retry_after = if fault == TokenFault::Unavailable { RETRY_SECONDS } else { 0 };
        let challenge = &self.challenges[fault as usize];
        Denial { challenge, retry_after, ..Denial::new(status, text) }
    }

    /// The difference of clocks that is tolerated, in seconds.
    #[must_use]
    pub fn leeway(&self) -> u64 {
        self.settings.leeway.as_secs()
    }
}

/// When a request may succeed whose token waits for keys, in seconds.
const RETRY_SECONDS: u64 = 2;

/// The keys of a route in the configuration; none if they are fetched.
///
/// # Errors
/// What is wrong with the content of the file.
pub fn key_set(settings: &JwtAuth) -> Result<KeySet, String> {
    match settings.is_secret {
        false if settings.remote.is_some() => Ok(KeySet::default()),
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
    /// Bytes of memory of the claims.
    bytes: usize,
}

/// The tokens that were verified recently.
#[derive(Debug, Default)]
pub struct Tokens {
    /// The valid tokens, each by its key.
    known: BTreeMap<CredentialKey, Remembered>,
    /// The keys of `known` in the order in which they were verified; each once.
    order: VecDeque<CredentialKey>,
    /// Bytes of memory of the claims in `known`.
    bytes: usize,
    /// Tokens that will never be valid, each by its key.
    refused: BTreeMap<CredentialKey, TokenFault>,
    /// The keys of `refused` in the order in which they were refused; each once.
    refusals: VecDeque<CredentialKey>,
}

impl Tokens {
    /// The claims of a token that was verified, or why it was refused; `None` if it has to be verified.
    #[must_use]
    pub fn find(
        &self,
        key: CredentialKey,
        unix_seconds: u64,
    ) -> Option<Result<Rc<Claims>, TokenFault>> {
        if let Some(fault) = self.refused.get(&key) {
            return Some(Err(*fault));
        }
        let known = self.known.get(&key)?;
        (unix_seconds < known.until).then(|| Ok(Rc::clone(&known.claims)))
    }

    /// Remembers a token that was verified, unless its claims take too much memory. Returns its claims. The oldest tokens
    /// that have expired are forgotten.
    pub fn insert(
        &mut self,
        key: CredentialKey,
        claims: Claims,
        leeway: u64,
        unix_seconds: u64,
    ) -> Rc<Claims> {
        let bytes = claims.memory_bytes();
        let until = claims.ends_at().map_or(u64::MAX, |end| end.saturating_add(leeway));
        let claims = Rc::new(claims);
        if bytes > TOKEN_CLAIMS_BYTES_MAX {
            return claims;
        }
        let remembered = Remembered { claims: Rc::clone(&claims), until, bytes };
        if let Some(before) = self.known.insert(key, remembered) {
            self.bytes -= before.bytes;
            self.order.retain(|known| *known != key);
        }
        self.bytes += bytes;
        self.order.push_back(key);
        while self.order.len() > TOKENS_MAX
            || self.bytes > CLAIMS_BYTES_MAX
            || self.has_oldest_expired(unix_seconds)
        {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.known.remove(&oldest).map_or(0, |known| known.bytes);
        }
        claims
    }

    fn has_oldest_expired(&self, unix_seconds: u64) -> bool {
        let oldest = self.order.front().and_then(|oldest| self.known.get(oldest));
        oldest.is_some_and(|known| known.until <= unix_seconds)
    }

    /// Remembers a token that was refused, unless it may be valid later.
    pub fn refuse(&mut self, key: CredentialKey, fault: TokenFault) {
        if !fault.is_final() || self.refused.insert(key, fault).is_some() {
            return;
        }
        self.refusals.push_back(key);
        if self.refusals.len() > REFUSED_MAX
            && let Some(oldest) = self.refusals.pop_front()
        {
            self.refused.remove(&oldest);
        }
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
            remote: None,
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

    fn guard_of(settings: &JwtAuth) -> TokenGuard {
        TokenGuard::new(settings, &KeySources::default())
    }

    fn token_of(fields: &str) -> Result<String, TokenFault> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        let mut decoder = HeadDecoder::default();
        let decoded =
            decoder.decode_request(bytes.as_bytes(), &HeadLimits::default(), &mut storage);
        let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}") };
        guard_of(&settings()).token(&head).map(str::to_owned)
    }

    #[test]
    fn token_is_in_one_field_or_in_the_cookie() {
        for (fields, expected) in [
            ("Authorization: Bearer a.b.c\r\n", Ok("a.b.c")),
            ("authorization: bEARER   ..\r\n", Ok("..")),
            ("Authorization: Bearer a\r\n", Err(TokenFault::Invalid)),
            ("Authorization: Bearer a.b\r\n", Err(TokenFault::Invalid)),
            ("Authorization: Bearer a.b.c.d\r\n", Err(TokenFault::Invalid)),
            ("Cookie: x=y; session=a.b.c\r\n", Ok("a.b.c")),
            ("Authorization: Basic YTpi\r\nCookie: session=a.b.c\r\n", Ok("a.b.c")),
            // A server may read the token that was not verified.
            ("Authorization: Bearer a.b.c\r\nCookie: session=a.b.c\r\n", Ok("a.b.c")),
            (
                "Authorization: Bearer a.b.c\r\nCookie: session=a.b.d\r\n",
                Err(TokenFault::Malformed),
            ),
            ("Cookie: session=a.b.c; session=a.b.d\r\n", Err(TokenFault::Malformed)),
            ("Cookie: session=a.b.c\r\nCookie: session=a.b.d\r\n", Err(TokenFault::Malformed)),
            ("Cookie: session=a.b.c; session=a.b.c; session=\r\n", Ok("a.b.c")),
            ("Cookie: session =a.b.d; session=a.b.c\r\n", Err(TokenFault::Malformed)),
            ("Cookie: session\t= a.b.c\r\n", Ok("a.b.c")),
            (
                "Authorization: Bearer\ta.b.d\r\nCookie: session=a.b.c\r\n",
                Err(TokenFault::Malformed),
            ),
            ("Authorization: Bearer a\r\nAuthorization: Bearer a\r\n", Err(TokenFault::Malformed)),
            ("Authorization: Bearer \r\n", Err(TokenFault::Missing)),
            ("Authorization: Bearer\r\n", Err(TokenFault::Missing)),
            ("Cookie: other=b\r\n", Err(TokenFault::Missing)),
            ("", Err(TokenFault::Missing)),
        ] {
            assert_eq!(token_of(fields), expected.map(str::to_owned), "{fields}");
        }
        let long = format!("Authorization: Bearer a.b.{}\r\n", "a".repeat(15 * 1024));
        assert!(token_of(&long).is_ok());
    }

    #[test]
    fn each_setting_must_be_met() {
        let verify = |change: fn(&mut JwtAuth), now: u64| {
            let mut settings = settings();
            change(&mut settings);
            let claims = guard_of(&settings).verify(TOKEN, now)?;
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
        let guard = guard_of(&settings());
        for (fault, status, challenge) in [
            (TokenFault::Missing, 401, "Bearer realm=\"Area\""),
            (TokenFault::Malformed, 400, "Bearer realm=\"Area\", error=\"invalid_request\""),
            (TokenFault::Invalid, 401, "Bearer realm=\"Area\", error=\"invalid_token\""),
            (TokenFault::Early, 401, "Bearer realm=\"Area\", error=\"invalid_token\""),
            (TokenFault::Expired, 401, "Bearer realm=\"Area\", error=\"invalid_token\""),
            (TokenFault::Insufficient, 403, "Bearer realm=\"Area\", error=\"insufficient_scope\""),
        ] {
            let denial = guard.denial(fault);
            assert_eq!(denial.status, status, "{fault:?}");
            assert!(denial.challenge.starts_with(challenge), "{fault:?}: {}", denial.challenge);
        }
        assert!(!guard.denial(TokenFault::Missing).challenge.contains("error"));
    }

    /// Claims that end at a time, whose text or values take about `bytes` bytes of memory.
    fn claims(end: u64, bytes: usize) -> Claims {
        let text = format!("{{\"exp\":{end},\"x\":\"{}\"}}", "y".repeat(bytes));
        Claims::parse(text.as_bytes()).expect("claims")
    }

    #[test]
    fn tokens_are_remembered_until_they_end_and_within_bounds() {
        let guard = guard_of(&settings());
        let [secret, other_secret] = [7, 8].map(|byte| CredentialSecret::new(&[byte; 32]));
        let key = |token: &str| guard.key(token, &secret);
        let mut tokens = Tokens::default();
        let is_known = |tokens: &Tokens, token: &str, now| tokens.find(key(token), now).is_some();
        tokens.insert(key("a"), claims(100, 10), 30, 0);
        assert!(is_known(&tokens, "a", 129));
        assert!(!is_known(&tokens, "a", 130) && !is_known(&tokens, "b", 0));
        let mut other = settings();
        other.claims.clear();
        assert_ne!(
            guard_of(&other).key("a", &secret),
            key("a"),
            "another route demands other claims"
        );
        let mut other = settings();
        other.content = KeyContent(b"0123456789abcdef0123456789abcdeg"[..].into());
        assert_ne!(guard_of(&other).key("a", &secret), key("a"), "another key");
        assert_ne!(guard.key("a", &other_secret), key("a"));
        for number in 0..TOKENS_MAX {
            tokens.insert(key(&number.to_string()), claims(100, 1), 30, 0);
        }
        assert!(!is_known(&tokens, "a", 0) && is_known(&tokens, "0", 0));
        assert_eq!((tokens.order.len(), tokens.known.len()), (TOKENS_MAX, TOKENS_MAX));
        tokens.insert(key("late"), claims(1000, 1), 30, 130);
        assert_eq!((tokens.order.len(), tokens.known.len()), (1, 1), "the others have expired");
        assert_eq!(tokens.bytes, claims(1000, 1).memory_bytes());
    }

    #[test]
    fn memory_of_remembered_claims_is_bounded() {
        let guard = guard_of(&settings());
        let secret = CredentialSecret::new(&[7; 32]);
        let key = |token: &str| guard.key(token, &secret);
        let mut tokens = Tokens::default();
        // Each value takes many times the memory of its text.
        let many = format!("{{\"m\":[{}[0]]}}", "[0],".repeat(3000));
        let many = Claims::parse(many.as_bytes()).expect("claims");
        assert!(many.memory_bytes() > 10 * 12_000, "{}", many.memory_bytes());
        tokens.insert(key("many"), many, 30, 0);
        assert!(tokens.find(key("many"), 0).is_none() && tokens.known.is_empty());
        let most = TOKEN_CLAIMS_BYTES_MAX / 2;
        for number in 0..4 * CLAIMS_BYTES_MAX / most {
            tokens.insert(key(&number.to_string()), claims(100, most), 30, 0);
            assert!(tokens.bytes <= CLAIMS_BYTES_MAX);
        }
        assert!(tokens.find(key("0"), 0).is_none(), "the oldest makes room");
        assert!(tokens.known.len() > CLAIMS_BYTES_MAX / most / 2);
    }

    #[test]
    fn refused_tokens_are_remembered_unless_they_may_be_valid_later() {
        let guard = guard_of(&settings());
        let secret = CredentialSecret::new(&[7; 32]);
        let key = |number: usize| guard.key(&number.to_string(), &secret);
        let mut tokens = Tokens::default();
        for (number, fault) in
            [TokenFault::Invalid, TokenFault::Expired, TokenFault::Insufficient].iter().enumerate()
        {
            tokens.refuse(key(number), *fault);
            assert!(matches!(tokens.find(key(number), 0), Some(Err(found)) if found == *fault));
        }
        tokens.refuse(key(3), TokenFault::Early);
        assert!(tokens.find(key(3), 0).is_none());
        for number in 10..10 + 2 * REFUSED_MAX {
            tokens.refuse(key(number), TokenFault::Invalid);
            tokens.refuse(key(number), TokenFault::Invalid);
        }
        assert_eq!((tokens.refused.len(), tokens.refusals.len()), (REFUSED_MAX, REFUSED_MAX));
        assert!(tokens.find(key(10), 0).is_none(), "the oldest is forgotten first");
    }
}
