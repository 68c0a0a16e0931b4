//! Prefix sums: of 1024 integers a block in shared memory, and of 32 a warp by shuffles.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("scan::scan_blelloch", scan_blelloch),
    every("scan::scan_warp", scan_warp),
];

const BLOCK: usize = 1024;
const LANES: usize = 32;

fn scan_blelloch(rig: &Rig) {
    let program = rig.load(&corpus("cuda/scan.sm_75"), "scan_blelloch");
    let mut random = Random::new(9);
    for blocks in [1, 2, 5] {
        let data = random.integers(blocks * BLOCK);
        let mut sums = Vec::new();
        let mut want = Vec::new();
        for block in data.chunks(BLOCK) {
            let mut sum = 0_i32;
            for &value in block {
                want.push(sum);
                sum = sum.wrapping_add(value);
            }
            sums.push(sum);
        }
        let mut memory = rig.memory();
        let input = memory.place(&data);
        let output = memory.room::<i32>(data.len());
        let totals = memory.room::<i32>(blocks);
        let values = [input.pointer(), output.pointer(), totals.pointer()];
        rig.launch(&program, Shape::line(count(blocks), 512), &values, &memory);
        assert_same(&memory.read(output), &want, blocks);
        assert_same(&memory.read(totals), &sums, blocks);
    }
}

fn scan_warp(rig: &Rig) {
    let program = rig.load(&corpus("cuda/scan.sm_75"), "scan_warp");
    let mut random = Random::new(10);
    for (n, threads) in [(1, 32), (32, 32), (33, 64), (1000, 96), (700, 1024)] {
        let data = random.integers(n);
        let mut want = Vec::new();
        for warp in data.chunks(LANES) {
            let mut sum = 0_i32;
            for &value in warp {
                sum = sum.wrapping_add(value);
                want.push(sum);
            }
        }
        let mut memory = rig.memory();
        let input = memory.place(&data);
        let output = memory.room::<i32>(n);
        let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);
        assert_same(&memory.read(output), &want, (n, threads));
    }
}
