//! Which accesses an instruction makes, and which of them can share one confined address: those from the same value of the same register,
//! under the same guard, in a stretch of code that runs as a whole. The address is confined at the lowest of their offsets, so that what a
//! right program computes is inside memory there and is left as it is.

use std::collections::HashMap;

use super::calls::Calls;
use super::flow;
use super::globals::Images;
use super::names::{Base, Code, Guard, Instruction, Program, Register, Step, Value, refuse};
use crate::ast::{Linkage, ScalarType, Space, Variable};
use crate::error::Error;
use crate::isa::{self, Action};

/// How far one confined address reaches: what lies on either side of the window is the guest's up to 4 KiB.
const MAX_REACH: i64 = 4064;

/// A space that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Where {
    Const,
    Generic,
    Global,
    Local,
    Param,
    Shared,
}

impl Where {
    /// Whether an instruction of this space can mean a variable of one.
    pub(super) fn is_of(self, space: Space) -> bool {
        space_of(self) == Some(space)
    }
}

/// What an instruction does with memory by one of its operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// The operand.
    pub(super) operand: usize,
    pub(super) space: Where,
    pub(super) width: u32,
}

/// The accesses of an instruction whose action is `Access` or `Copy`, at most two.
pub(super) fn accesses(
    instruction: &Instruction<'_>,
    action: Action,
) -> Result<[Option<Access>; 2], Error> {
    let modifiers = &instruction.modifiers;
    let unknown = || {
        refuse(
            &spelled(instruction),
            "its width is not known",
            instruction.at,
        )
    };
    if action == Action::CopyAsync {
        if !modifiers.contains(&"global") {
            return Ok([None, None]);
        }
        let width = match instruction.operands.get(2) {
            Some(Value::Immediate(crate::ast::Immediate::Integer(width @ (4 | 8 | 16)))) => {
                u32::try_from(*width).unwrap_or(16)
            }
            _ => return Err(unknown()),
        };
        let access = |operand, space| {
            Some(Access {
                operand,
                space,
                width,
            })
        };
        return Ok([access(0, Where::Shared), access(1, Where::Global)]);
    }
    if action != Action::Access {
        return Ok([None, None]);
    }
    let mut space = Where::Generic;
    let mut elements = 1;
    for modifier in modifiers {
        match *modifier {
            "global" => space = Where::Global,
            "shared" | "shared::cta" => space = Where::Shared,
            "local" => space = Where::Local,
            "const" => space = Where::Const,
            "param" | "param::entry" | "param::func" => space = Where::Param,
            "v2" => elements = 2,
            "v4" => elements = 4,
            "v8" => elements = 8,
            _ => {}
        }
    }
    if matches!(instruction.opcode, "ldmatrix" | "stmatrix") && space != Where::Shared {
        return Err(refuse(
            &spelled(instruction),
            "it is for shared memory that it names",
            instruction.at,
        ));
    }
    let width = match instruction.opcode {
        // Each thread gives the address of one row.
        "ldmatrix" | "stmatrix" => 16,
        _ => {
            let ty = modifiers
                .iter()
                .rev()
                .find_map(|word| ScalarType::from_name(word));
            ty.and_then(ScalarType::bytes).ok_or_else(unknown)? * elements
        }
    };
    let is_vector = |word: &&&str| matches!(**word, "v2" | "v4" | "v8");
    if modifiers.iter().filter(is_vector).count() > 1 {
        let reason = "it is of two vectors";
        return Err(refuse(&spelled(instruction), reason, instruction.at));
    }
    if width > 32 {
        return Err(refuse(
            &spelled(instruction),
            "it is wider than 32 bytes",
            instruction.at,
        ));
    }
    let operand = usize::from(matches!(
        instruction.opcode,
        "atom" | "ld" | "ldmatrix" | "ldu"
    ));
    Ok([
        Some(Access {
            operand,
            space,
            width,
        }),
        None,
    ])
}

/// An opcode with its modifiers, for messages.
pub(super) fn spelled(instruction: &Instruction<'_>) -> String {
    let mut text = instruction.opcode.to_owned();
    for modifier in &instruction.modifiers {
        text.push('.');
        text.push_str(modifier);
    }
    text
}

/// What a confined address is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// Nothing: an absolute address.
    Absolute,
    /// The unsized array in shared memory.
    Dynamic,
    /// The function's frame in local memory.
    Frame,
    /// The module's variables in the window.
    Globals,
    Register(Register),
}

/// Accesses that share a confined address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) space: Where,
    pub(super) origin: Origin,
    pub(super) guard: Option<Guard>,
    /// The lowest offset from the origin.
    pub(super) anchor: i64,
    /// The widest of the accesses.
    pub(super) align: u32,
    /// Bytes from the anchor to the end of the farthest access.
    pub(super) end: u32,
    /// The stretch of code that all of its accesses are in.
    pub(super) stretch: usize,
}

/// How one operand reaches memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// It has an offset in a variable, known now.
    Direct,
    /// By the address of a group, and so many bytes behind it.
    Group(usize, u32),
    /// By three addresses, one a space.
    Tagged,
}

/// Ways of all accesses of a function, by statement.
#[derive(Debug, Default)]
pub(super) struct Ways {
    pub(super) groups: Vec<Group>,
    /// Stretches so far.
    pub(super) stretches: usize,
    /// By statement and which of its two accesses.
    pub(super) of: Vec<[Option<(Access, Way)>; 2]>,
}

/// What is known of the module when ways are looked for.
#[derive(Debug)]
pub(super) struct Places<'p> {
    pub(super) images: &'p Images,
    /// By variable: its offset in its function's frame, where it is in local space.
    pub(super) locals: &'p [Option<u32>],
    /// Whether generic addresses can be of shared or local memory.
    pub(super) has_tags: bool,
}

/// Whether a shared variable takes what the launch gives.
pub(super) fn is_unsized(variable: &Variable) -> bool {
    variable.bytes().is_none() || variable.linkage == Linkage::Extern
}

struct Member {
    statement: usize,
    slot: usize,
    offset: i64,
    access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    space: Where,
    origin: Origin,
    guard: Option<Guard>,
}

/// Finds the ways of all accesses.
pub(super) fn ways(
    program: &Program<'_>,
    places: &Places<'_>,
    code: &Code<'_>,
    calls: &Calls,
) -> Result<Ways, Error> {
    let has_tags = places.has_tags;
    let mut ways = Ways {
        groups: Vec::new(),
        stretches: 0,
        of: vec![[None, None]; code.statements.len()],
    };
    let mut open: HashMap<Key, Vec<Member>> = HashMap::new();
    let mut keys_of: HashMap<Register, Vec<Key>> = HashMap::new();
    for (statement, step) in code.statements.iter().enumerate() {
        if calls.metered_at(statement).is_some() {
            ways.close_all(&mut open, &mut keys_of);
        }
        let Step::Instruction(instruction) = step else {
            ways.close_all(&mut open, &mut keys_of);
            continue;
        };
        let Some(row) = isa::row(instruction.opcode) else {
            continue;
        };
        for (slot, access) in accesses(instruction, row.action)?.into_iter().enumerate() {
            let Some(mut access) = access else { continue };
            let (base, offset) = match instruction.operands.get(access.operand) {
                Some(Value::Address {
                    base,
                    offset,
                    is_plain: true,
                }) => (*base, *offset),
                _ => {
                    return Err(refuse(
                        &spelled(instruction),
                        "its address is none",
                        instruction.at,
                    ));
                }
            };
            if access.space == Where::Generic {
                access.space = match base {
                    Base::Variable(id) => match program.variables[id].space {
                        Space::Shared => Where::Shared,
                        Space::Local => Where::Local,
                        Space::Global => Where::Global,
                        _ => {
                            return Err(refuse(
                                &spelled(instruction),
                                "its address is of no space",
                                instruction.at,
                            ));
                        }
                    },
                    Base::Register(_) if has_tags => Where::Generic,
                    _ => Where::Global,
                };
            }
            let wrong = || {
                refuse(
                    &spelled(instruction),
                    "the variable is in another space",
                    instruction.at,
                )
            };
            let (origin, offset) = match (base, access.space) {
                (Base::Register(_), Where::Generic) => {
                    ways.of[statement][slot] = Some((access, Way::Tagged));
                    continue;
                }
                (Base::Register(register), _) => (Origin::Register(register), offset),
                (Base::Absolute(address), _) => (
                    Origin::Absolute,
                    address.wrapping_add_signed(offset).cast_signed(),
                ),
                (Base::Variable(id), Where::Global)
                    if program.variables[id].space == Space::Global =>
                {
                    let place = places.images.offsets[id].ok_or_else(|| {
                        refuse(
                            &spelled(instruction),
                            "the variable is defined elsewhere",
                            instruction.at,
                        )
                    })?;
                    (Origin::Globals, offset.wrapping_add(i64::from(place)))
                }
                (Base::Variable(id), Where::Local)
                    if program.variables[id].space == Space::Local && code.is_entry() =>
                {
                    ways.of[statement][slot] = Some((access, Way::Direct));
                    continue;
                }
                (Base::Variable(id), Where::Local)
                    if program.variables[id].space == Space::Local =>
                {
                    let place = places.locals[id].unwrap_or(0);
                    (Origin::Frame, offset.wrapping_add(i64::from(place)))
                }
                (Base::Variable(id), Where::Shared)
                    if program.variables[id].space == Space::Shared
                        && is_unsized(program.variables[id]) =>
                {
                    (Origin::Dynamic, offset)
                }
                (Base::Variable(id), space)
                    if space_of(space) == Some(program.variables[id].space) =>
                {
                    ways.of[statement][slot] = Some((access, Way::Direct));
                    continue;
                }
                (Base::Variable(_), _) => return Err(wrong()),
            };
            let key = Key {
                space: access.space,
                origin,
                guard: instruction.guard,
            };
            let members = open.entry(key).or_default();
            if members.is_empty() {
                if let Origin::Register(register) = origin {
                    keys_of.entry(register).or_default().push(key);
                }
                if let Some(guard) = instruction.guard {
                    keys_of.entry(guard.register).or_default().push(key);
                }
            }
            members.push(Member {
                statement,
                slot,
                offset,
                access,
            });
        }
        if flow::ends_stretch(instruction, row.action) {
            ways.close_all(&mut open, &mut keys_of);
            continue;
        }
        if keys_of.is_empty() {
            continue;
        }
        flow::written(instruction, row, &mut |register| {
            for key in keys_of.remove(&register).unwrap_or_default() {
                if let Some(members) = open.remove(&key) {
                    ways.close(key, members);
                }
            }
        });
    }
    ways.close_all(&mut open, &mut keys_of);
    Ok(ways)
}

fn space_of(space: Where) -> Option<Space> {
    Some(match space {
        Where::Const => Space::Const,
        Where::Generic => return None,
        Where::Global => Space::Global,
        Where::Local => Space::Local,
        Where::Param => Space::Param,
        Where::Shared => Space::Shared,
    })
}

impl Ways {
    fn close_all(
        &mut self,
        open: &mut HashMap<Key, Vec<Member>>,
        keys_of: &mut HashMap<Register, Vec<Key>>,
    ) {
        keys_of.clear();
        for (key, members) in open.drain() {
            self.close(key, members);
        }
        self.stretches += 1;
    }

    /// Makes groups of accesses with one origin.
    fn close(&mut self, key: Key, mut members: Vec<Member>) {
        members.sort_by_key(|member| (member.offset, member.statement, member.slot));
        // The latest groups, which further members may be within reach of.
        let mut latest: [Option<usize>; 4] = [None; 4];
        let mut oldest = 0;
        for member in members {
            let width = member.access.width;
            let delta = |group: &Group| member.offset.wrapping_sub(group.anchor);
            let fits = |group: &Group| {
                (0..=MAX_REACH).contains(&delta(group)) && delta(group) % i64::from(width) == 0
            };
            let found = latest
                .iter()
                .flatten()
                .copied()
                .find(|&index| fits(&self.groups[index]));
            let index = found.unwrap_or_else(|| {
                latest[oldest % latest.len()] = Some(self.groups.len());
                oldest += 1;
                self.groups.push(Group {
                    space: key.space,
                    origin: key.origin,
                    guard: key.guard,
                    anchor: member.offset,
                    align: 1,
                    end: 0,
                    stretch: self.stretches,
                });
                self.groups.len() - 1
            });
            let group = &mut self.groups[index];
            let delta = u32::try_from(member.offset.wrapping_sub(group.anchor)).unwrap_or(0);
            group.align = group.align.max(width);
            group.end = group.end.max(delta + width);
            self.of[member.statement][member.slot] =
                Some((member.access, Way::Group(index, delta)));
        }
    }
}
