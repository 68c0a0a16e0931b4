//! What clang and rustc emit: five files of one and one of the other.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("clang::matmul", matmul),
    every("clang::reduce", reduce),
    every("clang::saxpy", saxpy),
    every("clang::structs", structs),
    every(
        "clang::structs_without_optimisation",
        structs_without_optimisation,
    ),
    every("rust::saxpy", rust_saxpy),
];

fn matmul(rig: &Rig) {
    let program = rig.load(&corpus("clang/matmul.sm_75"), "matmul16");
    let mut random = Random::new(70);
    for n in [16, 48, 80] {
        let (a, b) = (
            random.floats(n * n, -2.0, 2.0),
            random.floats(n * n, -2.0, 2.0),
        );
        let mut memory = rig.memory();
        let (left, right) = (memory.place(&a), memory.place(&b));
        let output = memory.room::<f32>(n * n);
        let values = [
            left.pointer(),
            right.pointer(),
            output.pointer(),
            Value::I32(int(n)),
        ];
        let tiles = count(n / 16);
        rig.launch(
            &program,
            Shape::plane([tiles, tiles], [16, 16]),
            &values,
            &memory,
        );
        let want: Vec<f32> = (0..n * n)
            .map(|i| {
                let (row, column) = (i / n, i % n);
                (0..n).fold(0.0, |sum, k| a[row * n + k].mul_add(b[k * n + column], sum))
            })
            .collect();
        assert_same(&memory.read(output), &want, n);
    }
}

fn reduce(rig: &Rig) {
    let program = rig.load(&corpus("clang/reduce.sm_75"), "reduce");
    let mut random = Random::new(71);
    for (n, blocks, threads) in [(1, 1, 32), (1000, 3, 64), (5000, 4, 1024)] {
        let x = random.integers(n);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.place(&[17_i32]);
        let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
        rig.launch(&program, Shape::line(blocks, threads), &values, &memory);
        let want = x.iter().fold(17, |sum: i32, &x| sum.wrapping_add(x));
        assert_same(&memory.read(output), &[want], (n, blocks, threads));
    }
}

fn run_saxpy(rig: &Rig, file: &str, step: fn(f32, f32, f32) -> f32) {
    let program = rig.load(&corpus(file), "saxpy");
    let mut random = Random::new(72);
    for (n, threads) in [(1, 32), (100, 64), (1000, 96)] {
        let (x, y) = (random.floats(n, -9.0, 9.0), random.floats(n, -9.0, 9.0));
        let mut memory = rig.memory();
        let (input, output) = (memory.place(&x), memory.place(&y));
        let values = [
            Value::F32(1.3),
            input.pointer(),
            output.pointer(),
            Value::I32(int(n)),
        ];
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);
        let want: Vec<f32> = x.iter().zip(&y).map(|(&x, &y)| step(1.3, x, y)).collect();
        assert_same(&memory.read(output), &want, (n, threads));
    }
}

fn saxpy(rig: &Rig) {
    run_saxpy(rig, "clang/saxpy.sm_75", f32::mul_add);
}

/// rustc fuses nothing.
fn rust_saxpy(rig: &Rig) {
    run_saxpy(rig, "rust/saxpy.sm_75", |a, x, y| a * x + y);
}

fn run_structs(rig: &Rig, file: &str) {
    let program = rig.load(&corpus(file), "crosses");
    let mut random = Random::new(73);
    for (n, threads) in [(1, 32), (150, 64)] {
        let (a, b) = (
            random.doubles(3 * n, -5.0, 5.0),
            random.doubles(3 * n, -5.0, 5.0),
        );
        let mut memory = rig.memory();
        let (first, second) = (memory.place(&a), memory.place(&b));
        let output = memory.room::<f64>(3 * n);
        let values = [
            first.pointer(),
            second.pointer(),
            output.pointer(),
            Value::I32(int(n)),
        ];
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);
        let want: Vec<f64> = (0..3 * n)
            .map(|i| {
                let (vector, axis) = (i / 3, i % 3);
                let both = if vector % 2 == 0 { [&a, &b] } else { [&b, &a] };
                let [u, v] = both.map(|of| &of[3 * vector..][..3]);
                let (next, last) = ((axis + 1) % 3, (axis + 2) % 3);
                u[next].mul_add(v[last], -(u[last] * v[next]))
            })
            .collect();
        assert_same(&memory.read(output), &want, (n, threads));
    }
}

fn structs(rig: &Rig) {
    run_structs(rig, "clang/structs.sm_75");
}

fn structs_without_optimisation(rig: &Rig) {
    run_structs(rig, "clang/structs_O0.sm_75");
}
