//! Fuzz target: decodes WebSocket frames, whole and in pieces. In: any bytes. Out: a panic if a check fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzz::fuzz_websocket(data));
