//! What registers are multiples of, so that addresses which cannot be askew need no check. Nothing but reports relies on it.
//!
//! A value is known to be a multiple of one power of two, and of another one where a pointer that the guest was given is: compilers add multiples of
//! an element's size to a pointer, so that whether an access is aligned is decided by its parameter.

use super::access::{Group, Origin};
use super::names::{Base, Code, Instruction, Program, Step, Value, VariableId};
use crate::ast::{Immediate, ScalarType, Space};
use crate::isa;

use super::flow;

/// No access is wider than 32 bytes.
const ENOUGH: u32 = 5;
/// How often all statements are looked at before nothing counts as known: compilers' texts take three or four rounds.
const MAX_ROUNDS: u32 = 12;

/// A pointer of 64 bits in the parameters of an entry: the variable, and its offset there.
pub(super) type Pointer = (VariableId, u32);

/// How many low bits of a value are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zeros {
    sure: u32,
    /// As many are where so many low bits of a pointer are zero, more than are sure.
    given: Option<(Pointer, u32)>,
}

impl Zeros {
    const ALL: Self = Self::sure(ENOUGH);
    const NONE: Self = Self::sure(0);

    const fn sure(bits: u32) -> Self {
        Self {
            sure: bits,
            given: None,
        }
    }

    fn new(sure: u32, given: Option<(Pointer, u32)>) -> Self {
        let sure = sure.min(ENOUGH);
        let given = given.map(|(pointer, bits)| (pointer, bits.min(ENOUGH)));
        Self {
            sure,
            given: given.filter(|&(_, bits)| bits > sure),
        }
    }

    /// Of a sum, or of one value or the other.
    fn and(self, other: Self) -> Self {
        let of = |zeros: Self, pointer| match zeros.given {
            Some((it, bits)) if it == pointer => bits,
            _ => zeros.sure,
        };
        let either = [self.given, other.given].into_iter().flatten();
        let both = either.map(|(pointer, _)| (pointer, of(self, pointer).min(of(other, pointer))));
        Self::new(
            self.sure.min(other.sure),
            both.max_by_key(|&(_, bits)| bits),
        )
    }

    fn times(self, other: Self) -> Self {
        let more = |zeros: Self, by: u32| zeros.given.map(|(pointer, bits)| (pointer, bits + by));
        let given = [more(self, other.sure), more(other, self.sure)];
        let given = given.into_iter().flatten().max_by_key(|&(_, bits)| bits);
        Self::new(self.sure + other.sure, given)
    }
}

/// What is known of each register of a function, whenever it is read.
#[derive(Debug)]
pub(super) struct Aligned {
    registers: Vec<Zeros>,
}

/// Whether an access can be askew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Askew {
    Never,
    /// Where the pointer is.
    With(Pointer),
    Perhaps,
}

impl Aligned {
    pub(super) fn of(program: &Program<'_>, code: &Code<'_>) -> Self {
        let mut registers = vec![Zeros::ALL; code.registers.len()];
        for _ in 0..MAX_ROUNDS {
            let mut is_settled = true;
            for step in &code.statements {
                let Step::Instruction(instruction) = step else {
                    continue;
                };
                let Some(row) = isa::row(instruction.opcode) else {
                    continue;
                };
                let zeros = result(program, code, &registers, instruction);
                flow::written(instruction, row, &mut |register| {
                    let is_known = matches!(
                        instruction.operands.first(),
                        Some(Value::Register(first)) if *first == register
                    );
                    let found = if is_known { zeros } else { Zeros::NONE };
                    let both = registers[register].and(found);
                    is_settled &= both == registers[register];
                    registers[register] = both;
                });
            }
            if is_settled {
                return Self { registers };
            }
        }
        registers.fill(Zeros::NONE);
        Self { registers }
    }

    /// Whether accesses of a group can be askew.
    pub(super) fn askew(&self, group: &Group) -> Askew {
        let bits = group.align.trailing_zeros();
        let zeros = match group.origin {
            Origin::Register(register) => self.registers[register],
            Origin::Absolute | Origin::Globals => Zeros::ALL,
            Origin::Dynamic | Origin::Frame => Zeros::NONE,
        };
        let zeros = zeros.and(Zeros::sure(group.anchor.trailing_zeros()));
        match zeros.given {
            _ if zeros.sure >= bits => Askew::Never,
            Some((pointer, given)) if given >= bits => Askew::With(pointer),
            _ => Askew::Perhaps,
        }
    }
}

/// What an instruction writes to its first operand.
fn result(
    program: &Program<'_>,
    code: &Code<'_>,
    registers: &[Zeros],
    instruction: &Instruction<'_>,
) -> Zeros {
    let is_integer = instruction.modifiers.iter().all(|word| {
        ScalarType::from_name(word).is_none_or(|ty| ty.name().starts_with(['b', 's', 'u']))
    });
    if !is_integer {
        return Zeros::NONE;
    }
    let of = |index: usize| {
        let value = instruction.operands.get(index);
        value.map_or(Zeros::NONE, |value| zeros_of(program, registers, value))
    };
    let has = |word| instruction.modifiers.contains(&word);
    match instruction.opcode {
        "add" | "sub" | "or" | "xor" | "min" | "max" | "selp" => of(1).and(of(2)),
        "and" => match &instruction.operands[..] {
            [_, _, Value::Immediate(Immediate::Integer(mask))] => {
                let known = of(1);
                Zeros::new(known.sure.max(mask.trailing_zeros()), known.given)
            }
            _ => Zeros::NONE,
        },
        "cvt" | "cvta" | "mov" => of(1),
        "ld" if code.is_entry() => loaded(program, instruction),
        "mad" if !has("hi") => of(1).times(of(2)).and(of(3)),
        "mul" if !has("hi") => of(1).times(of(2)),
        "shl" => match &instruction.operands[..] {
            [_, _, Value::Immediate(Immediate::Integer(by))] => {
                of(1).times(Zeros::sure(u32::try_from(*by).unwrap_or(0).min(ENOUGH)))
            }
            _ => of(1),
        },
        _ => Zeros::NONE,
    }
}

fn zeros_of(program: &Program<'_>, registers: &[Zeros], value: &Value<'_>) -> Zeros {
    match value {
        Value::Register(register) => registers[*register],
        Value::Immediate(Immediate::Integer(value)) => Zeros::new(value.trailing_zeros(), None),
        Value::Variable(id, offset) if program.variables[*id].space != Space::Param => {
            let align = program.variables[*id].alignment();
            Zeros::new(align.trailing_zeros().min(offset.trailing_zeros()), None)
        }
        _ => Zeros::NONE,
    }
}

/// A pointer that is loaded from the parameters of an entry.
fn loaded(program: &Program<'_>, instruction: &Instruction<'_>) -> Zeros {
    let [
        Value::Register(_),
        Value::Address {
            base: Base::Variable(id),
            offset,
            is_plain: true,
        },
    ] = &instruction.operands[..]
    else {
        return Zeros::NONE;
    };
    let is_pointer = instruction
        .modifiers
        .last()
        .is_some_and(|word| matches!(*word, "b64" | "s64" | "u64"));
    match u32::try_from(*offset) {
        Ok(offset) if is_pointer && program.variables[*id].space == Space::Param => {
            Zeros::new(0, Some(((*id, offset), ENOUGH)))
        }
        _ => Zeros::NONE,
    }
}

/// The register that holds how askew a pointer is, and the one with what of the window is the guest's if it is not.
pub(super) fn names(index: usize) -> (String, String) {
    (format!("%wxm{index}"), format!("%wxs{index}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Pointer = (7, 0);
    const Q: Pointer = (8, 0);

    fn given(sure: u32, pointer: Pointer, bits: u32) -> Zeros {
        Zeros::new(sure, Some((pointer, bits)))
    }

    #[test]
    fn a_pointer_and_a_multiple_is_as_aligned_as_the_pointer() {
        let pointer = given(0, P, ENOUGH);
        let index = Zeros::NONE.times(Zeros::sure(2));
        assert_eq!(pointer.and(index), given(0, P, 2));
        assert_eq!(index.and(pointer), given(0, P, 2));
        // An index that was given is not what makes the sum aligned.
        let index = given(0, Q, ENOUGH).times(Zeros::sure(3));
        assert_eq!(pointer.and(index), given(0, P, 3));
        assert_eq!(pointer.and(pointer), pointer);
    }

    #[test]
    fn two_pointers_together_are_known_to_be_nothing() {
        assert_eq!(given(0, P, 5).and(given(0, Q, 5)), Zeros::NONE);
        assert_eq!(given(1, P, 5).and(given(2, Q, 5)), given(1, P, 2));
        assert_eq!(given(1, P, 5).times(given(2, Q, 5)).sure, 3);
    }
}
