//! Calls of device functions: frames follow each other in a warp's registers and local memory, parameters are copied.

use crate::error::TrapKind;

use super::code::{CallSite, Callee, Copied, FunctionCode, Image, LongPreset, Op, Preset};
use super::groups::{Frame, Group, Wait};
use super::lanes::{bit, blend, blend_bits, lanes};
use super::memory::{Fault, Local};
use super::warp::Warp;

/// Calls that may be open at once in a thread; CUDA's default stack of 1 KiB ends far earlier.
pub(super) const MAX_CALL_DEPTH: u32 = 1024;
/// Slots and rows that are copied for a call in the time of an instruction.
const COPIES_PER_INSTRUCTION: usize = 8;

/// The instructions that a call or a return counts as beyond itself, by what it copies.
fn instructions(parts: &[Copied], presets: usize) -> u32 {
    let rows: usize = parts.iter().map(|part| part.words as usize).sum();
    u32::try_from((rows + presets) / COPIES_PER_INSTRUCTION).unwrap_or(u32::MAX)
}

impl Warp {
    /// The lanes of `group`, which stands at a call, enter what it calls. Gives the instructions that it counts as more.
    pub(super) fn call(&mut self, image: &Image, site: u32, group: Group) -> Result<u32, Fault> {
        let site = &image.calls[site as usize];
        let (slot, list) = match site.callee {
            Callee::Direct(callee) => return self.enter(image, site, callee, group),
            Callee::Indirect { slot, list } => (slot, &image.callees[list as usize]),
        };
        let addresses = self.longs[group.frame.longs as usize + usize::from(slot)];
        let (mut left, mut more) = (group.mask, 0_u32);
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            let address = addresses[lane];
            let mask = lanes(left)
                .filter(|&lane| addresses[lane] == address)
                .fold(0, |mask, lane| mask | bit(lane));
            left &= !mask;
            let found = list.binary_search_by_key(&address, |&(address, _)| address);
            let (_, callee) = found.map(|at| list[at]).map_err(|_| Fault {
                kind: TrapKind::OutOfBounds,
                lane,
                access: None,
            })?;
            let entered = self.enter(image, site, callee, Group { mask, ..group })?;
            more = more.saturating_add(entered);
        }
        Ok(more)
    }

    /// The lanes of `group` enter a function.
    fn enter(
        &mut self,
        image: &Image,
        site: &CallSite,
        callee: u32,
        group: Group,
    ) -> Result<u32, Fault> {
        let callee = &image.functions[callee as usize];
        let frame = inner(group.frame, &image.functions[site.caller as usize]);
        self.reserve(frame, callee).ok_or(Fault {
            kind: TrapKind::CallDepth,
            lane: group.mask.trailing_zeros() as usize,
            access: None,
        })?;
        let depth = group.frame.depth as usize;
        if self.returns.len() <= depth {
            self.returns.resize(depth + 1, [0; 32]);
        }
        blend(&mut self.returns[depth], group.mask, &[group.pc; 32]);
        for part in &site.arguments {
            copy(
                &mut self.local,
                (group.frame.local + part.caller) as usize,
                (frame.local + part.callee) as usize,
                part.words,
                group.mask,
            );
        }
        for &(slot, preset) in &callee.words {
            let value = self.preset(image, preset);
            blend(
                &mut self.words[frame.words as usize + usize::from(slot)],
                group.mask,
                &value,
            );
        }
        for &(slot, preset) in &callee.longs {
            // Parameters of the entry are out of a callee's reach.
            let LongPreset::Value(value) = preset else {
                continue;
            };
            let slot = frame.longs as usize + usize::from(slot);
            blend(&mut self.longs[slot], group.mask, &[value; 32]);
        }
        for &(slot, value) in &callee.predicates {
            let value = if value { u32::MAX } else { 0 };
            blend_bits(
                &mut self.predicates[frame.predicates as usize + usize::from(slot)],
                group.mask,
                value,
            );
        }
        self.groups.push(Group {
            pc: callee.start,
            mask: group.mask,
            frame,
            wait: Wait::Nothing,
        });
        let presets = callee.words.len() + callee.longs.len();
        Ok(instructions(&site.arguments, presets))
    }

    /// A preset of a callee: values, and copies of what the entry's frame was given for the special registers.
    fn preset(&self, image: &Image, preset: Preset) -> [u32; 32] {
        if let Preset::Value(value) = preset {
            return [value; 32];
        }
        let mut presets = image.functions[0].words.iter();
        let found = presets.find(|(_, other)| *other == preset);
        found.map_or([0; 32], |&(slot, _)| self.words[usize::from(slot)])
    }

    /// The lanes of `group`, which stands at a return, go back to where they were called from. Gives the instructions that
    /// it counts as more.
    pub(super) fn return_from(&mut self, image: &Image, group: Group) -> u32 {
        let Some(depth) = group.frame.depth.checked_sub(1) else {
            return 0;
        };
        let (mut left, mut more) = (group.mask, 0_u32);
        while left != 0 {
            let calls = &self.returns[depth as usize];
            let pc = calls[left.trailing_zeros() as usize];
            let mask = lanes(left)
                .filter(|&lane| calls[lane] == pc)
                .fold(0, |mask, lane| mask | 1 << lane);
            left &= !mask;
            let Op::Call { site } = image.code[pc as usize].op else {
                continue;
            };
            let site: &CallSite = &image.calls[site as usize];
            let frame = outer(group.frame, &image.functions[site.caller as usize]);
            more = more.saturating_add(instructions(&site.results, 0));
            for &Copied {
                caller,
                callee,
                words,
            } in &site.results
            {
                copy(
                    &mut self.local,
                    (group.frame.local + callee) as usize,
                    (frame.local + caller) as usize,
                    words,
                    mask,
                );
            }
            self.groups.push(Group {
                pc: pc + 1,
                mask,
                frame,
                wait: Wait::Nothing,
            });
        }
        more
    }

    /// Makes room for a frame. `None` if calls are nested too deep.
    fn reserve(&mut self, frame: Frame, function: &FunctionCode) -> Option<()> {
        let size = function.size;
        let (words, longs, predicates) = (
            frame.words + size.words,
            frame.longs + size.longs,
            frame.predicates + size.predicates,
        );
        let rows = (frame.local + size.local) as usize;
        let fits = frame.depth <= MAX_CALL_DEPTH
            && words.max(longs).max(predicates).max(frame.depth) <= self.most_slots
            && rows <= self.most_rows;
        if !fits {
            return None;
        }
        grow(&mut self.words, words as usize, [0; 32]);
        grow(&mut self.longs, longs as usize, [0; 32]);
        grow(&mut self.predicates, predicates as usize, 0);
        grow(&mut self.local, rows, [0; 32]);
        Some(())
    }
}

fn grow<T: Copy>(bank: &mut Vec<T>, len: usize, zero: T) {
    if bank.len() < len {
        bank.resize(len, zero);
    }
}

/// The frame of what a function calls.
fn inner(frame: Frame, caller: &FunctionCode) -> Frame {
    Frame {
        words: frame.words + caller.size.words,
        longs: frame.longs + caller.size.longs,
        predicates: frame.predicates + caller.size.predicates,
        local: frame.local + caller.size.local,
        depth: frame.depth + 1,
    }
}

/// The frame of the function that called.
fn outer(frame: Frame, caller: &FunctionCode) -> Frame {
    Frame {
        words: frame.words - caller.size.words,
        longs: frame.longs - caller.size.longs,
        predicates: frame.predicates - caller.size.predicates,
        local: frame.local - caller.size.local,
        depth: frame.depth - 1,
    }
}

/// Copies rows of local memory for the lanes of a mask.
fn copy(local: &mut Local, from: usize, to: usize, rows: u32, mask: u32) {
    for row in 0..rows as usize {
        let value = local[from + row];
        blend(&mut local[to + row], mask, &value);
    }
}
