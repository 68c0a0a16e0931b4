//! Kernels in the style of those that language models run on, as nvcc compiles them for two targets.

use device::Value;

use super::math::single;
use super::narrow::{BF16, F16};
use super::{count, int};
use crate::harness::{About, Case, Random, Rig, Shape, assert_close, assert_same, every, kernels};

pub(crate) const CASES: &[Case] = &[
    every("nvcc::int4_matmul", int4_matmul),
    every("nvcc::layernorm_bwd", layernorm_bwd),
    every("nvcc::paged_attention", paged_attention),
    every("nvcc::rmsnorm_rope", rmsnorm_rope),
    every("nvcc::sparse_gather", sparse_gather),
    every("nvcc::topk", topk),
];

/// The text of a kernel for each target.
pub(crate) fn targets(name: &str) -> [String; 2] {
    [80, 90].map(|target| kernels(&format!("nvcc/{name}.sm_{target}")))
}

/// A step of f32 at 1.
const STEP: f64 = f32::EPSILON as f64;

fn int4_matmul(rig: &Rig) {
    let mut random = Random::new(200);
    for text in targets("int4_matmul") {
        let program = rig.load(&text, "int4_matmul");
        for [m, n, k] in [[1, 1, 32], [20, 37, 96], [33, 16, 256]] {
            let x: Vec<u16> = random
                .floats(m * k, -2.0, 2.0)
                .iter()
                .map(|&x| F16.bits(x.into()))
                .collect();
            let weights = random.words(n * k / 8);
            let scales: Vec<u16> = random
                .floats(n * k / 32, 0.01, 0.2)
                .iter()
                .map(|&x| F16.bits(x.into()))
                .collect();
            let mut memory = rig.memory();
            let (input, packed) = (memory.place(&x), memory.place(&weights));
            let factors = memory.place(&scales);
            let output = memory.room::<f32>(m * n);
            let values = [
                input.pointer(),
                packed.pointer(),
                factors.pointer(),
                output.pointer(),
                Value::I32(int(m)),
                Value::I32(int(n)),
                Value::I32(int(k)),
            ];
            let grid = [count(n.div_ceil(16)), count(m.div_ceil(16))];
            rig.launch(&program, Shape::plane(grid, [256, 1]), &values, &memory);
            let weight = |at: usize| {
                let number = weights[at / 8] >> (4 * (at % 8)) & 15;
                let scale = single(F16.value(scales[at / 32]));
                scale * (f32::from(u8::try_from(number).expect("four bits")) - 8.0)
            };
            let want: Vec<f32> = (0..m * n)
                .map(|i| {
                    let (row, column) = (i / n, i % n);
                    (0..k).fold(0.0, |sum, at| {
                        let x = single(F16.value(x[row * k + at]));
                        x.mul_add(weight(column * k + at), sum)
                    })
                })
                .collect();
            assert_same(&memory.read(output), &want, (m, n, k));
        }
    }
}

fn layernorm_bwd(rig: &Rig) {
    let mut random = Random::new(201);
    for text in targets("layernorm_bwd") {
        let program = rig.load(&text, "layernorm_bwd");
        for (rows, columns, threads) in [(1, 32, 32), (5, 300, 128), (3, 1000, 1024)] {
            let [x, dy] = [(); 2].map(|()| random.floats(rows * columns, -2.0, 2.0));
            let gain = random.floats(columns, -1.5, 1.5);
            let mean = random.floats(rows, -0.1, 0.1);
            let rstd = random.floats(rows, 0.5, 1.5);
            let mut memory = rig.memory();
            let inputs = [&x, &gain, &dy, &mean, &rstd].map(|of| memory.place(of));
            let dx = memory.room::<f32>(x.len());
            let sums = [(); 2].map(|()| memory.place(&vec![0.25_f32; columns]));
            let mut values: Vec<_> = inputs.iter().map(|of| of.pointer()).collect();
            values.extend([dx.pointer(), sums[0].pointer(), sums[1].pointer()]);
            values.push(Value::I32(int(columns)));
            rig.launch(
                &program,
                Shape::line(count(rows), threads),
                &values,
                &memory,
            );
            let mut want = Vec::new();
            let (mut dgain, mut dbias) = (vec![0.25_f64; columns], vec![0.25_f64; columns]);
            let doubles = |of: &[f32]| of.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            let gain = doubles(&gain);
            for row in 0..rows {
                let range = row * columns..(row + 1) * columns;
                let (m, r) = (f64::from(mean[row]), f64::from(rstd[row]));
                let normed: Vec<f64> = doubles(&x[range.clone()])
                    .iter()
                    .map(|x| (x - m) * r)
                    .collect();
                let dy = doubles(&dy[range]);
                let scaled: Vec<f64> = dy.iter().zip(&gain).map(|(d, g)| d * g).collect();
                let n = columns as f64;
                let sum = scaled.iter().sum::<f64>() / n;
                let dot = scaled.iter().zip(&normed).map(|(g, x)| g * x).sum::<f64>() / n;
                for i in 0..columns {
                    let value = r * (scaled[i] - sum - normed[i] * dot);
                    // All terms are below 9 r, means are as exact as their terms.
                    let error = 64.0 * STEP * 9.0 * r;
                    want.push(About { value, error });
                    dgain[i] += dy[i] * normed[i];
                    dbias[i] += dy[i];
                }
            }
            let about = |of: Vec<f64>| -> Vec<About> {
                let error = 32.0 * STEP * rows as f64;
                of.into_iter().map(|value| About { value, error }).collect()
            };
            assert_close(&memory.read(dx), &want, (rows, columns));
            assert_close(&memory.read(sums[0]), &about(dgain), (rows, columns));
            assert_close(&memory.read(sums[1]), &about(dbias), (rows, columns));
        }
    }
}

fn paged_attention(rig: &Rig) {
    const D: usize = 64;
    const PAGE: usize = 16;
    let mut random = Random::new(202);
    for text in targets("paged_attention") {
        let program = rig.load(&text, "paged_attention");
        let (heads, lengths, most) = (3, [1_usize, 50, 130], 9);
        let pages = lengths.len() * most;
        let q = random.floats(lengths.len() * heads * D, -1.0, 1.0);
        let cache = |random: &mut Random| -> Vec<u16> {
            let numbers = random.floats(pages * heads * PAGE * D, -1.0, 1.0);
            numbers.iter().map(|&x| F16.bits(x.into())).collect()
        };
        let (keys, values) = (cache(&mut random), cache(&mut random));
        // Every page is somewhere else than its place in the table says.
        let table: Vec<i32> = (0..pages).map(|page| int(page * 11 % pages)).collect();
        let wanted: Vec<i32> = lengths.iter().map(|&length| int(length)).collect();
        let mut memory = rig.memory();
        let query = memory.place(&q);
        let (first, second) = (memory.place(&keys), memory.place(&values));
        let (places, sizes) = (memory.place(&table), memory.place(&wanted));
        let output = memory.room::<f32>(q.len());
        let scale = 0.125_f32;
        let arguments = [
            query.pointer(),
            first.pointer(),
            second.pointer(),
            places.pointer(),
            sizes.pointer(),
            output.pointer(),
            Value::I32(int(heads)),
            Value::I32(int(most)),
            Value::F32(scale),
        ];
        let grid = [count(heads), count(lengths.len())];
        let shape = Shape::plane(grid, [128, 1]).shared(count(most * PAGE * 4));
        rig.launch(&program, shape, &arguments, &memory);
        let mut want = Vec::new();
        for (sequence, &length) in lengths.iter().enumerate() {
            for head in 0..heads {
                let at = |t: usize| {
                    let page = usize::try_from(table[sequence * most + t / PAGE]).expect("a page");
                    ((page * heads + head) * PAGE + t % PAGE) * D
                };
                let of = |cache: &[u16], t: usize, d: usize| F16.value(cache[at(t) + d]);
                let row = &q[(sequence * heads + head) * D..][..D];
                let score = |t: usize| {
                    let products = row
                        .iter()
                        .enumerate()
                        .map(|(d, &q)| f64::from(q) * of(&keys, t, d));
                    (products.sum::<f64>() * f64::from(scale)).exp()
                };
                let weights: Vec<f64> = (0..length).map(score).collect();
                let sum: f64 = weights.iter().sum();
                for d in 0..D {
                    let terms = weights
                        .iter()
                        .enumerate()
                        .map(|(t, w)| w * of(&values, t, d));
                    let value = terms.sum::<f64>() / sum;
                    let error = STEP * (64.0 + length as f64);
                    want.push(About { value, error });
                }
            }
        }
        assert_close(&memory.read(output), &want, "paged attention");
    }
}

fn rmsnorm_rope(rig: &Rig) {
    let mut random = Random::new(203);
    for text in targets("rmsnorm_rope") {
        let program = rig.load(&text, "rmsnorm_rope");
        for (tokens, heads, d) in [(1, 1, 64), (7, 3, 128), (2, 5, 96)] {
            let (rows, half) = (tokens * heads, d / 2);
            let x: Vec<u16> = random
                .floats(rows * d, -3.0, 3.0)
                .iter()
                .map(|&x| BF16.bits(x.into()))
                .collect();
            let gain = random.floats(d, 0.5, 1.5);
            let turns: Vec<f32> = (0..16 * half)
                .flat_map(|i| {
                    let frequency = 10_000_f64.powf(-((i % half) as f64) / half as f64);
                    let (sin, cos) = ((i / half) as f64 * frequency).sin_cos();
                    [single(cos), single(sin)]
                })
                .collect();
            let positions: Vec<i32> = (0..tokens).map(|token| int(token * 5 % 16)).collect();
            let mut memory = rig.memory();
            let (input, factors) = (memory.place(&x), memory.place(&gain));
            let (angles, places) = (memory.place(&turns), memory.place(&positions));
            let output = memory.room::<u16>(x.len());
            let values = [
                input.pointer(),
                factors.pointer(),
                angles.pointer(),
                places.pointer(),
                output.pointer(),
                Value::I32(int(heads)),
                Value::I32(int(rows)),
                Value::I32(int(d)),
                Value::F32(1e-5),
            ];
            rig.launch(
                &program,
                Shape::line(count(rows).div_ceil(4), 128),
                &values,
                &memory,
            );
            let mut want = Vec::new();
            for (row, bits) in x.chunks(d).enumerate() {
                let numbers: Vec<f64> = bits.iter().map(|&bits| BF16.value(bits)).collect();
                let squares = numbers.iter().map(|x| x * x).sum::<f64>() / d as f64;
                let scale = 1.0 / (squares + f64::from(1e-5_f32)).sqrt();
                let normed: Vec<f64> = numbers
                    .iter()
                    .zip(&gain)
                    .map(|(x, &gain)| x * scale * f64::from(gain))
                    .collect();
                let position = usize::try_from(positions[row / heads]).expect("a position");
                want.extend((0..d).map(|i| {
                    let turn = (position * half + i % half) * 2;
                    let [cos, sin] = [turns[turn], turns[turn + 1]].map(f64::from);
                    let (a, b) = (normed[i % half], normed[i % half + half]);
                    let value = if i < half {
                        a * cos - b * sin
                    } else {
                        a * sin + b * cos
                    };
                    let error = 0.5 * BF16.step(value) + 16.0 * STEP * (a.abs() + b.abs());
                    About { value, error }
                }));
            }
            let found: Vec<f32> = memory
                .read(output)
                .into_iter()
                .map(|bits| single(BF16.value(bits)))
                .collect();
            assert_close(&found, &want, (tokens, heads, d));
        }
    }
}

fn sparse_gather(rig: &Rig) {
    let mut random = Random::new(204);
    for text in targets("sparse_gather") {
        let program = rig.load(&text, "sparse_gather");
        for (bags, rows, width) in [(1, 3, 4), (20, 50, 64), (9, 300, 200)] {
            let table = random.floats(rows * width, -2.0, 2.0);
            let mut starts = vec![0_i32];
            let mut indices = Vec::new();
            for bag in 0..bags {
                for _ in 0..bag * 5 % 13 {
                    indices.push((random.word() % count(rows)).cast_signed());
                }
                starts.push(int(indices.len()));
            }
            indices.push(0);
            let weights = random.floats(indices.len(), -1.0, 1.0);
            let mut memory = rig.memory();
            let (source, which) = (memory.place(&table), memory.place(&indices));
            let (factors, ends) = (memory.place(&weights), memory.place(&starts));
            let output = memory.room::<f32>(bags * width);
            let values = [
                source.pointer(),
                which.pointer(),
                factors.pointer(),
                ends.pointer(),
                output.pointer(),
                Value::I32(int(bags)),
                Value::I32(int(width / 4)),
            ];
            rig.launch(
                &program,
                Shape::line(count(bags).div_ceil(8), 256),
                &values,
                &memory,
            );
            let at = |index: i32| usize::try_from(index).expect("an index");
            let mut want = Vec::new();
            for ends in starts.windows(2) {
                want.extend((0..width).map(|column| {
                    (at(ends[0])..at(ends[1])).fold(0.0, |sum, j| {
                        weights[j].mul_add(table[at(indices[j]) * width + column], sum)
                    })
                }));
            }
            assert_same(&memory.read(output), &want, (bags, rows, width));
        }
    }
}

fn topk(rig: &Rig) {
    let mut random = Random::new(205);
    for text in targets("topk") {
        let program = rig.load(&text, "topk");
        for (rows, columns, k) in [(1, 1, 1), (5, 100, 8), (9, 1000, 20), (3, 40, 40)] {
            let mut x = random.floats(rows * columns, -9.0, 9.0);
            // Some that are equal: the first comes first.
            for i in (0..x.len()).step_by(7) {
                x[i] = x[i].round();
            }
            let mut memory = rig.memory();
            let input = memory.place(&x);
            let numbers = memory.room::<f32>(rows * k);
            let indices = memory.room::<i32>(rows * k);
            let values = [
                input.pointer(),
                numbers.pointer(),
                indices.pointer(),
                Value::I32(int(rows)),
                Value::I32(int(columns)),
                Value::I32(int(k)),
            ];
            let shape = Shape::line(count(rows).div_ceil(4), 128).shared(count(4 * 4 * columns));
            rig.launch(&program, shape, &values, &memory);
            let (mut largest, mut places) = (Vec::new(), Vec::new());
            for row in x.chunks(columns) {
                let mut order: Vec<usize> = (0..columns).collect();
                order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
                largest.extend(order[..k].iter().map(|&at| row[at]));
                places.extend(order[..k].iter().map(|&at| int(at)));
            }
            assert_same(&memory.read(numbers), &largest, (rows, columns, k));
            assert_same(&memory.read(indices), &places, (rows, columns, k));
        }
    }
}
