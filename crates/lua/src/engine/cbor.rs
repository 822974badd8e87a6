//! CBOR: Lua values to bytes and back (RFC 8949), as far as JSON has the same values.
//! In: a value on the stack, or bytes. Out: bytes, or a value on the stack.
//! Never: runs a metamethod; recurses deeper than `DEPTH_MAX`; trusts a count that exceeds the remaining bytes.
//! Limits: `DEPTH_MAX` nested arrays and maps, `BYTES_MAX` bytes that are written.
//!
//! Arrays and null are those of `json.rs`. Strings that are UTF-8 are written as text strings, others as byte strings; both are
//! read as strings. Tags are skipped, undefined is read as null.

use core::ffi::{c_int, c_void};
use core::slice;

use mlua_sys::lua51 as ffi;

use super::call::Call;
use super::json::{ARRAY, array_metatable, is_sequence, push_null};

/// Maximum depth of nested arrays and maps.
const DEPTH_MAX: usize = 100;
/// Maximum number of bytes that are written for a value.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The error of longer data.
const TOO_LONG: &str = "the CBOR data would exceed 16 MiB";
/// Values between two checks of the budget.
const BUDGET_EVERY: u32 = 512;
/// About how many bytes are copied in the time of a step of the budget.
const BYTES_OF_STEP: u64 = 64;

// Major types (section 3.1).
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const LIST: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
/// The byte that ends an item of unknown length.
const BREAK: u8 = 0xff;

/// The first bytes of floating-point numbers.
const FLOATS: core::ops::RangeInclusive<u8> = 0xf9..=0xfb;

const BAD_KEY: &str = "a key of a map must be a string or a number";
const TOO_EARLY: &str = "the data ends too early";
const TOO_DEEP: &str = "the value is nested deeper than 100 levels, or contains itself";
const OVER_BUDGET: &str = "the callback exceeds its budget";

/// Writes the value at `index` to the end of `out`.
pub(super) fn encode(call: Call, index: c_int, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut writer = Writer { call, out, values: 0, array: array_metatable(call) };
    // SAFETY: the state is live during the call.
    unsafe { writer.value(index, 0) }
}

struct Writer<'o> {
    call: Call,
    out: &'o mut Vec<u8>,
    values: u32,
    /// The metatable of arrays.
    array: *const c_void,
}

impl Writer<'_> {
    /// Writes the first byte of an item and its argument, in the shortest form.
    fn head(&mut self, major: u8, argument: u64) {
        let first = major << 5;
        match argument {
            0..=23 => self.out.push(first | argument as u8),
            24..=0xff => self.out.extend_from_slice(&[first | 24, argument as u8]),
            0x100..=0xffff => {
                self.out.push(first | 25);
                self.out.extend_from_slice(&(argument as u16).to_be_bytes());
            }
            0x1_0000..=0xffff_ffff => {
                self.out.push(first | 26);
                self.out.extend_from_slice(&(argument as u32).to_be_bytes());
            }
            _ => {
                self.out.push(first | 27);
                self.out.extend_from_slice(&argument.to_be_bytes());
            }
        }
    }

    /// # Safety
    /// `index` is an absolute index of a value on the stack of the call.
    unsafe fn value(&mut self, index: c_int, depth: usize) -> Result<(), &'static str> {
        self.values += 1;
        if self.values.is_multiple_of(BUDGET_EVERY)
            && self.call.guard().spend(u64::from(BUDGET_EVERY))
        {
            return Err(OVER_BUDGET);
        }
        if self.out.len() > BYTES_MAX {
            return Err(TOO_LONG);
        }
        let l = self.call.l;
        // SAFETY: the caller guarantees the index; strings stay on the stack while they are read.
        unsafe {
            match ffi::lua_type(l, index) {
                ffi::LUA_TNIL | ffi::LUA_TLIGHTUSERDATA => self.out.push(0xf6),
                ffi::LUA_TBOOLEAN => {
                    self.out.push(if ffi::lua_toboolean(l, index) != 0 { 0xf5 } else { 0xf4 });
                }
                ffi::LUA_TNUMBER => self.number(ffi::lua_tonumber(l, index)),
                ffi::LUA_TSTRING => {
                    let mut length = 0;
                    let bytes = ffi::lua_tolstring(l, index, &mut length);
                    if self.out.len() + length > BYTES_MAX {
                        return Err(TOO_LONG);
                    }
                    self.string(slice::from_raw_parts(bytes.cast(), length));
                }
                ffi::LUA_TTABLE => return self.table(index, depth + 1),
                _ => return Err("functions, coroutines and userdata cannot be written as CBOR"),
            }
        }
        Ok(())
    }

    fn number(&mut self, number: f64) {
        // Every integer up to 2^53 is exact.
        let is_whole = number.abs() < 9_007_199_254_740_992.0 && number.trunc() == number;
        match is_whole {
            true if number >= 0.0 => self.head(UNSIGNED, number as u64),
            true => self.head(NEGATIVE, (-1.0 - number) as u64),
            false => {
                self.out.push(0xfb);
                self.out.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    fn string(&mut self, bytes: &[u8]) {
        let major = if core::str::from_utf8(bytes).is_ok() { TEXT } else { BYTES };
        self.head(major, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// # Safety
    /// As for `value`; there is a table at `index`.
    unsafe fn table(&mut self, index: c_int, depth: usize) -> Result<(), &'static str> {
        if depth > DEPTH_MAX {
            return Err(TOO_DEEP);
        }
        if !self.call.reserve(8) {
            return Err(TOO_DEEP);
        }
        let l = self.call.l;
        // SAFETY: the caller guarantees the table. Keys are not converted while the table is traversed, nothing is
        // assigned to it, and the stack is restored except on errors, after which the call ends.
        unsafe {
            let is_marked = ffi::lua_getmetatable(l, index) != 0 && {
                let is = ffi::lua_topointer(l, -1) == self.array;
                ffi::lua_settop(l, -2);
                is
            };
            let length = ffi::lua_objlen(l, index);
            if is_marked || (length > 0 && is_sequence(l, index, length)) {
                self.head(LIST, length as u64);
                for at in 1..=length {
                    ffi::lua_rawgeti_(l, index, at as c_int);
                    self.value(ffi::lua_gettop(l), depth)?;
                    ffi::lua_settop(l, -2);
                }
                return Ok(());
            }
            let mut count = 0;
            ffi::lua_pushnil(l);
            while ffi::lua_next(l, index) != 0 {
                ffi::lua_settop(l, -2);
                count += 1;
            }
            self.head(MAP, count);
            let start = self.out.len();
            // The places where each pair and its value begin.
            let mut pairs = Vec::new();
            ffi::lua_pushnil(l);
            while ffi::lua_next(l, index) != 0 {
                let top = ffi::lua_gettop(l);
                let pair = self.out.len();
                match ffi::lua_type(l, top - 1) {
                    ffi::LUA_TSTRING | ffi::LUA_TNUMBER => self.value(top - 1, depth)?,
                    _ => return Err("keys of CBOR maps must be strings or numbers"),
                }
                pairs.push((pair - start, self.out.len() - start));
                self.value(top, depth)?;
                ffi::lua_settop(l, top - 1);
            }
            self.sort(start, &pairs)?;
        }
        Ok(())
    }

    /// Sorts the pairs of a map, which begin at `start`, by the bytes of their keys (section 4.2.1): the same value is always
    /// written in the same form.
    fn sort(&mut self, start: usize, pairs: &[(usize, usize)]) -> Result<(), &'static str> {
        if pairs.len() < 2 {
            return Ok(());
        }
        // Each level of nested maps copies its contents once more.
        let bytes = (self.out.len() - start) as u64;
        if self.call.guard().spend(bytes / BYTES_OF_STEP) {
            return Err(OVER_BUDGET);
        }
        let written = self.out.split_off(start);
        let ends = pairs.iter().skip(1).map(|(pair, _)| *pair).chain([written.len()]);
        let mut pairs: Vec<_> =
            pairs.iter().zip(ends).map(|((at, key), end)| (*at, *key, end)).collect();
        pairs.sort_by_key(|(at, key, _)| &written[*at..*key]);
        for (at, _, end) in pairs {
            self.out.extend_from_slice(&written[at..end]);
        }
        Ok(())
    }
}

/// Pushes the value of the bytes.
pub(super) fn decode(call: Call, data: &[u8]) -> Result<(), (&'static str, usize)> {
    let mut reader = Reader { call, data, at: 0, values: 0 };
    let result = reader.whole();
    result.map_err(|what| (what, reader.at))
}

struct Reader<'d> {
    call: Call,
    data: &'d [u8],
    /// The next byte.
    at: usize,
    values: u32,
}

impl<'d> Reader<'d> {
    fn whole(&mut self) -> Result<(), &'static str> {
        self.value(0)?;
        if self.at == self.data.len() { Ok(()) } else { Err("data after the value") }
    }

    fn take(&mut self, count: u64) -> Result<&'d [u8], &'static str> {
        let rest = &self.data[self.at..];
        let count = usize::try_from(count).map_err(|_| TOO_EARLY)?;
        let taken = rest.get(..count).ok_or(TOO_EARLY)?;
        self.at += count;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        self.take(1).map(|byte| byte[0])
    }

    /// The argument of an item with this first byte; `None`: the length is unknown.
    fn argument(&mut self, first: u8) -> Result<Option<u64>, &'static str> {
        let count = match first & 31 {
            number @ 0..=23 => return Ok(Some(u64::from(number))),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            31 => return Ok(None),
            _ => return Err("not a CBOR item"),
        };
        let bytes = self.take(count)?;
        Ok(Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))))
    }

    fn value(&mut self, depth: usize) -> Result<(), &'static str> {
        self.values += 1;
        if self.values.is_multiple_of(BUDGET_EVERY)
            && self.call.guard().spend(u64::from(BUDGET_EVERY))
        {
            return Err(OVER_BUDGET);
        }
        let first = self.byte()?;
        let major = first >> 5;
        if major == 7 {
            return self.simple(first);
        }
        let argument = self.argument(first)?;
        match (major, argument) {
            (UNSIGNED, Some(number)) => self.call.push_number(number as f64),
            (NEGATIVE, Some(number)) => self.call.push_number(-1.0 - number as f64),
            (BYTES | TEXT, length) => return self.string(major, length),
            (LIST, count) => return self.list(count, depth + 1),
            (MAP, count) => return self.map(count, depth + 1),
            // A tag does not change the value (section 3.4). It counts as a level, so that the recursion is bounded.
            (TAG, Some(_)) if depth < DEPTH_MAX => return self.value(depth + 1),
            _ => return Err("not a CBOR item"),
        }
        Ok(())
    }

    fn simple(&mut self, first: u8) -> Result<(), &'static str> {
        match first & 31 {
            20 => self.call.push_boolean(false),
            21 => self.call.push_boolean(true),
            // SAFETY: the state is live and the stack has room: `begin` reserves it.
            22 | 23 => unsafe { push_null(self.call.l) },
            25 => {
                let bits = self.take(2)?;
                self.call.push_number(half(u16::from_be_bytes([bits[0], bits[1]])));
            }
            26 => {
                let bits = self.take(4)?.try_into().unwrap_or_default();
                self.call.push_number(f64::from(f32::from_be_bytes(bits)));
            }
            27 => {
                let bits = self.take(8)?.try_into().unwrap_or_default();
                self.call.push_number(f64::from_be_bytes(bits));
            }
            _ => return Err("not a CBOR value that Lua can represent"),
        }
        Ok(())
    }

    fn string(&mut self, major: u8, length: Option<u64>) -> Result<(), &'static str> {
        if let Some(length) = length {
            let bytes = self.take(length)?;
            self.call.push_bytes(bytes);
            return Ok(());
        }
        let mut whole = Vec::new();
        loop {
            let first = self.byte()?;
            if first == BREAK {
                break;
            }
            let Some(length) = self.argument(first)?.filter(|_| first >> 5 == major) else {
                return Err(
                    "a part of an indefinite-length string must be a string of the same type",
                );
            };
            whole.extend_from_slice(self.take(length)?);
        }
        self.call.push_bytes(&whole);
        Ok(())
    }

    fn begin(&mut self, depth: usize) -> Result<(), &'static str> {
        match depth <= DEPTH_MAX && self.call.reserve(8) {
            true => Ok(()),
            false => Err("the data is nested deeper than 100 levels"),
        }
    }

    /// Whether one more item follows in a list or map of `count` items, of which `done` were read.
    fn has_next(&mut self, count: Option<u64>, done: u64) -> bool {
        match count {
            Some(count) => done < count,
            None if self.data.get(self.at) == Some(&BREAK) => {
                self.at += 1;
                false
            }
            None => true,
        }
    }

    fn list(&mut self, count: Option<u64>, depth: usize) -> Result<(), &'static str> {
        self.begin(depth)?;
        let l = self.call.l;
        // SAFETY: the state is live and `begin` reserved room; the table is on top whenever an element is set.
        unsafe {
            ffi::lua_createtable(l, 0, 0);
            ffi::lua_getfield_(l, ffi::LUA_REGISTRYINDEX, ARRAY.as_ptr());
            ffi::lua_setmetatable(l, -2);
            let mut done = 0;
            while self.has_next(count, done) {
                self.value(depth)?;
                done += 1;
                ffi::lua_rawseti_(l, -2, done as c_int);
            }
        }
        Ok(())
    }

    /// Reads a key of a map: one that `Writer` writes.
    fn key(&mut self, depth: usize) -> Result<(), &'static str> {
        let first = self.data.get(self.at).ok_or(TOO_EARLY)?;
        if !matches!(first >> 5, UNSIGNED | NEGATIVE | BYTES | TEXT) && !FLOATS.contains(first) {
            return Err(BAD_KEY);
        }
        let is_float = FLOATS.contains(first);
        self.value(depth)?;
        // SAFETY: the state is live, and the key is on top.
        match is_float && unsafe { ffi::lua_tonumber(self.call.l, -1).is_nan() } {
            // NaN cannot be a key of a table.
            true => Err(BAD_KEY),
            false => Ok(()),
        }
    }

    fn map(&mut self, count: Option<u64>, depth: usize) -> Result<(), &'static str> {
        self.begin(depth)?;
        self.call.push_table();
        let mut done = 0;
        while self.has_next(count, done) {
            self.key(depth)?;
            self.value(depth)?;
            self.call.set_pair();
            done += 1;
        }
        Ok(())
    }
}

/// A floating-point number of 16 bits (RFC 8949 appendix D).
fn half(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (mantissa + 1024.0) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 0 { size } else { -size }
}
