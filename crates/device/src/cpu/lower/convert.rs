//! `cvt`: from any type to any other, by way of the few forms that lane functions have.

use ptx::ast::{Operand, ScalarType as T};

use crate::cpu::code::{LaneFn, Slots, Width};
use crate::cpu::convert as c;
use crate::cpu::{alu, float};

use super::float::is_float;
use super::function::Lowering;
use super::slots::Bank;
use super::types::{Lowered, Modifiers, Refusal, is_signed, width};

/// Rounding modifiers; those with `i` round to an integer.
const ROUNDINGS: [&str; 8] = ["rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"];

/// A function by direction: nearest, zero, down, up.
fn directed(rounding: &str, of: [LaneFn; 4]) -> LaneFn {
    of[match rounding {
        "rz" | "rzi" => 1,
        "rm" | "rmi" => 2,
        "rp" | "rpi" => 3,
        _ => 0,
    }]
}

/// What a `cvt` asks for besides its types.
#[derive(Clone, Copy)]
struct How<'m> {
    rounding: Option<&'m str>,
    flush: bool,
    saturate: bool,
}

impl How<'_> {
    fn to_integer(self) -> bool {
        self.rounding
            .is_some_and(|rounding| rounding.ends_with('i'))
    }
}

impl Lowering<'_, '_> {
    fn unary(&mut self, run: LaneFn, bank: Bank, a: u16) -> Lowered<u16> {
        let d = self.slots(bank, 1)?;
        self.lane(
            run,
            Slots {
                d,
                a,
                ..Slots::default()
            },
        )?;
        Ok(d)
    }

    /// `cvt`.
    pub(super) fn convert(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let how = How {
            rounding: modifiers.take_of(&ROUNDINGS),
            flush: modifiers.take("ftz"),
            saturate: modifiers.take("sat"),
        };
        let packed = ["e4m3x2", "e5m2x2"];
        if let Some(small) = modifiers.take_of(&packed) {
            return self.convert_bytes(small, how, modifiers, operands);
        }
        let relu = modifiers.take("relu");
        let finite = modifiers.take("satfinite");
        let (to, from) = (modifiers.scalar()?, modifiers.scalar()?);
        modifiers.finish()?;
        if let [d, high, low] = operands {
            return self.convert_pair(to, from, how, relu, d, [high, low]);
        }
        let [d, source] = operands else {
            return Err(Refusal::Form);
        };
        if relu || finite {
            return Err(Refusal::Form);
        }
        let (slot, register) = self.loose_source(source, from)?;
        let (to_slot, to_register) = self.loose_destination(d)?;
        let slot = self.lowered_source(slot, register, from)?;
        let result = match (is_float(from), is_float(to)) {
            (false, false) if how.rounding.is_some() || how.flush => return Err(Refusal::Form),
            (false, false) => self.integer_to_integer(slot, from, to, how.saturate)?,
            (true, false) => self.float_to_integer(slot, from, to, how)?,
            (false, true) => self.integer_to_float(slot, from, to, how)?,
            (true, true) => self.float_to_float(slot, from, to, how)?,
        };
        self.fit(result, to, to_slot, to_register)
    }

    /// Two numbers to a packed pair of a half-precision format.
    fn convert_pair(
        &mut self,
        to: T,
        from: T,
        how: How<'_>,
        relu: bool,
        d: &Operand,
        sources: [&Operand; 2],
    ) -> Lowered<()> {
        let (rounding, T::F32) = (how.rounding.ok_or(Refusal::Form)?, from) else {
            return Err(Refusal::Form);
        };
        let run = match (to, rounding) {
            (T::F16x2, "rn") => c::f16x2_from_f32,
            (T::F16x2, "rz") => c::f16x2_from_f32_zero,
            (T::Bf16x2, "rn") => c::bf16x2_from_f32,
            (T::Bf16x2, "rz") => c::bf16x2_from_f32_zero,
            _ => return Err(Refusal::Form),
        };
        let [a, b] = sources;
        let (a, b) = (self.source(a, from)?, self.source(b, from)?);
        let d = self.destination(d, to)?;
        self.lane(
            run,
            Slots {
                d,
                a,
                b,
                ..Slots::default()
            },
        )?;
        if relu {
            let run = if to == T::F16x2 {
                float::relu_f16x2
            } else {
                float::relu_bf16x2
            };
            self.lane(
                run,
                Slots {
                    d,
                    a: d,
                    ..Slots::default()
                },
            )?;
        }
        Ok(())
    }

    /// To and from pairs of 8-bit floats. `small` is the first such type among the modifiers.
    fn convert_bytes(
        &mut self,
        small: &str,
        how: How<'_>,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let finite = modifiers.take("satfinite");
        let relu = modifiers.take("relu");
        let other = modifiers.scalar()?;
        modifiers.finish()?;
        if how.rounding != Some("rn") || relu || how.saturate || how.flush {
            return Err(Refusal::Form);
        }
        let e4m3 = small == "e4m3x2";
        let by = |first: LaneFn, second: LaneFn| if e4m3 { first } else { second };
        match (operands, other, finite) {
            ([d, a, b], T::F32, true) => {
                let (a, b) = (self.source(a, other)?, self.source(b, other)?);
                let d = self.destination(d, T::B16)?;
                self.lane(
                    by(c::e4m3x2_from_f32, c::e5m2x2_from_f32),
                    Slots {
                        d,
                        a,
                        b,
                        ..Slots::default()
                    },
                )
            }
            ([d, a], T::F16x2, true) => {
                let a = self.source(a, other)?;
                let d = self.destination(d, T::B16)?;
                self.lane(
                    by(c::e4m3x2_from_f16x2, c::e5m2x2_from_f16x2),
                    Slots {
                        d,
                        a,
                        ..Slots::default()
                    },
                )
            }
            ([d, a], T::F16x2, false) => {
                let a = self.source(a, T::B16)?;
                let d = self.destination(d, other)?;
                self.lane(
                    by(c::f16x2_from_e4m3x2, c::f16x2_from_e5m2x2),
                    Slots {
                        d,
                        a,
                        ..Slots::default()
                    },
                )
            }
            _ => Err(Refusal::Form),
        }
    }

    /// A source in a register that may be wider than its type, as 32 or 64 bits: extended by its own sign.
    fn lowered_source(&mut self, slot: u16, register: Width, ty: T) -> Lowered<u16> {
        let own = width(ty).ok_or(Refusal::Form)?;
        if register < own {
            return Err(Refusal::Other(
                "with a register narrower than the type".into(),
            ));
        }
        if own == Width::B64 {
            return Ok(slot);
        }
        let slot = if register == Width::B64 {
            self.unary(alu::low32, Bank::Word, slot)?
        } else {
            slot
        };
        let run = match (own, is_signed(ty)) {
            (Width::B8, true) => c::sign8,
            (Width::B16, true) => c::sign16,
            (Width::B8, false) => c::zero8,
            (Width::B16, false) if register > own => c::zero16,
            _ => return Ok(slot),
        };
        self.unary(run, Bank::Word, slot)
    }

    /// Writes a result into a register that may be wider than its type, extended by the sign of the type.
    fn fit(&mut self, slot: u16, ty: T, d: u16, register: Width) -> Lowered<()> {
        let own = width(ty).ok_or(Refusal::Form)?;
        if register < own {
            return Err(Refusal::Other(
                "with a destination narrower than the type".into(),
            ));
        }
        let to = |run: LaneFn, d: u16, a: u16| {
            (
                run,
                Slots {
                    d,
                    a,
                    ..Slots::default()
                },
            )
        };
        let signed = is_signed(ty);
        let extended = match (own, signed) {
            (Width::B64, _) => return self.settle(d, slot, Bank::Long),
            (Width::B32, _) => slot,
            (Width::B16, true) => self.unary(c::sign16, Bank::Word, slot)?,
            (Width::B16, false) => self.unary(c::zero16, Bank::Word, slot)?,
            (Width::B8, true) => self.unary(c::sign8, Bank::Word, slot)?,
            (Width::B8, false) => self.unary(c::zero8, Bank::Word, slot)?,
        };
        let (run, slots) = match register {
            Width::B64 => to(if signed { c::widen_s } else { c::widen_u }, d, extended),
            Width::B32 => return self.settle(d, extended, Bank::Word),
            // What extended it has left nothing above the type.
            Width::B16 if own == Width::B16 && !signed => {
                return self.settle(d, extended, Bank::Word);
            }
            Width::B16 => to(c::zero16, d, extended),
            Width::B8 => to(c::zero8, d, extended),
        };
        self.lane(run, slots)
    }

    fn long_of(&mut self, slot: u16, ty: T) -> Lowered<u16> {
        if width(ty) == Some(Width::B64) {
            return Ok(slot);
        }
        self.unary(
            if is_signed(ty) {
                c::widen_s
            } else {
                c::widen_u
            },
            Bank::Long,
            slot,
        )
    }

    fn integer_to_integer(&mut self, slot: u16, from: T, to: T, saturate: bool) -> Lowered<u16> {
        let narrow = width(to) != Some(Width::B64);
        if !saturate {
            return match (width(from) == Some(Width::B64), narrow) {
                (true, true) => self.unary(alu::low32, Bank::Word, slot),
                (false, false) => self.long_of(slot, from),
                _ => Ok(slot),
            };
        }
        let long = self.long_of(slot, from)?;
        let (least, greatest): (i64, u64) = match to {
            T::U8 | T::B8 => (0, u8::MAX.into()),
            T::S8 => (i8::MIN.into(), i8::MAX.cast_unsigned().into()),
            T::U16 | T::B16 => (0, u16::MAX.into()),
            T::S16 => (i16::MIN.into(), i16::MAX.cast_unsigned().into()),
            T::U32 | T::B32 => (0, u32::MAX.into()),
            T::S32 => (i32::MIN.into(), i32::MAX.cast_unsigned().into()),
            T::S64 => (i64::MIN, i64::MAX.cast_unsigned()),
            T::U64 | T::B64 => (0, u64::MAX),
            _ => return Err(Refusal::Form),
        };
        let d = self.long()?;
        if is_signed(from) {
            let b = self.long_value(least.cast_unsigned())?;
            let c = self.long_value(greatest.min(i64::MAX.cast_unsigned()))?;
            self.lane(
                c::clamp_signed,
                Slots {
                    d,
                    a: long,
                    b,
                    c,
                    e: 0,
                },
            )?;
        } else {
            let c = self.long_value(greatest)?;
            self.lane(
                c::clamp_unsigned,
                Slots {
                    d,
                    a: long,
                    c,
                    ..Slots::default()
                },
            )?;
        }
        if narrow {
            self.unary(alu::low32, Bank::Word, d)
        } else {
            Ok(d)
        }
    }

    /// A float as f64, which holds every narrower one.
    fn double_of(&mut self, slot: u16, from: T) -> Lowered<u16> {
        match from {
            T::F64 => Ok(slot),
            T::F32 => self.unary(c::f64_from_f32, Bank::Long, slot),
            _ => {
                let single = self.single_of(slot, from)?;
                self.unary(c::f64_from_f32, Bank::Long, single)
            }
        }
    }

    fn single_of(&mut self, slot: u16, from: T) -> Lowered<u16> {
        match from {
            T::F32 => Ok(slot),
            T::F16 => self.unary(c::f32_from_f16, Bank::Word, slot),
            T::Bf16 => self.unary(c::f32_from_bf16, Bank::Word, slot),
            _ => Err(Refusal::Form),
        }
    }

    fn float_to_integer(&mut self, slot: u16, from: T, to: T, how: How<'_>) -> Lowered<u16> {
        let rounding = how
            .rounding
            .filter(|_| how.to_integer())
            .ok_or(Refusal::Form)?;
        // Every such conversion saturates; flushing changes what rounds to a whole number only upwards or downwards from zero.
        let slot = if how.flush && from == T::F32 {
            self.flushed(slot)?
        } else {
            slot
        };
        match (from, to, rounding) {
            (T::F32, T::S32, "rzi") => return self.unary(c::s32_from_f32, Bank::Word, slot),
            (T::F32, T::U32, "rzi") => return self.unary(c::u32_from_f32, Bank::Word, slot),
            _ => {}
        }
        let double = self.double_of(slot, from)?;
        let round = directed(
            rounding,
            [
                c::round_f64,
                c::round_f64_zero,
                c::round_f64_down,
                c::round_f64_up,
            ],
        );
        let whole = self.unary(round, Bank::Long, double)?;
        let wide = from == T::F64;
        let by = |of_wide: LaneFn, of_narrow: LaneFn| if wide { of_wide } else { of_narrow };
        let (run, bank): (LaneFn, Bank) = match to {
            T::U8 => (by(c::u8_from_integral, c::u8_from_narrow), Bank::Word),
            T::S8 => (by(c::s8_from_integral, c::s8_from_narrow), Bank::Word),
            T::U16 => (by(c::u16_from_integral, c::u16_from_narrow), Bank::Word),
            T::S16 => (by(c::s16_from_integral, c::s16_from_narrow), Bank::Word),
            T::U32 => (by(c::u32_from_integral, c::u32_from_narrow), Bank::Word),
            T::S32 => (by(c::s32_from_integral, c::s32_from_narrow), Bank::Word),
            T::U64 => (c::u64_from_integral, Bank::Long),
            T::S64 => (c::s64_from_integral, Bank::Long),
            _ => return Err(Refusal::Form),
        };
        self.unary(run, bank, whole)
    }

    fn integer_to_float(&mut self, slot: u16, from: T, to: T, how: How<'_>) -> Lowered<u16> {
        let rounding = how
            .rounding
            .filter(|_| !how.to_integer())
            .ok_or(Refusal::Form)?;
        let (signed, long) = (is_signed(from), width(from) == Some(Width::B64));
        let result = match (to, long, signed) {
            (T::F32, false, false) => {
                let of = [
                    c::f32_from_u32,
                    c::f32_from_u32_zero,
                    c::f32_from_u32_down,
                    c::f32_from_u32_up,
                ];
                self.unary(directed(rounding, of), Bank::Word, slot)?
            }
            (T::F32, false, true) => {
                let of = [
                    c::f32_from_s32,
                    c::f32_from_s32_zero,
                    c::f32_from_s32_down,
                    c::f32_from_s32_up,
                ];
                self.unary(directed(rounding, of), Bank::Word, slot)?
            }
            (T::F32, true, false) => {
                let of = [
                    c::f32_from_u64,
                    c::f32_from_u64_zero,
                    c::f32_from_u64_down,
                    c::f32_from_u64_up,
                ];
                self.unary(directed(rounding, of), Bank::Word, slot)?
            }
            (T::F32, true, true) => {
                let of = [
                    c::f32_from_s64,
                    c::f32_from_s64_zero,
                    c::f32_from_s64_down,
                    c::f32_from_s64_up,
                ];
                self.unary(directed(rounding, of), Bank::Word, slot)?
            }
            (T::F64, false, signed) => self.unary(
                if signed {
                    c::f64_from_s32
                } else {
                    c::f64_from_u32
                },
                Bank::Long,
                slot,
            )?,
            (T::F64, true, false) => {
                let of = [
                    c::f64_from_u64,
                    c::f64_from_u64_zero,
                    c::f64_from_u64_down,
                    c::f64_from_u64_up,
                ];
                self.unary(directed(rounding, of), Bank::Long, slot)?
            }
            (T::F64, true, true) => {
                let of = [
                    c::f64_from_s64,
                    c::f64_from_s64_zero,
                    c::f64_from_s64_down,
                    c::f64_from_s64_up,
                ];
                self.unary(directed(rounding, of), Bank::Long, slot)?
            }
            (T::F16, long, signed) if rounding == "rn" => {
                // Whatever f64 cannot hold exactly is far above the largest f16.
                let run = match (long, signed) {
                    (false, false) => c::f64_from_u32,
                    (false, true) => c::f64_from_s32,
                    (true, false) => c::f64_from_u64,
                    (true, true) => c::f64_from_s64,
                };
                let double = self.unary(run, Bank::Long, slot)?;
                self.unary(c::f16_from_f64, Bank::Word, double)?
            }
            _ => return Err(Refusal::Form),
        };
        self.saturated(result, to, how.saturate)
    }

    fn saturated(&mut self, slot: u16, ty: T, wanted: bool) -> Lowered<u16> {
        match (wanted, ty) {
            (false, _) => Ok(slot),
            (true, T::F32) => self.unary(float::saturate_f32, Bank::Word, slot),
            (true, T::F16) => self.unary(float::saturate_f16, Bank::Word, slot),
            (true, _) => Err(Refusal::Form),
        }
    }

    fn float_to_float(&mut self, slot: u16, from: T, to: T, how: How<'_>) -> Lowered<u16> {
        let slot = if how.flush && from == T::F32 {
            self.unary(float::flush_quiet_f32, Bank::Word, slot)?
        } else {
            slot
        };
        let rounding = how.rounding.unwrap_or("rn");
        let whole = how.to_integer();
        let result = match (from, to) {
            (T::F32, T::F32) if whole => {
                let of = [
                    c::round_f32,
                    c::round_f32_zero,
                    c::round_f32_down,
                    c::round_f32_up,
                ];
                self.unary(directed(rounding, of), Bank::Word, slot)?
            }
            (T::F64, T::F64) if whole => {
                let of = [
                    c::round_f64,
                    c::round_f64_zero,
                    c::round_f64_down,
                    c::round_f64_up,
                ];
                self.unary(directed(rounding, of), Bank::Long, slot)?
            }
            (T::F16, T::F16) if whole => {
                let single = self.single_of(slot, from)?;
                let of = [
                    c::round_f32,
                    c::round_f32_zero,
                    c::round_f32_down,
                    c::round_f32_up,
                ];
                let rounded = self.unary(directed(rounding, of), Bank::Word, single)?;
                self.unary(c::f16_from_f32, Bank::Word, rounded)?
            }
            _ if whole => return Err(Refusal::Form),
            (T::F32, T::F32) | (T::F64, T::F64) | (T::F16, T::F16) => slot,
            (T::F16, T::F64) => self.unary(c::f64_from_f16, Bank::Long, slot)?,
            (T::F32 | T::Bf16, T::F64) => self.double_of(slot, from)?,
            (T::F16 | T::Bf16, T::F32) => self.single_of(slot, from)?,
            (T::F64, T::F32) => {
                let of = [
                    c::f32_from_f64,
                    c::f32_from_f64_zero,
                    c::f32_from_f64_down,
                    c::f32_from_f64_up,
                ];
                self.unary(directed(rounding, of), Bank::Word, slot)?
            }
            (T::F32, T::F16) => {
                let of = [
                    c::f16_from_f32,
                    c::f16_from_f32_zero,
                    c::f16_from_f32_down,
                    c::f16_from_f32_up,
                ];
                self.unary(directed(rounding, of), Bank::Word, slot)?
            }
            (T::F64, T::F16) if rounding == "rn" => {
                self.unary(c::f16_from_f64, Bank::Word, slot)?
            }
            (T::F32, T::Bf16) => match rounding {
                "rn" => self.unary(c::bf16_from_f32, Bank::Word, slot)?,
                "rz" => self.unary(c::bf16_from_f32_zero, Bank::Word, slot)?,
                _ => return Err(Refusal::Form),
            },
            _ => return Err(Refusal::Form),
        };
        let result = if how.flush && to == T::F32 {
            self.flushed(result)?
        } else {
            result
        };
        self.saturated(result, to, how.saturate)
    }
}
