//! What happens when a kernel goes wrong: it ends with a report of what, where and which thread, no byte
//! outside of its memory changes, and the device works as before.
#![expect(
    clippy::expect_used,
    reason = "a test ends where something is not as it must be"
)]

extern crate wasi_cuda_device as device;

#[path = "harness/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its part of the harness"
)]
mod harness;

#[path = "faults/access.rs"]
mod access;
#[path = "faults/control.rs"]
mod control;
#[path = "faults/refusal.rs"]
mod refusal;

use std::process::ExitCode;

use device::{Error, Trap, Value};

use harness::{Random, Rig, Shape, assert_same, corpus};

fn main() -> ExitCode {
    let cases = [access::CASES, control::CASES, refusal::CASES].concat();
    harness::run(&cases)
}

/// The trap that an outcome reports.
fn trap_of(outcome: Result<(), Error>) -> Trap {
    match outcome {
        Err(Error::Trap(trap)) => trap,
        other => panic!("{other:?} instead of a trap"),
    }
}

/// That the device still computes.
fn check_alive(rig: &Rig) {
    let mut random = Random::new(20);
    let (a, b) = (random.floats(100, -1.0, 1.0), random.floats(100, -1.0, 1.0));
    let program = rig.load(&corpus("cuda/vecadd.sm_75"), "vecadd");
    let mut memory = rig.memory();
    let inputs = [memory.place(&a), memory.place(&b)];
    let output = memory.room::<f32>(100);
    let values = [
        inputs[0].pointer(),
        inputs[1].pointer(),
        output.pointer(),
        Value::I32(100),
    ];
    rig.launch(&program, Shape::line(4, 32), &values, &memory);
    let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_same(&memory.read(output), &want, "after a fault");
}
