//! Integer, logic, comparison and selection instructions as lane functions. No float arithmetic, no memory.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "PTX integers are bit patterns: instructions reinterpret and truncate them on purpose"
)]

use super::lanes::{carry_functions, lane_function, lane_functions};
use super::memory::PEER_BYTES;

/// A 16-bit register as a signed number.
#[inline(always)]
fn s16(x: u32) -> i32 {
    i32::from(x as u16 as i16)
}

#[inline(always)]
fn low16(x: u32) -> u32 {
    x & 0xffff
}

#[inline(always)]
fn s32(x: u32) -> i32 {
    x.cast_signed()
}

#[inline(always)]
fn s64(x: u64) -> i64 {
    x.cast_signed()
}

/// High half of a product.
#[inline(always)]
fn high_u32(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

#[inline(always)]
fn high_s32(a: u32, b: u32) -> u32 {
    ((i64::from(s32(a)) * i64::from(s32(b))) >> 32) as u32
}

#[inline(always)]
fn high_u64(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

#[inline(always)]
fn high_s64(a: u64, b: u64) -> u64 {
    ((i128::from(s64(a)) * i128::from(s64(b))) >> 64) as u64
}

/// A 24-bit operand of `mul24` and `mad24`.
#[inline(always)]
fn u24(x: u32) -> u64 {
    u64::from(x & 0x00ff_ffff)
}

#[inline(always)]
fn s24(x: u32) -> i64 {
    i64::from(s32(x << 8) >> 8)
}

/// The address that a block of the cluster has at `address` in shared memory; ranks that no cluster has lead nowhere.
fn peer(address: u64, rank: u32) -> u64 {
    const LAST: u32 = 254;
    (address & !(PEER_BYTES * 255)) | (PEER_BYTES * u64::from(rank.min(LAST) + 1))
}

/// The rank that an address in shared memory names, or that of the block itself.
fn rank(address: u64, own: u32) -> u32 {
    match (address / PEER_BYTES) as u8 {
        0 => own,
        peer => u32::from(peer) - 1,
    }
}

lane_functions! {
    map_address: (a w, b w) -> w = peer(u64::from(a), b) as u32;
    map_address64: (a d, b w) -> d = peer(a, b);
    rank_of_address: (a w, b w) -> w = rank(u64::from(a), b);
    rank_of_address64: (a d, b w) -> w = rank(a, b);
}

lane_functions! {
    move32: (a w) -> w = a;
    move64: (a d) -> d = a;
    move_predicate: (a p) -> p = a;

    add16: (a w, b w) -> w = low16(a.wrapping_add(b));
    add32: (a w, b w) -> w = a.wrapping_add(b);
    add64: (a d, b d) -> d = a.wrapping_add(b);
    add_sat32: (a w, b w) -> w = s32(a).saturating_add(s32(b)) as u32;
    sub16: (a w, b w) -> w = low16(a.wrapping_sub(b));
    sub32: (a w, b w) -> w = a.wrapping_sub(b);
    sub64: (a d, b d) -> d = a.wrapping_sub(b);
    sub_sat32: (a w, b w) -> w = s32(a).saturating_sub(s32(b)) as u32;
    mul16: (a w, b w) -> w = low16(a.wrapping_mul(b));
    mul32: (a w, b w) -> w = a.wrapping_mul(b);
    mul64: (a d, b d) -> d = a.wrapping_mul(b);
    mul_high_u16: (a w, b w) -> w = a.wrapping_mul(b) >> 16;
    mul_high_s16: (a w, b w) -> w = low16(((s16(a) * s16(b)) >> 16) as u32);
    mul_high_u32: (a w, b w) -> w = high_u32(a, b);
    mul_high_s32: (a w, b w) -> w = high_s32(a, b);
    mul_high_u64: (a d, b d) -> d = high_u64(a, b);
    mul_high_s64: (a d, b d) -> d = high_s64(a, b);
    mul_wide_u16: (a w, b w) -> w = a.wrapping_mul(b);
    mul_wide_s16: (a w, b w) -> w = (s16(a) * s16(b)) as u32;
    mul_wide_u32: (a w, b w) -> d = u64::from(a) * u64::from(b);
    mul_wide_s32: (a w, b w) -> d = (i64::from(s32(a)) * i64::from(s32(b))) as u64;
    mad16: (a w, b w, c w) -> w = low16(a.wrapping_mul(b).wrapping_add(c));
    mad32: (a w, b w, c w) -> w = a.wrapping_mul(b).wrapping_add(c);
    mad64: (a d, b d, c d) -> d = a.wrapping_mul(b).wrapping_add(c);
    mad_high_u16: (a w, b w, c w) -> w = low16((a.wrapping_mul(b) >> 16).wrapping_add(c));
    mad_high_s16: (a w, b w, c w) -> w = low16((((s16(a) * s16(b)) >> 16) as u32).wrapping_add(c));
    mad_high_u32: (a w, b w, c w) -> w = high_u32(a, b).wrapping_add(c);
    mad_high_s32: (a w, b w, c w) -> w = high_s32(a, b).wrapping_add(c);
    mad_high_sat32: (a w, b w, c w) -> w = s32(high_s32(a, b)).saturating_add(s32(c)) as u32;
    mad_high_u64: (a d, b d, c d) -> d = high_u64(a, b).wrapping_add(c);
    mad_high_s64: (a d, b d, c d) -> d = high_s64(a, b).wrapping_add(c);
    mad_wide_u16: (a w, b w, c w) -> w = a.wrapping_mul(b).wrapping_add(c);
    mad_wide_s16: (a w, b w, c w) -> w = ((s16(a) * s16(b)) as u32).wrapping_add(c);
    mad_wide_u32: (a w, b w, c d) -> d = (u64::from(a) * u64::from(b)).wrapping_add(c);
    mad_wide_s32: (a w, b w, c d) -> d = ((i64::from(s32(a)) * i64::from(s32(b))) as u64).wrapping_add(c);
    mul24_low_u: (a w, b w) -> w = (u24(a) * u24(b)) as u32;
    mul24_low_s: (a w, b w) -> w = (s24(a) * s24(b)) as u32;
    mul24_high_u: (a w, b w) -> w = ((u24(a) * u24(b)) >> 16) as u32;
    mul24_high_s: (a w, b w) -> w = ((s24(a) * s24(b)) >> 16) as u32;
    mad24_low_u: (a w, b w, c w) -> w = ((u24(a) * u24(b)) as u32).wrapping_add(c);
    mad24_low_s: (a w, b w, c w) -> w = ((s24(a) * s24(b)) as u32).wrapping_add(c);

    // Dividing by zero gives all ones, as the H200 does: PTX leaves it open.
    div_u16: (a w, b w) -> w = low16(a.checked_div(b).unwrap_or(u32::MAX));
    div_s16: (a w, b w) -> w = low16(s16(a).checked_div(s16(b)).unwrap_or(-1) as u32);
    div_u32: (a w, b w) -> w = a.checked_div(b).unwrap_or(u32::MAX);
    div_s32: (a w, b w) -> w = if b == 0 { u32::MAX } else { s32(a).wrapping_div(s32(b)) as u32 };
    div_u64: (a d, b d) -> d = a.checked_div(b).unwrap_or(u64::MAX);
    div_s64: (a d, b d) -> d = if b == 0 { u64::MAX } else { s64(a).wrapping_div(s64(b)) as u64 };
    rem_u16: (a w, b w) -> w = low16(a.checked_rem(b).unwrap_or(u32::MAX));
    rem_s16: (a w, b w) -> w = low16(s16(a).checked_rem(s16(b)).unwrap_or(-1) as u32);
    rem_u32: (a w, b w) -> w = a.checked_rem(b).unwrap_or(u32::MAX);
    rem_s32: (a w, b w) -> w = if b == 0 { u32::MAX } else { s32(a).wrapping_rem(s32(b)) as u32 };
    rem_u64: (a d, b d) -> d = a.checked_rem(b).unwrap_or(u64::MAX);
    rem_s64: (a d, b d) -> d = if b == 0 { u64::MAX } else { s64(a).wrapping_rem(s64(b)) as u64 };

    abs_s16: (a w) -> w = low16(s16(a).unsigned_abs());
    abs_s32: (a w) -> w = s32(a).unsigned_abs();
    abs_s64: (a d) -> d = s64(a).unsigned_abs();
    neg16: (a w) -> w = low16(a.wrapping_neg());
    neg32: (a w) -> w = a.wrapping_neg();
    neg64: (a d) -> d = a.wrapping_neg();
    min_s16: (a w, b w) -> w = low16(s16(a).min(s16(b)) as u32);
    min_u32: (a w, b w) -> w = a.min(b);
    min_s32: (a w, b w) -> w = s32(a).min(s32(b)) as u32;
    min_u64: (a d, b d) -> d = a.min(b);
    min_s64: (a d, b d) -> d = s64(a).min(s64(b)) as u64;
    max_s16: (a w, b w) -> w = low16(s16(a).max(s16(b)) as u32);
    max_u32: (a w, b w) -> w = a.max(b);
    max_s32: (a w, b w) -> w = s32(a).max(s32(b)) as u32;
    max_u64: (a d, b d) -> d = a.max(b);
    max_s64: (a d, b d) -> d = s64(a).max(s64(b)) as u64;
    sad_u16: (a w, b w, c w) -> w = low16(a.abs_diff(b).wrapping_add(c));
    sad_s16: (a w, b w, c w) -> w = low16(s16(a).abs_diff(s16(b)).wrapping_add(c));
    sad_u32: (a w, b w, c w) -> w = a.abs_diff(b).wrapping_add(c);
    sad_s32: (a w, b w, c w) -> w = s32(a).abs_diff(s32(b)).wrapping_add(c);
    sad_u64: (a d, b d, c d) -> d = a.abs_diff(b).wrapping_add(c);
    sad_s64: (a d, b d, c d) -> d = s64(a).abs_diff(s64(b)).wrapping_add(c);

    and32: (a w, b w) -> w = a & b;
    and64: (a d, b d) -> d = a & b;
    or32: (a w, b w) -> w = a | b;
    or64: (a d, b d) -> d = a | b;
    xor32: (a w, b w) -> w = a ^ b;
    xor64: (a d, b d) -> d = a ^ b;
    not16: (a w) -> w = low16(!a);
    not32: (a w) -> w = !a;
    not64: (a d) -> d = !a;
    cnot32: (a w) -> w = u32::from(a == 0);
    cnot64: (a d) -> d = u64::from(a == 0);

    shl16: (a w, b w) -> w = if b > 15 { 0 } else { low16(a << (b & 15)) };
    shl32: (a w, b w) -> w = if b > 31 { 0 } else { a << (b & 31) };
    shl64: (a d, b w) -> d = if b > 63 { 0 } else { a << (b & 63) };
    shr_u16: (a w, b w) -> w = if b > 15 { 0 } else { a >> (b & 15) };
    shr_u32: (a w, b w) -> w = if b > 31 { 0 } else { a >> (b & 31) };
    shr_u64: (a d, b w) -> d = if b > 63 { 0 } else { a >> (b & 63) };
    shr_s16: (a w, b w) -> w = low16((s16(a) >> b.min(15)) as u32);
    shr_s32: (a w, b w) -> w = (s32(a) >> b.min(31)) as u32;
    shr_s64: (a d, b w) -> d = (s64(a) >> b.min(63)) as u64;
    funnel_left_wrap: (a w, b w, c w) -> w = (join(a, b) << (c & 31) >> 32) as u32;
    funnel_left_clamp: (a w, b w, c w) -> w = (join(a, b) << c.min(32) >> 32) as u32;
    funnel_right_wrap: (a w, b w, c w) -> w = (join(a, b) >> (c & 31)) as u32;
    funnel_right_clamp: (a w, b w, c w) -> w = (join(a, b) >> c.min(32)) as u32;

    popc32: (a w) -> w = a.count_ones();
    popc64: (a d) -> w = a.count_ones();
    clz32: (a w) -> w = a.leading_zeros();
    clz64: (a d) -> w = a.leading_zeros();
    brev32: (a w) -> w = a.reverse_bits();
    brev64: (a d) -> d = a.reverse_bits();
    find_u32: (a w) -> w = if a == 0 { u32::MAX } else { 31 - a.leading_zeros() };
    find_s32: (a w) -> w = { let a = a ^ (s32(a) >> 31) as u32; if a == 0 { u32::MAX } else { 31 - a.leading_zeros() } };
    find_u64: (a d) -> w = if a == 0 { u32::MAX } else { 63 - a.leading_zeros() };
    find_s64: (a d) -> w = { let a = a ^ (s64(a) >> 63) as u64; if a == 0 { u32::MAX } else { 63 - a.leading_zeros() } };
    find_shift_u32: (a w) -> w = if a == 0 { u32::MAX } else { a.leading_zeros() };
    find_shift_s32: (a w) -> w = { let a = a ^ (s32(a) >> 31) as u32; if a == 0 { u32::MAX } else { a.leading_zeros() } };
    find_shift_u64: (a d) -> w = if a == 0 { u32::MAX } else { a.leading_zeros() };
    find_shift_s64: (a d) -> w = { let a = a ^ (s64(a) >> 63) as u64; if a == 0 { u32::MAX } else { a.leading_zeros() } };
    extract_u32: (a w, b w, c w) -> w = extract(u64::from(a), b, c, 32, false) as u32;
    extract_s32: (a w, b w, c w) -> w = extract(u64::from(a), b, c, 32, true) as u32;
    extract_u64: (a d, b w, c w) -> d = extract(a, b, c, 64, false);
    extract_s64: (a d, b w, c w) -> d = extract(a, b, c, 64, true);
    insert32: (a w, b w, c w, e w) -> w = insert(u64::from(a), u64::from(b), c, e, 32) as u32;
    insert64: (a d, b d, c w, e w) -> d = insert(a, b, c, e, 64);
    mask_clamp: (a w, b w) -> w = bit_mask(a, b, true);
    mask_wrap: (a w, b w) -> w = bit_mask(a, b, false);
    find_nth: (a w, b w, c w) -> w = nth_bit(a, b, s32(c));
    lookup3: (a w, b w, c w, e w) -> w = {
        let mut out = 0;
        for index in 0..8 {
            if e >> index & 1 == 1 {
                let pick = |x: u32, at: u32| if index >> at & 1 == 1 { x } else { !x };
                out |= pick(a, 2) & pick(b, 1) & pick(c, 0);
            }
        }
        out
    };
    permute: (a w, b w, c w) -> w = (0..4).fold(0, |out, at| out | permuted(join(a, b), c >> (4 * at) & 15) << (8 * at));
    permute_f4e: (a w, b w, c w) -> w = (join(a, b) >> (8 * (c & 3))) as u32;
    permute_b4e: (a w, b w, c w) -> w =
        (0..4).fold(0, |out, at| out | byte(join(a, b), (c & 3).wrapping_sub(at) & 7) << (8 * at));
    permute_rc8: (a w, b w, c w) -> w = byte(join(a, b), c & 3) * 0x0101_0101;
    permute_ecl: (a w, b w, c w) -> w = (0..4).fold(0, |out, at| out | byte(join(a, b), at.max(c & 3)) << (8 * at));
    permute_ecr: (a w, b w, c w) -> w = (0..4).fold(0, |out, at| out | byte(join(a, b), at.min(c & 3)) << (8 * at));
    permute_rc16: (a w, b w, c w) -> w = (join(a, b) >> (16 * (c & 1)) & 0xffff) as u32 * 0x0001_0001;

    dot4_uu: (a w, b w, c w) -> w = dot4(a, b, c, false, false);
    dot4_us: (a w, b w, c w) -> w = dot4(a, b, c, false, true);
    dot4_su: (a w, b w, c w) -> w = dot4(a, b, c, true, false);
    dot4_ss: (a w, b w, c w) -> w = dot4(a, b, c, true, true);
    absolute_difference4_u: (a w, b w) -> w =
        (0..4).fold(0, |out, at| out | (a >> (8 * at) & 255).abs_diff(b >> (8 * at) & 255) << (8 * at));
    absolute_difference4_add_u: (a w, b w, c w) -> w =
        (0..4).fold(c, |out, at| out.wrapping_add((a >> (8 * at) & 255).abs_diff(b >> (8 * at) & 255)));

    eq16: (a w, b w) -> p = low16(a) == low16(b);
    ne16: (a w, b w) -> p = low16(a) != low16(b);
    lt_s16: (a w, b w) -> p = s16(a) < s16(b);
    le_s16: (a w, b w) -> p = s16(a) <= s16(b);
    eq32: (a w, b w) -> p = a == b;
    ne32: (a w, b w) -> p = a != b;
    lt_u32: (a w, b w) -> p = a < b;
    le_u32: (a w, b w) -> p = a <= b;
    lt_s32: (a w, b w) -> p = s32(a) < s32(b);
    le_s32: (a w, b w) -> p = s32(a) <= s32(b);
    eq64: (a d, b d) -> p = a == b;
    ne64: (a d, b d) -> p = a != b;
    lt_u64: (a d, b d) -> p = a < b;
    le_u64: (a d, b d) -> p = a <= b;
    lt_s64: (a d, b d) -> p = s64(a) < s64(b);
    le_s64: (a d, b d) -> p = s64(a) <= s64(b);

    select32: (a w, b w, c p) -> w = if c { a } else { b };
    select64: (a d, b d, c p) -> d = if c { a } else { b };
    choose32: (a w, b w, c w) -> w = if s32(c) >= 0 { a } else { b };
    choose64: (a d, b d, c w) -> d = if s32(c) >= 0 { a } else { b };
    choose_f32: (a w, b w, c w) -> w = if f32::from_bits(c) >= 0.0 { a } else { b };
    choose_f64: (a d, b d, c w) -> d = if f32::from_bits(c) >= 0.0 { a } else { b };

    join32: (a w, b w) -> d = join(a, b);
    low32: (a d) -> w = a as u32;
    high32: (a d) -> w = (a >> 32) as u32;
    join16: (a w, b w) -> w = low16(a) | b << 16;
    low_half: (a w) -> w = low16(a);
    high_half: (a w) -> w = a >> 16;
    join8: (a w, b w) -> w = a & 255 | (b & 255) << 8;
    low_byte: (a w) -> w = a & 255;
    high_byte: (a w) -> w = a >> 8 & 255;
}

/// `{high, low}` as one number; `low` comes first as in the instructions.
#[inline(always)]
fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline(always)]
fn byte(of: u64, at: u32) -> u32 {
    (of >> (8 * (at & 7)) & 255) as u32
}

/// A byte chosen by a selector of `prmt`, whose top bit asks for its sign instead.
#[inline(always)]
fn permuted(of: u64, selector: u32) -> u32 {
    let value = byte(of, selector & 7);
    if selector & 8 == 0 {
        value
    } else if value & 128 != 0 {
        255
    } else {
        0
    }
}

/// What `bfe` and `bfi` take for position and length: 32-bit ones look at eight bits, 64-bit ones, as the H200 does them, at all.
#[inline(always)]
fn field(position: u32, length: u32, bits: u32) -> (u32, u32) {
    if bits == 32 {
        (position & 255, length & 255)
    } else {
        (position, length)
    }
}

/// `bfe`: bits past the end are the sign or zero.
#[inline(always)]
fn extract(a: u64, position: u32, length: u32, bits: u32, signed: bool) -> u64 {
    let (position, length) = field(position, length, bits);
    let top = bits - 1;
    let last = position.saturating_add(length).saturating_sub(1).min(top);
    let sign = signed && length != 0 && a >> last & 1 == 1;
    let value = if position > top { 0 } else { a >> position };
    let kept = length.min(bits.saturating_sub(position));
    let mask = if kept >= 64 {
        u64::MAX
    } else {
        (1 << kept) - 1
    };
    if sign {
        value & mask | !mask
    } else {
        value & mask
    }
}

/// `bfi`: bits of `a` over those of `b`.
#[inline(always)]
fn insert(a: u64, b: u64, position: u32, length: u32, bits: u32) -> u64 {
    let (position, length) = field(position, length, bits);
    if position >= bits || length == 0 {
        return b;
    }
    let kept = length.min(bits - position);
    let mask = if kept >= 64 {
        u64::MAX
    } else {
        (1 << kept) - 1
    } << position;
    b & !mask | a << position & mask
}

#[inline(always)]
fn bit_mask(position: u32, width: u32, clamp: bool) -> u32 {
    let (position, width) = if clamp {
        (position.min(32), width.min(32))
    } else {
        (position & 31, width & 31)
    };
    (((1_u64 << width) - 1) << position) as u32
}

/// `fns`: the `nth` set bit of `mask` from `base`, counted upwards if positive, downwards if negative.
fn nth_bit(mask: u32, base: u32, nth: i32) -> u32 {
    if nth == i32::MIN {
        return 0;
    }
    if base > 31 {
        return u32::MAX;
    }
    let step = if nth < 0 { -1 } else { 1 };
    let mut left = nth.unsigned_abs().max(1);
    let mut at = base.cast_signed();
    while (0..32).contains(&at) {
        if mask >> at & 1 == 1 {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        if nth == 0 {
            break;
        }
        at += step;
    }
    u32::MAX
}

#[inline(always)]
fn dot4(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let part = |x: u32, at: u32, signed: bool| {
        let value = (x >> (8 * at)) as u8;
        if signed {
            i32::from(value.cast_signed())
        } else {
            i32::from(value)
        }
    };
    (0..4).fold(c, |sum, at| {
        sum.wrapping_add((part(a, at, a_signed) * part(b, at, b_signed)) as u32)
    })
}

/// A sum of three as 32 bits and a carry.
#[inline(always)]
fn carried(a: u32, b: u32, carry: u32) -> (u32, bool) {
    let sum = u64::from(a) + u64::from(b) + u64::from(carry);
    (sum as u32, sum >> 32 != 0)
}

/// A difference and its carry, which is what adding the complement gives: the flag is set where nothing was borrowed. Compilers
/// read it with `addc` after `sub.cc`.
#[inline(always)]
fn differing(a: u32, b: u32, carry: u32) -> (u32, bool) {
    carried(a, !b, carry)
}

carry_functions! {
    add_cc: (a, b; _carry) = carried(a, b, 0);
    addc_cc: (a, b; carry) = carried(a, b, carry);
    sub_cc: (a, b; _carry) = differing(a, b, 1);
    subc_cc: (a, b; carry) = differing(a, b, carry);
    mad_low_cc: (a, b, c; _carry) = carried(a.wrapping_mul(b), c, 0);
    madc_low_cc: (a, b, c; carry) = carried(a.wrapping_mul(b), c, carry);
    mad_high_u_cc: (a, b, c; _carry) = carried(high_u32(a, b), c, 0);
    madc_high_u_cc: (a, b, c; carry) = carried(high_u32(a, b), c, carry);
    mad_high_s_cc: (a, b, c; _carry) = carried(high_s32(a, b), c, 0);
    madc_high_s_cc: (a, b, c; carry) = carried(high_s32(a, b), c, carry);
}

lane_functions! {
    addc: (a w, b w, e p) -> w = carried(a, b, u32::from(e)).0;
    subc: (a w, b w, e p) -> w = differing(a, b, u32::from(e)).0;
    madc_low: (a w, b w, c w, e p) -> w = carried(a.wrapping_mul(b), c, u32::from(e)).0;
    madc_high_u: (a w, b w, c w, e p) -> w = carried(high_u32(a, b), c, u32::from(e)).0;
    madc_high_s: (a w, b w, c w, e p) -> w = carried(high_s32(a, b), c, u32::from(e)).0;
}

/// Defines instructions on predicates as functions of whole masks.
macro_rules! mask_functions {
    ($($name:ident: ($($arg:ident),*) = $body:expr;)*) => {$(
        lane_function! { $name(regs, slots, mask) {
            $(let $arg = regs.p[usize::from(slots.$arg)];)*
            super::lanes::blend_bits(&mut regs.p[usize::from(slots.d)], mask, $body);
        } }
    )*};
}

mask_functions! {
    and_predicate: (a, b) = a & b;
    or_predicate: (a, b) = a | b;
    xor_predicate: (a, b) = a ^ b;
    not_predicate: (a) = !a;
}
