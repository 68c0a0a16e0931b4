//! Kernels in the style of widely used libraries', as nvcc compiles them for two targets: sorting, compaction, convolution, a
//! transform.

use device::Value;

use super::models::targets;
use super::{count, int};
use crate::harness::{About, Case, Random, Rig, Shape, assert_close, assert_same, every};

pub(crate) const CASES: &[Case] = &[
    every("nvcc::compact", compact),
    every("nvcc::fft_radix4", fft_radix4),
    every("nvcc::im2col_conv", im2col_conv),
    every("nvcc::radix_sort", radix_sort),
];

fn compact(rig: &Rig) {
    let mut random = Random::new(210);
    for text in targets("compact") {
        let program = rig.load(&text, "compact");
        for (n, limit) in [(1, 0), (1000, 0), (20_000, 1 << 29), (5000, i32::MIN)] {
            let x = random.integers(n);
            let blocks = n.div_ceil(256);
            let mut memory = rig.memory();
            let input = memory.place(&x);
            let output = memory.place(&vec![-7_i32; n]);
            let states = memory.place(&vec![0_u64; blocks]);
            let (next, total) = (memory.place(&[0_u32]), memory.room::<u32>(1));
            let values = [
                input.pointer(),
                output.pointer(),
                states.pointer(),
                next.pointer(),
                total.pointer(),
                Value::I32(limit),
                Value::I32(int(n)),
            ];
            rig.launch(&program, Shape::line(count(blocks), 256), &values, &memory);
            let mut want: Vec<i32> = x.into_iter().filter(|&x| x > limit).collect();
            assert_same(&memory.read(total), &[count(want.len())], (n, limit));
            want.resize(n, -7);
            assert_same(&memory.read(output), &want, (n, limit));
        }
    }
}

/// Sine and cosine of multiples of pi are exact to 2 steps of f32; the third power of a turn is a product of three.
fn fft_radix4(rig: &Rig) {
    let mut random = Random::new(211);
    for text in targets("fft_radix4") {
        let program = rig.load(&text, "fft_radix4");
        for (log, transforms, direction) in [(1, 1, -1.0_f32), (3, 3, 1.0), (5, 1, -1.0)] {
            let n = 4_usize.pow(log);
            let data = random.floats(2 * n * transforms, -1.0, 1.0);
            let mut memory = rig.memory();
            let place = memory.place(&data);
            let values = [place.pointer(), Value::U32(log), Value::F32(direction)];
            let shape = Shape::line(count(transforms), count(n / 4)).shared(count(16 * n));
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
                    let error = f64::from(log) * 16.0 * f64::from(f32::EPSILON) * size;
                    want.extend([real, imaginary].map(|value| About { value, error }));
                }
            }
            assert_close(&memory.read(place), &want, (log, transforms));
        }
    }
}

/// A picture of `channels` times `h` times `w`, and `filters` of `size` times `size`.
struct Convolution {
    channels: usize,
    h: usize,
    w: usize,
    filters: usize,
    size: usize,
    pad: usize,
    stride: usize,
}

fn im2col_conv(rig: &Rig) {
    let mut random = Random::new(212);
    for text in targets("im2col_conv") {
        let (columns, product) = (rig.load(&text, "im2col"), rig.load(&text, "gemm_bias_relu"));
        for [channels, h, w, filters, size, pad, stride] in [
            [1, 5, 5, 1, 3, 0, 1],
            [3, 20, 17, 8, 3, 1, 1],
            [4, 16, 30, 20, 5, 2, 2],
        ] {
            let of = Convolution {
                channels,
                h,
                w,
                filters,
                size,
                pad,
                stride,
            };
            let (oh, ow) = (
                (h + 2 * pad - size) / stride + 1,
                (w + 2 * pad - size) / stride + 1,
            );
            let depth = channels * size * size;
            let picture = random.floats(channels * h * w, -2.0, 2.0);
            let weights = random.floats(filters * depth, -1.0, 1.0);
            let bias = random.floats(filters, -1.0, 1.0);
            let mut memory = rig.memory();
            let input = memory.place(&picture);
            let laid_out = memory.room::<f32>(depth * oh * ow);
            let (factors, start) = (memory.place(&weights), memory.place(&bias));
            let output = memory.room::<f32>(filters * oh * ow);
            let mut values = vec![input.pointer(), laid_out.pointer()];
            let sizes = [channels, h, w, size, pad, stride, oh, ow];
            values.extend(sizes.map(|size| Value::I32(int(size))));
            let shape = Shape::line(count(channels * oh * ow).div_ceil(128), 128);
            rig.launch(&columns, shape, &values, &memory);
            let mut values = vec![
                factors.pointer(),
                laid_out.pointer(),
                start.pointer(),
                output.pointer(),
            ];
            values.extend([filters, oh * ow, depth].map(|size| Value::I32(int(size))));
            let grid = [count((oh * ow).div_ceil(16)), count(filters.div_ceil(16))];
            rig.launch(&product, Shape::plane(grid, [16, 16]), &values, &memory);
            let want = of.direct(&picture, &weights, &bias, [oh, ow]);
            assert_same(&memory.read(output), &want, sizes);
        }
    }
}

impl Convolution {
    /// The sums in the order in which the product adds them up.
    fn direct(
        &self,
        picture: &[f32],
        weights: &[f32],
        bias: &[f32],
        [oh, ow]: [usize; 2],
    ) -> Vec<f32> {
        let (channels, size) = (self.channels, self.size);
        let pixel = |channel: usize, y: usize, x: usize| {
            let (y, x) = (y.checked_sub(self.pad), x.checked_sub(self.pad));
            match (y.filter(|&y| y < self.h), x.filter(|&x| x < self.w)) {
                (Some(y), Some(x)) => picture[(channel * self.h + y) * self.w + x],
                _ => 0.0,
            }
        };
        let mut out = Vec::new();
        for filter in 0..self.filters {
            for at in 0..oh * ow {
                let (y, x) = (at / ow * self.stride, at % ow * self.stride);
                let mut sum = bias[filter];
                for tap in 0..channels * size * size {
                    let (channel, within) = (tap / (size * size), tap % (size * size));
                    let value = pixel(channel, y + within / size, x + within % size);
                    sum = weights[filter * channels * size * size + tap].mul_add(value, sum);
                }
                out.push(sum.max(0.0));
            }
        }
        out
    }
}

/// Eight passes of four bits sort keys with their values, equal ones in the order in which they were.
fn radix_sort(rig: &Rig) {
    let mut random = Random::new(213);
    for text in targets("radix_sort") {
        let [counter, scanner, mover] =
            ["radix_count", "radix_scan", "radix_scatter"].map(|entry| rig.load(&text, entry));
        for n in [1, 300, 5000] {
            let mut keys = random.words(n);
            keys.iter_mut().step_by(3).for_each(|key| *key &= 0xF0F);
            let order: Vec<u32> = (0..count(n)).collect();
            let blocks = n.div_ceil(256);
            let mut memory = rig.memory();
            let mut from = [memory.place(&keys), memory.place(&order)];
            let mut to = [memory.room::<u32>(n), memory.room::<u32>(n)];
            let counts = memory.room::<u32>(16 * blocks);
            let (size, line) = (Value::I32(int(n)), Shape::line(count(blocks), 256));
            for shift in (0..32).step_by(4) {
                let shift = Value::I32(shift);
                let values = [from[0].pointer(), counts.pointer(), size, shift];
                rig.launch(&counter, line, &values, &memory);
                let values = [counts.pointer(), Value::I32(int(16 * blocks))];
                rig.launch(&scanner, Shape::line(1, 256), &values, &memory);
                let values = [
                    from[0].pointer(),
                    from[1].pointer(),
                    counts.pointer(),
                    to[0].pointer(),
                    to[1].pointer(),
                    size,
                    shift,
                ];
                rig.launch(&mover, line, &values, &memory);
                std::mem::swap(&mut from, &mut to);
            }
            let mut sorted: Vec<(u32, u32)> = keys.into_iter().zip(order).collect();
            sorted.sort_unstable();
            let (want_keys, want_values): (Vec<u32>, Vec<u32>) = sorted.into_iter().unzip();
            assert_same(&memory.read(from[0]), &want_keys, n);
            assert_same(&memory.read(from[1]), &want_values, n);
        }
    }
}
