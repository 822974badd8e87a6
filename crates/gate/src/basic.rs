//! Basic authentication (RFC 7617): the credentials of a request, and a memory of credentials that were verified.
//! In: the head of a request; the time; verdicts of the thread that verifies passwords. Out: the credentials; whether
//! they were verified lately.
//! Never: keeps a password; verifies one, which is slow on purpose.
//! Limits: `VERIFIED_MAX` credentials for `VERIFIED_SPAN` each; the oldest is forgotten first.
//! Invariant: only credentials that a thread verified are remembered. Their key is a keyed hash of 128 bits, so that
//! no client can find other credentials with the same key, nor the password from the memory of the process.

use core::hash::Hasher as _;
use std::collections::{BTreeMap, VecDeque};
use std::hash::DefaultHasher;

use tidegate_base::{Moment, Span};
use tidegate_config::model::BasicAuth;
use tidegate_wire::message::RequestHead;

/// The most credentials that are remembered.
pub const VERIFIED_MAX: usize = 4096;
/// How long credentials are remembered.
pub const VERIFIED_SPAN: Span = Span::from_secs(300);
/// The longest user name and password together.
const CREDENTIALS_BYTES_MAX: usize = 1024;

/// What a request claims.
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
    /// Reads the Authorization field; `None` if it is absent, repeated, malformed or of another scheme.
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
        // RFC 7617 section 2: neither has control characters.
        let has_controls = text.iter().any(u8::is_ascii_control);
        let user = (!has_controls).then(|| user.to_owned())?;
        Some(Self { user, password: password.get(1..)?.to_vec() })
    }

    /// The key of these credentials for the users of `auth`.
    #[must_use]
    pub fn key(&self, auth: &BasicAuth, seed: u64) -> CredentialKey {
        // The stored text is part of the key, so that another password of the user invalidates the memory.
        let stored = auth.users.get(&self.user).map_or("", String::as_str);
        let (file, user) = (auth.file.as_bytes(), self.user.as_bytes());
        keyed_hash(seed, &[file, stored.as_bytes(), user, &self.password])
    }
}

/// Identifies credentials.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CredentialKey(u64, u64);

/// The key of what consists of these parts.
pub(crate) fn keyed_hash(seed: u64, parts: &[&[u8]]) -> CredentialKey {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(seed);
        hasher.write_u64(salt);
        for part in parts {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish()
    };
    CredentialKey(half(1), half(2))
}

/// The credentials that were verified lately.
#[derive(Debug, Default)]
pub struct Verified {
    /// By key: when the credentials are forgotten.
    until: BTreeMap<CredentialKey, Moment>,
    /// The keys in the order in which they were verified; each once.
    order: VecDeque<CredentialKey>,
}

impl Verified {
    /// Whether the credentials were verified lately.
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

/// Decodes base64 (RFC 4648 section 4), with or without padding; `None` if it is malformed or too long.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|&byte| byte != b'=').map_or(0, |at| at + 1);
    let (digits, padding) = text.split_at_checked(end)?;
    if padding.len() > 2 || digits.len() % 4 == 1 || digits.len() > CREDENTIALS_BYTES_MAX / 3 * 4 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0_u32, 0);
    for &digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
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
            ("Authorization: Basic Og==\r\n", pair("", "")),
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
        Credentials { user: user.to_owned(), password }.key(&auth, 7)
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
        verified.insert(CredentialKey(0, 0), at(0));
        assert!(verified.contains(CredentialKey(0, 0), at(299)));
        assert!(!verified.contains(CredentialKey(0, 0), at(300)));
        assert!(!verified.contains(CredentialKey(0, 1), at(0)));
        for n in 1..=VERIFIED_MAX as u64 {
            verified.insert(CredentialKey(n, 0), at(1));
            verified.insert(CredentialKey(n, 0), at(1));
        }
        assert!(!verified.contains(CredentialKey(0, 0), at(1)), "the oldest");
        assert!(verified.contains(CredentialKey(1, 0), at(1)));
        assert_eq!((verified.order.len(), verified.until.len()), (VERIFIED_MAX, VERIFIED_MAX));
    }
}
