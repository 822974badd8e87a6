//! Fuzz target: runs an exchange with input from both sides. In: any bytes. Out: a panic if a check fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_server::fuzz::fuzz_exchange(data));
