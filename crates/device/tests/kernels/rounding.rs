//! Sums, fused sums, quotients and roots of 32-bit floats in every rounding mode, at ties, at cancellation, and
//! where results become subnormal or infinite.

use std::cmp::Ordering;

use device::Value;

use super::count;
use crate::harness::{Case, Random, Rig, Shape, assert_same, every, kernels};

pub(crate) const CASES: &[Case] = &[
    every("rounding::nearest", nearest),
    every("rounding::directed", directed),
];

/// Results of the kernel for each thread.
const RESULTS: usize = 13;

/// A number of random bits whose exponent is within `span` of 1.
fn number(random: &mut Random, span: u32) -> f32 {
    let word = random.word();
    let exponent = 127 - span + random.word() % (2 * span + 1);
    f32::from_bits(word & 0x807F_FFFF | exponent << 23)
}

/// A power of two, as far as it is a normal number.
fn power(exponent: i32) -> f32 {
    let biased = (exponent + 127).clamp(1, 254).cast_unsigned();
    f32::from_bits(biased << 23)
}

/// A product so near half a unit of c that an `f64` cannot hold the difference once c is added: (1 + d)(1 - d) for
/// a small d. Who rounds to `f64` first takes the sum for a tie.
fn near_tie(random: &mut Random, c: f32) -> [f32; 3] {
    let exponent = (c.to_bits() >> 23 & 0xFF).cast_signed() - 127;
    let steps = 1 + random.word() % 300;
    let one = 1_f32.to_bits();
    let above = f32::from_bits(one + steps) * power(-12);
    // Below 1, numbers lie half as far apart.
    let below = f32::from_bits(one - 2 * steps) * power(exponent - 12);
    let sign = if random.word().is_multiple_of(2) {
        1.0
    } else {
        -1.0
    };
    [above * sign, below, c]
}

/// Groups of a, b, c. In most, c is near -a * b, or as much larger than the product that its bits decide how c is
/// rounded: sums cancel or tie.
fn inputs(span: u32, groups: usize) -> Vec<[f32; 3]> {
    let mut random = Random::new(42);
    (0..groups)
        .map(|index| {
            let [a, b, c] = std::array::from_fn(|_| number(&mut random, span));
            let above = i32::from(random.bytes(1)[0] % 4);
            match index % 5 {
                0 => [a, b, c],
                1 => [a, b, -(a * b)],
                2 => [a, b, -(a * b).next_up()],
                3 => [a, b, a * b * power(above * 8)],
                _ => near_tie(&mut random, c),
            }
        })
        .collect()
}

fn results(rig: &Rig, inputs: &[[f32; 3]]) -> Vec<[f32; RESULTS]> {
    let program = rig.load(&kernels("rounding"), "rounding");
    let mut memory = rig.memory();
    let input = memory.place(inputs.as_flattened());
    let output = memory.room::<f32>(inputs.len() * RESULTS);
    let n = count(inputs.len());
    let values = [input.pointer(), output.pointer(), Value::U32(n)];
    rig.launch(
        &program,
        Shape::line(n.div_ceil(128), 128),
        &values,
        &memory,
    );
    let found = memory.read(output);
    found.as_chunks().0.to_vec()
}

fn nearest(rig: &Rig) {
    for span in [3, 60, 126] {
        let mut inputs = inputs(span, 20_000);
        let special = [
            0.0,
            -0.0,
            1.0,
            f32::from_bits(1),
            -f32::MIN_POSITIVE,
            f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        for a in special {
            for b in special {
                inputs.extend(special.map(|c| [a, b, c]));
            }
        }
        for (&[a, b, c], found) in inputs.iter().zip(results(rig, &inputs)) {
            let want = [a.mul_add(b, c), a + c, a / b, a.abs().sqrt()];
            let found = [found[0], found[4], found[8], found[12]];
            // Of a result that is no number only that is fixed.
            let same = |(found, want): (&f32, &f32)| found.is_nan() && want.is_nan();
            let found: Vec<f32> = found
                .iter()
                .zip(&want)
                .map(|pair| if same(pair) { *pair.1 } else { *pair.0 })
                .collect();
            assert_same(&found, &want, (a, b, c));
        }
    }
}

fn ordered(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).expect("two numbers")
}

/// How a * b + c compares with a number near it, exactly: a * b is exact in `f64`, its sum with c is taken apart into
/// what `f64` holds and the rest, and the difference to a number so near is exact too.
fn compare_sum(product: f64, c: f32, near: f32) -> Ordering {
    let c = f64::from(c);
    let sum = product + c;
    let of_product = sum - c;
    let rest = (product - of_product) + (c - (sum - of_product));
    ordered(sum - f64::from(near), -rest)
}

/// How a / b compares with a number near it, by the products, which are exact.
fn compare_quotient(a: f32, b: f32, near: f32) -> Ordering {
    let product = f64::from(near) * f64::from(b);
    let order = ordered(f64::from(a), product);
    if b > 0.0 { order } else { order.reverse() }
}

/// Checks the results toward zero, down and up by how the exact one compares with numbers near it.
fn check_directed(found: &[f32], exact: impl Fn(f32) -> Ordering, what: [f32; 3]) {
    let [zero, down, up] = [found[1], found[2], found[3]];
    assert!(exact(down).is_ge(), "{what:?}: {down} is not below");
    assert!(
        exact(down.next_up()).is_lt(),
        "{what:?}: {down} is too far below"
    );
    assert!(exact(up).is_le(), "{what:?}: {up} is not above");
    assert!(
        exact(up.next_down()).is_gt(),
        "{what:?}: {up} is too far above"
    );
    let want = if exact(0.0).is_ge() { down } else { up };
    assert_eq!(zero, want, "{what:?}: toward zero");
}

fn directed(rig: &Rig) {
    for span in [2, 20] {
        let inputs = inputs(span, 20_000);
        for (&[a, b, c], found) in inputs.iter().zip(results(rig, &inputs)) {
            let product = f64::from(a) * f64::from(b);
            check_directed(&found[..4], |near| compare_sum(product, c, near), [a, b, c]);
            check_directed(
                &found[4..8],
                |near| compare_sum(f64::from(a), c, near),
                [a, 1.0, c],
            );
            check_directed(
                &found[8..12],
                |near| compare_quotient(a, b, near),
                [a, b, 0.0],
            );
        }
    }
}
