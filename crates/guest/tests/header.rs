//! `include/wasi_cuda.h`: its tables are those of the ABI (`BLESS=1` rewrites them), C and C++ compilers take it without a
//! warning, its arguments are the ABI's bytes, and mistakes with them do not compile.
#![expect(
    clippy::unwrap_used,
    reason = "a file, a compiler or a process that is not there fails the test"
)]

#[path = "header/compile.rs"]
mod compile;
#[path = "header/render.rs"]
mod render;
