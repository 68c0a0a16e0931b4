//! Whether every register is written before it is read, whichever way a function is gone through: what an earlier kernel left in a
//! register is not the guest's to see.

use std::collections::{BTreeSet, HashMap};

use crate::ast::Symbol;
use crate::limits::{MAX_FLOW_BITS, MAX_FLOW_STEPS};

/// The blocks of a function, in order.
#[derive(Debug)]
pub(super) struct Flow {
    blocks: Vec<Block>,
    block_of: HashMap<Symbol, usize>,
    /// By register: the last block, counted from 1, that wrote it, that read it before writing it.
    written: Vec<usize>,
    exposed: Vec<usize>,
}

/// Statements that run one after the other.
#[derive(Debug, Default)]
struct Block {
    /// Registers that are written whatever happens.
    writes: Vec<usize>,
    /// Registers that are read before the block writes them, and the line.
    reads: Vec<(usize, u32)>,
    targets: Vec<Symbol>,
    /// Whether the next block may follow.
    falls: bool,
}

/// Why a function is refused.
#[derive(Debug)]
pub(super) enum Mistake {
    /// More registers and blocks than are gone through.
    TooLarge,
    /// A register is read that may be unwritten, in a line.
    Unwritten { register: usize, line: u32 },
}

impl Flow {
    /// For registers below a number.
    pub(super) fn new(registers: usize) -> Self {
        Self {
            blocks: vec![Block::default()],
            block_of: HashMap::new(),
            written: vec![0; registers],
            exposed: vec![0; registers],
        }
    }

    pub(super) fn read(&mut self, register: usize, line: u32) {
        let now = self.blocks.len();
        if self.written[register] != now && self.exposed[register] != now {
            self.exposed[register] = now;
            self.blocks[now - 1].reads.push((register, line));
        }
    }

    /// The register is written by what has just been read, whatever happens.
    pub(super) fn write(&mut self, register: usize) {
        let now = self.blocks.len();
        if self.written[register] != now {
            self.written[register] = now;
            self.blocks[now - 1].writes.push(register);
        }
    }

    pub(super) fn label(&mut self, label: Symbol) {
        self.end_block(Vec::new(), true);
        self.block_of.insert(label, self.blocks.len() - 1);
    }

    /// Control may go to a label, to the next statement too where it `falls`.
    pub(super) fn branch(&mut self, targets: Vec<Symbol>, falls: bool) {
        self.end_block(targets, falls);
    }

    fn end_block(&mut self, targets: Vec<Symbol>, falls: bool) {
        if let Some(block) = self.blocks.last_mut() {
            block.targets = targets;
            block.falls = falls;
        }
        self.blocks.push(Block::default());
    }

    fn successors(&self, index: usize) -> impl Iterator<Item = usize> {
        let block = &self.blocks[index];
        let next = (block.falls && index + 1 < self.blocks.len()).then_some(index + 1);
        let targets = block
            .targets
            .iter()
            .filter_map(|label| self.block_of.get(label).copied());
        next.into_iter().chain(targets)
    }

    /// Goes all ways through the function at once: which registers may be unwritten where a block begins.
    pub(super) fn check(&self) -> Result<(), Mistake> {
        // Only what is read in another block than the one that wrote it matters.
        let mut place_of = HashMap::new();
        for &(register, _) in self.blocks.iter().flat_map(|block| &block.reads) {
            let next = place_of.len();
            place_of.entry(register).or_insert(next);
        }
        let words = place_of.len().div_ceil(64);
        let bits = words.saturating_mul(64).saturating_mul(self.blocks.len());
        if bits > MAX_FLOW_BITS {
            return Err(Mistake::TooLarge);
        }
        let mut unwritten = vec![0_u64; words * self.blocks.len()];
        unwritten[..words].fill(u64::MAX);
        // The first one first: without branches back, each block is then looked at once.
        let mut queue = BTreeSet::from([0]);
        let mut steps = 0_usize;
        while let Some(index) = queue.pop_first() {
            let mut after = unwritten[index * words..][..words].to_vec();
            for register in &self.blocks[index].writes {
                if let Some(&place) = place_of.get(register) {
                    after[place / 64] &= !(1 << (place % 64));
                }
            }
            steps += words + self.blocks[index].writes.len();
            for next in self.successors(index) {
                let before = &mut unwritten[next * words..][..words];
                let mut grew = false;
                for (old, new) in before.iter_mut().zip(&after) {
                    grew |= *old | new != *old;
                    *old |= new;
                }
                steps += words;
                if grew {
                    queue.insert(next);
                }
            }
            if steps > MAX_FLOW_STEPS {
                return Err(Mistake::TooLarge);
            }
        }
        for (index, block) in self.blocks.iter().enumerate() {
            for &(register, line) in &block.reads {
                let place = place_of[&register];
                if unwritten[index * words + place / 64] >> (place % 64) & 1 == 1 {
                    return Err(Mistake::Unwritten { register, line });
                }
            }
        }
        Ok(())
    }
}
