//! What an entry does before its body: its first statements stand among what is done for every thread, so that neither waits for the other.
//!
//! What they compute is computed while the word that says stop is on its way, and what they load is on its way while shared memory is cleared.

use std::collections::HashSet;

use super::access::{Way, Where};
use super::emit::Emitter;
use super::flow;
use super::names::{Register, Step};
use crate::isa::{self, Action};

/// The first statements of an entry, up to the first label or branch: they stand among what is done before its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ahead {
    /// It computes while the thread does not know yet whether it may go on.
    Computes,
    /// It reaches into the window; then blocks of memory are cleared.
    Loads,
    /// It goes on with what was loaded, while other threads may still be clearing shared memory.
    Awaits,
    Not,
}

/// Most lines that are written for statements that compute ahead.
const MAX_AHEAD: usize = 64;

impl<'m> Emitter<'_, 'm> {
    /// How far ahead of the body a statement may stand, as far as it goes alone.
    pub(super) fn stage_of(&self, index: usize, step: &Step<'m>) -> Ahead {
        let Step::Instruction(instruction) = step else {
            return Ahead::Not;
        };
        let row = isa::row(instruction.opcode);
        let spaces = self.ways.of[index].iter().flatten();
        let mut ways = spaces.map(|&(access, way)| (access.space, way));
        match row.map(|row| (row.action, row.written)) {
            _ if self.calls.metered_at(index).is_some() => Ahead::Not,
            Some((Action::Access, _)) => match (ways.next(), ways.next()) {
                (Some((Where::Param, Way::Direct)), None) => Ahead::Computes,
                (Some((Where::Global, _)), None) => Ahead::Loads,
                _ => Ahead::Not,
            },
            Some((Action::ConvertAddress | Action::Drop | Action::Keep, 1..)) => Ahead::Computes,
            _ => Ahead::Not,
        }
    }

    /// Whether a statement needs what was loaded ahead; notes what it loads itself.
    pub(super) fn awaits(
        &self,
        index: usize,
        step: &Step<'m>,
        loaded: &mut HashSet<Register>,
    ) -> bool {
        let Step::Instruction(instruction) = step else {
            return false;
        };
        let Some(row) = isa::row(instruction.opcode) else {
            return false;
        };
        let mut awaits = instruction
            .guard
            .is_some_and(|guard| loaded.contains(&guard.register));
        flow::read(instruction, row, &mut |register| {
            awaits |= loaded.contains(&register);
        });
        let way = self.ways.of[index][0];
        if way.is_some_and(|(access, _)| access.space == Where::Global) {
            flow::written(instruction, row, &mut |register| {
                loaded.insert(register);
            });
        }
        awaits
    }

    /// Ends the stages before a statement's.
    pub(super) fn advance(&mut self, from: Ahead, mut to: Ahead) -> Ahead {
        if from == Ahead::Computes && self.body.lines() > MAX_AHEAD {
            to = to.max(Ahead::Loads);
        }
        if self.code.is_entry() {
            for stage in from as usize..to as usize {
                let line = self.body.line;
                self.ahead[stage] = std::mem::take(&mut self.body);
                self.body.line = line;
            }
        }
        if from <= Ahead::Loads && to > Ahead::Loads {
            // Between the two may be labels, behind which no address is known.
            self.address_of.fill(None);
        }
        to
    }
}
