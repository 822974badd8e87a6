//! Fuzz target: alters TLS records in transit. In: any bytes. Out: a panic if a check fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzz::fuzz_records(data));
