//! Types and modifiers of an instruction, and why it is refused.

use ptx::ast::{ScalarType, Symbol};

use crate::cpu::code::Width;

/// Why an instruction is refused; the line is added by whoever walks the statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The opcode with these modifiers, or its operands, have no meaning here.
    Form,
    /// Something else, in words.
    Other(String),
}

pub(super) type Lowered<T> = Result<T, Refusal>;

/// Reads a type modifier.
pub(super) fn scalar(text: &str) -> Option<ScalarType> {
    Some(match text {
        "b8" => ScalarType::B8,
        "b16" => ScalarType::B16,
        "b32" => ScalarType::B32,
        "b64" => ScalarType::B64,
        "u8" => ScalarType::U8,
        "u16" => ScalarType::U16,
        "u32" => ScalarType::U32,
        "u64" => ScalarType::U64,
        "s8" => ScalarType::S8,
        "s16" => ScalarType::S16,
        "s32" => ScalarType::S32,
        "s64" => ScalarType::S64,
        "f16" => ScalarType::F16,
        "f16x2" => ScalarType::F16x2,
        "f32" => ScalarType::F32,
        "f64" => ScalarType::F64,
        "bf16" => ScalarType::Bf16,
        "bf16x2" => ScalarType::Bf16x2,
        "pred" => ScalarType::Pred,
        _ => return None,
    })
}

/// The register that holds a type; `None` for predicates and what fits no register.
pub(super) fn width(ty: ScalarType) -> Option<Width> {
    Some(match ty {
        ScalarType::B8 | ScalarType::U8 | ScalarType::S8 => Width::B8,
        ScalarType::B16
        | ScalarType::U16
        | ScalarType::S16
        | ScalarType::F16
        | ScalarType::Bf16 => Width::B16,
        ScalarType::B32
        | ScalarType::U32
        | ScalarType::S32
        | ScalarType::F32
        | ScalarType::F16x2
        | ScalarType::Bf16x2 => Width::B32,
        ScalarType::B64 | ScalarType::U64 | ScalarType::S64 | ScalarType::F64 => Width::B64,
        _ => return None,
    })
}

pub(super) fn is_signed(ty: ScalarType) -> bool {
    matches!(
        ty,
        ScalarType::S8 | ScalarType::S16 | ScalarType::S32 | ScalarType::S64
    )
}

/// The modifiers of an instruction, taken one by one; what is left over at the end has no meaning here.
#[derive(Debug)]
pub(super) struct Modifiers<'m> {
    list: Vec<&'m str>,
}

impl<'m> Modifiers<'m> {
    pub(super) fn new(names: &'m ptx::ast::Names, modifiers: &[Symbol]) -> Self {
        Self {
            list: modifiers
                .iter()
                .map(|&modifier| names.text(modifier))
                .collect(),
        }
    }

    /// Takes a modifier if it is there.
    pub(super) fn take(&mut self, text: &str) -> bool {
        self.take_first(|modifier| modifier == text).is_some()
    }

    /// Whether a modifier is there.
    pub(super) fn peek(&self, text: &str) -> bool {
        self.list.contains(&text)
    }

    /// Takes the first modifier that is one of `texts`.
    pub(super) fn take_of(&mut self, texts: &[&str]) -> Option<&'m str> {
        self.take_first(|modifier| texts.contains(&modifier))
    }

    /// Takes all modifiers that only advise or order, and say nothing about the result.
    pub(super) fn drop_if(&mut self, matches: impl Fn(&str) -> bool) {
        self.list.retain(|modifier| !matches(modifier));
    }

    fn take_first(&mut self, matches: impl Fn(&str) -> bool) -> Option<&'m str> {
        let at = self.list.iter().position(|modifier| matches(modifier))?;
        Some(self.list.remove(at))
    }

    /// Takes the first type.
    pub(super) fn scalar(&mut self) -> Lowered<ScalarType> {
        let at = self
            .list
            .iter()
            .position(|modifier| scalar(modifier).is_some())
            .ok_or(Refusal::Form)?;
        scalar(self.list.remove(at)).ok_or(Refusal::Form)
    }

    /// The first type, left where it is.
    pub(super) fn peek_scalar(&self) -> Option<ScalarType> {
        self.list.iter().find_map(|modifier| scalar(modifier))
    }

    /// Refuses what is left.
    pub(super) fn finish(self) -> Lowered<()> {
        if self.list.is_empty() {
            Ok(())
        } else {
            Err(Refusal::Form)
        }
    }
}
