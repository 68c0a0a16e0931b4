//! Operands: names, literals and addresses to slots.

use ptx::ast::{AddressBase, Immediate, Operand, ScalarType, Symbol};

use crate::cpu::alu;
use crate::cpu::code::{Guard, LaneMask, NO_SLOT, Op, Preset, Slots, Space, Timer, Width};
use crate::cpu::memory::{CONST_BASE, LOCAL_BASE, PARAM_BASE, SHARED_BASE, WORKSPACE_BASE};

use super::function::Lowering;
use super::scope::{Found, Meaning};
use super::slots::Bank;
use super::types::{Lowered, Refusal, width};

/// An f64 literal where an f32 is meant.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds a literal to the type of its instruction"
)]
pub(super) fn narrowed(bits: u64) -> u32 {
    (f64::from_bits(bits) as f32).to_bits()
}

/// An address operand: a register, or nothing, and an offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    /// [`NO_SLOT`]: the offset counts from the start of the space, or of the frame in local memory.
    pub(super) slot: u16,
    pub(super) wide: bool,
    pub(super) offset: i32,
    /// The space that a variable lies in, where one was named.
    pub(super) variable: Option<Space>,
}

/// What a special register is.
enum Special {
    Long(u64),
    Timer(Timer, Width),
    Word(Preset),
}

fn axis(component: Option<&str>) -> Option<usize> {
    match component? {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    }
}

fn special(name: &str, component: Option<&str>, cluster: [u32; 3]) -> Option<Special> {
    let of_axis =
        |preset: fn(usize) -> Preset| axis(component).map(|axis| Special::Word(preset(axis)));
    let value = |value| Some(Special::Word(Preset::Value(value)));
    if component == Some("w") {
        return value(0);
    }
    match name {
        "%tid" => return of_axis(Preset::ThreadIndex),
        "%ntid" => return of_axis(Preset::ThreadCount),
        "%ctaid" => return of_axis(Preset::BlockIndex),
        "%nctaid" => return of_axis(Preset::BlockCount),
        "%clusterid" => return of_axis(Preset::ClusterIndex),
        "%nclusterid" => return of_axis(Preset::ClusterCount),
        "%cluster_ctaid" => return of_axis(Preset::ClusterBlockIndex),
        "%cluster_nctaid" => return axis(component).and_then(|axis| value(cluster[axis])),
        _ if component.is_some() => return None,
        _ => {}
    }
    let mask = |mask| Some(Special::Word(Preset::LaneMask(mask)));
    match name {
        "%laneid" => Some(Special::Word(Preset::LaneId)),
        "%warpid" => Some(Special::Word(Preset::WarpId)),
        "%nwarpid" => Some(Special::Word(Preset::WarpCount)),
        "%smid" | "%gridid" => value(0),
        "%is_explicit_cluster" => value(u32::from(cluster != [1; 3])),
        "%cluster_ctarank" => Some(Special::Word(Preset::ClusterRank)),
        "%cluster_nctarank" => value(cluster.iter().product()),
        "%nsmid" => Some(Special::Word(Preset::Workers)),
        "%lanemask_eq" => mask(LaneMask::Equal),
        "%lanemask_lt" => mask(LaneMask::Less),
        "%lanemask_le" => mask(LaneMask::LessOrEqual),
        "%lanemask_gt" => mask(LaneMask::Greater),
        "%lanemask_ge" => mask(LaneMask::GreaterOrEqual),
        "%dynamic_smem_size" => Some(Special::Word(Preset::DynamicSharedBytes)),
        "%total_smem_size" | "%aggr_smem_size" => Some(Special::Word(Preset::TotalSharedBytes)),
        "%clock" => Some(Special::Timer(Timer::Clock32, Width::B32)),
        "%clock_hi" => Some(Special::Timer(Timer::Clock32High, Width::B32)),
        "%clock64" => Some(Special::Timer(Timer::Clock64, Width::B64)),
        "%globaltimer" => Some(Special::Timer(Timer::Global64, Width::B64)),
        "%globaltimer_lo" => Some(Special::Timer(Timer::Global32, Width::B32)),
        "%globaltimer_hi" => Some(Special::Timer(Timer::Global32High, Width::B32)),
        // CUDA's grid barrier finds its words by these two; cooperative groups trap where they are zero.
        "%envreg1" => value(u32::try_from(WORKSPACE_BASE >> 32).ok()?),
        "%envreg2" => value(u32::try_from(WORKSPACE_BASE & 0xffff_ffff).ok()?),
        "%current_graph_exec" => Some(Special::Long(0)),
        "WARP_SZ" => value(32),
        _ => None,
    }
}

impl Lowering<'_, '_> {
    /// What a name stands for; a register gets its slot when first used.
    pub(super) fn meaning(&mut self, name: Symbol) -> Option<Lowered<Meaning>> {
        match self.scopes.find(self.program.module, name) {
            Some(Found::Meaning(meaning)) => Some(Ok(meaning)),
            Some(Found::Register(depth, declaration)) => {
                Some(self.take_register(declaration).inspect(|&meaning| {
                    self.scopes.give(depth, name, meaning);
                }))
            }
            None => self.program.layout.meanings.get(&name).copied().map(Ok),
        }
    }

    /// The width of a register, which is not given a slot for the question.
    pub(super) fn register_width(&self, name: Symbol) -> Option<Width> {
        match self.scopes.find(self.program.module, name)? {
            Found::Meaning(Meaning::Register {
                width,
                components: 1,
                ..
            }) => Some(width),
            Found::Register(_, declaration) if declaration.components == 1 => width(declaration.ty),
            _ => None,
        }
    }

    fn odd(&self, name: Symbol) -> Refusal {
        Refusal::Other(format!(
            "with the operand `{}`",
            self.program.module.text(name)
        ))
    }

    /// The slot of a register of exactly this width.
    pub(super) fn register(&mut self, name: Symbol, width: Width) -> Lowered<u16> {
        match self.meaning(name).transpose()? {
            Some(Meaning::Register {
                width: found,
                slot,
                components: 1,
            }) if found == width => Ok(slot),
            _ => Err(self.odd(name)),
        }
    }

    pub(super) fn predicate_register(&mut self, name: Symbol) -> Lowered<u16> {
        match self.meaning(name).transpose()? {
            Some(Meaning::Predicate { slot }) => Ok(slot),
            _ => Err(self.odd(name)),
        }
    }

    /// A predicate operand, perhaps negated or constant.
    pub(super) fn condition(&mut self, operand: &Operand) -> Lowered<Guard> {
        match operand {
            Operand::Name(name) => Ok(Guard::new(self.predicate_register(*name)?, false)),
            Operand::Negated(name) => Ok(Guard::new(self.predicate_register(*name)?, true)),
            Operand::Immediate(Immediate::Integer(value)) => {
                Ok(Guard::new(self.predicate_value(*value != 0)?, false))
            }
            _ => Err(Refusal::Form),
        }
    }

    /// A predicate operand as a slot.
    pub(super) fn predicate_source(&mut self, operand: &Operand) -> Lowered<u16> {
        match operand {
            Operand::Negated(name) => {
                let a = self.predicate_register(*name)?;
                let d = self.predicate()?;
                self.lane(
                    alu::not_predicate,
                    Slots {
                        d,
                        a,
                        ..Slots::default()
                    },
                )?;
                Ok(d)
            }
            _ => self.condition(operand)?.slot().ok_or(Refusal::Form),
        }
    }

    /// A predicate destination; `_` wants none.
    pub(super) fn predicate_destination(&mut self, operand: &Operand) -> Lowered<Option<u16>> {
        match operand {
            Operand::Name(name) if self.is_sink(*name) => Ok(None),
            Operand::Name(name) => self.predicate_register(*name).map(Some),
            _ => Err(Refusal::Form),
        }
    }

    pub(super) fn is_sink(&self, name: Symbol) -> bool {
        self.program.module.text(name) == "_"
    }

    /// A slot that holds an operand of a type, in the bank of the type's width.
    pub(super) fn source(&mut self, operand: &Operand, ty: ScalarType) -> Lowered<u16> {
        let width = width(ty).ok_or(Refusal::Form)?;
        let (slot, found) = self.loose_source(operand, ty)?;
        if found == width {
            Ok(slot)
        } else {
            Err(Refusal::Other("with a register of another width".into()))
        }
    }

    /// A slot that holds an operand and the width of its register, which may be another than the type's.
    pub(super) fn loose_source(
        &mut self,
        operand: &Operand,
        ty: ScalarType,
    ) -> Lowered<(u16, Width)> {
        let width = width(ty).ok_or(Refusal::Form)?;
        match operand {
            Operand::Immediate(immediate) => Ok((self.literal(*immediate, ty)?, width)),
            Operand::Name(name) => match self.meaning(*name).transpose()? {
                Some(Meaning::Register {
                    width,
                    slot,
                    components: 1,
                }) => Ok((slot, width)),
                Some(Meaning::Predicate { .. } | Meaning::Register { .. }) => Err(self.odd(*name)),
                Some(meaning) => Ok((self.variable_address(meaning, 0, width)?, width)),
                None => match self.program.layout.functions.get(name) {
                    Some(&address) if self.is_callable(*name) && width == Width::B64 => {
                        Ok((self.long_value(address)?, width))
                    }
                    _ => self.special_source(*name, None, width),
                },
            },
            Operand::Offset { name, offset } => match self.meaning(*name).transpose()? {
                Some(Meaning::Predicate { .. } | Meaning::Register { .. }) | None => {
                    Err(self.odd(*name))
                }
                Some(meaning) => Ok((self.variable_address(meaning, *offset, width)?, width)),
            },
            Operand::Component { name, component } => match self.meaning(*name).transpose()? {
                Some(Meaning::Register {
                    width,
                    slot,
                    components,
                }) => {
                    let index = match self.program.module.text(*component) {
                        "x" | "r" => 0,
                        "y" | "g" => 1,
                        "z" | "b" => 2,
                        "w" | "a" => 3,
                        _ => return Err(self.odd(*name)),
                    };
                    if index < components {
                        Ok((slot + u16::from(index), width))
                    } else {
                        Err(self.odd(*name))
                    }
                }
                Some(_) => Err(self.odd(*name)),
                None => self.special_source(*name, Some(*component), width),
            },
            _ => Err(Refusal::Form),
        }
    }

    fn special_source(
        &mut self,
        name: Symbol,
        component: Option<Symbol>,
        wanted: Width,
    ) -> Lowered<(u16, Width)> {
        let module = self.program.module;
        let component = component.map(|component| module.text(component));
        let special = special(module.text(name), component, self.program.cluster);
        match special.ok_or_else(|| self.odd(name))? {
            Special::Word(Preset::Value(value)) if wanted == Width::B64 => {
                Ok((self.long_value(value.into())?, Width::B64))
            }
            Special::Word(preset) => Ok((self.preset(preset)?, Width::B32)),
            Special::Long(value) => Ok((self.long_value(value)?, Width::B64)),
            Special::Timer(timer, width) => {
                let d = self.slots(Bank::of(width), 1)?;
                self.emit(Op::Timer { d, timer })?;
                Ok((d, width))
            }
        }
    }

    /// The slot of a literal.
    fn literal(&mut self, immediate: Immediate, ty: ScalarType) -> Lowered<u16> {
        let bits = match (immediate, ty) {
            (Immediate::Integer(_), ScalarType::F32 | ScalarType::F64) => {
                return Err(Refusal::Form);
            }
            (Immediate::F32(bits), ScalarType::F64) => f64::from(f32::from_bits(bits)).to_bits(),
            (Immediate::F64(bits), ScalarType::F32) => narrowed(bits).into(),
            (
                Immediate::F32(bits),
                ScalarType::F32 | ScalarType::B32 | ScalarType::U32 | ScalarType::S32,
            ) => bits.into(),
            (
                Immediate::F64(bits),
                ScalarType::F64 | ScalarType::B64 | ScalarType::U64 | ScalarType::S64,
            ) => bits,
            (Immediate::F64(bits), ScalarType::B32) => narrowed(bits).into(),
            (Immediate::F32(_) | Immediate::F64(_), _) => return Err(Refusal::Form),
            (Immediate::Integer(value), _) => value,
        };
        let [low, high] = [bits & 0xffff_ffff, bits >> 32];
        let low = u32::try_from(low).unwrap_or(0);
        match width(ty).ok_or(Refusal::Form)? {
            Width::B64 => self.long_value(u64::from(low) | high << 32),
            Width::B32 => self.word_value(low),
            Width::B16 => self.word_value(low & 0xffff),
            Width::B8 => self.word_value(low & 0xff),
        }
    }

    /// The address of a variable in its own space.
    fn variable_address(&mut self, meaning: Meaning, offset: i64, width: Width) -> Lowered<u16> {
        let wide = match width {
            Width::B64 => true,
            Width::B32 => false,
            _ => return Err(Refusal::Form),
        };
        let add = |address: u64| address.wrapping_add(offset.cast_unsigned());
        let address = match meaning {
            Meaning::Global { address } if wide => add(address),
            Meaning::Const { offset }
            | Meaning::Shared { offset }
            | Meaning::EntryParameter { offset } => add(offset.into()),
            Meaning::Local { offset } => {
                let d = if wide { self.long()? } else { self.word()? };
                let offset = u32::try_from(add(offset.into())).map_err(|_| Refusal::Form)?;
                self.emit(Op::LocalAddress {
                    d,
                    offset,
                    wide,
                    generic: false,
                })?;
                return Ok(d);
            }
            _ => return Err(Refusal::Form),
        };
        if wide {
            self.long_value(address)
        } else {
            self.word_value(u32::try_from(address & 0xffff_ffff).unwrap_or(0))
        }
    }

    /// The slot of a destination of a type; `_` is one that nobody reads.
    pub(super) fn destination(&mut self, operand: &Operand, ty: ScalarType) -> Lowered<u16> {
        let width = width(ty).ok_or(Refusal::Form)?;
        if let Operand::Name(name) = operand
            && self.is_sink(*name)
        {
            return self.slots(Bank::of(width), 1);
        }
        let (slot, found) = self.loose_destination(operand)?;
        if found == width {
            Ok(slot)
        } else {
            Err(Refusal::Other("with a destination of another width".into()))
        }
    }

    /// The slot and width of a destination register.
    pub(super) fn loose_destination(&mut self, operand: &Operand) -> Lowered<(u16, Width)> {
        match operand {
            Operand::Name(name) => match self.meaning(*name).transpose()? {
                Some(Meaning::Register {
                    width,
                    slot,
                    components: 1,
                }) => Ok((slot, width)),
                _ => Err(self.odd(*name)),
            },
            Operand::Component { name, .. } => match self.meaning(*name).transpose()? {
                Some(Meaning::Register { .. }) => self.loose_source(operand, ScalarType::B32),
                _ => Err(self.odd(*name)),
            },
            _ => Err(Refusal::Form),
        }
    }

    /// The slots of a vector operand's elements, and their common width. `_` is [`NO_SLOT`].
    pub(super) fn vector(&mut self, operand: &Operand) -> Lowered<(Vec<u16>, Width)> {
        let mut slots = Vec::new();
        let mut common = None;
        let mut add = |slot: u16, width: Width| {
            slots.push(slot);
            if slot == NO_SLOT {
                true
            } else {
                *common.get_or_insert(width) == width
            }
        };
        match operand {
            Operand::Vector(elements) => {
                for element in elements {
                    let fits = match element {
                        Operand::Name(name) if self.is_sink(*name) => add(NO_SLOT, Width::B32),
                        _ => {
                            let (slot, width) = self.loose_destination(element)?;
                            add(slot, width)
                        }
                    };
                    if !fits {
                        return Err(Refusal::Other("with elements of different widths".into()));
                    }
                }
            }
            Operand::Name(name) => match self.meaning(*name).transpose()? {
                Some(Meaning::Register {
                    width,
                    slot,
                    components,
                }) => {
                    for index in 0..components {
                        add(slot + u16::from(index), width);
                    }
                }
                _ => return Err(self.odd(*name)),
            },
            _ => return Err(Refusal::Form),
        }
        Ok((slots, common.ok_or(Refusal::Form)?))
    }

    /// An address operand.
    pub(super) fn address(&mut self, operand: &Operand) -> Lowered<Address> {
        let Operand::Address {
            base,
            offset,
            parts,
        } = operand
        else {
            return Err(Refusal::Form);
        };
        if !parts.is_empty() {
            return Err(Refusal::Form);
        }
        self.address_of(*base, *offset)
    }

    fn address_of(&mut self, base: AddressBase, offset: i64) -> Lowered<Address> {
        let small = i32::try_from(offset);
        let name = match base {
            AddressBase::Immediate(address) => {
                let slot = self.long_value(address.wrapping_add(offset.cast_unsigned()))?;
                return Ok(Address {
                    slot,
                    wide: true,
                    offset: 0,
                    variable: None,
                });
            }
            AddressBase::Name(name) => name,
        };
        let in_space = |at: u32, space: Space| {
            let offset = i64::from(at)
                .checked_add(offset)
                .and_then(|offset| i32::try_from(offset).ok());
            let offset =
                offset.ok_or(Refusal::Other("with an offset of more than 31 bits".into()))?;
            Ok(Address {
                slot: NO_SLOT,
                wide: true,
                offset,
                variable: Some(space),
            })
        };
        match self.meaning(name).transpose()? {
            Some(Meaning::Register {
                width: Width::B64,
                slot,
                components: 1,
            }) => match small {
                Ok(offset) => Ok(Address {
                    slot,
                    wide: true,
                    offset,
                    variable: None,
                }),
                Err(_) => {
                    let b = self.long_value(offset.cast_unsigned())?;
                    let d = self.long()?;
                    self.lane(
                        alu::add64,
                        Slots {
                            d,
                            a: slot,
                            b,
                            ..Slots::default()
                        },
                    )?;
                    Ok(Address {
                        slot: d,
                        wide: true,
                        offset: 0,
                        variable: None,
                    })
                }
            },
            Some(Meaning::Register {
                width: Width::B32,
                slot,
                components: 1,
            }) => {
                let offset = small
                    .map_err(|_| Refusal::Other("with an offset of more than 31 bits".into()))?;
                Ok(Address {
                    slot,
                    wide: false,
                    offset,
                    variable: None,
                })
            }
            Some(Meaning::Global { address }) => {
                let slot = self.long_value(address.wrapping_add(offset.cast_unsigned()))?;
                Ok(Address {
                    slot,
                    wide: true,
                    offset: 0,
                    variable: Some(Space::Global),
                })
            }
            Some(Meaning::Const { offset }) => in_space(offset, Space::Const),
            Some(Meaning::Shared { offset }) => in_space(offset, Space::Shared),
            Some(Meaning::Local { offset }) => in_space(offset, Space::Local),
            Some(Meaning::EntryParameter { offset }) => in_space(offset, Space::Param),
            _ => Err(self.odd(name)),
        }
    }

    /// A generic address in a 64-bit slot from an address in a space.
    pub(super) fn based(&mut self, slot: u16, base: u64, away: bool) -> Lowered<u16> {
        let b = self.long_value(if away { base.wrapping_neg() } else { base })?;
        let d = self.long()?;
        self.lane(
            alu::add64,
            Slots {
                d,
                a: slot,
                b,
                ..Slots::default()
            },
        )?;
        Ok(d)
    }
}

/// What is added to an address in a space to make it generic.
pub(super) fn generic_base(space: Space) -> Option<u64> {
    match space {
        Space::Shared => Some(SHARED_BASE),
        Space::Local => Some(LOCAL_BASE),
        Space::Const => Some(CONST_BASE),
        Space::Param => Some(PARAM_BASE),
        // Global addresses are generic from the start.
        Space::Global | Space::Generic => Some(0),
    }
}
