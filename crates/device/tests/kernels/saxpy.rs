//! `y[i] = a * x[i] + y[i]`, fused; one number or four a thread.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("saxpy::scalar", scalar),
    every("saxpy::four_a_thread_and_a_tail", four_a_thread_and_a_tail),
];

fn check(rig: &Rig, entry: &str, cases: &[(usize, u32)], threads_for: impl Fn(u32) -> u32) {
    let program = rig.load(&corpus("cuda/saxpy.sm_80"), entry);
    let mut random = Random::new(2);
    for &(n, threads) in cases {
        let factor = random.floats(1, -3.0, 3.0)[0];
        let x = random.floats(n, -1e2, 1e2);
        let y = random.floats(n, -1e2, 1e2);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.place(&y);
        let shape = Shape::line(threads_for(count(n)).div_ceil(threads), threads);
        let values = [
            Value::F32(factor),
            input.pointer(),
            output.pointer(),
            Value::I32(int(n)),
        ];
        rig.launch(&program, shape, &values, &memory);
        let want: Vec<f32> = x
            .iter()
            .zip(&y)
            .map(|(x, &y)| x.mul_add(factor, y))
            .collect();
        assert_same(&memory.read(output), &want, (n, threads));
    }
}

fn scalar(rig: &Rig) {
    let cases = [(1, 1), (5, 32), (64, 64), (1000, 96), (777, 33)];
    check(rig, "saxpy", &cases, |n| n);
}

fn four_a_thread_and_a_tail(rig: &Rig) {
    let cases = [
        (1, 1),
        (3, 32),
        (4, 32),
        (7, 5),
        (128, 32),
        (1023, 48),
        (1026, 64),
    ];
    check(rig, "saxpy4", &cases, |n| n / 4 + n % 4);
}
