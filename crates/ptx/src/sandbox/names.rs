//! Names to what they stand for: a module becomes flat functions whose registers, variables and labels are numbers. No name of the
//! guest is left in what this makes, and nothing here knows what an instruction does.

use std::collections::{BTreeMap, HashMap};

use crate::ast::{
    AddressBase, Function, FunctionKind, Immediate, Item, Linkage, Module, Operand, Position,
    ScalarType, Space, Statement, Symbol, Variable,
};
use crate::error::{Error, ErrorKind, Excerpt};

/// A register of one function, by its place in [`Code::registers`].
pub(super) type Register = usize;
/// A variable, by its place in [`Program::variables`].
pub(super) type VariableId = usize;
/// A label of one function.
pub(super) type Label = usize;

/// A module with its names resolved.
#[derive(Debug)]
pub(super) struct Program<'m> {
    pub(super) module: &'m Module,
    /// Of all functions, in order of declaration. Registers are not among them.
    pub(super) variables: Vec<&'m Variable>,
    /// Every function that has a body, in order.
    pub(super) functions: Vec<Code<'m>>,
    /// How many numbers the guest's things take.
    pub(super) numbers: u32,
}

/// A function with a body.
#[derive(Debug)]
pub(super) struct Code<'m> {
    pub(super) source: &'m Function,
    pub(super) number: u32,
    pub(super) params: Vec<VariableId>,
    pub(super) returns: Vec<VariableId>,
    /// Those that the body names.
    pub(super) registers: Vec<RegisterDeclaration>,
    /// Variables declared in the body, whatever their space.
    pub(super) variables: Vec<VariableId>,
    /// The number of each label.
    pub(super) labels: Vec<u32>,
    /// The targets of `.branchtargets`, by the label before them.
    pub(super) tables: BTreeMap<Label, Vec<Label>>,
    pub(super) statements: Vec<Step<'m>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RegisterDeclaration {
    pub(super) ty: ScalarType,
    pub(super) number: u32,
}

#[derive(Debug)]
pub(super) enum Step<'m> {
    Instruction(Instruction<'m>),
    Label(Label),
}

#[derive(Clone, Debug)]
pub(super) struct Instruction<'m> {
    pub(super) guard: Option<Guard>,
    pub(super) opcode: &'m str,
    pub(super) modifiers: Vec<&'m str>,
    pub(super) operands: Vec<Value<'m>>,
    pub(super) at: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Guard {
    pub(super) register: Register,
    pub(super) negated: bool,
}

/// An operand.
#[derive(Clone, Debug)]
pub(super) enum Value<'m> {
    Address {
        base: Base,
        offset: i64,
        is_plain: bool,
    },
    Function(Symbol),
    Immediate(Immediate),
    Label(Label),
    List(Vec<Value<'m>>),
    Negated(Register),
    Pair(Box<(Value<'m>, Value<'m>)>),
    Register(Register),
    Sink,
    /// `%tid.x`: the register, and its component or nothing.
    Special(&'m str, &'m str),
    /// The address of a variable, and what is added.
    Variable(VariableId, i64),
    Vector(Vec<Value<'m>>),
}

/// What an address starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Base {
    Absolute(u64),
    Register(Register),
    Variable(VariableId),
}

/// The error that something cannot be confined.
pub(super) fn refuse(what: &str, reason: &'static str, at: Position) -> Error {
    let what = Excerpt::new(what);
    ErrorKind::Unconfined { what, reason }.at(at)
}

/// Resolves all names of a validated module.
pub(super) fn resolve(module: &Module) -> Result<Program<'_>, Error> {
    let mut resolver = Resolver::new(module);
    for item in &module.items {
        match item {
            Item::Alias { name, at, .. } => {
                return Err(refuse(module.text(*name), "it is an alias", *at));
            }
            Item::Function(function) => {
                resolver.declare(function.name, None, Meaning::Function);
                if function.body.is_some() {
                    let code = resolver.function(function)?;
                    resolver.program.functions.push(code);
                }
            }
            Item::Variable(variable) => {
                resolver.variable(variable);
            }
        }
    }
    Ok(resolver.program)
}

#[derive(Clone, Copy, Debug)]
enum Meaning {
    Function,
    Label(Label),
    /// The first of the function's registers that were declared together.
    Register(usize),
    Variable(VariableId),
}

#[derive(Debug)]
struct Declared {
    name: Symbol,
    is_range: bool,
    count: u32,
    meaning: Meaning,
    hidden: Option<usize>,
}

/// Registers declared together, and those of them that are in use.
#[derive(Debug)]
struct Registers {
    ty: ScalarType,
    used: HashMap<u32, Register>,
}

#[derive(Debug)]
struct Resolver<'m> {
    module: &'m Module,
    program: Program<'m>,
    declared: Vec<Declared>,
    starts: Vec<usize>,
    latest: [Vec<Option<usize>>; 2],
    /// Of the function at hand.
    registers: Vec<Registers>,
    /// By symbol: the register that it was found to be since the epoch.
    known: Vec<(u32, Register)>,
    epoch: u32,
}

impl<'m> Resolver<'m> {
    fn new(module: &'m Module) -> Self {
        let none = vec![None; module.names.len()];
        Self {
            module,
            program: Program {
                module,
                variables: Vec::new(),
                functions: Vec::new(),
                numbers: 0,
            },
            declared: Vec::new(),
            starts: vec![0],
            latest: [none.clone(), none],
            registers: Vec::new(),
            known: vec![(0, 0); module.names.len()],
            epoch: 1,
        }
    }

    fn number(&mut self) -> u32 {
        self.program.numbers += 1;
        self.program.numbers - 1
    }

    fn open(&mut self) {
        self.starts.push(self.declared.len());
    }

    fn close(&mut self) {
        self.epoch += 1;
        let start = self.starts.pop().unwrap_or(0);
        for declared in self.declared.drain(start..).rev() {
            self.latest[usize::from(declared.is_range)][declared.name.index()] = declared.hidden;
        }
    }

    fn declare(&mut self, name: Symbol, count: Option<u32>, meaning: Meaning) {
        self.epoch += 1;
        let form = usize::from(count.is_some());
        let hidden = self.latest[form][name.index()].replace(self.declared.len());
        self.declared.push(Declared {
            name,
            is_range: count.is_some(),
            count: count.unwrap_or(1),
            meaning,
            hidden,
        });
    }

    fn variable(&mut self, variable: &'m Variable) -> VariableId {
        // A declaration of what is defined elsewhere in the module is the same variable.
        let earlier =
            self.latest[0][variable.name.index()].map(|index| self.declared[index].meaning);
        if self.starts.len() == 1
            && let Some(Meaning::Variable(id)) = earlier
        {
            if variable.linkage != Linkage::Extern {
                self.program.variables[id] = variable;
            }
            return id;
        }
        let id = self.program.variables.len();
        self.program.variables.push(variable);
        self.declare(variable.name, None, Meaning::Variable(id));
        id
    }

    fn function(&mut self, function: &'m Function) -> Result<Code<'m>, Error> {
        let mut code = Code {
            source: function,
            number: self.number(),
            params: Vec::new(),
            returns: Vec::new(),
            registers: Vec::new(),
            variables: Vec::new(),
            labels: Vec::new(),
            tables: BTreeMap::new(),
            statements: Vec::new(),
        };
        self.registers.clear();
        self.open();
        for parameter in &function.returns {
            let formal = self.formal(parameter)?;
            code.returns.push(formal);
        }
        for parameter in &function.params {
            let formal = self.formal(parameter)?;
            code.params.push(formal);
        }
        let statements = function
            .body
            .as_ref()
            .map_or(&[][..], |body| &body.statements);
        self.declare_labels(&mut code, statements);
        for (index, statement) in statements.iter().enumerate() {
            match statement {
                Statement::BlockEnd => self.close(),
                Statement::BlockStart => {
                    self.open();
                    self.declare_labels(&mut code, &statements[index + 1..]);
                }
                Statement::Instruction(instruction) => {
                    let instruction = self.instruction(&mut code, instruction)?;
                    code.statements.push(Step::Instruction(instruction));
                }
                Statement::Label { name, .. } => {
                    if let Some(Meaning::Label(label)) =
                        self.meaning(*name).map(|(meaning, _)| meaning)
                        && !matches!(
                            statements.get(index + 1),
                            Some(Statement::Targets { .. } | Statement::Prototype { .. })
                        )
                    {
                        code.statements.push(Step::Label(label));
                    }
                }
                Statement::Prototype { at, .. } => {
                    return Err(refuse(
                        ".callprototype",
                        "only named functions are called",
                        *at,
                    ));
                }
                Statement::Targets {
                    directive,
                    names,
                    at,
                } => {
                    let directive = self.module.text(*directive);
                    let label = index
                        .checked_sub(1)
                        .and_then(|before| match &statements[before] {
                            Statement::Label { name, .. } => self.label(*name),
                            _ => None,
                        });
                    let targets: Option<Vec<_>> =
                        names.iter().map(|&name| self.label(name)).collect();
                    match (directive, label, targets) {
                        ("branchtargets", Some(label), Some(targets)) => {
                            code.tables.insert(label, targets);
                        }
                        _ => {
                            return Err(refuse(directive, "only named functions are called", *at));
                        }
                    }
                }
                Statement::Variable(variable) if variable.space == Space::Reg => {
                    self.register(variable)?;
                }
                Statement::Variable(variable) => {
                    let id = self.variable(variable);
                    code.variables.push(id);
                }
            }
        }
        self.close();
        Ok(code)
    }

    fn formal(&mut self, parameter: &'m Variable) -> Result<VariableId, Error> {
        let name = self.module.text(parameter.name);
        if parameter.space == Space::Reg {
            let reason = "it is a parameter in a register";
            return Err(refuse(name, reason, parameter.at));
        }
        // `_` is no name.
        if name == "_" {
            self.program.variables.push(parameter);
            return Ok(self.program.variables.len() - 1);
        }
        Ok(self.variable(parameter))
    }

    fn register(&mut self, variable: &'m Variable) -> Result<(), Error> {
        if variable.vector.is_some() {
            let reason = "it is a vector of registers";
            return Err(refuse(self.module.text(variable.name), reason, variable.at));
        }
        self.declare(
            variable.name,
            variable.count,
            Meaning::Register(self.registers.len()),
        );
        self.registers.push(Registers {
            ty: variable.ty,
            used: HashMap::new(),
        });
        Ok(())
    }

    /// Declares the labels of the block that begins here.
    fn declare_labels(&mut self, code: &mut Code<'m>, statements: &'m [Statement]) {
        let mut depth = 0_usize;
        for statement in statements {
            match statement {
                Statement::BlockStart => depth += 1,
                Statement::BlockEnd if depth == 0 => return,
                Statement::BlockEnd => depth -= 1,
                Statement::Label { name, .. } if depth == 0 => {
                    let number = self.number();
                    self.declare(*name, None, Meaning::Label(code.labels.len()));
                    code.labels.push(number);
                }
                _ => {}
            }
        }
    }

    fn label(&self, name: Symbol) -> Option<Label> {
        match self.meaning(name)?.0 {
            Meaning::Label(label) => Some(label),
            _ => None,
        }
    }

    /// What a name means here; of a range, which of it.
    fn meaning(&self, name: Symbol) -> Option<(Meaning, u32)> {
        let single = self.latest[0][name.index()].map(|index| (index, 0));
        let start = self.starts.last().copied().unwrap_or(0);
        let found = match single {
            Some((index, _)) if index >= start => single,
            _ => single.max(self.range(name)),
        };
        found.map(|(index, number)| (self.declared[index].meaning, number))
    }

    fn range(&self, name: Symbol) -> Option<(usize, u32)> {
        let text = self.module.text(name);
        let prefix = text.trim_end_matches(|last: char| last.is_ascii_digit());
        let digits = &text[prefix.len()..];
        if digits.len() > 1 && digits.starts_with('0') {
            return None;
        }
        let number: u32 = digits.parse().ok()?;
        let mut next = self.latest[1][self.module.names.find(prefix)?.index()];
        while let Some(index) = next {
            if number < self.declared[index].count {
                return Some((index, number));
            }
            next = self.declared[index].hidden;
        }
        None
    }

    fn use_register(&mut self, code: &mut Code<'m>, set: usize, index: u32) -> Register {
        if let Some(&register) = self.registers[set].used.get(&index) {
            return register;
        }
        let register = code.registers.len();
        let (ty, number) = (self.registers[set].ty, self.number());
        code.registers.push(RegisterDeclaration { ty, number });
        self.registers[set].used.insert(index, register);
        register
    }

    /// The register of a name, where it is one.
    fn find_register(&mut self, code: &mut Code<'m>, name: Symbol) -> Option<Register> {
        let (epoch, register) = self.known[name.index()];
        if epoch == self.epoch {
            return Some(register);
        }
        let (Meaning::Register(set), index) = self.meaning(name)? else {
            return None;
        };
        let register = self.use_register(code, set, index);
        self.known[name.index()] = (self.epoch, register);
        Some(register)
    }

    fn instruction(
        &mut self,
        code: &mut Code<'m>,
        source: &'m crate::ast::Instruction,
    ) -> Result<Instruction<'m>, Error> {
        let module = self.module;
        let at = source.at;
        let opcode = module.text(source.opcode);
        let guard = match source.guard {
            Some(guard) => Some(Guard {
                register: self
                    .find_register(code, guard.register)
                    .ok_or_else(|| refuse(opcode, "its guard is no register", at))?,
                negated: guard.negated,
            }),
            None => None,
        };
        let mut operands = Vec::with_capacity(source.operands.len());
        for operand in &source.operands {
            operands.push(self.operand(code, operand, opcode, at)?);
        }
        Ok(Instruction {
            guard,
            opcode,
            modifiers: source
                .modifiers
                .iter()
                .map(|&word| module.text(word))
                .collect(),
            operands,
            at,
        })
    }

    fn operand(
        &mut self,
        code: &mut Code<'m>,
        operand: &'m Operand,
        opcode: &str,
        at: Position,
    ) -> Result<Value<'m>, Error> {
        let module = self.module;
        Ok(match operand {
            Operand::Address {
                base,
                offset,
                parts,
            } => {
                let base = match base {
                    AddressBase::Immediate(address) => Base::Absolute(*address),
                    AddressBase::Name(name) => match self.name(code, *name) {
                        Value::Register(register) => Base::Register(register),
                        Value::Variable(id, _) => Base::Variable(id),
                        _ => {
                            let reason = "an address starts from a register or a variable";
                            return Err(refuse(opcode, reason, at));
                        }
                    },
                };
                Value::Address {
                    base,
                    offset: *offset,
                    is_plain: parts.is_empty(),
                }
            }
            Operand::Component { name, component } => match self.name(code, *name) {
                Value::Special(name, "") => Value::Special(name, module.text(*component)),
                _ => return Err(refuse(opcode, "only special registers have components", at)),
            },
            Operand::Immediate(value) => Value::Immediate(*value),
            Operand::List(operands) => Value::List(self.operands(code, operands, opcode, at)?),
            Operand::Name(name) => self.name(code, *name),
            Operand::Negated(name) => match self.find_register(code, *name) {
                Some(register) => Value::Negated(register),
                None => return Err(refuse(opcode, "only registers are negated", at)),
            },
            Operand::Offset { name, offset } => match self.name(code, *name) {
                Value::Variable(id, _) => Value::Variable(id, *offset),
                _ => {
                    return Err(refuse(
                        opcode,
                        "only addresses of variables have offsets",
                        at,
                    ));
                }
            },
            Operand::Pair(pair) => {
                let first = self.operand(code, &pair.0, opcode, at)?;
                Value::Pair(Box::new((first, self.operand(code, &pair.1, opcode, at)?)))
            }
            Operand::Vector(operands) => Value::Vector(self.operands(code, operands, opcode, at)?),
        })
    }

    fn operands(
        &mut self,
        code: &mut Code<'m>,
        operands: &'m [Operand],
        opcode: &str,
        at: Position,
    ) -> Result<Vec<Value<'m>>, Error> {
        let mut values = Vec::with_capacity(operands.len());
        for operand in operands {
            values.push(self.operand(code, operand, opcode, at)?);
        }
        Ok(values)
    }

    fn name(&mut self, code: &mut Code<'m>, name: Symbol) -> Value<'m> {
        if let Some(register) = self.find_register(code, name) {
            return Value::Register(register);
        }
        match self.meaning(name) {
            Some((Meaning::Variable(id), _)) => Value::Variable(id, 0),
            Some((Meaning::Label(label), _)) => Value::Label(label),
            Some((Meaning::Function, _)) => Value::Function(name),
            _ if self.module.text(name) == "_" => Value::Sink,
            _ => Value::Special(self.module.text(name), ""),
        }
    }
}

impl Code<'_> {
    pub(super) fn is_entry(&self) -> bool {
        self.source.kind == FunctionKind::Entry
    }
}

impl<'m> Value<'m> {
    /// Calls `each` for every register in it.
    pub(super) fn registers(&self, each: &mut impl FnMut(Register)) {
        match self {
            Value::Address {
                base: Base::Register(register),
                ..
            }
            | Value::Negated(register)
            | Value::Register(register) => each(*register),
            Value::List(values) | Value::Vector(values) => {
                values.iter().for_each(|value| value.registers(each));
            }
            Value::Pair(pair) => {
                pair.0.registers(each);
                pair.1.registers(each);
            }
            _ => {}
        }
    }
}
