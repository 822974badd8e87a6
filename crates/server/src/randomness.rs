//! Random numbers from the system, for seeds and secrets.
//! In: the operating system's randomness, through the keys of std's hasher, or through AWS-LC's generator. Out: numbers, bytes.
//! Never: called for each request, except the random bytes of scripts, for which AWS-LC rarely needs a system call.

use core::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use tidegate_base::Prng;
use tidegate_lua::Randomness;

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

/// The random bytes of scripts, which are unpredictable.
pub(crate) fn of_scripts() -> Randomness {
    Randomness::new(|bytes| aws_lc_rs::rand::fill(bytes).is_ok())
}

/// The random bytes of the scripts of a simulation, which are the same in every run. `vm`: the numbers of the worker and of the VM.
pub(crate) fn of_simulated_scripts(seed: u64, vm: (u32, u32)) -> Randomness {
    let prng = RefCell::new(Prng::new(seed ^ u64::from(vm.0) << 32 ^ u64::from(vm.1)));
    Randomness::new(move |bytes| {
        let mut prng = prng.borrow_mut();
        bytes.fill_with(|| prng.next_u64() as u8);
        true
    })
}
