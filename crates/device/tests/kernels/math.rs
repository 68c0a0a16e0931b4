//! Functions of mathematics that nvcc brings along, and numbers narrower than f32; from five files of the corpus. Results are
//! compared with f64 within the errors that CUDA gives for its functions (Programming Guide, "Mathematical Functions").

use device::Value;

use super::narrow::{BF16, E4M3, F16, Format};
use super::{count, int};
use crate::harness::{
    About, Case, Memory, Random, Rig, Shape, assert_close, assert_same, corpus, every,
};

pub(crate) const CASES: &[Case] = &[
    every("blackscholes::blackscholes", blackscholes),
    every("fp8_convert::fp8_roundtrip", fp8_roundtrip),
    every("half_bf16::hfma2_gelu", hfma2_gelu),
    every("half_bf16::bf16_axpby", bf16_axpby),
    every("half_bf16::half_scalar", half_scalar),
    every("libm_f32::functions", libm_f32),
    every("libm_f32::special_values", libm_f32_special_values),
    every("libm_f64::libm_f64", libm_f64),
];

/// The error function: its series where that is short, else the continued fraction of its complement.
pub(crate) fn erf(x: f64) -> f64 {
    let square = x * x;
    if square < 9.0 {
        let mut term = x;
        let mut sum = x;
        for n in 1..90 {
            term *= -square / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..60)
        .rev()
        .fold(0.0, |below, n| f64::from(n) / 2.0 / (x.abs() + below));
    let complement = (-square).exp() / (x.abs() + fraction) / std::f64::consts::PI.sqrt();
    (1.0 - complement).copysign(x)
}

/// A result that is at most so many steps of f32 off.
pub(crate) fn within(value: f64, steps: f64) -> About {
    let step = f64::from(f32::EPSILON) * value.abs().max(f64::from(f32::MIN_POSITIVE));
    About {
        value,
        error: (steps + 0.5) * step,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds to f32 as the kernel does"
)]
pub(crate) fn single(value: f64) -> f32 {
    value as f32
}

fn blackscholes(rig: &Rig) {
    let program = rig.load(&corpus("cuda/blackscholes.sm_75"), "blackscholes");
    let mut random = Random::new(90);
    for (n, threads) in [(1, 32), (500, 128)] {
        let [s, k] = [(); 2].map(|()| random.floats(n, 5.0, 100.0));
        let t = random.floats(n, 0.25, 10.0);
        let (r, v) = (0.02_f32, 0.3_f32);
        let mut memory = rig.memory();
        let inputs = [&s, &k, &t].map(|of| memory.place(of));
        let outputs = [memory.room::<f32>(n), memory.room::<f32>(n)];
        let mut values: Vec<_> = inputs
            .iter()
            .chain(&outputs)
            .map(|of| of.pointer())
            .collect();
        values.extend([Value::F32(r), Value::F32(v), Value::I32(int(n))]);
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);
        let normal = |d: f64| 0.5 * (1.0 + erf(d * std::f64::consts::FRAC_1_SQRT_2));
        let (r, v) = (f64::from(r), f64::from(v));
        let (mut calls, mut puts) = (Vec::new(), Vec::new());
        for ((&s, &k), &t) in s.iter().zip(&k).zip(&t) {
            let [s, k, t] = [s, k, t].map(f64::from);
            let root = v * t.sqrt();
            let first = ((s / k).ln() + (r + 0.5 * v * v) * t) / root;
            let (second, discounted) = (first - root, k * (-r * t).exp());
            // Both terms are off by a few steps of f32, and by what arguments of about 10 are off.
            let error = 20.0 * f64::from(f32::EPSILON) * (s + k);
            let value = s * normal(first) - discounted * normal(second);
            calls.push(About { value, error });
            let value = discounted * normal(-second) - s * normal(-first);
            puts.push(About { value, error });
        }
        assert_close(&memory.read(outputs[0]), &calls, n);
        assert_close(&memory.read(outputs[1]), &puts, n);
    }
}

fn fp8_roundtrip(rig: &Rig) {
    let program = rig.load(&corpus("cuda/fp8_convert.sm_90"), "fp8_roundtrip");
    let mut x = Random::new(91).floats(400, -600.0, 600.0);
    x.extend(Random::new(92).floats(400, -0.05, 0.05));
    x.extend([
        0.0,
        -0.0,
        448.0,
        464.0,
        1e9,
        -1e9,
        1.0625,
        1.1875,
        f32::INFINITY,
    ]);
    let n = x.len();
    for scale in [1.0_f32, 0.5, 3.0] {
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let (narrow, output) = (memory.room::<u8>(n), memory.room::<f32>(n));
        let values = [
            input.pointer(),
            narrow.pointer(),
            output.pointer(),
            Value::F32(scale),
            Value::I32(int(n)),
        ];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(64), 64),
            &values,
            &memory,
        );
        // The largest is 448: what is beyond is cut off there.
        let bits = |x: &f32| E4M3.bits(f64::from(x * scale).clamp(-448.0, 448.0));
        let bits: Vec<u16> = x.iter().map(bits).collect();
        let want: Vec<u8> = bits.iter().map(|bits| bits.to_le_bytes()[0]).collect();
        assert_same(&memory.read(narrow), &want, scale);
        let want: Vec<f32> = bits
            .iter()
            .map(|&bits| single(E4M3.value(bits)) / scale)
            .collect();
        assert_same(&memory.read(output), &want, scale);
    }
}

fn rounded(format: Format, values: &[f32]) -> (Vec<u16>, Vec<f64>) {
    let bits: Vec<u16> = values.iter().map(|&x| format.bits(x.into())).collect();
    let exact = bits.iter().map(|&bits| format.value(bits)).collect();
    (bits, exact)
}

fn read(memory: &Memory, buffer: crate::harness::Buffer<u16>, format: Format) -> Vec<f32> {
    let bits = memory.read(buffer);
    bits.into_iter()
        .map(|bits| single(format.value(bits)))
        .collect()
}

fn hfma2_gelu(rig: &Rig) {
    let program = rig.load(&corpus("cuda/half_bf16.sm_80"), "hfma2_gelu");
    let mut random = Random::new(93);
    for n in [1, 300] {
        let (x_bits, x) = rounded(F16, &random.floats(2 * n, -3.0, 3.0));
        let (w_bits, w) = rounded(F16, &random.floats(2 * n, -2.0, 2.0));
        let mut memory = rig.memory();
        let (first, second) = (memory.place(&x_bits), memory.place(&w_bits));
        let output = memory.room::<u16>(2 * n);
        let values = [
            first.pointer(),
            second.pointer(),
            output.pointer(),
            Value::I32(int(n)),
        ];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(64), 64),
            &values,
            &memory,
        );
        let want: Vec<About> = x
            .iter()
            .zip(&w)
            .map(|(x, w)| {
                let v = F16.value(F16.bits(x * w + 0.5));
                let inner = f64::from(0.797_884_6_f32) * (v + f64::from(0.044_715_f32) * v.powi(3));
                let value = (0.5 * v * (1.0 + inner.tanh())).max(-1.0);
                // Rounding to f16, where a sum near zero is as exact as f32 is at 1.
                let error = 0.5 * F16.step(value) + 1e-6;
                About { value, error }
            })
            .collect();
        assert_close(&read(&memory, output, F16), &want, n);
    }
}

fn bf16_axpby(rig: &Rig) {
    let program = rig.load(&corpus("cuda/half_bf16.sm_80"), "bf16_axpby");
    let mut random = Random::new(94);
    for n in [1, 300] {
        let (x_bits, x) = rounded(BF16, &random.floats(n, -9.0, 9.0));
        let (y_bits, y) = rounded(BF16, &random.floats(n, -9.0, 9.0));
        let (a, b) = (1.7_f32, -0.3_f32);
        let mut memory = rig.memory();
        let (input, output) = (memory.place(&x_bits), memory.place(&y_bits));
        let values = [
            input.pointer(),
            output.pointer(),
            Value::F32(a),
            Value::F32(b),
            Value::I32(int(n)),
        ];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(64), 64),
            &values,
            &memory,
        );
        // One product is rounded, and fused with the other.
        let want: Vec<u16> = x
            .iter()
            .zip(&y)
            .map(|(&x, &y)| {
                let product = b * single(y);
                BF16.bits(a.mul_add(single(x), product).into())
            })
            .collect();
        assert_same(&memory.read(output), &want, n);
    }
}

fn half_scalar(rig: &Rig) {
    let program = rig.load(&corpus("cuda/half_bf16.sm_80"), "half_scalar");
    let mut random = Random::new(95);
    for n in [1, 300] {
        let (bits, x) = rounded(F16, &random.floats(n, -6.0, 20.0));
        let mut memory = rig.memory();
        let input = memory.place(&bits);
        let output = memory.room::<u16>(n);
        let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(64), 64),
            &values,
            &memory,
        );
        let round = |value: f64| F16.value(F16.bits(value));
        let want: Vec<About> = x
            .iter()
            .map(|&x| {
                let value = if x < 0.0 {
                    x.exp()
                } else {
                    round(x + round(x * x)).sqrt()
                };
                // CUDA's functions of f16 are one step off at most.
                let error = F16.step(value);
                About { value, error }
            })
            .collect();
        assert_close(&read(&memory, output, F16), &want, n);
    }
}

/// A function of `libm_f32`: its number, what it is in f64, steps of f32 that it may be off, and its arguments.
type Function = (i32, fn(f64) -> f64, f64, [f64; 2]);

const FUNCTIONS: [Function; 14] = [
    (0, f64::sin, 2.0, [-30.0, 30.0]),
    (0, f64::sin, 2.0, [1e5, 1e9]),
    (1, f64::cos, 2.0, [-30.0, 30.0]),
    (1, f64::cos, 2.0, [-1e30, -1e20]),
    (2, f64::exp, 2.0, [-80.0, 80.0]),
    (3, f64::ln, 1.0, [1e-3, 1e3]),
    (4, |x| x.powf(f64::from(1.7_f32)), 4.0, [1e-6, 1e6]),
    (5, f64::tanh, 2.0, [-5.0, 5.0]),
    (6, erf, 2.0, [-4.5, 4.5]),
    (7, f64::sqrt, 0.0, [0.0, 1e9]),
    (8, |x| 1.0 / x, 0.0, [1e-3, 1e3]),
    (9, |x| x.atan2(f64::from(0.3_f32)), 3.0, [-4.0, 4.0]),
    (10, |x| x % f64::from(0.7_f32), 0.0, [-300.0, 300.0]),
    (11, f64::cbrt, 1.0, [-1e6, 1e6]),
];

fn run_libm(rig: &Rig, x: &[f32], op: i32) -> Vec<f32> {
    let program = rig.load(&corpus("cuda/libm_f32.sm_75"), "libm_f32");
    let n = x.len();
    let mut memory = rig.memory();
    let input = memory.place(x);
    let output = memory.room::<f32>(n);
    let values = [
        input.pointer(),
        output.pointer(),
        Value::I32(int(n)),
        Value::I32(op),
    ];
    rig.launch(
        &program,
        Shape::line(count(n).div_ceil(64), 64),
        &values,
        &memory,
    );
    memory.read(output)
}

fn libm_f32(rig: &Rig) {
    let mut random = Random::new(96);
    for (op, function, steps, [low, high]) in FUNCTIONS {
        let x = random.floats(300, low, high);
        let want: Vec<About> = x
            .iter()
            .map(|&x| within(function(f64::from(x)), steps))
            .collect();
        assert_close(&run_libm(rig, &x, op), &want, (op, low, high));
    }
    let x = random.floats(300, -50.0, 50.0);
    let roundings = |x: &f32| x.floor() + x.ceil() + x.trunc() + x.round_ties_even();
    let want: Vec<f32> = x.iter().map(roundings).collect();
    assert_same(&run_libm(rig, &x, 12), &want, "rounding");
    let want: Vec<f32> = x.iter().map(|x| x.abs()).collect();
    assert_same(&run_libm(rig, &x, 13), &want, "absolute values");
}

/// What functions give for infinities, zeros and numbers that are none.
fn libm_f32_special_values(rig: &Rig) {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = [0.0, -0.0, inf, -inf, nan, -1.0];
    let cases: [(i32, [f32; 6]); 8] = [
        (0, [0.0, -0.0, nan, nan, nan, (-1_f32).sin()]),
        (2, [1.0, 1.0, inf, 0.0, nan, (-1_f32).exp()]),
        (3, [-inf, -inf, inf, nan, nan, nan]),
        (5, [0.0, -0.0, 1.0, -1.0, nan, (-1_f32).tanh()]),
        (6, [0.0, -0.0, 1.0, -1.0, nan, -0.842_700_8]),
        (7, [0.0, -0.0, inf, nan, nan, nan]),
        (8, [inf, -inf, 0.0, -0.0, nan, -1.0]),
        (11, [0.0, -0.0, inf, -inf, nan, -1.0]),
    ];
    for (op, want) in cases {
        for ((found, want), x) in run_libm(rig, &x, op).into_iter().zip(want).zip(x) {
            let near = (found - want).abs() <= 2.0 * f32::EPSILON * want.abs();
            let same = found == want && found.is_sign_negative() == want.is_sign_negative();
            let neither = found.is_nan() && want.is_nan();
            let exact = want == 0.0 || want.is_infinite();
            assert!(
                same || neither || near && !exact,
                "{op} of {x}: {found}, not {want}"
            );
        }
    }
}

fn libm_f64(rig: &Rig) {
    let program = rig.load(&corpus("cuda/libm_f64.sm_75"), "libm_f64");
    let mut x = Random::new(97).doubles(200, -8.0, 8.0);
    x.extend(Random::new(98).doubles(100, -1e-3, 1e-3));
    x.extend([0.0, 1e8]);
    let n = x.len();
    let mut memory = rig.memory();
    let input = memory.place(&x);
    let output = memory.room::<f64>(n);
    let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
    rig.launch(
        &program,
        Shape::line(count(n).div_ceil(64), 64),
        &values,
        &memory,
    );
    for (x, found) in x.into_iter().zip(memory.read(output)) {
        let (first, second) = (x.sin() * (-x).exp(), x.abs().ln_1p() / (1.0 + x * x).sqrt());
        // Functions of f64 are two steps off at most; a sum is as far off as its terms.
        let error = 6.0 * f64::EPSILON * (first.abs() + second.abs());
        let distance = (found - (first + second)).abs();
        assert!(distance <= error, "{x}: {found}, {distance:e} off");
    }
}
