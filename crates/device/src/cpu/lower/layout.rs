//! Where the variables of a program lie, and what they hold at first.

use std::collections::{HashMap, HashSet};

use ptx::Validated;
use ptx::ast::{
    Function, FunctionKind, Immediate, Initializer, Linkage, Module, Operand, ScalarType, Space,
    Statement, Symbol, Variable,
};

use crate::cpu::memory::{CONST_BASE, FUNCTION_ADDRESS, GLOBALS_BASE};
use crate::device::DeviceLimits;
use crate::error::Error;

use super::scope::Meaning;
use super::unsupported;

/// Alignment of dynamic shared memory at least: what CUDA gives it.
const DYNAMIC_SHARED_ALIGN: u32 = 16;
/// Most bytes of the initial values of a module, trailing zeros of outermost dimensions apart: as many as the numbers of a text
/// can be, eight bytes each.
const MAX_INITIAL_BYTES: usize = 16 << 20;

/// How far the addresses of functions are from each other.
const FUNCTION_BYTES: u64 = 16;

/// The variables outside functions.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) meanings: HashMap<Symbol, Meaning>,
    pub(super) const_bytes: Vec<u8>,
    pub(super) global_bytes: u64,
    pub(super) global_values: Vec<(u64, Vec<u8>)>,
    /// Bytes of initial values so far.
    initial_bytes: usize,
    /// The addresses of functions.
    pub(super) functions: HashMap<Symbol, u64>,
    /// Bytes of shared memory laid out so far; functions add theirs.
    pub(super) shared_bytes: u32,
    /// Shared variables of functions, by function and statement.
    inner_shared: HashMap<(usize, usize), u32>,
    /// Unsized shared arrays, which all begin where the sized ones end.
    dynamic_shared: Vec<Symbol>,
    dynamic_align: u32,
}

impl Layout {
    pub(super) fn of(module: &Module) -> Result<Self, Error> {
        let mut layout = Self {
            dynamic_align: DYNAMIC_SHARED_ALIGN,
            functions: addresses(module),
            ..Self::default()
        };
        for variable in module.variables() {
            layout.place(module, variable)?;
        }
        for variable in module.variables() {
            layout.initialize(module, variable)?;
        }
        Ok(layout)
    }

    fn place(&mut self, module: &Module, variable: &Variable) -> Result<(), Error> {
        let align = variable.alignment();
        match variable.space {
            Space::Shared => return self.shared(module, variable),
            _ if variable.linkage == Linkage::Extern => return Ok(()),
            Space::Global => {
                let Some(bytes) = variable.bytes() else {
                    return Ok(());
                };
                let offset = self.global_bytes.next_multiple_of(align.into());
                self.global_bytes = offset.saturating_add(bytes);
                let meaning = Meaning::Global {
                    address: GLOBALS_BASE + offset,
                };
                self.meanings.insert(variable.name, meaning);
            }
            Space::Const => {
                let Some(bytes) = variable
                    .bytes()
                    .and_then(|bytes| usize::try_from(bytes).ok())
                else {
                    return Ok(());
                };
                let offset = self.const_bytes.len().next_multiple_of(align as usize);
                self.const_bytes.resize(offset.saturating_add(bytes), 0);
                let meaning = Meaning::Const {
                    offset: u32::try_from(offset).unwrap_or(u32::MAX),
                };
                self.meanings.insert(variable.name, meaning);
            }
            // Textures and the like have no address; an instruction that names one is refused.
            _ => {}
        }
        Ok(())
    }

    /// Gives a shared variable outside functions its place.
    fn shared(&mut self, module: &Module, variable: &Variable) -> Result<(), Error> {
        match self.shared_offset(module, variable)? {
            Some(offset) => drop(
                self.meanings
                    .insert(variable.name, Meaning::Shared { offset }),
            ),
            None => self.dynamic_shared.push(variable.name),
        }
        Ok(())
    }

    /// The offset of a sized shared variable.
    fn shared_offset(
        &mut self,
        module: &Module,
        variable: &Variable,
    ) -> Result<Option<u32>, Error> {
        let Some(bytes) = variable
            .bytes()
            .filter(|_| variable.linkage != Linkage::Extern)
        else {
            self.dynamic_align = self.dynamic_align.max(variable.alignment());
            return Ok(None);
        };
        let offset = u64::from(self.shared_bytes).next_multiple_of(variable.alignment().into());
        let end = offset.saturating_add(bytes);
        if end > DeviceLimits::ARCHITECTURAL.shared_bytes.into() {
            let limit = DeviceLimits::ARCHITECTURAL.shared_bytes;
            let what = format!(
                "`{}`, with which static shared memory is over {limit} bytes,",
                module.text(variable.name)
            );
            return Err(unsupported(variable.at.line, what));
        }
        self.shared_bytes = u32::try_from(end).unwrap_or(u32::MAX);
        Ok(Some(u32::try_from(offset).unwrap_or(u32::MAX)))
    }

    /// Lays out the shared variables of a function's body.
    pub(super) fn shared_of(
        &mut self,
        module: &Module,
        function: usize,
        statements: &[Statement],
    ) -> Result<(), Error> {
        for (index, statement) in statements.iter().enumerate() {
            if let Statement::Variable(variable) = statement
                && variable.space == Space::Shared
                && let Some(offset) = self.shared_offset(module, variable)?
            {
                self.inner_shared.insert((function, index), offset);
            }
        }
        Ok(())
    }

    /// Where the shared variable that a statement of a function declares lies.
    pub(super) fn inner_shared(&self, function: usize, statement: usize) -> u32 {
        self.inner_shared
            .get(&(function, statement))
            .copied()
            .unwrap_or(self.shared_bytes)
    }

    /// Puts the unsized shared arrays behind all others. No more are placed afterwards.
    pub(super) fn close_shared(&mut self) {
        let offset = self.shared_bytes.next_multiple_of(self.dynamic_align);
        self.shared_bytes = offset;
        for &name in &self.dynamic_shared {
            self.meanings.insert(name, Meaning::Shared { offset });
        }
    }

    fn initialize(&mut self, module: &Module, variable: &Variable) -> Result<(), Error> {
        let Some(initializer) = &variable.initializer else {
            return Ok(());
        };
        let mut values = Vec::new();
        let lengths: Vec<u64> = variable
            .dimensions
            .iter()
            .map(|length| length.unwrap_or(0))
            .collect();
        self.flatten(module, variable, initializer, &lengths, &mut values)?;
        self.initial_bytes += values.len();
        match self.meanings.get(&variable.name) {
            Some(Meaning::Global { address }) => {
                self.global_values.push((address - GLOBALS_BASE, values))
            }
            Some(&Meaning::Const { offset }) => {
                let at = offset as usize;
                if let Some(room) = self
                    .const_bytes
                    .get_mut(at..at.saturating_add(values.len()))
                {
                    room.copy_from_slice(&values);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends the bytes of an initial value; inner lists are as long as their dimension says.
    fn flatten(
        &self,
        module: &Module,
        variable: &Variable,
        initializer: &Initializer,
        lengths: &[u64],
        values: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let refuse = || {
            unsupported(
                variable.at.line,
                format!("the initial value of `{}`", module.text(variable.name)),
            )
        };
        let bytes = variable.ty.bytes().ok_or_else(refuse)? as usize;
        match initializer {
            Initializer::List(list) => {
                let start = values.len();
                let inner = lengths.get(1..).unwrap_or_default();
                for element in list {
                    self.flatten(module, variable, element, inner, values)?;
                }
                // A list of the outermost dimension may end early: the rest is zero as it is.
                let outermost = lengths.len() == variable.dimensions.len();
                if let (false, Some(length)) = (outermost, lengths.first()) {
                    let elements = inner
                        .iter()
                        .fold(*length, |all, length| all.saturating_mul(*length));
                    let whole = usize::try_from(elements)
                        .ok()
                        .and_then(|elements| elements.checked_mul(bytes));
                    let room = variable
                        .bytes()
                        .and_then(|bytes| usize::try_from(bytes).ok());
                    let whole = whole
                        .filter(|&whole| {
                            whole <= MAX_INITIAL_BYTES.saturating_sub(self.initial_bytes + start)
                                && room.is_some_and(|room| start + whole <= room)
                        })
                        .ok_or_else(refuse)?;
                    values.resize(start + whole, 0);
                }
                return Ok(());
            }
            Initializer::Immediate(immediate) => {
                let bits = match (immediate, variable.ty) {
                    (Immediate::F32(bits), ScalarType::F64) => {
                        f64::from(f32::from_bits(*bits)).to_bits()
                    }
                    (Immediate::F32(bits), _) => u64::from(*bits),
                    (Immediate::F64(bits), ScalarType::F32) => {
                        u64::from(super::operand::narrowed(*bits))
                    }
                    (Immediate::F64(bits) | Immediate::Integer(bits), _) => *bits,
                };
                values.extend_from_slice(bits.to_le_bytes().get(..bytes).ok_or_else(refuse)?);
            }
            Initializer::Address {
                name,
                generic,
                offset,
            } => {
                let address = match (self.meanings.get(name), generic) {
                    (Some(Meaning::Global { address }), _) => *address,
                    (Some(Meaning::Const { offset }), false) => (*offset).into(),
                    (Some(Meaning::Const { offset }), true) => CONST_BASE + u64::from(*offset),
                    (None, _) => *self.functions.get(name).ok_or_else(refuse)?,
                    _ => return Err(refuse()),
                };
                let address = address.wrapping_add(offset.cast_unsigned());
                values.extend_from_slice(address.to_le_bytes().get(..bytes).ok_or_else(refuse)?);
            }
        }
        Ok(())
    }
}

/// Addresses of functions: nothing can be read there, and they differ.
fn addresses(module: &Module) -> HashMap<Symbol, u64> {
    let mut addresses = HashMap::new();
    for function in module.functions() {
        let next = FUNCTION_ADDRESS + FUNCTION_BYTES * (1 + addresses.len() as u64);
        addresses.entry(function.name).or_insert(next);
    }
    addresses
}

/// What an entry can reach.
#[derive(Debug)]
pub(super) struct Reach<'m> {
    /// The functions, the entry first.
    pub(super) functions: Vec<&'m Function>,
    /// Those of them whose address is taken, so that they may be called by it.
    pub(super) taken: HashSet<Symbol>,
}

impl<'m> Reach<'m> {
    /// Follows calls, and addresses of functions in instructions and, where anything is called by address, in initial values.
    pub(super) fn of(program: &'m Validated, entry: &'m Function) -> Self {
        let module = program.module();
        let call = module.names.find("call");
        let mut reach = Self {
            functions: vec![entry],
            taken: HashSet::new(),
        };
        let mut known = HashSet::new();
        let (mut next, mut is_indirect) = (0, false);
        while let Some(function) = reach.functions.get(next) {
            next += 1;
            let (mut called, mut taken) = (Vec::new(), Vec::new());
            for statement in function.body.iter().flat_map(|body| &body.statements) {
                let Statement::Instruction(instruction) = statement else {
                    continue;
                };
                let names = instruction
                    .operands
                    .iter()
                    .filter_map(|operand| match operand {
                        Operand::Name(name) => Some(*name),
                        _ => None,
                    });
                if Some(instruction.opcode) != call {
                    taken.extend(names);
                } else if let Some(name) = names.take(1).next() {
                    if program.function_of(name).is_some() {
                        called.push(name);
                    } else if !std::mem::replace(&mut is_indirect, true) {
                        for variable in module.variables() {
                            variable
                                .initializer
                                .iter()
                                .for_each(|of| named(of, &mut taken));
                        }
                    }
                }
            }
            let callable = |name: Symbol| {
                let function = program.function_of(name)?;
                let whole = function.body.is_some() && function.kind == FunctionKind::Device;
                whole.then_some(function)
            };
            let taken: Vec<_> = taken.into_iter().filter_map(callable).collect();
            reach
                .taken
                .extend(taken.iter().map(|function| function.name));
            for callee in called.into_iter().filter_map(callable).chain(taken) {
                if known.insert(callee.name) {
                    reach.functions.push(callee);
                }
            }
        }
        reach
    }
}

/// The names in an initial value.
fn named(initializer: &Initializer, names: &mut Vec<Symbol>) {
    match initializer {
        Initializer::Address { name, .. } => names.push(*name),
        Initializer::Immediate(_) => {}
        Initializer::List(list) => list.iter().for_each(|element| named(element, names)),
    }
}
