//! Pictures: a blur of bytes, the game of life, a convolution with constants; from two files of the corpus.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("conv2d::conv5x5", conv5x5),
    every("image_u8::rgb2gray_blur", rgb2gray_blur),
    every("image_u8::life", life),
];

const SIZES: [[usize; 2]; 3] = [[1, 1], [40, 17], [33, 64]];

/// The pixel some steps from one, if it is in the picture.
fn beside(at: usize, [x, y]: [isize; 2], [w, h]: [usize; 2]) -> Option<usize> {
    let x = (at % w).checked_add_signed(x).filter(|&x| x < w)?;
    let y = (at / w).checked_add_signed(y).filter(|&y| y < h)?;
    Some(y * w + x)
}

/// Steps to all pixels of a square around one, by rows.
fn square(reach: isize) -> impl Iterator<Item = [isize; 2]> {
    (-reach..=reach).flat_map(move |y| (-reach..=reach).map(move |x| [x, y]))
}

fn conv5x5(rig: &Rig) {
    let mut random = Random::new(80);
    let kernel = random.floats(25, -1.0, 1.0);
    let initial: Vec<_> = kernel
        .iter()
        .map(|k| format!("0f{:08X}", k.to_bits()))
        .collect();
    let text = corpus("cuda/conv2d.sm_75");
    let declaration = ".const .align 4 .b8 kern[100];";
    let initialised = format!(".const .align 4 .f32 kern[25] = {{{}}};", initial.join(","));
    assert!(text.contains(declaration));
    let program = rig.load(&text.replacen(declaration, &initialised, 1), "conv5x5");
    for [w, h] in SIZES {
        let picture = random.floats(w * h, -3.0, 3.0);
        let mut memory = rig.memory();
        let input = memory.place(&picture);
        let output = memory.room::<f32>(w * h);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(w)),
            Value::I32(int(h)),
        ];
        let grid = [count(w.div_ceil(16)), count(h.div_ceil(16))];
        rig.launch(&program, Shape::plane(grid, [16, 16]), &values, &memory);
        let want: Vec<f32> = (0..w * h)
            .map(|at| {
                square(2).zip(&kernel).fold(0.0, |sum, (step, &k)| {
                    let pixel = beside(at, step, [w, h]).map_or(0.0, |at| picture[at]);
                    k.mul_add(pixel, sum)
                })
            })
            .collect();
        assert_same(&memory.read(output), &want, (w, h));
    }
}

fn rgb2gray_blur(rig: &Rig) {
    let program = rig.load(&corpus("cuda/image_u8.sm_75"), "rgb2gray_blur");
    let mut random = Random::new(81);
    for [w, h] in SIZES {
        let picture = random.bytes(3 * w * h);
        let mut memory = rig.memory();
        let input = memory.place(&picture);
        let output = memory.room::<u8>(w * h);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(w)),
            Value::I32(int(h)),
        ];
        let grid = [count(w.div_ceil(32)), count(h.div_ceil(4))];
        rig.launch(&program, Shape::plane(grid, [32, 4]), &values, &memory);
        let gray = |at: usize| {
            let [r, g, b] = [0, 1, 2].map(|part| u32::from(picture[3 * at + part]));
            (77 * r + 150 * g + 29 * b) >> 8
        };
        let want: Vec<u8> = (0..w * h)
            .map(|at| {
                let near: Vec<u32> = square(1)
                    .filter_map(|step| beside(at, step, [w, h]))
                    .map(gray)
                    .collect();
                let mean = near.iter().sum::<u32>() / count(near.len());
                u8::try_from(mean).expect("a mean of bytes")
            })
            .collect();
        assert_same(&memory.read(output), &want, (w, h));
    }
}

/// The edges of the world meet.
fn life(rig: &Rig) {
    let program = rig.load(&corpus("cuda/image_u8.sm_75"), "life");
    let mut random = Random::new(82);
    for [w, h] in SIZES {
        let cells: Vec<u8> = random.bytes(w * h).iter().map(|byte| byte & 1).collect();
        let mut memory = rig.memory();
        let input = memory.place(&cells);
        let output = memory.room::<u8>(w * h);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::I32(int(w)),
            Value::I32(int(h)),
        ];
        let grid = [count(w.div_ceil(32)), count(h.div_ceil(4))];
        rig.launch(&program, Shape::plane(grid, [32, 4]), &values, &memory);
        let want: Vec<u8> = (0..w * h)
            .map(|at| {
                let (x, y) = (at % w, at / w);
                let around = (0..9).filter(|&step| step != 4).map(|step| {
                    let (x, y) = ((x + w + step % 3 - 1) % w, (y + h + step / 3 - 1) % h);
                    cells[y * w + x]
                });
                let near: u8 = around.sum();
                u8::from(near == 3 || near == 2 && cells[at] == 1)
            })
            .collect();
        assert_same(&memory.read(output), &want, (w, h));
    }
}
