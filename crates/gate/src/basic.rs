//! Basic authentication (RFC 7617): the credentials of a request, and a memory of credentials that were verified.
//! In: the head of a request; the time; a random key; verdicts of the thread that verifies passwords. Out: the credentials;
//! whether they were verified recently.
//! Never: keeps a password; verifies one, which is slow on purpose.
//! Limits: `VERIFIED_MAX` credentials for `VERIFIED_SPAN` each; the oldest is forgotten first.
//! Invariant: only credentials that a thread verified are remembered. Their key is an HMAC (RFC 2104) with SHA-256, so
//! that no client can find other credentials with the same key.

use std::collections::{BTreeMap, VecDeque};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use tidegate_base::{Moment, Span};
use tidegate_config::model::BasicAuth;
use tidegate_config::user_name;
use tidegate_wire::message::RequestHead;

/// Maximum number of credentials that are remembered.
pub const VERIFIED_MAX: usize = 4096;
/// How long credentials are remembered.
pub const VERIFIED_SPAN: Span = Span::from_secs(300);
/// The longest user name and password together.
const CREDENTIALS_BYTES_MAX: usize = 1024;

/// The credentials in a request.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name of the user.
    pub user: String,
    /// The password.
    pub password: Vec<u8>,
}

impl core::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "user {:?}", self.user)
    }
}

impl Credentials {
    /// Reads the Authorization field; `None` if it is absent, repeated, malformed or of another scheme, or
    /// names a user that no file with users may contain.
    #[must_use]
    pub fn of(head: &RequestHead<'_>) -> Option<Self> {
        let mut fields =
            head.fields().filter(|field| field.name.eq_ignore_ascii_case("authorization"));
        let (Some(field), None) = (fields.next(), fields.next()) else { return None };
        let (scheme, token) = field.value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let text = decode_base64(token.trim_ascii())?;
        let colon = text.iter().position(|&byte| byte == b':')?;
        let (user, password) = text.split_at_checked(colon)?;
        let user = core::str::from_utf8(user).ok()?;
        // RFC 7617 section 2: neither has control characters. A name that the edits of a route could not place must not
        // get another response than a name that no user has.
        let is_refused =
            text.iter().any(u8::is_ascii_control) || user_name::fault_of(user).is_some();
        let user = (!is_refused).then(|| user.to_owned())?;
        Some(Self { user, password: password.get(1..)?.to_vec() })
    }

    /// The key of these credentials for the users of `auth`.
    #[must_use]
    pub fn key(&self, auth: &BasicAuth, secret: &CredentialSecret) -> CredentialKey {
        // The stored text is part of the key, so that another password of the user invalidates the memory.
        let stored = auth.users.get(&self.user).map_or("", String::as_str);
        let (file, user) = (auth.file.as_bytes(), self.user.as_bytes());
        secret.key_of(&[file, stored.as_bytes(), user, &self.password])
    }
}

/// The secret that the keys of credentials and tokens depend on, and the secrets of sessions.
pub struct CredentialSecret(hmac::Key);

impl CredentialSecret {
    /// A secret of these random bytes.
    #[must_use]
    pub fn new(random: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, random))
    }

    /// The secret of session `number`: 128 bits that tell nothing about those of other sessions.
    #[must_use]
    pub fn secret_of_session(&self, number: u64) -> [u64; 2] {
        let CredentialKey(bytes) = self.key_of(&[b"session", &number.to_le_bytes()]);
        let mut halves = [0; 2];
        for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *half = u64::from_le_bytes(*bytes);
        }
        halves
    }

    /// The key of a value that consists of these parts.
    pub(crate) fn key_of(&self, parts: &[&[u8]]) -> CredentialKey {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut key = [0; 32];
        key.copy_from_slice(context.sign().as_ref());
        CredentialKey(key)
    }
}

/// Identifies credentials.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CredentialKey([u8; 32]);

/// The credentials that were verified recently.
#[derive(Debug, Default)]
pub struct Verified {
    /// By key: when the credentials are forgotten.
    until: BTreeMap<CredentialKey, Moment>,
    /// The keys in the order in which they were verified; each once.
    order: VecDeque<CredentialKey>,
}

impl Verified {
    /// Whether the credentials were verified recently.
    #[must_use]
    pub fn contains(&self, key: CredentialKey, now: Moment) -> bool {
        self.until.get(&key).is_some_and(|until| now < *until)
    }

    /// Remembers credentials that were verified.
    pub fn insert(&mut self, key: CredentialKey, now: Moment) {
        if self.until.insert(key, now.after(VERIFIED_SPAN)).is_some() {
            self.order.retain(|known| *known != key);
        }
        self.order.push_back(key);
        while self.order.len() > VERIFIED_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.until.remove(&oldest);
            }
        }
    }
}

/// Base64 (RFC 4648 section 4) with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes base64; `None` if it is malformed or too long.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let is_short = text.len() <= CREDENTIALS_BYTES_MAX.div_ceil(3) * 4;
    is_short.then(|| BASE64.decode(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_sessions_differ_and_depend_on_the_secret() {
        let [one, other] = [1, 2].map(|byte| CredentialSecret::new(&[byte; 32]));
        let numbers = (0..200).map(|number| one.secret_of_session(number));
        let mut halves: Vec<u64> = numbers.flatten().collect();
        halves.extend(other.secret_of_session(0));
        halves.sort_unstable();
        halves.dedup();
        assert_eq!(halves.len(), 402);
    }
    use tidegate_wire::http1::{HeadDecoder, HeadLimits};
    use tidegate_wire::message::FieldStorage;

    fn credentials(fields: &str) -> Option<(String, String)> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        let mut decoder = HeadDecoder::default();
        let decoded =
            decoder.decode_request(bytes.as_bytes(), &HeadLimits::default(), &mut storage);
        let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}") };
        let found = Credentials::of(&head)?;
        Some((found.user, String::from_utf8_lossy(&found.password).into_owned()))
    }

    #[test]
    fn credentials_are_read_from_exactly_one_field() {
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        for (fields, expected) in [
            // The example of RFC 7617 section 2.
            (
                "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n",
                pair("Aladdin", "open sesame"),
            ),
            ("authorization: bAsIc QWxhZGRpbjpvcGVuIHNlc2FtZQ\r\n", pair("Aladdin", "open sesame")),
            ("Authorization: Basic YTpiOmM=\r\n", pair("a", "b:c")),
            ("Authorization: Basic Og==\r\n", None),
            // "bob :secret", " bob:x"
            ("Authorization: Basic Ym9iIDpzZWNyZXQ=\r\n", None),
            ("Authorization: Basic IGJvYjp4\r\n", None),
            ("Authorization: Basic YQ==\r\n", None),
            ("Authorization: Basic YTpi\r\nAuthorization: Basic YTpi\r\n", None),
            ("Authorization: Bearer YTpi\r\n", None),
            ("Authorization: Basic YTp*\r\n", None),
            ("Authorization: Basic YTpi====\r\n", None),
            ("Authorization: Basic YTpiY\r\n", None),
            ("Authorization: Basic\r\n", None),
            // "a:\n"
            ("Authorization: Basic YToK\r\n", None),
            ("", None),
        ] {
            assert_eq!(credentials(fields), expected, "{fields}");
        }
        let long = format!("Authorization: Basic {}\r\n", "YTpi".repeat(400));
        assert_eq!(credentials(&long), None);
    }

    fn key(user: &str, password: &str, stored: &str) -> CredentialKey {
        let users = BTreeMap::from([("bob".to_owned(), stored.to_owned())]).into();
        let auth = BasicAuth { file: "users".to_owned(), realm: String::new(), users };
        let password = password.as_bytes().to_vec();
        Credentials { user: user.to_owned(), password }.key(&auth, &CredentialSecret::new(&[7; 32]))
    }

    #[test]
    fn key_depends_on_user_password_and_stored_text() {
        let keys = [
            key("bob", "secret", "$2y$1"),
            key("bob", "secreT", "$2y$1"),
            key("bob", "secret", "$2y$2"),
            key("bobs", "ecret", "$2y$1"),
        ];
        for (index, one) in keys.iter().enumerate() {
            assert!(!keys.iter().skip(index + 1).any(|other| other == one), "{keys:?}");
        }
        assert_eq!(keys[0], key("bob", "secret", "$2y$1"));
    }

    #[test]
    fn credentials_are_remembered_for_a_while_and_the_oldest_is_forgotten_first() {
        let mut verified = Verified::default();
        let at = |seconds| Moment::ZERO.after(Span::from_secs(seconds));
        let key = |n: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&n.to_le_bytes());
            CredentialKey(bytes)
        };
        verified.insert(key(0), at(0));
        assert!(verified.contains(key(0), at(299)));
        assert!(!verified.contains(key(0), at(300)));
        assert!(!verified.contains(key(1), at(0)));
        for n in 1..=VERIFIED_MAX {
            verified.insert(key(n), at(1));
            verified.insert(key(n), at(1));
        }
        assert!(!verified.contains(key(0), at(1)), "the oldest");
        assert!(verified.contains(key(1), at(1)));
        assert_eq!((verified.order.len(), verified.until.len()), (VERIFIED_MAX, VERIFIED_MAX));
    }
}
