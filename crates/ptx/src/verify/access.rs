//! Memory operations: where an address points to, and whether all bytes of the access are in it.

use super::HIDDEN;
use super::body::{Body, Result, Role};
use super::fact::{Bound, Fact, Place};
use super::idiom::number;
use super::table::{ATOMIC, COPIES, COPY_HINTS, LOAD, MATRIX, PREFETCHES, STORE, TRANSPOSED};
use crate::ast::{AddressBase, Instruction, Operand, ScalarType, Space, Symbol, Vector};
use crate::error::VerifyErrorKind;

/// What lies so many bytes before and behind a window is its guest's too.
const GUARD_BYTES: i64 = 4096;

/// The control block, and where in it the text may store.
const CONTROL_BYTES: i64 = 64;
const CONTROL_STORES_FROM: i64 = 8;

/// Bytes of a row of a matrix.
const ROW_BYTES: u32 = 16;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Load,
    LoadAndStore,
    Prefetch,
    Store,
}

/// An access, but for its address.
#[derive(Clone, Copy, Debug)]
struct Access {
    does: Does,
    space: Space,
    bytes: u32,
    line: u32,
}

impl Body<'_, '_> {
    /// Space and width of an instruction that says both and whose other modifiers are among those given.
    fn shape(&self, instruction: &Instruction, does: Does, others: &[&str]) -> Result<Access> {
        let line = instruction.at.line;
        let refuse = || self.refuse(line);
        let (last, modifiers) = instruction.modifiers.split_last().ok_or_else(refuse)?;
        let ty = ScalarType::from_name(self.name(*last)).and_then(ScalarType::bytes);
        let mut bytes = ty.ok_or_else(refuse)?;
        let (mut reach, mut is_vector) = (None, false);
        for &modifier in modifiers {
            let word = self.name(modifier);
            let space = match word {
                "const" | "global" | "local" | "param" | "shared" => Space::from_name(word),
                "shared::cta" => Some(Space::Shared),
                _ => None,
            };
            match (space, Vector::from_name(word)) {
                (Some(space), _) if reach.is_none() => reach = Some(space),
                (None, Some(vector)) if !is_vector => {
                    is_vector = true;
                    bytes *= vector.width();
                }
                (None, None) if others.contains(&word) => {}
                _ => return Err(refuse()),
            }
        }
        Ok(Access {
            does,
            space: reach.ok_or_else(refuse)?,
            bytes,
            line,
        })
    }

    /// `ld` and `ldmatrix`
    pub(super) fn load(&mut self, instruction: &Instruction) -> Result<()> {
        let line = instruction.at.line;
        let [to, address] = instruction.operands.as_slice() else {
            return Err(self.refuse(line));
        };
        if let Operand::Name(name) = to
            && self.is_reserved(*name)
        {
            return self.load_hidden(instruction, *name, address);
        }
        let access = match self.name(instruction.opcode) {
            "ld" => self.shape(instruction, Does::Load, &LOAD)?,
            _ => self.rows(instruction, Does::Load)?,
        };
        match access.space {
            Space::Param => self.load_parameter(address, access)?,
            _ => self.access(address, access)?,
        }
        self.destination(to, instruction.guard.is_none(), line)
    }

    /// `st` and `stmatrix`
    pub(super) fn store(&mut self, instruction: &Instruction) -> Result<()> {
        let line = instruction.at.line;
        let [address, from] = instruction.operands.as_slice() else {
            return Err(self.refuse(line));
        };
        self.source(from, line)?;
        let access = match self.name(instruction.opcode) {
            "st" => self.shape(instruction, Does::Store, &STORE)?,
            _ => self.rows(instruction, Does::Store)?,
        };
        match access.space {
            Space::Param if instruction.guard.is_none() => self.store_parameter(address, access),
            Space::Const | Space::Param => Err(self.refuse(line)),
            _ => self.access(address, access),
        }
    }

    /// `atom` and `red`
    pub(super) fn atomic(&mut self, instruction: &Instruction) -> Result<()> {
        let line = instruction.at.line;
        let access = self.shape(instruction, Does::LoadAndStore, &ATOMIC)?;
        if matches!(access.space, Space::Const | Space::Local | Space::Param) {
            return Err(self.refuse(line));
        }
        let operands = instruction.operands.as_slice();
        let (to, operands) = match (self.name(instruction.opcode), operands) {
            ("atom", [to, rest @ ..]) => (Some(to), rest),
            (_, operands) => (None, operands),
        };
        let [address, from @ ..] = operands else {
            return Err(self.refuse(line));
        };
        let is_cas = instruction
            .modifiers
            .iter()
            .any(|&modifier| self.name(modifier) == "cas");
        if from.len() != if is_cas { 2 } else { 1 } {
            return Err(self.refuse(line));
        }
        for operand in from {
            self.source(operand, line)?;
        }
        self.access(address, access)?;
        to.map_or(Ok(()), |to| {
            self.destination(to, instruction.guard.is_none(), line)
        })
    }

    /// `prefetch`
    pub(super) fn prefetch(&mut self, instruction: &Instruction, op: &str) -> Result<()> {
        let line = instruction.at.line;
        match instruction.operands.as_slice() {
            [address] if PREFETCHES.contains(&op) => {
                let access = Access {
                    does: Does::Prefetch,
                    space: Space::Global,
                    bytes: 1,
                    line,
                };
                self.access(address, access)
            }
            _ => Err(self.refuse(line)),
        }
    }

    /// `cp.async` of 4, 8 or 16 bytes from the window to shared memory.
    pub(super) fn copy(&mut self, instruction: &Instruction, op: &str) -> Result<()> {
        let line = instruction.at.line;
        let is_copy = COPIES
            .iter()
            .filter_map(|copy| op.strip_prefix(copy))
            .any(|hint| COPY_HINTS.contains(&hint));
        let [to, from, bytes, rest @ ..] = instruction.operands.as_slice() else {
            return match (op, instruction.operands.as_slice()) {
                ("cp.async.wait_group", [Operand::Immediate(_)]) => Ok(()),
                _ => Err(self.refuse(line)),
            };
        };
        let bytes = number(bytes).filter(|bytes| is_copy && matches!(bytes, 4 | 8 | 16));
        let bytes = bytes.ok_or_else(|| self.refuse(line))?;
        match rest {
            [] => {}
            // More bytes than are copied may not be asked for.
            [some] if number(some).is_some_and(|some| some <= bytes) => {}
            [some] => match self.known(some) {
                Some(Fact::Offset(Bound::Below { most, .. })) if most <= bytes => {}
                _ => return Err(self.refuse(line)),
            },
            _ => return Err(self.refuse(line)),
        }
        for (address, does, space) in [
            (from, Does::Load, Space::Global),
            (to, Does::Store, Space::Shared),
        ] {
            let access = Access {
                does,
                space,
                bytes,
                line,
            };
            self.access(address, access)?;
        }
        Ok(())
    }

    /// Matrices in shared memory, of which each thread names a row.
    fn rows(&self, instruction: &Instruction, does: Does) -> Result<Access> {
        let others = [&MATRIX[..], &[TRANSPOSED]].concat();
        let access = self.shape(instruction, does, &others)?;
        let has = |word: &str| {
            let mut modifiers = instruction.modifiers.iter();
            modifiers.any(|&modifier| self.name(modifier) == word)
        };
        let is_rows = has("sync") && has("aligned") && has("m8n8") && has("b16");
        match access.space {
            Space::Shared if is_rows && access.bytes == 2 => Ok(Access {
                bytes: ROW_BYTES,
                ..access
            }),
            _ => Err(self.refuse(access.line)),
        }
    }

    /// Whether an access stays where it may be.
    fn access(&mut self, address: &Operand, access: Access) -> Result<()> {
        let (name, offset) = self.place_of(address, access)?;
        let (place, bound) = match self.facts.get(&name) {
            Some(Fact::Control) => return self.check_control(offset, access),
            Some(&Fact::Address(place, bound)) => (place, bound),
            Some(&Fact::Block(place)) => (place, start(place)),
            _ => match self.block(name) {
                Some(place) => (place, start(place)),
                None => return Err(self.refuse(access.line)),
            },
        };
        let is_reached = match (place, access.space) {
            (Place::Window, Space::Global) | (Place::Dynamic, Space::Shared) => true,
            (Place::Block { space, .. }, reached) => space == reached,
            _ => false,
        };
        if !is_reached {
            return Err(self.refuse(access.line));
        }
        let Access { bytes, line, .. } = access;
        let align = bound.align();
        if !align.is_multiple_of(bytes) || offset.rem_euclid(i64::from(bytes)) != 0 {
            let kind = VerifyErrorKind::Alignment {
                bytes,
                align,
                offset,
            };
            return Err(kind.at(line));
        }
        let end = offset.saturating_add(i64::from(bytes));
        let is_inside = match (place, bound) {
            (Place::Window, Bound::Below { .. } | Bound::Window { .. }) => {
                offset >= -GUARD_BYTES && end <= GUARD_BYTES
            }
            (Place::Dynamic, Bound::Dynamic { padding, .. }) => {
                offset >= 0 && end <= i64::from(padding)
            }
            (Place::Block { bytes, .. }, Bound::Below { most, .. }) => {
                offset >= 0 && end.saturating_add(i64::from(most)) <= i64::from(bytes)
            }
            _ => false,
        };
        match is_inside {
            true => Ok(()),
            false => Err(VerifyErrorKind::Bounds { bytes, offset }.at(line)),
        }
    }

    /// The name and number that an address consists of.
    fn place_of(&self, address: &Operand, access: Access) -> Result<(Symbol, i64)> {
        match address {
            Operand::Address {
                base: AddressBase::Name(name),
                offset,
                parts,
            } if parts.is_empty() => Ok((*name, *offset)),
            _ => Err(self.refuse(access.line)),
        }
    }

    /// The control block: anything is read, and all but its first word is written.
    fn check_control(&self, offset: i64, access: Access) -> Result<()> {
        let from = match access.does {
            Does::Load => 0,
            Does::LoadAndStore | Does::Store => CONTROL_STORES_FROM,
            Does::Prefetch => return Err(self.refuse(access.line)),
        };
        let Access { bytes, line, .. } = access;
        let width = i64::from(bytes);
        let is_inside = offset >= from && offset.saturating_add(width) <= CONTROL_BYTES;
        if access.space != Space::Global || !is_inside || offset % width != 0 {
            return Err(VerifyErrorKind::Bounds { bytes, offset }.at(line));
        }
        Ok(())
    }

    /// A hidden parameter, into its register.
    fn load_hidden(
        &mut self,
        instruction: &Instruction,
        to: Symbol,
        address: &Operand,
    ) -> Result<()> {
        let line = instruction.at.line;
        let op = self.op(instruction);
        let Operand::Address {
            base: AddressBase::Name(name),
            offset: 0,
            parts,
        } = address
        else {
            return Err(self.refuse(line));
        };
        let role = self.parameters.get(name).map(|parameter| parameter.role);
        let index = HIDDEN.iter().position(|&(hidden, bytes, register)| {
            hidden == self.name(*name)
                && register == self.name(to)
                && op == format!("ld.param.u{}", bytes * 8)
        });
        let fact = index.and_then(|index| super::control::HANDED_DOWN[index].2);
        match fact {
            Some(fact)
                if role == Some(Role::Hidden)
                    && parts.is_empty()
                    && instruction.guard.is_none() =>
            {
                self.learn(to, fact, op, line)
            }
            _ => Err(self.refuse(line)),
        }
    }

    /// A parameter of this function, or what a call gave.
    fn load_parameter(&mut self, address: &Operand, access: Access) -> Result<()> {
        let (name, offset) = self.place_of(address, access)?;
        let Some(parameter) = self.parameters.get(&name) else {
            return self.access(address, access);
        };
        let may_be_read = match parameter.role {
            Role::Given => true,
            Role::Call => self.returned.contains(&name),
            Role::Hidden | Role::Result => false,
        };
        match may_be_read {
            true => self.check_parameter(name, offset, access),
            false => Err(self.refuse(access.line)),
        }
    }

    /// A parameter of a call, or what this function gives.
    fn store_parameter(&mut self, address: &Operand, access: Access) -> Result<()> {
        let (name, offset) = self.place_of(address, access)?;
        let role = self.parameters.get(&name).map(|parameter| parameter.role);
        let Some(role @ (Role::Call | Role::Result)) = role else {
            return Err(self.refuse(access.line));
        };
        self.check_parameter(name, offset, access)?;
        let start = u32::try_from(offset).unwrap_or(u32::MAX);
        let stored = self.stored.entry(name).or_default();
        stored.push((start, start.saturating_add(access.bytes)));
        if role == Role::Result && self.is_stored(name) {
            self.flow.write(name.index());
        }
        Ok(())
    }

    /// Whether an access by name is in a parameter.
    fn check_parameter(&self, name: Symbol, offset: i64, access: Access) -> Result<()> {
        let Access { bytes, line, .. } = access;
        let variable = self
            .parameters
            .get(&name)
            .map(|parameter| parameter.variable);
        let (align, size) = variable.map_or((1, 0), |variable| {
            (variable.alignment(), variable.bytes().unwrap_or(0))
        });
        if !align.is_multiple_of(bytes) || offset.rem_euclid(i64::from(bytes)) != 0 {
            let kind = VerifyErrorKind::Alignment {
                bytes,
                align,
                offset,
            };
            return Err(kind.at(line));
        }
        let end = offset.saturating_add(i64::from(bytes));
        match offset >= 0 && u64::try_from(end).is_ok_and(|end| end <= size) {
            true => Ok(()),
            false => Err(VerifyErrorKind::Bounds { bytes, offset }.at(line)),
        }
    }

    /// Whether all bytes of a parameter were stored since the last label.
    pub(super) fn is_stored(&mut self, name: Symbol) -> bool {
        let size = self
            .parameters
            .get(&name)
            .and_then(|parameter| parameter.variable.bytes());
        let Some(stored) = self.stored.get_mut(&name) else {
            return size == Some(0);
        };
        stored.sort_unstable();
        let mut end = 0;
        stored.retain(|&(from, to)| {
            let joins = from <= end;
            if joins {
                end = end.max(to);
            }
            !joins
        });
        stored.insert(0, (0, end));
        size == Some(u64::from(end))
    }
}

/// The bound of a place's own address.
fn start(place: Place) -> Bound {
    let align = match place {
        Place::Block { align, .. } => align,
        Place::Dynamic | Place::Window => 1,
    };
    Bound::Below { most: 0, align }
}
