//! Fuzz target: two connections that talk to each other. In: bytes that choose operations. Out: a panic if a
//! check fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzz::fuzz_http2_connection(data));
