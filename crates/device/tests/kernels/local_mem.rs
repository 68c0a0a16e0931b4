//! A median filter that sorts in local memory, indexed by what it computes.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("local_mem::median9", median9)];

fn median9(rig: &Rig) {
    let program = rig.load(&corpus("cuda/local_mem.sm_75"), "median9");
    let mut random = Random::new(26);
    for (w, h, block, rank) in [
        (3, 3, [8, 8], 4),
        (2, 5, [4, 4], 4),
        (40, 17, [16, 4], 0),
        (19, 23, [5, 7], 8),
    ] {
        let image = random.bytes(w * h);
        let before = random.bytes(w * h);
        let mut want = before.clone();
        for y in 1..h.saturating_sub(1) {
            for x in 1..w.saturating_sub(1) {
                let mut around: Vec<u8> = (0..9)
                    .map(|i| image[(y + i / 3 - 1) * w + x + i % 3 - 1])
                    .collect();
                around.sort_unstable();
                want[y * w + x] = around[rank];
            }
        }
        let mut memory = rig.memory();
        let input = memory.place(&image);
        let output = memory.place(&before);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(w)),
            Value::I32(int(h)),
            Value::I32(int(rank)),
        ];
        let grid = [count(w).div_ceil(block[0]), count(h).div_ceil(block[1])];
        rig.launch(&program, Shape::plane(grid, block), &values, &memory);
        assert_same(&memory.read(output), &want, (w, h, block, rank));
    }
}
