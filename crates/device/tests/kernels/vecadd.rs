//! `c[i] = a[i] + b[i]`.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("vecadd::sizes", sizes),
    every("vecadd::special_values", special_values),
    every("vecadd::no_element", no_element),
];

fn sizes(rig: &Rig) {
    let program = rig.load(&corpus("cuda/vecadd.sm_75"), "vecadd");
    let mut random = Random::new(1);
    for (n, threads) in [
        (1, 1),
        (1, 32),
        (31, 32),
        (32, 32),
        (33, 32),
        (100, 7),
        (257, 256),
        (1000, 48),
        (1025, 1024),
        (4096, 128),
    ] {
        let a = random.floats(n, -1e3, 1e3);
        let b = random.floats(n, -1e3, 1e3);
        let mut memory = rig.memory();
        let inputs = [memory.place(&a), memory.place(&b)];
        let output = memory.room::<f32>(n);
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        let values = [
            inputs[0].pointer(),
            inputs[1].pointer(),
            output.pointer(),
            Value::I32(int(n)),
        ];
        rig.launch(&program, shape, &values, &memory);
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_same(&memory.read(output), &want, (n, threads));
        assert_same(&memory.read(inputs[0]), &a, "the first input");
        assert_same(&memory.read(inputs[1]), &b, "the second input");
    }
}

/// Infinities, zeroes of both signs and subnormal numbers are exact; of NaN only that it is one.
fn special_values(rig: &Rig) {
    let program = rig.load(&corpus("cuda/vecadd.sm_75"), "vecadd");
    let specials = [
        0.0,
        -0.0,
        1.0,
        f32::MIN_POSITIVE,
        -f32::MIN_POSITIVE / 2.0,
        f32::from_bits(1),
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::EPSILON / 2.0,
    ];
    let (a, b): (Vec<f32>, Vec<f32>) = specials
        .iter()
        .flat_map(|&a| specials.iter().map(move |&b| (a, b)))
        .unzip();
    let n = a.len();
    let mut memory = rig.memory();
    let inputs = [memory.place(&a), memory.place(&b)];
    let output = memory.room::<f32>(n);
    let values = [
        inputs[0].pointer(),
        inputs[1].pointer(),
        output.pointer(),
        Value::I32(int(n)),
    ];
    rig.launch(
        &program,
        Shape::line(count(n).div_ceil(64), 64),
        &values,
        &memory,
    );
    for (index, found) in memory.read(output).into_iter().enumerate() {
        let want = a[index] + b[index];
        assert!(
            found.to_bits() == want.to_bits() || found.is_nan() && want.is_nan(),
            "{} + {} gave {found}",
            a[index],
            b[index]
        );
    }
}

fn no_element(rig: &Rig) {
    let program = rig.load(&corpus("cuda/vecadd.sm_75"), "vecadd");
    for n in [0, -1, i32::MIN] {
        let mut memory = rig.memory();
        let buffer = memory.room::<f32>(4);
        let values = [
            buffer.pointer(),
            buffer.pointer(),
            buffer.pointer(),
            Value::I32(n),
        ];
        rig.launch(&program, Shape::line(2, 64), &values, &memory);
        assert!(memory.is_unwritten(buffer), "{n} elements");
    }
}
