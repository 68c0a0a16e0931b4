//! Two arrays carved from dynamic shared memory, and a barrier that counts.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("dyn_shared::topk_count", topk_count)];

/// Stands in for elements past the end.
const PADDING: f32 = -1e30;
const K: usize = 8;

/// How many threads of a block have fewer than eight elements above theirs.
fn top(block: &[f32], threshold: f32) -> i32 {
    let above = |own: f32| {
        let bound = own + threshold;
        block.iter().filter(|&&other| other > bound).count()
    };
    int(block.iter().filter(|&&own| above(own) < K).count())
}

fn topk_count(rig: &Rig) {
    let program = rig.load(&corpus("cuda/dyn_shared.sm_75"), "topk_count");
    let mut random = Random::new(17);
    for (n, threads) in [
        (1, 1),
        (1, 32),
        (100, 33),
        (200, 100),
        (512, 128),
        (1000, 256),
    ] {
        for threshold in [0.0, 0.25] {
            let data = random.floats(n, 0.0, 1.0);
            let mut padded = data.clone();
            padded.resize(n.next_multiple_of(threads), PADDING);
            let want: Vec<i32> = padded
                .chunks(threads)
                .map(|block| top(block, threshold))
                .collect();
            let mut memory = rig.memory();
            let input = memory.place(&data);
            let output = memory.room::<i32>(want.len());
            let values = [
                input.pointer(),
                output.pointer(),
                Value::I32(int(n)),
                Value::F32(threshold),
            ];
            let shape = Shape::line(count(want.len()), count(threads)).shared(count(threads * 8));
            rig.launch(&program, shape, &values, &memory);
            assert_same(&memory.read(output), &want, (n, threads, threshold));
        }
    }
}
