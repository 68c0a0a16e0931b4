//! Counts of byte values, by atomics in shared and in global memory.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("histogram::sizes", sizes)];

fn sizes(rig: &Rig) {
    let program = rig.load(&corpus("cuda/histogram.sm_75"), "histogram256");
    let mut random = Random::new(8);
    for (n, blocks, threads) in [
        (0, 1, 32),
        (1, 1, 1),
        (255, 2, 33),
        (1000, 3, 100),
        (5000, 4, 256),
        (4097, 2, 512),
        (9000, 7, 1024),
    ] {
        let mut data = random.bytes(n);
        // A third of the bytes alike, so that lanes of a warp meet in one bin.
        data.iter_mut().step_by(3).for_each(|byte| *byte = 200);
        let before = random.words(256);
        let mut want = before.clone();
        for &byte in &data {
            let bin = &mut want[usize::from(byte)];
            *bin = bin.wrapping_add(1);
        }
        let mut memory = rig.memory();
        let input = memory.place(&data);
        let bins = memory.place(&before);
        let values = [input.pointer(), bins.pointer(), Value::I32(int(n))];
        rig.launch(
            &program,
            Shape::line(blocks, count(threads)),
            &values,
            &memory,
        );
        assert_same(&memory.read(bins), &want, (n, blocks, threads));
    }
}
