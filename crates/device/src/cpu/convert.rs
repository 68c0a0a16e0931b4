//! Conversions between number formats as lane functions, and the small float formats that other files compute in.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "conversions truncate, reinterpret and saturate on purpose"
)]

use super::float::{DOWN, NAN_16, NAN_F32, NEAREST, UP, ZERO, bits, narrow};
use super::lanes::lane_functions;

/// A float format narrower than f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Small {
    mantissa_bits: i32,
    bias: i32,
    /// The largest finite value.
    largest: f64,
    infinity: u32,
    nan: u32,
    sign: u32,
}

pub(super) const F16: Small = Small {
    mantissa_bits: 10,
    bias: 15,
    largest: 65_504.0,
    infinity: 0x7c00,
    nan: NAN_16,
    sign: 0x8000,
};
pub(super) const BF16: Small = Small {
    mantissa_bits: 7,
    bias: 127,
    largest: 3.389_531_389_251_535_5e38,
    infinity: 0x7f80,
    nan: NAN_16,
    sign: 0x8000,
};
/// Has no infinity: what overflows is the NaN.
pub(super) const E4M3: Small = Small {
    mantissa_bits: 3,
    bias: 7,
    largest: 448.0,
    infinity: 0x7f,
    nan: 0x7f,
    sign: 0x80,
};
pub(super) const E5M2: Small = Small {
    mantissa_bits: 2,
    bias: 15,
    largest: 57_344.0,
    infinity: 0x7c,
    nan: 0x7f,
    sign: 0x80,
};

/// A power of two, for exponents of normal numbers.
#[inline(always)]
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Rounds to a small format.
#[inline(always)]
pub(super) fn to_small(x: f64, format: Small, mode: u8) -> u32 {
    let sign = if x.is_sign_negative() { format.sign } else { 0 };
    if x.is_nan() {
        return format.nan;
    }
    let size = x.abs();
    if size.is_infinite() {
        return sign | format.infinity;
    }
    let lowest = 1 - format.bias;
    let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(lowest);
    if exponent > format.bias + 1 {
        return overflow(sign, format, mode);
    }
    // Both steps are exact but for the rounding to an integer.
    let scaled = size * power(format.mantissa_bits - exponent);
    let rounded = match mode {
        NEAREST => scaled.round_ties_even(),
        UP if sign == 0 => scaled.ceil(),
        DOWN if sign != 0 => scaled.ceil(),
        _ => scaled.floor(),
    };
    if rounded * power(exponent - format.mantissa_bits) > format.largest {
        return overflow(sign, format, mode);
    }
    let hidden = 1 << format.mantissa_bits;
    let rounded = rounded as i32;
    // A subnormal has exponent field 0; a mantissa that was rounded up to the next power carries into the field.
    let field = exponent - lowest;
    sign | (rounded + field * hidden) as u32
}

#[inline(always)]
fn overflow(sign: u32, format: Small, mode: u8) -> u32 {
    let finite = mode == ZERO || mode == UP && sign != 0 || mode == DOWN && sign == 0;
    sign | if finite {
        format.infinity - 1
    } else {
        format.infinity
    }
}

/// Rounds to a small format; what is too large becomes the largest finite value.
fn to_small_finite(x: f64, format: Small) -> u32 {
    to_small(x.clamp(-format.largest, format.largest), format, NEAREST)
}

/// Widens a small format.
pub(super) fn from_small(x: u32, format: Small) -> f32 {
    let hidden = 1 << format.mantissa_bits;
    let size = x & (format.sign - 1);
    let mantissa = (size & (hidden - 1)) as i32;
    let field = (size >> format.mantissa_bits) as i32;
    let value = if size >= format.infinity {
        if size == format.infinity && format.infinity != format.nan {
            f64::INFINITY
        } else {
            f64::NAN
        }
    } else if field == 0 {
        f64::from(mantissa) * power(1 - format.bias - format.mantissa_bits)
    } else {
        f64::from(mantissa + hidden as i32) * power(field - format.bias - format.mantissa_bits)
    };
    if value.is_nan() {
        f32::from_bits(NAN_F32)
    } else {
        (if x & format.sign == 0 { value } else { -value }) as f32
    }
}

#[inline(always)]
pub(super) fn from_f16(x: u32) -> f32 {
    let (sign, size) = ((x & 0x8000) << 16, x & 0x7fff);
    // Scaling by 2^112 moves the exponent field's bias, subnormal numbers included.
    let value = f32::from_bits(size << 13) * f32::from_bits((127 + 112) << 23);
    let value = if size >= 0x7c00 {
        f32::from_bits(0x7f80_0000 | (size & 0x3ff) << 13)
    } else {
        value
    };
    f32::from_bits(value.to_bits() | sign)
}

#[inline(always)]
pub(super) fn from_bf16(x: u32) -> f32 {
    f32::from_bits(x << 16)
}

/// `f32` to `f16`, to the nearest: the common case without the general path.
#[inline(always)]
pub(super) fn to_f16(x: f32) -> u32 {
    let sign = x.to_bits() >> 16 & 0x8000;
    let size = x.abs();
    let value = if size.is_nan() {
        return NAN_16;
    } else if size >= 65_520.0 {
        0x7c00
    } else if size < 6.103_515_6e-5 {
        // Adding 0.5 aligns the last place of the sum with f16's subnormal quantum, 2^-24.
        (size + 0.5).to_bits() - 0.5_f32.to_bits()
    } else {
        let raw = size.to_bits();
        let rounded = raw + 0xfff + (raw >> 13 & 1);
        (rounded - (112 << 23)) >> 13
    };
    sign | value
}

#[inline(always)]
fn f(x: u32) -> f32 {
    f32::from_bits(x)
}

#[inline(always)]
fn g(x: u64) -> f64 {
    f64::from_bits(x)
}

#[inline(always)]
fn s32(x: u32) -> i32 {
    x.cast_signed()
}

#[inline(always)]
fn s64(x: u64) -> i64 {
    x.cast_signed()
}

/// An f64 rounded to an integer in a direction, still as a float.
#[inline(always)]
fn integral<const MODE: u8>(x: f64) -> f64 {
    match MODE {
        ZERO => x.trunc(),
        DOWN => x.floor(),
        UP => x.ceil(),
        _ => x.round_ties_even(),
    }
}

/// An integer of more than 53 bits as f64, rounded to odd in its last place: narrowing it rounds as if once.
#[inline(always)]
fn odd_u64(x: u64) -> f64 {
    let spare = (11_u32).saturating_sub(x.leading_zeros());
    let kept = x >> spare << spare;
    let sticky = u64::from(kept != x) << spare;
    (kept | sticky) as f64
}

#[inline(always)]
fn odd_s64(x: u64) -> f64 {
    let size = odd_u64(s64(x).unsigned_abs());
    if s64(x) < 0 { -size } else { size }
}

/// An odd-rounded f64 of an integer, rounded to f64 in a direction.
fn wide_integer<const MODE: u8>(size: u64, negative: bool) -> f64 {
    let near = size as f64;
    let exact = i128::from(size);
    let gap = (near as i128) - exact;
    let towards_zero = if gap > 0 { near.next_down() } else { near };
    let away = if gap < 0 { near.next_up() } else { near };
    let value = match (MODE, negative) {
        (ZERO, _) | (DOWN, false) | (UP, true) => towards_zero,
        (DOWN, true) | (UP, false) => away,
        _ => near,
    };
    if negative { -value } else { value }
}

lane_functions! {
    zero8: (a w) -> w = a & 0xff;
    zero16: (a w) -> w = a & 0xffff;
    sign8: (a w) -> w = i32::from(a as u8 as i8) as u32;
    sign16: (a w) -> w = i32::from(a as u16 as i16) as u32;
    widen_u: (a w) -> d = u64::from(a);
    widen_s: (a w) -> d = i64::from(s32(a)) as u64;
    // Saturating integer conversions: `b` and `c` are the least and the greatest value of the destination, as 64-bit numbers.
    clamp_signed: (a d, b d, c d) -> d = s64(a).clamp(s64(b).min(s64(c)), s64(c)) as u64;
    clamp_unsigned: (a d, c d) -> d = a.min(c);

    f32_from_u32: (a w) -> w = (a as f32).to_bits();
    f32_from_s32: (a w) -> w = (s32(a) as f32).to_bits();
    f32_from_u64: (a d) -> w = (a as f32).to_bits();
    f32_from_s64: (a d) -> w = (s64(a) as f32).to_bits();
    f32_from_u32_zero: (a w) -> w = narrow::<ZERO>(f64::from(a)).to_bits();
    f32_from_u32_down: (a w) -> w = narrow::<DOWN>(f64::from(a)).to_bits();
    f32_from_u32_up: (a w) -> w = narrow::<UP>(f64::from(a)).to_bits();
    f32_from_s32_zero: (a w) -> w = narrow::<ZERO>(f64::from(s32(a))).to_bits();
    f32_from_s32_down: (a w) -> w = narrow::<DOWN>(f64::from(s32(a))).to_bits();
    f32_from_s32_up: (a w) -> w = narrow::<UP>(f64::from(s32(a))).to_bits();
    f32_from_u64_zero: (a d) -> w = narrow::<ZERO>(odd_u64(a)).to_bits();
    f32_from_u64_down: (a d) -> w = narrow::<DOWN>(odd_u64(a)).to_bits();
    f32_from_u64_up: (a d) -> w = narrow::<UP>(odd_u64(a)).to_bits();
    f32_from_s64_zero: (a d) -> w = narrow::<ZERO>(odd_s64(a)).to_bits();
    f32_from_s64_down: (a d) -> w = narrow::<DOWN>(odd_s64(a)).to_bits();
    f32_from_s64_up: (a d) -> w = narrow::<UP>(odd_s64(a)).to_bits();
    f64_from_u32: (a w) -> d = f64::from(a).to_bits();
    f64_from_s32: (a w) -> d = f64::from(s32(a)).to_bits();
    f64_from_u64: (a d) -> d = (a as f64).to_bits();
    f64_from_s64: (a d) -> d = (s64(a) as f64).to_bits();
    f64_from_u64_zero: (a d) -> d = wide_integer::<ZERO>(a, false).to_bits();
    f64_from_u64_down: (a d) -> d = wide_integer::<DOWN>(a, false).to_bits();
    f64_from_u64_up: (a d) -> d = wide_integer::<UP>(a, false).to_bits();
    f64_from_s64_zero: (a d) -> d = wide_integer::<ZERO>(s64(a).unsigned_abs(), s64(a) < 0).to_bits();
    f64_from_s64_down: (a d) -> d = wide_integer::<DOWN>(s64(a).unsigned_abs(), s64(a) < 0).to_bits();
    f64_from_s64_up: (a d) -> d = wide_integer::<UP>(s64(a).unsigned_abs(), s64(a) < 0).to_bits();

    // Between f64, f32 and bf16 the payload of a NaN is kept as far as there is room.
    f64_from_f32: (a w) -> d = f64::from(f(a)).to_bits();
    f32_from_f64: (a d) -> w = (g(a) as f32).to_bits();
    f32_from_f64_zero: (a d) -> w = narrow::<ZERO>(g(a)).to_bits();
    f32_from_f64_down: (a d) -> w = narrow::<DOWN>(g(a)).to_bits();
    f32_from_f64_up: (a d) -> w = narrow::<UP>(g(a)).to_bits();
    f32_from_f16: (a w) -> w = bits(from_f16(a));
    f32_from_bf16: (a w) -> w = from_bf16(a).to_bits();
    f64_from_f16: (a w) -> d = f64::from(from_f16(a)).to_bits();
    f16_from_f32: (a w) -> w = to_f16(f(a));
    f16_from_f32_zero: (a w) -> w = to_small(f64::from(f(a)), F16, ZERO);
    f16_from_f32_down: (a w) -> w = to_small(f64::from(f(a)), F16, DOWN);
    f16_from_f32_up: (a w) -> w = to_small(f64::from(f(a)), F16, UP);
    f16_from_f64: (a d) -> w = if g(a).is_nan() {
        (a >> 48) as u32 & 0x8000 | 0x7e00 | (a >> 42) as u32 & 0x3ff
    } else {
        to_small(g(a), F16, NEAREST)
    };
    bf16_from_f32: (a w) -> w = to_small(f64::from(f(a)), BF16, NEAREST);
    bf16_from_f32_zero: (a w) -> w = to_small(f64::from(f(a)), BF16, ZERO);
    // Two numbers become one word, the first in its upper half.
    f16x2_from_f32: (a w, b w) -> w = to_f16(f(a)) << 16 | to_f16(f(b));
    f16x2_from_f32_zero: (a w, b w) -> w = to_small(f64::from(f(a)), F16, ZERO) << 16 | to_small(f64::from(f(b)), F16, ZERO);
    bf16x2_from_f32: (a w, b w) -> w = to_small(f64::from(f(a)), BF16, NEAREST) << 16 | to_small(f64::from(f(b)), BF16, NEAREST);
    bf16x2_from_f32_zero: (a w, b w) -> w = to_small(f64::from(f(a)), BF16, ZERO) << 16 | to_small(f64::from(f(b)), BF16, ZERO);
    e4m3x2_from_f32: (a w, b w) -> w = to_small_finite(f64::from(f(a)), E4M3) << 8 | to_small_finite(f64::from(f(b)), E4M3);
    e5m2x2_from_f32: (a w, b w) -> w = to_small_finite(f64::from(f(a)), E5M2) << 8 | to_small_finite(f64::from(f(b)), E5M2);
    e4m3x2_from_f16x2: (a w) -> w =
        to_small_finite(f64::from(from_f16(a >> 16)), E4M3) << 8 | to_small_finite(f64::from(from_f16(a & 0xffff)), E4M3);
    e5m2x2_from_f16x2: (a w) -> w =
        to_small_finite(f64::from(from_f16(a >> 16)), E5M2) << 8 | to_small_finite(f64::from(from_f16(a & 0xffff)), E5M2);
    f16x2_from_e4m3x2: (a w) -> w = to_f16(from_small(a >> 8 & 255, E4M3)) << 16 | to_f16(from_small(a & 255, E4M3));
    f16x2_from_e5m2x2: (a w) -> w = to_f16(from_small(a >> 8 & 255, E5M2)) << 16 | to_f16(from_small(a & 255, E5M2));

    round_f32: (a w) -> w = bits(integral::<NEAREST>(f64::from(f(a))) as f32);
    round_f32_zero: (a w) -> w = bits(integral::<ZERO>(f64::from(f(a))) as f32);
    round_f32_down: (a w) -> w = bits(integral::<DOWN>(f64::from(f(a))) as f32);
    round_f32_up: (a w) -> w = bits(integral::<UP>(f64::from(f(a))) as f32);
    round_f64: (a d) -> d = integral::<NEAREST>(g(a)).to_bits();
    round_f64_zero: (a d) -> d = integral::<ZERO>(g(a)).to_bits();
    round_f64_down: (a d) -> d = integral::<DOWN>(g(a)).to_bits();
    round_f64_up: (a d) -> d = integral::<UP>(g(a)).to_bits();
    // From an integral f64; out of range saturates. A NaN that came from f64 or goes to 64 bits gives the lowest number of the
    // signed type; `..._from_narrow` is for the others, which give zero.
    u16_from_integral: (a d) -> w = if g(a).is_nan() { 0x8000 } else { u32::from(g(a) as u16) };
    s16_from_integral: (a d) -> w = if g(a).is_nan() { 0x8000 } else { u32::from((g(a) as i16) as u16) };
    u8_from_integral: (a d) -> w = if g(a).is_nan() { 0x80 } else { u32::from(g(a) as u8) };
    s8_from_integral: (a d) -> w = if g(a).is_nan() { 0x80 } else { i32::from(g(a) as i8) as u32 };
    u32_from_integral: (a d) -> w = if g(a).is_nan() { 1 << 31 } else { g(a) as u32 };
    s32_from_integral: (a d) -> w = if g(a).is_nan() { 1 << 31 } else { (g(a) as i32) as u32 };
    u64_from_integral: (a d) -> d = if g(a).is_nan() { 1 << 63 } else { g(a) as u64 };
    s64_from_integral: (a d) -> d = if g(a).is_nan() { 1 << 63 } else { (g(a) as i64) as u64 };
    u16_from_narrow: (a d) -> w = u32::from(g(a) as u16);
    s16_from_narrow: (a d) -> w = u32::from((g(a) as i16) as u16);
    u8_from_narrow: (a d) -> w = u32::from(g(a) as u8);
    s8_from_narrow: (a d) -> w = i32::from(g(a) as i8) as u32;
    u32_from_narrow: (a d) -> w = g(a) as u32;
    s32_from_narrow: (a d) -> w = (g(a) as i32) as u32;
    s32_from_f32: (a w) -> w = (f(a) as i32) as u32;
    u32_from_f32: (a w) -> w = f(a) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_survives_a_round_trip() {
        for x in 0..=0xffff_u32 {
            let wide = from_f16(x);
            let expected = if wide.is_nan() { NAN_16 } else { x };
            assert_eq!(to_f16(wide), expected, "{x:#06x}");
            assert_eq!(
                to_small(f64::from(wide), F16, NEAREST),
                expected,
                "{x:#06x}"
            );
            assert!(wide.is_nan() || from_small(x, F16) == wide, "{x:#06x}");
        }
    }

    #[test]
    fn rounding_to_f16_agrees_between_the_fast_and_the_general_path() {
        for high in 0..=0xffff_u32 {
            for low in [
                0, 1, 0x0fff, 0x1000, 0x1001, 0x3000, 0x7fff, 0x8000, 0xf000, 0xffff,
            ] {
                let x = f32::from_bits(high << 16 | low);
                assert_eq!(to_f16(x), to_small(f64::from(x), F16, NEAREST), "{x:e}");
            }
        }
    }

    #[test]
    fn every_byte_float_survives_a_round_trip() {
        for format in [E4M3, E5M2] {
            for x in 0..=255 {
                let wide = from_small(x, format);
                if wide.is_finite() {
                    assert_eq!(to_small(f64::from(wide), format, NEAREST), x);
                }
            }
        }
        assert_eq!(to_small_finite(1e9, E4M3), 0x7e);
        assert_eq!(from_small(0x7e, E4M3), 448.0);
    }
}
