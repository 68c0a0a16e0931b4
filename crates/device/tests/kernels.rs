//! Does every backend compute what the kernels of `fixtures/` say? Each body runs on every backend and
//! compares with plain Rust: bit for bit where PTX fixes the result, else within a stated error.
#![expect(
    clippy::expect_used,
    reason = "a test ends where something is not as it must be"
)]

extern crate wasi_cuda_device as device;

#[allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its part of the harness"
)]
mod harness;
#[path = "kernels/mod.rs"]
mod kernels;

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::run(&kernels::cases())
}
