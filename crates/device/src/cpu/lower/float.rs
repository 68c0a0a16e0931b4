//! Float arithmetic: each instruction is a lane function, between flushes of subnormals and before saturation where it asks
//! for them.

use ptx::ast::{Operand, ScalarType as T};

use crate::cpu::code::{LaneFn, Slots};
use crate::cpu::float as f;

use super::function::Lowering;
use super::slots::Bank;
use super::types::{Lowered, Modifiers, Refusal};

/// What an instruction does to its inputs and its result besides the operation.
#[derive(Clone, Copy, Debug, Default)]
struct Around {
    flush: bool,
    saturate: bool,
    relu: bool,
}

/// Half-precision functions by format: f16, f16x2, bf16, bf16x2.
fn half(ty: T, of: [LaneFn; 4]) -> Lowered<LaneFn> {
    match ty {
        T::F16 => Ok(of[0]),
        T::F16x2 => Ok(of[1]),
        T::Bf16 => Ok(of[2]),
        T::Bf16x2 => Ok(of[3]),
        _ => Err(Refusal::Form),
    }
}

pub(super) fn is_float(ty: T) -> bool {
    matches!(
        ty,
        T::F16 | T::F16x2 | T::F32 | T::F64 | T::Bf16 | T::Bf16x2
    )
}

/// A function by direction of rounding: nearest, zero, down, up.
fn by_rounding(rounding: &str, of: [LaneFn; 4]) -> LaneFn {
    of[match rounding {
        "rz" => 1,
        "rm" => 2,
        "rp" => 3,
        _ => 0,
    }]
}

impl Lowering<'_, '_> {
    /// `add`, `sub`, `mul`, `fma`, `mad`, `div`, `rcp`, `sqrt` and the approximate functions.
    pub(super) fn float(
        &mut self,
        opcode: &str,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let exactness = modifiers.take_of(&["approx", "full"]);
        let rounding = modifiers.take_of(&["rn", "rz", "rm", "rp"]).unwrap_or("rn");
        let around = Around {
            flush: modifiers.take("ftz"),
            saturate: modifiers.take("sat"),
            relu: modifiers.take("relu"),
        };
        let nan = modifiers.take("NaN");
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        if nan && !matches!(opcode, "min" | "max") || exactness.is_some() && rounding != "rn" {
            return Err(Refusal::Form);
        }
        let (run, count) = match ty {
            T::F32 => single(opcode, rounding, exactness, nan)?,
            T::F64 if rounding == "rn" => double(opcode, exactness.is_some(), around.flush)?,
            T::F64 => return Err(Refusal::Form),
            _ if rounding == "rn" && !nan => halves(opcode, ty)?,
            _ => return Err(Refusal::Form),
        };
        if around.relu && !matches!(ty, T::F16 | T::F16x2 | T::Bf16 | T::Bf16x2)
            || around.saturate && ty == T::F64
        {
            return Err(Refusal::Form);
        }
        if opcode == "sub" && matches!(ty, T::F32) && rounding != "rn" {
            return self.directed_difference(run, operands, around);
        }
        self.around(run, ty, operands, count, around)
    }

    /// `a - b` in a direction is `a + -b`.
    fn directed_difference(
        &mut self,
        run: LaneFn,
        operands: &[Operand],
        around: Around,
    ) -> Lowered<()> {
        let [to, left, right] = operands else {
            return Err(Refusal::Form);
        };
        let (a, b) = (self.source(left, T::F32)?, self.source(right, T::F32)?);
        let negated = self.word()?;
        self.lane(
            f::neg_f32,
            Slots {
                d: negated,
                a: b,
                ..Slots::default()
            },
        )?;
        let d = self.destination(to, T::F32)?;
        self.computed(run, T::F32, d, [a, negated, 0], 2, around)
    }

    fn around(
        &mut self,
        run: LaneFn,
        ty: T,
        operands: &[Operand],
        count: usize,
        around: Around,
    ) -> Lowered<()> {
        let (to, from) = operands.split_first().ok_or(Refusal::Form)?;
        if from.len() != count {
            return Err(Refusal::Form);
        }
        let mut slots = [0; 3];
        for (slot, operand) in slots.iter_mut().zip(from) {
            *slot = self.source(operand, ty)?;
        }
        let d = self.destination(to, ty)?;
        self.computed(run, ty, d, slots, count, around)
    }

    fn computed(
        &mut self,
        run: LaneFn,
        ty: T,
        d: u16,
        mut slots: [u16; 3],
        count: usize,
        around: Around,
    ) -> Lowered<()> {
        let flush = around.flush && ty == T::F32;
        if flush {
            for slot in &mut slots[..count] {
                *slot = self.flushed(*slot)?;
            }
        }
        let [a, b, c] = slots;
        self.lane(run, Slots { d, a, b, c, e: 0 })?;
        let mut after = |run: LaneFn| {
            self.lane(
                run,
                Slots {
                    d,
                    a: d,
                    ..Slots::default()
                },
            )
        };
        if flush {
            after(f::flush_f32)?;
        }
        if around.saturate {
            after(match ty {
                T::F32 => f::saturate_f32,
                _ => half(
                    ty,
                    [
                        f::saturate_f16,
                        f::saturate_f16x2,
                        f::saturate_bf16,
                        f::saturate_bf16x2,
                    ],
                )?,
            })?;
        }
        if around.relu {
            after(half(
                ty,
                [f::relu_f16, f::relu_f16x2, f::relu_bf16, f::relu_bf16x2],
            )?)?;
        }
        Ok(())
    }

    /// A word with subnormal numbers flushed.
    pub(super) fn flushed(&mut self, a: u16) -> Lowered<u16> {
        let d = self.slots(Bank::Word, 1)?;
        self.lane(
            f::flush_f32,
            Slots {
                d,
                a,
                ..Slots::default()
            },
        )?;
        Ok(d)
    }

    /// `copysign`.
    pub(super) fn copy_sign(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let run = match ty {
            T::F32 => f::copy_sign_f32,
            T::F64 => f::copy_sign_f64,
            _ => return Err(Refusal::Form),
        };
        self.uniform(run, ty, operands, 2)
    }

    /// `testp`.
    pub(super) fn test_property(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let properties = [
            "finite",
            "infinite",
            "number",
            "notanumber",
            "normal",
            "subnormal",
        ];
        let property = modifiers.take_of(&properties).ok_or(Refusal::Form)?;
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let [to, from] = operands else {
            return Err(Refusal::Form);
        };
        let single = ty == T::F32;
        if !single && ty != T::F64 {
            return Err(Refusal::Form);
        }
        let by = |narrow: LaneFn, wide: LaneFn| if single { narrow } else { wide };
        let run = match property {
            "finite" => by(f::finite_f32, f::finite_f64),
            "infinite" => by(f::infinite_f32, f::infinite_f64),
            "normal" => by(f::normal_f32, f::normal_f64),
            "subnormal" => by(f::subnormal_f32, f::subnormal_f64),
            _ => by(f::nan_f32, f::nan_f64),
        };
        let a = self.source(from, ty)?;
        let Some(d) = self.predicate_destination(to)? else {
            return Ok(());
        };
        self.keep_guard(&[Some(d)])?;
        self.lane(
            run,
            Slots {
                d,
                a,
                ..Slots::default()
            },
        )?;
        if property == "number" {
            self.lane(
                crate::cpu::alu::not_predicate,
                Slots {
                    d,
                    a: d,
                    ..Slots::default()
                },
            )?;
        }
        Ok(())
    }
}

fn single(
    opcode: &str,
    rounding: &str,
    exactness: Option<&str>,
    nan: bool,
) -> Lowered<(LaneFn, usize)> {
    let directed = rounding != "rn";
    let approximate = exactness.is_some();
    Ok(match opcode {
        "add" => (
            by_rounding(
                rounding,
                [f::add_f32, f::add_f32_zero, f::add_f32_down, f::add_f32_up],
            ),
            2,
        ),
        // In a direction it is the sum with the negated operand.
        "sub" => (
            by_rounding(
                rounding,
                [f::sub_f32, f::add_f32_zero, f::add_f32_down, f::add_f32_up],
            ),
            2,
        ),
        "mul" => (
            by_rounding(
                rounding,
                [f::mul_f32, f::mul_f32_zero, f::mul_f32_down, f::mul_f32_up],
            ),
            2,
        ),
        "fma" | "mad" => (
            by_rounding(
                rounding,
                [f::fma_f32, f::fma_f32_zero, f::fma_f32_down, f::fma_f32_up],
            ),
            3,
        ),
        "div" if exactness == Some("approx") => (f::div_f32_approximate, 2),
        "div" => (
            by_rounding(
                rounding,
                [f::div_f32, f::div_f32_zero, f::div_f32_down, f::div_f32_up],
            ),
            2,
        ),
        "sqrt" => (
            by_rounding(
                rounding,
                [
                    f::sqrt_f32,
                    f::sqrt_f32_zero,
                    f::sqrt_f32_down,
                    f::sqrt_f32_up,
                ],
            ),
            1,
        ),
        "rcp" => (
            by_rounding(
                rounding,
                [f::rcp_f32, f::rcp_f32_zero, f::rcp_f32_down, f::rcp_f32_up],
            ),
            1,
        ),
        _ if directed => return Err(Refusal::Form),
        "rsqrt" if approximate => (f::rsqrt_f32, 1),
        "sin" if approximate => (f::sin_f32, 1),
        "cos" if approximate => (f::cos_f32, 1),
        "lg2" if approximate => (f::log2_f32, 1),
        "ex2" if approximate => (f::exp2_f32, 1),
        "tanh" if approximate => (f::tanh_f32, 1),
        _ if approximate => return Err(Refusal::Form),
        "abs" => (f::abs_f32, 1),
        "neg" => (f::neg_f32, 1),
        "min" => (
            if nan {
                f::min_f32_nan
            } else {
                f::min_f32_lanes
            },
            2,
        ),
        "max" => (
            if nan {
                f::max_f32_nan
            } else {
                f::max_f32_lanes
            },
            2,
        ),
        _ => return Err(Refusal::Form),
    })
}

fn double(opcode: &str, approximate: bool, flush: bool) -> Lowered<(LaneFn, usize)> {
    if approximate {
        return match (opcode, flush) {
            ("rcp", true) => Ok((f::rcp_f64_upper, 1)),
            ("rsqrt", _) => Ok((f::rsqrt_f64_upper, 1)),
            _ => Err(Refusal::Form),
        };
    }
    Ok(match opcode {
        _ if flush => return Err(Refusal::Form),
        "add" => (f::add_f64, 2),
        "sub" => (f::sub_f64, 2),
        "mul" => (f::mul_f64, 2),
        "fma" | "mad" => (f::fma_f64, 3),
        "div" => (f::div_f64, 2),
        "sqrt" => (f::sqrt_f64, 1),
        "rcp" => (f::rcp_f64, 1),
        "abs" => (f::abs_f64, 1),
        "neg" => (f::neg_f64, 1),
        "min" => (f::min_f64_lanes, 2),
        "max" => (f::max_f64_lanes, 2),
        _ => return Err(Refusal::Form),
    })
}

fn halves(opcode: &str, ty: T) -> Lowered<(LaneFn, usize)> {
    let (of, count): ([LaneFn; 4], usize) = match opcode {
        "add" => ([f::add_f16, f::add_f16x2, f::add_bf16, f::add_bf16x2], 2),
        "sub" => ([f::sub_f16, f::sub_f16x2, f::sub_bf16, f::sub_bf16x2], 2),
        "mul" => ([f::mul_f16, f::mul_f16x2, f::mul_bf16, f::mul_bf16x2], 2),
        "fma" => ([f::fma_f16, f::fma_f16x2, f::fma_bf16, f::fma_bf16x2], 3),
        "min" => ([f::min_f16, f::min_f16x2, f::min_bf16, f::min_bf16x2], 2),
        "max" => ([f::max_f16, f::max_f16x2, f::max_bf16, f::max_bf16x2], 2),
        "neg" => ([f::neg_f16, f::neg_f16x2, f::neg_bf16, f::neg_bf16x2], 1),
        "abs" => ([f::abs_f16, f::abs_f16x2, f::abs_bf16, f::abs_bf16x2], 1),
        "ex2" => (
            [f::exp2_f16, f::exp2_f16x2, f::exp2_bf16, f::exp2_bf16x2],
            1,
        ),
        "tanh" => (
            [f::tanh_f16, f::tanh_f16x2, f::tanh_bf16, f::tanh_bf16x2],
            1,
        ),
        _ => return Err(Refusal::Form),
    };
    Ok((half(ty, of)?, count))
}
