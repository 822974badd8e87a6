//! JSON: Lua values to JSON texts and back (RFC 8259).
//! In: a value on the stack, or a text. Out: a text, or a value on the stack.
//! Never: runs a metamethod; recurses deeper than `DEPTH_MAX`; writes NaN, infinity or text that is not UTF-8, except by the
//! rules of lua-cjson.
//! Limits: `DEPTH_MAX` nested arrays and objects, `TEXT_BYTES_MAX` bytes of text.
//!
//! `null` is a value of its own (`tide.json.null`), because a table cannot hold nil. A table is an array if its keys
//! are exactly 1..n, or if it has the metatable of arrays (`tide.json.array`), which decoded arrays have: so an empty
//! array stays one. Any other table is an object. The rules of lua-cjson differ from that (`Rules`).

use core::ffi::{c_int, c_void};
use core::ptr;
use core::slice;

use mlua_sys::lua51 as ffi;

use super::call::Call;
use super::cjson::Rules;

/// Maximum depth of nested arrays and objects.
pub(super) const DEPTH_MAX: usize = 100;
/// Maximum number of bytes of a text that is written.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that are escaped between two checks of the budget.
const ESCAPES_PER_CHECK: u32 = 4096;
/// The error of a callback that is being stopped.
const OVER_BUDGET: &str = "the callback exceeds its budget";
/// The error of a longer text.
const TOO_LONG: &str = "the JSON text would exceed 16 MiB";
/// Values of one array, or names and values of one object, that are kept on the stack until their table is created. A native
/// function has 8,000 stack slots, enough for `DEPTH_MAX` levels.
const COLLECTED_MAX: usize = 32;
/// Bytes of a string that are checked together.
const SCAN_BYTES: usize = 16;
/// Values between two checks of the budget.
const BUDGET_EVERY: u32 = 512;
/// The key in the registry under which the metatable of arrays is stored.
pub(super) const ARRAY: &core::ffi::CStr = c"tidegate.array";

/// `null` is a light userdata with the address of this value.
static NULL: u8 = 0;

/// Pushes `null`.
///
/// # Safety
/// `l` is a live state with room on its stack.
pub(super) unsafe fn push_null(l: *mut ffi::lua_State) {
    // SAFETY: the caller guarantees the state.
    unsafe { ffi::lua_pushlightuserdata(l, ptr::from_ref(&NULL).cast_mut().cast::<c_void>()) };
}

/// Writes the value at `index` to the end of `out`.
pub(super) fn encode(call: Call, index: c_int, out: &mut Vec<u8>) -> Result<(), &'static str> {
    encode_by(call, index, out, None)
}

/// As `encode`, by other rules.
pub(super) fn encode_by(
    call: Call,
    index: c_int,
    out: &mut Vec<u8>,
    rules: Option<&Rules>,
) -> Result<(), &'static str> {
    let start = out.len();
    let mut writer = Writer { call, out, start, values: 0, array: array_metatable(call), rules };
    // SAFETY: the state is live during the call.
    unsafe { writer.value(index, 0) }
}

/// The metatable of arrays.
pub(super) fn array_metatable(call: Call) -> *const c_void {
    // SAFETY: the state is live during the call; the registry's table of arrays is created by the prelude.
    unsafe {
        ffi::lua_getfield_(call.l, ffi::LUA_REGISTRYINDEX, ARRAY.as_ptr());
        let array = ffi::lua_topointer(call.l, -1);
        ffi::lua_settop(call.l, -2);
        array
    }
}

/// Writes one value.
struct Writer<'o> {
    /// The call whose stack has the value.
    call: Call,
    /// Receives the text.
    out: &'o mut Vec<u8>,
    /// Where the text begins in `out`.
    start: usize,
    /// Values written.
    values: u32,
    /// The metatable of arrays.
    array: *const c_void,
    /// The rules of lua-cjson, if they apply.
    rules: Option<&'o Rules>,
}

impl Writer<'_> {
    /// # Safety
    /// `index` is an absolute index of a value on the stack of the call.
    unsafe fn value(&mut self, index: c_int, depth: usize) -> Result<(), &'static str> {
        self.values += 1;
        if self.values.is_multiple_of(BUDGET_EVERY)
            && self.call.guard().spend(u64::from(BUDGET_EVERY))
        {
            return Err(OVER_BUDGET);
        }
        if self.out.len() - self.start > TEXT_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let l = self.call.l;
        // SAFETY: the caller guarantees the index; strings stay on the stack while they are read.
        unsafe {
            match ffi::lua_type(l, index) {
                ffi::LUA_TNIL => self.out.extend_from_slice(b"null"),
                ffi::LUA_TBOOLEAN => {
                    let is = ffi::lua_toboolean(l, index) != 0;
                    self.out.extend_from_slice(if is { b"true" } else { b"false" });
                }
                ffi::LUA_TNUMBER => return self.number(ffi::lua_tonumber(l, index)),
                ffi::LUA_TSTRING => {
                    let mut length = 0;
                    let bytes = ffi::lua_tolstring(l, index, &mut length);
                    return self.string(slice::from_raw_parts(bytes.cast(), length));
                }
                ffi::LUA_TTABLE => return self.table(index, depth + 1),
                ffi::LUA_TLIGHTUSERDATA => self.out.extend_from_slice(b"null"),
                _ => return Err("functions, coroutines and userdata cannot be written as JSON"),
            }
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<(), &'static str> {
        use std::io::Write as _;
        if let Some(rules) = self.rules {
            return rules.number(number, self.out);
        }
        if !number.is_finite() {
            return Err("NaN and infinity cannot be written as JSON");
        }
        // Every integer up to 2^53 is exact.
        if number.abs() < 9_007_199_254_740_992.0 && number.trunc() == number {
            let text = number as i64;
            self.out.extend_from_slice(itoa::Buffer::new().format(text).as_bytes());
        } else if number.abs() >= 1e21 || number.abs() < 1e-6 {
            write!(self.out, "{number:e}").map_err(|_| "writing a number failed")?;
        } else {
            write!(self.out, "{number}").map_err(|_| "writing a number failed")?;
        }
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        // lua-cjson writes any bytes.
        if self.rules.is_none() && !bytes.is_ascii() && core::str::from_utf8(bytes).is_err() {
            return Err("a string that is not UTF-8 cannot be written as JSON");
        }
        if self.out.len() - self.start + bytes.len() > TEXT_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let out = &mut *self.out;
        out.reserve(bytes.len() + 2);
        out.push(b'"');
        let (mut from, mut escaped) = (0, 0_u32);
        let has_slashes = self.rules.is_some_and(|rules| rules.escapes_slash);
        let next = |rest: &[u8]| match has_slashes {
            true => position(rest, |byte| is_special(byte) | (byte == 0x7f) | (byte == b'/')),
            false => position(rest, |byte| is_special(byte) | (byte == 0x7f)),
        };
        while let Some(at) = next(&bytes[from..]) {
            out.extend_from_slice(&bytes[from..from + at]);
            let byte = bytes[from + at];
            match byte {
                b'/' => out.extend_from_slice(b"\\/"),
                8 if self.rules.is_some() => out.extend_from_slice(b"\\b"),
                12 if self.rules.is_some() => out.extend_from_slice(b"\\f"),
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                _ => {
                    const HEX: &[u8; 16] = b"0123456789abcdef";
                    let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                    out.extend_from_slice(b"\\u00");
                    out.extend_from_slice(&digits);
                }
            }
            from += at + 1;
            // A byte becomes up to six.
            if out.len() - self.start > TEXT_BYTES_MAX {
                return Err(TOO_LONG);
            }
            escaped += 1;
            if escaped.is_multiple_of(ESCAPES_PER_CHECK)
                && self.call.guard().spend(u64::from(ESCAPES_PER_CHECK))
            {
                return Err(OVER_BUDGET);
            }
        }
        out.extend_from_slice(&bytes[from..]);
        out.push(b'"');
        Ok(())
    }

    /// # Safety
    /// As for `value`; there is a table at `index`.
    unsafe fn table(&mut self, index: c_int, depth: usize) -> Result<(), &'static str> {
        if depth > self.rules.map_or(DEPTH_MAX, |rules| rules.depth_max) {
            return Err(match self.rules {
                Some(_) => "Cannot serialise, excessive depth",
                None => "the value is nested deeper than 100 levels, or contains itself",
            });
        }
        let l = self.call.l;
        // SAFETY: the caller guarantees the table. Keys are not converted while the table is traversed, nothing is
        // assigned to it, and the stack is restored except on errors, after which the call ends.
        unsafe {
            if !self.call.reserve(8) {
                return Err("the value is nested too deeply");
            }
            let mut metatable = ptr::null();
            if ffi::lua_getmetatable(l, index) != 0 {
                metatable = ffi::lua_topointer(l, -1);
                ffi::lua_settop(l, -2);
            }
            let is_marked = !metatable.is_null() && metatable == self.array;
            let length = match self.rules {
                _ if is_marked => Some(ffi::lua_objlen(l, index)),
                Some(rules) => rules.length(l, index, metatable)?,
                None => Some(ffi::lua_objlen(l, index))
                    .filter(|length| *length > 0 && is_sequence(l, index, *length)),
            };
            if let Some(length) = length {
                self.out.push(b'[');
                for at in 1..=length {
                    if at > 1 {
                        self.out.push(b',');
                    }
                    ffi::lua_rawgeti_(l, index, at as c_int);
                    self.value(ffi::lua_gettop(l), depth)?;
                    ffi::lua_settop(l, -2);
                }
                self.out.push(b']');
                return Ok(());
            }
            self.out.push(b'{');
            let mut is_first = true;
            ffi::lua_pushnil(l);
            while ffi::lua_next(l, index) != 0 {
                if !core::mem::take(&mut is_first) {
                    self.out.push(b',');
                }
                let top = ffi::lua_gettop(l);
                match ffi::lua_type(l, top - 1) {
                    ffi::LUA_TSTRING => {
                        let mut length = 0;
                        let bytes = ffi::lua_tolstring(l, top - 1, &mut length);
                        self.string(slice::from_raw_parts(bytes.cast(), length))?;
                    }
                    ffi::LUA_TNUMBER => {
                        let from = self.out.len() + 1;
                        self.out.push(b'"');
                        self.number(ffi::lua_tonumber(l, top - 1))?;
                        if self.rules.is_none() && has_key(self.call, index, &self.out[from..]) {
                            return Err(
                                "a table with a number and an equal string as keys cannot be written as JSON",
                            );
                        }
                        self.out.push(b'"');
                    }
                    _ => return Err("keys of JSON objects must be strings or numbers"),
                }
                self.out.push(b':');
                self.value(top, depth)?;
                ffi::lua_settop(l, top - 1);
            }
            self.out.push(b'}');
            Ok(())
        }
    }
}

/// Whether the table at `index` has the text as a key.
///
/// # Safety
/// There is a table at `index`, and the stack has room for a value.
unsafe fn has_key(call: Call, index: c_int, text: &[u8]) -> bool {
    call.push_bytes(text);
    // SAFETY: the caller guarantees the table. A raw access runs no metamethod.
    unsafe {
        ffi::lua_rawget(call.l, index);
        let is_there = ffi::lua_type(call.l, -1) != ffi::LUA_TNIL;
        ffi::lua_settop(call.l, -2);
        is_there
    }
}

/// Whether a byte ends the part of a string that is copied as it is: a quote, a backslash or a control character.
fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// The place of the first byte for which `is_wanted`. Checks many bytes at once: the compiler turns a loop without a branch
/// into vector instructions.
fn position(bytes: &[u8], is_wanted: impl Fn(u8) -> bool) -> Option<usize> {
    let mut at = 0;
    for chunk in bytes.chunks_exact(SCAN_BYTES) {
        if chunk.iter().fold(false, |found, byte| found | is_wanted(*byte)) {
            break;
        }
        at += SCAN_BYTES;
    }
    Some(at + bytes[at..].iter().position(|byte| is_wanted(*byte))?)
}

/// Whether the keys of the table are exactly 1..length.
///
/// # Safety
/// There is a table at `index`, and the stack has room for two values.
pub(super) unsafe fn is_sequence(l: *mut ffi::lua_State, index: c_int, length: usize) -> bool {
    // SAFETY: the caller guarantees the table. Only the types and values of keys are read, so no key is converted.
    unsafe {
        // Keys may be in the hash part in any order: count them.
        let mut count = 0;
        ffi::lua_pushnil(l);
        while ffi::lua_next(l, index) != 0 {
            ffi::lua_settop(l, -2);
            let is_index = ffi::lua_type(l, -1) == ffi::LUA_TNUMBER && {
                let key = ffi::lua_tonumber(l, -1);
                key >= 1.0 && key <= length as f64 && key.trunc() == key
            };
            count += 1;
            if !is_index || count > length {
                ffi::lua_settop(l, -2);
                return false;
            }
        }
        count == length
    }
}

/// Pushes the value of a text. Arrays get the metatable of arrays, unless `is_plain`.
pub(super) fn decode(
    call: Call,
    text: &[u8],
    is_plain: bool,
    depth_max: usize,
) -> Result<(), (&'static str, usize)> {
    // SAFETY: the state is live during the call, and the stack of a native function has room.
    let array = unsafe {
        ffi::lua_getfield_(call.l, ffi::LUA_REGISTRYINDEX, ARRAY.as_ptr());
        ffi::lua_gettop(call.l)
    };
    let array = (!is_plain).then_some(array);
    let mut reader = Reader { call, text, at: 0, values: 0, array, depth_max };
    let result = reader.whole();
    result.map_err(|what| (what, reader.at))
}

/// Reads one text.
struct Reader<'t> {
    /// The call whose stack receives the value.
    call: Call,
    /// The text.
    text: &'t [u8],
    /// The next byte.
    at: usize,
    /// Values read.
    values: u32,
    /// The index of the metatable of arrays on the stack.
    array: Option<c_int>,
    /// Maximum depth of nested arrays and objects.
    depth_max: usize,
}

impl Reader<'_> {
    fn whole(&mut self) -> Result<(), &'static str> {
        self.skip_space();
        self.value(0)?;
        self.skip_space();
        match self.at == self.text.len() {
            true => Ok(()),
            false => Err("text after the value"),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), &'static str> {
        self.values += 1;
        if self.values.is_multiple_of(BUDGET_EVERY)
            && self.call.guard().spend(u64::from(BUDGET_EVERY))
        {
            return Err("the callback exceeds its budget");
        }
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true", |call| call.push_boolean(true)),
            Some(b'f') => self.word(b"false", |call| call.push_boolean(false)),
            // SAFETY: the state is live and the stack has room: `object` and `array` reserve it.
            Some(b'n') => self.word(b"null", |call| unsafe { push_null(call.l) }),
            Some(_) => Err("not a JSON value"),
            None => Err("the text ends too early"),
        }
    }

    fn word(&mut self, word: &[u8], push: impl FnOnce(Call)) -> Result<(), &'static str> {
        if !self.text[self.at..].starts_with(word) {
            return Err("not a JSON value");
        }
        self.at += word.len();
        push(self.call);
        Ok(())
    }

    fn number(&mut self) -> Result<(), &'static str> {
        let rest = &self.text[self.at..];
        let mut at = usize::from(rest[0] == b'-');
        let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let whole = digits(at);
        if whole == 0 || (whole > 1 && rest[at] == b'0') {
            return Err("not a JSON number");
        }
        at += whole;
        if whole < 16 && !matches!(rest.get(at), Some(b'.' | b'e' | b'E')) {
            let value =
                rest[at - whole..at].iter().fold(0_i64, |n, b| n * 10 + i64::from(b - b'0'));
            self.at += at;
            self.call.push_number(if rest[0] == b'-' { -(value as f64) } else { value as f64 });
            return Ok(());
        }
        if rest.get(at) == Some(&b'.') {
            let count = digits(at + 1);
            if count == 0 {
                return Err("not a JSON number");
            }
            at += 1 + count;
        }
        if matches!(rest.get(at), Some(b'e' | b'E')) {
            at += 1;
            if matches!(rest.get(at), Some(b'+' | b'-')) {
                at += 1;
            }
            let count = digits(at);
            if count == 0 {
                return Err("not a JSON number");
            }
            at += count;
        }
        let text = core::str::from_utf8(&rest[..at]).map_err(|_| "not a JSON number")?;
        self.call.push_number(text.parse().map_err(|_| "not a JSON number")?);
        self.at += at;
        Ok(())
    }

    /// Reads a string and pushes it.
    fn string(&mut self) -> Result<(), &'static str> {
        self.at += 1;
        let mut unescaped = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(length) = position(rest, is_special) else {
                self.at = self.text.len();
                return Err("the string is not closed");
            };
            let plain = &rest[..length];
            self.at += length;
            match rest[length] {
                b'"' => {
                    self.at += 1;
                    if unescaped.is_empty() {
                        self.call.push_bytes(plain);
                    } else {
                        unescaped.extend_from_slice(plain);
                        self.call.push_bytes(&unescaped);
                    }
                    return Ok(());
                }
                b'\\' => {
                    unescaped.extend_from_slice(plain);
                    self.at += 1;
                    self.escape(&mut unescaped)?;
                }
                _ => return Err("a control character inside a string must be escaped"),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), &'static str> {
        let Some(byte) = self.peek() else { return Err("the string is not closed") };
        self.at += 1;
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let first = self.hex4()?;
                let code = match first {
                    0xd800..=0xdbff if self.text[self.at..].starts_with(b"\\u") => {
                        self.at += 2;
                        match self.hex4()? {
                            low @ 0xdc00..=0xdfff => {
                                0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00)
                            }
                            _ => return Err("a surrogate without the other half of its pair"),
                        }
                    }
                    code => code,
                };
                let Some(character) = char::from_u32(code) else {
                    return Err("a surrogate without the other half of its pair");
                };
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err("unknown escape in a JSON string"),
        };
        out.push(plain);
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, &'static str> {
        let digits = self.text.get(self.at..self.at + 4).and_then(|d| core::str::from_utf8(d).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        code.ok_or("\\u needs four hexadecimal digits")
    }

    fn begin(&mut self, depth: usize) -> Result<(), &'static str> {
        if depth > self.depth_max {
            return Err(match self.depth_max {
                DEPTH_MAX => "the text is nested deeper than 100 levels",
                _ => "the text is nested deeper than decode_max_depth allows",
            });
        }
        // For the collected values, a pair that is set, and an error.
        if !self.call.reserve(COLLECTED_MAX + 8) {
            return Err("the text is nested too deeply");
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    /// Skips the comma before the next element, or the end. Returns whether an element follows.
    fn follows(&mut self, end: u8, missing: &'static str) -> Result<bool, &'static str> {
        self.skip_space();
        let next = self.peek();
        if next != Some(b',') && next != Some(end) {
            return Err(missing);
        }
        self.at += 1;
        self.skip_space();
        Ok(next == Some(b','))
    }

    /// The first elements are collected on the stack, so that most tables are created with the size that they need.
    fn array(&mut self, depth: usize) -> Result<(), &'static str> {
        self.begin(depth)?;
        let l = self.call.l;
        let mut follows = self.peek() != Some(b']');
        if !follows {
            self.at += 1;
        }
        // The place of the table.
        self.call.push_nil();
        let mut count = 0;
        while follows && (count as usize) < COLLECTED_MAX {
            self.value(depth)?;
            count += 1;
            follows = self.follows(b']', "a comma or ] is missing")?;
        }
        // SAFETY: the state is live, `begin` reserved room, and `count` elements are on top of the place of the table.
        unsafe {
            ffi::lua_createtable(l, if follows { 2 * count } else { count }, 0);
            if let Some(array) = self.array {
                ffi::lua_pushvalue(l, array);
                ffi::lua_setmetatable(l, -2);
            }
            let table = ffi::lua_gettop(l) - count - 1;
            ffi::lua_replace(l, table);
            for index in (1..=count).rev() {
                ffi::lua_rawseti_(l, table, index);
            }
        }
        while follows {
            self.value(depth)?;
            count += 1;
            // SAFETY: the table is below the element.
            unsafe { ffi::lua_rawseti_(l, -2, count) };
            follows = self.follows(b']', "a comma or ] is missing")?;
        }
        Ok(())
    }

    /// As `array`, for the members of an object.
    fn object(&mut self, depth: usize) -> Result<(), &'static str> {
        self.begin(depth)?;
        let l = self.call.l;
        let mut follows = self.peek() != Some(b'}');
        if !follows {
            self.at += 1;
        }
        self.call.push_nil();
        let mut count = 0;
        while follows && (2 * count as usize) < COLLECTED_MAX {
            follows = self.member(depth)?;
            count += 1;
        }
        // SAFETY: the state is live, `begin` reserved room, and `count` names with their values are on top of the place of the
        // table. Of members with the same name the last one counts, so they are set in their order.
        unsafe {
            ffi::lua_createtable(l, 0, if follows { 2 * count } else { count });
            let table = ffi::lua_gettop(l) - 2 * count - 1;
            ffi::lua_replace(l, table);
            for name in (table + 1..=table + 2 * count).step_by(2) {
                ffi::lua_pushvalue(l, name);
                ffi::lua_pushvalue(l, name + 1);
                ffi::lua_rawset(l, table);
            }
            ffi::lua_settop(l, table);
        }
        while follows {
            follows = self.member(depth)?;
            self.call.set_pair();
        }
        Ok(())
    }

    /// Pushes the name and the value of a member. Returns whether another one follows.
    fn member(&mut self, depth: usize) -> Result<bool, &'static str> {
        if self.peek() != Some(b'"') {
            return Err("the name of a member is missing");
        }
        self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err("a colon is missing");
        }
        self.at += 1;
        self.skip_space();
        self.value(depth)?;
        self.follows(b'}', "a comma or } is missing")
    }
}
