//! Float arithmetic as lane functions. Results are what PTX defines: NaN results of f32 and narrower are the canonical
//! one, approximate functions are computed in f64 and rounded once.
#![expect(
    clippy::cast_possible_truncation,
    reason = "narrowing f64 to f32 is the rounding step of every function here"
)]

use super::convert::{BF16, F16, from_bf16, from_f16, to_small};
use super::lanes::{lane_function, lane_functions};

/// The NaN that f32 instructions give (PTX ISA, "Floating-Point Instructions").
pub(super) const NAN_F32: u32 = 0x7fff_ffff;
/// The NaN that f16 and bf16 instructions give.
pub(super) const NAN_16: u32 = 0x7fff;

#[inline(always)]
fn f(x: u32) -> f32 {
    f32::from_bits(x)
}

#[inline(always)]
fn g(x: u64) -> f64 {
    f64::from_bits(x)
}

/// Bits of an f32 result.
#[inline(always)]
pub(super) fn bits(x: f32) -> u32 {
    if x.is_nan() { NAN_F32 } else { x.to_bits() }
}

/// Directions of rounding: to the nearest with ties to even, towards zero, down and up.
pub(super) const NEAREST: u8 = 0;
pub(super) const ZERO: u8 = 1;
pub(super) const DOWN: u8 = 2;
pub(super) const UP: u8 = 3;

/// A sum of two f64 rounded to odd: what is rounded again to f32, in any direction, is as if rounded once.
#[inline(always)]
pub(super) fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // Knuth's two-sum: `sum + error` is exactly `a + b`.
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    to_odd(sum, error)
}

#[inline(always)]
fn to_odd(value: f64, error: f64) -> f64 {
    let odd = value.to_bits();
    if error == 0.0 || !error.is_finite() || odd & 1 == 1 {
        return value;
    }
    let outwards = (error > 0.0) == (value > 0.0);
    f64::from_bits(if outwards { odd + 1 } else { odd - 1 })
}

/// Rounds an f64 to f32 in a direction.
#[inline(always)]
pub(super) fn narrow<const MODE: u8>(x: f64) -> f32 {
    let near = x as f32;
    if MODE == NEAREST || near.is_nan() {
        return near;
    }
    let wide = f64::from(near);
    match MODE {
        ZERO if wide.abs() > x.abs() => f32::from_bits(near.to_bits() - 1),
        DOWN if wide > x => near.next_down(),
        UP if wide < x => near.next_up(),
        _ => near,
    }
}

/// Of the low half of an f64: the bits that an f32 has no room for, and what they are at a tie between two f32.
const DROPPED: u32 = (1 << 29) - 1;
const TIE: u32 = 1 << 28;

/// `a * b + c` rounded once.
#[inline(always)]
pub(super) fn fused(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(target_feature = "fma") {
        return a.mul_add(b, c);
    }
    // The product is exact, so only the sum's rounding to f64 could spoil the rounding to f32, and only at a tie.
    narrow::<NEAREST>(sum_to_odd(f64::from(a) * f64::from(b), f64::from(c)))
}

// `fma.rn.f32`. Where it is not one step, lanes whose f64 sum is neither near a tie of f32 nor tiny need no correction, so nearly all do the plain sum.
lane_function! { fma_f32<FUSED>(regs, slots, mask) {
    let a = &regs.w[usize::from(slots.a)];
    let b = &regs.w[usize::from(slots.b)];
    let c = &regs.w[usize::from(slots.c)];
    let mut result = [0_u32; super::code::LANES];
    if FUSED {
        for lane in 0..super::code::LANES {
            result[lane] = bits(f(a[lane]).mul_add(f(b[lane]), f(c[lane])));
        }
    } else {
        // Ties of subnormal results lie elsewhere. Sums so small that they become zero are exact, so zeros are in no doubt.
        let mut doubtful = 0;
        for lane in 0..super::code::LANES {
            let sum = f64::from(f(a[lane])) * f64::from(f(b[lane])) + f64::from(f(c[lane]));
            let near = sum as f32;
            let tie = u32::from(sum.to_bits() as u32 & DROPPED == TIE);
            let small = u32::from(near.abs() < f32::MIN_POSITIVE) & u32::from(near != 0.0);
            doubtful |= tie | small;
            result[lane] = bits(near);
        }
        if doubtful != 0 {
            for lane in 0..super::code::LANES {
                result[lane] = bits(fused(f(a[lane]), f(b[lane]), f(c[lane])));
            }
        }
    }
    super::lanes::blend(&mut regs.w[usize::from(slots.d)], mask, &result);
} }

/// The smaller number; a NaN counts as missing, -0 is below +0.
#[inline(always)]
fn min_f32(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        b
    } else if a < b || b.is_nan() {
        a
    } else if b < a {
        b
    } else {
        f(a.to_bits() | b.to_bits())
    }
}

#[inline(always)]
fn max_f32(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        b
    } else if a > b || b.is_nan() {
        a
    } else if b > a {
        b
    } else {
        f(a.to_bits() & b.to_bits())
    }
}

#[inline(always)]
fn min_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if a < b || b.is_nan() {
        a
    } else if b < a {
        b
    } else {
        g(a.to_bits() | b.to_bits())
    }
}

#[inline(always)]
fn max_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if a > b || b.is_nan() {
        a
    } else if b > a {
        b
    } else {
        g(a.to_bits() & b.to_bits())
    }
}

/// A subnormal number becomes zero of its sign.
#[inline(always)]
fn flushed(x: u32) -> u32 {
    if x & 0x7f80_0000 == 0 {
        x & 0x8000_0000
    } else {
        x
    }
}

/// The value in 0 to 1 that is nearest; NaN gives zero.
#[inline(always)]
fn saturated(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// `rcp.approx.ftz.f64` and its kin give the upper half of a number only.
#[inline(always)]
fn upper_half(x: f64) -> u64 {
    const HALF: u64 = 1 << 31;
    if x.is_nan() {
        0x7fff_ffff_0000_0000
    } else if x.is_infinite() {
        x.to_bits()
    } else {
        (x.to_bits() + HALF) & !0xffff_ffff
    }
}

#[inline(always)]
fn flushed64(x: u64) -> f64 {
    g(if x & 0x7ff0_0000_0000_0000 == 0 {
        x & 1 << 63
    } else {
        x
    })
}

lane_functions! {
    add_f32: (a w, b w) -> w = bits(f(a) + f(b));
    add_f32_zero: (a w, b w) -> w = bits(narrow::<ZERO>(sum_to_odd(f64::from(f(a)), f64::from(f(b)))));
    add_f32_down: (a w, b w) -> w = bits(sum_down(f64::from(f(a)), f64::from(f(b))));
    add_f32_up: (a w, b w) -> w = bits(narrow::<UP>(sum_to_odd(f64::from(f(a)), f64::from(f(b)))));
    sub_f32: (a w, b w) -> w = bits(f(a) - f(b));
    mul_f32: (a w, b w) -> w = bits(f(a) * f(b));
    mul_f32_zero: (a w, b w) -> w = bits(narrow::<ZERO>(f64::from(f(a)) * f64::from(f(b))));
    mul_f32_down: (a w, b w) -> w = bits(narrow::<DOWN>(f64::from(f(a)) * f64::from(f(b))));
    mul_f32_up: (a w, b w) -> w = bits(narrow::<UP>(f64::from(f(a)) * f64::from(f(b))));
    fma_f32_zero: (a w, b w, c w) -> w = bits(narrow::<ZERO>(sum_to_odd(f64::from(f(a)) * f64::from(f(b)), f64::from(f(c)))));
    fma_f32_down: (a w, b w, c w) -> w = bits(sum_down(f64::from(f(a)) * f64::from(f(b)), f64::from(f(c))));
    fma_f32_up: (a w, b w, c w) -> w = bits(narrow::<UP>(sum_to_odd(f64::from(f(a)) * f64::from(f(b)), f64::from(f(c)))));
    div_f32: (a w, b w) -> w = bits(f(a) / f(b));
    // The f64 quotient and root of f32 numbers are closer to the exact ones than any f32 number is, unless exact.
    div_f32_approximate: (a w, b w) -> w = bits(approximate_quotient(f(a), f(b)));
    div_f32_zero: (a w, b w) -> w = bits(narrow::<ZERO>(f64::from(f(a)) / f64::from(f(b))));
    div_f32_down: (a w, b w) -> w = bits(narrow::<DOWN>(f64::from(f(a)) / f64::from(f(b))));
    div_f32_up: (a w, b w) -> w = bits(narrow::<UP>(f64::from(f(a)) / f64::from(f(b))));
    rcp_f32: (a w) -> w = bits(1.0 / f(a));
    rcp_f32_zero: (a w) -> w = bits(narrow::<ZERO>(1.0 / f64::from(f(a))));
    rcp_f32_down: (a w) -> w = bits(narrow::<DOWN>(1.0 / f64::from(f(a))));
    rcp_f32_up: (a w) -> w = bits(narrow::<UP>(1.0 / f64::from(f(a))));
    sqrt_f32: (a w) -> w = bits(f(a).sqrt());
    sqrt_f32_zero: (a w) -> w = bits(narrow::<ZERO>(f64::from(f(a)).sqrt()));
    sqrt_f32_down: (a w) -> w = bits(narrow::<DOWN>(f64::from(f(a)).sqrt()));
    sqrt_f32_up: (a w) -> w = bits(narrow::<UP>(f64::from(f(a)).sqrt()));
    rsqrt_f32: (a w) -> w = bits((1.0 / f64::from(f(a)).sqrt()) as f32);
    sin_f32: (a w) -> w = bits(f64::from(f(a)).sin() as f32);
    cos_f32: (a w) -> w = bits(f64::from(f(a)).cos() as f32);
    tanh_f32: (a w) -> w = bits(f64::from(f(a)).tanh() as f32);
    log2_f32: (a w) -> w = bits(f64::from(f(a)).log2() as f32);
    exp2_f32: (a w) -> w = bits(f64::from(f(a)).exp2() as f32);
    abs_f32: (a w) -> w = bits(f(a & 0x7fff_ffff));
    neg_f32: (a w) -> w = bits(f(a ^ 0x8000_0000));
    min_f32_lanes: (a w, b w) -> w = bits(min_f32(f(a), f(b)));
    max_f32_lanes: (a w, b w) -> w = bits(max_f32(f(a), f(b)));
    min_f32_nan: (a w, b w) -> w = if f(a).is_nan() || f(b).is_nan() { NAN_F32 } else { bits(min_f32(f(a), f(b))) };
    max_f32_nan: (a w, b w) -> w = if f(a).is_nan() || f(b).is_nan() { NAN_F32 } else { bits(max_f32(f(a), f(b))) };
    flush_f32: (a w) -> w = flushed(a);
    flush_quiet_f32: (a w) -> w = bits(f(flushed(a)));
    saturate_f32: (a w) -> w = saturated(f(a)).to_bits();
    copy_sign_f32: (a w, b w) -> w = b & 0x7fff_ffff | a & 0x8000_0000;

    add_f64: (a d, b d) -> d = (g(a) + g(b)).to_bits();
    // Of two NaN the subtrahend is passed on; of three the second factor, then the addend.
    sub_f64: (a d, b d) -> d = if g(b).is_nan() { b | QUIET } else { (g(a) - g(b)).to_bits() };
    mul_f64: (a d, b d) -> d = (g(a) * g(b)).to_bits();
    fma_f64: (a d, b d, c d) -> d = if g(b).is_nan() {
        b | QUIET
    } else if g(c).is_nan() {
        c | QUIET
    } else {
        g(a).mul_add(g(b), g(c)).to_bits()
    };
    div_f64: (a d, b d) -> d = (g(a) / g(b)).to_bits();
    rcp_f64: (a d) -> d = (1.0 / g(a)).to_bits();
    sqrt_f64: (a d) -> d = g(a).sqrt().to_bits();
    rcp_f64_upper: (a d) -> d = upper_half(1.0 / flushed64(a));
    rsqrt_f64_upper: (a d) -> d = upper_half(1.0 / flushed64(a).sqrt());
    abs_f64: (a d) -> d = if g(a).is_nan() { a | QUIET } else { a & !(1 << 63) };
    neg_f64: (a d) -> d = if g(a).is_nan() { a | QUIET } else { a ^ 1 << 63 };
    min_f64_lanes: (a d, b d) -> d = min_f64(g(a), g(b)).to_bits();
    max_f64_lanes: (a d, b d) -> d = max_f64(g(a), g(b)).to_bits();
    copy_sign_f64: (a d, b d) -> d = b & !(1 << 63) | a & 1 << 63;

    eq_f32: (a w, b w) -> p = f(a) == f(b);
    ne_f32: (a w, b w) -> p = f(a) < f(b) || f(a) > f(b);
    lt_f32: (a w, b w) -> p = f(a) < f(b);
    le_f32: (a w, b w) -> p = f(a) <= f(b);
    unordered_f32: (a w, b w) -> p = f(a).is_nan() || f(b).is_nan();
    eq_f64: (a d, b d) -> p = g(a) == g(b);
    ne_f64: (a d, b d) -> p = g(a) < g(b) || g(a) > g(b);
    lt_f64: (a d, b d) -> p = g(a) < g(b);
    le_f64: (a d, b d) -> p = g(a) <= g(b);
    unordered_f64: (a d, b d) -> p = g(a).is_nan() || g(b).is_nan();
    finite_f32: (a w) -> p = f(a).is_finite();
    infinite_f32: (a w) -> p = f(a).is_infinite();
    nan_f32: (a w) -> p = f(a).is_nan();
    normal_f32: (a w) -> p = f(a).is_normal() || f(a) == 0.0;
    subnormal_f32: (a w) -> p = f(a).is_subnormal();
    finite_f64: (a d) -> p = g(a).is_finite();
    infinite_f64: (a d) -> p = g(a).is_infinite();
    nan_f64: (a d) -> p = g(a).is_nan();
    normal_f64: (a d) -> p = g(a).is_normal() || g(a) == 0.0;
    subnormal_f64: (a d) -> p = g(a).is_subnormal();
}

/// A sum rounded down; an exact zero of numbers that are not both +0 is -0.
#[inline(always)]
fn sum_down(a: f64, b: f64) -> f32 {
    let sum = sum_to_odd(a, b);
    if sum == 0.0 && (a.is_sign_negative() || b.is_sign_negative()) {
        -0.0
    } else {
        narrow::<DOWN>(sum)
    }
}

/// `div.approx` multiplies by the reciprocal, which is lost where the divisor is above 2^126 (PTX ISA, `div`).
#[inline(always)]
fn approximate_quotient(a: f32, b: f32) -> f32 {
    let largest = f32::from_bits((127 + 126) << 23);
    if b.abs() > largest && b.is_finite() {
        a * (0.0_f32).copysign(b)
    } else {
        a / b
    }
}

/// A NaN as an f64 instruction passes it on.
const QUIET: u64 = 1 << 51;

/// A half of two as a number.
#[inline(always)]
fn half<const BF: bool>(x: u32) -> f32 {
    if BF { from_bf16(x) } else { from_f16(x) }
}

/// Rounds a result to half precision; what is exact in f64, or rounded there to odd, is rounded once.
#[inline(always)]
pub(super) fn to_half<const BF: bool>(x: f64) -> u32 {
    to_small(x, if BF { BF16 } else { F16 }, NEAREST)
}

#[inline(always)]
fn fused_half<const BF: bool>(a: u32, b: u32, c: u32) -> u32 {
    let product = f64::from(half::<BF>(a)) * f64::from(half::<BF>(b));
    to_half::<BF>(sum_to_odd(product, f64::from(half::<BF>(c))))
}

#[inline(always)]
pub(super) fn sum_half<const BF: bool>(a: u32, b: u32) -> u32 {
    to_half::<BF>(sum_to_odd(
        f64::from(half::<BF>(a)),
        f64::from(half::<BF>(b)),
    ))
}

#[inline(always)]
fn product_half<const BF: bool>(a: u32, b: u32) -> u32 {
    to_half::<BF>(f64::from(half::<BF>(a)) * f64::from(half::<BF>(b)))
}

/// The chosen operand of a minimum or maximum keeps its bits.
#[inline(always)]
fn extreme_half<const BF: bool>(a: u32, b: u32, pick: impl Fn(f32, f32) -> f32) -> u32 {
    to_half::<BF>(f64::from(pick(half::<BF>(a), half::<BF>(b))))
}

/// Applies a function to both halves of packed words.
#[inline(always)]
pub(super) fn both(a: u32, b: u32, c: u32, of: impl Fn(u32, u32, u32) -> u32) -> u32 {
    of(a & 0xffff, b & 0xffff, c & 0xffff) | of(a >> 16, b >> 16, c >> 16) << 16
}

/// Defines the instructions of both half-precision formats, single and packed.
macro_rules! half_functions {
    ($($single:ident, $packed:ident, $bf_single:ident, $bf_packed:ident: $function:ident($a:ident, $b:ident, $c:ident) = $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $function<const BF: bool>($a: u32, $b: u32, $c: u32) -> u32 {
                $body
            }
        )*
        lane_functions! {$(
            $single: (a w, b w, c w) -> w = $function::<false>(a, b, c);
            $packed: (a w, b w, c w) -> w = both(a, b, c, $function::<false>);
            $bf_single: (a w, b w, c w) -> w = $function::<true>(a, b, c);
            $bf_packed: (a w, b w, c w) -> w = both(a, b, c, $function::<true>);
        )*}
    };
}

half_functions! {
    add_f16, add_f16x2, add_bf16, add_bf16x2: add_halves(a, b, _c) = sum_half::<BF>(a, b);
    sub_f16, sub_f16x2, sub_bf16, sub_bf16x2: sub_halves(a, b, _c) = sum_half::<BF>(a, b ^ 0x8000);
    mul_f16, mul_f16x2, mul_bf16, mul_bf16x2: mul_halves(a, b, _c) = product_half::<BF>(a, b);
    fma_f16, fma_f16x2, fma_bf16, fma_bf16x2: fma_halves(a, b, c) = fused_half::<BF>(a, b, c);
    min_f16, min_f16x2, min_bf16, min_bf16x2: min_halves(a, b, _c) = extreme_half::<BF>(a, b, min_f32);
    max_f16, max_f16x2, max_bf16, max_bf16x2: max_halves(a, b, _c) = extreme_half::<BF>(a, b, max_f32);
    neg_f16, neg_f16x2, neg_bf16, neg_bf16x2: neg_halves(a, _b, _c) =
        if half::<BF>(a).is_nan() { NAN_16 } else { (a ^ 0x8000) & 0xffff };
    abs_f16, abs_f16x2, abs_bf16, abs_bf16x2: abs_halves(a, _b, _c) =
        if half::<BF>(a).is_nan() { NAN_16 } else { a & 0x7fff };
    exp2_f16, exp2_f16x2, exp2_bf16, exp2_bf16x2: exp2_halves(a, _b, _c) = to_half::<BF>(f64::from(half::<BF>(a)).exp2());
    tanh_f16, tanh_f16x2, tanh_bf16, tanh_bf16x2: tanh_halves(a, _b, _c) = to_half::<BF>(f64::from(half::<BF>(a)).tanh());
    relu_f16, relu_f16x2, relu_bf16, relu_bf16x2: relu_halves(a, _b, _c) =
        if half::<BF>(a).is_nan() { NAN_16 } else if half::<BF>(a) > 0.0 { a } else { 0 };
    saturate_f16, saturate_f16x2, saturate_bf16, saturate_bf16x2: saturate_halves(a, _b, _c) =
        to_half::<BF>(f64::from(saturated(half::<BF>(a))));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of every magnitude, from a fixed sequence.
    fn samples() -> impl Iterator<Item = f32> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            f((state >> 32) as u32)
        })
    }

    #[test]
    fn fused_multiply_add_is_rounded_once() {
        let mut numbers = samples().filter(|x| x.is_finite());
        for _ in 0..200_000 {
            let (a, b, c) = (
                numbers.next().unwrap(),
                numbers.next().unwrap(),
                numbers.next().unwrap(),
            );
            for c in [c, -(a * b), f((a * b).to_bits() ^ 1), a] {
                let (ours, exact) = (
                    narrow::<NEAREST>(sum_to_odd(f64::from(a) * f64::from(b), f64::from(c))),
                    a.mul_add(b, c),
                );
                assert!(
                    ours.to_bits() == exact.to_bits() || ours.is_nan() && exact.is_nan(),
                    "{a:e} * {b:e} + {c:e}: {ours:e}, {exact:e}"
                );
            }
        }
    }

    #[test]
    fn directed_sums_enclose_the_exact_one() {
        let mut numbers = samples().filter(|x| x.is_finite());
        for _ in 0..100_000 {
            let (a, b) = (numbers.next().unwrap(), numbers.next().unwrap());
            let odd = sum_to_odd(f64::from(a), f64::from(b));
            let (down, up) = (narrow::<DOWN>(odd), narrow::<UP>(odd));
            let near = a + b;
            assert!(down <= near && near <= up, "{a:e} + {b:e}");
            assert!(down == up || down.next_up() == up, "{a:e} + {b:e}");
            let zero = narrow::<ZERO>(odd);
            assert!(zero == if near > 0.0 { down } else { up }, "{a:e} + {b:e}");
        }
    }
}
