//! Tensor cores: products of matrices of f16, from four files of the corpus. Elements are multiples of 1/64 of at most 1, so
//! that every sum is exact in f32, whatever its order.

use device::Value;

use super::narrow::F16;
use super::rows::unused;
use super::{count, int};
use crate::harness::{
    About, Case, Random, Rig, Shape, as_it_is, assert_close, assert_same, corpus, every,
};

pub(crate) const CASES: &[Case] = &[
    every("hgemm_mma::hgemm_mma", hgemm_mma),
    as_it_is("wmma_gemm::wmma_gemm", wmma_gemm),
    every("triton::matmul", triton_matmul),
    every("triton::flash_fwd", flash_fwd),
];

/// Random elements of a matrix.
fn elements(random: &mut Random, count: usize) -> Vec<f64> {
    let element = |byte: &u8| f64::from(i32::from(byte % 129) - 64) / 64.0;
    random.bytes(count).iter().map(element).collect()
}

fn halves(values: &[f64]) -> Vec<u16> {
    values.iter().map(|&value| F16.bits(value)).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "the sums are exact in f32")]
fn exact(value: f64) -> f32 {
    value as f32
}

/// A * B, where a function gives the elements of B.
fn product(a: &[f64], b: impl Fn(usize, usize) -> f64, [m, n, k]: [usize; 3]) -> Vec<f64> {
    let at = |i: usize| (0..k).map(|x| a[i / n * k + x] * b(x, i % n)).sum();
    (0..m * n).map(at).collect()
}

/// The kernels of the file take A by rows and B by columns.
fn by_columns(rig: &Rig, file: &str, entry: &str, tile: [usize; 2], sizes: &[[usize; 3]]) {
    let program = rig.load(&corpus(file), entry);
    let mut random = Random::new(60);
    for &[m, n, k] in sizes {
        let (a, b) = (elements(&mut random, m * k), elements(&mut random, n * k));
        let mut memory = rig.memory();
        let (left, right) = (memory.place(&halves(&a)), memory.place(&halves(&b)));
        let output = memory.room::<f32>(m * n);
        let values = [
            left.pointer(),
            right.pointer(),
            output.pointer(),
            Value::I32(int(m)),
            Value::I32(int(n)),
            Value::I32(int(k)),
        ];
        let shape = Shape::plane([count(n / tile[1]), count(m / tile[0])], [32, 1]);
        rig.launch(&program, shape, &values, &memory);
        let want = product(&a, |x, column| b[column * k + x], [m, n, k]);
        let want: Vec<f32> = want.into_iter().map(exact).collect();
        assert_same(&memory.read(output), &want, (m, n, k));
    }
}

fn hgemm_mma(rig: &Rig) {
    let sizes = [[16, 8, 16], [32, 24, 48], [64, 64, 128]];
    by_columns(rig, "cuda/hgemm_mma.sm_80", "hgemm_mma", [16, 8], &sizes);
}

fn wmma_gemm(rig: &Rig) {
    let sizes = [[16, 16, 16], [32, 48, 80], [64, 32, 128]];
    by_columns(rig, "cuda/wmma_gemm.sm_80", "wmma_gemm", [16, 16], &sizes);
}

fn triton_matmul(rig: &Rig) {
    let program = rig.load(&corpus("triton/matmul.sm_80"), "matmul");
    let mut random = Random::new(61);
    for [m, n, k] in [[32_usize, 32, 32], [40, 24, 56], [70, 100, 128]] {
        // Rows are as long as Triton assumes for its loads.
        let (wide_k, wide_n) = (k.next_multiple_of(16), n.next_multiple_of(16));
        let (a, b) = (
            elements(&mut random, m * wide_k),
            elements(&mut random, k * wide_n),
        );
        let mut memory = rig.memory();
        let (left, right) = (memory.place(&halves(&a)), memory.place(&halves(&b)));
        let output = memory.place(&vec![0x5A5A_u16; m * wide_n]);
        let [first, second] = unused(&mut memory);
        let sizes = [m, n, k, wide_k, wide_n, wide_n].map(|size| Value::I32(int(size)));
        let mut values = vec![left.pointer(), right.pointer(), output.pointer()];
        values.extend(sizes);
        values.extend([first, second]);
        let grid = [count(m.div_ceil(32)), count(n.div_ceil(32))];
        let shape = Shape::plane(grid, [128, 1]).shared(48 << 10);
        rig.launch(&program, shape, &values, &memory);
        let narrow: Vec<f64> = (0..m * k).map(|i| a[i / k * wide_k + i % k]).collect();
        let product = product(&narrow, |x, column| b[x * wide_n + column], [m, n, k]);
        let want = (0..m * wide_n).map(|i| match (i / wide_n, i % wide_n) {
            (row, column) if column < n => F16.bits(product[row * n + column]),
            _ => 0x5A5A,
        });
        assert_same(&memory.read(output), &want.collect::<Vec<_>>(), (m, n, k));
    }
}

/// Weights are rounded to f16 before they are multiplied, and the result again.
fn flash_fwd(rig: &Rig) {
    const D: usize = 32;
    let program = rig.load(&corpus("triton/flash_fwd.sm_80"), "flash_fwd");
    let mut random = Random::new(62);
    for length in [32, 50, 128] {
        let [q, k, v] = [(); 3].map(|()| elements(&mut random, length * D));
        let mut memory = rig.memory();
        let [first, second, third] = [&q, &k, &v].map(|of| memory.place(&halves(of)));
        let output = memory.room::<u16>(length * D);
        let [scratch, other] = unused(&mut memory);
        let scale = 0.25_f32;
        let values = [
            first.pointer(),
            second.pointer(),
            third.pointer(),
            output.pointer(),
            Value::I32(int(length)),
            Value::F32(scale),
            scratch,
            other,
        ];
        let shape = Shape::line(count(length.div_ceil(32)), 128).shared(48 << 10);
        rig.launch(&program, shape, &values, &memory);
        let mut want = Vec::new();
        for row in q.chunks(D) {
            let dot = |key: &[f64]| row.iter().zip(key).map(|(q, k)| q * k).sum::<f64>();
            let scores: Vec<f64> = k.chunks(D).map(|key| f64::from(scale) * dot(key)).collect();
            let weights: Vec<f64> = scores.iter().map(|score| score.exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..D {
                let weighted = weights.iter().enumerate().map(|(at, w)| w * v[at * D + d]);
                let value = weighted.sum::<f64>() / sum;
                // Half a step for the weights, which are at most 1 in f16, with |v| <= 1, and one for the result.
                let error = F16.step(1.0) + F16.step(value);
                want.push(About { value, error });
            }
        }
        let found: Vec<f32> = memory
            .read(output)
            .into_iter()
            .map(|bits| exact(F16.value(bits)))
            .collect();
        assert_close(&found, &want, length);
    }
}
