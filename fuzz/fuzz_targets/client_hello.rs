//! Fuzz target: reads the server name of a TLS handshake, whole and in pieces. In: any bytes. Out: a panic if a check
//! fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzz::fuzz_client_hello(data));
