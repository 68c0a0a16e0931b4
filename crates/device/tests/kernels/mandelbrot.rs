//! Iterations of `z = z^2 + c`: lanes of a warp leave the loop at different times.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("mandelbrot::f32", single),
    every("mandelbrot::f64", double),
];

/// Width and height of the image, block, most iterations.
const IMAGES: [(usize, usize, [u32; 2], i32); 6] = [
    (1, 1, [1, 1], 10),
    (7, 5, [8, 8], 0),
    (40, 21, [16, 16], 100),
    (33, 33, [32, 4], 256),
    (64, 9, [3, 7], 300),
    (50, 50, [10, 10], 1000),
];

fn grid(w: usize, h: usize, block: [u32; 2]) -> Shape {
    let blocks = [count(w).div_ceil(block[0]), count(h).div_ceil(block[1])];
    Shape::plane(blocks, block)
}

fn iterations(cx: f32, cy: f32, most: i32) -> i32 {
    let (mut x, mut y) = (0_f32, 0_f32);
    let (mut x2, mut y2) = (0_f32, 0_f32);
    let mut done = 0;
    while done < most && x2 + y2 < 4.0 {
        let next = cx + (x2 - y2);
        y = (x + x).mul_add(y, cy);
        x = next;
        (x2, y2) = (x * x, y * y);
        done += 1;
    }
    done
}

fn single(rig: &Rig) {
    let program = rig.load(&corpus("cuda/mandelbrot.sm_75"), "mandelbrot");
    for (w, h, block, most) in IMAGES {
        let [x0, y0, dx, dy] = [-2.1_f32, -1.25, 2.9 / w as f32, 2.5 / h as f32];
        let mut want = Vec::new();
        for py in 0..h {
            for px in 0..w {
                let cx = (px as f32).mul_add(dx, x0);
                let cy = (py as f32).mul_add(dy, y0);
                let done = iterations(cx, cy, most);
                let [low, ..] = done.to_le_bytes();
                want.push(if done == most { 0 } else { low });
            }
        }
        let mut memory = rig.memory();
        let image = memory.room::<u8>(w * h);
        let values = [
            image.pointer(),
            Value::I32(int(w)),
            Value::I32(int(h)),
            Value::F32(x0),
            Value::F32(y0),
            Value::F32(dx),
            Value::F32(dy),
            Value::I32(most),
        ];
        rig.launch(&program, grid(w, h, block), &values, &memory);
        assert_same(&memory.read(image), &want, (w, h, block, most));
    }
}

fn iterations_f64(cx: f64, cy: f64, most: i32) -> i32 {
    let (mut x, mut y) = (0_f64, 0_f64);
    for done in 0..most {
        let (x2, y2) = (x * x, y * y);
        if x2 + y2 > 4.0 {
            return done;
        }
        y = (x + x).mul_add(y, cy);
        x = cx + (x2 - y2);
    }
    most.max(0)
}

fn double(rig: &Rig) {
    let program = rig.load(&corpus("cuda/mandelbrot.sm_75"), "mandelbrot_f64");
    for (w, h, block, most) in IMAGES {
        let [x0, y0, step] = [-2.1, -1.25, 2.9 / w as f64];
        let mut want = Vec::new();
        for py in 0..h {
            for px in 0..w {
                let cx = (px as f64).mul_add(step, x0);
                let cy = (py as f64).mul_add(step, y0);
                want.push(iterations_f64(cx, cy, most));
            }
        }
        let mut memory = rig.memory();
        let image = memory.room::<i32>(w * h);
        let values = [
            image.pointer(),
            Value::I32(int(w)),
            Value::I32(int(h)),
            Value::F64(x0),
            Value::F64(y0),
            Value::F64(step),
            Value::I32(most),
        ];
        rig.launch(&program, grid(w, h, block), &values, &memory);
        assert_same(&memory.read(image), &want, (w, h, block, most));
    }
}
