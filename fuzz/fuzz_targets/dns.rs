//! Fuzz target: decodes answers of name servers. In: any bytes. Out: a panic if a check fails.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_wire::fuzz::fuzz_dns(data));
