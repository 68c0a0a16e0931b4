//! Rows that are reduced: attention, layer norms, softmax, quantisation, sorting; by nvcc and Triton. What uses approximate
//! functions is compared with f64.

use device::Value;

use super::math::single;
use super::narrow::F16;
use super::{count, int};
use crate::harness::{
    About, Case, Memory, Random, Rig, Shape, assert_close, assert_same, corpus, every,
};

pub(crate) const CASES: &[Case] = &[
    every("attention::attention64", attention),
    every("layernorm::layernorm", layernorm),
    every("triton::argmax_rows", argmax_rows),
    every("triton::layernorm", triton_layernorm),
    every("triton::quant_i8", quant_i8),
    every("triton::softmax", triton_softmax),
    every("triton::softmax_of_halves", triton_softmax_of_halves),
    every("triton::sort_rows", sort_rows),
];

/// Two pointers that Triton's kernels take and do not use.
pub(crate) fn unused(memory: &mut Memory) -> [Value<'static>; 2] {
    let scratch = memory.place(&[0_u8; 16]);
    [scratch.pointer(), scratch.pointer()]
}

fn attention(rig: &Rig) {
    const D: usize = 64;
    let program = rig.load(&corpus("cuda/attention.sm_80"), "attention64");
    let mut random = Random::new(100);
    for (queries, length) in [(1, 1), (3, 40), (5, 200)] {
        let q = random.floats(queries * D, -1.0, 1.0);
        let [k, v] = [(); 2].map(|()| random.floats(length * D, -1.0, 1.0));
        let mut memory = rig.memory();
        let inputs = [&q, &k, &v].map(|of| memory.place(of));
        let output = memory.room::<f32>(queries * D);
        let scale = 0.5_f32;
        let mut values: Vec<_> = inputs.iter().map(|of| of.pointer()).collect();
        values.extend([output.pointer(), Value::I32(int(length)), Value::F32(scale)]);
        rig.launch(&program, Shape::line(count(queries), 64), &values, &memory);
        let mut want = Vec::new();
        for row in q.chunks(D) {
            let score = |key: &[f32]| {
                let products = row
                    .iter()
                    .zip(key)
                    .map(|(q, k)| f64::from(*q) * f64::from(*k));
                products.sum::<f64>() * f64::from(scale)
            };
            let weights: Vec<f64> = k.chunks(D).map(|key| score(key).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..D {
                let terms = weights
                    .iter()
                    .enumerate()
                    .map(|(at, w)| w * f64::from(v[at * D + d]));
                let value = terms.sum::<f64>() / sum;
                // Scores of at most 32 are off by some steps, and so weights; each row rescales what was summed.
                let error = f64::from(f32::EPSILON) * (64.0 + 4.0 * length as f64);
                want.push(About { value, error });
            }
        }
        assert_close(&memory.read(output), &want, (queries, length));
    }
}

/// A layer norm of a row in f64, and how large its terms are.
fn normed(row: &[f64], g: &[f32], b: &[f32], eps: f32) -> Vec<(f64, f64)> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (variance + f64::from(eps)).sqrt();
    let size = row.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    row.iter()
        .zip(g.iter().zip(b))
        .map(|(x, (&g, &b))| {
            let [g, b] = [g, b].map(f64::from);
            let value = (x - mean) * scale * g + b;
            (
                value,
                size.powi(2) * scale.powi(3) * (size + 1.0) * g.abs() + b.abs(),
            )
        })
        .collect()
}

fn layernorm(rig: &Rig) {
    let program = rig.load(&corpus("cuda/layernorm.sm_80"), "layernorm");
    let mut random = Random::new(101);
    for (rows, columns, threads) in [(1, 32, 32), (3, 300, 128), (2, 1000, 1024)] {
        let x = random.floats(rows * columns, -2.0, 2.0);
        let [g, b] = [(); 2].map(|()| random.floats(columns, -1.5, 1.5));
        let mut memory = rig.memory();
        let inputs = [&x, &g, &b].map(|of| memory.place(of));
        let output = memory.room::<f32>(x.len());
        let mut values: Vec<_> = inputs.iter().map(|of| of.pointer()).collect();
        let eps = 1e-5_f32;
        values.extend([output.pointer(), Value::I32(int(columns)), Value::F32(eps)]);
        rig.launch(
            &program,
            Shape::line(count(rows), threads),
            &values,
            &memory,
        );
        let mut want = Vec::new();
        for row in x.chunks(columns) {
            let row: Vec<f64> = row.iter().map(|&x| x.into()).collect();
            want.extend(normed(&row, &g, &b, eps).into_iter().map(|(value, size)| {
                // The variance is a difference of sums: it is off by steps of the squares.
                let error = f64::from(f32::EPSILON) * 32.0 * size;
                About { value, error }
            }));
        }
        assert_close(&memory.read(output), &want, (rows, columns, threads));
    }
}

fn triton_layernorm(rig: &Rig) {
    let program = rig.load(&corpus("triton/layernorm.sm_80"), "layernorm");
    let mut random = Random::new(102);
    for (rows, columns) in [(1, 512), (3, 300)] {
        let stride = 512;
        let bits: Vec<u16> = random
            .floats(rows * stride, -2.0, 2.0)
            .iter()
            .map(|&x| F16.bits(x.into()))
            .collect();
        let [g, b] = [(); 2].map(|()| random.floats(columns, -1.5, 1.5));
        let mut memory = rig.memory();
        let input = memory.place(&bits);
        let (weights, offsets) = (memory.place(&g), memory.place(&b));
        let output = memory.place(&vec![0_u16; bits.len()]);
        let [first, second] = unused(&mut memory);
        let eps = 1e-5_f32;
        let values = [
            input.pointer(),
            weights.pointer(),
            offsets.pointer(),
            output.pointer(),
            Value::I32(int(stride)),
            Value::I32(int(columns)),
            Value::F32(eps),
            first,
            second,
        ];
        let shape = Shape::line(count(rows), 128).shared(4096);
        rig.launch(&program, shape, &values, &memory);
        let found = memory.read(output);
        for (row, found) in bits.chunks(stride).zip(found.chunks(stride)) {
            let row: Vec<f64> = row[..columns].iter().map(|&bits| F16.value(bits)).collect();
            let want: Vec<About> = normed(&row, &g, &b, eps)
                .into_iter()
                .map(|(value, size)| {
                    let error = 0.5 * F16.step(value) + f64::from(f32::EPSILON) * 32.0 * size;
                    About { value, error }
                })
                .collect();
            let numbers: Vec<f32> = found.iter().map(|&bits| single(F16.value(bits))).collect();
            assert_close(&numbers[..columns], &want, (rows, columns));
            assert!(found[columns..].iter().all(|&bits| bits == 0));
        }
    }
}

fn argmax_rows(rig: &Rig) {
    let program = rig.load(&corpus("triton/argmax_rows.sm_80"), "argmax_rows");
    let mut random = Random::new(103);
    for (rows, columns) in [(1, 1), (4, 300), (3, 512)] {
        let mut x = random.floats(rows * columns, -9.0, 9.0);
        // Of equal ones the first is meant.
        for row in x.chunks_mut(columns).skip(1) {
            row[columns / 3] = 10.0;
            row[columns / 2] = 10.0;
        }
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<i32>(rows);
        let [first, second] = unused(&mut memory);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(columns)),
            first,
            second,
        ];
        let shape = Shape::line(count(rows), 128).shared(4096);
        rig.launch(&program, shape, &values, &memory);
        let largest = |row: &[f32]| {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter().position(|&x| x == most).map(int)
        };
        let want: Vec<i32> = x.chunks(columns).filter_map(largest).collect();
        assert_same(&memory.read(output), &want, (rows, columns));
    }
}

/// Where a quotient is half way between two integers, either may be it: division is approximate.
fn quant_i8(rig: &Rig) {
    let program = rig.load(&corpus("triton/quant_i8.sm_80"), "quant_i8");
    let mut random = Random::new(104);
    for (rows, columns) in [(1, 512), (3, 300)] {
        let x = random.floats(rows * columns, -9.0, 9.0);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let (narrow, scales) = (memory.room::<u8>(x.len()), memory.room::<f32>(rows));
        let [first, second] = unused(&mut memory);
        let values = [
            input.pointer(),
            narrow.pointer(),
            scales.pointer(),
            Value::I32(int(columns)),
            first,
            second,
        ];
        let shape = Shape::line(count(rows), 128).shared(4096);
        rig.launch(&program, shape, &values, &memory);
        let scales = memory.read(scales);
        let narrow = memory.read(narrow);
        for ((row, found), scale) in x.chunks(columns).zip(narrow.chunks(columns)).zip(scales) {
            let most = row.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            let want = f64::from(most) / 127.0;
            assert_close(&[scale], &[super::math::within(want, 3.0)], (rows, columns));
            for (x, found) in row.iter().zip(found) {
                let exact = f64::from(*x) / f64::from(scale);
                let distance = (f64::from(found.cast_signed()) - exact).abs();
                assert!(distance <= 0.5 + 1e-4, "{x} by {scale}: {found}");
            }
        }
    }
}

fn softmax_of(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = row.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

fn triton_softmax(rig: &Rig) {
    let program = rig.load(&corpus("triton/softmax.sm_80"), "softmax");
    let mut random = Random::new(105);
    for (rows, columns) in [(1, 1024), (3, 700), (2, 5)] {
        let x = random.floats(rows * columns, -8.0, 8.0);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<f32>(x.len());
        let [first, second] = unused(&mut memory);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(columns)),
            Value::I32(int(columns)),
            first,
            second,
        ];
        let shape = Shape::line(count(rows), 128).shared(4096);
        rig.launch(&program, shape, &values, &memory);
        let mut want = Vec::new();
        for row in x.chunks(columns) {
            let row: Vec<f64> = row.iter().map(|&x| x.into()).collect();
            // Exponents of at most 16 and their product with log2(e) are rounded, the rest is a few steps.
            want.extend(
                softmax_of(&row)
                    .into_iter()
                    .map(|value| super::math::within(value, 80.0)),
            );
        }
        assert_close(&memory.read(output), &want, (rows, columns));
    }
}

fn triton_softmax_of_halves(rig: &Rig) {
    let program = rig.load(&corpus("triton/softmax.sm_90a"), "softmax");
    let mut random = Random::new(106);
    for (rows, columns) in [(1, 1024), (3, 701)] {
        let stride = 1024;
        let bits: Vec<u16> = random
            .floats(rows * stride, -8.0, 8.0)
            .iter()
            .map(|&x| F16.bits(x.into()))
            .collect();
        let mut memory = rig.memory();
        let input = memory.place(&bits);
        let output = memory.place(&vec![0_u16; bits.len()]);
        let [first, second] = unused(&mut memory);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(stride)),
            Value::I32(int(columns)),
            first,
            second,
        ];
        let shape = Shape::line(count(rows), 256).shared(4096);
        rig.launch(&program, shape, &values, &memory);
        let found = memory.read(output);
        for (row, found) in bits.chunks(stride).zip(found.chunks(stride)) {
            let row: Vec<f64> = row[..columns].iter().map(|&bits| F16.value(bits)).collect();
            let want: Vec<About> = softmax_of(&row)
                .into_iter()
                .map(|value| About {
                    value,
                    error: F16.step(value),
                })
                .collect();
            let numbers: Vec<f32> = found.iter().map(|&bits| single(F16.value(bits))).collect();
            assert_close(&numbers[..columns], &want, (rows, columns));
        }
    }
}

fn sort_rows(rig: &Rig) {
    let program = rig.load(&corpus("triton/sort_rows.sm_80"), "sort_rows");
    for rows in [1, 5] {
        let x = Random::new(107).floats(rows * 128, -9.0, 9.0);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<f32>(x.len());
        let [first, second] = unused(&mut memory);
        let values = [input.pointer(), output.pointer(), first, second];
        let shape = Shape::line(count(rows), 128).shared(4096);
        rig.launch(&program, shape, &values, &memory);
        let mut want = x.clone();
        want.chunks_mut(128)
            .for_each(|row| row.sort_unstable_by(f32::total_cmp));
        assert_same(&memory.read(output), &want, rows);
    }
}
