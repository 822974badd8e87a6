//! The natives of `tide.crypto`: random bytes, AES-GCM (NIST SP 800-38D) and a comparison that takes the same time for equal and
//! for different secrets.
//! In: keys, nonces and data that the prelude has checked. Out: bytes, or nil and an error.
//! Never: uses a nonce that the script has not chosen and that is not random; says why data cannot be opened.
//! Limits: `RANDOM_BYTES_MAX` random bytes in a call; `SEALED_BYTES_MAX` bytes of data in a call, some milliseconds.

use core::ffi::{CStr, c_int};

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use mlua_sys::lua51 as ffi;

use super::call::Call;

/// Maximum number of random bytes that one call returns.
const RANDOM_BYTES_MAX: f64 = 65_536.0;
/// Maximum number of bytes of data, and of additional data, that one call seals or opens.
const SEALED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The bytes of a nonce.
const NONCE_BYTES: usize = 12;
/// The bytes that prove that the data is unchanged.
const TAG_BYTES: usize = 16;

const NO_RANDOMNESS: &str = "the system provides no random numbers";
const WRONG_KEY: &str = "the key must have 16 or 32 bytes";
const WRONG_NONCE: &str = "the nonce must have 12 bytes";
const TOO_LARGE: &str = "the data exceeds 16 MiB";
const NOT_AUTHENTIC: &str = "the data is not authentic";

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] =
    &[(c"random_bytes", random_bytes), (c"seal", seal), (c"open", open), (c"equal", equal)];

/// The key in argument 1 and the additional data in argument 4, which may be nil.
fn key_and_context<'a>(call: Call) -> Result<(LessSafeKey, Aad<&'a [u8]>), &'static str> {
    let key = call.bytes(1).unwrap_or_default();
    let algorithm = match key.len() {
        16 => &AES_128_GCM,
        32 => &AES_256_GCM,
        _ => return Err(WRONG_KEY),
    };
    let key = UnboundKey::new(algorithm, key).map_err(|_| WRONG_KEY)?;
    let context = call.bytes(4).unwrap_or_default();
    match context.len() > SEALED_BYTES_MAX {
        true => Err(TOO_LARGE),
        false => Ok((LessSafeKey::new(key), Aad::from(context))),
    }
}

fn nonce_of(bytes: &[u8]) -> Result<[u8; NONCE_BYTES], &'static str> {
    bytes.try_into().map_err(|_| WRONG_NONCE)
}

/// Seals the data in argument 2 with the nonce in argument 3, or with a random one, which then precedes the result.
fn sealed(call: Call) -> Result<Vec<u8>, &'static str> {
    let (key, context) = key_and_context(call)?;
    let data = call.bytes(2).unwrap_or_default();
    if data.len() > SEALED_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    let mut out = Vec::with_capacity(NONCE_BYTES + data.len() + TAG_BYTES);
    let nonce = match call.bytes(3) {
        Some(nonce) => nonce_of(nonce)?,
        None => {
            let mut nonce = [0; NONCE_BYTES];
            if !call.host().facts.randomness.fill(&mut nonce) {
                return Err(NO_RANDOMNESS);
            }
            out.extend_from_slice(&nonce);
            nonce
        }
    };
    let start = out.len();
    out.extend_from_slice(data);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(nonce, context, &mut out[start..]);
    out.extend_from_slice(tag.map_err(|_| TOO_LARGE)?.as_ref());
    Ok(out)
}

/// Opens the data in argument 2 with the nonce in argument 3, or with the one that precedes the data.
fn opened(call: Call) -> Result<Vec<u8>, &'static str> {
    let (key, context) = key_and_context(call)?;
    let data = call.bytes(2).unwrap_or_default();
    if data.len() > SEALED_BYTES_MAX + NONCE_BYTES + TAG_BYTES {
        return Err(TOO_LARGE);
    }
    let (nonce, data) = match call.bytes(3) {
        Some(nonce) => (nonce_of(nonce)?, data),
        None => {
            let (nonce, data) = data.split_first_chunk().ok_or(NOT_AUTHENTIC)?;
            (*nonce, data)
        }
    };
    let mut out = data.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    let length = key.open_in_place(nonce, context, &mut out).map_err(|_| NOT_AUTHENTIC)?.len();
    out.truncate(length);
    Ok(out)
}

fn push(call: Call, result: Result<Vec<u8>, &'static str>) -> c_int {
    match result {
        Ok(bytes) => {
            call.push_bytes(&bytes);
            1
        }
        Err(error) => call.fail(error),
    }
}

natives! {
    /// (number of bytes) -> bytes; nil and an error.
    fn random_bytes(call) {
        let count = call.number(1).unwrap_or(-1.0);
        if !(0.0..=RANDOM_BYTES_MAX).contains(&count) {
            return call.fail("the number of bytes must be 0 to 65536");
        }
        let mut bytes = vec![0; count as usize];
        let is_filled = call.host().facts.randomness.fill(&mut bytes);
        push(call, if is_filled { Ok(bytes) } else { Err(NO_RANDOMNESS) })
    }

    /// (key, data, nonce or nil, additional data or nil) -> sealed data; nil and an error.
    fn seal(call) {
        push(call, sealed(call))
    }

    /// (key, sealed data, nonce or nil, additional data or nil) -> data; nil and an error.
    fn open(call) {
        push(call, opened(call))
    }

    /// (one, other) -> whether two strings are equal.
    fn equal(call) {
        let (one, other) = (call.bytes(1).unwrap_or_default(), call.bytes(2).unwrap_or_default());
        call.push_boolean(verify_slices_are_equal(one, other).is_ok());
        1
    }
}
