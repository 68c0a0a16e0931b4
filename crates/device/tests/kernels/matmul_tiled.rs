//! `C = A * B` through tiles in shared memory.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("matmul_tiled::sizes", sizes)];

const TILE: usize = 16;

/// Sums fused, in order of `k`, over whole tiles: what lies outside of the matrices is 0.
fn product(a: &[f32], b: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let mut c = Vec::with_capacity(m * n);
    for row in 0..m {
        for column in 0..n {
            let sum = (0..k.next_multiple_of(TILE)).fold(0_f32, |sum, i| {
                let (x, y) = if i < k {
                    (a[row * k + i], b[i * n + column])
                } else {
                    (0.0, 0.0)
                };
                x.mul_add(y, sum)
            });
            c.push(sum);
        }
    }
    c
}

fn sizes(rig: &Rig) {
    let program = rig.load(&corpus("cuda/matmul_tiled.sm_80"), "matmul_tiled");
    let mut random = Random::new(5);
    for size in [
        [1, 1, 1],
        [2, 3, 0],
        [16, 16, 16],
        [17, 15, 33],
        [1, 40, 7],
        [40, 1, 64],
        [48, 32, 20],
    ] {
        let [m, n, k] = size;
        let a = random.floats(m * k, -1.0, 1.0);
        let b = random.floats(k * n, -1.0, 1.0);
        let mut memory = rig.memory();
        let inputs = [memory.place(&a), memory.place(&b)];
        let output = memory.room::<f32>(m * n);
        let grid = [count(n.div_ceil(TILE)), count(m.div_ceil(TILE))];
        let values = [
            inputs[0].pointer(),
            inputs[1].pointer(),
            output.pointer(),
            Value::I32(int(m)),
            Value::I32(int(n)),
            Value::I32(int(k)),
        ];
        let block = [count(TILE), count(TILE)];
        rig.launch(&program, Shape::plane(grid, block), &values, &memory);
        assert_same(&memory.read(output), &product(&a, &b, size), size);
    }
}
