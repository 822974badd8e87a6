//! The functions with which the prelude reads files.
//! In: arguments that the prelude has checked. Out: values, or nil and an error.
//! Never: raises a Lua error itself; performs I/O: each read becomes an effect for the worker.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;
use tidegate_base::Id;

use super::call::Call;
use crate::schedule::Wait;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] =
    &[(c"file_read", file_read), (c"file_describe", file_describe)];

natives! {
    /// (path, offset, most bytes) -> true and a piece of the file: its size, the second of its last change, its tag, a line feed, and
    /// the bytes; false or nil, and an error.
    fn file_read(call) {
        if !call.can_wait() {
            return call.wait(Wait::Nothing);
        }
        let path = call.bytes(1).unwrap_or_default();
        let (offset, most) = (call.number(2).unwrap_or(0.0), call.number(3).unwrap_or(0.0));
        match call.host().start_file_read(path, offset, most) {
            Ok(operation) => call.wait(Wait::Operation(operation)),
            Err(error) => call.fail(error),
        }
    }

    /// (index, generation, media type, tag, second of the last change) -> whether the client has the file already; nil and an error.
    fn file_describe(call) {
        let (media_type, tag) = (call.bytes(3).unwrap_or_default(), call.bytes(4).unwrap_or_default());
        let (id, modified) = (Id::new(call.id(1), call.id(2)), call.number(5).unwrap_or(0.0));
        match call.host().describe_file(id, media_type, tag, modified as u64) {
            Ok(is_known) => {
                call.push_boolean(is_known);
                1
            }
            Err(error) => call.fail(&error),
        }
    }
}
