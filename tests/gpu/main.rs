//! What guests see of CUDA devices, on a GPU and, where that can be played, on a driver that only pretends. Each case is
//! a process of its own; `runner.rs` says how.
//!
//! Without a GPU its cases are ignored by name; with `WASI_CUDA_REQUIRE_GPU=1` they fail.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

mod buffers;
mod compiling;
mod confined;
mod embedder;
mod examples;
mod fake;
mod faults;
mod guests;
mod hostile;
mod limits;
mod loads;
mod memory;
mod placement;
mod rig;
mod runner;
mod scripted;
mod stopping;
mod waiting;

#[path = "../all"]
#[allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its part of the harness"
)]
mod all {
    pub(crate) mod guests;
    pub(crate) mod harness;
}

use std::process::ExitCode;

use all::harness;

fn main() -> ExitCode {
    // A device of the cases compiles in processes that run this binary.
    device::cuda::serve_compiles();
    let cases = [
        buffers::CASES,
        compiling::CASES,
        confined::CASES,
        examples::CASES,
        faults::CASES,
        guests::CASES,
        hostile::CASES,
        limits::CASES,
        loads::CASES,
        memory::CASES,
        placement::CASES,
        scripted::CALLS,
        scripted::OPENING,
        stopping::CASES,
        waiting::CASES,
    ];
    runner::run(&cases.concat())
}
