//! A structure by value that holds pointers: four weighted sources added up by float atomics, in any order.

use device::Value;

use super::{count, int};
use crate::harness::{
    About, Buffer, Case, Memory, Random, Rig, Shape, assert_close, assert_same, corpus, every,
};

pub(crate) const CASES: &[Case] = &[
    every("struct_param::exact_sums", exact_sums),
    every("struct_param::rounded_sums", rounded_sums),
];

struct Blend {
    sources: [Vec<f32>; 4],
    weights: [f32; 4],
}

impl Blend {
    /// `struct P { const float* src[4]; float* dst; int n[4]; float w[4]; }`
    fn parameter(&self, memory: &mut Memory, output: Buffer<f32>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for source in &self.sources {
            let placed = memory.place(source);
            bytes.extend(memory.address(placed).to_le_bytes());
        }
        bytes.extend(memory.address(output).to_le_bytes());
        for source in &self.sources {
            bytes.extend(int(source.len()).to_le_bytes());
        }
        for weight in self.weights {
            bytes.extend(weight.to_le_bytes());
        }
        bytes
    }

    /// The terms that are added at an index, each rounded once.
    fn terms(&self, index: usize) -> impl Iterator<Item = f32> {
        let sources = self.sources.iter().zip(self.weights);
        sources.filter_map(move |(source, weight)| Some(weight * source.get(index)?))
    }

    fn run(&self, rig: &Rig, before: &[f32], threads: u32) -> Vec<f32> {
        let program = rig.load(&corpus("cuda/struct_param.sm_80"), "blend4");
        let mut memory = rig.memory();
        let output = memory.place(before);
        let parameter = self.parameter(&mut memory, output);
        let blocks = count(before.len()).div_ceil(threads);
        let shape = Shape::plane([blocks, 4], [threads, 1]);
        rig.launch(&program, shape, &[Value::Bytes(&parameter)], &memory);
        memory.read(output)
    }
}

/// Lengths of the four sources.
const LENGTHS: [usize; 4] = [100, 1, 0, 77];

/// Small multiples of 1/4: every sum is exact, so the order of additions does not show.
fn exact_sums(rig: &Rig) {
    let mut random = Random::new(15);
    let mut quarters = |count: usize| -> Vec<f32> {
        let words = random.words(count);
        words
            .iter()
            .map(|word| (word % 1000) as f32 / 4.0)
            .collect()
    };
    let blend = Blend {
        sources: LENGTHS.map(&mut quarters),
        weights: [0.5, -2.0, 1.0, 3.0],
    };
    let before = quarters(100);
    let want: Vec<f32> = (0..100)
        .map(|index| {
            blend
                .terms(index)
                .fold(before[index], |sum, term| sum + term)
        })
        .collect();
    for threads in [1, 32, 48] {
        assert_same(&blend.run(rig, &before, threads), &want, threads);
    }
}

fn rounded_sums(rig: &Rig) {
    let unit = f64::from(f32::EPSILON) / 2.0;
    let mut random = Random::new(16);
    let blend = Blend {
        sources: LENGTHS.map(|count| random.floats(count, -1.0, 1.0)),
        weights: [0.3, 0.7, 1.1, -0.9],
    };
    let before = random.floats(100, -1.0, 1.0);
    let want: Vec<About> = (0..100)
        .map(|index| {
            let terms: Vec<f64> = std::iter::once(before[index])
                .chain(blend.terms(index))
                .map(f64::from)
                .collect();
            let size: f64 = terms.iter().map(|term| term.abs()).sum();
            About {
                value: terms.iter().sum(),
                error: unit * size * (terms.len() - 1) as f64,
            }
        })
        .collect();
    assert_close(&blend.run(rig, &before, 64), &want, "rounded");
}
