//! The functions of CBOR and of layers (`tide.cbor`, `lapps.lua`) that the prelude calls.
//! In: arguments that the prelude has checked. Out: values, or nil and a text.
//! Never: raises an error of its own; acts: what a script orders becomes an effect.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;

use super::call::Call;
use super::cbor;
use crate::encoding;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"cbor_encode", cbor_encode),
    (c"cbor_decode", cbor_decode),
    (c"broadcast", broadcast),
    (c"murmur", murmur),
];

natives! {
    /// (value) -> bytes; nil and an error.
    fn cbor_encode(call) {
        let mut data = Vec::new();
        match cbor::encode(call, 1, &mut data) {
            Ok(()) => {
                call.push_bytes(&data);
                1
            }
            Err(error) => call.fail(error),
        }
    }

    /// (bytes) -> value; nil and an error.
    fn cbor_decode(call) {
        let Some(data) = call.bytes(1) else { return call.fail("the data must be a string") };
        match cbor::decode(call, data) {
            Ok(()) => 1,
            Err((what, at)) => call.fail(&format!("{what} (at byte {})", at + 1)),
        }
    }

    /// (channel, data) -> true; nil and an error.
    fn broadcast(call) {
        let (Some(channel), Some(data)) = (call.bytes(1), call.bytes(2)) else {
            return call.fail("the arguments must be strings");
        };
        call.done(call.host().broadcast(channel, data))
    }

    /// (data) -> its hash, as hexadecimal digits.
    fn murmur(call) {
        let hash = encoding::murmur(call.bytes(1).unwrap_or_default());
        call.push_bytes(format!("{hash:016x}").as_bytes());
        1
    }
}
