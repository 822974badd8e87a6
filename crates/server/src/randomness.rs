//! Random numbers from the system, for seeds and secrets.
//! In: the operating system's randomness, through the keys of std's hasher. Out: numbers, bytes.
//! Never: called for each request.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

/// A random number.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Random bytes for a secret.
pub(crate) fn random_bytes() -> [u8; 32] {
    let mut bytes = [0; 32];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random_seed().to_le_bytes());
    }
    bytes
}
