//! Threads and blocks that wait for each other or meet in one word, from four files of the corpus.

use device::{Mode, Value};

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, as_it_is, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("atomics::atomics_mix", atomics_mix),
    every("atomics::msg_pass", msg_pass),
    every("atomics::last_block_sum", last_block_sum),
    as_it_is("coop_grid::grid_relax", grid_relax),
    as_it_is("coop_grid::tile_reduce", tile_reduce),
    every("cp_async::cp_async_scale", cp_async_scale),
    every("spinlock::fmax_cas", fmax_cas),
    every("spinlock::spinlock", spinlock),
];

fn atomics_mix(rig: &Rig) {
    let program = rig.load(&corpus("cuda/atomics.sm_80"), "atomics_mix");
    for (n, threads) in [(1, 32), (100, 48), (1000, 128)] {
        let x: Vec<i32> = (0..n).map(|i| int(i * 37 % 201) - 100).collect();
        let before = [5_u32, 98, 3, u32::MAX, 0, 0xABCD, 10, 20, 0];
        let mut memory = rig.memory();
        let words = memory.place(&before);
        let mut starts = vec![0_i32; n + 3];
        starts[..3].copy_from_slice(&[50, -50, 0]);
        let integers = memory.place(&starts);
        let single = memory.place(&[0.5_f32]);
        let double = memory.place(&[0.25_f64]);
        let longs = memory.place(&[0_u64, u64::MAX]);
        let input = memory.place(&x);
        let values = [
            words.pointer(),
            integers.pointer(),
            single.pointer(),
            double.pointer(),
            longs.pointer(),
            input.pointer(),
            Value::I32(int(n)),
        ];
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);

        let bits = || x.iter().map(|v| 1_u32 << (v & 31));
        let up = (0..n).fold(before[1], |old, _| if old >= 99 { 0 } else { old + 1 });
        let down = (0..n).fold(
            before[2],
            |old, _| if old == 0 || old > 7 { 7 } else { old - 1 },
        );
        let want = [
            before[0] + count(n),
            up,
            down,
            bits().fold(before[3], |word, bit| word & !bit),
            bits().fold(before[4], |word, bit| word | bit),
            x.iter().fold(before[5], |word, v| word ^ v.cast_unsigned()),
            before[6] + count(n),
            before[7] + count(n),
        ];
        let found = memory.read(words);
        assert_same(&found[..8], &want, (n, threads));
        assert!(
            found[8] < count(n),
            "the word that is set by the first thread that finds 0"
        );
        let (least, most) = (x.iter().min(), x.iter().max());
        let want = [
            least.map_or(50, |&x| x.min(50)),
            most.map_or(-50, |&x| x.max(-50)),
        ];
        assert_same(&memory.read(integers)[..2], &want, (n, threads));
        // Sums of small integers are exact in any order.
        let sum: i32 = x.iter().sum();
        assert_same(&memory.read(double), &[f64::from(sum) + 0.25], (n, threads));
        assert_same(&memory.read(single), &[sum as f32 + 0.5], (n, threads));
        let longs_of = || x.iter().map(|&v| i64::from(v).cast_unsigned());
        let want = [longs_of().max().unwrap_or(0), longs_of().min().unwrap_or(0)];
        assert_same(&memory.read(longs), &want, (n, threads));
    }
}

fn msg_pass(rig: &Rig) {
    let program = rig.load(&corpus("cuda/atomics.sm_80"), "msg_pass");
    for blocks in [2, 5, 16] {
        let mut memory = rig.memory();
        let data = memory.place(&[0_i32]);
        let flag = memory.place(&[0_i32]);
        let output = memory.place(&vec![0_i32; blocks]);
        let values = [data.pointer(), flag.pointer(), output.pointer()];
        rig.launch(&program, Shape::line(count(blocks), 32), &values, &memory);
        let mut want = vec![42; blocks];
        want[0] = 0;
        assert_same(&memory.read(output), &want, blocks);
    }
}

/// Quarters, so that sums are exact in any order.
fn quarters(seed: u64, count: usize) -> Vec<f32> {
    let words = Random::new(seed).words(count);
    words
        .iter()
        .map(|word| (word % 400) as f32 / 4.0 - 50.0)
        .collect()
}

fn last_block_sum(rig: &Rig) {
    let program = rig.load(&corpus("cuda/atomics.sm_80"), "last_block_sum");
    for (n, blocks, threads) in [(1, 1, 32), (1000, 3, 64), (5000, 7, 256)] {
        let x = quarters(36, n);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let parts = memory.place(&vec![0_f32; blocks]);
        let done = memory.place(&[0_u32]);
        let output = memory.room::<f32>(1);
        let values = [
            input.pointer(),
            parts.pointer(),
            done.pointer(),
            output.pointer(),
            Value::I32(int(n)),
        ];
        rig.launch(
            &program,
            Shape::line(count(blocks), threads),
            &values,
            &memory,
        );
        assert_same(
            &memory.read(output),
            &[x.iter().sum()],
            (n, blocks, threads),
        );
        assert_same(&memory.read(done), &[count(blocks)], (n, blocks, threads));
    }
}

/// A grid whose blocks all wait for each other after each step.
fn grid_relax(rig: &Rig) {
    let program = rig.load(&corpus("cuda/coop_grid.sm_80"), "grid_relax");
    for (n, blocks, threads, steps) in [(1, 1, 32, 3), (100, 1, 64, 4), (500, 4, 96, 7)] {
        let start = Random::new(37).floats(n, -1.0, 1.0);
        let mut current = start.clone();
        for _ in 0..steps {
            current = (0..n)
                .map(|i| {
                    let left = if i == 0 { 0.0 } else { current[i - 1] };
                    let right = current.get(i + 1).copied().unwrap_or(0.0);
                    right.mul_add(0.25, left.mul_add(0.25, current[i] * 0.5))
                })
                .collect();
        }
        let mut memory = rig.memory();
        let buffers = [memory.place(&start), memory.room::<f32>(n)];
        let values = [
            buffers[0].pointer(),
            buffers[1].pointer(),
            Value::I32(int(n)),
            Value::I32(steps),
        ];
        let shape = Shape {
            mode: Mode::Cooperative,
            ..Shape::line(blocks, threads)
        };
        rig.launch(&program, shape, &values, &memory);
        let last = buffers[usize::from(steps % 2 == 1)];
        assert_same(&memory.read(last), &current, (n, blocks, threads, steps));
    }
}

fn tile_reduce(rig: &Rig) {
    let program = rig.load(&corpus("cuda/coop_grid.sm_80"), "tile_reduce");
    for (blocks, threads) in [(1, 32), (3, 64), (2, 96)] {
        let x = Random::new(38).integers(blocks * threads);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.place(&[7_i32]);
        let values = [input.pointer(), output.pointer()];
        let shape = Shape::line(count(blocks), count(threads));
        rig.launch(&program, shape, &values, &memory);
        let want = x.iter().fold(7_i32, |sum, &x| sum.wrapping_add(x));
        assert_same(&memory.read(output), &[want], (blocks, threads));
    }
}

/// Tiles of 256 vectors of four, reversed and scaled, through asynchronous copies.
fn cp_async_scale(rig: &Rig) {
    const TILE: usize = 256;
    let program = rig.load(&corpus("cuda/cp_async.sm_80"), "cp_async_scale");
    for (tiles, blocks) in [(1, 1), (3, 2), (7, 3), (2, 4)] {
        let x = Random::new(39).floats(tiles * TILE * 4, -1.0, 1.0);
        let factor = 1.7_f32;
        let want: Vec<f32> = x
            .chunks(TILE * 4)
            .flat_map(|tile| tile.chunks(4).rev().flatten().map(|x| factor * x))
            .collect();
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<f32>(x.len());
        let values = [
            input.pointer(),
            output.pointer(),
            Value::F32(factor),
            Value::I32(int(tiles)),
        ];
        rig.launch(&program, Shape::line(blocks, 256), &values, &memory);
        assert_same(&memory.read(output), &want, (tiles, blocks));
    }
}

fn fmax_cas(rig: &Rig) {
    let program = rig.load(&corpus("cuda/spinlock.sm_75"), "fmax_cas");
    for (n, threads) in [(1, 1), (33, 32), (1000, 128)] {
        let x = Random::new(40).doubles(n, -1e6, 1e6);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.place(&[f64::NEG_INFINITY]);
        let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert_same(&memory.read(output), &[most], (n, threads));
    }
}

/// Lanes of one warp that wait for a lock that another of them holds: each must get on.
fn spinlock(rig: &Rig) {
    let program = rig.load(&corpus("cuda/spinlock.sm_75"), "spinlock");
    for (blocks, threads, rounds) in [(1, 1, 5), (1, 32, 3), (4, 48, 2)] {
        let mut memory = rig.memory();
        let lock = memory.place(&[0_i32]);
        let counter = memory.place(&[100_i32]);
        let values = [lock.pointer(), counter.pointer(), Value::I32(rounds)];
        rig.launch(&program, Shape::line(blocks, threads), &values, &memory);
        let entered = (blocks * threads).cast_signed() * rounds;
        assert_same(&memory.read(counter), &[100 + entered], (blocks, threads));
        assert_same(&memory.read(lock), &[0], (blocks, threads));
    }
}
