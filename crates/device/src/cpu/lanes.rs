//! Register banks and the macros that turn a function of scalars into one of 32 lanes.

use super::code::LANES;

/// A 32-bit register of a warp; narrower registers are kept zero-extended in one.
pub(super) type Words = [u32; LANES];
/// A 64-bit register of a warp.
pub(super) type Longs = [u64; LANES];

/// The registers of a frame.
pub(super) struct Regs<'a> {
    pub(super) w: &'a mut [Words],
    pub(super) d: &'a mut [Longs],
    /// A mask of lanes each.
    pub(super) p: &'a mut [u32],
}

/// The bit of a lane in a mask.
#[inline(always)]
pub(super) fn bit(lane: usize) -> u32 {
    1 << lane
}

/// The lanes of a mask, lowest first.
#[inline]
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            lane
        })
    })
}

/// A lane of a register.
pub(super) trait Lane: Copy {
    /// `from` where `chosen`, else `to`, without a branch.
    fn select(chosen: bool, from: Self, to: Self) -> Self;
}

macro_rules! lane_types {
    ($($lane:ty),*) => {$(
        impl Lane for $lane {
            #[inline(always)]
            fn select(chosen: bool, from: Self, to: Self) -> Self {
                // Written as a choice, it would become a conditional store for each lane.
                let keep = Self::from(chosen).wrapping_neg();
                from & keep | to & !keep
            }
        }
    )*};
}

lane_types!(u32, u64);

/// Replaces the lanes of a mask.
#[inline(always)]
pub(super) fn blend<T: Lane>(to: &mut [T; LANES], mask: u32, from: &[T; LANES]) {
    if mask == u32::MAX {
        *to = *from;
    } else {
        for (lane, (to, &from)) in to.iter_mut().zip(from).enumerate() {
            *to = T::select(mask & bit(lane) != 0, from, *to);
        }
    }
}

/// Replaces the lanes of a mask in a predicate.
#[inline(always)]
pub(super) fn blend_bits(to: &mut u32, mask: u32, from: u32) {
    *to = *to & !mask | from & mask;
}

/// Gathers one bit a lane into a mask.
#[inline(always)]
pub(super) fn pack(value: impl Fn(usize) -> bool) -> u32 {
    let mut set: Words = [0; LANES];
    for (lane, set) in set.iter_mut().enumerate() {
        *set = if value(lane) { bit(lane) } else { 0 };
    }
    set.iter().fold(0, |all, one| all | one)
}

/// A source operand: its slot of the bank `w`, `d` or `p`.
macro_rules! source {
    ($regs:ident, $slots:ident, $arg:ident, w) => {
        &$regs.w[usize::from($slots.$arg)]
    };
    ($regs:ident, $slots:ident, $arg:ident, d) => {
        &$regs.d[usize::from($slots.$arg)]
    };
    ($regs:ident, $slots:ident, $arg:ident, p) => {
        $regs.p[usize::from($slots.$arg)]
    };
}

/// One lane of a source operand.
macro_rules! lane_of {
    ($arg:ident, $lane:ident, w) => {
        $arg[$lane]
    };
    ($arg:ident, $lane:ident, d) => {
        $arg[$lane]
    };
    ($arg:ident, $lane:ident, p) => {
        $arg & $crate::cpu::lanes::bit($lane) != 0
    };
}

/// Computes all lanes with `$value` and replaces those of the mask in the destination.
macro_rules! destination {
    ($regs:ident, $slots:ident, $mask:ident, w, $value:expr) => {
        let value = $value;
        let mut result = [0_u32; $crate::cpu::code::LANES];
        for (lane, result) in result.iter_mut().enumerate() {
            *result = value(lane);
        }
        $crate::cpu::lanes::blend(&mut $regs.w[usize::from($slots.d)], $mask, &result);
    };
    ($regs:ident, $slots:ident, $mask:ident, d, $value:expr) => {
        let value = $value;
        let mut result = [0_u64; $crate::cpu::code::LANES];
        for (lane, result) in result.iter_mut().enumerate() {
            *result = value(lane);
        }
        $crate::cpu::lanes::blend(&mut $regs.d[usize::from($slots.d)], $mask, &result);
    };
    ($regs:ident, $slots:ident, $mask:ident, p, $value:expr) => {
        let bits = $crate::cpu::lanes::pack($value);
        $crate::cpu::lanes::blend_bits(&mut $regs.p[usize::from($slots.d)], $mask, bits);
    };
}

/// Defines one lane function, a type that computes it and a constant of the same name.
macro_rules! lane_function {
    ($name:ident($regs:ident, $slots:ident, $mask:ident) $body:block) => {
        $crate::cpu::lanes::lane_function! { $name<FUSED>($regs, $slots, $mask) $body }
    };
    ($name:ident<$fused:ident>($regs:ident, $slots:ident, $mask:ident) $body:block) => {
        #[allow(non_camel_case_types, reason = "it is named as the constant")]
        #[derive(Debug)]
        pub(in crate::cpu) struct $name {}

        impl $crate::cpu::lane_fn::LaneOp for $name {
            #[inline(always)]
            fn run<const $fused: bool>(
                $regs: &mut $crate::cpu::lanes::Regs<'_>,
                $slots: &$crate::cpu::code::Slots,
                $mask: u32,
            ) $body
        }

        #[allow(non_upper_case_globals, reason = "it is used as a function is")]
        pub(in crate::cpu) const $name: $crate::cpu::code::LaneFn =
            $crate::cpu::code::LaneFn::of::<$name>();
    };
}

/// Defines lane functions: `name: (a w, b d) -> w = expression of a and b;`. Arguments are named after the slots they
/// come from; `w`, `d` and `p` are the banks of words, longs and predicates.
macro_rules! lane_functions {
    ($($name:ident: ($($arg:ident $bank:ident),*) -> $out:ident = $body:expr;)*) => {$(
        $crate::cpu::lanes::lane_function! { $name(regs, slots, mask) {
            $(let $arg = $crate::cpu::lanes::source!(regs, slots, $arg, $bank);)*
            $crate::cpu::lanes::destination!(regs, slots, mask, $out, |lane: usize| {
                $(let $arg = $crate::cpu::lanes::lane_of!($arg, lane, $bank);)*
                $body
            });
        } }
    )*};
}

/// Defines lane functions that also set the carry flag, the predicate `e`, which the body reads as `$carry`: it gives the result
/// and the new flag.
macro_rules! carry_functions {
    ($($name:ident: ($($arg:ident),*; $carry:ident) = $body:expr;)*) => {$(
        $crate::cpu::lanes::lane_function! { $name(regs, slots, mask) {
            $(let $arg = &regs.w[usize::from(slots.$arg)];)*
            let flag = regs.p[usize::from(slots.e)];
            let mut result = [0_u32; $crate::cpu::code::LANES];
            let mut out = 0;
            for lane in 0..$crate::cpu::code::LANES {
                $(let $arg = $arg[lane];)*
                let $carry = u32::from(flag & $crate::cpu::lanes::bit(lane) != 0);
                let (value, carried): (u32, bool) = $body;
                result[lane] = value;
                out |= if carried { $crate::cpu::lanes::bit(lane) } else { 0 };
            }
            $crate::cpu::lanes::blend(&mut regs.w[usize::from(slots.d)], mask, &result);
            $crate::cpu::lanes::blend_bits(&mut regs.p[usize::from(slots.e)], mask, out);
        } }
    )*};
}

pub(super) use {carry_functions, destination, lane_function, lane_functions, lane_of, source};
