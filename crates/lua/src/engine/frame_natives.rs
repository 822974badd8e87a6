//! The functions of forwarded WebSockets that the prelude calls.
//! In: arguments that the prelude has checked. Out: values, or nil and an error.
//! Never: raises a Lua error itself; performs I/O: each operation of a script becomes an effect for the worker.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;
use tidegate_base::Id;

use super::call::Call;
use crate::frames::TunnelId;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"frame_drop", frame_drop),
    (c"frame_replace", frame_replace),
    (c"frame_send", frame_send),
    (c"tunnel_close", tunnel_close),
    (c"tunnel_is_open", tunnel_is_open),
];

/// The tunnel that the arguments 1 and 2 name.
fn tunnel(call: Call) -> TunnelId {
    Id::new(call.id(1), call.id(2))
}

natives! {
    /// (index, generation) -> true; nil and an error: the message is not forwarded.
    fn frame_drop(call) {
        call.done(call.host().decide_frame(tunnel(call), None))
    }

    /// (index, generation, data, is text) -> true; nil and an error: this message is forwarded instead.
    fn frame_replace(call) {
        let data = call.bytes(3).unwrap_or_default();
        call.done(call.host().decide_frame(tunnel(call), Some((call.is_true(4), data))))
    }

    /// (index, generation, to the client, data, is text) -> true; nil and an error.
    fn frame_send(call) {
        let (to_client, data) = (call.is_true(3), call.bytes(4).unwrap_or_default());
        call.done(call.host().send_to_side(tunnel(call), to_client, (call.is_true(5), data)))
    }

    /// (index, generation, code, reason) -> true; nil and an error.
    fn tunnel_close(call) {
        let reason = call.bytes(4).unwrap_or_default();
        call.done(call.host().close_tunnel(tunnel(call), call.id(3), reason))
    }

    /// (index, generation) -> whether messages are still forwarded.
    fn tunnel_is_open(call) {
        call.push_boolean(call.host().is_tunnel_open(tunnel(call)));
        1
    }
}
