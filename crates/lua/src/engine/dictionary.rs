//! The natives of `tide.shared`.
//! In: the number of a dictionary, and arguments that the prelude has checked. Out: values, or nil and an error.
//! Never: runs code or pushes a value under the lock of a dictionary.

use core::ffi::{CStr, c_int};
use std::sync::Arc;

use mlua_sys::lua51 as ffi;

use super::call::Call;
use crate::shared::{Condition, Dictionary, End};

/// Keys of a list between two checks of the budget.
const KEYS_PER_CHECK: usize = 512;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"dict_names", names),
    (c"dict_get", get),
    (c"dict_set", set),
    (c"dict_compare_and_set", compare_and_set),
    (c"dict_incr", incr),
    (c"dict_delete", delete),
    (c"dict_expire", expire),
    (c"dict_ttl", ttl),
    (c"dict_push", push),
    (c"dict_pop", pop),
    (c"dict_length", length),
    (c"dict_keys", keys),
    (c"dict_clear", clear),
    (c"dict_size", size),
];

const UNKNOWN: &str = "there is no such dictionary";
const NO_VALUE: &str = "a value must be a string, a number or a boolean";

/// The dictionary that argument 1 names, the key in argument 2, and seconds since 1970.
fn target<'a>(call: Call) -> Option<(Arc<Dictionary>, &'a [u8], f64)> {
    let host = call.host();
    let (_, dictionary) = host.facts.shared.get(call.id(1) as usize)?;
    Some((Arc::clone(dictionary), call.bytes(2)?, host.unix_seconds))
}

/// When an entry ends. The argument at `index` is its lifetime in seconds; without it, the entry never ends.
fn ends_at(call: Call, index: c_int, now: f64) -> f64 {
    // `max` turns NaN into 0: the entry ends at once.
    call.number(index).map_or(f64::INFINITY, |seconds| now + seconds.max(0.0))
}

/// Adds keys to the list on top of the stack, which has `count` of them. Returns false if the callback exceeds its budget.
fn add_keys(call: Call, count: &mut usize, keys: &[Box<[u8]>]) -> bool {
    for key in keys {
        // The keys may exceed the memory of the VM.
        if (*count).is_multiple_of(KEYS_PER_CHECK) && call.guard().spend(KEYS_PER_CHECK as u64) {
            return false;
        }
        *count += 1;
        call.push_number(*count as f64);
        call.push_bytes(key);
        call.set_pair();
    }
    true
}

fn end_of(call: Call, index: c_int) -> End {
    if call.is_true(index) { End::Left } else { End::Right }
}

natives! {
    /// () -> the names of the dictionaries, in order.
    fn names(call) {
        call.push_table();
        for (at, (name, _)) in call.host().facts.shared.iter().enumerate() {
            call.push_number((at + 1) as f64);
            call.push_bytes(name.as_bytes());
            call.set_pair();
        }
        1
    }

    /// (dictionary, key) -> value; nil without an entry; nil and an error.
    fn get(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        match dictionary.get(key, now) {
            Ok(value) => {
                call.push_value(value.as_ref());
                1
            }
            Err(error) => call.fail(error),
        }
    }

    /// (dictionary, key, value, seconds or nil, condition) -> true; nil and an error.
    fn set(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        let Some(value) = call.value(3) else { return call.fail(NO_VALUE) };
        let condition = match call.id(5) {
            0 => Condition::Always,
            1 => Condition::Absent,
            _ => Condition::Present,
        };
        call.done(dictionary.set(key, value, ends_at(call, 4, now), condition, now))
    }

    /// (dictionary, key, expected value or nil, value or nil, seconds or nil) -> true; nil and an error.
    fn compare_and_set(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        let (expected, value) = (call.value(3), call.value(4));
        let ends_at = ends_at(call, 5, now);
        call.done(dictionary.compare_and_set(key, expected.as_ref(), value, ends_at, now))
    }

    /// (dictionary, key, number, initial or nil, seconds or nil) -> number; nil and an error.
    fn incr(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        let initial = (call.number(4), ends_at(call, 5, now));
        match dictionary.increase(key, call.number(3).unwrap_or(1.0), initial, now) {
            Ok(number) => {
                call.push_number(number);
                1
            }
            Err(error) => call.fail(error),
        }
    }

    /// (dictionary, key) -> whether there was an entry.
    fn delete(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        call.push_boolean(dictionary.delete(key, now));
        1
    }

    /// (dictionary, key, seconds or nil) -> true; nil and an error.
    fn expire(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        call.done(dictionary.expire(key, ends_at(call, 3, now), now))
    }

    /// (dictionary, key) -> seconds, infinite if the entry never ends; nil without an entry.
    fn ttl(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        match dictionary.end_of(key, now) {
            Some(at) => call.push_number(at - now),
            None => call.push_nil(),
        }
        1
    }

    /// (dictionary, key, value, is the left end) -> length; nil and an error.
    fn push(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        let Some(value) = call.value(3) else { return call.fail(NO_VALUE) };
        match dictionary.push(key, value, end_of(call, 4), now) {
            Ok(length) => {
                call.push_number(length as f64);
                1
            }
            Err(error) => call.fail(error),
        }
    }

    /// (dictionary, key, is the left end) -> value; nil without a list; nil and an error.
    fn pop(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        match dictionary.pop(key, end_of(call, 3), now) {
            Ok(value) => {
                call.push_value(value.as_ref());
                1
            }
            Err(error) => call.fail(error),
        }
    }

    /// (dictionary, key) -> the length of a list; nil and an error.
    fn length(call) {
        let Some((dictionary, key, now)) = target(call) else { return call.fail(UNKNOWN) };
        match dictionary.length(key, now) {
            Ok(length) => {
                call.push_number(length as f64);
                1
            }
            Err(error) => call.fail(error),
        }
    }

    /// (dictionary, "", most; nil: all) -> a list of keys.
    fn keys(call) {
        let Some((dictionary, _, now)) = target(call) else { return call.fail(UNKNOWN) };
        call.push_table();
        let mut count = 0;
        match call.number(3) {
            Some(most) => {
                add_keys(call, &mut count, &dictionary.keys(most as usize, now));
            }
            None => {
                // Only the keys of one part are copied at a time.
                (0..dictionary.parts()).all(|part| {
                    add_keys(call, &mut count, &dictionary.keys_of_part(part, now))
                });
            }
        }
        1
    }

    /// (dictionary, "")
    fn clear(call) {
        if let Some((dictionary, ..)) = target(call) {
            dictionary.clear();
        }
        0
    }

    /// (dictionary, "") -> the number of entries, and their bytes.
    fn size(call) {
        let Some((dictionary, ..)) = target(call) else { return call.fail(UNKNOWN) };
        let (count, bytes) = dictionary.size();
        call.push_number(count as f64);
        call.push_number(bytes as f64);
        2
    }
}
