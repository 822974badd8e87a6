//! Session tickets that every worker, and every machine with the same key file, can open. RFC 5077, RFC 8446.
//! In: session states to seal, tickets to open, keys. Out: tickets, session states.
//! Never: keeps a session state, since the ticket contains it; keeps a generated key longer than
//! `KEY_SECONDS_MAX`.
//! Limits: `KEYS_MAX` keys; `TICKET_BYTES_MAX` for a ticket.
//! Invariant: the first key seals, all keys open; the name of a key reveals nothing about the key. A listener opens only tickets
//! of listeners with the same certificates.

use std::sync::{Arc, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest;
use rustls::crypto::SecureRandom;
use rustls::server::ProducesTickets;

use super::randomness::Randomness;
use super::setup::{SetupFault, SetupKind};

/// Bytes of one ticket key (AES-256).
pub const TICKET_KEY_BYTES: usize = 32;
/// Bytes of the name of a key in a ticket.
const NAME_BYTES: usize = 16;
/// Bytes of the hash of a listener's certificates (SHA-256).
const BINDING_BYTES: usize = 32;
/// Keys in use at the same time: one that seals, and older ones that only open.
const KEYS_MAX: usize = 8;
/// Bytes of a ticket; larger tickets are not opened.
const TICKET_BYTES_MAX: usize = 16 * 1024;
/// How long a generated key seals tickets.
const SEALS_SECONDS: u64 = 8 * 3600;
/// How long a generated key opens tickets.
const KEY_SECONDS_MAX: u64 = 3 * SEALS_SECONDS;
/// Generated keys in use at the same time.
const ROTATED_KEYS: usize = (KEY_SECONDS_MAX / SEALS_SECONDS) as usize;
const _: () = assert!(ROTATED_KEYS <= KEYS_MAX);

struct Key {
    /// A hash of the key, which names it in tickets.
    name: [u8; NAME_BYTES],
    aead: LessSafeKey,
    /// When the key was generated; 0 for a key from a file.
    made_unix_seconds: u64,
}

impl Key {
    fn new(bytes: &[u8; TICKET_KEY_BYTES], made_unix_seconds: u64) -> Option<Self> {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(b"tidegate ticket key name\0");
        hash.update(bytes);
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(hash.finish().as_ref().get(..NAME_BYTES)?);
        let aead = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?);
        Some(Self { name, aead, made_unix_seconds })
    }
}

/// The ticket keys that all workers share.
pub struct TicketKeys {
    /// The keys, newest first; up to `KEYS_MAX`. The first one seals.
    keys: RwLock<Vec<Arc<Key>>>,
    /// The source of keys and nonces.
    random: &'static dyn SecureRandom,
    /// The keys come from a file, so only `replace` changes them.
    given: bool,
}

impl TicketKeys {
    /// Generates keys for this process; `rotate` renews them.
    ///
    /// # Errors
    /// `TicketKeysBroken` if the system provides no randomness.
    pub fn random(now_unix_seconds: u64) -> Result<Self, SetupFault> {
        Self::with_randomness(now_unix_seconds, Randomness::system())
    }

    /// `random`, with keys and nonces from `randomness`.
    ///
    /// # Errors
    /// As `random`.
    pub fn with_randomness(
        now_unix_seconds: u64,
        randomness: Randomness,
    ) -> Result<Self, SetupFault> {
        let keys = Self { keys: RwLock::default(), random: randomness.bytes(), given: false };
        if keys.rotate(now_unix_seconds) {
            Ok(keys)
        } else {
            Err(SetupFault::new(SetupKind::TicketKeysBroken, "the system provided no randomness"))
        }
    }

    /// Keys from a file: lines of 64 hexadecimal digits, the key that seals first. Empty lines and lines
    /// that begin with `#` are ignored.
    ///
    /// # Errors
    /// `TicketKeysBroken` if another line is invalid, or if there are no keys or too many.
    pub fn from_text(text: &str) -> Result<Self, SetupFault> {
        let broken = |detail: String| SetupFault::new(SetupKind::TicketKeysBroken, detail);
        let mut keys = Vec::new();
        for (at, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = parse_hex(line).and_then(|bytes| Key::new(&bytes, 0));
            keys.push(Arc::new(key.ok_or_else(|| broken(format!("line {}", at + 1)))?));
        }
        if keys.is_empty() || keys.len() > KEYS_MAX {
            return Err(broken(format!("found {} keys; allowed: 1 to {KEYS_MAX}", keys.len())));
        }
        let random = Randomness::system().bytes();
        Ok(Self { keys: RwLock::new(keys), random, given: true })
    }

    /// Replaces the keys, after the file has changed.
    pub fn replace(&self, by: Self) {
        if let (Ok(mut current), Ok(keys)) = (self.keys.write(), by.keys.into_inner()) {
            *current = keys;
        }
    }

    /// Whether both seal with the same key; for tests.
    #[must_use]
    pub fn seals_like(&self, other: &Self) -> bool {
        match (self.key_of(None), other.key_of(None)) {
            (Some(own), Some(other)) => own.name == other.name,
            _ => false,
        }
    }

    /// Generates a new key if the sealing key is old, and drops keys that are too old. Cheap if there is
    /// nothing to do. Returns false only if the system provided no randomness.
    pub fn rotate(&self, now_unix_seconds: u64) -> bool {
        if self.given || !self.is_rotation_due(now_unix_seconds) {
            return true;
        }
        let mut bytes = [0; TICKET_KEY_BYTES];
        if self.random.fill(&mut bytes).is_err() {
            return false;
        }
        let Some(key) = Key::new(&bytes, now_unix_seconds) else { return false };
        if let Ok(mut keys) = self.keys.write() {
            keys.insert(0, Arc::new(key));
            keys.truncate(ROTATED_KEYS);
            keys.retain(|key| {
                now_unix_seconds.saturating_sub(key.made_unix_seconds) < KEY_SECONDS_MAX
            });
        }
        true
    }

    fn is_rotation_due(&self, now_unix_seconds: u64) -> bool {
        let keys = self.keys.read();
        let made = keys.ok().and_then(|keys| keys.first().map(|key| key.made_unix_seconds));
        made.is_none_or(|made| now_unix_seconds.saturating_sub(made) >= SEALS_SECONDS)
    }

    fn key_of(&self, name: Option<&[u8]>) -> Option<Arc<Key>> {
        let keys = self.keys.read().ok()?;
        match name {
            None => keys.first().cloned(),
            Some(name) => keys.iter().find(|key| key.name == name).cloned(),
        }
    }
}

fn parse_hex(line: &str) -> Option<[u8; TICKET_KEY_BYTES]> {
    let digits = line.as_bytes();
    if digits.len() != 2 * TICKET_KEY_BYTES {
        return None;
    }
    let mut bytes = [0; TICKET_KEY_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = core::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

impl core::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TicketKeys").field("given", &self.given).finish_non_exhaustive()
    }
}

/// The tickets of a listener. All listeners share the keys, but each opens only tickets of listeners with the same certificates: a
/// client takes a resumed session for one with the server that it has verified before.
#[derive(Debug)]
pub(super) struct BoundTickets {
    keys: Arc<TicketKeys>,
    /// The hash of the certificates.
    binding: [u8; BINDING_BYTES],
}

impl BoundTickets {
    /// The tickets of a listener with these certificates, in any order.
    pub(super) fn new<'c>(
        keys: Arc<TicketKeys>,
        certificates: impl Iterator<Item = &'c [u8]>,
    ) -> Self {
        let hash = |bytes: &[u8]| {
            let mut binding = [0; BINDING_BYTES];
            binding.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
            binding
        };
        let mut all: Vec<_> = certificates.map(hash).collect();
        all.sort_unstable();
        all.dedup();
        Self { keys, binding: hash(&all.concat()) }
    }

    /// What a ticket is bound to: the name of the key, and the certificates.
    fn bound(&self, key: &Key) -> Aad<[u8; NAME_BYTES + BINDING_BYTES]> {
        let mut bound = [0; NAME_BYTES + BINDING_BYTES];
        let (name, binding) = bound.split_at_mut(NAME_BYTES);
        name.copy_from_slice(&key.name);
        binding.copy_from_slice(&self.binding);
        Aad::from(bound)
    }
}

impl ProducesTickets for BoundTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        (KEY_SECONDS_MAX - SEALS_SECONDS) as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let key = self.keys.key_of(None)?;
        let mut nonce = [0; NONCE_LEN];
        self.keys.random.fill(&mut nonce).ok()?;
        let start = NAME_BYTES + NONCE_LEN;
        let mut ticket = Vec::with_capacity(start + plain.len() + AES_256_GCM.tag_len());
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = ticket.get_mut(start..)?;
        let tag = key.aead.seal_in_place_separate_tag(nonce, self.bound(&key), sealed).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > TICKET_BYTES_MAX {
            return None;
        }
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let key = self.keys.key_of(Some(name))?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut state = sealed.to_vec();
        let length = key.aead.open_in_place(nonce, self.bound(&key), &mut state).ok()?.len();
        state.truncate(length);
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;

    fn bound(keys: &Arc<TicketKeys>) -> BoundTickets {
        BoundTickets::new(Arc::clone(keys), [b"certificate".as_slice()].into_iter())
    }

    #[test]
    fn tickets_of_listeners_with_other_certificates_do_not_open() {
        let keys = Arc::new(TicketKeys::random(1).unwrap());
        let of = |all: &[&'static [u8]]| BoundTickets::new(Arc::clone(&keys), all.iter().copied());
        let ticket = of(&[b"a", b"b"]).encrypt(b"state").unwrap();
        assert!(of(&[b"b", b"a", b"a"]).decrypt(&ticket).is_some());
        for other in [&[b"a".as_slice()][..], &[b"a", b"c"], &[b"ab"], &[]] {
            assert_eq!(of(other).decrypt(&ticket), None, "{other:?}");
        }
    }

    #[test]
    fn older_keys_open_tickets_until_they_expire() {
        let keys = Arc::new(TicketKeys::random(HOUR).unwrap());
        let tickets = bound(&keys);
        let ticket = tickets.encrypt(b"state").unwrap();
        for hours in [2, 9, 17] {
            assert!(keys.rotate(hours * HOUR));
            assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(b"state".as_slice()), "{hours} h");
        }
        assert!(keys.rotate(26 * HOUR));
        assert_eq!(tickets.decrypt(&ticket), None);
    }

    #[test]
    fn machines_with_the_same_file_open_each_others_tickets() {
        let (old, new) = ("11".repeat(32), "22".repeat(32));
        let one = Arc::new(TicketKeys::from_text(&format!("{old}\n")).unwrap());
        let text = format!("# newest first\n{new}\n{old}\n");
        let two = Arc::new(TicketKeys::from_text(&text).unwrap());
        let (of_one, of_two) = (bound(&one), bound(&two));
        let ticket = of_one.encrypt(b"state").unwrap();
        assert_eq!(of_two.decrypt(&ticket).as_deref(), Some(b"state".as_slice()));
        assert_eq!(
            of_one.decrypt(&of_two.encrypt(b"state").unwrap()),
            None,
            "sealed by the new key"
        );
        assert!(!one.seals_like(&two));
        one.replace(TicketKeys::from_text(&format!("{new}\n{old}\n")).unwrap());
        assert!(one.seals_like(&two));
        assert!(of_one.decrypt(&of_two.encrypt(b"state").unwrap()).is_some());
    }

    #[test]
    fn damaged_or_truncated_tickets_do_not_open() {
        let keys = bound(&Arc::new(TicketKeys::random(1).unwrap()));
        let ticket = keys.encrypt(b"state").unwrap();
        for at in 0..ticket.len() {
            let mut damaged = ticket.clone();
            damaged[at] ^= 1;
            assert_eq!(keys.decrypt(&damaged), None, "byte {at}");
            assert_eq!(keys.decrypt(&ticket[..at]), None, "truncated at {at}");
        }
    }

    #[test]
    fn invalid_key_files_are_rejected_and_keys_are_not_logged() {
        for text in ["", "zz", &"ab".repeat(31), &format!("{}\n", "cd".repeat(32)).repeat(9)] {
            assert!(TicketKeys::from_text(text).is_err(), "{text:?}");
        }
        let keys = TicketKeys::from_text(&"ab".repeat(32)).unwrap();
        assert!(!format!("{keys:?}").contains("abab"), "Debug must not print keys");
    }
}
