#![no_main]

#[allow(dead_code, reason = "one oracle of several")]
#[path = "../../crates/tl-api/tests/it/oracle.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| oracle::body(data));
