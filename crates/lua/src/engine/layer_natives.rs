//! The functions that the prelude calls for CBOR and for layers (`tide.cbor`, `lapps.lua`, `ngx.lua`).
//! In: arguments that the prelude has checked. Out: values, or nil and an error.
//! Never: raises a Lua error itself; performs I/O: each operation of a script becomes an effect for the worker.

use core::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;

use super::call::Call;
use super::cbor;
use crate::digest;
use crate::encoding;
use crate::regex::{Match, Options};
use crate::schedule::Wait;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"cbor_encode", cbor_encode),
    (c"cbor_decode", cbor_decode),
    (c"broadcast", broadcast),
    (c"murmur", murmur),
    (c"phase", phase),
    (c"run", run),
    (c"leave", leave),
    (c"md5", md5),
    (c"crc32", crc32),
    (c"re_find", re_find),
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

    /// (name of a phase) -> the source of its script, the name of the file; nil without one.
    fn phase(call) {
        let phases = &call.host().facts.phases;
        let found = phases.iter().find(|(name, _)| Some(name.as_bytes()) == call.bytes(1));
        let Some((_, script)) = found else {
            call.push_nil();
            return 1;
        };
        call.push_bytes(&script.text);
        call.push_bytes(script.file.as_bytes());
        2
    }

    /// () -> the number of the run of the handler, timer or thread, which is the same after each of its waits.
    fn run(call) {
        call.push_number(call.host().schedule.run as f64);
        1
    }

    /// (): ends the handler, timer or thread that calls it, as if it had returned. Does nothing if the caller cannot yield.
    fn leave(call) {
        // SAFETY: the state is live.
        if unsafe { super::lua_isyieldable(call.l) } == 0 {
            return 0;
        }
        call.host().wait = Wait::End;
        // SAFETY: the coroutine is yieldable, so the call raises no error and does not unwind.
        unsafe { ffi::lua_yield(call.l, 0) }
    }

    /// (data) -> its MD5 digest.
    fn md5(call) {
        call.push_bytes(&digest::md5(call.bytes(1).unwrap_or_default()));
        1
    }

    /// (data) -> its CRC-32.
    fn crc32(call) {
        call.push_number(f64::from(digest::crc32(call.bytes(1).unwrap_or_default())));
        1
    }

    /// (pattern, options, text, place from which to search) -> the places of the match and of its groups, begin and end in
    /// turn, false for a group that did not match, and by name in `names`; nil if nothing matches; nil and an error.
    fn re_find(call) {
        let (Some(pattern), Some(options), Some(text)) = (call.bytes(1), call.bytes(2), call.bytes(3)) else {
            return call.fail("the arguments must be strings");
        };
        let from = call.number(4).map_or(0, |place| place as usize).saturating_sub(1);
        let options = match Options::of(options) {
            Ok(options) => options,
            Err(error) => return call.fail(&error),
        };
        let spend = |steps| call.guard().spend(steps);
        match call.host().patterns.find(pattern, options, text, from, &spend) {
            Err(error) => call.fail(&error),
            Ok(None) => {
                call.push_nil();
                1
            }
            Ok(Some(found)) => push_match(call, &found),
        }
    }
}

/// Pushes the places of a match.
fn push_match(call: Call, found: &Match<'_>) -> c_int {
    call.push_table();
    let mut has_names = false;
    for group in 0..found.groups() {
        let place = found.place(group);
        for (offset, end) in
            [place.as_ref().map(|at| at.start + 1), place.as_ref().map(|at| at.end)]
                .into_iter()
                .enumerate()
        {
            match end {
                Some(end) => call.push_number(end as f64),
                None => call.push_boolean(false),
            }
            // SAFETY: the table is below the value.
            unsafe { ffi::lua_rawseti_(call.l, -2, (2 * group + offset + 1) as c_int) };
        }
        has_names |= found.name(group).is_some();
    }
    if has_names {
        call.push_bytes(b"names");
        call.push_table();
        for group in 0..found.groups() {
            if let Some(name) = found.name(group) {
                call.push_bytes(name.as_bytes());
                call.push_number(group as f64);
                call.set_pair();
            }
        }
        call.set_pair();
    }
    1
}
