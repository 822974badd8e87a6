//! Fuzz target: header blocks of a hostile peer, and their fields encoded again. In: any bytes. Out: a panic if
//! a check fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzz::fuzz_hpack(data));
