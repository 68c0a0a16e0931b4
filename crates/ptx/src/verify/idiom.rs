//! What may be written to a reserved register, and the fact that comes of it.

use super::body::{Body, Result, Role};
use super::fact::{Bound, Fact, Place};
use super::time::START;
use crate::ast::{Immediate, Instruction, Operand, Space, Symbol};
use crate::error::{Excerpt, VerifyError, VerifyErrorKind};

/// Widest access, in bytes: the largest alignment that an idiom gives.
pub(super) const MAX_ALIGN: u32 = 32;

/// The predicate that branches and calls are guarded by.
pub(super) const FUELED: &str = "%wq";

impl Body<'_, '_> {
    fn wrongly_written(&self, name: Symbol, line: u32) -> VerifyError {
        let name = Excerpt::new(self.name(name));
        VerifyErrorKind::Reserved { name }.at(line)
    }

    /// An instruction that writes a reserved register.
    pub(super) fn idiom(&mut self, instruction: &Instruction, op: &str, paid: bool) -> Result<()> {
        let line = instruction.at.line;
        let [to, from @ ..] = instruction.operands.as_slice() else {
            return Err(self.refuse(line));
        };
        if instruction.guard.is_some() {
            return Err(self.refuse(line));
        }
        match to {
            Operand::Name(name) => {
                let fact = match (self.name(*name) == FUELED, paid) {
                    (false, _) => self.fact(op, *name, from, line)?,
                    (true, true) => self.fueled(op, *name, from, line)?,
                    (true, false) => None,
                };
                let fact = fact.ok_or_else(|| self.wrongly_written(*name, line))?;
                self.learn(*name, fact, op, line)
            }
            Operand::Vector(words) => match (op, words.as_slice(), from) {
                ("mov.b64", [Operand::Name(low), Operand::Name(high)], [base])
                    if self.known(base) == Some(Fact::Base) =>
                {
                    self.learn(*low, Fact::BaseLow, "mov.b32", line)?;
                    self.learn(*high, Fact::BaseHigh, "mov.b32", line)
                }
                _ => Err(self.refuse(line)),
            },
            _ => Err(self.refuse(line)),
        }
    }

    /// The register holds something from here on; once, and those of the head nowhere else.
    pub(super) fn learn(&mut self, name: Symbol, fact: Fact, op: &str, line: u32) -> Result<()> {
        let is_fueled = matches!(fact, Fact::Fueled { .. });
        let is_fresh = self.reserved_written.insert(name) || is_fueled;
        let bytes = self.registers.get(&name).and_then(|ty| ty.bytes());
        let has_width = is_fueled
            || bytes
                == Some(if op.ends_with("64") || op.starts_with("cvt.u64") {
                    8
                } else {
                    4
                });
        let is_in_place = self.in_head || fact.ends_at_labels();
        if !self.is_reserved(name) || !is_fresh || !has_width || !is_in_place {
            return Err(self.wrongly_written(name, line));
        }
        self.facts.insert(name, fact);
        Ok(())
    }

    /// What is known of a register.
    pub(super) fn known(&self, operand: &Operand) -> Option<Fact> {
        match operand {
            Operand::Name(name) => self.facts.get(name).copied(),
            _ => None,
        }
    }

    /// The fact that an instruction makes.
    fn fact(&mut self, op: &str, to: Symbol, from: &[Operand], line: u32) -> Result<Option<Fact>> {
        Ok(match (op, from) {
            ("mov.s32" | "mov.u32", [x @ Operand::Immediate(_)]) => {
                number(x).and_then(|value| self.constant(op, to, value))
            }
            ("and.b32", [x, y]) => self.masked(x, y, line)?,
            ("min.u32", [x, y]) => match number(y) {
                Some(most) => {
                    self.source(x, line)?;
                    Some(Fact::Offset(Bound::Below { most, align: 1 }))
                }
                None => None,
            },
            ("mov.u32" | "mov.b32" | "mov.u64" | "mov.b64", [x]) => self.moved(op, to, x, line)?,
            ("cvt.u64.u32", [x]) => match self.known(x) {
                Some(Fact::Offset(bound)) => Some(Fact::Wide(bound)),
                _ => None,
            },
            ("add.u32", [x, y]) => match (self.known(x), self.known(y)) {
                (Some(Fact::Offset(bound)), Some(Fact::Block(place)))
                | (Some(Fact::Block(place)), Some(Fact::Offset(bound))) => {
                    Some(Fact::Address(place, bound))
                }
                (Some(Fact::Depth), None) if number(y) == Some(1) => {
                    let lasts = self.in_head;
                    Some(Fact::NextDepth { lasts })
                }
                _ => None,
            },
            ("add.u64", [x, y]) => match (self.known(x), self.known(y)) {
                (Some(Fact::Wide(bound)), Some(Fact::Block(place)))
                | (Some(Fact::Block(place)), Some(Fact::Wide(bound))) => {
                    Some(Fact::Address(place, bound))
                }
                (Some(Fact::Base), Some(Fact::Wide(bound @ Bound::Window { .. })))
                | (Some(Fact::Wide(bound @ Bound::Window { .. })), Some(Fact::Base)) => {
                    Some(Fact::Address(Place::Window, bound))
                }
                _ => None,
            },
            ("sub.u32", [x, y]) => match (self.known(x), number(y)) {
                (Some(Fact::DynamicSize), Some(padding @ 1..)) => self.dynamic(padding),
                _ => None,
            },
            _ => None,
        })
    }

    /// `x & y`
    fn masked(&mut self, x: &Operand, y: &Operand, line: u32) -> Result<Option<Fact>> {
        let bound = match (self.known(x), self.known(y), number(y)) {
            (Some(Fact::WindowMask { .. }), None, Some(mask)) => {
                return Ok(multiples(mask).map(|align| Fact::WindowMask { align }));
            }
            (Some(Fact::DynamicMask { padding, .. }), None, Some(mask)) => {
                return Ok(multiples(mask).map(|align| Fact::DynamicMask { padding, align }));
            }
            (_, Some(Fact::WindowMask { align }), _) => Bound::Window { align },
            (_, Some(Fact::DynamicMask { padding, align }), _) => Bound::Dynamic { padding, align },
            (known, None, Some(mask)) => {
                let before = match known {
                    Some(Fact::Offset(Bound::Below { most, .. })) => most,
                    _ => u32::MAX,
                };
                Bound::Below {
                    most: mask.min(before),
                    align: 1 << mask.trailing_zeros().min(MAX_ALIGN.trailing_zeros()),
                }
            }
            _ => return Ok(None),
        };
        self.source(x, line)?;
        Ok(Some(Fact::Offset(bound)))
    }

    /// The registers that begin with a number, each by its name: nothing else changes them.
    fn constant(&self, op: &str, to: Symbol, value: u32) -> Option<Fact> {
        match (op, self.name(to), value) {
            ("mov.s32", "%wf", 0) => Some(Fact::Fuel),
            ("mov.s32", "%wf", START) if self.is_entry() => Some(Fact::Fuel),
            ("mov.u32", "%wdepth", 0) if self.is_entry() => Some(Fact::Depth),
            ("mov.u32", "%wlocal", 0) if self.text.local_bytes == 0 => {
                Some(Fact::Block(self.text.local()))
            }
            ("mov.u32", "%wone", 1) => Some(Fact::One),
            _ => None,
        }
    }

    /// `mov`
    fn moved(&mut self, op: &str, to: Symbol, x: &Operand, line: u32) -> Result<Option<Fact>> {
        Ok(match x {
            Operand::Name(name) if self.name(*name) == "%clock" => {
                (self.name(to) == "%wv" && op == "mov.u32").then_some(Fact::Looked)
            }
            Operand::Name(name) if self.name(*name) == "%dynamic_smem_size" => {
                Some(Fact::DynamicSize)
            }
            Operand::Name(name) => match (self.block(*name), self.known(x)) {
                (Some(place), _) | (None, Some(Fact::Block(place))) => Some(Fact::Block(place)),
                _ if op == "mov.b32" => {
                    self.source(x, line)?;
                    let (most, align) = (u32::MAX, 1);
                    Some(Fact::Offset(Bound::Below { most, align }))
                }
                _ => self.parameter_block(*name).map(Fact::Block),
            },
            Operand::Vector(words) => match (op, words.as_slice()) {
                ("mov.b64", [low, high]) => match (self.known(low), self.known(high)) {
                    (Some(Fact::Offset(bound @ Bound::Below { .. })), Some(Fact::BaseHigh)) => {
                        self.summary.is_whole = true;
                        Some(Fact::Address(Place::Window, bound))
                    }
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        })
    }

    /// A parameter of the entry, as what an address may be in.
    pub(super) fn parameter_block(&self, name: Symbol) -> Option<Place> {
        let parameter = self.parameters.get(&name)?;
        match (self.is_entry(), parameter.role) {
            (true, Role::Given) => Some(Place::Block {
                space: Space::Param,
                bytes: u32::try_from(parameter.variable.bytes()?).ok()?,
                align: parameter.variable.alignment(),
            }),
            _ => None,
        }
    }

    /// Dynamic shared memory but for its last bytes, of which a function relies on one number.
    fn dynamic(&mut self, padding: u32) -> Option<Fact> {
        match self.summary.dynamic_padding.replace(padding) {
            Some(other) if other != padding => None,
            _ => Some(Fact::DynamicMask { padding, align: 1 }),
        }
    }

    /// `%wq`: true only where the METER just before left fuel.
    fn fueled(
        &mut self,
        op: &str,
        name: Symbol,
        from: &[Operand],
        line: u32,
    ) -> Result<Option<Fact>> {
        let fact = match (op, from) {
            ("setp.ge.s32", [fuel, zero])
                if self.known(fuel) == Some(Fact::Fuel) && number(zero) == Some(0) =>
            {
                Some(Fact::Fueled { depth: None })
            }
            ("setp.ge.and.s32", [fuel, zero, predicate])
                if self.known(fuel) == Some(Fact::Fuel) && number(zero) == Some(0) =>
            {
                self.source(predicate, line)?;
                Some(Fact::Fueled { depth: None })
            }
            ("setp.lt.and.u32", [depth, most, Operand::Name(predicate)])
                if self.known(depth) == Some(Fact::Depth) && *predicate == name =>
            {
                match (self.facts.get(&name), number(most)) {
                    (Some(Fact::Fueled { .. }), depth @ Some(_)) => Some(Fact::Fueled { depth }),
                    _ => None,
                }
            }
            _ => None,
        };
        self.paid.just_now = fact.is_some();
        Ok(fact)
    }
}

/// An integer that has 32 bits, signed or not.
pub(super) fn number(operand: &Operand) -> Option<u32> {
    match operand {
        Operand::Immediate(Immediate::Integer(bits)) => {
            let signed = || i32::try_from(bits.cast_signed()).map(i32::cast_unsigned);
            u32::try_from(*bits).or_else(|_| signed()).ok()
        }
        _ => None,
    }
}

/// The power of two, up to the largest alignment, that the number is the negative of.
fn multiples(mask: u32) -> Option<u32> {
    let align = mask.wrapping_neg();
    (align.is_power_of_two() && align <= MAX_ALIGN).then_some(align)
}
