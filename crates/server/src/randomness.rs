//! Random numbers from the system, for seeds and secrets.
//! In: the operating system's randomness, through the keys of std's hasher, or through AWS-LC's generator. Out: numbers, bytes.
//! Never: called for each request, except `fill_random`, which applications call; it makes a system call from time to time only.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

/// Replaces all bytes by random ones that nobody can guess. Returns false if the system provides none.
pub(crate) fn fill_random(bytes: &mut [u8]) -> bool {
    aws_lc_rs::rand::fill(bytes).is_ok()
}

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
