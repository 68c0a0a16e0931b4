//! Branches and calls: nothing goes back or deeper but where the clock is looked at (`time.rs`).

use super::body::{Body, Call, Paid, Result, Role};
use super::fact::{Bound, Fact};
use super::idiom::{FUELED, number};
use super::text::check_limit;
use super::time::{FUEL, MAX_NAP};
use crate::ast::{
    Function, FunctionKind, Instruction, Operand, ScalarType, Statement, Symbol, Variable,
};
use crate::error::{Excerpt, VerifyErrorKind};
use crate::limits::MAX_CONFINED_TARGETS;

/// The parameters that every function that is called ends in. Of what the last but one is the address, `Text::local` says.
pub(super) const HANDED_DOWN: [(&str, ScalarType, Option<Fact>); 11] = [
    ("%wbase", ScalarType::B64, Some(Fact::Base)),
    ("%wctl", ScalarType::B64, Some(Fact::Control)),
    ("%wstop", ScalarType::B64, Some(Fact::Stop)),
    ("%wuntil", ScalarType::B64, Some(Fact::Until)),
    ("%wglob", ScalarType::B32, Some(Fact::Globals)),
    (
        "%wmask",
        ScalarType::B32,
        Some(Fact::WindowMask { align: 1 }),
    ),
    ("%wfirst", ScalarType::B32, Some(Fact::First)),
    ("%wspan", ScalarType::B32, Some(Fact::Span)),
    ("%wtok", ScalarType::B32, Some(Fact::Token)),
    ("%wlocal", ScalarType::B32, None),
    ("%wdepth", ScalarType::B32, Some(Fact::Depth)),
];

impl<'t> Body<'_, 't> {
    pub(super) fn label(&mut self, name: Symbol, line: u32) -> Result<()> {
        self.leave_head(line)?;
        self.forget();
        self.flow.label(name);
        Ok(())
    }

    /// Nothing that was learnt on the way here is known any more.
    pub(super) fn forget(&mut self) {
        self.facts.retain(|_, fact| !fact.ends_at_labels());
        self.stored.clear();
        self.returned.clear();
        self.paid = Paid::default();
    }

    /// The head of an entry ends in GO.
    pub(super) fn leave_head(&mut self, line: u32) -> Result<()> {
        let was_in_head = std::mem::replace(&mut self.in_head, false);
        match was_in_head && self.is_entry() {
            true => Err(VerifyErrorKind::Fuel { what: "an entry" }.at(line)),
            false => Ok(()),
        }
    }

    /// What only functions may do that have GO or METER behind the head.
    pub(super) fn needs_head_meter(&self, what: &'static str, line: u32) -> Result<()> {
        match self.has_head_meter {
            true => Ok(()),
            false => Err(VerifyErrorKind::Fuel { what }.at(line)),
        }
    }

    /// Takes what `%wq` says, if it guards an instruction.
    fn take_fueled(&mut self, instruction: &Instruction) -> Option<Option<u32>> {
        let guard = instruction.guard.filter(|guard| !guard.negated)?;
        if self.name(guard.register) != FUELED {
            return None;
        }
        match self.facts.insert(guard.register, Fact::Spent) {
            Some(Fact::Fueled { depth }) => Some(depth),
            _ => None,
        }
    }

    /// `bra`, `brx`, `call`, `exit` and `ret`.
    pub(super) fn control(
        &mut self,
        index: usize,
        instruction: &'t Instruction,
        op: &str,
    ) -> Result<()> {
        let line = instruction.at.line;
        self.leave_head(line)?;
        let falls = instruction.guard.is_some();
        match (op, instruction.operands.as_slice()) {
            ("exit", []) => {}
            ("ret", []) => {
                for result in &self.function.returns {
                    self.flow.read(result.name.index(), line);
                }
            }
            ("bra", [Operand::Name(label)]) => {
                return self.branch(index, instruction, *label);
            }
            ("bra.uni", [Operand::Name(label)]) if !falls => {
                return self.branch(index, instruction, *label);
            }
            ("brx.idx", [chosen, Operand::Name(table)]) => {
                return self.choose(index, instruction, chosen, *table);
            }
            ("call", operands) => return self.call(instruction, operands),
            _ => return Err(self.refuse(line)),
        }
        self.flow.branch(Vec::new(), falls);
        Ok(())
    }

    fn branch(&mut self, index: usize, instruction: &Instruction, label: Symbol) -> Result<()> {
        let line = instruction.at.line;
        self.target(label, line)?;
        // A branch back is part of BACK.
        if self
            .labels
            .get(&label)
            .is_none_or(|&target| target <= index)
        {
            let what = "a branch back";
            return Err(VerifyErrorKind::Fuel { what }.at(line));
        }
        self.flow.branch(vec![label], instruction.guard.is_some());
        Ok(())
    }

    pub(super) fn target(&mut self, label: Symbol, line: u32) -> Result<()> {
        self.targets.push((label, line));
        match self.labels.contains_key(&label) {
            true => Ok(()),
            false => {
                let name = Excerpt::new(self.name(label));
                Err(VerifyErrorKind::Target { name }.at(line))
            }
        }
    }

    /// `brx.idx`
    fn choose(
        &mut self,
        index: usize,
        instruction: &Instruction,
        chosen: &Operand,
        table: Symbol,
    ) -> Result<()> {
        let line = instruction.at.line;
        let refuse = || self.refuse(line);
        let labels = *self.tables.get(&table).ok_or_else(refuse)?;
        self.listed = self.listed.saturating_add(labels.len());
        check_limit(
            "targets of branches by number",
            self.listed,
            MAX_CONFINED_TARGETS,
            line,
        )?;
        let what = "a branch by number";
        self.needs_head_meter(what, line)?;
        let is_clamped = match self.known(chosen) {
            Some(Fact::Offset(Bound::Below { most, .. })) => {
                usize::try_from(most).is_ok_and(|most| most < labels.len())
            }
            _ => false,
        };
        if !is_clamped {
            return Err(self.refuse(line));
        }
        let mut farthest = 0;
        for &label in labels {
            self.target(label, line)?;
            let target = self.labels.get(&label).copied().unwrap_or(0);
            farthest = farthest.max(self.instructions(target, index + 1));
        }
        if !self.paid.exits || !self.pays_for(farthest) {
            return Err(VerifyErrorKind::Fuel { what }.at(line));
        }
        self.flow
            .branch(labels.to_vec(), instruction.guard.is_some());
        Ok(())
    }

    /// A direct call.
    fn call(&mut self, instruction: &Instruction, operands: &[Operand]) -> Result<()> {
        let line = instruction.at.line;
        let what = "a call";
        self.needs_head_meter(what, line)?;
        let (results, name, arguments) = match operands {
            [
                Operand::List(results),
                Operand::Name(name),
                Operand::List(arguments),
            ] => (results.as_slice(), *name, arguments.as_slice()),
            [Operand::Name(name), Operand::List(arguments)] => {
                (&[][..], *name, arguments.as_slice())
            }
            _ => return Err(self.refuse(line)),
        };
        let callee = self.text.definitions.get(&name).copied();
        let callee = callee.ok_or_else(|| self.refuse(line))?;
        let function: &Function = self.text.functions[callee];
        if function.kind != FunctionKind::Device {
            return Err(self.refuse(line));
        }
        let statements = function.body.as_ref().map_or(0, |body| {
            let is_instruction =
                |statement: &&Statement| matches!(statement, Statement::Instruction(_));
            body.statements.iter().filter(is_instruction).count()
        });
        let depth = self.take_fueled(instruction);
        let Some(depth) = depth.filter(|_| self.pays_for(statements)) else {
            return Err(VerifyErrorKind::Fuel { what }.at(line));
        };
        let wrong = |what| VerifyErrorKind::Call { what }.at(line);

        let own = arguments.len().checked_sub(HANDED_DOWN.len());
        let own = own.ok_or_else(|| wrong("the hidden parameters"))?;
        let (own, hidden) = arguments.split_at(own);
        for (argument, (expected, _, fact)) in hidden.iter().zip(HANDED_DOWN) {
            let known = self.known(argument);
            let is_named = matches!(argument, Operand::Name(name) if self.name(*name) == expected);
            let is_right = match fact {
                Some(Fact::Depth) => matches!(known, Some(Fact::NextDepth { .. })),
                Some(fact) => is_named && known == Some(fact),
                None => is_named && known == Some(Fact::Block(self.text.local())),
            };
            if !is_right {
                return Err(wrong("the hidden parameters"));
            }
        }
        let declared = function.params.len().saturating_sub(HANDED_DOWN.len());
        let passed = self
            .variables_of(own)
            .ok_or_else(|| wrong("the arguments"))?;
        let given = self
            .variables_of(results)
            .ok_or_else(|| wrong("the results"))?;
        if !same_shapes(&passed, &function.params[..declared]) {
            return Err(wrong("the arguments"));
        }
        if !same_shapes(&given, &function.returns) {
            return Err(wrong("the results"));
        }
        for variable in passed {
            if !self.is_stored(variable.name) {
                return Err(wrong("the arguments"));
            }
            self.stored.remove(&variable.name);
        }
        self.returned
            .extend(given.iter().map(|variable| variable.name));
        self.summary.calls.push(Call {
            callee,
            depth,
            line,
        });
        Ok(())
    }

    /// The variables of a call that operands name.
    fn variables_of(&self, operands: &[Operand]) -> Option<Vec<&'t Variable>> {
        let variable = |operand: &Operand| match operand {
            Operand::Name(name) => self
                .parameters
                .get(name)
                .filter(|parameter| parameter.role == Role::Call)
                .map(|parameter| parameter.variable),
            _ => None,
        };
        operands.iter().map(variable).collect()
    }

    /// `nanosleep` behind a METER that leaves no fuel to another one.
    pub(super) fn sleep(&mut self, op: &str, operands: &[Operand], line: u32) -> Result<()> {
        let what = "a nap";
        self.needs_head_meter(what, line)?;
        let [time] = operands else {
            return Err(self.refuse(line));
        };
        let most = match self.known(time) {
            Some(Fact::Offset(Bound::Below { most, .. })) => Some(most),
            _ => number(time),
        };
        if op != "nanosleep.u32" || most.is_none_or(|most| most > MAX_NAP) {
            return Err(self.refuse(line));
        }
        match self.paid.fuel.take() {
            Some(FUEL) => Ok(()),
            _ => Err(VerifyErrorKind::Fuel { what }.at(line)),
        }
    }

    /// The end of the function, and labels that belong to METER and BACK.
    pub(super) fn check_end(&self) -> Result<()> {
        let ends = match self.statements.last() {
            Some(Statement::Instruction(last)) => {
                last.guard.is_none() && matches!(self.op(last), "exit" | "ret")
            }
            _ => false,
        };
        if !ends {
            return Err(VerifyErrorKind::FallsOff.at(self.function.at.line));
        }
        let mut targets = self.targets.iter();
        match targets.find(|(label, _)| self.meter_labels.contains(label)) {
            Some(&(label, line)) => {
                let name = Excerpt::new(self.name(label));
                Err(VerifyErrorKind::Target { name }.at(line))
            }
            None => Ok(()),
        }
    }
}

/// Whether variables are in parameter space as others are.
fn same_shapes(these: &[&Variable], others: &[Variable]) -> bool {
    let shape = |variable: &Variable| {
        (
            variable.space,
            variable.ty,
            variable.vector,
            variable.bytes(),
            variable.alignment(),
        )
    };
    these
        .iter()
        .map(|variable| shape(variable))
        .eq(others.iter().map(shape))
}
