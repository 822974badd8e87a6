//! The native of channels (`client:publish`, `tide.publish`).
//! In: publications. Out: effects. Never: knows the subscribers, which the prelude keeps.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;

use super::call::Call;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[(c"publish", publish)];

natives! {
    /// (channel, data, is text, id of the sender or nil) -> true; nil and an error.
    fn publish(call) {
        let (Some(channel), Some(data)) = (call.bytes(1), call.bytes(2)) else {
            return call.fail("the arguments must be strings");
        };
        let sender = call.bytes(4).unwrap_or_default();
        call.done(call.host().publish(channel, data, call.is_true(3), sender))
    }
}
