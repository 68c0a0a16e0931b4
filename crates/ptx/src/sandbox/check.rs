//! What is refused before anything is rewritten, and what is left out because nothing needs it.

use super::access::spelled;
use super::flow;
use super::head::hidden_bytes;
use super::names::{Code, Instruction, Program, Step, Value, refuse};
use crate::ast::{Immediate, Position};
use crate::error::Error;
use crate::isa::{self, Action};
use crate::layout::align_up;
use crate::limits::MAX_CONFINED_TARGETS;
use crate::signature::max_parameter_bytes;
use crate::validate::Validated;

/// Directives that make clusters of blocks, but for clusters of one.
const CLUSTERS: [&str; 3] = ["blocksareclusters", "explicitcluster", "reqnctapercluster"];

/// Refuses what has no row in the table of instructions.
pub(super) fn check(program: &Program<'_>) -> Result<(), Error> {
    for code in &program.functions {
        for directive in &code.source.directives {
            let name = program.module.text(directive.name);
            let is_alone =
                directive.values.iter().all(|&blocks| blocks == 1) && !directive.values.is_empty();
            if CLUSTERS.contains(&name) && !is_alone {
                return Err(refuse(name, "clusters reach other blocks", directive.at));
            }
        }
        let mut targets = 0;
        for step in &code.statements {
            if let Step::Instruction(instruction) = step {
                instruction_is_known(instruction)?;
                if instruction.opcode == "brx"
                    && let Some(Value::Label(label)) = instruction.operands.last()
                {
                    targets += code.tables.get(label).map_or(0, Vec::len);
                }
                if targets > MAX_CONFINED_TARGETS {
                    let reason = "the branches by number of its function have too many targets";
                    return Err(refuse(&spelled(instruction), reason, instruction.at));
                }
            }
        }
    }
    Ok(())
}

/// Alignment of the parameters of ours, which stand behind the guest's.
const HIDDEN_ALIGN: u32 = 8;

/// Refuses entries whose parameters leave no room for those of ours.
pub(super) fn check_parameters(program: &Validated) -> Result<(), Error> {
    let limit = max_parameter_bytes(program.module());
    for signature in program.entries() {
        let bytes = align_up(signature.size.into(), HIDDEN_ALIGN) + hidden_bytes();
        if bytes > limit {
            let at = Position {
                line: signature.line,
                column: 1,
            };
            let reason = "its parameters leave no room for the hidden ones";
            return Err(refuse(&signature.entry, reason, at));
        }
    }
    Ok(())
}

fn instruction_is_known(instruction: &Instruction<'_>) -> Result<(), Error> {
    let refused = |reason| Err(refuse(&spelled(instruction), reason, instruction.at));
    let Some(row) = isa::row(instruction.opcode) else {
        return refused(isa::reason(instruction.opcode));
    };
    if let Some(modifier) = row.foreign_modifier(&instruction.modifiers) {
        return refused(isa::modifier_reason(instruction.opcode, modifier));
    }
    if row.action == Action::Barrier && !instruction.modifiers.contains(&"warp") {
        let is_zero = |value: &Value<'_>| matches!(value, Value::Immediate(Immediate::Integer(0)));
        let is_whole = match (
            instruction.modifiers.contains(&"red"),
            &instruction.operands[..],
        ) {
            (false, [barrier]) => is_zero(barrier) && instruction.modifiers.contains(&"sync"),
            (true, [_, barrier, _]) => is_zero(barrier),
            _ => false,
        };
        if !is_whole {
            return refused("only barrier 0 for all threads of the block is waited for");
        }
    }
    if row.action == Action::CopyAsync {
        let has = |word| instruction.modifiers.contains(&word);
        if !has("async")
            || !(has("global") || has("commit_group") || has("wait_group") || has("wait_all"))
        {
            return refused("it is no copy from global to shared memory");
        }
    }
    Ok(())
}

/// Opcodes that do nothing but write their first operand.
const PURE: [&str; 4] = ["add", "cvt", "cvta", "mov"];

/// Leaves out instructions whose result nothing reads: compilers convert the frame's address to a generic one in every kernel that has a
/// frame, and hardly ever use it.
pub(super) fn leave_out_unread(program: &mut Program<'_>) {
    for code in &mut program.functions {
        let mut reads = vec![0_usize; code.registers.len()];
        let mut writers: Vec<Vec<usize>> = vec![Vec::new(); code.registers.len()];
        for (index, step) in code.statements.iter().enumerate() {
            let Step::Instruction(instruction) = step else {
                continue;
            };
            let Some(row) = isa::row(instruction.opcode) else {
                continue;
            };
            flow::read(instruction, row, &mut |register| reads[register] += 1);
            if let Some(guard) = instruction.guard {
                reads[guard.register] += 1;
            }
            if let Some(register) = pure_result(instruction) {
                writers[register].push(index);
            }
        }
        let mut unread: Vec<_> = (0..reads.len())
            .filter(|&register| reads[register] == 0)
            .collect();
        let mut is_out = vec![false; code.statements.len()];
        while let Some(register) = unread.pop() {
            for index in std::mem::take(&mut writers[register]) {
                is_out[index] = true;
                if let Step::Instruction(instruction) = &code.statements[index]
                    && let Some(row) = isa::row(instruction.opcode)
                {
                    let mut less = |register: usize| {
                        reads[register] -= 1;
                        if reads[register] == 0 {
                            unread.push(register);
                        }
                    };
                    flow::read(instruction, row, &mut less);
                    if let Some(guard) = instruction.guard {
                        less(guard.register);
                    }
                }
            }
        }
        let mut index = 0;
        code.statements.retain(|_| {
            index += 1;
            !is_out[index - 1]
        });
    }
}

fn pure_result(instruction: &Instruction<'_>) -> Option<usize> {
    match instruction.operands.first() {
        Some(Value::Register(register))
            if PURE.contains(&instruction.opcode) && !instruction.modifiers.contains(&"cc") =>
        {
            Some(*register)
        }
        _ => None,
    }
}

/// Whether the program makes generic addresses of shared or local memory.
pub(super) fn makes_tags(program: &Program<'_>) -> bool {
    let makes = |code: &Code<'_>| {
        code.statements.iter().any(|step| match step {
            Step::Instruction(instruction) => {
                instruction.opcode == "cvta"
                    && !instruction.modifiers.contains(&"to")
                    && !instruction.modifiers.contains(&"global")
            }
            Step::Label(_) => false,
        })
    };
    program.functions.iter().any(makes)
}
