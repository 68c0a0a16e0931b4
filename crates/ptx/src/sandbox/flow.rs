//! What an instruction reads and writes, and where control goes: what the other passes ask of the table of instructions.

use super::names::{Instruction, Register, Step, Value};
use crate::isa::{self, Action, Row};

/// How many operands, counted from the first, an instruction writes.
fn written_operands(instruction: &Instruction<'_>, row: &Row) -> usize {
    match row.action {
        Action::Barrier => usize::from(instruction.modifiers.contains(&"red")),
        Action::Call => usize::from(matches!(instruction.operands.first(), Some(Value::List(_)))),
        _ => row.written,
    }
}

/// Calls `each` for the registers that an instruction writes.
pub(super) fn written(instruction: &Instruction<'_>, row: &Row, each: &mut impl FnMut(Register)) {
    let count = written_operands(instruction, row);
    instruction
        .operands
        .iter()
        .take(count)
        .for_each(|operand| operand.registers(each));
}

/// Calls `each` for the registers that an instruction reads, its guard apart.
pub(super) fn read(instruction: &Instruction<'_>, row: &Row, each: &mut impl FnMut(Register)) {
    let count = written_operands(instruction, row);
    instruction
        .operands
        .iter()
        .skip(count)
        .for_each(|operand| operand.registers(each));
}

/// Whether what follows an instruction may not run although it ran, or has a label of ours before it.
pub(super) fn ends_stretch(instruction: &Instruction<'_>, action: Action) -> bool {
    matches!(
        action,
        Action::Branch | Action::Call | Action::End | Action::Sleep | Action::Trap
    ) || instruction.opcode == "brx"
}

/// Whether the instruction after one is not reached by it.
pub(super) fn never_falls_through(
    instruction: &Instruction<'_>,
    action: Action,
    goes_back: bool,
) -> bool {
    let leaves = match action {
        Action::Branch => !goes_back || instruction.opcode == "brx",
        Action::End | Action::Trap => true,
        _ => false,
    };
    leaves && instruction.guard.is_none()
}

/// Where each label stands among the statements.
pub(super) fn label_places(statements: &[Step<'_>], labels: usize) -> Vec<Option<usize>> {
    let mut places = vec![None; labels];
    for (index, step) in statements.iter().enumerate() {
        if let Step::Label(label) = step {
            places[*label] = Some(index);
        }
    }
    places
}

/// Modifiers of accesses that go past the caches, for each thread of a warp on its own where the memory is the host's.
const PAST_CACHES: [&str; 6] = [
    "volatile", "relaxed", "acquire", "release", "acq_rel", "sys",
];
/// What such an access weighs at least.
const PAST_CACHES_WEIGHT: u32 = 64;

/// What an instruction weighs where time is counted.
fn weight(instruction: &Instruction<'_>) -> u32 {
    let weight = isa::row(instruction.opcode).map_or(1, |row| row.weight);
    let goes_past = |word: &&str| PAST_CACHES.contains(word);
    match instruction.modifiers.iter().any(goes_past) {
        true => weight.max(PAST_CACHES_WEIGHT),
        false => weight,
    }
}

/// For each statement, and for the end, what all before it weigh.
pub(super) fn weights(statements: &[Step<'_>]) -> Vec<u32> {
    let mut total = 0_u32;
    let mut weights = vec![0];
    for step in statements {
        if let Step::Instruction(instruction) = step {
            total = total.saturating_add(weight(instruction));
        }
        weights.push(total);
    }
    weights
}
