//! Any text is refused or confined: `cargo fuzz run --fuzz-dir tests/fuzz ptx_verify`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| drop(ptx::oracle::check_confined(text)));
