//! Branches, calls and time: nothing goes back or deeper but behind METER, which looks at the clock.

use super::body::{Body, Call, Paid, Result, Role};
use super::fact::{Bound, Fact};
use super::idiom::{FUELED, number};
use super::text::check_limit;
use crate::ast::{
    Function, FunctionKind, Instruction, Operand, ScalarType, Statement, Symbol, Variable,
};
use crate::error::{Excerpt, VerifyErrorKind};

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

/// Registers that BEGIN, GO, METER and BACK write beside `%wf` and `%wq`.
pub(super) const METER_REGISTERS: [&str; 5] = ["%wk", "%wm", "%wn", "%wt", "%wu"];

/// The fuel that an entry begins with and that a look at the clock gives, and the most that is taken at once.
const FUEL: u32 = 65_536;

/// The fuel that an entry begins with.
pub(super) const START: u32 = 2_048;

/// Most instructions that one unit of fuel pays for.
const INSTRUCTIONS_PER_FUEL: usize = 256;

/// Longest nap, in nanoseconds.
const MAX_NAP: u32 = 1000;

/// How threads without fuel leave, behind METER.
const LEAVE: [&str; 2] = ["setp.lt.s32 %wx, %wf, 0;", "@%wx exit;"];

/// Statements of METER.
const METER: usize = 18;

/// A look at the clock and at the word that says stop.
const LOOK: [&str; 14] = [
    "mov.u32 %wk, %clock;",
    "sub.u32 %wv, %wk, %wv;",
    "setp.lt.u32 %wn, %wv, 33554432;",
    "selp.u32 %wv, 0, 33521664, %wn;",
    "sub.u32 %wv, %wk, %wv;",
    "ld.volatile.global.u32 %wu, [%wstop];",
    "mov.u64 %wt, %globaltimer;",
    "setp.lt.u64 %wm, %wt, %wuntil;",
    "setp.ne.and.u32 %wm, %wu, %wtok, %wm;",
    "selp.s32 %wf, 65536, 64, %wn;",
    "selp.s32 %wf, %wf, -1, %wm;",
    "@!%wm st.volatile.global.u32 [%wctl+8], %wone;",
    "@!%wm st.volatile.global.u32 [%wstop], %wtok;",
    "@!%wm ld.acquire.sys.global.u32 %wu, [%wstop];",
];

/// How an entry begins: BEGIN asks whether the kernel is to stop. One warp of 512, as the clock has it, will read the word from memory.
const BEGIN: [&str; 3] = [
    "and.b32 %wu, %wv, 8176;",
    "setp.eq.u32 %wm, %wu, 0;",
    "ld.global.u32 %wu, [%wstop];",
];

/// The end of an entry's head, GO: a thread goes on only where the kernel is not to stop.
const GO: [&str; 3] = [
    "@%wm ld.acquire.sys.global.u32 %wu, [%wstop];",
    "setp.eq.u32 %wx, %wu, %wtok;",
    "@%wx exit;",
];

/// Where a loop begins, HEAD: between a label of ours, which the loop is taken up at with new fuel, and the one that it goes round to.
const HEAD: &str = "min.s32 %wf, %wf, 65536;";

/// Most instructions of an entry's head between BEGIN and GO, and before: threads that are to stop run them all.
const MAX_ASKING: usize = 256;
const MAX_BEFORE: usize = 1 << 13;

/// Statements of a branch back, BACK: the test, the branch, the look that a thread without fuel takes, and both again.
const BACK: usize = 22;

impl<'t> Body<'_, 't> {
    pub(super) fn label(&mut self, name: Symbol, line: u32) -> Result<()> {
        self.leave_head(line)?;
        self.forget();
        self.flow.label(name);
        Ok(())
    }

    /// Nothing that was learnt on the way here is known any more.
    fn forget(&mut self) {
        self.facts.retain(|_, fact| !fact.ends_at_labels());
        self.stored.clear();
        self.returned.clear();
        self.paid = Paid::default();
    }

    /// The head of an entry ends in GO.
    fn leave_head(&mut self, line: u32) -> Result<()> {
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

    /// Text of a statement that has a line of its own.
    fn text_of(&self, index: usize) -> &'t str {
        match self.statements.get(index) {
            Some(Statement::Instruction(instruction)) => self.text.line(instruction.at.line),
            Some(Statement::Label { at, .. }) => self.text.line(at.line),
            _ => "",
        }
    }

    /// BEGIN, GO, HEAD, METER or BACK, if one begins at a statement: how many statements it has.
    pub(super) fn meter(&mut self, index: usize) -> Option<Result<usize>> {
        let first = self.text_of(index);
        if first == BEGIN[0] {
            return Some(self.begin(index));
        }
        if first == GO[0] {
            return Some(self.go(index));
        }
        if first == HEAD {
            return Some(self.head(index));
        }
        let fuel = first
            .strip_prefix("sub.s32 %wf, %wf, ")?
            .strip_suffix(';')?;
        Some(match self.text_of(index + 1).contains(FUELED) {
            true => self.back(index, fuel),
            false => self.meter_of(index, fuel),
        })
    }

    fn line_of(&self, index: usize) -> u32 {
        match self.statements.get(index) {
            Some(Statement::Instruction(instruction)) => instruction.at.line,
            _ => 0,
        }
    }

    /// Whether the registers that these sequences use hold what they have to.
    fn has_reins(&self) -> bool {
        let known = |name| {
            let symbol = self.text.module.names.find(name)?;
            self.facts.get(&symbol).copied()
        };
        known("%wctl") == Some(Fact::Control)
            && known("%wstop") == Some(Fact::Stop)
            && known("%wuntil") == Some(Fact::Until)
            && known("%wone") == Some(Fact::One)
            && known("%wf") == Some(Fact::Fuel)
            && known("%wv") == Some(Fact::Looked)
            && known("%wtok") == Some(Fact::Token)
    }

    /// The text of statements from one on.
    fn is_text<'a>(&self, from: usize, expected: impl IntoIterator<Item = &'a str>) -> bool {
        (from..)
            .zip(expected)
            .all(|(index, expected)| self.text_of(index) == expected)
    }

    /// BEGIN, in the head of an entry.
    fn begin(&mut self, index: usize) -> Result<usize> {
        let is_in_place =
            self.is_entry() && self.in_head && self.asked.is_none() && self.has_reins();
        if !is_in_place || !self.is_text(index, BEGIN) {
            let line = self.line_of(index);
            return Err(VerifyErrorKind::Fuel { what: "an entry" }.at(line));
        }
        let line = self.line_of(index);
        let before = self.instructions(0, index);
        check_limit("instructions of a head", before, MAX_BEFORE, line)?;
        self.asked = Some(index);
        self.paid = Paid::default();
        Ok(BEGIN.len())
    }

    /// GO, at the end of an entry's head.
    fn go(&mut self, index: usize) -> Result<usize> {
        let asked = self.asked.filter(|_| self.in_head);
        let is_soon = asked.is_some_and(|asked| self.instructions(asked, index) <= MAX_ASKING);
        if !is_soon || !self.is_text(index, GO) {
            let line = self.line_of(index);
            return Err(VerifyErrorKind::Fuel { what: "an entry" }.at(line));
        }
        self.in_head = false;
        self.has_head_meter = true;
        self.paid = Paid::default();
        Ok(GO.len())
    }

    /// HEAD: it gives no fuel, so that it may stand wherever there is some.
    fn head(&mut self, index: usize) -> Result<usize> {
        if !self.has_reins() {
            let what = "a loop";
            return Err(VerifyErrorKind::Fuel { what }.at(self.line_of(index)));
        }
        self.paid = Paid::default();
        Ok(1)
    }

    /// What comes before GO takes no time: it reaches no memory.
    pub(super) fn is_in_entrys_head(&self) -> bool {
        self.in_head && self.is_entry()
    }

    /// BACK: a branch back where there is fuel, which is looked for behind it.
    fn back(&mut self, index: usize, fuel: &str) -> Result<usize> {
        let line = self.line_of(index);
        let what = "a branch back";
        let wrong = || VerifyErrorKind::Fuel { what }.at(line);
        let (
            Some(Statement::Instruction(test)),
            Some(Statement::Instruction(branch)),
            Some(Statement::Instruction(again)),
            Some(Statement::Label { name: end, .. }),
        ) = (
            self.statements.get(index + 1),
            self.statements.get(index + 2),
            self.statements.get(index + BACK - 2),
            self.statements.get(index + BACK - 1),
        )
        else {
            return Err(wrong());
        };
        let ([Operand::Name(target)], [Operand::Name(head)]) =
            (branch.operands.as_slice(), again.operands.as_slice())
        else {
            return Err(wrong());
        };
        let (target, head, end) = (*target, *head, *end);
        let test_text = match test.operands.as_slice() {
            [_, _, _] => format!("setp.ge.s32 {FUELED}, %wf, 0;"),
            [
                _,
                _,
                _,
                predicate @ (Operand::Name(name) | Operand::Negated(name)),
            ] => {
                self.source(predicate, line)?;
                let not = if matches!(predicate, Operand::Negated(_)) {
                    "!"
                } else {
                    ""
                };
                let name = self.name(*name);
                format!("setp.ge.and.s32 {FUELED}, %wf, 0, {not}{name};")
            }
            _ => return Err(wrong()),
        };
        let (target_name, end_name) = (self.name(target), self.name(end));
        let branch_text = format!("@{FUELED} bra {target_name};");
        let again_text = format!("@{FUELED} bra {};", self.name(head));
        let first = format!("sub.s32 %wf, %wf, {fuel};");
        let over = format!("@%wn bra {end_name};");
        let last = format!("{end_name}:");
        let expected = [
            first.as_str(),
            &test_text,
            &branch_text,
            "setp.ge.s32 %wn, %wf, 0;",
            &over,
        ];
        let expected = expected.into_iter().chain(LOOK);
        let expected = expected.chain([test_text.as_str(), &again_text, &last]);
        let is_exact = self.is_text(index, expected) && end_name.starts_with("wc_L");
        let fuel = fuel.parse().ok().filter(|fuel| (1..=FUEL).contains(fuel));
        let fuel: u32 = fuel.ok_or_else(wrong)?;
        self.leave_head(line)?;
        self.needs_head_meter(what, line)?;
        self.target(target, line)?;
        self.target(head, line)?;
        let place = self.labels.get(&head).copied();
        let is_head = place.is_some_and(|place| {
            self.name(head).starts_with("wc_L")
                && self.text_of(place + 1) == HEAD
                && self.labels.get(&target) == Some(&(place + 2))
        });
        let inside = place.filter(|&place| place < index);
        let inside = inside.map(|place| self.instructions(place, index + BACK));
        self.paid = Paid {
            fuel: Some(fuel),
            ..Paid::default()
        };
        let is_paid = inside.is_some_and(|inside| self.pays_for(inside));
        if !is_exact || !is_head || !is_paid || !self.has_reins() {
            return Err(wrong());
        }
        self.meter_labels.insert(end);
        self.flow.branch(vec![target, head], true);
        self.forget();
        Ok(BACK)
    }

    /// METER
    fn meter_of(&mut self, index: usize, fuel: &str) -> Result<usize> {
        let line = self.line_of(index);
        let wrong = || VerifyErrorKind::Fuel { what: "METER" }.at(line);
        let Some(Statement::Label { name, .. }) = self.statements.get(index + METER - 1) else {
            return Err(wrong());
        };
        let label = self.name(*name);
        let first = format!("sub.s32 %wf, %wf, {fuel};");
        let (over, last) = (format!("@%wn bra {label};"), format!("{label}:"));
        let expected = [first.as_str(), "setp.ge.s32 %wn, %wf, 0;", &over];
        let expected = expected.into_iter().chain(LOOK).chain([last.as_str()]);
        let is_exact = self.is_text(index, expected);
        let has_facts = self.has_reins();
        let fuel = fuel.parse().ok().filter(|fuel| (1..=FUEL).contains(fuel));
        let fuel: u32 = fuel.ok_or_else(wrong)?;
        if !is_exact || !has_facts || !label.starts_with("wc_L") {
            return Err(wrong());
        }
        self.meter_labels.insert(*name);
        self.forget();
        let next = index + METER;
        self.paid = Paid {
            fuel: Some(fuel),
            just_now: true,
            exits: self.text_of(next) == LEAVE[0] && self.text_of(next + 1) == LEAVE[1],
        };
        if std::mem::replace(&mut self.in_head, false) {
            // An entry begins otherwise.
            if self.is_entry() {
                return Err(VerifyErrorKind::Fuel { what: "an entry" }.at(line));
            }
            self.has_head_meter = true;
        }
        Ok(METER)
    }

    /// Whether what is done next is paid for.
    fn pays_for(&self, instructions: usize) -> bool {
        let fuel = usize::try_from(self.paid.fuel.unwrap_or(0)).unwrap_or(0);
        fuel.saturating_mul(INSTRUCTIONS_PER_FUEL) >= instructions
    }

    /// Instructions from one statement to before another.
    fn instructions(&self, from: usize, to: usize) -> usize {
        let before = |index: usize| self.instructions_before.get(index).copied().unwrap_or(0);
        before(to).saturating_sub(before(from))
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

    fn target(&mut self, label: Symbol, line: u32) -> Result<()> {
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
