//! One function, statement by statement: declarations, then instructions, each with what it reads and writes. What a reserved register may be
//! given is in `idiom.rs`, memory in `access.rs`, branches in `control.rs`, time in `time.rs`.

use std::collections::{HashMap, HashSet};

use super::HIDDEN;
use super::control::HANDED_DOWN;
use super::fact::{Fact, Place};
use super::flow::{Flow, Mistake};
use super::table::{
    BARRIERS, COMPUTE, COMPUTE_MATRIX, FENCES, MEMORY, READS_CARRY, REDUCING_BARRIERS,
    SPECIAL_REGISTERS, WARP,
};
use super::text::{Text, check_limit, is_guests, is_number};
use super::time::METER_REGISTERS;
use crate::ast::{
    Function, FunctionKind, Immediate, Instruction, Linkage, Operand, ScalarType, Space, Statement,
    Symbol, Variable,
};
use crate::error::{Excerpt, VerifyError, VerifyErrorKind};
use crate::limits::{MAX_CALL_BYTES, MAX_CONFINED_LABELS, MAX_CONFINED_REGISTERS, MAX_FLOW_BITS};

pub(super) type Result<T, E = VerifyError> = std::result::Result<T, E>;

/// What others have to know of a function that was found good.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) calls: Vec<Call>,
    /// Bytes of dynamic shared memory that it relies on.
    pub(super) dynamic_padding: Option<u32>,
    /// Whether an address is only right in a window of 4 GiB.
    pub(super) is_whole: bool,
}

/// A call that was found good.
#[derive(Debug)]
pub(super) struct Call {
    /// Position among the functions.
    pub(super) callee: usize,
    /// It is not made at this depth or deeper.
    pub(super) depth: Option<u32>,
    pub(super) line: u32,
}

/// A variable in parameter space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter<'t> {
    pub(super) variable: &'t Variable,
    pub(super) role: Role,
}

/// What it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// What the function was given.
    Given,
    /// One of [`HIDDEN`].
    Hidden,
    /// What the function gives back.
    Result,
    /// For a call made here.
    Call,
}

/// What METER has paid for, up to the next label.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Paid {
    /// Fuel that the last METER took.
    pub(super) fuel: Option<u32>,
    /// Whether it was the statement before, but for setting `%wq`.
    pub(super) just_now: bool,
    /// Whether threads without fuel have left.
    pub(super) exits: bool,
}

/// A function that is being gone through.
#[derive(Debug)]
pub(super) struct Body<'b, 't> {
    pub(super) text: &'b Text<'t>,
    pub(super) function: &'t Function,
    pub(super) statements: &'t [Statement],
    pub(super) registers: HashMap<Symbol, ScalarType>,
    pub(super) parameters: HashMap<Symbol, Parameter<'t>>,
    /// Labels of instructions, and the positions of what follows.
    pub(super) labels: HashMap<Symbol, usize>,
    /// Instructions before each statement, and at the end before all that follows.
    pub(super) instructions_before: Vec<usize>,
    /// Lists of labels.
    pub(super) tables: HashMap<Symbol, &'t [Symbol]>,
    /// By reserved register.
    pub(super) facts: HashMap<Symbol, Fact>,
    /// Reserved registers that were written, and those that only BEGIN, GO, METER and BACK write.
    pub(super) reserved_written: HashSet<Symbol>,
    /// Bytes of a call's parameters stored since the last label, and of results.
    pub(super) stored: HashMap<Symbol, Vec<(u32, u32)>>,
    /// Results that a call gave since the last label.
    pub(super) returned: HashSet<Symbol>,
    pub(super) flow: Flow,
    pub(super) paid: Paid,
    /// Whether neither a label nor GO, METER or a branch was met yet.
    pub(super) in_head: bool,
    /// Targets of the branches by number so far.
    pub(super) listed: usize,
    /// Where BEGIN was met.
    pub(super) asked: Option<usize>,
    /// Whether GO, or in a function that is called METER, is behind the head.
    pub(super) has_head_meter: bool,
    /// Labels of METERs and BACKs, and labels that are branched to.
    pub(super) meter_labels: HashSet<Symbol>,
    pub(super) targets: Vec<(Symbol, u32)>,
    pub(super) summary: Summary,
}

impl<'b, 't> Body<'b, 't> {
    /// Declares what the function has.
    pub(super) fn new(text: &'b Text<'t>, function: &'t Function) -> Result<Self> {
        let statements = function
            .body
            .as_ref()
            .map_or(&[][..], |body| body.statements.as_slice());
        let mut this = Self {
            text,
            function,
            statements,
            registers: HashMap::new(),
            parameters: HashMap::new(),
            labels: HashMap::new(),
            instructions_before: vec![0],
            tables: HashMap::new(),
            facts: HashMap::new(),
            reserved_written: HashSet::new(),
            stored: HashMap::new(),
            returned: HashSet::new(),
            // The carry flag is the last one.
            flow: Flow::new(text.module.names.len() + 1),
            paid: Paid::default(),
            in_head: true,
            asked: None,
            listed: 0,
            has_head_meter: false,
            meter_labels: HashSet::new(),
            targets: Vec::new(),
            summary: Summary {
                calls: Vec::new(),
                dynamic_padding: None,
                is_whole: false,
            },
        };
        this.interface()?;
        this.declarations()?;
        Ok(this)
    }

    pub(super) fn is_entry(&self) -> bool {
        self.function.kind == FunctionKind::Entry
    }

    /// The parameters and results.
    fn interface(&mut self) -> Result<()> {
        let function = self.function;
        for variable in &function.returns {
            self.parameter(variable, Role::Result)?;
        }
        let hidden = if self.is_entry() {
            HIDDEN.len()
        } else {
            HANDED_DOWN.len()
        };
        let line = function.at.line;
        let wrong = || self.text.declaration(function.name, line);
        let own = function
            .params
            .len()
            .checked_sub(hidden)
            .ok_or_else(wrong)?;
        let (own, hidden) = function.params.split_at(own);
        for variable in own {
            self.parameter(variable, Role::Given)?;
        }
        if self.is_entry() {
            for (variable, (name, ..)) in hidden.iter().zip(HIDDEN) {
                if self.text.module.text(variable.name) != name {
                    return Err(self.text.declaration(variable.name, variable.at.line));
                }
                self.parameter(variable, Role::Hidden)?;
            }
            return Ok(());
        }
        for (variable, (name, ty, fact)) in hidden.iter().zip(HANDED_DOWN) {
            let is_right = self.text.module.text(variable.name) == name
                && variable.space == Space::Reg
                && variable.ty == ty
                && variable.vector.is_none()
                && variable.count.is_none();
            if !is_right {
                return Err(self.text.declaration(variable.name, variable.at.line));
            }
            self.registers.insert(variable.name, ty);
            self.reserved_written.insert(variable.name);
            let fact = fact.unwrap_or(Fact::Block(self.text.local()));
            self.facts.insert(variable.name, fact);
        }
        Ok(())
    }

    fn parameter(&mut self, variable: &'t Variable, role: Role) -> Result<()> {
        let name = self.text.module.text(variable.name);
        let has_name = is_guests(name)
            || role == Role::Hidden
            || (role == Role::Call && name.strip_prefix("wc_arg").is_some_and(is_number));
        // With a promise of an alignment, the assembler may drop what makes an address aligned.
        let is_plain = variable.space == Space::Param
            && variable.pointer.is_none()
            && variable.count.is_none()
            && variable.bytes().is_some();
        if !has_name || !is_plain || self.text.names.contains_key(&variable.name) {
            return Err(self.text.declaration(variable.name, variable.at.line));
        }
        self.parameters
            .insert(variable.name, Parameter { variable, role });
        Ok(())
    }

    /// What is declared before the first instruction, and the labels.
    fn declarations(&mut self) -> Result<()> {
        let mut is_code = false;
        let mut instructions = 0;
        for (index, statement) in self.statements.iter().enumerate() {
            instructions += usize::from(matches!(statement, Statement::Instruction(_)));
            self.instructions_before.push(instructions);
            match statement {
                Statement::Variable(variable) if !is_code => self.variable(variable)?,
                Statement::Variable(variable) => {
                    return Err(self.text.declaration(variable.name, variable.at.line));
                }
                Statement::Label { name, at } => {
                    let text = self.text.module.text(*name);
                    let is_named =
                        is_guests(text) || text.strip_prefix("wc_L").is_some_and(is_number);
                    if !is_named || self.text.names.contains_key(name) {
                        return Err(self.text.declaration(*name, at.line));
                    }
                    match self.statements.get(index + 1) {
                        Some(Statement::Targets {
                            directive, names, ..
                        }) if self.text.module.text(*directive) == "branchtargets" => {
                            self.tables.insert(*name, names);
                        }
                        _ => {
                            is_code = true;
                            self.labels.insert(*name, index);
                        }
                    }
                }
                Statement::Targets { .. } => {}
                _ => is_code = true,
            }
        }
        let line = self.function.at.line;
        let of_calls = self
            .parameters
            .values()
            .filter(|parameter| parameter.role == Role::Call)
            .filter_map(|parameter| parameter.variable.bytes())
            .fold(0, u64::saturating_add);
        check_limit(
            "bytes of parameters of calls",
            usize::try_from(of_calls).unwrap_or(usize::MAX),
            MAX_CALL_BYTES,
            line,
        )?;
        check_limit(
            "registers of a function",
            self.registers.len(),
            MAX_CONFINED_REGISTERS,
            line,
        )?;
        check_limit(
            "labels of a function",
            self.labels.len(),
            MAX_CONFINED_LABELS,
            line,
        )
    }

    fn variable(&mut self, variable: &'t Variable) -> Result<()> {
        let name = self.text.module.text(variable.name);
        match variable.space {
            // Checked for the whole module.
            Space::Local => Ok(()),
            Space::Param => self.parameter(variable, Role::Call),
            Space::Reg => {
                let is_named =
                    name.starts_with("%w") || name.strip_prefix('%').is_some_and(is_guests);
                let is_plain = variable.linkage == Linkage::Internal
                    && variable.vector.is_none()
                    && variable.count.is_none()
                    && variable.align.is_none()
                    && variable.initializer.is_none();
                if !is_named || !is_plain || !has_type(name, variable.ty) {
                    return Err(self.text.declaration(variable.name, variable.at.line));
                }
                self.registers.insert(variable.name, variable.ty);
                if METER_REGISTERS.contains(&name) {
                    self.reserved_written.insert(variable.name);
                }
                Ok(())
            }
            _ => Err(self.text.declaration(variable.name, variable.at.line)),
        }
    }

    /// Goes through the statements.
    pub(super) fn check(mut self) -> Result<Summary> {
        let statements = self.statements;
        let mut index = 0;
        while let Some(statement) = statements.get(index) {
            index += match statement {
                Statement::Variable(_) => 1,
                Statement::Label { name, at } => {
                    // The list behind a label that no code has is passed with it.
                    if self.tables.contains_key(name) {
                        2
                    } else {
                        self.label(*name, at.line)?;
                        1
                    }
                }
                Statement::Instruction(instruction) => self
                    .meter(index)
                    .unwrap_or_else(|| self.instruction(index, instruction).map(|()| 1))?,
                Statement::BlockStart | Statement::BlockEnd => {
                    let name = Excerpt::new(self.name(self.function.name));
                    return Err(VerifyErrorKind::Nested { name }.at(self.function.at.line));
                }
                Statement::Prototype { at, .. } | Statement::Targets { at, .. } => {
                    return Err(self.refuse(at.line));
                }
            };
        }
        self.check_end()?;
        match self.flow.check() {
            Ok(()) => Ok(self.summary),
            Err(Mistake::TooLarge) => {
                let what = "registers times blocks of a function";
                let limit = MAX_FLOW_BITS as u64;
                Err(VerifyErrorKind::Limit { what, limit }.at(self.function.at.line))
            }
            Err(Mistake::Unwritten { register, line }) => {
                let symbol = u32::try_from(register).map(Symbol);
                let is_carry = register == self.text.module.names.len();
                let name = symbol
                    .ok()
                    .filter(|_| !is_carry)
                    .map(|symbol| self.name(symbol));
                let name = Excerpt::new(name.unwrap_or("the carry flag"));
                Err(VerifyErrorKind::Unwritten { name }.at(line))
            }
        }
    }

    /// The refusal of the instruction in a line.
    pub(super) fn refuse(&self, line: u32) -> VerifyError {
        let instruction = Excerpt::new(self.text.line(line));
        VerifyErrorKind::Instruction { instruction }.at(line)
    }

    pub(super) fn name(&self, symbol: Symbol) -> &'t str {
        self.text.module.text(symbol)
    }

    /// Whether a register is one that only idioms may write.
    pub(super) fn is_reserved(&self, name: Symbol) -> bool {
        let text = self.name(name);
        self.registers.contains_key(&name) && text.starts_with("%w") && !text.starts_with("%wx")
    }

    /// Opcode and modifiers of an instruction.
    pub(super) fn op(&self, instruction: &Instruction) -> &'t str {
        let line = self.text.line(instruction.at.line);
        let line = match instruction.guard {
            Some(_) => line.split_once(' ').map_or("", |(_, rest)| rest),
            None => line,
        };
        line.split([' ', ';']).next().unwrap_or("")
    }

    fn instruction(&mut self, index: usize, instruction: &'t Instruction) -> Result<()> {
        let paid = std::mem::take(&mut self.paid.just_now);
        let op = self.op(instruction);
        let line = instruction.at.line;
        let operands = instruction.operands.as_slice();
        let is_definite = instruction.guard.is_none();
        if let Some(guard) = instruction.guard {
            self.read(guard.register, line)?;
        }
        let opcode = self.name(instruction.opcode);
        if self.is_in_entrys_head() && MEMORY.contains(&opcode) && !op.starts_with("ld.param.") {
            return Err(VerifyErrorKind::Fuel { what: "an entry" }.at(line));
        }
        match opcode {
            "bra" | "brx" | "call" | "exit" | "ret" => self.control(index, instruction, op),
            "nanosleep" => self.sleep(op, operands, line),
            "ld" | "ldmatrix" => self.load(instruction),
            "st" | "stmatrix" => self.store(instruction),
            "atom" | "red" => self.atomic(instruction),
            "prefetch" => self.prefetch(instruction, op),
            _ if FENCES.contains(&op) && operands.is_empty() => Ok(()),
            "cp" => self.copy(instruction, op),
            "bar" | "barrier" => {
                match operands {
                    _ if op == "bar.warp.sync" && operands.len() == 1 => {
                        return self.source(&operands[0], line);
                    }
                    [Operand::Immediate(Immediate::Integer(0))] if BARRIERS.contains(&op) => {}
                    [to, Operand::Immediate(Immediate::Integer(0)), from]
                        if REDUCING_BARRIERS.contains(&op) =>
                    {
                        self.source(from, line)?;
                        self.destination(to, is_definite, line)?;
                    }
                    _ => return Err(self.refuse(line)),
                }
                self.needs_head_meter("a wait", line)
            }
            _ if self.writes_reserved(operands.first()) => self.idiom(instruction, op, paid),
            opcode => self.compute(instruction, opcode, op),
        }
    }

    fn writes_reserved(&self, to: Option<&Operand>) -> bool {
        match to {
            Some(Operand::Name(name)) => self.is_reserved(*name),
            Some(Operand::Vector(parts)) => {
                parts.iter().any(|part| self.writes_reserved(Some(part)))
            }
            _ => false,
        }
    }

    /// An instruction that computes from registers what it writes to registers.
    fn compute(&mut self, instruction: &Instruction, opcode: &str, op: &str) -> Result<()> {
        let line = instruction.at.line;
        let is_known = COMPUTE.contains(&opcode) || op.starts_with(COMPUTE_MATRIX);
        let has = |word| {
            instruction
                .modifiers
                .iter()
                .any(|&modifier| self.name(modifier) == word)
        };
        let [to, from @ ..] = instruction.operands.as_slice() else {
            return Err(self.refuse(line));
        };
        if !is_known || (WARP.contains(&opcode) && !has("sync")) {
            return Err(self.refuse(line));
        }
        let sets_carry = has("cc");
        let is_definite = instruction.guard.is_none();
        for operand in from {
            self.source(operand, line)?;
        }
        let carry = self.text.module.names.len();
        if READS_CARRY.contains(&opcode) {
            self.flow.read(carry, line);
        }
        if sets_carry && is_definite {
            self.flow.write(carry);
        }
        self.destination(to, is_definite, line)
    }

    /// Reads a register or special register.
    pub(super) fn read(&mut self, name: Symbol, line: u32) -> Result<()> {
        let text = self.name(name);
        match self.registers.contains_key(&name) {
            true if !self.is_reserved(name) => {
                self.flow.read(name.index(), line);
                Ok(())
            }
            true if self.facts.get(&name).is_some_and(|fact| fact.is_readable()) => Ok(()),
            false if SPECIAL_REGISTERS.contains(&text) => Ok(()),
            _ => Err(self.refuse(line)),
        }
    }

    /// Reads an operand that is a value.
    pub(super) fn source(&mut self, operand: &Operand, line: u32) -> Result<()> {
        match operand {
            Operand::Immediate(_) => Ok(()),
            Operand::Name(name) | Operand::Negated(name) => self.read(*name, line),
            Operand::Component { name, .. } if !self.registers.contains_key(name) => {
                self.read(*name, line)
            }
            Operand::Vector(parts) => parts.iter().try_for_each(|part| self.source(part, line)),
            _ => Err(self.refuse(line)),
        }
    }

    /// Writes an operand that is no reserved register; a write is definite if it happens whenever control comes there.
    pub(super) fn destination(
        &mut self,
        operand: &Operand,
        is_definite: bool,
        line: u32,
    ) -> Result<()> {
        match operand {
            Operand::Name(name) if self.name(*name) == "_" => Ok(()),
            Operand::Name(name)
                if self.registers.contains_key(name) && !self.is_reserved(*name) =>
            {
                if is_definite {
                    self.flow.write(name.index());
                }
                Ok(())
            }
            Operand::Vector(parts) => parts
                .iter()
                .try_for_each(|part| self.destination(part, is_definite, line)),
            Operand::Pair(pair) => {
                self.destination(&pair.0, is_definite, line)?;
                self.destination(&pair.1, is_definite, line)
            }
            _ => Err(self.refuse(line)),
        }
    }

    /// The block that a name of the module or of this function is.
    pub(super) fn block(&self, name: Symbol) -> Option<Place> {
        if self.is_entry() && self.name(name) == super::text::LOCAL {
            return Some(self.text.local());
        }
        self.text.names.get(&name).copied().flatten()
    }
}

/// Whether a register of the sequences that keep time has a type that they work with.
fn has_type(name: &str, ty: ScalarType) -> bool {
    match name {
        "%wm" | "%wn" | "%wq" | "%wx" => ty == ScalarType::Pred,
        "%wf" | "%wk" | "%wone" | "%wtok" | "%wu" | "%wv" => {
            matches!(ty, ScalarType::B32 | ScalarType::S32 | ScalarType::U32)
        }
        "%wt" => matches!(ty, ScalarType::B64 | ScalarType::S64 | ScalarType::U64),
        _ => true,
    }
}
