//! Softmax of rows, one block a row.
//!
//! `ex2.approx.f32` has an error of at most 2 ulp (PTX ISA), so results are compared with `f64`. In units of
//! u = 2^-24: the exponent x - m is off by |x - m| for its rounding and twice that for the product with
//! log2(e), the approximation by 4; the sum adds one for each addition in a row, reciprocal and product one each.

use device::Value;

use super::{count, int};
use crate::harness::{About, Case, Random, Rig, Shape, assert_close, corpus, every};

pub(crate) const CASES: &[Case] = &[every("softmax::sizes", sizes)];

const EX2_ERROR: f64 = 4.0;
const WARP_STEPS: usize = 5;
const LANES: usize = 32;

fn softmax(row: &[f32], threads: usize) -> Vec<About> {
    let unit = f64::from(f32::EPSILON) / 2.0;
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponents: Vec<f64> = row
        .iter()
        .map(|&x| f64::from(x) - f64::from(most))
        .collect();
    let sum: f64 = exponents.iter().map(|x| x.exp()).sum();
    let least = exponents.iter().copied().fold(0.0, f64::min);
    let additions = row.len().div_ceil(threads) + WARP_STEPS + threads / LANES;
    exponents
        .iter()
        .map(|exponent| {
            let value = exponent.exp() / sum;
            let exponentials = 3.0 * (exponent.abs() + least.abs()) + 2.0 * EX2_ERROR;
            let error = value * unit * (exponentials + additions as f64 + 2.0);
            About { value, error }
        })
        .collect()
}

fn sizes(rig: &Rig) {
    let program = rig.load(&corpus("cuda/softmax.sm_80"), "softmax");
    let mut random = Random::new(13);
    for (rows, columns, threads) in [
        (1, 1, 32),
        (2, 32, 32),
        (3, 33, 64),
        (2, 1000, 128),
        (4, 257, 256),
        (1, 2000, 1024),
    ] {
        let data = random.floats(rows * columns, -8.0, 8.0);
        let mut memory = rig.memory();
        let input = memory.place(&data);
        let output = memory.room::<f32>(data.len());
        let values = [input.pointer(), output.pointer(), Value::I32(int(columns))];
        let shape = Shape::line(count(rows), count(threads));
        rig.launch(&program, shape, &values, &memory);
        let want: Vec<About> = data
            .chunks(columns)
            .flat_map(|row| softmax(row, threads))
            .collect();
        assert_close(&memory.read(output), &want, (rows, columns, threads));
    }
}
