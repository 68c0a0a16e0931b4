//! How many times longer does the CPU device take for a kernel than plain Rust loops on one core? Both in
//! one run, over the same data: compare `cpu device` with `plain rust` of a group as a ratio.
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
use device::{LaunchControl, Program, Selector, Value};

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

fn cpu() -> Rig {
    Rig::new(device::open(Selector::Cpu).expect("the CPU device"))
}

/// Measures a kernel and a closure that computes the same.
fn compare(
    criterion: &mut Criterion,
    name: &str,
    mut kernel: impl FnMut(),
    mut native: impl FnMut(),
) {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10);
    group.bench_function("cpu device", |bencher| bencher.iter(&mut kernel));
    group.bench_function("plain rust", |bencher| bencher.iter(&mut native));
    group.finish();
    // What they computed is compared, where a filter had neither run too.
    kernel();
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
    let rig = cpu();
    let program = rig.load(&corpus("cuda/vecadd.sm_75"), "vecadd");
    let mut memory = rig.memory();
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
        || run(&rig, &program, shape, &values, &memory),
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
    let rig = cpu();
    let program = rig.load(&corpus("cuda/matmul_tiled.sm_80"), "matmul_tiled");
    let mut memory = rig.memory();
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
        || run(&rig, &program, shape, &values, &memory),
        || {
            let (a, b) = (black_box(&a), black_box(&b));
            for (row, c) in a.chunks(n).zip(c.chunks_mut(n)) {
                c.fill(0.0);
                for (x, b) in row.iter().zip(b.chunks(n)) {
                    for (c, y) in c.iter_mut().zip(b) {
                        *c += x * y;
                    }
                }
            }
            black_box(&c);
        },
    );
    let found = memory.read(output);
    let apart = found
        .iter()
        .zip(&c)
        .map(|(found, want)| (found - want).abs());
    assert!(apart.fold(0.0, f32::max) < 1e-3, "matmul_tiled");
}

fn reduce(criterion: &mut Criterion) {
    let n = size(1 << 20, 1 << 12);
    let x = Random::new(3).floats(n, -1.0, 1.0);
    let blocks = 32;
    let mut sum = 0_f32;
    let rig = cpu();
    let program = rig.load(&corpus("cuda/reduce_shfl.sm_80"), "reduce_sum");
    let mut memory = rig.memory();
    let input = memory.place(&x);
    let output = memory.room::<f32>(blocks);
    let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
    let shape = Shape::line(count(blocks), 256);
    compare(
        criterion,
        "reduce_shfl",
        || run(&rig, &program, shape, &values, &memory),
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
    let rig = cpu();
    let program = rig.load(&corpus("cuda/histogram.sm_75"), "histogram256");
    let mut memory = rig.memory();
    let input = memory.place(&data);
    let output = memory.place(&bins);
    let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
    let shape = Shape::line(64, 256);
    compare(
        criterion,
        "histogram",
        || {
            memory.fill(output, &[0; 256]);
            run(&rig, &program, shape, &values, &memory);
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
    let rig = cpu();
    let program = rig.load(&corpus("cuda/mandelbrot.sm_75"), "mandelbrot");
    let mut memory = rig.memory();
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
        || run(&rig, &program, shape, &values, &memory),
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

criterion_group!(benches, vecadd, matmul, reduce, histogram, mandelbrot);
criterion_main!(benches);
