//! What an entry takes and how it may be launched, read off its declaration.

use crate::ast::{Body, Function, Module, ScalarType, Space, Statement, Symbol, Variable};
use crate::error::{Error, ErrorKind, Excerpt};
use crate::layout::align_up;
use crate::limits::{MAX_PARAMETER_BYTES, MAX_PARAMETER_BYTES_BEFORE_8_1, max_space_bytes};

/// The class of a parameter: which values may be given for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// `.b8` to `.b64`: any value of the size.
    Bits,
    /// An array, a vector or `.b128`: bytes of the exact size.
    Bytes,
    /// `.f16` to `.f64`.
    Float,
    /// `.u8` to `.u64`, `.s8` to `.s64`.
    Integer,
}

/// One parameter of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name as declared.
    pub name: String,
    /// Bytes from the start of the parameter buffer.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Class.
    pub class: Class,
    /// The type as declared, for texts: `.u64`, `.b8[72]`.
    pub declared: String,
    /// `.ptr` attribute: the space pointed into (`None` = generic) and its alignment.
    pub pointer: Option<PointerParameter>,
}

/// The `.ptr` attribute of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerParameter {
    /// State space pointed into; generic where not written.
    pub space: Option<Space>,
    /// Alignment of what is pointed to, in bytes; 4 where not written (PTX ISA, `.ptr`).
    pub align: u32,
}

/// The interface of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The entry's name.
    pub entry: String,
    /// Parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Bytes of the parameter buffer, without trailing padding.
    pub size: u32,
    /// `.maxntid`: most threads a block may have, per axis (absent axes are 1).
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`: the threads that a block must have, per axis (absent axes are 1).
    pub required_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`: the blocks that a cluster must have, per axis (absent axes are 1); all 0
    /// where only `.explicitcluster` is written, which leaves the size to the launch.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of sized `.shared` variables that the entry can use: the module's with those of device
    /// functions, then its own, each aligned as declared.
    pub static_shared_bytes: u32,
    /// Whether an unsized `.shared` array is declared (dynamic shared memory).
    pub uses_dynamic_shared: bool,
    /// Line of the entry's name.
    pub line: u32,
}

/// What the module gives every entry in shared memory.
#[derive(Debug, Default)]
pub(crate) struct ModuleShared {
    bytes: u64,
    is_dynamic: bool,
}

impl ModuleShared {
    /// Adds a variable in shared space.
    pub(crate) fn add(&mut self, variable: &Variable) {
        match variable.bytes() {
            Some(bytes) => self.bytes = align_up(self.bytes, variable.alignment()) + bytes,
            None => self.is_dynamic = true,
        }
    }

    /// Adds the shared variables of a function.
    pub(crate) fn add_function(&mut self, body: &Body) {
        for statement in &body.statements {
            if let Statement::Variable(variable) = statement
                && variable.space == Space::Shared
            {
                self.add(variable);
            }
        }
    }
}

/// The interface of an entry, whose parameters and directives have been checked one by one.
pub(crate) fn signature(
    module: &Module,
    function: &Function,
    shared: &ModuleShared,
) -> Result<Signature, Error> {
    let entry = module.text(function.name).to_owned();
    let limit = max_parameter_bytes(module);
    let mut size = 0_u64;
    let mut parameters = Vec::with_capacity(function.params.len());
    for variable in &function.params {
        let offset = align_up(size, variable.alignment());
        let bytes = variable.bytes().unwrap_or(0);
        size = offset.saturating_add(bytes);
        match (u32::try_from(offset), u32::try_from(bytes)) {
            (Ok(offset), Ok(bytes)) if size <= limit => {
                parameters.push(parameter(module, variable, offset, bytes));
            }
            _ => {
                let entry = Excerpt::new(&entry);
                let kind = ErrorKind::ParameterBytes {
                    entry,
                    bytes: size,
                    limit,
                };
                return Err(kind.at(variable.at));
            }
        }
    }

    let mut own = ModuleShared { ..*shared };
    function.body.iter().for_each(|body| own.add_function(body));
    let limit = max_space_bytes(Space::Shared);
    if own.bytes > limit {
        let (name, space) = (Excerpt::new(&entry), Space::Shared);
        return Err(ErrorKind::SpaceBytes {
            name,
            space,
            bytes: own.bytes,
            limit,
        }
        .at(function.at));
    }

    let explicit = axes(module, function, "explicitcluster").map(|_| [0; 3]);
    Ok(Signature {
        parameters,
        size: u32::try_from(size).unwrap_or(u32::MAX),
        max_threads: axes(module, function, "maxntid"),
        required_threads: axes(module, function, "reqntid"),
        cluster: axes(module, function, "reqnctapercluster").or(explicit),
        static_shared_bytes: u32::try_from(own.bytes).unwrap_or(u32::MAX),
        uses_dynamic_shared: own.is_dynamic,
        line: function.at.line,
        entry,
    })
}

fn parameter(module: &Module, variable: &Variable, offset: u32, size: u32) -> Parameter {
    let mut declared = String::new();
    if let Some(vector) = variable.vector {
        declared = format!(".{}", vector.name());
    }
    declared += &format!(".{}", variable.ty.name());
    for length in variable.dimensions.iter().flatten() {
        declared += &format!("[{length}]");
    }
    Parameter {
        name: module.text(variable.name).to_owned(),
        offset,
        size,
        align: variable.alignment(),
        class: class(variable),
        declared,
        pointer: variable.pointer.map(|pointer| PointerParameter {
            space: pointer.space,
            align: pointer.align.unwrap_or(4),
        }),
    }
}

fn class(variable: &Variable) -> Class {
    use ScalarType::{
        B8, B16, B32, B64, B128, Bf16, Bf16x2, F16, F16x2, F32, F64, Pred, S8, S16, S32, S64,
        Samplerref, Surfref, Texref, U8, U16, U32, U64,
    };
    if !variable.dimensions.is_empty() || variable.vector.is_some() {
        return Class::Bytes;
    }
    match variable.ty {
        B8 | B16 | B32 | B64 => Class::Bits,
        // Validation refuses parameters of the last four.
        B128 | F16x2 | Bf16x2 | Pred | Samplerref | Surfref | Texref => Class::Bytes,
        F16 | Bf16 | F32 | F64 => Class::Float,
        U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64 => Class::Integer,
    }
}

/// The numbers of a directive, where the entry has it; absent ones are 1.
fn axes(module: &Module, function: &Function, name: &str) -> Option<[u32; 3]> {
    let name: Symbol = module.names.find(name)?;
    let directive = function
        .directives
        .iter()
        .find(|directive| directive.name == name)?;
    let mut axes = [1; 3];
    for (axis, &value) in axes.iter_mut().zip(&directive.values) {
        *axis = u32::try_from(value).unwrap_or(u32::MAX);
    }
    Some(axes)
}

/// The most bytes of parameters that the module's version and target allow.
pub(crate) fn max_parameter_bytes(module: &Module) -> u64 {
    let digits = |name: &str| {
        let digits = name
            .strip_prefix("sm_")?
            .trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse::<u32>().ok()
    };
    let architecture = module
        .target
        .first()
        .and_then(|&name| digits(module.text(name)));
    match (module.version, architecture) {
        (version, Some(architecture)) if version >= (8, 1) && architecture >= 70 => {
            MAX_PARAMETER_BYTES
        }
        _ => MAX_PARAMETER_BYTES_BEFORE_8_1,
    }
}
