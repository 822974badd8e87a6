//! Fuzz target: a client of the client protocol of a push hub. In: any bytes. Out: a panic if a check fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_push::fuzz::fuzz_push_client(data));
