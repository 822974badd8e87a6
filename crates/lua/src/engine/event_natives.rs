//! The natives of decisions, about events of push hubs and about servers, and of the console.
//! In: decisions, texts. Out: effects, choices, texts.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;
use tidegate_base::Id;

use super::call::Call;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"decide", decide),
    (c"choose_server", choose_server),
    (c"mark_failed", mark_failed),
    (c"show", show),
];

natives! {
    /// (index, generation, decision) -> true; nil and an error: decides about an event.
    fn decide(call) {
        let Some(decision) = call.bytes(3) else { return call.fail("the decision must be a string") };
        let id = Id::new(call.id(1), call.id(2));
        call.done(call.host().decide(id, decision))
    }

    /// (index, generation, number of a server) -> true; nil and an error.
    fn choose_server(call) {
        let Some(number) = call.number(3) else { return call.fail("the server must be a number") };
        let id = Id::new(call.id(1), call.id(2));
        call.outcome(call.host().choose_server(id, number))
    }

    /// (index, generation) -> true; nil and an error: the response counts as a failure of its server.
    fn mark_failed(call) {
        let id = Id::new(call.id(1), call.id(2));
        call.done(call.host().changeable_reply(id).map(|reply| reply.is_failed = true))
    }

    /// (text): what the code of the console has returned.
    fn show(call) {
        let text = call.bytes(1).unwrap_or_default();
        call.host().show(text);
        0
    }
}
