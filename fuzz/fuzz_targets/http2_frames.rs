//! Fuzz target: the frames of a hostile peer, whole and in pieces. In: any bytes. Out: a panic if a check fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzz::fuzz_http2_frames(data));
