//! A matrix turned over through a tile in shared memory.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("transpose::sizes", sizes)];

fn sizes(rig: &Rig) {
    let program = rig.load(&corpus("cuda/transpose.sm_75"), "transpose");
    let mut random = Random::new(11);
    for (w, h) in [(1, 1), (32, 32), (33, 31), (5, 70), (64, 64), (100, 3)] {
        let data = random.floats(w * h, -1.0, 1.0);
        let mut want = vec![0.0; w * h];
        for y in 0..h {
            for x in 0..w {
                want[x * h + y] = data[y * w + x];
            }
        }
        let mut memory = rig.memory();
        let input = memory.place(&data);
        let output = memory.room::<f32>(w * h);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(w)),
            Value::I32(int(h)),
        ];
        let grid = [count(w).div_ceil(32), count(h).div_ceil(32)];
        rig.launch(&program, Shape::plane(grid, [32, 8]), &values, &memory);
        assert_same(&memory.read(output), &want, (w, h));
    }
}
