//! Moving data between registers and addresses between spaces: `mov`, `cvta`, `isspacep`. No memory is touched here.

use ptx::ast::{Operand, ScalarType as T};

use crate::cpu::alu;
use crate::cpu::code::{LaneFn, Preset, Slots, Space, Width};
use crate::cpu::memory::{
    CONST_BASE, GLOBALS_BASE, LOCAL_BASE, PARAM_BASE, SHARED_BASE, SPACE_BYTES,
};

use super::access::space;
use super::function::Lowering;
use super::operand::generic_base;
use super::types::{Lowered, Modifiers, Refusal, width};

impl Lowering<'_, '_> {
    /// `mov`.
    pub(super) fn movement(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let [to, from] = operands else {
            return Err(Refusal::Form);
        };
        match (to, from) {
            _ if ty == T::Pred => {
                let a = self.predicate_source(from)?;
                let Some(d) = self.predicate_destination(to)? else {
                    return Ok(());
                };
                self.lane(
                    alu::move_predicate,
                    Slots {
                        d,
                        a,
                        ..Slots::default()
                    },
                )
            }
            (Operand::Vector(elements), _) => self.unpack(ty, elements, from),
            (_, Operand::Vector(elements)) => self.pack(ty, to, elements),
            _ => {
                let a = self.source(from, ty)?;
                self.move_to(to, a, ty)
            }
        }
    }

    /// One register to several.
    fn unpack(&mut self, ty: T, elements: &[Operand], from: &Operand) -> Lowered<()> {
        let a = self.source(from, ty)?;
        let halves: [(LaneFn, LaneFn); 3] = [
            (alu::low32, alu::high32),
            (alu::low_half, alu::high_half),
            (alu::low_byte, alu::high_byte),
        ];
        let (part, (low, high)) = match (width(ty), elements.len()) {
            (Some(Width::B64), 2) => (T::B32, halves[0]),
            (Some(Width::B32), 2) => (T::B16, halves[1]),
            (Some(Width::B16), 2) => (T::B8, halves[2]),
            (Some(Width::B64), 4) => {
                let (first, second) = (self.word()?, self.word()?);
                self.lane(
                    alu::low32,
                    Slots {
                        d: first,
                        a,
                        ..Slots::default()
                    },
                )?;
                self.lane(
                    alu::high32,
                    Slots {
                        d: second,
                        a,
                        ..Slots::default()
                    },
                )?;
                for (word, elements) in [(first, &elements[..2]), (second, &elements[2..])] {
                    self.unpack_two(word, T::B16, halves[1], elements)?;
                }
                return Ok(());
            }
            (Some(Width::B32), 4) => {
                let (first, second) = (self.word()?, self.word()?);
                self.lane(
                    alu::low_half,
                    Slots {
                        d: first,
                        a,
                        ..Slots::default()
                    },
                )?;
                self.lane(
                    alu::high_half,
                    Slots {
                        d: second,
                        a,
                        ..Slots::default()
                    },
                )?;
                for (word, elements) in [(first, &elements[..2]), (second, &elements[2..])] {
                    self.unpack_two(word, T::B8, halves[2], elements)?;
                }
                return Ok(());
            }
            _ => return Err(Refusal::Form),
        };
        self.unpack_two(a, part, (low, high), elements)
    }

    fn unpack_two(
        &mut self,
        a: u16,
        part: T,
        of: (LaneFn, LaneFn),
        elements: &[Operand],
    ) -> Lowered<()> {
        for (run, element) in [of.0, of.1].into_iter().zip(elements) {
            let d = self.destination(element, part)?;
            self.lane(
                run,
                Slots {
                    d,
                    a,
                    ..Slots::default()
                },
            )?;
        }
        Ok(())
    }

    /// Several registers to one.
    fn pack(&mut self, ty: T, to: &Operand, elements: &[Operand]) -> Lowered<()> {
        let (part, join): (T, LaneFn) = match (width(ty), elements.len()) {
            (Some(Width::B64), 2) => (T::B32, alu::join32),
            (Some(Width::B32), 2) => (T::B16, alu::join16),
            (Some(Width::B16), 2) => (T::B8, alu::join8),
            (Some(Width::B64), 4) => (T::B16, alu::join32),
            (Some(Width::B32), 4) => (T::B8, alu::join16),
            _ => return Err(Refusal::Form),
        };
        let mut parts = Vec::new();
        for element in elements {
            parts.push(self.source(element, part)?);
        }
        if let [a, b, c, e] = parts[..] {
            let run = if part == T::B16 {
                alu::join16
            } else {
                alu::join8
            };
            let (first, second) = (self.word()?, self.word()?);
            self.lane(
                run,
                Slots {
                    d: first,
                    a,
                    b,
                    ..Slots::default()
                },
            )?;
            self.lane(
                run,
                Slots {
                    d: second,
                    a: c,
                    b: e,
                    ..Slots::default()
                },
            )?;
            parts = vec![first, second];
        }
        let [a, b] = parts[..] else {
            return Err(Refusal::Form);
        };
        let d = self.destination(to, ty)?;
        self.lane(
            join,
            Slots {
                d,
                a,
                b,
                ..Slots::default()
            },
        )
    }

    /// `cvta`.
    pub(super) fn convert_address(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let away = modifiers.take("to");
        let space = space(&mut modifiers);
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let [to, from] = operands else {
            return Err(Refusal::Form);
        };
        if ty != T::U64 || space == Space::Generic {
            return Err(Refusal::Form);
        }
        let base = generic_base(space).ok_or(Refusal::Form)?;
        let a = self.source(from, ty)?;
        let sum = if base == 0 {
            a
        } else {
            self.based(a, base, away)?
        };
        self.move_to(to, sum, ty)
    }

    /// `mapa`: where another block of the cluster has what this one has at an address in shared memory.
    pub(super) fn map_address(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let written = space(&mut modifiers);
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let ([to, from, rank], Space::Shared | Space::Generic) = (operands, written) else {
            return Err(Refusal::Form);
        };
        let run = match ty {
            T::U32 if written == Space::Shared => alu::map_address,
            T::U64 => alu::map_address64,
            _ => return Err(Refusal::Form),
        };
        let a = self.source(from, ty)?;
        let b = self.source(rank, T::U32)?;
        let d = self.destination(to, ty)?;
        let slots = Slots {
            d,
            a,
            b,
            ..Slots::default()
        };
        self.lane(run, slots)
    }

    /// `getctarank`: the block of the cluster that an address in shared memory leads to.
    pub(super) fn rank_of_address(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let written = space(&mut modifiers);
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let ([to, from], Space::Shared | Space::Generic) = (operands, written) else {
            return Err(Refusal::Form);
        };
        let run = match ty {
            T::U32 if written == Space::Shared => alu::rank_of_address,
            T::U64 => alu::rank_of_address64,
            _ => return Err(Refusal::Form),
        };
        let a = self.source(from, ty)?;
        let b = self.preset(Preset::ClusterRank)?;
        let d = self.destination(to, T::U32)?;
        let slots = Slots {
            d,
            a,
            b,
            ..Slots::default()
        };
        self.lane(run, slots)
    }

    /// `isspacep`.
    pub(super) fn is_space(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let of_cluster = modifiers.peek("shared::cluster");
        let space = space(&mut modifiers);
        if space == Space::Shared && self.program.cluster != [1; 3] && !of_cluster {
            return Err(Refusal::Other("in a kernel of clusters".into()));
        }
        modifiers.finish()?;
        let bases: &[u64] = match space {
            Space::Global => &[0, GLOBALS_BASE],
            Space::Shared => &[SHARED_BASE],
            Space::Local => &[LOCAL_BASE],
            Space::Const => &[CONST_BASE],
            Space::Param => &[PARAM_BASE],
            Space::Generic => return Err(Refusal::Form),
        };
        let [to, from] = operands else {
            return Err(Refusal::Form);
        };
        let a = self.source(from, T::U64)?;
        let mask = self.long_value(!(SPACE_BYTES - 1))?;
        let base = self.long()?;
        self.lane(
            alu::and64,
            Slots {
                d: base,
                a,
                b: mask,
                ..Slots::default()
            },
        )?;
        let mut found = self.predicate_value(false)?;
        for &wanted in bases {
            let b = self.long_value(wanted)?;
            let (is, any) = (self.predicate()?, self.predicate()?);
            self.lane(
                alu::eq64,
                Slots {
                    d: is,
                    a: base,
                    b,
                    ..Slots::default()
                },
            )?;
            self.lane(
                alu::or_predicate,
                Slots {
                    d: any,
                    a: is,
                    b: found,
                    ..Slots::default()
                },
            )?;
            found = any;
        }
        let Some(d) = self.predicate_destination(to)? else {
            return Ok(());
        };
        self.lane(
            alu::move_predicate,
            Slots {
                d,
                a: found,
                ..Slots::default()
            },
        )
    }
}
