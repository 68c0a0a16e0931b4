//! Which bytes of an entry's local memory may be read before they are stored to: those are cleared at its head, and no others, since each
//! store to local memory that the guest does not make itself is felt.

use std::ops::Range;

use super::access::{Access, Way, Ways, Where};
use super::blocks::Blocks;
use super::flow;
use super::names::{Base, Code, Step, Value};
use super::registers::{self, Stretch};
use crate::isa::{self, Action};

/// Most bytes of local memory that are looked at one by one, and most bits of sets.
const MAX_BYTES: u32 = 4096;
const MAX_BITS: usize = 1 << 24;

/// What a statement does with local memory.
enum Touch {
    Nothing,
    /// It may read any of it.
    ReadsAll,
    Reads(Range<u32>),
    Stores(Range<u32>),
}

/// The bytes to clear, in order.
pub(super) fn unstored(
    code: &Code<'_>,
    ways: &Ways,
    blocks: &Blocks,
    locals: &[Option<u32>],
) -> Vec<Range<u32>> {
    let size = blocks.local.size;
    let all = || std::iter::once(0..size).collect();
    let places = flow::label_places(&code.statements, code.labels.len());
    let stretches = registers::stretches(code, &places);
    let words = (size as usize).div_ceil(64);
    let bits = words.saturating_mul(64).saturating_mul(stretches.len());
    if size > MAX_BYTES || bits > MAX_BITS || stretches.is_empty() {
        return all();
    }
    let touches = |stretch: &Stretch| {
        (stretch.start..stretch.end).map(|statement| touch(code, ways, locals, statement))
    };
    let mut gained = vec![vec![0_u64; words]; stretches.len()];
    for (stretch, gained) in stretches.iter().zip(&mut gained) {
        for touch in touches(stretch) {
            if let Touch::Stores(range) = touch {
                set(gained, range);
            }
        }
    }
    let known = registers::on_all_ways(&stretches, &gained);
    let mut missing = vec![0_u64; words];
    for (stretch, known) in stretches.iter().zip(known) {
        let Some(mut state) = known else { continue };
        for touch in touches(stretch) {
            let read = match touch {
                Touch::Nothing => continue,
                Touch::Stores(range) => {
                    set(&mut state, range);
                    continue;
                }
                Touch::Reads(range) => range,
                Touch::ReadsAll => 0..size,
            };
            for at in read.filter(|&at| !is_set(&state, at)) {
                set(&mut missing, at..at + 1);
            }
        }
    }
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for at in (0..size).filter(|&at| is_set(&missing, at)) {
        match ranges.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

fn set(bits: &mut [u64], range: Range<u32>) {
    for at in range {
        if let Some(word) = bits.get_mut(at as usize / 64) {
            *word |= 1 << (at % 64);
        }
    }
}

fn is_set(bits: &[u64], at: u32) -> bool {
    bits.get(at as usize / 64)
        .is_some_and(|word| word >> (at % 64) & 1 == 1)
}

fn touch(code: &Code<'_>, ways: &Ways, locals: &[Option<u32>], statement: usize) -> Touch {
    let Step::Instruction(instruction) = &code.statements[statement] else {
        return Touch::Nothing;
    };
    if isa::row(instruction.opcode).is_some_and(|row| row.action == Action::Call) {
        return Touch::ReadsAll;
    }
    let Some((access, way)) = ways.of[statement][0] else {
        return Touch::Nothing;
    };
    let is_store = instruction.opcode == "st";
    match (access.space, way) {
        (Where::Local, Way::Direct) => {
            match (place(&instruction.operands, access, locals), is_store) {
                (Some(range), false) => Touch::Reads(range),
                (Some(range), true) if instruction.guard.is_none() => Touch::Stores(range),
                (_, true) => Touch::Nothing,
                (None, false) => Touch::ReadsAll,
            }
        }
        (Where::Local, _) | (_, Way::Tagged) if !is_store => Touch::ReadsAll,
        _ => Touch::Nothing,
    }
}

/// The bytes that an access by a variable's name reaches.
fn place(operands: &[Value<'_>], access: Access, locals: &[Option<u32>]) -> Option<Range<u32>> {
    match operands.get(access.operand) {
        Some(Value::Address {
            base: Base::Variable(id),
            offset,
            ..
        }) => {
            let place = i64::from(locals[*id]?).checked_add(*offset)?;
            let place = u32::try_from(place).ok()?;
            Some(place..place.checked_add(access.width)?)
        }
        _ => None,
    }
}
