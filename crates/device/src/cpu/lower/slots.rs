//! Slots of registers, temporaries and values that never change.

use ptx::ast::ScalarType;

use crate::cpu::code::{LongPreset, Preset, Width};

use super::MAX_SLOTS;
use super::function::Lowering;
use super::scope::{Meaning, RegisterDeclaration};
use super::types::{Lowered, Refusal};

/// Which bank a slot is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bank {
    Long,
    Predicate,
    Word,
}

impl Bank {
    pub(super) fn of(width: Width) -> Self {
        if width == Width::B64 {
            Self::Long
        } else {
            Self::Word
        }
    }
}

impl Lowering<'_, '_> {
    /// A new slot; `count` of them in a row.
    pub(super) fn slots(&mut self, bank: Bank, count: u16) -> Lowered<u16> {
        let next = &mut self.banks[bank as usize];
        let slot = *next;
        *next = slot
            .checked_add(count)
            .filter(|&next| next <= MAX_SLOTS)
            .ok_or_else(|| {
                Refusal::Other(format!(
                    "in a function that uses more than {MAX_SLOTS} registers of a kind"
                ))
            })?;
        Ok(slot)
    }

    pub(super) fn word(&mut self) -> Lowered<u16> {
        self.slots(Bank::Word, 1)
    }

    pub(super) fn long(&mut self) -> Lowered<u16> {
        self.slots(Bank::Long, 1)
    }

    pub(super) fn predicate(&mut self) -> Lowered<u16> {
        self.slots(Bank::Predicate, 1)
    }

    /// The slot of the carry flag.
    pub(super) fn carry(&mut self) -> Lowered<u16> {
        match self.carry {
            Some(slot) => Ok(slot),
            None => {
                let slot = self.predicate()?;
                self.carry = Some(slot);
                Ok(slot)
            }
        }
    }

    /// A slot that holds the same in every frame.
    pub(super) fn preset(&mut self, preset: Preset) -> Lowered<u16> {
        if let Some(&slot) = self.words.get(&preset) {
            return Ok(slot);
        }
        let slot = self.word()?;
        self.words.insert(preset, slot);
        self.fixed.insert((Bank::Word, slot));
        Ok(slot)
    }

    pub(super) fn word_value(&mut self, value: u32) -> Lowered<u16> {
        self.preset(Preset::Value(value))
    }

    pub(super) fn long_value(&mut self, value: u64) -> Lowered<u16> {
        self.long_preset(LongPreset::Value(value))
    }

    pub(super) fn long_preset(&mut self, preset: LongPreset) -> Lowered<u16> {
        if let Some(&slot) = self.longs.get(&preset) {
            return Ok(slot);
        }
        let slot = self.long()?;
        self.longs.insert(preset, slot);
        self.fixed.insert((Bank::Long, slot));
        Ok(slot)
    }

    pub(super) fn predicate_value(&mut self, value: bool) -> Lowered<u16> {
        if let Some(&slot) = self.predicates.get(&value) {
            return Ok(slot);
        }
        let slot = self.predicate()?;
        self.predicates.insert(value, slot);
        Ok(slot)
    }

    /// A slot of a declared register, whose type the caller checks.
    pub(super) fn take_register(&mut self, declaration: RegisterDeclaration) -> Lowered<Meaning> {
        if declaration.ty == ScalarType::Pred {
            return Ok(Meaning::Predicate {
                slot: self.predicate()?,
            });
        }
        let width = super::types::width(declaration.ty)
            .ok_or_else(|| Refusal::Other("with a register of 128 bits".into()))?;
        let slot = self.slots(Bank::of(width), declaration.components.into())?;
        Ok(Meaning::Register {
            width,
            slot,
            components: declaration.components,
        })
    }
}
