//! Do two ways to run a kernel agree? Every launch that the bodies of `kernels/` make is made again, on the data as given, on
//! random data and on edges (NaN, infinities, subnormal numbers, zeros of both signs, the largest numbers), by the CPU device
//! and by a peer: the same device with confined texts, and a GPU. What the two wrote is compared bit for bit where PTX fixes
//! it, else in units of the last place with a bound. One row of the table for each entry of each file.
//!
//! Rows are computed in a process of their own, which begins again behind a row that ends it: a GPU that faulted is of no more
//! use to its process.
#![expect(
    clippy::expect_used,
    reason = "a test ends where something is not as it must be"
)]

extern crate wasi_cuda_device as device;

#[path = "agreement/compare.rs"]
mod compare;
#[allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its part of the harness"
)]
mod harness;
#[path = "kernels/mod.rs"]
#[allow(dead_code, reason = "other test binaries use more of the bodies")]
mod kernels;
#[path = "agreement/peer.rs"]
mod peer;
#[path = "agreement/row.rs"]
mod row;
#[path = "agreement/rule.rs"]
mod rule;
#[path = "agreement/vary.rs"]
mod vary;
#[path = "agreement/worker.rs"]
mod worker;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use peer::Peer;

fn main() -> ExitCode {
    // GPUs compile in processes that run this binary.
    device::cuda::serve_compiles();
    if let Some(job) = worker::Job::of_this_process() {
        return job.run();
    }
    let arguments = Arguments::from_args();
    let trials = Peer::ALL.map(|peer| {
        let name = format!("{}::agreement", peer.name());
        match peer.open() {
            Ok(_) => Trial::test(name, move || worker::supervise(peer).map_err(Into::into)),
            Err(absence) => Trial::test(name, move || Err(absence.reason.into()))
                .with_kind("absent")
                .with_ignored_flag(absence.is_allowed),
        }
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}
