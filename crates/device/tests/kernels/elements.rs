//! One element a thread: Triton's kernels, random numbers, clocks, a sparse product, a transform and a product by registers.

use device::Value;

use super::math::{erf, within};
use super::rows::unused;
use super::{count, int};
use crate::harness::{About, Case, Random, Rig, Shape, assert_close, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("fft_radix2::fft_r2", fft_r2),
    every("matmul_reg::matmul_reg", matmul_reg),
    every("rng_pi::mc_pi", mc_pi),
    every("spmv_csr::spmv_csr", spmv_csr),
    every("timers::timers", timers),
    every("triton::add", triton_add),
    every("triton::cumsum", triton_cumsum),
    every("triton::dropout", triton_dropout),
    every("triton::gelu_erf", triton_gelu_erf),
    every("triton::hist_atomic", triton_hist_atomic),
];

/// Ten rounds of Philox 4x32 (Salmon and others, 2011).
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let product = |a: u32, b: u32| {
        let [b0, b1, b2, b3, high @ ..] = (u64::from(a) * u64::from(b)).to_le_bytes();
        (
            u32::from_le_bytes(high),
            u32::from_le_bytes([b0, b1, b2, b3]),
        )
    };
    for _ in 0..10 {
        let (high, low) = product(0xD251_1F53, counter[0]);
        let (other_high, other_low) = product(0xCD9E_8D57, counter[2]);
        counter = [
            other_high ^ counter[1] ^ key[0],
            other_low,
            high ^ counter[3] ^ key[1],
            low,
        ];
        key[0] = key[0].wrapping_add(0x9E37_79B9);
        key[1] = key[1].wrapping_add(0xBB67_AE85);
    }
    counter
}

#[expect(clippy::cast_precision_loss, reason = "rounds as the conversion does")]
fn mc_pi(rig: &Rig) {
    let program = rig.load(&corpus("cuda/rng_pi.sm_75"), "mc_pi");
    for (blocks, threads, per) in [(1, 32, 1_u32), (3, 70, 20)] {
        let mut memory = rig.memory();
        let hits = memory.place(&[5_u64]);
        let seed = 1234;
        let values = [hits.pointer(), Value::U32(seed), Value::U32(per)];
        rig.launch(&program, Shape::line(blocks, threads), &values, &memory);
        let mut want = 5;
        for id in 0..blocks * threads {
            for i in 0..per {
                let point = philox([i, id, 0, 0], [seed, 42]).map(|r| r as f32 * 2_f32.powi(-32));
                for [x, y] in [[point[0], point[1]], [point[2], point[3]]] {
                    want += u64::from(x.mul_add(x, y * y) <= 1.0);
                }
            }
        }
        assert_same(&memory.read(hits), &[want], (blocks, threads, per));
    }
}

fn matmul_reg(rig: &Rig) {
    let program = rig.load(&corpus("cuda/matmul_reg.sm_80"), "matmul_reg");
    let mut random = Random::new(110);
    for [m, n, k] in [[64, 64, 64], [128, 64, 80]] {
        let (a, b) = (
            random.floats(m * k, -2.0, 2.0),
            random.floats(k * n, -2.0, 2.0),
        );
        let mut memory = rig.memory();
        let (left, right) = (memory.place(&a), memory.place(&b));
        let output = memory.room::<f32>(m * n);
        let values = [
            left.pointer(),
            right.pointer(),
            output.pointer(),
            Value::I32(int(m)),
            Value::I32(int(n)),
            Value::I32(int(k)),
        ];
        let shape = Shape::plane([count(n / 64), count(m / 64)], [256, 1]);
        rig.launch(&program, shape, &values, &memory);
        let want: Vec<f32> = (0..m * n)
            .map(|i| {
                let (row, column) = (i / n, i % n);
                (0..k).fold(0.0, |sum, x| a[row * k + x].mul_add(b[x * n + column], sum))
            })
            .collect();
        assert_same(&memory.read(output), &want, (m, n, k));
    }
}

/// A warp for each row: every lane has its sum, then they are added in five steps.
fn spmv_csr(rig: &Rig) {
    let program = rig.load(&corpus("cuda/spmv_csr.sm_80"), "spmv_csr");
    let mut random = Random::new(111);
    for (rows, columns) in [(1, 10), (40, 300)] {
        let mut starts = vec![0_i32];
        let mut at = Vec::new();
        for row in 0..rows {
            for _ in 0..row * 7 % 100 {
                at.push((random.word() % columns).cast_signed());
            }
            starts.push(int(at.len()));
        }
        at.push(0);
        let v = random.floats(at.len(), -2.0, 2.0);
        let x = random.floats(columns as usize, -2.0, 2.0);
        let mut memory = rig.memory();
        let (first, which) = (memory.place(&starts), memory.place(&at));
        let (factors, vector) = (memory.place(&v), memory.place(&x));
        let output = memory.room::<f32>(rows);
        let values = [
            first.pointer(),
            which.pointer(),
            factors.pointer(),
            vector.pointer(),
            output.pointer(),
            Value::I32(int(rows)),
        ];
        let shape = Shape::line(count(rows * 32).div_ceil(96), 96);
        rig.launch(&program, shape, &values, &memory);
        let index = |at: i32| usize::try_from(at).expect("an index");
        let want: Vec<f32> = starts
            .windows(2)
            .map(|ends| {
                let mut sums = [0.0_f32; 32];
                for k in index(ends[0])..index(ends[1]) {
                    let sum = &mut sums[(k - index(ends[0])) % 32];
                    *sum = v[k].mul_add(x[index(at[k])], *sum);
                }
                for step in [16, 8, 4, 2, 1] {
                    for lane in 0..step {
                        sums[lane] += sums[lane + step];
                    }
                }
                sums[0]
            })
            .collect();
        assert_same(&memory.read(output), &want, (rows, columns));
    }
}

/// Only what lies between two threads of a warp is the same everywhere.
fn timers(rig: &Rig) {
    let program = rig.load(&corpus("cuda/timers.sm_75"), "timers");
    let mut memory = rig.memory();
    let (times, ids) = (memory.room::<u64>(96), memory.room::<u32>(96));
    rig.launch(
        &program,
        Shape::line(1, 96),
        &[times.pointer(), ids.pointer()],
        &memory,
    );
    for warp in memory.read(ids).chunks(32) {
        for (lane, id) in warp.iter().enumerate() {
            assert_eq!(id ^ warp[0], (1 << lane) - 1);
        }
    }
    assert!(!memory.is_unwritten(times));
}

/// Of a transform of complex numbers the sine and cosine are approximate.
fn fft_r2(rig: &Rig) {
    let program = rig.load(&corpus("cuda/fft_radix2.sm_75"), "fft_r2");
    let mut random = Random::new(112);
    for (log, transforms, direction) in [(1, 1, -1.0_f32), (6, 3, 1.0), (9, 2, -1.0)] {
        let n = 1_usize << log;
        let data = random.floats(2 * n * transforms, -1.0, 1.0);
        let mut memory = rig.memory();
        let place = memory.place(&data);
        let values = [place.pointer(), Value::I32(log), Value::F32(direction)];
        let shape = Shape::line(count(transforms), count(n / 2)).shared(count(8 * n));
        rig.launch(&program, shape, &values, &memory);
        let mut want = Vec::new();
        for points in data.chunks(2 * n) {
            let size: f64 = points.iter().map(|x| f64::from(x.abs())).sum();
            for k in 0..n {
                let (mut real, mut imaginary) = (0.0, 0.0);
                for (i, point) in points.chunks(2).enumerate() {
                    let turn = std::f64::consts::TAU * ((i * k % n) as f64) / n as f64;
                    let (sin, cos) = (f64::from(direction) * turn).sin_cos();
                    let [x, y] = [point[0], point[1]].map(f64::from);
                    real += x * cos - y * sin;
                    imaginary += x * sin + y * cos;
                }
                // Each step is off by 2^-20.9 of what goes into it.
                let error = f64::from(log) * 2_f64.powi(-20) * size;
                want.extend([real, imaginary].map(|value| About { value, error }));
            }
        }
        assert_close(&memory.read(place), &want, (log, transforms));
    }
}

fn triton_add(rig: &Rig) {
    let program = rig.load(&corpus("triton/add.sm_80"), "add");
    let mut random = Random::new(113);
    for n in [1, 1000, 2500] {
        let (x, y) = (random.floats(n, -9.0, 9.0), random.floats(n, -9.0, 9.0));
        let mut memory = rig.memory();
        let (first, second) = (memory.place(&x), memory.place(&y));
        let output = memory.room::<f32>(n);
        let [scratch, other] = unused(&mut memory);
        let values = [
            first.pointer(),
            second.pointer(),
            output.pointer(),
            Value::I32(int(n)),
            scratch,
            other,
        ];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(1024), 128),
            &values,
            &memory,
        );
        let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        assert_same(&memory.read(output), &want, n);
    }
}

fn triton_cumsum(rig: &Rig) {
    let program = rig.load(&corpus("triton/cumsum.sm_80"), "cumsum");
    let mut random = Random::new(114);
    for n in [1, 300, 512] {
        let x = random.integers(n);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<i32>(n);
        let [scratch, other] = unused(&mut memory);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(n)),
            scratch,
            other,
        ];
        rig.launch(&program, Shape::line(1, 128).shared(4096), &values, &memory);
        let mut sum = 0_i32;
        let want: Vec<i32> = x
            .iter()
            .map(|&x| {
                sum = sum.wrapping_add(x);
                sum
            })
            .collect();
        assert_same(&memory.read(output), &want, n);
    }
}

#[expect(clippy::cast_precision_loss, reason = "rounds as the conversion does")]
fn triton_dropout(rig: &Rig) {
    let program = rig.load(&corpus("triton/dropout.sm_80"), "dropout");
    let mut random = Random::new(115);
    for (n, p, seed) in [(1, 0.5_f32, 7_i32), (1000, 0.3, 123), (700, 0.9, -5)] {
        let x = random.floats(n, -9.0, 9.0);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<f32>(n);
        let [scratch, other] = unused(&mut memory);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(n)),
            Value::F32(p),
            Value::I32(seed),
            scratch,
            other,
        ];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(256), 128),
            &values,
            &memory,
        );
        let key = [seed.cast_unsigned(), (seed >> 31).cast_unsigned()];
        let want: Vec<About> = x
            .iter()
            .enumerate()
            .map(|(i, &x)| {
                let [word, ..] = philox([count(i), 0, 0, 0], key);
                let word = word.cast_signed();
                let positive = if word < 0 { -word - 1 } else { word };
                let keep = positive as f32 * f32::from_bits(0x2FFF_FFFF) > p;
                let value = f64::from(x) / f64::from(1.0 - p);
                within(if keep { value } else { 0.0 }, 2.0)
            })
            .collect();
        assert_close(&memory.read(output), &want, (n, p, seed));
    }
}

fn triton_gelu_erf(rig: &Rig) {
    let program = rig.load(&corpus("triton/gelu_erf.sm_80"), "gelu_erf");
    let mut random = Random::new(116);
    for n in [1, 1000] {
        let x = random.floats(n, -4.0, 4.0);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<f32>(n);
        let [scratch, other] = unused(&mut memory);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(n)),
            scratch,
            other,
        ];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(256), 128),
            &values,
            &memory,
        );
        let want: Vec<About> = x
            .iter()
            .map(|&x| {
                let x = f64::from(x);
                let value = 0.5 * x * (1.0 + erf(x * f64::from(std::f32::consts::FRAC_1_SQRT_2)));
                // The sum in brackets is off by steps of 1.
                let error = 4.0 * f64::from(f32::EPSILON) * x.abs();
                About { value, error }
            })
            .collect();
        assert_close(&memory.read(output), &want, n);
    }
}

fn triton_hist_atomic(rig: &Rig) {
    let program = rig.load(&corpus("triton/hist_atomic.sm_80"), "hist_atomic");
    let mut random = Random::new(117);
    for n in [1, 1000, 3000] {
        let x = random.integers(n);
        let mut want = vec![2_i32; 256];
        let mut memory = rig.memory();
        let (input, bins) = (memory.place(&x), memory.place(&want));
        let [scratch, other] = unused(&mut memory);
        let values = [
            input.pointer(),
            bins.pointer(),
            Value::I32(int(n)),
            scratch,
            other,
        ];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(256), 128).shared(4096),
            &values,
            &memory,
        );
        for x in x {
            want[(x & 255).cast_unsigned() as usize] += 1;
        }
        assert_same(&memory.read(bins), &want, n);
    }
}
