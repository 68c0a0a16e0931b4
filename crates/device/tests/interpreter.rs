//! Semantics of single instructions, control flow and refusals on the CPU device, by small texts.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it must be"
)]

extern crate wasi_cuda_device as device;

#[path = "interpreter/bench.rs"]
mod bench;
#[path = "interpreter/flow.rs"]
mod flow;
#[path = "interpreter/instructions.rs"]
mod instructions;
#[path = "interpreter/mutants.rs"]
mod mutants;
#[path = "interpreter/proportion.rs"]
mod proportion;
#[path = "interpreter/refusals.rs"]
mod refusals;
#[path = "interpreter/room.rs"]
mod room;
#[path = "interpreter/scheduling.rs"]
mod scheduling;
#[path = "interpreter/sharing.rs"]
mod sharing;
