//! Addresses whose space only the run shows: global, shared or local.

use device::Value;

use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("generic_ptr::generic_sum", generic_sum)];

const THREADS: usize = 64;

fn sum(numbers: &[f32]) -> f32 {
    numbers[..8].iter().fold(0_f32, |sum, number| sum + number)
}

fn generic_sum(rig: &Rig) {
    let program = rig.load(&corpus("cuda/generic_ptr.sm_75"), "generic_sum");
    let data = Random::new(25).floats(THREADS, -1.0, 1.0);
    for which in [0, 1, 2] {
        let want: Vec<f32> = (0..THREADS)
            .map(|thread| {
                let factor = thread as f32;
                let local: Vec<f32> = data.iter().map(|number| number * factor).collect();
                let first = if which == 2 { sum(&local) } else { sum(&data) };
                first + sum(&data[thread % 8..])
            })
            .collect();
        let mut memory = rig.memory();
        let input = memory.place(&data);
        let output = memory.room::<f32>(THREADS);
        let values = [input.pointer(), output.pointer(), Value::I32(which)];
        rig.launch(&program, Shape::line(1, 64), &values, &memory);
        assert_same(&memory.read(output), &want, which);
    }
}
