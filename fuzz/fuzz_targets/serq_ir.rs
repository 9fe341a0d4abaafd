#![no_main]

#[allow(dead_code, reason = "one oracle of several")]
#[path = "../../crates/serq-lang/tests/oracle/mod.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| oracle::json(data));
