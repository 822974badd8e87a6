//! Fuzz target: calls functions of the Lua API with wrong arguments. In: any bytes. Out: a panic if a check fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_lua::fuzz::fuzz_lua_api(data));
