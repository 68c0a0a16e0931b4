//! The data that a launch is made again with: as given, random, and edges. Addresses and sizes stay as they are.

use device::Value;

use crate::harness::{Argument, Image, Number, Placed, Random, Recorded};
use crate::rule::{Data, Rule};

/// Which data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variation {
    Given,
    Random(u64),
    Edges(u64),
}

impl Variation {
    pub(crate) const ALL: [Self; 7] = [
        Self::Given,
        Self::Random(1),
        Self::Random(2),
        Self::Random(3),
        Self::Edges(4),
        Self::Edges(5),
        Self::Edges(6),
    ];
}

/// What single instructions are said to treat in a way of their own.
const EDGES_F32: [u32; 20] = [
    0x7FFF_FFFF,
    0x7FC0_0000,
    0xFFC1_2345,
    0x7F80_0001,
    0x7F80_0000,
    0xFF80_0000,
    0x0000_0000,
    0x8000_0000,
    0x0000_0001,
    0x8000_0001,
    0x007F_FFFF,
    0x807F_FFFF,
    0x0080_0000,
    0x7F7F_FFFF,
    0xFF7F_FFFF,
    0x3F80_0000,
    0xBF80_0000,
    0x3F7F_FFFF,
    0x4F00_0000,
    0xCB00_0001,
];

const EDGES_F64: [u64; 16] = [
    0x7FF8_0000_0000_0000,
    0xFFF8_0000_1234_5678,
    0x7FF0_0000_0000_0000,
    0xFFF0_0000_0000_0000,
    0x0000_0000_0000_0000,
    0x8000_0000_0000_0000,
    0x0000_0000_0000_0001,
    0x800F_FFFF_FFFF_FFFF,
    0x0010_0000_0000_0000,
    0x7FEF_FFFF_FFFF_FFFF,
    0xFFEF_FFFF_FFFF_FFFF,
    0x3FF0_0000_0000_0000,
    0xBFF0_0000_0000_0000,
    0x47EF_FFFF_FFFF_FFFF,
    0x3690_0000_0000_0000,
    0x41E0_0000_0000_0000,
];

const EDGES_F16: [u16; 8] = [
    0x7FFF, 0x7C00, 0xFC00, 0x0000, 0x8000, 0x0001, 0x8400, 0x7400,
];

const EDGES_BF16: [u16; 8] = [
    0x7FFF, 0x7F80, 0xFF80, 0x0000, 0x8000, 0x0001, 0x8080, 0x6000,
];

const EDGES_OF_INTEGERS: [u64; 6] = [
    0,
    1,
    u64::MAX,
    0x8080_8080_8080_8080,
    0x7FFF_FFFF_7FFF_FFFF,
    0x8000_0000_8000_0000,
];

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.word() as usize % of.len()]
}

/// A number of any data, in three manners: near 1, of any exponent in reach of a product, any bits.
fn any(random: &mut Random, seed: u64) -> f64 {
    let size = match seed % 3 {
        0 => return random.between(-8.0, 8.0),
        1 => random.between(-40.0, 40.0).exp2(),
        _ => random.between(-150.0, 128.0).exp2(),
    };
    if random.word().is_multiple_of(2) {
        size
    } else {
        -size
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to f32 is what is wanted"
)]
fn f32_bits(value: f64) -> u32 {
    (value as f32).to_bits()
}

/// The launch with other data; `None` where the rule has none of the kind.
pub(crate) fn vary(
    call: &Recorded,
    rule: &Rule,
    variation: Variation,
) -> Option<(Image, Vec<Argument>)> {
    let mut image = call.memory.clone();
    let mut values = call.values.clone();
    let (Variation::Random(seed) | Variation::Edges(seed)) = variation else {
        return Some((image, values));
    };
    let mut random = Random::new(seed);
    let is_edges = matches!(variation, Variation::Edges(_));
    let placed = image.placed.clone();
    let filled = placed.iter().filter(|placed| !image.is_unwritten(placed));
    let filled: Vec<Placed> = filled.cloned().collect();
    match rule.data {
        Data::Given => return None,
        Data::Any => {
            let mut wide = |bytes: usize| {
                if is_edges && random.word().is_multiple_of(2) {
                    match bytes {
                        4 => u64::from(pick(&mut random, &EDGES_F32)),
                        _ => pick(&mut random, &EDGES_F64),
                    }
                } else {
                    let value = any(&mut random, seed);
                    match bytes {
                        4 => u64::from(f32_bits(value)),
                        _ => value.to_bits(),
                    }
                }
            };
            for placed in filled.iter().filter(|it| it.number != Number::Integer) {
                for number in image.bytes[placed.range.clone()].chunks_exact_mut(placed.bytes) {
                    let bits = wide(placed.bytes).to_le_bytes();
                    number.copy_from_slice(&bits[..placed.bytes]);
                }
            }
            for value in &mut values {
                if let Argument::Scalar(Value::F32(number)) = value {
                    let [a, b, c, d, ..] = wide(4).to_le_bytes();
                    *number = f32::from_le_bytes([a, b, c, d]);
                } else if let Argument::Scalar(Value::F64(number)) = value {
                    *number = f64::from_bits(wide(8));
                }
            }
        }
        Data::Within { low, high, edges } => {
            if is_edges && edges.is_empty() {
                return None;
            }
            within(&mut image, &filled, rule, &mut random, [low, high]);
            if is_edges {
                strew(&mut image, &filled, rule, &mut random, edges);
            }
        }
        Data::Integers => {
            for placed in filled.iter().filter(|it| it.number == Number::Integer) {
                for number in image.bytes[placed.range.clone()].chunks_exact_mut(placed.bytes) {
                    let bits = if is_edges {
                        pick(&mut random, &EDGES_OF_INTEGERS)
                    } else {
                        random.bits()
                    };
                    number.copy_from_slice(&bits.to_le_bytes()[..placed.bytes]);
                }
            }
        }
    }
    let is_other = image.bytes != call.memory.bytes || values != call.values;
    is_other.then_some((image, values))
}

/// Whether a buffer holds floats of 16 bits.
fn is_half(placed: &Placed, rule: &Rule) -> bool {
    placed.number == Number::Integer && placed.bytes == 2 && rule.halves.is_some()
}

/// Fills with numbers of a range.
fn within(
    image: &mut Image,
    filled: &[Placed],
    rule: &Rule,
    random: &mut Random,
    [low, high]: [f64; 2],
) {
    for placed in filled {
        for number in image.bytes[placed.range.clone()].chunks_exact_mut(placed.bytes) {
            let value = random.between(low, high);
            match placed.number {
                Number::F32 => number.copy_from_slice(&f32_bits(value).to_le_bytes()),
                Number::F64 => number.copy_from_slice(&value.to_le_bytes()),
                Number::Integer if is_half(placed, rule) => {
                    let format = rule.halves.expect("as was asked");
                    number.copy_from_slice(&format.nearest(value).to_le_bytes());
                }
                Number::Integer => {}
            }
        }
    }
}

/// Puts a few edges among the numbers of each buffer.
fn strew(image: &mut Image, filled: &[Placed], rule: &Rule, random: &mut Random, edges: &[f32]) {
    for placed in filled {
        let count = placed.range.len() / placed.bytes;
        for _ in 0..3.min(count) {
            let at = placed.range.start + random.word() as usize % count * placed.bytes;
            let edge = pick(random, edges);
            let number = &mut image.bytes[at..at + placed.bytes];
            match placed.number {
                Number::F32 => number.copy_from_slice(&edge.to_le_bytes()),
                Number::F64 => number.copy_from_slice(&f64::from(edge).to_le_bytes()),
                Number::Integer if is_half(placed, rule) => {
                    let edges = match rule.halves {
                        Some(crate::rule::Half::F16) => EDGES_F16,
                        _ => EDGES_BF16,
                    };
                    number.copy_from_slice(&pick(random, &edges).to_le_bytes());
                }
                Number::Integer => {}
            }
        }
    }
}
