//! The source of keys, nonces and tickets: the system, or a seed for repeatable simulations.
//! In: a seed. Out: the random source and key exchange groups for rustls.
//! Never: a seed in production; `cargo xtask tidy` reports `seeded` outside of tests.
//! Limits: the parts of a seeded source (some hundred bytes) are leaked, because rustls requires `'static`.
//! Invariant: the same seed and the same sequence of calls produce the same bytes, if certificates sign
//! without randomness: Ed25519 does; ECDSA and RSA-PSS use the system's randomness.

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::agreement::{self, PrivateKey, PublicKey, UnparsedPublicKey};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup, aws_lc_rs as system,
};
use rustls::{Error, NamedGroup, PeerMisbehaved};
use tidegate_base::Prng;

/// Bytes of a private key of X25519 or P-256.
const PRIVATE_KEY_BYTES: usize = 32;
/// How many times a private key is drawn until it is valid; one in 2^32 is invalid for P-256.
const KEY_TRIES_MAX: u32 = 4;

/// A source of random bytes. Cheap to copy; copies share the source.
#[derive(Clone, Copy, Debug)]
pub struct Randomness(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    System,
    Seeded(&'static SeededParts),
}

/// The parts that all copies of a seeded source share.
#[derive(Debug)]
struct SeededParts {
    random: &'static SeededRandom,
    /// X25519 and P-256; both draw from `random`.
    groups: [SeededGroup; 2],
}

impl Randomness {
    /// The randomness of the operating system.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// Randomness derived from `seed`, for simulations only: the seed determines every key. Only X25519 and
    /// P-256 are available; private keys of the other groups cannot be made from given bytes.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let random: &'static SeededRandom =
            Box::leak(Box::new(SeededRandom(Mutex::new(Prng::new(seed)))));
        let group = |name, algorithm| SeededGroup { name, algorithm, random };
        let groups = [
            group(NamedGroup::X25519, &agreement::X25519),
            group(NamedGroup::secp256r1, &agreement::ECDH_P256),
        ];
        Self(Source::Seeded(Box::leak(Box::new(SeededParts { random, groups }))))
    }

    /// The source of random bytes alone.
    pub(super) fn bytes(self) -> &'static dyn SecureRandom {
        match self.0 {
            Source::System => system::default_provider().secure_random,
            Source::Seeded(parts) => parts.random,
        }
    }

    /// The provider for rustls, with this random source and its key exchange groups.
    pub(super) fn provider(self) -> CryptoProvider {
        let mut provider = system::default_provider();
        if let Source::Seeded(parts) = self.0 {
            provider.secure_random = parts.random;
            provider.kx_groups.clear();
            for group in &parts.groups {
                provider.kx_groups.push(group);
            }
        }
        provider
    }

    /// The group with this name; `None` if it is unknown or not available with this source.
    pub(super) fn group(self, name: &str) -> Option<&'static dyn SupportedKxGroup> {
        let name = match name {
            "X25519MLKEM768" => NamedGroup::X25519MLKEM768,
            "X25519" => NamedGroup::X25519,
            "P-256" => NamedGroup::secp256r1,
            "P-384" => NamedGroup::secp384r1,
            _ => return None,
        };
        match self.0 {
            Source::System => {
                system::ALL_KX_GROUPS.iter().copied().find(|group| group.name() == name)
            }
            Source::Seeded(parts) => {
                let found = parts.groups.iter().find(|group| group.name == name)?;
                Some(found)
            }
        }
    }
}

/// A random source that draws from a seed.
#[derive(Debug)]
struct SeededRandom(Mutex<Prng>);

impl SeededRandom {
    fn draw(&self, bytes: &mut [u8]) {
        let mut prng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&prng.next_u64().to_le_bytes()[..part.len()]);
        }
    }
}

impl SecureRandom for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        self.draw(bytes);
        Ok(())
    }
}

/// A group whose private keys are drawn from a seed.
struct SeededGroup {
    name: NamedGroup,
    algorithm: &'static agreement::Algorithm,
    random: &'static SeededRandom,
}

impl SeededGroup {
    fn draw_key(&self) -> Option<PrivateKey> {
        let draw = || {
            let mut bytes = [0; PRIVATE_KEY_BYTES];
            self.random.draw(&mut bytes);
            PrivateKey::from_private_key(self.algorithm, &bytes).ok()
        };
        (0..KEY_TRIES_MAX).find_map(|_| draw())
    }
}

impl SupportedKxGroup for SeededGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let (name, algorithm) = (self.name, self.algorithm);
        let private = self.draw_key().ok_or(GetRandomFailed)?;
        let public = private.compute_public_key().map_err(|_| GetRandomFailed)?;
        Ok(Box::new(SeededExchange { name, algorithm, private, public }))
    }

    fn name(&self) -> NamedGroup {
        self.name
    }
}

impl core::fmt::Debug for SeededGroup {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.name.fmt(f)
    }
}

struct SeededExchange {
    name: NamedGroup,
    algorithm: &'static agreement::Algorithm,
    private: PrivateKey,
    public: PublicKey,
}

impl ActiveKeyExchange for SeededExchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let refused = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);
        // RFC 8446 section 4.2.8.2: a P-256 point must be uncompressed.
        if self.name == NamedGroup::secp256r1 && peer.first() != Some(&4) {
            return Err(refused);
        }
        let peer = UnparsedPublicKey::new(self.algorithm, peer);
        agreement::agree(&self.private, peer, refused, |secret| Ok(SharedSecret::from(secret)))
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }

    fn group(&self) -> NamedGroup {
        self.name
    }
}
