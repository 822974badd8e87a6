//! The native of events of push hubs.
//! In: decisions. Out: effects.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;
use tidegate_base::Id;

use super::call::Call;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[(c"decide", decide)];

natives! {
    /// (index, generation, decision) -> true; nil and an error: decides about an event.
    fn decide(call) {
        let Some(decision) = call.bytes(3) else { return call.fail("the decision must be a string") };
        let id = Id::new(call.id(1), call.id(2));
        call.done(call.host().decide(id, decision))
    }
}
