//! Whether a variable, register or parameter can be laid out.

use crate::ast::{Initializer, Linkage, Module, ScalarType, Space, Variable, Vector};
use crate::error::{Error, ErrorKind, Excerpt};
use crate::layout::align_up;
use crate::limits::{MAX_ALIGN, max_space_bytes};

/// Widest vector, in bytes.
const MAX_VECTOR_BYTES: u32 = 32;

/// Bytes taken in each space so far, by one module or function.
#[derive(Debug, Default)]
pub(super) struct Totals {
    bytes: [u64; 8],
}

impl Totals {
    /// Checks a variable and adds what it takes.
    pub(super) fn add(&mut self, module: &Module, variable: &Variable) -> Result<(), Error> {
        let name = || Excerpt::new(module.text(variable.name));
        let extern_array = variable.linkage == Linkage::Extern;
        check(module, variable, extern_array)?;
        let total = &mut self.bytes[variable.space as usize];
        let limit = max_space_bytes(variable.space);
        if let Some(bytes) = variable.bytes().filter(|_| limit > 0) {
            *total = align_up(*total, variable.alignment()).saturating_add(bytes);
        }
        if *total > limit {
            let (space, bytes) = (variable.space, *total);
            let kind = ErrorKind::SpaceBytes {
                name: name(),
                space,
                bytes,
                limit,
            };
            return Err(kind.at(variable.at));
        }
        Ok(())
    }
}

/// Checks a variable by itself; `open` says whether its first dimension may be unknown.
pub(super) fn check(module: &Module, variable: &Variable, open: bool) -> Result<(), Error> {
    check_shape(module, variable, open).map_err(|kind| kind.at(variable.at))
}

fn check_shape(module: &Module, variable: &Variable, open: bool) -> Result<(), ErrorKind> {
    let Variable { space, ty, .. } = *variable;
    let name = || Excerpt::new(module.text(variable.name));
    if !can_hold(space, ty) {
        return Err(ErrorKind::SpaceType { space, ty });
    }
    let pointed = variable.pointer.and_then(|pointer| pointer.align);
    for align in [variable.align, pointed].into_iter().flatten() {
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(ErrorKind::Alignment {
                align,
                limit: MAX_ALIGN,
            });
        }
    }
    if let Some(vector) = variable.vector
        && variable
            .element_bytes()
            .is_none_or(|bytes| bytes > MAX_VECTOR_BYTES)
    {
        return Err(ErrorKind::VectorType { vector, ty });
    }
    if space == Space::Reg && !variable.dimensions.is_empty() {
        return Err(ErrorKind::RegisterArray { name: name() });
    }
    if variable.count.is_some() {
        if space != Space::Reg {
            return Err(ErrorKind::RangeOfVariables { name: name() });
        }
        if module
            .text(variable.name)
            .ends_with(|last: char| last.is_ascii_digit())
        {
            return Err(ErrorKind::RangeOfNumbers { name: name() });
        }
    }
    if let Some(initializer) = &variable.initializer {
        if !matches!(space, Space::Const | Space::Global) {
            return Err(ErrorKind::InitializerSpace {
                name: name(),
                space,
            });
        }
        if !fits(variable, initializer) {
            return Err(ErrorKind::InitializerShape { name: name() });
        }
    }
    let is_open = |index| index == 0 && (open || variable.initializer.is_some());
    let incomplete = |(index, dimension): (usize, &Option<u64>)| match dimension {
        Some(length) => *length == 0 && space != Space::Param,
        None => !is_open(index),
    };
    if variable.dimensions.iter().enumerate().any(incomplete) {
        return Err(ErrorKind::IncompleteArray { name: name() });
    }
    let limit = max_space_bytes(space);
    match variable.bytes() {
        Some(bytes) if limit > 0 && bytes > limit => Err(ErrorKind::SpaceBytes {
            name: name(),
            space,
            bytes,
            limit,
        }),
        _ => Ok(()),
    }
}

/// Whether a space has variables of a type.
fn can_hold(space: Space, ty: ScalarType) -> bool {
    match (space, ty) {
        (Space::Sreg, _) => false,
        (Space::Reg, _) => !is_opaque(ty),
        (_, ScalarType::Pred) => false,
        (Space::Global | Space::Tex, _) => true,
        _ => !is_opaque(ty),
    }
}

/// Whether values of a type can only be named.
fn is_opaque(ty: ScalarType) -> bool {
    matches!(
        ty,
        ScalarType::Samplerref | ScalarType::Surfref | ScalarType::Texref
    )
}

/// Whether an initial value has the levels of its variable, no more elements than an array and as many
/// as a vector.
fn fits(variable: &Variable, initializer: &Initializer) -> bool {
    fits_levels(&variable.dimensions, variable.vector, initializer)
}

fn fits_levels(
    dimensions: &[Option<u64>],
    vector: Option<Vector>,
    initializer: &Initializer,
) -> bool {
    match (initializer, dimensions, vector) {
        (Initializer::List(elements), [length, rest @ ..], _) => {
            length.is_none_or(|length| elements.len() as u64 <= length)
                && elements
                    .iter()
                    .all(|element| fits_levels(rest, vector, element))
        }
        (Initializer::List(elements), [], Some(vector)) => {
            elements.len() == vector.width() as usize
                && elements
                    .iter()
                    .all(|element| fits_levels(&[], None, element))
        }
        (Initializer::List(_), [], None) => false,
        (_, dimensions, vector) => dimensions.is_empty() && vector.is_none(),
    }
}
