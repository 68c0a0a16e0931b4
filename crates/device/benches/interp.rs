//! How many times longer does the CPU device take for a kernel than plain Rust loops on one core, and how much shorter on all
//! cores than on one? All in one run, over the same data: compare what a group has as ratios.
#![expect(
    clippy::expect_used,
    reason = "a bench ends where something is not as it must be"
)]

extern crate wasi_cuda_device as device;

#[path = "../tests/harness/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the bench uses its part of the harness"
)]
mod harness;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use device::cpu::{Config, CpuDevice};
use device::{LaunchControl, Program, Value};

use harness::{Memory, Random, Rig, Shape, assert_same, corpus};

/// Large to measure, small where a run only shows that the bench works (`cargo test --benches`).
fn size(large: usize, small: usize) -> usize {
    let measures = std::env::args().any(|argument| argument == "--bench");
    let tests = std::env::args().any(|argument| argument == "--test");
    if measures && !tests { large } else { small }
}

fn int(size: usize) -> i32 {
    i32::try_from(size).expect("a small size")
}

fn count(size: usize) -> u32 {
    u32::try_from(size).expect("a small size")
}

/// A kernel on the CPU device: with one thread, and with one for each core.
struct Kernel {
    rigs: [Rig; 2],
    programs: [Arc<dyn Program>; 2],
}

impl Kernel {
    fn load(file: &str, entry: &str) -> Self {
        let rigs = [1, 0].map(|threads| {
            let config = Config {
                threads,
                ..Config::default()
            };
            Rig::new(CpuDevice::new(config).expect("the CPU device"))
        });
        let programs = rigs.each_ref().map(|rig| rig.load(&corpus(file), entry));
        Self { rigs, programs }
    }

    /// Memory for both.
    fn memory(&self) -> Memory {
        self.rigs[1].memory()
    }
}

/// Measures a launch of a kernel and a closure that computes the same.
fn compare(
    criterion: &mut Criterion,
    name: &str,
    kernel: &Kernel,
    mut launch: impl FnMut(&Rig, &Arc<dyn Program>),
    mut native: impl FnMut(),
) {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10);
    let [one, all] = [0, 1].map(|at| (&kernel.rigs[at], &kernel.programs[at]));
    group.bench_function("one core", |bencher| bencher.iter(|| launch(one.0, one.1)));
    group.bench_function("all cores", |bencher| bencher.iter(|| launch(all.0, all.1)));
    group.bench_function("plain rust", |bencher| bencher.iter(&mut native));
    group.finish();
    // What they computed is compared, where a filter had neither run too.
    launch(all.0, all.1);
    native();
}

/// Launches and waits, without the checks of the tests.
fn run(rig: &Rig, program: &Arc<dyn Program>, shape: Shape, values: &[Value<'_>], memory: &Memory) {
    let control = LaunchControl::default();
    let (_launch, completion) = rig
        .start(program, shape, values, Some(memory), control)
        .expect("a launch in order");
    completion.wait().expect("a kernel without faults");
}

fn vecadd(criterion: &mut Criterion) {
    let n = size(1 << 20, 1 << 10);
    let mut random = Random::new(1);
    let (a, b) = (random.floats(n, -1.0, 1.0), random.floats(n, -1.0, 1.0));
    let mut c = vec![0_f32; n];
    let kernel = Kernel::load("cuda/vecadd.sm_75", "vecadd");
    let mut memory = kernel.memory();
    let inputs = [memory.place(&a), memory.place(&b)];
    let output = memory.room::<f32>(n);
    let values = [
        inputs[0].pointer(),
        inputs[1].pointer(),
        output.pointer(),
        Value::I32(int(n)),
    ];
    let shape = Shape::line(count(n).div_ceil(256), 256);
    compare(
        criterion,
        "vecadd",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || {
            for ((c, a), b) in c.iter_mut().zip(black_box(&a)).zip(black_box(&b)) {
                *c = a + b;
            }
            black_box(&c);
        },
    );
    assert_same(&memory.read(output), &c, "vecadd");
}

fn matmul(criterion: &mut Criterion) {
    let n = size(256, 32);
    let mut random = Random::new(2);
    let (a, b) = (
        random.floats(n * n, -1.0, 1.0),
        random.floats(n * n, -1.0, 1.0),
    );
    let mut c = vec![0_f32; n * n];
    let kernel = Kernel::load("cuda/matmul_tiled.sm_80", "matmul_tiled");
    let mut memory = kernel.memory();
    let inputs = [memory.place(&a), memory.place(&b)];
    let output = memory.room::<f32>(n * n);
    let sizes = Value::I32(int(n));
    let values = [
        inputs[0].pointer(),
        inputs[1].pointer(),
        output.pointer(),
        sizes,
        sizes,
        sizes,
    ];
    let blocks = count(n / 16);
    let shape = Shape::plane([blocks, blocks], [16, 16]);
    compare(
        criterion,
        "matmul_tiled",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || multiply(black_box(&a), black_box(&b), &mut c, n),
    );
    assert_near(&memory.read(output), &c, 1e-3, "matmul_tiled");
}

/// C = A * B, a row of C at a time.
fn multiply(a: &[f32], b: &[f32], c: &mut [f32], n: usize) {
    for (row, c) in a.chunks(n).zip(c.chunks_mut(n)) {
        c.fill(0.0);
        for (x, b) in row.iter().zip(b.chunks(n)) {
            for (c, y) in c.iter_mut().zip(b) {
                *c += x * y;
            }
        }
    }
    black_box(c);
}

fn reduce(criterion: &mut Criterion) {
    let n = size(1 << 20, 1 << 12);
    let x = Random::new(3).floats(n, -1.0, 1.0);
    let blocks = 32;
    let mut sum = 0_f32;
    let kernel = Kernel::load("cuda/reduce_shfl.sm_80", "reduce_sum");
    let mut memory = kernel.memory();
    let input = memory.place(&x);
    let output = memory.room::<f32>(blocks);
    let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
    let shape = Shape::line(count(blocks), 256);
    compare(
        criterion,
        "reduce_shfl",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || {
            // As many sums as a vector has lanes and some more: in one sum the order could not be changed.
            let mut sums = [0_f32; 64];
            for chunk in black_box(&x).chunks_exact(64) {
                for (sum, x) in sums.iter_mut().zip(chunk) {
                    *sum += x;
                }
            }
            sum = black_box(sums.iter().sum());
        },
    );
    let found: f32 = memory.read(output).iter().sum();
    assert!((found - sum).abs() < 1.0, "reduce_shfl: {found} and {sum}");
}

fn histogram(criterion: &mut Criterion) {
    let n = size(1 << 22, 1 << 12);
    let data = Random::new(4).bytes(n);
    let mut bins = [0_u32; 256];
    let kernel = Kernel::load("cuda/histogram.sm_75", "histogram256");
    let mut memory = kernel.memory();
    let input = memory.place(&data);
    let output = memory.place(&bins);
    let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
    let shape = Shape::line(64, 256);
    compare(
        criterion,
        "histogram",
        &kernel,
        |rig, program| {
            memory.fill(output, &[0; 256]);
            run(rig, program, shape, &values, &memory);
        },
        || {
            bins.fill(0);
            for &byte in black_box(&data) {
                bins[usize::from(byte)] += 1;
            }
            black_box(&bins);
        },
    );
    assert_same(&memory.read(output), &bins, "histogram");
}

fn mandelbrot(criterion: &mut Criterion) {
    let n = size(512, 32);
    let most = 256;
    let [x0, y0, dx, dy] = [-2.1_f32, -1.25, 2.9 / n as f32, 2.5 / n as f32];
    let mut image = vec![0_u8; n * n];
    let kernel = Kernel::load("cuda/mandelbrot.sm_75", "mandelbrot");
    let mut memory = kernel.memory();
    let output = memory.room::<u8>(n * n);
    let values = [
        output.pointer(),
        Value::I32(int(n)),
        Value::I32(int(n)),
        Value::F32(x0),
        Value::F32(y0),
        Value::F32(dx),
        Value::F32(dy),
        Value::I32(most),
    ];
    let blocks = count(n.div_ceil(16));
    let shape = Shape::plane([blocks, blocks], [16, 16]);
    compare(
        criterion,
        "mandelbrot",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || {
            for (py, row) in image.chunks_mut(n).enumerate() {
                for (px, pixel) in row.iter_mut().enumerate() {
                    let (cx, cy) = (x0 + px as f32 * dx, y0 + py as f32 * dy);
                    let (mut x, mut y, mut done) = (0_f32, 0_f32, 0);
                    while done < most && x * x + y * y < 4.0 {
                        (x, y) = (x * x - y * y + cx, 2.0 * x * y + cy);
                        done += 1;
                    }
                    *pixel = if done == most {
                        0
                    } else {
                        done.to_le_bytes()[0]
                    };
                }
            }
            black_box(&image);
        },
    );
    let found = memory.read(output);
    // Plain Rust does not fuse, so a few points near the border take another number of steps.
    let differing = found
        .iter()
        .zip(&image)
        .filter(|(found, want)| found != want);
    assert!(differing.count() * 10 < n * n, "mandelbrot");
}

/// Panics where numbers are further apart than rounding in another order may take them.
fn assert_near(found: &[f32], want: &[f32], error: f32, name: &str) {
    assert_eq!(found.len(), want.len());
    let apart = found.iter().zip(want).map(|(a, b)| (a - b).abs());
    assert!(apart.fold(0.0, f32::max) <= error, "{name}");
}

fn saxpy4(criterion: &mut Criterion) {
    let n = size(1 << 20, 1 << 10);
    let mut random = Random::new(6);
    let (x, y) = (random.floats(n, -1.0, 1.0), random.floats(n, -1.0, 1.0));
    let mut sum = y.clone();
    let kernel = Kernel::load("cuda/saxpy.sm_80", "saxpy4");
    let mut memory = kernel.memory();
    let input = memory.place(&x);
    let output = memory.place(&y);
    let a = 1.5_f32;
    let values = [
        Value::F32(a),
        input.pointer(),
        output.pointer(),
        Value::I32(int(n)),
    ];
    let shape = Shape::line(count(n / 4).div_ceil(256), 256);
    compare(
        criterion,
        "saxpy4",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || {
            for (sum, x) in sum.iter_mut().zip(black_box(&x)) {
                *sum += a * x;
            }
            black_box(&sum);
        },
    );
    // Each side has added as often as it was measured.
    assert!(memory.read(output).iter().all(|sum| sum.is_finite()));
}

fn stencil5(criterion: &mut Criterion) {
    let n = size(1024, 64);
    let grid = Random::new(7).floats(n * n, -1.0, 1.0);
    let mut next = grid.clone();
    let kernel = Kernel::load("cuda/stencil.sm_80", "stencil5");
    let mut memory = kernel.memory();
    let input = memory.place(&grid);
    let output = memory.place(&grid);
    let (c0, c1) = (0.5_f32, 0.125_f32);
    let values = [
        input.pointer(),
        output.pointer(),
        Value::I32(int(n)),
        Value::I32(int(n)),
        Value::F32(c0),
        Value::F32(c1),
    ];
    let shape = Shape::plane([count(n / 32), count(n / 8)], [32, 8]);
    compare(
        criterion,
        "stencil5",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || {
            let grid = black_box(&grid);
            for y in 1..n - 1 {
                let [above, row, below] = [y - 1, y, y + 1].map(|y| &grid[y * n..][..n]);
                for (x, next) in next[y * n..][1..n - 1].iter_mut().enumerate() {
                    let around = row[x] + row[x + 2] + above[x + 1] + below[x + 1];
                    *next = c0 * row[x + 1] + c1 * around;
                }
            }
            black_box(&next);
        },
    );
    assert_near(&memory.read(output), &next, 1e-5, "stencil5");
}

fn transpose(criterion: &mut Criterion) {
    let n = size(1024, 64);
    let matrix = Random::new(8).floats(n * n, -1.0, 1.0);
    let mut turned = vec![0_f32; n * n];
    let kernel = Kernel::load("cuda/transpose.sm_75", "transpose");
    let mut memory = kernel.memory();
    let input = memory.place(&matrix);
    let output = memory.room::<f32>(n * n);
    let sizes = Value::I32(int(n));
    let values = [input.pointer(), output.pointer(), sizes, sizes];
    let blocks = count(n / 32);
    let shape = Shape::plane([blocks, blocks], [32, 8]);
    compare(
        criterion,
        "transpose",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || {
            for (y, row) in black_box(&matrix).chunks(n).enumerate() {
                for (x, &value) in row.iter().enumerate() {
                    turned[x * n + y] = value;
                }
            }
            black_box(&turned);
        },
    );
    assert_same(&memory.read(output), &turned, "transpose");
}

fn nbody(criterion: &mut Criterion) {
    let n = size(2048, 128);
    let bodies = Random::new(9).floats(4 * n, 0.1, 1.0);
    let mut pull = vec![0_f32; 4 * n];
    let kernel = Kernel::load("cuda/nbody.sm_80", "nbody");
    let mut memory = kernel.memory();
    let input = memory.place(&bodies);
    let output = memory.room::<f32>(4 * n);
    let softening = 0.01_f32;
    let values = [
        input.pointer(),
        output.pointer(),
        Value::I32(int(n)),
        Value::F32(softening),
    ];
    let shape = Shape::line(count(n / 128), 128).shared(128 * 16);
    // A vector of bodies at once, each with all others.
    let mut columns = [(); 3].map(|()| vec![0_f32; n]);
    compare(
        criterion,
        "nbody",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || {
            let bodies = black_box(&bodies);
            for (column, axis) in columns.iter_mut().zip(0..) {
                for (to, body) in column.iter_mut().zip(bodies.chunks(4)) {
                    *to = body[axis];
                }
            }
            let [x, y, z] = &columns;
            for (body, pull) in bodies.chunks(4).zip(pull.chunks_mut(4)) {
                let mut sums = [[0_f32; 16]; 3];
                for at in (0..n).step_by(16) {
                    for lane in 0..16 {
                        let d = [x, y, z].map(|column| column[at + lane]);
                        let d = [d[0] - body[0], d[1] - body[1], d[2] - body[2]];
                        let square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + softening;
                        let near = 1.0 / square.sqrt();
                        let weight = bodies[4 * (at + lane) + 3] * near * near * near;
                        for (sum, d) in sums.iter_mut().zip(d) {
                            sum[lane] += d * weight;
                        }
                    }
                }
                for (pull, sum) in pull.iter_mut().zip(&sums) {
                    *pull = sum.iter().sum();
                }
            }
            black_box(&pull);
        },
    );
    let largest = pull.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    assert_near(&memory.read(output), &pull, largest * 1e-4, "nbody");
}

fn softmax(criterion: &mut Criterion) {
    let n = size(1024, 64);
    let x = Random::new(10).floats(n * n, -4.0, 4.0);
    let mut shares = vec![0_f32; n * n];
    let kernel = Kernel::load("cuda/softmax.sm_80", "softmax");
    let mut memory = kernel.memory();
    let input = memory.place(&x);
    let output = memory.room::<f32>(n * n);
    let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
    let shape = Shape::line(count(n), 256);
    compare(
        criterion,
        "softmax",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || {
            for (row, shares) in black_box(&x).chunks(n).zip(shares.chunks_mut(n)) {
                let most = row.iter().fold(f32::NEG_INFINITY, |most, &x| most.max(x));
                let mut sum = 0.0;
                for (share, x) in shares.iter_mut().zip(row) {
                    *share = (x - most).exp();
                    sum += *share;
                }
                for share in shares {
                    *share /= sum;
                }
            }
            black_box(&shares);
        },
    );
    assert_near(&memory.read(output), &shares, 1e-5, "softmax");
}

fn matmul_reg(criterion: &mut Criterion) {
    let n = size(256, 64);
    let mut random = Random::new(11);
    let [a, b] = [(); 2].map(|()| random.floats(n * n, -1.0, 1.0));
    let mut c = vec![0_f32; n * n];
    let kernel = Kernel::load("cuda/matmul_reg.sm_80", "matmul_reg");
    let mut memory = kernel.memory();
    let inputs = [memory.place(&a), memory.place(&b)];
    let output = memory.room::<f32>(n * n);
    let sizes = Value::I32(int(n));
    let values = [
        inputs[0].pointer(),
        inputs[1].pointer(),
        output.pointer(),
        sizes,
        sizes,
        sizes,
    ];
    let blocks = count(n / 64);
    let shape = Shape::plane([blocks, blocks], [256, 1]);
    compare(
        criterion,
        "matmul_reg",
        &kernel,
        |rig, program| run(rig, program, shape, &values, &memory),
        || multiply(black_box(&a), black_box(&b), &mut c, n),
    );
    assert_near(&memory.read(output), &c, 1e-3, "matmul_reg");
}

criterion_group!(
    benches, vecadd, saxpy4, stencil5, matmul, matmul_reg, reduce, histogram, nbody, softmax,
    mandelbrot, transpose
);
criterion_main!(benches);
