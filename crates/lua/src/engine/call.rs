//! One call of a native function: its arguments and results, without Lua's coercions.
//! In: the stack of the calling coroutine. Out: Rust values; results pushed onto the stack.
//! Never: raises an error: the prelude checks types, and natives return nil and an error.

use core::ffi::c_int;
use core::slice;

use mlua_sys::lua51 as ffi;

use super::guard::Guard;
use crate::host::Host;
use crate::schedule::Wait;
use crate::shared::Value;

/// Declares native functions: each gets the call and returns the number of its results.
macro_rules! natives {
    ($($(#[$about:meta])* fn $name:ident($call:ident) $body:block)+) => {$(
        $(#[$about])*
        unsafe extern "C-unwind" fn $name(l: *mut ffi::lua_State) -> c_int {
            let $call = Call { l };
            $body
        }
    )+};
}

/// A call in progress. The stack has room for `LUA_MINSTACK` results.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// The state of the calling coroutine.
    pub(super) l: *mut ffi::lua_State,
}

impl Call {
    /// The argument at `index`, if it is a string.
    pub(super) fn bytes<'a>(self, index: c_int) -> Option<&'a [u8]> {
        // SAFETY: the state is live during the call. The string is an argument, so it is not collected before the call
        // ends; the natives keep no slice beyond it.
        unsafe {
            if ffi::lua_type(self.l, index) != ffi::LUA_TSTRING {
                return None;
            }
            let mut length = 0;
            let bytes = ffi::lua_tolstring(self.l, index, &mut length);
            Some(slice::from_raw_parts(bytes.cast(), length))
        }
    }

    /// The argument at `index`, if it is a number.
    pub(super) fn number(self, index: c_int) -> Option<f64> {
        // SAFETY: the state is live during the call.
        unsafe {
            let is_number = ffi::lua_type(self.l, index) == ffi::LUA_TNUMBER;
            is_number.then(|| ffi::lua_tonumber(self.l, index))
        }
    }

    /// The argument at `index` as the index or generation of an id; 0 if it is not a number.
    pub(super) fn id(self, index: c_int) -> u32 {
        self.number(index).map_or(0, |number| number as u32)
    }

    /// The argument at `index`, if it is a value that VMs share.
    pub(super) fn value(self, index: c_int) -> Option<Value> {
        // SAFETY: the state is live during the call.
        let kind = unsafe { ffi::lua_type(self.l, index) };
        match kind {
            ffi::LUA_TBOOLEAN => Some(Value::Boolean(self.is_true(index))),
            ffi::LUA_TNUMBER => self.number(index).map(Value::Number),
            ffi::LUA_TSTRING => self.bytes(index).map(|bytes| Value::Bytes(bytes.to_vec())),
            _ => None,
        }
    }

    /// Pushes a value that VMs share; nil for none.
    pub(super) fn push_value(self, value: Option<&Value>) {
        match value {
            None => self.push_nil(),
            Some(Value::Boolean(is)) => self.push_boolean(*is),
            Some(Value::Number(number)) => self.push_number(*number),
            Some(Value::Bytes(bytes)) => self.push_bytes(bytes),
        }
    }

    /// Whether the argument at `index` is neither nil nor false.
    pub(super) fn is_true(self, index: c_int) -> bool {
        // SAFETY: the state is live during the call.
        unsafe { ffi::lua_toboolean(self.l, index) != 0 }
    }

    /// Pushes a string.
    pub(super) fn push_bytes(self, bytes: &[u8]) {
        // SAFETY: the state is live and the stack has room; the bytes are copied.
        unsafe { ffi::lua_pushlstring_(self.l, bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Pushes a number.
    pub(super) fn push_number(self, number: f64) {
        // SAFETY: the state is live and the stack has room.
        unsafe { ffi::lua_pushnumber(self.l, number) };
    }

    /// Pushes true or false.
    pub(super) fn push_boolean(self, is: bool) {
        // SAFETY: the state is live and the stack has room.
        unsafe { ffi::lua_pushboolean(self.l, c_int::from(is)) };
    }

    /// Pushes nil.
    pub(super) fn push_nil(self) {
        // SAFETY: the state is live and the stack has room.
        unsafe { ffi::lua_pushnil(self.l) };
    }

    /// Pushes an empty table.
    pub(super) fn push_table(self) {
        // SAFETY: the state is live and the stack has room.
        unsafe { ffi::lua_createtable(self.l, 0, 0) };
    }

    /// Sets `t[key] = value` for the table below the key and the value on top, and removes both.
    pub(super) fn set_pair(self) {
        // SAFETY: the caller pushed the table, a key that is not nil, and the value.
        unsafe { ffi::lua_rawset(self.l, -3) };
    }

    /// Makes room for `count` results. Returns false if the stack cannot grow.
    pub(super) fn reserve(self, count: usize) -> bool {
        // SAFETY: the state is live; the function raises no error.
        unsafe { ffi::lua_checkstack(self.l, count as c_int) != 0 }
    }

    /// Returns nil and an error.
    pub(super) fn fail(self, text: &str) -> c_int {
        self.push_nil();
        self.push_bytes(text.as_bytes());
        2
    }

    /// Whether the calling coroutine can wait.
    pub(super) fn can_wait(self) -> bool {
        // SAFETY: the state is live.
        !self.host().cannot_wait && unsafe { super::lua_isyieldable(self.l) != 0 }
    }

    /// Suspends the calling coroutine. The native returns the result; the arguments of the next resumption become its
    /// results. Returns false and an error if the coroutine cannot wait.
    pub(super) fn wait(self, wait: Wait) -> c_int {
        let error = match self.can_wait() {
            false => {
                "functions that wait cannot be used here (such as in the error handler of xpcall)"
            }
            true if !self.host().schedule.has_room() => "too many coroutines wait",
            true => {
                self.host().wait = wait;
                // SAFETY: the coroutine is yieldable, so the call raises no error and does not unwind.
                return unsafe { ffi::lua_yield(self.l, 0) };
            }
        };
        self.push_boolean(false);
        self.push_bytes(error.as_bytes());
        2
    }

    /// Returns true, or nil and an error.
    pub(super) fn done(self, result: Result<(), &str>) -> c_int {
        match result {
            Ok(()) => {
                self.push_boolean(true);
                1
            }
            Err(text) => self.fail(text),
        }
    }

    /// As `done`, with an owned message.
    pub(super) fn outcome(self, result: Result<(), String>) -> c_int {
        match result {
            Ok(()) => self.done(Ok(())),
            Err(text) => self.fail(&text),
        }
    }

    /// The data of the VM. Not kept across a call that may run the collector.
    pub(super) fn host<'h>(self) -> &'h mut Host {
        // SAFETY: the state belongs to an engine.
        unsafe { super::host(self.l) }
    }

    /// The guard of the VM.
    pub(super) fn guard(self) -> &'static Guard {
        // SAFETY: the state belongs to an engine.
        unsafe { Guard::of(self.l) }
    }
}
