//! Comparison and selection: `setp`, `set`, `selp`, `slct`.

use ptx::ast::{Operand, ScalarType as T};

use crate::cpu::code::{Guard, LaneFn, Slots, Width};
use crate::cpu::{alu, convert, float};

use super::float::is_float;
use super::function::Lowering;
use super::types::{Lowered, Modifiers, Refusal, is_signed, width};

/// A comparison as a basic one: whether its operands change places, and whether its result is negated.
#[derive(Clone, Copy, Debug)]
struct Basic {
    run: LaneFn,
    swap: bool,
    negate: bool,
}

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
];

fn integer(comparison: &str, ty: T) -> Lowered<Basic> {
    let basic = |run: LaneFn, swap: bool| {
        Ok(Basic {
            run,
            swap,
            negate: false,
        })
    };
    let width = width(ty).ok_or(Refusal::Form)?;
    let signed = is_signed(ty) && !matches!(comparison, "lo" | "ls" | "hi" | "hs");
    let ordered = !matches!(ty, T::B16 | T::B32 | T::B64);
    let pick = |of: [LaneFn; 3]| match width {
        Width::B16 => Ok(of[0]),
        Width::B32 => Ok(of[1]),
        Width::B64 => Ok(of[2]),
        Width::B8 => Err(Refusal::Form),
    };
    let less = if signed {
        [alu::lt_s16, alu::lt_s32, alu::lt_s64]
    } else {
        [alu::lt_u32, alu::lt_u32, alu::lt_u64]
    };
    let at_most = if signed {
        [alu::le_s16, alu::le_s32, alu::le_s64]
    } else {
        [alu::le_u32, alu::le_u32, alu::le_u64]
    };
    match comparison {
        "eq" => basic(pick([alu::eq16, alu::eq32, alu::eq64])?, false),
        "ne" => basic(pick([alu::ne16, alu::ne32, alu::ne64])?, false),
        "lt" | "lo" if ordered => basic(pick(less)?, false),
        "le" | "ls" if ordered => basic(pick(at_most)?, false),
        "gt" | "hi" if ordered => basic(pick(less)?, true),
        "ge" | "hs" if ordered => basic(pick(at_most)?, true),
        _ => Err(Refusal::Form),
    }
}

fn floating(comparison: &str, wide: bool) -> Lowered<Basic> {
    let basic = |narrow: LaneFn, long: LaneFn, swap, negate| {
        Ok(Basic {
            run: if wide { long } else { narrow },
            swap,
            negate,
        })
    };
    match comparison {
        "eq" => basic(float::eq_f32, float::eq_f64, false, false),
        // An ordered inequality is false for NaN, as neither is less.
        "ne" => basic(float::ne_f32, float::ne_f64, false, false),
        "lt" => basic(float::lt_f32, float::lt_f64, false, false),
        "le" => basic(float::le_f32, float::le_f64, false, false),
        "gt" => basic(float::lt_f32, float::lt_f64, true, false),
        "ge" => basic(float::le_f32, float::le_f64, true, false),
        "equ" => basic(float::ne_f32, float::ne_f64, false, true),
        "neu" => basic(float::eq_f32, float::eq_f64, false, true),
        "ltu" => basic(float::le_f32, float::le_f64, true, true),
        "leu" => basic(float::lt_f32, float::lt_f64, true, true),
        "gtu" => basic(float::le_f32, float::le_f64, false, true),
        "geu" => basic(float::lt_f32, float::lt_f64, false, true),
        "nan" => basic(float::unordered_f32, float::unordered_f64, false, false),
        "num" => basic(float::unordered_f32, float::unordered_f64, false, true),
        _ => Err(Refusal::Form),
    }
}

/// What is compared and how the result is combined, from the modifiers of `setp` or `set`.
struct Comparison<'m> {
    name: &'m str,
    combine: Option<&'m str>,
    flush: bool,
    ty: T,
}

impl Lowering<'_, '_> {
    /// A predicate that is true where the comparison holds, in a new slot.
    fn compared(
        &mut self,
        comparison: &Comparison<'_>,
        left: &Operand,
        right: &Operand,
    ) -> Lowered<u16> {
        let ty = comparison.ty;
        let (mut a, mut b) = (self.source(left, ty)?, self.source(right, ty)?);
        let basic = match ty {
            T::F64 => floating(comparison.name, true)?,
            T::F32 if comparison.flush => {
                (a, b) = (self.flushed(a)?, self.flushed(b)?);
                floating(comparison.name, false)?
            }
            T::F32 => floating(comparison.name, false)?,
            T::F16 | T::Bf16 => {
                let widen = if ty == T::F16 {
                    convert::f32_from_f16
                } else {
                    convert::f32_from_bf16
                };
                for slot in [&mut a, &mut b] {
                    let d = self.word()?;
                    self.lane(
                        widen,
                        Slots {
                            d,
                            a: *slot,
                            ..Slots::default()
                        },
                    )?;
                    *slot = d;
                }
                floating(comparison.name, false)?
            }
            _ if is_float(ty) => return Err(Refusal::Form),
            _ => integer(comparison.name, ty)?,
        };
        if basic.swap {
            (a, b) = (b, a);
        }
        let d = self.predicate()?;
        self.lane(
            basic.run,
            Slots {
                d,
                a,
                b,
                ..Slots::default()
            },
        )?;
        if basic.negate {
            self.lane(
                alu::not_predicate,
                Slots {
                    d,
                    a: d,
                    ..Slots::default()
                },
            )?;
        }
        Ok(d)
    }

    fn combined(&mut self, how: Option<&str>, a: u16, with: Option<&Operand>) -> Lowered<u16> {
        let run = match (how, with) {
            (None, None) => return Ok(a),
            (Some("and"), Some(_)) => alu::and_predicate,
            (Some("or"), Some(_)) => alu::or_predicate,
            (Some("xor"), Some(_)) => alu::xor_predicate,
            _ => return Err(Refusal::Form),
        };
        let b = self.predicate_source(with.ok_or(Refusal::Form)?)?;
        let d = self.predicate()?;
        self.lane(
            run,
            Slots {
                d,
                a,
                b,
                ..Slots::default()
            },
        )?;
        Ok(d)
    }

    /// `setp`.
    pub(super) fn set_predicate(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let name = modifiers.take_of(&COMPARISONS).ok_or(Refusal::Form)?;
        let combine = modifiers.take_of(&["and", "or", "xor"]);
        let flush = modifiers.take("ftz");
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let (to, left, right, with) = match operands {
            [to, left, right] => (to, left, right, None),
            [to, left, right, with] => (to, left, right, Some(with)),
            _ => return Err(Refusal::Form),
        };
        let comparison = Comparison {
            name,
            combine,
            flush,
            ty,
        };
        let (first, second) = match to {
            Operand::Pair(pair) => (&pair.0, Some(&pair.1)),
            _ => (to, None),
        };
        let first = self.predicate_destination(first)?;
        let second = second.map_or(Ok(None), |second| self.predicate_destination(second))?;
        if second.is_none()
            && with.is_none()
            && let Some(d) = first
            && self.direct(&comparison, d, left, right)?
        {
            return Ok(());
        }
        let yes = self.compared(&comparison, left, right)?;
        let no = if second.is_some() {
            let d = self.predicate()?;
            self.lane(
                alu::not_predicate,
                Slots {
                    d,
                    a: yes,
                    ..Slots::default()
                },
            )?;
            Some(self.combined(comparison.combine, d, with)?)
        } else {
            None
        };
        let yes = self.combined(comparison.combine, yes, with)?;
        self.keep_guard(&[first, second])?;
        for (d, a) in [(first, Some(yes)), (second, no)] {
            if let (Some(d), Some(a)) = (d, a) {
                self.lane(
                    alu::move_predicate,
                    Slots {
                        d,
                        a,
                        ..Slots::default()
                    },
                )?;
            }
        }
        Ok(())
    }

    /// The common form as one instruction, where it can be.
    fn direct(
        &mut self,
        comparison: &Comparison<'_>,
        d: u16,
        left: &Operand,
        right: &Operand,
    ) -> Lowered<bool> {
        let basic = match comparison.ty {
            T::F32 if !comparison.flush => floating(comparison.name, false)?,
            T::F64 => floating(comparison.name, true)?,
            ty if is_float(ty) => return Ok(false),
            ty => integer(comparison.name, ty)?,
        };
        if basic.negate || comparison.combine.is_some() {
            return Ok(false);
        }
        let (a, b) = (
            self.source(left, comparison.ty)?,
            self.source(right, comparison.ty)?,
        );
        let (a, b) = if basic.swap { (b, a) } else { (a, b) };
        self.lane(
            basic.run,
            Slots {
                d,
                a,
                b,
                ..Slots::default()
            },
        )?;
        Ok(true)
    }

    /// Where one of several destinations is the guard itself, the guard is kept elsewhere.
    pub(super) fn keep_guard(&mut self, destinations: &[Option<u16>]) -> Lowered<()> {
        let Some(a) = self.guard.slot() else {
            return Ok(());
        };
        if !destinations.contains(&Some(a)) {
            return Ok(());
        }
        let negated = self.guard != Guard::new(a, false);
        let d = self.predicate()?;
        let guard = std::mem::replace(&mut self.guard, Guard::ALWAYS);
        self.lane(
            alu::move_predicate,
            Slots {
                d,
                a,
                ..Slots::default()
            },
        )?;
        debug_assert_eq!(guard.slot(), Some(a));
        self.guard = Guard::new(d, negated);
        Ok(())
    }

    /// `set`.
    pub(super) fn set(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let name = modifiers.take_of(&COMPARISONS).ok_or(Refusal::Form)?;
        let combine = modifiers.take_of(&["and", "or", "xor"]);
        let flush = modifiers.take("ftz");
        let to_type = modifiers.scalar()?;
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let (to, left, right, with) = match operands {
            [to, left, right] => (to, left, right, None),
            [to, left, right, with] => (to, left, right, Some(with)),
            _ => return Err(Refusal::Form),
        };
        let yes = self.compared(
            &Comparison {
                name,
                combine,
                flush,
                ty,
            },
            left,
            right,
        )?;
        let c = self.combined(combine, yes, with)?;
        let truth = match to_type {
            T::U32 | T::S32 | T::B32 => u32::MAX,
            T::F32 => 1.0_f32.to_bits(),
            T::U16 | T::S16 => 0xffff,
            T::F16 => 0x3c00,
            T::Bf16 => 0x3f80,
            _ => return Err(Refusal::Form),
        };
        let (a, b) = (self.word_value(truth)?, self.word_value(0)?);
        let d = self.destination(to, to_type)?;
        self.lane(alu::select32, Slots { d, a, b, c, e: 0 })
    }

    /// `selp` and `slct`.
    pub(super) fn select(
        &mut self,
        opcode: &str,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let flush = modifiers.take("ftz");
        let ty = modifiers.scalar()?;
        let by = if opcode == "slct" {
            Some(modifiers.scalar()?)
        } else {
            None
        };
        modifiers.finish()?;
        let [to, left, right, condition] = operands else {
            return Err(Refusal::Form);
        };
        let (a, b) = (self.source(left, ty)?, self.source(right, ty)?);
        let wide = width(ty) == Some(Width::B64);
        let (run, c): (LaneFn, u16) = match by {
            None => (
                if wide { alu::select64 } else { alu::select32 },
                self.predicate_source(condition)?,
            ),
            Some(T::S32) => (
                if wide { alu::choose64 } else { alu::choose32 },
                self.source(condition, T::S32)?,
            ),
            Some(T::F32) => {
                let c = self.source(condition, T::F32)?;
                let c = if flush { self.flushed(c)? } else { c };
                (
                    if wide {
                        alu::choose_f64
                    } else {
                        alu::choose_f32
                    },
                    c,
                )
            }
            Some(_) => return Err(Refusal::Form),
        };
        let d = self.destination(to, ty)?;
        self.lane(run, Slots { d, a, b, c, e: 0 })
    }
}
