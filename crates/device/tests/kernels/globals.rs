//! Variables of a module, with initial values, one of them the address of another.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("globals::globals_rw", globals_rw)];

const TABLE: [f32; 8] = [0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// The counter that is added to each output changes only with bytes that end in two ones, which the first
/// launch does not have; the launches after it have one such byte each.
fn globals_rw(rig: &Rig) {
    let program = rig.load(&corpus("cuda/globals.sm_75"), "globals_rw");
    let mut random = Random::new(24);
    // Where kernels are confined, the variables are in the memory that a launch is given.
    let mut memory = rig.memory();
    let mut launch = |bytes: &[u8], counter: f32| {
        let n = bytes.len();
        let input = memory.place(bytes);
        let output = memory.room::<f32>(n);
        let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
        let shape = Shape::line(count(n).div_ceil(48), 48);
        rig.launch(&program, shape, &values, &memory);
        let want: Vec<f32> = bytes
            .iter()
            .map(|byte| TABLE[usize::from(byte & 7)] + counter)
            .collect();
        assert_same(&memory.read(output), &want, counter);
    };
    let bytes = random.bytes(500);
    let others: Vec<u8> = bytes.into_iter().filter(|byte| byte & 3 != 3).collect();
    launch(&others, 4.0);
    launch(&[0x0F], 5.0);
    launch(&[0xF3], 6.0);
    launch(&others, 6.0);
}
