//! JSON as lua-cjson of OpenResty writes it, for the layer `ngx`: which tables are arrays, how numbers look, what is escaped.
//! In: a value and the settings of the module `cjson`. Out: a text, or nil and a text.
//! Never: raises a Lua error itself.
//! Limits: those of `json.rs`; no more levels than `encode_max_depth` and `decode_max_depth`.

use core::ffi::{CStr, c_int, c_void};

use mlua_sys::lua51 as ffi;

use super::call::Call;
use super::json;

/// The functions by name.
pub(super) static ALL: &[(&CStr, ffi::lua_CFunction)] =
    &[(c"cjson_encode", cjson_encode), (c"cjson_decode", cjson_decode)];

/// Digits of numbers, of which a double has no more.
const PRECISION_MAX: usize = 17;
/// Bytes of a number: the digits, a sign, a point and an exponent.
const NUMBER_BYTES: usize = 32;

/// What becomes of NaN and infinity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Invalid {
    Refused,
    Written,
    Null,
}

/// The settings of a module `cjson`.
pub(super) struct Rules {
    /// An empty table is an object.
    is_empty_object: bool,
    /// Digits of numbers.
    precision: usize,
    /// Nested arrays and objects.
    pub(super) depth_max: usize,
    /// A table with too many gaps is an object, and not an error.
    converts_sparse: bool,
    /// An array is sparse if its largest index exceeds this multiple of its values; 0: never.
    sparse_ratio: f64,
    /// Up to this index, no array is sparse.
    sparse_safe: f64,
    invalid: Invalid,
    /// A slash is written as `\/`.
    pub(super) escapes_slash: bool,
    /// Empty tables with this metatable are arrays.
    empty_array: *const c_void,
}

impl Rules {
    /// Writes a number, as `%.14g` of C does.
    pub(super) fn number(&self, number: f64, out: &mut Vec<u8>) -> Result<(), &'static str> {
        if !number.is_finite() {
            let text: &[u8] = match self.invalid {
                Invalid::Refused => return Err("Cannot serialise number: must not be NaN or Inf"),
                Invalid::Null => b"null",
                Invalid::Written if number.is_nan() => b"NaN",
                Invalid::Written if number < 0.0 => b"-Infinity",
                Invalid::Written => b"Infinity",
            };
            out.extend_from_slice(text);
            return Ok(());
        }
        if number.trunc() == number
            && number.abs() < 1e9_f64.min(10_f64.powi(self.precision as i32))
            && (number != 0.0 || number.is_sign_positive())
        {
            out.extend_from_slice(itoa::Buffer::new().format(number as i64).as_bytes());
            return Ok(());
        }
        let mut text = [0_u8; NUMBER_BYTES];
        // SAFETY: the buffer has its length, the format takes an int and a double, and the text is no longer than the buffer.
        let length = unsafe {
            let format = c"%.*g".as_ptr();
            libc::snprintf(
                text.as_mut_ptr().cast(),
                text.len(),
                format,
                self.precision as c_int,
                number,
            )
        };
        let digits = text.get(..length as usize).ok_or("writing a number failed")?;
        out.extend_from_slice(digits);
        Ok(())
    }

    /// The length of the array that a table is; `None` if it is an object.
    ///
    /// # Safety
    /// There is a table at `index`, and the stack has room for two values.
    pub(super) unsafe fn length(
        &self,
        l: *mut ffi::lua_State,
        index: c_int,
        metatable: *const c_void,
    ) -> Result<Option<usize>, &'static str> {
        let (mut most, mut count) = (0.0_f64, 0.0);
        // SAFETY: the caller guarantees the table. Only the keys are looked at, so none is converted.
        unsafe {
            ffi::lua_pushnil(l);
            while ffi::lua_next(l, index) != 0 {
                ffi::lua_settop(l, -2);
                let is_index = ffi::lua_type(l, -1) == ffi::LUA_TNUMBER && {
                    let key = ffi::lua_tonumber(l, -1);
                    most = most.max(key);
                    key >= 1.0 && key.trunc() == key
                };
                if !is_index {
                    ffi::lua_settop(l, -2);
                    return Ok(None);
                }
                count += 1.0;
            }
        }
        if count == 0.0 {
            let is_array = !metatable.is_null() && metatable == self.empty_array;
            return Ok((is_array || !self.is_empty_object).then_some(0));
        }
        let is_sparse =
            self.sparse_ratio > 0.0 && most > count * self.sparse_ratio && most > self.sparse_safe;
        // More nulls than a text may have would be written one after the other, without a check of the budget.
        match is_sparse || most > f64::from(c_int::MAX) {
            false => Ok(Some(most as usize)),
            true if self.converts_sparse => Ok(None),
            true => Err("Cannot serialise table: excessively sparse array"),
        }
    }
}

natives! {
    /// (value, is an empty table an object, precision, levels, are sparse arrays converted, ratio, safe length, what becomes of
    /// NaN: 0 error, 1 text, 2 null; are slashes escaped, metatable of empty arrays) -> text; nil and an error.
    fn cjson_encode(call) {
        let most = |index, limit: usize| call.number(index).map_or(limit, |number| (number as usize).min(limit));
        let rules = Rules {
            is_empty_object: call.is_true(2),
            precision: most(3, PRECISION_MAX),
            depth_max: most(4, json::DEPTH_MAX),
            converts_sparse: call.is_true(5),
            sparse_ratio: call.number(6).unwrap_or(0.0),
            sparse_safe: call.number(7).unwrap_or(0.0),
            invalid: match call.id(8) {
                1 => Invalid::Written,
                2 => Invalid::Null,
                _ => Invalid::Refused,
            },
            escapes_slash: call.is_true(9),
            // SAFETY: the state is live during the call; the table is an argument and remains where it is.
            empty_array: unsafe { ffi::lua_topointer(call.l, 10) },
        };
        let mut text = Vec::new();
        match json::encode_by(call, 1, &mut text, Some(&rules)) {
            Ok(()) => {
                call.push_bytes(&text);
                1
            }
            Err(error) => call.fail(error),
        }
    }

    /// (text, are arrays marked, levels) -> value; nil and an error.
    fn cjson_decode(call) {
        let Some(text) = call.bytes(1) else { return call.fail("the text must be a string") };
        let levels = call.number(3).map_or(json::DEPTH_MAX, |levels| (levels as usize).min(json::DEPTH_MAX));
        match json::decode(call, text, !call.is_true(2), levels) {
            Ok(()) => 1,
            Err((what, at)) => call.fail(&format!("{what} (at byte {})", at + 1)),
        }
    }
}
