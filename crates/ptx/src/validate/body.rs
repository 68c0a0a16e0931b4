//! Names within one function: parameters, registers, variables, labels, and what operands refer to.

use super::scope::{Meaning, Scopes};
use super::variable::{self, Totals};
use crate::ast::{
    AddressBase, FunctionKind, Instruction, Module, Operand, Position, Space, Statement, Symbol,
    Variable,
};
use crate::error::{Error, ErrorKind, Excerpt};
use crate::limits::MAX_REGISTERS;

/// A function whose scope is open.
#[derive(Debug)]
pub(super) struct Body<'b, 'm> {
    module: &'m Module,
    scopes: &'b mut Scopes<'m>,
    kind: FunctionKind,
    totals: Totals,
    registers: u64,
}

/// Labels of a block, which are seen in all of it.
type Labels = Vec<(Symbol, Position)>;

/// Opcodes whose last operand is a label.
const BRANCHES: [&str; 2] = ["bra", "brx"];

impl<'b, 'm> Body<'b, 'm> {
    /// Opens the scope of a function; `scopes.close()` closes it.
    pub(super) fn open(module: &'m Module, scopes: &'b mut Scopes<'m>, kind: FunctionKind) -> Self {
        scopes.open();
        Self {
            module,
            scopes,
            kind,
            totals: Totals::default(),
            registers: 0,
        }
    }

    /// Declares parameters or results. `_` names none.
    pub(super) fn parameters(&mut self, parameters: &[Variable]) -> Result<(), Error> {
        for parameter in parameters {
            let is_device = self.kind == FunctionKind::Device;
            variable::check(self.module, parameter, is_device)?;
            if !is_device && parameter.space == Space::Reg {
                let kind = ErrorKind::SpaceType {
                    space: parameter.space,
                    ty: parameter.ty,
                };
                return Err(kind.at(parameter.at));
            }
            if self.module.text(parameter.name) != "_" {
                self.scopes.declare_variable(parameter)?;
            }
        }
        Ok(())
    }

    /// Checks all statements of the body.
    pub(super) fn statements(&mut self, statements: &[Statement]) -> Result<(), Error> {
        let blocks = labels(statements);
        let mut blocks = blocks.iter();
        let mut depth = 0_usize;
        self.declare_labels(blocks.next())?;
        for statement in statements {
            match statement {
                Statement::BlockStart => {
                    depth += 1;
                    self.scopes.open();
                    self.declare_labels(blocks.next())?;
                }
                Statement::BlockEnd => {
                    depth = depth.checked_sub(1).ok_or_else(unbalanced)?;
                    self.scopes.close()?;
                }
                Statement::Instruction(instruction) => {
                    self.instruction(instruction)
                        .map_err(|kind| kind.at(instruction.at))?;
                }
                Statement::Label { .. } => {}
                Statement::Prototype {
                    returns,
                    params,
                    directives,
                    ..
                } => {
                    for parameter in returns.iter().chain(params) {
                        variable::check(self.module, parameter, true)?;
                    }
                    for directive in directives {
                        super::check_directive(self.module.text(directive.name), &directive.values)
                            .map_err(|kind| kind.at(directive.at))?;
                    }
                }
                Statement::Targets {
                    directive,
                    names,
                    at,
                } => {
                    self.targets(*directive, names)
                        .map_err(|kind| kind.at(*at))?;
                }
                Statement::Variable(variable) => self.variable(variable)?,
            }
        }
        if depth == 0 {
            Ok(())
        } else {
            Err(unbalanced())
        }
    }

    fn declare_labels(&mut self, labels: Option<&Labels>) -> Result<(), Error> {
        let mut labels = labels.into_iter().flatten();
        labels.try_for_each(|&(name, at)| self.scopes.declare_label(name, at))
    }

    fn variable(&mut self, variable: &Variable) -> Result<(), Error> {
        match variable.space {
            // A parameter of a call lives in the block of the call.
            Space::Param => variable::check(self.module, variable, false)?,
            Space::Reg => {
                variable::check(self.module, variable, false)?;
                let width = variable.vector.map_or(1, |vector| vector.width());
                let count = u64::from(variable.count.unwrap_or(1)) * u64::from(width);
                self.registers = self.registers.saturating_add(count);
                if self.registers > MAX_REGISTERS {
                    let kind = ErrorKind::Limit {
                        what: "registers",
                        limit: MAX_REGISTERS,
                    };
                    return Err(kind.at(variable.at));
                }
            }
            _ => self.totals.add(self.module, variable)?,
        }
        if let Some(initializer) = &variable.initializer {
            self.scopes
                .check_initializer(initializer)
                .map_err(|kind| kind.at(variable.at))?;
        }
        self.scopes.declare_variable(variable)
    }

    fn targets(&self, directive: Symbol, names: &[Symbol]) -> Result<(), ErrorKind> {
        names
            .iter()
            .try_for_each(|&name| match self.module.text(directive) {
                "branchtargets" => self.scopes.check_label(name),
                _ => match self.scopes.meaning(name)? {
                    Meaning::Function => Ok(()),
                    _ => Err(ErrorKind::UnknownName {
                        name: Excerpt::new(self.module.text(name)),
                    }),
                },
            })
    }

    fn instruction(&self, instruction: &Instruction) -> Result<(), ErrorKind> {
        if let Some(guard) = instruction.guard {
            self.scopes.check_predicate(guard.register)?;
        }
        let mut operands = instruction.operands.as_slice();
        if BRANCHES.contains(&self.module.text(instruction.opcode))
            && let [rest @ .., Operand::Name(label)] = operands
        {
            self.scopes.check_label(*label)?;
            operands = rest;
        }
        operands
            .iter()
            .try_for_each(|operand| self.operand(operand))
    }

    fn operand(&self, operand: &Operand) -> Result<(), ErrorKind> {
        match operand {
            Operand::Address { base, parts, .. } => {
                if let AddressBase::Name(name) = base {
                    self.scopes.meaning(*name)?;
                }
                parts.iter().try_for_each(|part| self.operand(part))
            }
            Operand::Component { name, .. }
            | Operand::Name(name)
            | Operand::Offset { name, .. } => self.scopes.meaning(*name).map(drop),
            Operand::Immediate(_) => Ok(()),
            Operand::List(operands) | Operand::Vector(operands) => operands
                .iter()
                .try_for_each(|operand| self.operand(operand)),
            Operand::Negated(name) => self.scopes.check_predicate(*name),
            Operand::Pair(pair) => {
                self.operand(&pair.0)?;
                self.operand(&pair.1)
            }
        }
    }
}

/// The labels of each block, in the order in which blocks open; the body itself is the first.
fn labels(statements: &[Statement]) -> Vec<Labels> {
    let mut blocks = vec![Labels::new()];
    let mut open = vec![0];
    for statement in statements {
        match statement {
            Statement::BlockStart => {
                open.push(blocks.len());
                blocks.push(Labels::new());
            }
            Statement::BlockEnd => drop(open.pop()),
            Statement::Label { name, at } => {
                if let Some(&block) = open.last() {
                    blocks[block].push((*name, *at));
                }
            }
            _ => {}
        }
    }
    blocks
}

/// The parser makes no such tree.
fn unbalanced() -> Error {
    let found = Excerpt::new("another number of `}`");
    ErrorKind::Expected {
        expected: "a `}` for each `{`",
        found,
    }
    .at(Position::default())
}
