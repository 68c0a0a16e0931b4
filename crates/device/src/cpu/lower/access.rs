//! What touches memory: loads, stores, atomics, asynchronous copies.

use ptx::ast::{FunctionKind, Immediate, Operand, ScalarType as T};

use crate::cpu::alu;
use crate::cpu::code::{
    Access, Atomic, AtomicOp, CopySite, NO_SLOT, Op, Parameter, Slots, Space, Width,
};

use super::function::Lowering;
use super::operand::Address;
use super::slots::Bank;
use super::types::{Lowered, Modifiers, Refusal, is_signed, width};

/// Modifiers that say how memory is cached or ordered; the order that matters is kept by fences.
pub(super) fn is_advice(modifier: &str) -> bool {
    let words = [
        "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "volatile", "weak", "relaxed", "mmio",
        "cta", "cluster", "gpu", "sys", "noftz", "unified",
    ];
    words.contains(&modifier)
        || modifier.starts_with("L1::")
        || modifier.starts_with("L2::") && modifier != "L2::cache_hint"
}

/// Takes the state space; generic if none is written.
pub(super) fn space(modifiers: &mut Modifiers<'_>) -> Space {
    let spaces = [
        "const",
        "global",
        "local",
        "param",
        "param::entry",
        "param::func",
        "shared",
        "shared::cluster",
        "shared::cta",
    ];
    match modifiers.take_of(&spaces) {
        Some("const") => Space::Const,
        Some("global") => Space::Global,
        Some("local") => Space::Local,
        Some("param" | "param::entry" | "param::func") => Space::Param,
        Some(_) => Space::Shared,
        None => Space::Generic,
    }
}

impl Lowering<'_, '_> {
    /// The space that an access goes to, given the one written and the address.
    pub(super) fn accessed(&self, written: Space, address: &Address) -> Lowered<Space> {
        let space = match (written, address.variable) {
            // Parameters of calls and of device functions are local memory.
            (Space::Param, Some(Space::Local)) => Space::Local,
            (Space::Param, None) if self.kind == FunctionKind::Device => Space::Local,
            (Space::Generic, Some(space)) => space,
            (written, None) => written,
            (written, Some(space)) if written == space => space,
            _ => return Err(Refusal::Other("with a variable of another space".into())),
        };
        if !address.wide && matches!(space, Space::Global | Space::Generic) {
            return Err(Refusal::Other("with a 32-bit address".into()));
        }
        Ok(space)
    }

    /// `ld`, `ldu` and `st`.
    pub(super) fn access(
        &mut self,
        load: bool,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let fenced = modifiers.take_of(&["acquire", "release"]).is_some();
        modifiers.drop_if(is_advice);
        let written = space(&mut modifiers);
        let count = match modifiers.take_of(&["v2", "v4", "v8"]) {
            None => 1,
            Some("v2") => 2_u8,
            Some("v4") => 4,
            Some(_) => 8,
        };
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let (value, address) = match (load, operands) {
            (true, [value, address]) | (false, [address, value]) => (value, address),
            _ => return Err(Refusal::Form),
        };
        let memory = width(ty).ok_or(Refusal::Form)?;
        if memory.bytes() * u32::from(count) > 32 || count == 8 && memory == Width::B64 {
            return Err(Refusal::Form);
        }
        let address = self.address(address)?;
        let space = self.accessed(written, &address)?;
        if load
            && space == Space::Param
            && address.slot == NO_SLOT
            && count == 1
            && let Ok(offset) = u32::try_from(address.offset)
            && self.load_parameter(value, ty, offset)?
        {
            return Ok(());
        }
        if !load && matches!(space, Space::Const | Space::Param) {
            return Err(Refusal::Form);
        }
        let (data, register) = if count == 1 {
            match value {
                Operand::Name(name) if load && self.is_sink(*name) => {
                    (self.destination(value, ty)?, memory)
                }
                Operand::Name(_) | Operand::Component { .. } if load => {
                    self.loose_destination(value)?
                }
                Operand::Vector(elements) if elements.len() == 1 => {
                    self.loose_destination(&elements[0])?
                }
                _ => self.loose_source(value, ty)?,
            }
        } else {
            let (slots, register) = if load {
                self.vector(value)?
            } else {
                self.vector_sources(value, ty)?
            };
            if slots.len() != usize::from(count) || !load && slots.contains(&NO_SLOT) {
                return Err(Refusal::Form);
            }
            let first = u16::try_from(self.image.vectors.len())
                .map_err(|_| Refusal::Other("in a program of too many vector accesses".into()))?;
            self.image.vectors.extend(slots);
            (first, register)
        };
        if register < memory {
            return Err(Refusal::Other(
                "with a register narrower than the type".into(),
            ));
        }
        let access = Access {
            data,
            address: address.slot,
            offset: address.offset,
            space,
            width: memory,
            register,
            signed: is_signed(ty),
            wide_address: address.wide,
            count,
            fenced,
        };
        self.emit(if load {
            Op::load(access)
        } else {
            Op::store(access)
        })
    }

    /// A parameter at a known offset is there from the start.
    fn load_parameter(&mut self, to: &Operand, ty: T, offset: u32) -> Lowered<bool> {
        let Operand::Name(name) = to else {
            return Ok(false);
        };
        let memory = width(ty).ok_or(Refusal::Form)?;
        let register = match self.register_width(*name) {
            Some(register) if register >= memory => register,
            _ => return Ok(false),
        };
        let parameter = Parameter {
            offset,
            width: memory,
            register,
            signed: is_signed(ty),
        };
        let Some(slot) = self.parameter(parameter)? else {
            return Ok(false);
        };
        if !self.alias(to, slot, register) {
            let (d, _) = self.loose_destination(to)?;
            self.settle(d, slot, Bank::of(register))?;
        }
        Ok(true)
    }

    /// The slots of the elements that a vector store writes, which may be literals.
    fn vector_sources(&mut self, operand: &Operand, ty: T) -> Lowered<(Vec<u16>, Width)> {
        let Operand::Vector(elements) = operand else {
            return self.vector(operand);
        };
        let mut slots = Vec::new();
        let mut common = None;
        for element in elements {
            let (slot, width) = self.loose_source(element, ty)?;
            if *common.get_or_insert(width) != width {
                return Err(Refusal::Other("with elements of different widths".into()));
            }
            slots.push(slot);
        }
        Ok((slots, common.ok_or(Refusal::Form)?))
    }

    /// `atom` and `red`.
    pub(super) fn atomic(
        &mut self,
        reduce: bool,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let ordered = modifiers
            .take_of(&["acquire", "release", "acq_rel"])
            .is_some();
        modifiers.drop_if(is_advice);
        let written = space(&mut modifiers);
        let operations = [
            "add", "and", "cas", "dec", "exch", "inc", "max", "min", "or", "xor",
        ];
        let operation = modifiers.take_of(&operations).ok_or(Refusal::Form)?;
        let count = match modifiers.take_of(&["v2", "v4", "v8"]) {
            None => 1,
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8_u8,
        };
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let op = match (operation, ty) {
            ("add", T::U32 | T::S32 | T::U64 | T::S64) => AtomicOp::Add,
            ("add", T::F16) => AtomicOp::AddF16,
            ("add", T::F16x2) => AtomicOp::AddF16x2,
            ("add", T::Bf16) => AtomicOp::AddBf16,
            ("add", T::Bf16x2) => AtomicOp::AddBf16x2,
            ("add", T::F32) => AtomicOp::AddF32,
            ("add", T::F64) => AtomicOp::AddF64,
            ("and", T::B32 | T::B64) => AtomicOp::And,
            ("or", T::B32 | T::B64) => AtomicOp::Or,
            ("xor", T::B32 | T::B64) => AtomicOp::Xor,
            ("exch", T::B32 | T::B64) => AtomicOp::Exchange,
            ("cas", T::B16 | T::B32 | T::B64) => AtomicOp::Cas,
            ("inc", T::U32) => AtomicOp::Inc,
            ("dec", T::U32) => AtomicOp::Dec,
            ("min", T::U32 | T::U64) => AtomicOp::MinUnsigned,
            ("max", T::U32 | T::U64) => AtomicOp::MaxUnsigned,
            ("min", T::S32 | T::S64) => AtomicOp::MinSigned,
            ("max", T::S32 | T::S64) => AtomicOp::MaxSigned,
            _ => return Err(Refusal::Form),
        };
        let (to, rest) = if reduce {
            (None, operands)
        } else {
            let (to, rest) = operands.split_first().ok_or(Refusal::Form)?;
            (Some(to), rest)
        };
        let (address, b, c) = match (rest, op) {
            ([address, b, c], AtomicOp::Cas) => (address, b, Some(c)),
            ([address, b], op) if op != AtomicOp::Cas => (address, b, None),
            _ => return Err(Refusal::Form),
        };
        let address = self.address(address)?;
        let space = self.accessed(written, &address)?;
        if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
            return Err(Refusal::Form);
        }
        if ordered {
            self.emit(Op::Fence)?;
        }
        let width = width(ty).ok_or(Refusal::Form)?;
        let mut template = Atomic {
            op,
            d: NO_SLOT,
            address: address.slot,
            b: 0,
            c: NO_SLOT,
            offset: address.offset,
            space,
            width,
            wide_address: address.wide,
        };
        if count == 1 {
            template.b = self.source(b, ty)?;
            template.c = c.map_or(Ok(NO_SLOT), |c| self.source(c, ty))?;
            template.d = match to {
                Some(Operand::Name(name)) if self.is_sink(*name) => NO_SLOT,
                Some(to) => self.destination(to, ty)?,
                None => NO_SLOT,
            };
            self.emit(Op::Atomic(template))?;
        } else {
            self.atomic_vector(template, ty, count, to, b)?;
        }
        if ordered {
            self.emit(Op::Fence)
        } else {
            Ok(())
        }
    }

    /// A vector atomic is one atomic for each element: PTX promises no more.
    fn atomic_vector(
        &mut self,
        template: Atomic,
        ty: T,
        count: u8,
        to: Option<&Operand>,
        b: &Operand,
    ) -> Lowered<()> {
        let (sources, _) = self.vector_sources(b, ty)?;
        let destinations = match to {
            Some(to) => self.vector(to)?.0,
            None => vec![NO_SLOT; sources.len()],
        };
        if sources.len() != usize::from(count) || destinations.len() != sources.len() {
            return Err(Refusal::Form);
        }
        // Destinations may be sources of later elements.
        let mut kept = Vec::new();
        let bytes = i32::try_from(template.width.bytes()).map_err(|_| Refusal::Form)?;
        for (index, &b) in (0..).zip(&sources) {
            let offset = template
                .offset
                .checked_add(index * bytes)
                .ok_or(Refusal::Form)?;
            let bank = Bank::of(template.width);
            let d = self.slots(bank, 1)?;
            kept.push(d);
            self.emit(Op::Atomic(Atomic {
                b,
                d,
                offset,
                ..template
            }))?;
        }
        let run = if template.width == Width::B64 {
            alu::move64
        } else {
            alu::move32
        };
        for (&d, &a) in destinations.iter().zip(&kept) {
            if d != NO_SLOT {
                self.lane(
                    run,
                    Slots {
                        d,
                        a,
                        ..Slots::default()
                    },
                )?;
            }
        }
        Ok(())
    }

    /// `cp.async`, which copies at once.
    pub(super) fn copy(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        if !modifiers.take("async") {
            return Err(Refusal::Form);
        }
        if modifiers.take("bulk") {
            return self.bulk(modifiers, operands);
        }
        if modifiers.take("mbarrier") {
            return self.arrive_after_copies(modifiers, operands);
        }
        if modifiers
            .take_of(&["commit_group", "wait_group", "wait_all"])
            .is_some()
        {
            return modifiers.finish();
        }
        modifiers.drop_if(is_advice);
        let to_shared = modifiers.take_of(&["shared", "shared::cta"]).is_some();
        let from_global = modifiers.take("global");
        modifiers.finish()?;
        let [
            to,
            from,
            Operand::Immediate(Immediate::Integer(bytes)),
            rest @ ..,
        ] = operands
        else {
            return Err(Refusal::Form);
        };
        if !to_shared || !from_global || !matches!(bytes, 4 | 8 | 16) || rest.len() > 1 {
            return Err(Refusal::Form);
        }
        let (mut source_bytes, mut ignore) = (None, None);
        match rest.first() {
            None => {}
            Some(Operand::Negated(_)) => ignore = Some(self.condition(&rest[0])?),
            Some(Operand::Name(name)) if self.predicate_register(*name).is_ok() => {
                ignore = Some(self.condition(&rest[0])?);
            }
            Some(operand) => source_bytes = Some(self.source(operand, T::U32)?),
        }
        let (to, from) = (self.address(to)?, self.address(from)?);
        self.accessed(Space::Shared, &to)?;
        self.accessed(Space::Global, &from)?;
        let (to_slot, to_offset, to_wide) = if to.slot == NO_SLOT {
            (
                self.long_value(u64::try_from(to.offset).unwrap_or(u64::MAX))?,
                0,
                true,
            )
        } else {
            (to.slot, to.offset, to.wide)
        };
        let site = CopySite {
            to: to_slot,
            to_wide,
            to_offset,
            from: from.slot,
            from_offset: from.offset,
            bytes: u8::try_from(*bytes).map_err(|_| Refusal::Form)?,
            source_bytes,
            ignore,
        };
        let index = u32::try_from(self.image.copies.len()).map_err(|_| Refusal::Form)?;
        self.image.copies.push(site);
        self.emit(Op::Copy { site: index })
    }
}
