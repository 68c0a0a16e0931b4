//! Any bytes are a program or one error: `cargo fuzz run --fuzz-dir tests/fuzz ptx_parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|source: &[u8]| drop(ptx::oracle::check_program(source)));
