//! Fuzz target: a PROXY header, whole and cut. In: any bytes. Out: a panic where a promise broke.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzz::fuzz_proxy_header(data));
