//! Fuzz target: TLS records, changed on the way. In: any bytes. Out: a panic where a promise broke.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzz::fuzz_records(data));
