//! Fuzz target: a whole exchange, from both sides. In: any bytes. Out: a panic where a promise broke.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_server::fuzz::fuzz_exchange(data));
