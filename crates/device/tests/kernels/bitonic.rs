//! Blocks of keys sorted in dynamic shared memory, with a barrier a step.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("bitonic::sizes", sizes)];

fn sizes(rig: &Rig) {
    let program = rig.load(&corpus("cuda/bitonic.sm_75"), "bitonic_block");
    let mut random = Random::new(22);
    for (n, blocks, threads) in [
        (1, 1, 1),
        (2, 3, 2),
        (20, 2, 32),
        (64, 4, 64),
        (1000, 2, 1024),
    ] {
        let keys = random.words(n * blocks);
        let want: Vec<u32> = keys
            .chunks(n)
            .flat_map(|block| {
                let mut sorted = block.to_vec();
                sorted.sort_unstable();
                sorted
            })
            .collect();
        let mut memory = rig.memory();
        let buffer = memory.place(&keys);
        let values = [buffer.pointer(), Value::I32(int(n))];
        let shape = Shape::line(count(blocks), threads).shared(threads * 4);
        rig.launch(&program, shape, &values, &memory);
        assert_same(&memory.read(buffer), &want, (n, blocks, threads));
    }
}
