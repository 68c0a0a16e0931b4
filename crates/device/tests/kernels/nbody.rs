//! Gravity of `n` bodies, tile by tile through dynamic shared memory.
//!
//! `rsqrt.approx.f32` has a relative error of at most 2^-22.9 (PTX ISA), so results are compared with `f64`
//! within what that and the roundings can add up to. In units of u = 2^-24: a difference has 1, its
//! square 3, the squared distance 6, hence the inverse distance 3 and 2.2 for the approximation, the factor
//! w/r^3 16 and 3 roundings, a term 20. The sum of `n` terms adds `n`.

use device::Value;

use super::{count, int};
use crate::harness::{About, Case, Random, Rig, Shape, assert_close, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("nbody::sizes", sizes)];

const TERM_ROUNDINGS: f64 = 20.0;
const BODY_BYTES: u32 = 16;
const SOFTENING: f32 = 0.01;

/// Acceleration of one body along each axis.
fn acceleration(bodies: &[[f32; 4]], body: [f32; 4]) -> [About; 3] {
    let unit = f64::from(f32::EPSILON) / 2.0;
    let mut sums = [0.0; 3];
    let mut sizes = [0.0; 3];
    for other in bodies {
        let apart = [0, 1, 2].map(|axis| f64::from(other[axis]) - f64::from(body[axis]));
        let squares: f64 = apart.iter().map(|d| d * d).sum();
        let distance = (squares + f64::from(SOFTENING)).sqrt();
        for axis in 0..3 {
            let term = apart[axis] * f64::from(other[3]) / distance.powi(3);
            sums[axis] += term;
            sizes[axis] += term.abs();
        }
    }
    let roundings = TERM_ROUNDINGS + bodies.len() as f64;
    [0, 1, 2].map(|axis| About {
        value: sums[axis],
        error: roundings * unit * sizes[axis],
    })
}

fn sizes(rig: &Rig) {
    let program = rig.load(&corpus("cuda/nbody.sm_80"), "nbody");
    let mut random = Random::new(12);
    for (n, threads) in [(1, 32), (2, 1), (33, 32), (100, 13), (150, 64), (256, 128)] {
        let bodies: Vec<[f32; 4]> = (0..n)
            .map(|_| {
                let place = random.floats(3, -1.0, 1.0);
                let mass = random.floats(1, 0.5, 2.0);
                [place[0], place[1], place[2], mass[0]]
            })
            .collect();
        let mut memory = rig.memory();
        let input = memory.place(bodies.as_flattened());
        let output = memory.room::<f32>(n * 4);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(n)),
            Value::F32(SOFTENING),
        ];
        let shape = Shape::line(count(n).div_ceil(threads), threads).shared(threads * BODY_BYTES);
        rig.launch(&program, shape, &values, &memory);
        let found = memory.read(output);
        for (body, found) in bodies.iter().zip(found.chunks(4)) {
            let want = acceleration(&bodies, *body);
            assert_close(&found[..3], &want, (n, threads));
            assert_same(&found[3..], &[0.0], (n, threads));
        }
    }
}
