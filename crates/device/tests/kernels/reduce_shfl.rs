//! Sums by warp shuffles: of floats, a block at a time, and of integers, by atomics.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("reduce_shfl::reduce_sum", reduce_sum),
    every("reduce_shfl::reduce_atomic", reduce_atomic),
];

const LANES: usize = 32;

/// Grid and block; blocks are whole warps, since a shuffle from a lane that is not there has no result.
const SHAPES: [(usize, usize); 5] = [(1, 32), (1, 64), (3, 96), (2, 256), (5, 1024)];
const SIZES: [usize; 5] = [1, 31, 33, 1000, 4099];

/// Adds to each lane the one `step` above, where there is one, else itself; lane 0 after all steps.
fn shuffled_down(mut lanes: Vec<f32>) -> f32 {
    for step in [16, 8, 4, 2, 1] {
        lanes = (0..LANES)
            .map(|lane| lanes[lane] + lanes.get(lane + step).unwrap_or(&lanes[lane]))
            .collect();
    }
    lanes[0]
}

/// The sum that each block gives, in the kernel's order.
fn block_sums(x: &[f32], blocks: usize, threads: usize) -> Vec<f32> {
    let stride = blocks * threads;
    let of_thread = |thread: usize| {
        let own = x.iter().skip(thread).step_by(stride);
        own.fold(0_f32, |sum, value| sum + value)
    };
    (0..blocks)
        .map(|block| {
            let first = block * threads;
            let mut sums: Vec<f32> = (0..threads / LANES)
                .map(|warp| {
                    let lanes = (0..LANES).map(|lane| of_thread(first + warp * LANES + lane));
                    shuffled_down(lanes.collect())
                })
                .collect();
            sums.resize(LANES, 0.0);
            shuffled_down(sums)
        })
        .collect()
}

fn reduce_sum(rig: &Rig) {
    let program = rig.load(&corpus("cuda/reduce_shfl.sm_80"), "reduce_sum");
    let mut random = Random::new(6);
    for (blocks, threads) in SHAPES {
        for n in SIZES {
            let x = random.floats(n, -1.0, 1.0);
            let mut memory = rig.memory();
            let input = memory.place(&x);
            let output = memory.room::<f32>(blocks);
            let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
            let shape = Shape::line(count(blocks), count(threads));
            rig.launch(&program, shape, &values, &memory);
            let want = block_sums(&x, blocks, threads);
            assert_same(&memory.read(output), &want, (n, blocks, threads));
        }
    }
}

fn reduce_atomic(rig: &Rig) {
    let program = rig.load(&corpus("cuda/reduce_shfl.sm_80"), "reduce_atomic");
    let mut random = Random::new(7);
    for (blocks, threads) in SHAPES {
        for n in SIZES {
            let x = random.integers(n);
            let before = random.bits();
            let mut memory = rig.memory();
            let input = memory.place(&x);
            let output = memory.place(&[before]);
            let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
            let shape = Shape::line(count(blocks), count(threads));
            rig.launch(&program, shape, &values, &memory);
            let sum: i64 = x.iter().map(|&x| i64::from(x)).sum();
            let want = before.wrapping_add(sum.cast_unsigned());
            assert_same(&memory.read(output), &[want], (n, blocks, threads));
        }
    }
}
