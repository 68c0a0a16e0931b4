//! Addresses that are known now: where a register holds that of a local or shared variable and a constant, accesses by it name the variable, so
//! that nothing has to be confined.

use super::access::{accesses, is_unsized};
use super::names::{Base, Code, Instruction, Program, Register, Step, Value, VariableId};
use crate::ast::{Immediate, Space};
use crate::error::Error;
use crate::{ast::Variable, isa};

use super::flow;

/// A variable, and how far behind its beginning.
type Known = (VariableId, i64);

/// Names variables in accesses that reach them by a register.
pub(super) fn fold_addresses(program: &mut Program<'_>) -> Result<(), Error> {
    let variables = &program.variables;
    // In dynamic shared memory only registers reach variables.
    let has_unsized = variables
        .iter()
        .any(|variable| variable.space == Space::Shared && is_unsized(variable));
    for code in &mut program.functions {
        let known = known(code, variables, has_unsized);
        if known.iter().all(Option::is_none) {
            continue;
        }
        for (index, step) in code.statements.iter_mut().enumerate() {
            let Step::Instruction(instruction) = step else {
                continue;
            };
            let Some(row) = isa::row(instruction.opcode) else {
                continue;
            };
            for access in accesses(instruction, row.action)?.into_iter().flatten() {
                let Some(Value::Address { base, offset, .. }) =
                    instruction.operands.get_mut(access.operand)
                else {
                    continue;
                };
                let Base::Register(register) = *base else {
                    continue;
                };
                if let Some((defined, (id, place))) = known[register]
                    && defined < index
                    && let Some(at) = place.checked_add(*offset)
                    && is_inside(variables[id], at, access.width)
                    && access.space.is_of(variables[id].space)
                {
                    (*base, *offset) = (Base::Variable(id), at);
                }
            }
        }
    }
    Ok(())
}

fn is_inside(variable: &Variable, at: i64, width: u32) -> bool {
    let (bytes, width) = (variable.bytes().unwrap_or(0), u64::from(width));
    u64::try_from(at).is_ok_and(|at| {
        at.is_multiple_of(width) && at.checked_add(width).is_some_and(|end| end <= bytes)
    }) && u64::from(variable.alignment()).is_multiple_of(width)
}

/// By register: the statement that alone writes it, and what it holds.
fn known(
    code: &Code<'_>,
    variables: &[&Variable],
    has_unsized: bool,
) -> Vec<Option<(usize, Known)>> {
    let mut writes = vec![0_u32; code.registers.len()];
    for step in &code.statements {
        if let Step::Instruction(instruction) = step
            && let Some(row) = isa::row(instruction.opcode)
        {
            flow::written(instruction, row, &mut |register| writes[register] += 1);
        }
    }
    let mut known: Vec<Option<(usize, Known)>> = vec![None; code.registers.len()];
    for (index, step) in code.statements.iter().enumerate() {
        if let Step::Instruction(instruction) = step
            && instruction.guard.is_none()
            && let Some(&Value::Register(to)) = instruction.operands.first()
            && writes[to] == 1
            && let Some((id, place)) = result(instruction, &known)
            && match variables[id].space {
                Space::Local => code.is_entry(),
                Space::Shared => !has_unsized,
                _ => false,
            }
        {
            known[to] = Some((index, (id, place)));
        }
    }
    known
}

/// The address that an instruction computes.
fn result(instruction: &Instruction<'_>, known: &[Option<(usize, Known)>]) -> Option<Known> {
    let of = |register: Register| known[register].map(|(_, known)| known);
    match (instruction.opcode, &instruction.operands[1..]) {
        ("mov", [Value::Variable(id, offset)]) => Some((*id, *offset)),
        ("mov", [Value::Register(from)]) => of(*from),
        (
            "add",
            [
                Value::Register(from),
                Value::Immediate(Immediate::Integer(more)),
            ],
        ) => {
            let (id, place) = of(*from)?;
            Some((id, place.checked_add(more.cast_signed())?))
        }
        _ => None,
    }
}
