//! Doubles scaled and clamped, each thread in strides of the grid.

use device::Value;

use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("grid_stride::sizes", sizes)];

fn sizes(rig: &Rig) {
    let program = rig.load(&corpus("cuda/grid_stride.sm_80"), "scale_clamp");
    let mut random = Random::new(14);
    let [factor, low, high] = [1.7, -5.0, 6.5];
    for (n, blocks, threads) in [
        (0, 1, 32),
        (1, 3, 64),
        (100, 1, 1),
        (1000, 2, 33),
        (5000, 3, 128),
        (777, 40, 20),
    ] {
        let mut data = random.doubles(n, -10.0, 10.0);
        for (value, special) in data
            .iter_mut()
            .zip([f64::INFINITY, -0.0, f64::NEG_INFINITY])
        {
            *value = special;
        }
        let want: Vec<f64> = data
            .iter()
            .map(|x| {
                let scaled = x * factor;
                if scaled < low {
                    low
                } else if scaled > high {
                    high
                } else {
                    scaled
                }
            })
            .collect();
        let mut memory = rig.memory();
        let input = memory.place(&data);
        let output = memory.room::<f64>(n);
        let values = [
            input.pointer(),
            output.pointer(),
            Value::F64(factor),
            Value::F64(low),
            Value::F64(high),
            Value::U64(n as u64),
        ];
        rig.launch(&program, Shape::line(blocks, threads), &values, &memory);
        assert_same(&memory.read(output), &want, (n, blocks, threads));
    }
}
