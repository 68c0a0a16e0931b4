//! Integer arithmetic. Logic and instructions on single bits are in `bits.rs`.

use ptx::ast::{Operand, ScalarType as T};

use crate::cpu::alu;
use crate::cpu::code::{LaneFn, Slots, Width};

use super::function::Lowering;
use super::types::{Lowered, Modifiers, Refusal, is_signed, width};

/// A lane function by signedness and width.
pub(super) fn pick(ty: T, of: [Option<LaneFn>; 6]) -> Lowered<LaneFn> {
    let index = match (width(ty), is_signed(ty)) {
        (Some(Width::B16), false) => 0,
        (Some(Width::B16), true) => 1,
        (Some(Width::B32), false) => 2,
        (Some(Width::B32), true) => 3,
        (Some(Width::B64), false) => 4,
        (Some(Width::B64), true) => 5,
        _ => return Err(Refusal::Form),
    };
    of[index].ok_or(Refusal::Form)
}

/// The same function for both signs.
pub(super) fn pick_width(ty: T, of: [LaneFn; 3]) -> Lowered<LaneFn> {
    let [h, w, d] = of.map(Some);
    pick(ty, [h, h, w, w, d, d])
}

/// A lane function by signedness and width, all there.
pub(super) fn pick_all(ty: T, of: [LaneFn; 6]) -> Lowered<LaneFn> {
    pick(ty, of.map(Some))
}

impl Lowering<'_, '_> {
    /// Destination and sources of one type.
    pub(super) fn uniform(
        &mut self,
        run: LaneFn,
        ty: T,
        operands: &[Operand],
        count: usize,
    ) -> Lowered<()> {
        let types = [ty; 4];
        self.mixed(run, ty, types.get(..count).ok_or(Refusal::Form)?, operands)
    }

    /// Destination of one type, sources of others, in order of the slots.
    pub(super) fn mixed(
        &mut self,
        run: LaneFn,
        ty: T,
        sources: &[T],
        operands: &[Operand],
    ) -> Lowered<()> {
        let (to, from) = operands.split_first().ok_or(Refusal::Form)?;
        if from.len() != sources.len() || from.len() > 4 {
            return Err(Refusal::Form);
        }
        let mut slots = [0; 4];
        for ((slot, operand), &ty) in slots.iter_mut().zip(from).zip(sources) {
            *slot = self.source(operand, ty)?;
        }
        let [a, b, c, e] = slots;
        let d = self.destination(to, ty)?;
        self.lane(run, Slots { d, a, b, c, e })
    }

    /// `add`, `sub`, with and without carry, on integers.
    pub(super) fn sum(
        &mut self,
        opcode: &str,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let ty = modifiers.scalar()?;
        let subtract = opcode.starts_with("sub");
        if modifiers.take("sat") {
            modifiers.finish()?;
            let run = match (subtract, ty) {
                (false, T::S32) => alu::add_sat32,
                (true, T::S32) => alu::sub_sat32,
                _ => return Err(Refusal::Form),
            };
            return self.uniform(run, ty, operands, 2);
        }
        let (takes, gives) = (opcode.ends_with('c'), modifiers.take("cc"));
        modifiers.finish()?;
        if takes || gives {
            if width(ty) == Some(Width::B64) {
                return self.long_carry(subtract, takes, gives, operands);
            }
            let run = match (subtract, takes, gives) {
                (false, false, _) => alu::add_cc,
                (false, true, true) => alu::addc_cc,
                (false, true, false) => alu::addc,
                (true, false, _) => alu::sub_cc,
                (true, true, true) => alu::subc_cc,
                (true, true, false) => alu::subc,
            };
            return self.carrying(run, ty, operands, 2);
        }
        let packed = matches!(ty, T::B8 | T::U8 | T::S8);
        let run = if packed {
            return Err(Refusal::Form);
        } else if subtract {
            pick_width(ty, [alu::sub16, alu::sub32, alu::sub64])?
        } else {
            pick_width(ty, [alu::add16, alu::add32, alu::add64])?
        };
        self.uniform(run, ty, operands, 2)
    }

    /// An instruction on 32-bit words with the carry flag in slot `e`.
    fn carrying(&mut self, run: LaneFn, ty: T, operands: &[Operand], count: usize) -> Lowered<()> {
        if width(ty) != Some(Width::B32) || operands.len() != count + 1 {
            return Err(Refusal::Form);
        }
        let mut slots = [0; 3];
        for (slot, operand) in slots.iter_mut().zip(&operands[1..]) {
            *slot = self.source(operand, ty)?;
        }
        let [a, b, c] = slots;
        let d = self.destination(&operands[0], ty)?;
        let e = self.carry()?;
        self.lane(run, Slots { d, a, b, c, e })
    }

    /// 64-bit sums with carry, by halves.
    fn long_carry(
        &mut self,
        subtract: bool,
        takes: bool,
        gives: bool,
        operands: &[Operand],
    ) -> Lowered<()> {
        let [to, left, right] = operands else {
            return Err(Refusal::Form);
        };
        let (left, right) = (self.source(left, T::B64)?, self.source(right, T::B64)?);
        let d = self.destination(to, T::B64)?;
        let carry = self.carry()?;
        let flag = if gives { carry } else { self.predicate()? };
        if takes && !gives {
            self.lane(
                alu::move_predicate,
                Slots {
                    d: flag,
                    a: carry,
                    ..Slots::default()
                },
            )?;
        }
        let mut halves = [0; 6];
        for slot in &mut halves {
            *slot = self.word()?;
        }
        let [low_a, high_a, low_b, high_b, low, high] = halves;
        for (low, high, a) in [(low_a, high_a, left), (low_b, high_b, right)] {
            self.lane(
                alu::low32,
                Slots {
                    d: low,
                    a,
                    ..Slots::default()
                },
            )?;
            self.lane(
                alu::high32,
                Slots {
                    d: high,
                    a,
                    ..Slots::default()
                },
            )?;
        }
        let (first, second): (LaneFn, LaneFn) = match (subtract, takes) {
            (false, false) => (alu::add_cc, alu::addc_cc),
            (false, true) => (alu::addc_cc, alu::addc_cc),
            (true, false) => (alu::sub_cc, alu::subc_cc),
            (true, true) => (alu::subc_cc, alu::subc_cc),
        };
        self.lane(
            first,
            Slots {
                d: low,
                a: low_a,
                b: low_b,
                e: flag,
                ..Slots::default()
            },
        )?;
        self.lane(
            second,
            Slots {
                d: high,
                a: high_a,
                b: high_b,
                e: flag,
                ..Slots::default()
            },
        )?;
        self.lane(
            alu::join32,
            Slots {
                d,
                a: low,
                b: high,
                ..Slots::default()
            },
        )
    }

    /// `mul`, `mad`, `madc` and their 24-bit kin on integers.
    pub(super) fn product(
        &mut self,
        opcode: &str,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let part = modifiers
            .take_of(&["lo", "hi", "wide"])
            .ok_or(Refusal::Form)?;
        let (gives, sat) = (modifiers.take("cc"), modifiers.take("sat"));
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let signed = is_signed(ty);
        if opcode == "madc" || gives {
            let takes = opcode == "madc";
            let run = match (part, signed, takes, gives) {
                ("lo", _, false, _) => alu::mad_low_cc,
                ("lo", _, true, true) => alu::madc_low_cc,
                ("lo", _, true, false) => alu::madc_low,
                ("hi", false, false, _) => alu::mad_high_u_cc,
                ("hi", false, true, true) => alu::madc_high_u_cc,
                ("hi", false, true, false) => alu::madc_high_u,
                ("hi", true, false, _) => alu::mad_high_s_cc,
                ("hi", true, true, true) => alu::madc_high_s_cc,
                ("hi", true, true, false) => alu::madc_high_s,
                _ => return Err(Refusal::Form),
            };
            return self.carrying(run, ty, operands, 3);
        }
        if opcode.ends_with("24") {
            let run = match (opcode, part, ty) {
                ("mul24", "lo", T::U32) => alu::mul24_low_u,
                ("mul24", "lo", T::S32) => alu::mul24_low_s,
                ("mul24", "hi", T::U32) => alu::mul24_high_u,
                ("mul24", "hi", T::S32) => alu::mul24_high_s,
                ("mad24", "lo", T::U32) => alu::mad24_low_u,
                ("mad24", "lo", T::S32) => alu::mad24_low_s,
                _ => return Err(Refusal::Form),
            };
            return self.uniform(run, ty, operands, if opcode == "mul24" { 2 } else { 3 });
        }
        if sat {
            return match (opcode, part, ty) {
                ("mad", "hi", T::S32) => self.uniform(alu::mad_high_sat32, ty, operands, 3),
                _ => Err(Refusal::Form),
            };
        }
        let multiply = opcode == "mul";
        if part == "wide" {
            let (run, wide): (LaneFn, T) = match (multiply, ty) {
                (true, T::U16) => (alu::mul_wide_u16, T::U32),
                (true, T::S16) => (alu::mul_wide_s16, T::S32),
                (true, T::U32) => (alu::mul_wide_u32, T::U64),
                (true, T::S32) => (alu::mul_wide_s32, T::S64),
                (false, T::U16) => (alu::mad_wide_u16, T::U32),
                (false, T::S16) => (alu::mad_wide_s16, T::S32),
                (false, T::U32) => (alu::mad_wide_u32, T::U64),
                (false, T::S32) => (alu::mad_wide_s32, T::S64),
                _ => return Err(Refusal::Form),
            };
            let sources = [ty, ty, wide];
            return self.mixed(
                run,
                wide,
                &sources[..if multiply { 2 } else { 3 }],
                operands,
            );
        }
        let run = match (multiply, part) {
            (true, "lo") => pick_width(ty, [alu::mul16, alu::mul32, alu::mul64])?,
            (false, "lo") => pick_width(ty, [alu::mad16, alu::mad32, alu::mad64])?,
            (true, _) => pick_all(
                ty,
                [
                    alu::mul_high_u16,
                    alu::mul_high_s16,
                    alu::mul_high_u32,
                    alu::mul_high_s32,
                    alu::mul_high_u64,
                    alu::mul_high_s64,
                ],
            )?,
            (false, _) => pick_all(
                ty,
                [
                    alu::mad_high_u16,
                    alu::mad_high_s16,
                    alu::mad_high_u32,
                    alu::mad_high_s32,
                    alu::mad_high_u64,
                    alu::mad_high_s64,
                ],
            )?,
        };
        self.uniform(run, ty, operands, if multiply { 2 } else { 3 })
    }

    /// Everything on integers that has one type and nothing else to say.
    pub(super) fn plain_integer(
        &mut self,
        opcode: &str,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let (run, count) = match opcode {
            "div" => (
                pick_all(
                    ty,
                    [
                        alu::div_u16,
                        alu::div_s16,
                        alu::div_u32,
                        alu::div_s32,
                        alu::div_u64,
                        alu::div_s64,
                    ],
                )?,
                2,
            ),
            "rem" => (
                pick_all(
                    ty,
                    [
                        alu::rem_u16,
                        alu::rem_s16,
                        alu::rem_u32,
                        alu::rem_s32,
                        alu::rem_u64,
                        alu::rem_s64,
                    ],
                )?,
                2,
            ),
            "min" => (
                pick_all(
                    ty,
                    [
                        alu::min_u32,
                        alu::min_s16,
                        alu::min_u32,
                        alu::min_s32,
                        alu::min_u64,
                        alu::min_s64,
                    ],
                )?,
                2,
            ),
            "max" => (
                pick_all(
                    ty,
                    [
                        alu::max_u32,
                        alu::max_s16,
                        alu::max_u32,
                        alu::max_s32,
                        alu::max_u64,
                        alu::max_s64,
                    ],
                )?,
                2,
            ),
            "sad" => (
                pick_all(
                    ty,
                    [
                        alu::sad_u16,
                        alu::sad_s16,
                        alu::sad_u32,
                        alu::sad_s32,
                        alu::sad_u64,
                        alu::sad_s64,
                    ],
                )?,
                3,
            ),
            "abs" => {
                let signed = [alu::abs_s16, alu::abs_s32, alu::abs_s64].map(Some);
                (
                    pick(ty, [None, signed[0], None, signed[1], None, signed[2]])?,
                    1,
                )
            }
            "neg" => (pick_width(ty, [alu::neg16, alu::neg32, alu::neg64])?, 1),
            _ => return Err(Refusal::Form),
        };
        self.uniform(run, ty, operands, count)
    }
}
