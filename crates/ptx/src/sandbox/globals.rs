//! The guest's variables in global and const space: where each lies in the module's part of the window or in the const block, and what
//! it holds at first.

use std::collections::HashMap;

use crate::ast::{Immediate, Initializer, Linkage, ScalarType, Space, Symbol, Variable};
use crate::confined::{GlobalVariable, Globals};
use crate::error::Error;
use crate::layout::align_up;

use super::names::{Program, VariableId, refuse};

/// Largest alignment that a variable may ask for: that of the place they lie in.
const MAX_ALIGNMENT: u32 = 128;

/// Where the variables are, and their bytes.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// By variable: its offset, where it is in global or const space.
    pub(super) offsets: Vec<Option<u32>>,
    pub(super) globals: Globals,
    pub(super) constants: Vec<u8>,
}

/// Lays out the variables and computes their bytes.
pub(super) fn lay_out(program: &Program<'_>) -> Result<Images, Error> {
    let mut images = Images::default();
    let (mut global_end, mut const_end) = (0_u64, 0_u64);
    let mut global_of: HashMap<Symbol, u32> = HashMap::new();
    for variable in &program.variables {
        let end = match variable.space {
            Space::Global if variable.ty.bytes().is_some() => &mut global_end,
            Space::Const => &mut const_end,
            _ => {
                images.offsets.push(None);
                continue;
            }
        };
        let name = program.module.text(variable.name);
        let Some(bytes) = variable
            .bytes()
            .filter(|_| variable.linkage != Linkage::Extern)
        else {
            images.offsets.push(None);
            continue;
        };
        if variable.alignment() > MAX_ALIGNMENT {
            return Err(refuse(
                name,
                "it is aligned to more than 128 bytes",
                variable.at,
            ));
        }
        let offset = align_up(*end, variable.alignment());
        *end = offset.saturating_add(bytes);
        let offset = u32::try_from(offset)
            .ok()
            .filter(|_| *end <= MAX_GLOBAL_BYTES)
            .ok_or_else(|| refuse(name, "variables take more than 1 GiB", variable.at))?;
        images.offsets.push(Some(offset));
        if variable.space == Space::Global {
            global_of.insert(variable.name, offset);
            if variable.linkage != Linkage::Internal {
                images.globals.variables.push(GlobalVariable {
                    name: name.to_owned(),
                    offset,
                    bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                });
            }
        }
    }
    images.constants = zeroed(const_end);
    images.globals.image = zeroed(global_end);
    for (id, variable) in program.variables.iter().enumerate() {
        if let (Some(offset), Some(initializer)) = (images.offsets[id], &variable.initializer) {
            let mut writer = Writer {
                program,
                id,
                variable,
                global_of: &global_of,
                images: &mut images,
            };
            writer.write(offset as usize, initializer, 0)?;
        }
    }
    Ok(images)
}

/// Most bytes of variables: they are made in memory here, and again in each guest's.
const MAX_GLOBAL_BYTES: u64 = 1 << 30;

fn zeroed(bytes: u64) -> Vec<u8> {
    // At most `MAX_GLOBAL_BYTES`.
    vec![0; usize::try_from(bytes).unwrap_or(0)]
}

struct Writer<'w, 'm> {
    program: &'w Program<'m>,
    id: VariableId,
    variable: &'w Variable,
    global_of: &'w HashMap<Symbol, u32>,
    images: &'w mut Images,
}

impl Writer<'_, '_> {
    fn refuse(&self, reason: &'static str) -> Error {
        let variable = self.program.variables[self.id];
        refuse(self.program.module.text(variable.name), reason, variable.at)
    }

    /// Writes an initial value, which is at a depth of the variable's dimensions, and says how many bytes the value's place has.
    fn write(&mut self, at: usize, initializer: &Initializer, depth: usize) -> Result<(), Error> {
        let unit = self.variable.ty.bytes().unwrap_or(1) as usize;
        match initializer {
            Initializer::List(list) => {
                let stride = self.stride(depth + 1);
                for (index, element) in list.iter().enumerate() {
                    self.write(
                        at.saturating_add(index.saturating_mul(stride)),
                        element,
                        depth + 1,
                    )?;
                }
                Ok(())
            }
            Initializer::Immediate(value) => {
                let bits = match (value, self.variable.ty) {
                    (Immediate::F32(bits), ScalarType::F64) => {
                        f64::from(f32::from_bits(*bits)).to_bits()
                    }
                    (Immediate::F32(bits), _) => u64::from(*bits),
                    (Immediate::F64(bits), ScalarType::F32) => {
                        #[expect(
                            clippy::cast_possible_truncation,
                            reason = "a double in a place for a float is rounded, as PTX has it"
                        )]
                        let narrow = f64::from_bits(*bits) as f32;
                        u64::from(narrow.to_bits())
                    }
                    (Immediate::F64(_), ScalarType::F16 | ScalarType::Bf16) => {
                        return Err(self.refuse("its initial value is a half written as a number"));
                    }
                    (Immediate::F64(bits) | Immediate::Integer(bits), _) => *bits,
                };
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&bits.to_le_bytes());
                self.store(at, &bytes[..unit.min(16)])
            }
            Initializer::Address { name, offset, .. } => {
                let Some(&target) = self.global_of.get(name) else {
                    return Err(self.refuse("its initial value is an address of something other than a variable in global space"));
                };
                if self.variable.space != Space::Global || unit != 8 {
                    return Err(self.refuse("its initial value is an address, and it is no 64-bit variable in global space"));
                }
                let address = u64::from(target).wrapping_add(offset.cast_unsigned());
                self.images
                    .globals
                    .addresses
                    .push(u32::try_from(at).unwrap_or(u32::MAX));
                self.store(at, &address.to_le_bytes())
            }
        }
    }

    /// Bytes from one element to the next at a depth of the dimensions.
    fn stride(&self, depth: usize) -> usize {
        let inner = self.variable.dimensions.get(depth..).unwrap_or_default();
        let elements = inner
            .iter()
            .fold(1_u64, |all, length| all.saturating_mul(length.unwrap_or(0)));
        let unit = if depth > self.variable.dimensions.len() {
            self.variable.ty.bytes()
        } else {
            self.variable.element_bytes()
        };
        usize::try_from(elements.saturating_mul(u64::from(unit.unwrap_or(1)))).unwrap_or(usize::MAX)
    }

    fn store(&mut self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let image = match self.variable.space {
            Space::Const => &mut self.images.constants,
            _ => &mut self.images.globals.image,
        };
        match image.get_mut(at..at.saturating_add(bytes.len())) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(self.refuse("its initial value does not fit it")),
        }
    }
}
