//! Lowering of one function: its statements in order, its registers to slots, its labels to positions in the code.

use std::collections::{HashMap, HashSet};

use ptx::ast::{
    Function, FunctionKind, Instruction, Module, Operand, ScalarType, Space, Statement, Symbol,
    Variable,
};

use crate::cpu::code::{
    self, FrameSize, FunctionCode, Guard, Image, LaneFn, LongPreset, Op, Preset, Slots, Width,
};
use crate::error::Error;

use super::layout::Layout;
use super::scope::{Labels, Meaning, RegisterDeclaration, Scopes};
use super::slots::Bank;
use super::types::{Lowered, Modifiers, Refusal};
use super::{MAX_CODE, unsupported};

/// Modifiers that a message names at most; no instruction has as many.
const MAX_SHOWN_MODIFIERS: usize = 16;

/// What all functions of an image need to know of each other.
pub(super) struct Program<'m> {
    pub(super) module: &'m Module,
    pub(super) layout: &'m Layout,
    /// The functions in the order of the image, by name.
    pub(super) numbers: &'m HashMap<Symbol, usize>,
    /// Where the parameters and results of each function lie in its frame, in words.
    pub(super) interfaces: &'m [Interface],
    /// Aliases and declarations resolve through this.
    pub(super) program: &'m ptx::Validated,
    /// Blocks of a cluster.
    pub(super) cluster: [u32; 3],
    /// The lists of [`Image::callees`] by what their functions take and give.
    pub(super) callees: &'m HashMap<Interface, usize>,
    pub(super) parameter_bytes: u32,
}

/// Offsets in words of a device function's parameters and results in its frame, and their lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Interface {
    pub(super) parameters: Vec<(u32, u32)>,
    pub(super) results: Vec<(u32, u32)>,
    pub(super) words: u32,
}

impl Interface {
    /// Lays out what a function takes and gives at the start of its frame.
    pub(super) fn of(function: &Function) -> Option<Self> {
        if function.kind == FunctionKind::Entry {
            return Some(Self::default());
        }
        Self::new(&function.params, &function.returns)
    }

    /// The same for a prototype.
    pub(super) fn new(params: &[Variable], returns: &[Variable]) -> Option<Self> {
        let mut interface = Self::default();
        for (variables, list) in [
            (params, &mut interface.parameters),
            (returns, &mut interface.results),
        ] {
            for variable in variables {
                let words = u32::try_from(variable.bytes()?.div_ceil(4)).ok()?;
                // Frames begin at multiples of 16 bytes, so that offsets can be aligned to as much.
                let start = interface
                    .words
                    .next_multiple_of(variable.alignment().div_ceil(4).min(FRAME_ALIGN_WORDS));
                list.push((start, words));
                interface.words = start
                    .checked_add(words)
                    .filter(|&words| words < MAX_FRAME_WORDS)?;
            }
        }
        Some(interface)
    }
}

/// What a function that is called by address takes and gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prototype<'m> {
    pub(super) params: &'m [Variable],
    pub(super) returns: &'m [Variable],
}

/// Frames of local memory begin at multiples of this many words.
pub(super) const FRAME_ALIGN_WORDS: u32 = 4;
/// Words of local memory of a frame: the 512 KiB that CUDA gives a thread.
pub(super) const MAX_FRAME_WORDS: u32 = 128 << 10;

/// A function on its way to code.
pub(super) struct Lowering<'m, 'i> {
    pub(super) program: &'m Program<'m>,
    pub(super) image: &'i mut Image,
    pub(super) number: usize,
    pub(super) kind: FunctionKind,
    function: &'m Function,
    pub(super) scopes: Scopes,
    pub(super) labels: Labels,
    /// Where each label stands, once known.
    positions: Vec<Option<u32>>,
    /// Branches whose target is a label so far.
    branches: Vec<usize>,
    /// Branch tables of the image, by block and label: one for a directive, however many instructions use it.
    pub(super) tables: HashMap<(usize, Symbol), u32>,
    /// What may be called by address, by block and label of the directive that says so.
    pub(super) prototypes: HashMap<(usize, Symbol), Prototype<'m>>,
    /// Branch tables of the image whose targets are labels so far.
    open_tables: Vec<usize>,
    pub(super) banks: [u16; 3],
    pub(super) words: HashMap<Preset, u16>,
    pub(super) longs: HashMap<LongPreset, u16>,
    pub(super) predicates: HashMap<bool, u16>,
    /// Slots that never change: those of presets.
    pub(super) fixed: HashSet<(Bank, u16)>,
    local_words: u32,
    /// Of the instruction being lowered.
    pub(super) guard: Guard,
    line: u32,
    pub(super) carry: Option<u16>,
    last_label: Option<Symbol>,
    /// How often each name is written, at most.
    pub(super) definitions: HashMap<Symbol, u32>,
    /// Slots taken before the instruction being lowered; what came since is its own.
    pub(super) taken: [u16; 3],
}

impl<'m, 'i> Lowering<'m, 'i> {
    /// Lowers the function of this number to the end of the image's code.
    pub(super) fn run(
        program: &'m Program<'m>,
        image: &'i mut Image,
        number: usize,
        function: &'m Function,
    ) -> Result<FunctionCode, Error> {
        let empty = Vec::new();
        let statements = function
            .body
            .as_ref()
            .map_or(&empty, |body| &body.statements);
        let labels = Labels::of(statements);
        let mut lowering = Lowering {
            program,
            image,
            number,
            kind: function.kind,
            function,
            scopes: Scopes::new(),
            positions: vec![None; labels.len()],
            labels,
            branches: Vec::new(),
            tables: HashMap::new(),
            prototypes: HashMap::new(),
            open_tables: Vec::new(),
            banks: [0; 3],
            words: HashMap::new(),
            longs: HashMap::new(),
            predicates: HashMap::new(),
            fixed: HashSet::new(),
            local_words: 0,
            guard: Guard::ALWAYS,
            line: function.at.line,
            carry: None,
            last_label: None,
            definitions: super::alias::definitions(program.module, statements),
            taken: [0; 3],
        };
        let start = lowering.position();
        lowering.parameters(function)?;
        for (index, statement) in statements.iter().enumerate() {
            lowering.statement(index, statement)?;
        }
        lowering.guard = Guard::ALWAYS;
        let end = lowering
            .store_results()
            .and_then(|()| lowering.emit(Op::Return));
        end.map_err(|refusal| lowering.error(refusal, "the end of the function".into()))?;
        lowering.resolve()?;
        let size = FrameSize {
            words: lowering.banks[Bank::Word as usize].into(),
            longs: lowering.banks[Bank::Long as usize].into(),
            predicates: lowering.banks[Bank::Predicate as usize].into(),
            local: lowering.local_words.next_multiple_of(FRAME_ALIGN_WORDS),
        };
        let mut words: Vec<_> = lowering
            .words
            .into_iter()
            .map(|(preset, slot)| (slot, preset))
            .collect();
        words.sort_unstable_by_key(|(slot, _)| *slot);
        let mut longs: Vec<_> = lowering
            .longs
            .into_iter()
            .map(|(value, slot)| (slot, value))
            .collect();
        longs.sort_unstable_by_key(|(slot, _)| *slot);
        let mut predicates: Vec<_> = lowering
            .predicates
            .into_iter()
            .map(|(value, slot)| (slot, value))
            .collect();
        predicates.sort_unstable_by_key(|(slot, _)| *slot);
        Ok(FunctionCode {
            start,
            size,
            words,
            longs,
            predicates,
        })
    }

    fn parameters(&mut self, function: &Function) -> Result<(), Error> {
        if function.kind == FunctionKind::Entry {
            let mut offset = 0_u32;
            for parameter in &function.params {
                let bytes = parameter
                    .bytes()
                    .and_then(|bytes| u32::try_from(bytes).ok())
                    .unwrap_or(0);
                offset = offset.next_multiple_of(parameter.alignment());
                self.scopes
                    .declare(parameter.name, Meaning::EntryParameter { offset });
                offset = offset.saturating_add(bytes);
            }
            return Ok(());
        }
        let interface = &self.program.interfaces[self.number];
        self.local_words = interface.words;
        let all = interface.parameters.iter().chain(&interface.results);
        for (variable, &(start, _)) in function.params.iter().chain(&function.returns).zip(all) {
            if variable.space == Space::Reg {
                let declaration = RegisterDeclaration {
                    ty: variable.ty,
                    components: 1,
                    count: None,
                };
                self.scopes.declare_register(variable.name, declaration);
            } else {
                let meaning = Meaning::Local { offset: start * 4 };
                self.scopes.declare(variable.name, meaning);
            }
        }
        // Registers that are parameters begin with what was passed.
        for (variable, &(start, _)) in function.params.iter().zip(&interface.parameters) {
            if variable.space == Space::Reg {
                self.line = variable.at.line;
                self.fetch_parameter(variable, start)
                    .map_err(|refusal| self.error(refusal, "a register parameter".into()))?;
            }
        }
        Ok(())
    }

    fn fetch_parameter(&mut self, variable: &Variable, start: u32) -> Lowered<()> {
        let width = super::types::width(variable.ty)
            .filter(|_| variable.vector.is_none())
            .ok_or(Refusal::Form)?;
        let slot = self.register(variable.name, width)?;
        self.emit(Op::load(frame_access(slot, width, start)))
    }

    /// Register results go to the frame, from where the caller takes them.
    pub(super) fn store_results(&mut self) -> Lowered<()> {
        let interface = &self.program.interfaces[self.number];
        for (variable, &(start, _)) in self.function.returns.iter().zip(&interface.results) {
            if variable.space == Space::Reg {
                let width = super::types::width(variable.ty).ok_or(Refusal::Form)?;
                let slot = self.register(variable.name, width)?;
                self.emit(Op::store(frame_access(slot, width, start)))?;
            }
        }
        Ok(())
    }

    /// Where an argument or result of a call lies in this frame, in words; an argument that is a register or literal is put there.
    pub(super) fn passed(
        &mut self,
        operand: &Operand,
        ty: ScalarType,
        words: u32,
        argument: bool,
    ) -> Lowered<u32> {
        if let Operand::Name(name) = operand
            && let Some(Meaning::Local { offset }) = self.meaning(*name).transpose()?
        {
            let end = (offset / 4).saturating_add(words);
            return if end <= self.local_words {
                Ok(offset / 4)
            } else {
                Err(Refusal::Form)
            };
        }
        let width = super::types::width(ty).ok_or(Refusal::Form)?;
        let start = self.local(u64::from(words) * 4, width.bytes())? / 4;
        if argument {
            let slot = self.source(operand, ty)?;
            self.emit(Op::store(frame_access(slot, width, start)))?;
        }
        Ok(start)
    }

    /// Takes a result of a call that goes to a register.
    pub(super) fn fetch_result(
        &mut self,
        operand: &Operand,
        ty: ScalarType,
        word: u32,
    ) -> Lowered<()> {
        if let Operand::Name(name) = operand
            && let Some(Meaning::Local { .. }) = self.meaning(*name).transpose()?
        {
            return Ok(());
        }
        let width = super::types::width(ty).ok_or(Refusal::Form)?;
        let slot = self.destination(operand, ty)?;
        self.emit(Op::load(frame_access(slot, width, word)))
    }

    fn statement(&mut self, index: usize, statement: &'m Statement) -> Result<(), Error> {
        match statement {
            Statement::BlockStart => self.scopes.open(),
            Statement::BlockEnd => self.scopes.close(),
            Statement::Label { name, .. } => {
                let number = self.labels.find(self.scopes.blocks().take(1), *name);
                if let Some(number) = number {
                    self.positions[number] = Some(self.position());
                }
                self.last_label = Some(*name);
                return Ok(());
            }
            Statement::Targets {
                directive,
                names,
                at,
            } => {
                let block = self.scopes.blocks().next().unwrap_or(0);
                match (self.last_label, self.program.module.text(*directive)) {
                    (Some(label), "branchtargets") => {
                        self.line = at.line;
                        let table = self.branch_table(names);
                        let table = table
                            .map_err(|refusal| self.error(refusal, "`.branchtargets`".into()))?;
                        self.tables.insert((block, label), table);
                    }
                    // The functions named have one signature; which of them is called shows when it is.
                    (Some(label), "calltargets") => {
                        let first = names.first();
                        let first = first.and_then(|&name| self.program.program.function_of(name));
                        if let Some(function) = first {
                            let prototype = Prototype {
                                params: &function.params,
                                returns: &function.returns,
                            };
                            self.prototypes.insert((block, label), prototype);
                        }
                    }
                    _ => {}
                }
            }
            Statement::Prototype {
                returns, params, ..
            } => {
                let block = self.scopes.blocks().next().unwrap_or(0);
                if let Some(label) = self.last_label {
                    let prototype = Prototype { params, returns };
                    self.prototypes.insert((block, label), prototype);
                }
            }
            Statement::Variable(variable) => self.variable(index, variable)?,
            Statement::Instruction(instruction) => {
                self.line = instruction.at.line;
                self.instruction(instruction).map_err(|refusal| {
                    let module = self.program.module;
                    let modifiers = instruction.modifiers.iter().take(MAX_SHOWN_MODIFIERS);
                    let parts: Vec<_> = std::iter::once(&instruction.opcode)
                        .chain(modifiers)
                        .map(|&part| module.text(part))
                        .collect();
                    let shown = ptx::Excerpt::new(&parts.join("."));
                    self.error(refusal, format!("`{shown}`"))
                })?;
            }
        }
        self.last_label = None;
        Ok(())
    }

    fn error(&self, refusal: Refusal, what: String) -> Error {
        match refusal {
            Refusal::Form => unsupported(self.line, what),
            Refusal::Other(reason) => unsupported(self.line, format!("{what} {reason}")),
        }
    }

    fn variable(&mut self, index: usize, variable: &Variable) -> Result<(), Error> {
        let meaning = match variable.space {
            Space::Reg => {
                let components = variable.vector.map_or(1, |vector| vector.width());
                let declaration = RegisterDeclaration {
                    ty: variable.ty,
                    components: u8::try_from(components).unwrap_or(1),
                    count: variable.count,
                };
                self.scopes.declare_register(variable.name, declaration);
                return Ok(());
            }
            Space::Shared => Meaning::Shared {
                offset: self.program.layout.inner_shared(self.number, index),
            },
            Space::Local | Space::Param => {
                let bytes = variable.bytes().ok_or(Refusal::Form);
                let offset = bytes.and_then(|bytes| self.local(bytes, variable.alignment()));
                let name = self.program.module.text(variable.name);
                self.line = variable.at.line;
                let offset = offset.map_err(|refusal| self.error(refusal, format!("`{name}`")))?;
                Meaning::Local { offset }
            }
            // Declared here, it has static storage like one of the module; nothing but OpenCL writes this.
            _ => {
                let name = self.program.module.text(variable.name);
                return Err(unsupported(
                    variable.at.line,
                    format!("`{name}`, declared in a function,"),
                ));
            }
        };
        self.scopes.declare(variable.name, meaning);
        Ok(())
    }

    /// Takes bytes of the frame's local memory.
    pub(super) fn local(&mut self, bytes: u64, align: u32) -> Lowered<u32> {
        let start = self
            .local_words
            .next_multiple_of(align.div_ceil(4).min(FRAME_ALIGN_WORDS));
        let words = u32::try_from(bytes.div_ceil(4)).unwrap_or(u32::MAX);
        self.local_words = start.saturating_add(words);
        if self.local_words > MAX_FRAME_WORDS {
            return Err(Refusal::Other(format!(
                "with more than {} bytes of local memory",
                MAX_FRAME_WORDS * 4
            )));
        }
        Ok(start * 4)
    }

    fn instruction(&mut self, instruction: &'m Instruction) -> Lowered<()> {
        self.taken = self.banks;
        self.guard = match instruction.guard {
            None => Guard::ALWAYS,
            Some(guard) => Guard::new(self.predicate_register(guard.register)?, guard.negated),
        };
        let module = self.program.module;
        let modifiers = Modifiers::new(&module.names, &instruction.modifiers);
        self.opcode(
            module.text(instruction.opcode),
            modifiers,
            &instruction.operands,
        )
    }

    /// The instruction that is emitted next.
    pub(super) fn position(&self) -> u32 {
        u32::try_from(self.image.code.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn emit(&mut self, op: Op) -> Lowered<()> {
        if self.image.code.len() >= MAX_CODE {
            return Err(Refusal::Other(format!(
                "in a program of more than {MAX_CODE} instructions"
            )));
        }
        self.image.code.push(code::Instruction {
            op,
            guard: self.guard,
        });
        self.image.lines.push(self.line);
        Ok(())
    }

    pub(super) fn lane(&mut self, run: LaneFn, slots: Slots) -> Lowered<()> {
        let run = run.choose();
        self.emit(Op::Lane { run, slots })
    }

    /// Emits a branch to a label, which may not stand anywhere yet.
    pub(super) fn branch(&mut self, label: Symbol) -> Lowered<()> {
        let number = self
            .labels
            .find(self.scopes.blocks(), label)
            .ok_or(Refusal::Form)?;
        self.branches.push(self.image.code.len());
        self.emit(Op::Branch {
            target: u32::try_from(number).unwrap_or(u32::MAX),
        })
    }

    /// Makes a branch table of labels.
    fn branch_table(&mut self, labels: &[Symbol]) -> Lowered<u32> {
        let numbers: Option<Vec<u32>> = labels
            .iter()
            .map(|&label| u32::try_from(self.labels.find(self.scopes.blocks(), label)?).ok())
            .collect();
        let table = self.image.tables.len();
        self.image.tables.push(numbers.ok_or(Refusal::Form)?);
        self.open_tables.push(table);
        u32::try_from(table).map_err(|_| Refusal::Form)
    }

    /// Labels become positions.
    fn resolve(&mut self) -> Result<(), Error> {
        let positions = &self.positions;
        let place = |number: u32| positions.get(number as usize).copied().flatten();
        let missing = || unsupported(self.line, "a branch to a label that stands nowhere".into());
        for &branch in &self.branches {
            if let Op::Branch { target } = &mut self.image.code[branch].op {
                *target = place(*target).ok_or_else(missing)?;
            }
        }
        for &table in &self.open_tables {
            for target in &mut self.image.tables[table] {
                *target = place(*target).ok_or_else(missing)?;
            }
        }
        Ok(())
    }
}

/// A load or store of a register and words of the frame.
fn frame_access(data: u16, width: Width, word: u32) -> code::Access {
    code::Access {
        data,
        address: code::NO_SLOT,
        offset: i32::try_from(word * 4).unwrap_or(i32::MAX),
        space: code::Space::Local,
        width,
        register: width,
        signed: false,
        wide_address: true,
        count: 1,
        fenced: false,
    }
}
