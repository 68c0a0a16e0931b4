//! The blocks that shared, local and const variables become: where each variable lies in its block, how large the block is, and by which
//! idiom a register reaches it.

use std::collections::HashMap;

use super::access::{Group, Way, Ways, Where, is_unsized};
use super::calls::{Graph, MAX_DEPTH};
use super::names::{Base, Code, Program, Step, Value, VariableId, refuse};
use crate::ast::Space;
use crate::error::Error;
use crate::layout::align_up;
use crate::limits::max_space_bytes;

/// Largest shared block of fixed size: what the assembler takes.
const MAX_STATIC_SHARED: u32 = 48 << 10;
/// What CUDA aligns dynamic shared memory to.
const DYNAMIC_ALIGN: u32 = 16;
/// What blocks are aligned to, so that no variable in one is to more.
const MAX_BLOCK_ALIGN: u32 = 128;
/// Frames are aligned to what is cleared at once at least.
const LEAST_FRAME_ALIGN: u32 = 16;
/// Widest access.
const MAX_WIDTH: u32 = 32;

/// A block of fixed size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    /// Its bytes.
    pub(super) size: u32,
    /// Those that the guest's variables take.
    pub(super) total: u32,
    /// 2^n for which an address is cut with `and`; where it is not, with `min`.
    pub(super) power: Option<u32>,
}

impl Block {
    /// A block for variables of so many bytes, whose accesses end at most `reach` behind a multiple of their alignment and `slack` more
    /// than the alignment behind it.
    fn new(total: u32, demand: Demand, limit: u32) -> Self {
        let least = total
            .max(demand.reach)
            .max(MAX_WIDTH)
            .next_multiple_of(MAX_WIDTH);
        if !demand.by_register {
            return Self {
                size: least,
                total,
                power: None,
            };
        }
        let power = total.max(MAX_WIDTH).next_power_of_two();
        let size = power
            .saturating_add(demand.slack)
            .next_multiple_of(MAX_WIDTH);
        match size <= limit {
            true => Self {
                size,
                total,
                power: Some(power),
            },
            false => Self {
                size: least,
                total,
                power: None,
            },
        }
    }
}

impl Block {
    /// A block that has no bytes beside those that variables take or accesses need: each thread has one, and clears what is not stored to.
    fn tight(total: u32, demand: Demand) -> Self {
        let size = total.max(demand.reach).max(1);
        let is_power = size.is_power_of_two() && demand.slack == 0;
        Self {
            size,
            total,
            power: is_power.then_some(size),
        }
    }
}

/// What accesses ask of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    by_register: bool,
    /// The largest `end`.
    reach: u32,
    /// The largest `end` less alignment.
    slack: u32,
}

impl Demand {
    fn add(&mut self, group: &Group) {
        self.by_register = true;
        self.reach = self.reach.max(group.end);
        self.slack = self.slack.max(group.end - group.align);
    }

    fn add_tagged(&mut self, width: u32) {
        self.by_register = true;
        self.reach = self.reach.max(width);
    }

    fn join(&mut self, other: Self) {
        self.by_register |= other.by_register;
        self.reach = self.reach.max(other.reach);
        self.slack = self.slack.max(other.slack);
    }
}

/// Shared memory of an entry or of the whole module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shared {
    /// The dynamic block: `padding` is the contract's P, `before` where the unsized array begins.
    Dynamic { padding: u32, before: u32 },
    /// A block of its own, with its number.
    Static { number: usize, block: Block },
}

/// All blocks of a module.
#[derive(Debug)]
pub(super) struct Blocks {
    /// By function, or for all in one: the offsets of shared variables, which each block has in another place.
    shared_offsets: Vec<HashMap<VariableId, u32>>,
    /// By function: what it uses.
    pub(super) shared_of: Vec<Option<Shared>>,
    /// The blocks of fixed size, as they are declared.
    pub(super) declared: Vec<Block>,
    pub(super) has_dynamic: bool,
    /// By function: where its frame begins, and how many bytes a level of its cycle takes (0 where it is in none).
    pub(super) frames: Vec<(u32, u32)>,
    /// Whether any function has a frame or reaches one.
    pub(super) has_local: bool,
    pub(super) local: Block,
    pub(super) constant: Block,
}

/// Bytes and alignment of a function's frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    bytes: u32,
    align: u32,
}

/// By variable: its offset in its function's frame; by function: its frame.
pub(super) fn frames(program: &Program<'_>) -> (Vec<Option<u32>>, Vec<Frame>) {
    let mut offsets = vec![None; program.variables.len()];
    let sizes = program
        .functions
        .iter()
        .map(|code| {
            let (mut end, mut align) = (0_u64, LEAST_FRAME_ALIGN);
            for &id in &code.variables {
                let variable = program.variables[id];
                if variable.space == Space::Local {
                    let own = variable.alignment().min(MAX_BLOCK_ALIGN);
                    align = align.max(own);
                    let offset = align_up(end, own);
                    end = offset.saturating_add(variable.bytes().unwrap_or(0));
                    offsets[id] = u32::try_from(offset).ok();
                }
            }
            let bytes = u32::try_from(end).unwrap_or(u32::MAX);
            Frame { bytes, align }
        })
        .collect();
    (offsets, sizes)
}

/// Lays out all blocks.
pub(super) fn lay_out(
    program: &Program<'_>,
    graph: &Graph,
    frame_sizes: &[Frame],
    constants: usize,
    ways: &[Ways],
) -> Result<Blocks, Error> {
    let mut shared = SharedUse::default();
    let mut uses = Vec::new();
    let (mut local, mut constant) = (Demand::default(), Demand::default());
    let mut has_local = frame_sizes.iter().any(|frame| frame.bytes > 0);
    for (code, ways) in program.functions.iter().zip(ways) {
        let used = shared_use(program, code, ways);
        for group in &ways.groups {
            match group.space {
                Where::Const => constant.add(group),
                Where::Local => local.add(group),
                _ => {}
            }
        }
        has_local |= local.by_register;
        for (access, _) in tagged(ways) {
            local.add_tagged(access);
            has_local = true;
        }
        if !code.is_entry() && used.is_any {
            shared.of_module = true;
        }
        uses.push(used);
    }
    let mut blocks = Blocks {
        shared_offsets: Vec::new(),
        shared_of: Vec::new(),
        declared: Vec::new(),
        has_dynamic: false,
        frames: Vec::new(),
        has_local,
        local: Block::default(),
        constant: Block::default(),
    };
    if shared.of_module {
        let mut all = Used::default();
        for used in &uses {
            all.join(used);
        }
        let block = blocks.share(program, &all);
        // Of entries too that only call what uses it: they clear it, and their launches say how large it is.
        blocks.shared_of = vec![Some(block); uses.len()];
    } else {
        for used in &uses {
            let shared = match used.is_any {
                true => Some(blocks.share(program, used)),
                false => {
                    blocks.shared_offsets.push(HashMap::new());
                    None
                }
            };
            blocks.shared_of.push(shared);
        }
    }
    let total = blocks.lay_out_frames(program, graph, frame_sizes)?;
    blocks.local = Block::tight(total, local);
    let limit = u32::try_from(max_space_bytes(Space::Const)).unwrap_or(u32::MAX);
    blocks.constant = Block::new(
        u32::try_from(constants).unwrap_or(u32::MAX),
        constant,
        limit,
    );
    Ok(blocks)
}

#[derive(Debug, Default)]
struct SharedUse {
    of_module: bool,
}

/// What a function does with shared memory.
#[derive(Debug, Default)]
struct Used {
    is_any: bool,
    variables: Vec<VariableId>,
    demand: Demand,
}

impl Used {
    fn join(&mut self, other: &Self) {
        self.is_any |= other.is_any;
        self.variables.extend(&other.variables);
        self.demand.join(other.demand);
    }
}

/// Widths of the accesses that go by tags.
fn tagged(ways: &Ways) -> impl Iterator<Item = (u32, usize)> {
    ways.of
        .iter()
        .flatten()
        .flatten()
        .filter_map(|(access, way)| match way {
            Way::Tagged => Some((access.width, access.operand)),
            _ => None,
        })
}

fn shared_use(program: &Program<'_>, code: &Code<'_>, ways: &Ways) -> Used {
    let mut used = Used::default();
    for step in &code.statements {
        if let Step::Instruction(instruction) = step {
            for operand in &instruction.operands {
                variables(operand, &mut |id| {
                    if program.variables[id].space == Space::Shared {
                        used.is_any = true;
                        used.variables.push(id);
                    }
                });
            }
        }
    }
    for group in ways
        .groups
        .iter()
        .filter(|group| group.space == Where::Shared)
    {
        used.is_any = true;
        used.demand.add(group);
    }
    for (width, _) in tagged(ways) {
        used.is_any = true;
        used.demand.add_tagged(width);
    }
    used
}

/// Calls `each` for every variable that an operand names.
pub(super) fn variables(value: &Value<'_>, each: &mut impl FnMut(VariableId)) {
    match value {
        Value::Address {
            base: Base::Variable(id),
            ..
        }
        | Value::Variable(id, _) => each(*id),
        Value::List(values) | Value::Vector(values) => {
            values.iter().for_each(|value| variables(value, each))
        }
        Value::Pair(pair) => {
            variables(&pair.0, each);
            variables(&pair.1, each);
        }
        _ => {}
    }
}

impl Blocks {
    /// The offset of a shared variable in the block that a function uses.
    pub(super) fn shared_offset(&self, function: usize, variable: VariableId) -> Option<u32> {
        let offsets = self
            .shared_offsets
            .get(function)
            .or(self.shared_offsets.first())?;
        offsets.get(&variable).copied()
    }

    /// Places the shared variables of a function, or of all.
    fn share(&mut self, program: &Program<'_>, used: &Used) -> Shared {
        let mut offsets = HashMap::new();
        let shared = self.place(program, used, &mut offsets);
        self.shared_offsets.push(offsets);
        shared
    }

    fn place(
        &mut self,
        program: &Program<'_>,
        used: &Used,
        offsets: &mut HashMap<VariableId, u32>,
    ) -> Shared {
        let mut ids = used.variables.clone();
        ids.sort_unstable();
        ids.dedup();
        let mut end = 0_u64;
        let mut unsized_align = DYNAMIC_ALIGN;
        let mut is_dynamic = false;
        for &id in &ids {
            let variable = program.variables[id];
            if is_unsized(variable) {
                is_dynamic = true;
                unsized_align = unsized_align.max(variable.alignment().min(MAX_BLOCK_ALIGN));
                continue;
            }
            let offset = align_up(end, variable.alignment().min(MAX_BLOCK_ALIGN));
            end = offset.saturating_add(variable.bytes().unwrap_or(0));
            offsets.insert(id, u32::try_from(offset).unwrap_or(u32::MAX));
        }
        // Validation bounds a function's shared memory.
        let total = u32::try_from(end).unwrap_or(u32::MAX);
        if is_dynamic {
            let before = total.next_multiple_of(unsized_align);
            for &id in ids.iter().filter(|&&id| is_unsized(program.variables[id])) {
                offsets.insert(id, before);
            }
            self.has_dynamic = true;
            // What is cleared 16 bytes at once has to reach what a byte's access reaches.
            let demand = used.demand;
            let padding = demand
                .reach
                .max(demand.slack.saturating_add(DYNAMIC_ALIGN))
                .max(MAX_WIDTH)
                .next_multiple_of(DYNAMIC_ALIGN);
            return Shared::Dynamic { padding, before };
        }
        let block = Block::new(total, used.demand, MAX_STATIC_SHARED);
        self.declared.push(block);
        Shared::Static {
            number: self.declared.len() - 1,
            block,
        }
    }

    /// Gives each function a place for its frame; says how many bytes all take.
    fn lay_out_frames(
        &mut self,
        program: &Program<'_>,
        graph: &Graph,
        sizes: &[Frame],
    ) -> Result<u32, Error> {
        let mut starts = vec![0_u64; sizes.len()];
        let mut levels = vec![0_u64; sizes.len()];
        let mut total = 0_u64;
        let mut index = 0;
        // Where functions are called from decides where their frames begin; those of a cycle begin at one place and take the same
        // bytes a level.
        while let Some(&first) = graph.order.get(index) {
            let rest = &graph.order[index..];
            let members = match graph.cycle_of[first] {
                None => &rest[..1],
                cycle => {
                    let count = rest
                        .iter()
                        .take_while(|&&place| graph.cycle_of[place] == cycle)
                        .count();
                    &rest[..count]
                }
            };
            index += members.len();
            let align = members
                .iter()
                .map(|&place| sizes[place].align)
                .max()
                .unwrap_or(1);
            let bytes = members
                .iter()
                .map(|&place| u64::from(sizes[place].bytes))
                .max()
                .unwrap_or(0);
            let start = members
                .iter()
                .map(|&place| starts[place])
                .max()
                .unwrap_or(0);
            let start = align_up(start, align);
            let level = align_up(bytes, align);
            let end = match graph.cycle_of[first] {
                None => start.saturating_add(bytes),
                Some(_) => start.saturating_add(level.saturating_mul(u64::from(MAX_DEPTH + 1))),
            };
            total = total.max(end);
            for &callee in members.iter().flat_map(|&place| &graph.callees[place]) {
                starts[callee] = starts[callee].max(end);
            }
            for &place in members {
                starts[place] = start;
                levels[place] = graph.cycle_of[first].map_or(0, |_| level);
            }
        }
        for (place, code) in program.functions.iter().enumerate() {
            let name = program.module.text(code.source.name);
            let reason = "local memory takes more than 512 KiB with those that it calls";
            let start = u32::try_from(starts[place])
                .ok()
                .filter(|_| total <= max_space_bytes(Space::Local))
                .ok_or_else(|| refuse(name, reason, code.source.at))?;
            self.frames
                .push((start, u32::try_from(levels[place]).unwrap_or(u32::MAX)));
        }
        Ok(u32::try_from(total).unwrap_or(u32::MAX))
    }
}
