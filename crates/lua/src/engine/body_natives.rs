//! The functions with which the prelude reads the bodies of servers' responses and of requests.
//! In: arguments that the prelude has checked. Out: values, or nil and an error.
//! Never: raises a Lua error itself; performs I/O: each operation of a script becomes an effect for the worker.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;
use tidegate_base::Id;

use super::call::Call;
use crate::body::Portion;
use crate::host::ScriptRequestId;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"body_take", body_take),
    (c"body_wait", body_wait),
    (c"upload_take", upload_take),
    (c"upload_wait", upload_wait),
    (c"keep_body", keep_body),
];

/// The exchange that the arguments 1 and 2 name.
fn exchange(call: Call) -> ScriptRequestId {
    Id::new(call.id(1), call.id(2))
}

/// The bytes of a body that have arrived.
fn take(call: Call) -> c_int {
    let id = exchange(call);
    match call.host().unread_body(id) {
        Ok(Portion::Bytes(bytes)) => {
            call.push_bytes(bytes);
            call.host().note_body_read(id);
        }
        Ok(Portion::Nothing) => call.push_nil(),
        Ok(Portion::End) => call.push_boolean(false),
        Err(error) => return call.fail(error),
    }
    1
}

/// Waits for more of a body.
fn wait(call: Call) -> c_int {
    if !call.can_wait() {
        return call.wait(crate::schedule::Wait::Nothing);
    }
    match call.host().await_body(exchange(call)) {
        Ok(wait) => call.wait(wait),
        Err(error) => call.fail(error),
    }
}

natives! {
    /// (index, generation) -> the bytes that have arrived; false at the end; nil if nothing has arrived; nil and an error.
    fn body_take(call) {
        take(call)
    }

    /// (index, generation) -> true once more has arrived, after what was written was sent; false or nil, and an error.
    fn body_wait(call) {
        wait(call)
    }

    /// As `body_take`, for the body of a request.
    fn upload_take(call) {
        match call.host().check_upload(exchange(call)) {
            Ok(()) => take(call),
            Err(error) => call.fail(error),
        }
    }

    /// As `body_wait`, for the body of a request. Nothing is sent.
    fn upload_wait(call) {
        match call.host().check_upload(exchange(call)) {
            Ok(()) => wait(call),
            Err(error) => call.fail(error),
        }
    }

    /// (index, generation): `on_body` does not run for the response.
    fn keep_body(call) {
        let id = exchange(call);
        call.done(call.host().changeable_reply(id).map(|reply| reply.keeps_body = true))
    }
}
