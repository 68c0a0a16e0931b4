//! Any argv bytes are records or one error: `cargo fuzz run --fuzz-dir tests/fuzz argv`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| abi::oracle::check_decode(bytes));
