//! Which of the guest's registers may be read before they are written: those are set to zero at the head of the function, so that nothing of
//! another kernel is read. The graph is that of the *confined* text, in which a branch back may not be taken.

use super::access::{Way, Ways};
use super::flow;
use super::names::{Code, Step, Value};
use crate::isa::{self, Action};

/// Most bits of sets: beyond, all registers in question are set.
const MAX_BITS: usize = 1 << 26;

/// Statements that run one after the other.
pub(super) struct Stretch {
    pub(super) start: usize,
    pub(super) end: usize,
    successors: Vec<usize>,
    falls_through: bool,
}

/// The registers to set, in order.
pub(super) fn unwritten(code: &Code<'_>, ways: &Ways) -> Vec<usize> {
    let places = flow::label_places(&code.statements, code.labels.len());
    let stretches = stretches(code, &places);
    let count = code.registers.len();
    let mut is_candidate = vec![false; count];
    // Registers that are read where their stretch has not written them.
    let mut written_in = vec![usize::MAX; count];
    for (index, stretch) in stretches.iter().enumerate() {
        for statement in stretch.start..stretch.end {
            let mut read = |register: usize| {
                if written_in[register] != index {
                    is_candidate[register] = true;
                }
            };
            reads(code, statement, &mut read);
            writes(code, ways, statement, &mut |register| {
                written_in[register] = index
            });
        }
    }
    let candidates: Vec<_> = (0..count)
        .filter(|&register| is_candidate[register])
        .collect();
    let words = candidates.len().div_ceil(64);
    if candidates.is_empty() || words.saturating_mul(64).saturating_mul(stretches.len()) > MAX_BITS
    {
        return candidates;
    }
    let mut bit_of = vec![usize::MAX; count];
    for (bit, &register) in candidates.iter().enumerate() {
        bit_of[register] = bit;
    }
    let mut gained = vec![vec![0_u64; words]; stretches.len()];
    for (index, stretch) in stretches.iter().enumerate() {
        for statement in stretch.start..stretch.end {
            writes(code, ways, statement, &mut |register| {
                let bit = bit_of[register];
                if bit != usize::MAX {
                    gained[index][bit / 64] |= 1 << (bit % 64);
                }
            });
        }
    }
    let known = on_all_ways(&stretches, &gained);
    let mut missing = vec![0_u64; words];
    for (index, stretch) in stretches.iter().enumerate() {
        // Code that nothing reaches is still read by whoever checks the text.
        let mut state = known[index].clone().unwrap_or_else(|| vec![0; words]);
        for statement in stretch.start..stretch.end {
            reads(code, statement, &mut |register| {
                let bit = bit_of[register];
                if bit != usize::MAX && state[bit / 64] >> (bit % 64) & 1 == 0 {
                    missing[bit / 64] |= 1 << (bit % 64);
                }
            });
            writes(code, ways, statement, &mut |register| {
                let bit = bit_of[register];
                if bit != usize::MAX {
                    state[bit / 64] |= 1 << (bit % 64);
                }
            });
        }
    }
    let is_missing = |bit: usize| missing[bit / 64] >> (bit % 64) & 1 == 1;
    candidates
        .into_iter()
        .enumerate()
        .filter(|&(bit, _)| is_missing(bit))
        .map(|(_, register)| register)
        .collect()
}

/// By stretch: the bits that are gained on all ways to it; none where nothing leads there.
pub(super) fn on_all_ways(stretches: &[Stretch], gained: &[Vec<u64>]) -> Vec<Option<Vec<u64>>> {
    let mut known: Vec<Option<Vec<u64>>> = vec![None; stretches.len()];
    let mut waiting = vec![0];
    if let (Some(first), Some(gained)) = (known.first_mut(), gained.first()) {
        *first = Some(vec![0; gained.len()]);
    }
    while let Some(index) = waiting.pop() {
        let mut out = known.get(index).cloned().flatten().unwrap_or_default();
        out.iter_mut()
            .zip(&gained[index])
            .for_each(|(word, gained)| *word |= gained);
        let next = stretches[index]
            .falls_through
            .then_some(index + 1)
            .filter(|&next| next < stretches.len());
        for &successor in stretches[index].successors.iter().chain(&next) {
            match &mut known[successor] {
                Some(before) => {
                    let mut changed = false;
                    for (word, out) in before.iter_mut().zip(&out) {
                        changed |= *word & !out != 0;
                        *word &= out;
                    }
                    if changed {
                        waiting.push(successor);
                    }
                }
                none => {
                    *none = Some(out.clone());
                    waiting.push(successor);
                }
            }
        }
    }
    known
}

fn reads(code: &Code<'_>, statement: usize, each: &mut impl FnMut(usize)) {
    if let Step::Instruction(instruction) = &code.statements[statement] {
        if let Some(guard) = instruction.guard {
            each(guard.register);
        }
        if let Some(row) = isa::row(instruction.opcode) {
            flow::read(instruction, row, each);
        }
    }
}

/// Calls `each` for the registers that a statement certainly writes.
fn writes(code: &Code<'_>, ways: &Ways, statement: usize, each: &mut impl FnMut(usize)) {
    if let Step::Instruction(instruction) = &code.statements[statement]
        && let Some(row) = isa::row(instruction.opcode)
    {
        let is_tagged = matches!(ways.of[statement][0], Some((_, Way::Tagged)));
        if instruction.guard.is_none() && row.action != Action::Call && !is_tagged {
            flow::written(instruction, row, each);
        }
    }
}

/// The stretches of a function, in order.
pub(super) fn stretches(code: &Code<'_>, places: &[Option<usize>]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut stretch_of = vec![0; code.statements.len() + 1];
    let mut targets: Vec<Vec<usize>> = Vec::new();
    let mut start = 0;
    let mut close = |start: &mut usize,
                     end: usize,
                     to: Vec<usize>,
                     falls_through: bool,
                     stretch_of: &mut Vec<usize>| {
        if *start == end && to.is_empty() && falls_through {
            return;
        }
        for place in &mut stretch_of[*start..end] {
            *place = stretches.len();
        }
        stretches.push(Stretch {
            start: *start,
            end,
            successors: Vec::new(),
            falls_through,
        });
        targets.push(to);
        *start = end;
    };
    for (index, step) in code.statements.iter().enumerate() {
        let Step::Instruction(instruction) = step else {
            close(&mut start, index, Vec::new(), true, &mut stretch_of);
            continue;
        };
        let Some(row) = isa::row(instruction.opcode) else {
            continue;
        };
        if !flow::ends_stretch(instruction, row.action) {
            continue;
        }
        let to: Vec<usize> = match (row.action, instruction.operands.last()) {
            (Action::Branch, Some(Value::Label(label))) => {
                let listed = code.tables.get(label).map(Vec::as_slice);
                listed
                    .unwrap_or(std::slice::from_ref(label))
                    .iter()
                    .filter_map(|&label| places[label])
                    .collect()
            }
            _ => Vec::new(),
        };
        let goes_back = instruction.opcode == "bra" && to.iter().any(|&place| place <= index);
        let falls_through = !flow::never_falls_through(instruction, row.action, goes_back);
        close(&mut start, index + 1, to, falls_through, &mut stretch_of);
    }
    let end = code.statements.len();
    close(&mut start, end, Vec::new(), true, &mut stretch_of);
    for (stretch, to) in stretches.iter_mut().zip(targets) {
        stretch.successors = to.into_iter().map(|place| stretch_of[place]).collect();
    }
    stretches
}
