//! A five-point stencil in two dimensions and a heat step in three.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("stencil::stencil5", stencil5),
    every("stencil::heat3d", heat3d),
];

fn stencil5(rig: &Rig) {
    let program = rig.load(&corpus("cuda/stencil.sm_80"), "stencil5");
    let mut random = Random::new(3);
    for (w, h, block) in [
        (1, 1, [8, 8]),
        (2, 9, [8, 8]),
        (3, 3, [1, 1]),
        (17, 13, [16, 4]),
        (40, 33, [32, 8]),
        (65, 7, [5, 3]),
    ] {
        let input = random.floats(w * h, -1.0, 1.0);
        let before = random.floats(w * h, -1.0, 1.0);
        let [c0, c1] = [0.6_f32, 0.1];
        let mut want = before.clone();
        for y in 1..h.saturating_sub(1) {
            for x in 1..w.saturating_sub(1) {
                let i = y * w + x;
                let around = input[i - 1] + input[i + 1] + input[i - w] + input[i + w];
                want[i] = input[i].mul_add(c0, around * c1);
            }
        }
        let mut memory = rig.memory();
        let source = memory.place(&input);
        let output = memory.place(&before);
        let grid = [count(w).div_ceil(block[0]), count(h).div_ceil(block[1])];
        let values = [
            source.pointer(),
            output.pointer(),
            Value::I32(int(w)),
            Value::I32(int(h)),
            Value::F32(c0),
            Value::F32(c1),
        ];
        rig.launch(&program, Shape::plane(grid, block), &values, &memory);
        assert_same(&memory.read(output), &want, (w, h, block));
    }
}

/// Whether the product 6 * in is rounded before it is subtracted. PTX leaves that open for `mul` and `sub`
/// without a rounding modifier, which planes in groups of four have; the planes that are left over fuse it.
#[derive(Clone, Copy, PartialEq)]
enum Product {
    Fused,
    Rounded,
}

/// What `heat3d` writes, in its order of operations.
fn heat_step(
    input: &[f64],
    before: &[f64],
    [nx, ny, nz]: [usize; 3],
    k: f64,
    in_groups: Product,
) -> Vec<f64> {
    let mut out = before.to_vec();
    let inner = nz.saturating_sub(2);
    let grouped = inner - inner % 4;
    for z in 1..nz.saturating_sub(1) {
        for y in 1..ny.saturating_sub(1) {
            for x in 1..nx.saturating_sub(1) {
                let i = (z * ny + y) * nx + x;
                let plane = nx * ny;
                let around = input[i - 1]
                    + input[i + 1]
                    + input[i - nx]
                    + input[i + nx]
                    + input[i - plane]
                    + input[i + plane];
                let change = if z <= grouped && in_groups == Product::Rounded {
                    around - input[i] * 6.0
                } else {
                    input[i].mul_add(-6.0, around)
                };
                out[i] = change.mul_add(k, input[i]);
            }
        }
    }
    out
}

fn heat3d(rig: &Rig) {
    let program = rig.load(&corpus("cuda/stencil.sm_80"), "heat3d");
    let mut random = Random::new(4);
    for (size, block) in [
        ([3, 3, 2], [8, 8]),
        ([3, 3, 3], [1, 1]),
        ([9, 5, 5], [8, 2]),
        ([12, 11, 6], [4, 4]),
        ([10, 7, 7], [32, 1]),
        ([6, 18, 12], [3, 5]),
    ] {
        let [nx, ny, nz] = size;
        let input = random.doubles(nx * ny * nz, -1.0, 1.0);
        let before = random.doubles(nx * ny * nz, -1.0, 1.0);
        let mut memory = rig.memory();
        let source = memory.place(&input);
        let output = memory.place(&before);
        let grid = [
            count(nx - 2).div_ceil(block[0]),
            count(ny - 2).div_ceil(block[1]),
        ];
        let values = [
            source.pointer(),
            output.pointer(),
            Value::I32(int(nx)),
            Value::I32(int(ny)),
            Value::I32(int(nz)),
            Value::F64(0.1),
        ];
        rig.launch(&program, Shape::plane(grid, block), &values, &memory);
        let found = memory.read(output);
        let step = |product| heat_step(&input, &before, size, 0.1, product);
        let (rounded, fused) = (step(Product::Rounded), step(Product::Fused));
        let want: Vec<f64> = found
            .iter()
            .zip(rounded.iter().zip(&fused))
            .map(|(found, (rounded, fused))| {
                if found.to_bits() == fused.to_bits() {
                    *fused
                } else {
                    *rounded
                }
            })
            .collect();
        assert_same(&found, &want, (size, block));
    }
}
