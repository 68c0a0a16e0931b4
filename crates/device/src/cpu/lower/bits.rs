//! Logic, shifts and the other instructions on bits and bytes.

use ptx::ast::{Operand, ScalarType as T};

use crate::cpu::alu;
use crate::cpu::code::{LaneFn, Slots, Width};

use super::function::Lowering;
use super::integer::{pick_all, pick_width};
use super::types::{Lowered, Modifiers, Refusal, is_signed, width};

impl Lowering<'_, '_> {
    /// `and`, `or`, `xor`, `not`, `cnot`, on predicates too.
    pub(super) fn logic(
        &mut self,
        opcode: &str,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        if ty == T::Pred {
            let (to, from) = operands.split_first().ok_or(Refusal::Form)?;
            let (run, count): (LaneFn, usize) = match opcode {
                "and" => (alu::and_predicate, 2),
                "or" => (alu::or_predicate, 2),
                "xor" => (alu::xor_predicate, 2),
                "not" => (alu::not_predicate, 1),
                _ => return Err(Refusal::Form),
            };
            if from.len() != count {
                return Err(Refusal::Form);
            }
            let a = self.predicate_source(&from[0])?;
            let b = from
                .get(1)
                .map_or(Ok(0), |operand| self.predicate_source(operand))?;
            let Some(d) = self.predicate_destination(to)? else {
                return Ok(());
            };
            return self.lane(
                run,
                Slots {
                    d,
                    a,
                    b,
                    ..Slots::default()
                },
            );
        }
        let (run, count) = match opcode {
            "and" => (pick_width(ty, [alu::and32, alu::and32, alu::and64])?, 2),
            "or" => (pick_width(ty, [alu::or32, alu::or32, alu::or64])?, 2),
            "xor" => (pick_width(ty, [alu::xor32, alu::xor32, alu::xor64])?, 2),
            "not" => (pick_width(ty, [alu::not16, alu::not32, alu::not64])?, 1),
            "cnot" => (pick_width(ty, [alu::cnot32, alu::cnot32, alu::cnot64])?, 1),
            _ => return Err(Refusal::Form),
        };
        self.uniform(run, ty, operands, count)
    }

    /// Shifts and the other instructions on bits.
    pub(super) fn bits(
        &mut self,
        opcode: &str,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let mode = modifiers.take_of(&[
            "wrap", "clamp", "shiftamt", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16",
        ]);
        let side = modifiers.take_of(&["l", "r"]);
        let ty = modifiers.scalar()?;
        let second = modifiers.scalar().ok();
        modifiers.finish()?;
        let w = T::B32;
        let signed = is_signed(ty);
        let wide = width(ty) == Some(Width::B64);
        if width(ty) == Some(Width::B16) && !matches!(opcode, "shl" | "shr")
            || second.is_some() != (opcode == "dp4a")
        {
            return Err(Refusal::Form);
        }
        let by_width = |narrow: LaneFn, long: LaneFn| if wide { long } else { narrow };
        match (opcode, side, mode) {
            ("shl", None, None) => {
                let run = pick_width(ty, [alu::shl16, alu::shl32, alu::shl64])?;
                self.mixed(run, ty, &[ty, T::U32], operands)
            }
            ("shr", None, None) => {
                let all = [
                    alu::shr_u16,
                    alu::shr_s16,
                    alu::shr_u32,
                    alu::shr_s32,
                    alu::shr_u64,
                    alu::shr_s64,
                ];
                self.mixed(pick_all(ty, all)?, ty, &[ty, T::U32], operands)
            }
            ("shf", Some(side), Some(mode)) if ty == w => {
                let run = match (side, mode) {
                    ("l", "wrap") => alu::funnel_left_wrap,
                    ("l", "clamp") => alu::funnel_left_clamp,
                    ("r", "wrap") => alu::funnel_right_wrap,
                    ("r", "clamp") => alu::funnel_right_clamp,
                    _ => return Err(Refusal::Form),
                };
                self.uniform(run, ty, operands, 3)
            }
            ("popc", None, None) => {
                self.mixed(by_width(alu::popc32, alu::popc64), T::U32, &[ty], operands)
            }
            ("clz", None, None) => {
                self.mixed(by_width(alu::clz32, alu::clz64), T::U32, &[ty], operands)
            }
            ("brev", None, None) => {
                self.uniform(by_width(alu::brev32, alu::brev64), ty, operands, 1)
            }
            ("bfind", None, None) => {
                let run = if signed {
                    by_width(alu::find_s32, alu::find_s64)
                } else {
                    by_width(alu::find_u32, alu::find_u64)
                };
                self.mixed(run, T::U32, &[ty], operands)
            }
            ("bfind", None, Some("shiftamt")) => {
                let run = if signed {
                    by_width(alu::find_shift_s32, alu::find_shift_s64)
                } else {
                    by_width(alu::find_shift_u32, alu::find_shift_u64)
                };
                self.mixed(run, T::U32, &[ty], operands)
            }
            ("bfe", None, None) => {
                let run = if signed {
                    by_width(alu::extract_s32, alu::extract_s64)
                } else {
                    by_width(alu::extract_u32, alu::extract_u64)
                };
                self.mixed(run, ty, &[ty, w, w], operands)
            }
            ("bfi", None, None) => self.mixed(
                by_width(alu::insert32, alu::insert64),
                ty,
                &[ty, ty, w, w],
                operands,
            ),
            ("bmsk", None, Some(mode)) if ty == w => {
                let run = if mode == "clamp" {
                    alu::mask_clamp
                } else {
                    alu::mask_wrap
                };
                self.uniform(run, ty, operands, 2)
            }
            ("fns", None, None) if ty == w => self.uniform(alu::find_nth, ty, operands, 3),
            ("lop3", None, None) if ty == w => self.uniform(alu::lookup3, ty, operands, 4),
            ("prmt", None, mode) if ty == w => {
                let run = match mode {
                    None => alu::permute,
                    Some("f4e") => alu::permute_f4e,
                    Some("b4e") => alu::permute_b4e,
                    Some("rc8") => alu::permute_rc8,
                    Some("ecl") => alu::permute_ecl,
                    Some("ecr") => alu::permute_ecr,
                    Some("rc16") => alu::permute_rc16,
                    _ => return Err(Refusal::Form),
                };
                self.uniform(run, ty, operands, 3)
            }
            ("dp4a", None, None) => {
                let run = match (ty, second) {
                    (T::U32, Some(T::U32)) => alu::dot4_uu,
                    (T::U32, Some(T::S32)) => alu::dot4_us,
                    (T::S32, Some(T::U32)) => alu::dot4_su,
                    (T::S32, Some(T::S32)) => alu::dot4_ss,
                    _ => return Err(Refusal::Form),
                };
                self.uniform(run, T::B32, operands, 3)
            }
            _ => Err(Refusal::Form),
        }
    }

    /// `vabsdiff4` of unsigned bytes.
    pub(super) fn video(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let types = [
            modifiers.scalar()?,
            modifiers.scalar()?,
            modifiers.scalar()?,
        ];
        let add = modifiers.take("add");
        modifiers.finish()?;
        if types != [T::U32; 3] {
            return Err(Refusal::Form);
        }
        let run = if add {
            alu::absolute_difference4_add_u
        } else {
            alu::absolute_difference4_u
        };
        self.uniform(run, T::U32, operands, 3)
    }
}
