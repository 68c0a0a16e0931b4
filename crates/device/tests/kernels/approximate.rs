//! Instructions whose results PTX bounds and does not fix, one a kernel, against `f64` within the bounds that the PTX manual gives.

use device::Value;

use super::count;
use crate::harness::{About, Case, Random, Rig, Shape, assert_close, every, kernels};

pub(crate) const CASES: &[Case] = &[every("approximate::within_bounds", within_bounds)];

/// How far from the exact result an instruction may be.
#[derive(Clone, Copy)]
enum Error {
    Absolute(f64),
    /// Of the result.
    Relative(f64),
    /// In units of the last place of the result.
    Places(f64),
}

/// An instruction on numbers from `low` to `high`, which lie evenly or, where both are above 0, so that each power of two has as
/// many.
struct Function {
    entry: &'static str,
    of: fn(f64, f64) -> f64,
    from: [f64; 2],
    error: Error,
}

const fn function(
    entry: &'static str,
    of: fn(f64, f64) -> f64,
    from: [f64; 2],
    error: Error,
) -> Function {
    Function {
        entry,
        of,
        from,
        error,
    }
}

const FUNCTIONS: [Function; 15] = [
    function("ex2", |a, _| a.exp2(), [-125.0, 127.0], Error::Places(2.0)),
    function("ex2", |a, _| a.exp2(), [-0.5, 0.5], Error::Places(2.0)),
    function(
        "ex2_flushing",
        |a, _| a.exp2(),
        [-125.0, 127.0],
        Error::Places(2.0),
    ),
    function("lg2", |a, _| a.log2(), [0.5, 2.0], Error::Absolute(LG2)),
    function("lg2", |a, _| a.log2(), [2.0, 1e30], Error::Relative(LG2)),
    function("lg2", |a, _| a.log2(), [1e-30, 0.5], Error::Relative(LG2)),
    function("sin", |a, _| a.sin(), [-TURN, TURN], Error::Absolute(SINE)),
    function("cos", |a, _| a.cos(), [-TURN, TURN], Error::Absolute(SINE)),
    function(
        "rsqrt",
        |a, _| 1.0 / a.sqrt(),
        [1e-30, 1e30],
        Error::Relative(1.277_7e-7),
    ),
    function("rcp", |a, _| 1.0 / a, [1e-30, 1e30], Error::Places(1.0)),
    function(
        "sqrt",
        |a, _| a.sqrt(),
        [1e-30, 1e30],
        Error::Relative(1.192_1e-7),
    ),
    function(
        "tanh",
        |a, _| a.tanh(),
        [-5.0, 5.0],
        Error::Relative(4.882_9e-4),
    ),
    function("div", |a, b| a / b, [1e-15, 1e15], Error::Places(2.0)),
    function("div_full", |a, b| a / b, [1e-15, 1e15], Error::Places(2.0)),
    function("div_full", |a, b| a / b, [-9.0, 9.0], Error::Places(2.0)),
];

/// 2^-22.
const LG2: f64 = 2.384_2e-7;
/// 2^-20.5.
const SINE: f64 = 6.743_6e-7;
const TURN: f64 = std::f64::consts::TAU;

fn within_bounds(rig: &Rig) {
    let text = kernels("approximate");
    let mut random = Random::new(130);
    let n = 2000;
    for function in FUNCTIONS {
        let [low, high] = function.from;
        let numbers = if low > 0.0 {
            let exponents = random.floats(2 * n, low.log2(), high.log2());
            exponents.into_iter().map(f32::exp2).collect()
        } else {
            random.floats(2 * n, low, high)
        };
        let program = rig.load(&text, function.entry);
        let mut memory = rig.memory();
        let input = memory.place(&numbers);
        let output = memory.room::<f32>(n);
        let values = [input.pointer(), output.pointer(), Value::U32(count(n))];
        rig.launch(
            &program,
            Shape::line(count(n).div_ceil(128), 128),
            &values,
            &memory,
        );
        let want: Vec<About> = numbers
            .chunks(2)
            .map(|of| {
                let value = (function.of)(of[0].into(), of[1].into());
                let error = match function.error {
                    Error::Absolute(error) => error,
                    Error::Relative(error) => error * value.abs(),
                    Error::Places(places) => places * f64::from(f32::EPSILON) * power(value),
                };
                About { value, error }
            })
            .collect();
        assert_close(&memory.read(output), &want, (function.entry, low, high));
    }
}

/// The power of two at or below the magnitude of a number.
fn power(value: f64) -> f64 {
    value.abs().log2().floor().exp2()
}
