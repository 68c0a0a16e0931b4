//! Moves that need no instruction: a register that is written once, with what never changes during a launch, is the slot of
//! that; and a result is put where it is wanted rather than moved there.

use std::collections::HashMap;

use ptx::ast::{FunctionKind, Module, Operand, Statement, Symbol};

use crate::cpu::alu;
use crate::cpu::code::{Guard, LongPreset, Op, Parameter, Preset, Slots, Width};

use super::function::Lowering;
use super::scope::{Found, Meaning};
use super::slots::Bank;
use super::types::Lowered;

/// How often each name is written, at most: a first operand is, and all operands of a call.
pub(super) fn definitions(module: &Module, statements: &[Statement]) -> HashMap<Symbol, u32> {
    let call = module.names.find("call");
    let mut counts = HashMap::new();
    for statement in statements {
        if let Statement::Instruction(instruction) = statement {
            let written = if Some(instruction.opcode) == call {
                &instruction.operands[..]
            } else {
                &instruction.operands[..instruction.operands.len().min(1)]
            };
            written
                .iter()
                .for_each(|operand| count(operand, &mut counts));
        }
    }
    counts
}

fn count(operand: &Operand, counts: &mut HashMap<Symbol, u32>) {
    match operand {
        Operand::Component { name, .. } | Operand::Name(name) => {
            *counts.entry(*name).or_default() += 1
        }
        Operand::List(operands) | Operand::Vector(operands) => {
            operands.iter().for_each(|operand| count(operand, counts));
        }
        Operand::Pair(pair) => {
            count(&pair.0, counts);
            count(&pair.1, counts);
        }
        _ => {}
    }
}

impl Lowering<'_, '_> {
    /// Lets a register be the slot of a value that never changes, where this is all that it is ever given.
    pub(super) fn alias(&mut self, to: &Operand, slot: u16, width: Width) -> bool {
        let Operand::Name(name) = to else {
            return false;
        };
        let once = self.definitions.get(name) == Some(&1);
        if !once || self.guard != Guard::ALWAYS || !self.fixed.contains(&(Bank::of(width), slot)) {
            return false;
        }
        let Some(Found::Register(depth, declaration)) =
            self.scopes.find(self.program.module, *name)
        else {
            return false;
        };
        if super::types::width(declaration.ty) != Some(width) || declaration.components != 1 {
            return false;
        }
        self.scopes.give(
            depth,
            *name,
            Meaning::Register {
                width,
                slot,
                components: 1,
            },
        );
        true
    }

    /// Moves a slot to a register, by no instruction if possible.
    pub(super) fn move_to(
        &mut self,
        to: &Operand,
        slot: u16,
        ty: ptx::ast::ScalarType,
    ) -> Lowered<()> {
        let width = super::types::width(ty).ok_or(super::types::Refusal::Form)?;
        if self.alias(to, slot, width) {
            return Ok(());
        }
        let d = self.destination(to, ty)?;
        self.settle(d, slot, Bank::of(width))
    }

    /// Moves a result to its slot: what computed it last writes there instead, if this instruction made it.
    pub(super) fn settle(&mut self, d: u16, slot: u16, bank: Bank) -> Lowered<()> {
        let own = slot >= self.taken[bank as usize] && !self.fixed.contains(&(bank, slot));
        let guard = self.guard;
        if own
            && let Some(last) = self.image.code.last_mut()
            && let Op::Lane { slots, .. } = &mut last.op
            && slots.d == slot
            && last.guard == guard
        {
            slots.d = d;
            return Ok(());
        }
        let run = if bank == Bank::Long {
            alu::move64
        } else {
            alu::move32
        };
        self.lane(
            run,
            Slots {
                d,
                a: slot,
                ..Slots::default()
            },
        )
    }

    /// The slot of a parameter of the entry, if `offset` is that of one of this width.
    pub(super) fn parameter(&mut self, parameter: Parameter) -> Lowered<Option<u16>> {
        let end = u64::from(parameter.offset) + u64::from(parameter.width.bytes());
        if self.kind != FunctionKind::Entry
            || end > u64::from(self.program.parameter_bytes)
            || !parameter.offset.is_multiple_of(parameter.width.bytes())
        {
            return Ok(None);
        }
        if parameter.register == Width::B64 {
            return self.long_preset(LongPreset::Parameter(parameter)).map(Some);
        }
        self.preset(Preset::Parameter(parameter)).map(Some)
    }
}
