//! Where control goes and time passes: branches, calls, naps, ends.

use super::access::spelled;
use super::calls;
use super::emit::{Emitter, OwnLabel, zero};
use super::head::at_offset;
use super::names::{Instruction, Step, Value, VariableId, refuse};
use super::text::{put, put_in};
use crate::confined::SiteKind;
use crate::error::Error;

impl<'m> Emitter<'_, 'm> {
    pub(super) fn branch(
        &mut self,
        index: usize,
        instruction: &Instruction<'m>,
    ) -> Result<(), Error> {
        let Some(Value::Label(label)) = instruction.operands.last() else {
            return Err(refuse(
                &spelled(instruction),
                "it names no label",
                instruction.at,
            ));
        };
        let Some(place) = self.places[*label] else {
            return Err(refuse(
                &spelled(instruction),
                "its label is a table",
                instruction.at,
            ));
        };
        let target = self.guest_label(*label);
        if place > index {
            let guard = self.guard(instruction.guard);
            if self.nothing_to_note() && self.ends_at(place) {
                put_in!(self.body, "{guard}exit;");
                return Ok(());
            }
            match self.heads[*label] {
                Some(head) => put_in!(self.body, "{guard}bra wc_L{head};"),
                None => put_in!(self.body, "{guard}bra {target};"),
            }
            return Ok(());
        }
        let Some(head) = self.heads[*label] else {
            return Err(refuse(
                &spelled(instruction),
                "it goes back to no loop",
                instruction.at,
            ));
        };
        self.used.loops = true;
        let guard = self.also(instruction.guard);
        let start = Start { head, target };
        self.go_back(self.weights[index] - self.weights[place], guard, &start);
        Ok(())
    }

    /// Whether a thread of an entry can have nothing to note up to here: it may end at once, and the assembler sees that it does.
    fn nothing_to_note(&self) -> bool {
        self.is_trapping() && self.code.is_entry() && !self.used.strays && !self.has_label
    }

    /// Whether what a label stands before is the function's end.
    fn ends_at(&self, place: usize) -> bool {
        let mut next = self.code.statements[place..].iter();
        match next.find(|step| !matches!(step, Step::Label(_))) {
            Some(Step::Instruction(next)) => {
                next.guard.is_none() && matches!(next.opcode, "exit" | "ret")
            }
            _ => false,
        }
    }

    pub(super) fn indexed_branch(&mut self, instruction: &Instruction<'m>) -> Result<(), Error> {
        let refused = || {
            refuse(
                &spelled(instruction),
                "it has no list of labels",
                instruction.at,
            )
        };
        let [index, Value::Label(label)] = &instruction.operands[..] else {
            return Err(refused());
        };
        let targets = self
            .code
            .tables
            .get(label)
            .filter(|targets| !targets.is_empty())
            .ok_or_else(refused)?;
        if targets.iter().any(|&target| self.places[target].is_none()) {
            return Err(refused());
        }
        let last = targets.len() - 1;
        let whole = self.weights.last().copied().unwrap_or(1);
        self.meter(whole);
        put_in!(self.body, "setp.lt.s32 %wx, %wf, 0;");
        put_in!(self.body, "@%wx exit;");
        let index = self.value(instruction, index)?;
        let word = self.used.low();
        put_in!(self.body, "min.u32 %wl{word}, {index}, {last};");
        let (guard, table) = (self.guard(instruction.guard), self.guest_label(*label));
        put_in!(self.body, "{guard}brx.idx %wl{word}, {table};");
        Ok(())
    }

    /// Takes fuel, and looks at the clock when there is none.
    pub(super) fn meter(&mut self, weight: u32) {
        let weight = weight.clamp(1, MAX_CHARGE);
        self.used.fuel = true;
        let label = self.label();
        let line = self.body.line;
        self.body.line = 0;
        put_in!(self.body, "sub.s32 %wf, %wf, {weight};");
        put_in!(self.body, "setp.ge.s32 %wn, %wf, 0;");
        put_in!(self.body, "@%wn bra wc_L{label};");
        self.look();
        put!(self.body, "wc_L{label}:");
        self.body.line = line;
    }

    /// Writes where a loop begins, before the label that it goes round to: a loop that was left for new fuel is taken up here. As the assembler sees
    /// it, this is a loop around the loop, so that it leaves the inner one's branch as it is.
    pub(super) fn head_of_loop(&mut self, head: OwnLabel) {
        put!(self.body, "wc_L{head}:");
        put_in!(self.body, "min.s32 %wf, %wf, {MAX_CHARGE};");
    }

    /// Goes back to a label where there is fuel, and a predicate holds. The clock is looked at behind the branch, so that the loop has no more in it
    /// than the fuel that it takes: when there is none the loop is left, and taken up again with new fuel.
    pub(super) fn go_back(&mut self, weight: u32, (and, guard): (&str, String), start: &Start) {
        let Start { head, target } = start;
        let weight = weight.clamp(1, MAX_CHARGE);
        self.used.fuel = true;
        let label = self.label();
        let line = self.body.line;
        self.body.line = 0;
        put_in!(self.body, "sub.s32 %wf, %wf, {weight};");
        put_in!(self.body, "setp.ge{and}.s32 %wq, %wf, 0{guard};");
        put_in!(self.body, "@%wq bra {target};");
        put_in!(self.body, "setp.ge.s32 %wn, %wf, 0;");
        put_in!(self.body, "@%wn bra wc_L{label};");
        self.look();
        put_in!(self.body, "setp.ge{and}.s32 %wq, %wf, 0{guard};");
        put_in!(self.body, "@%wq bra wc_L{head};");
        put!(self.body, "wc_L{label}:");
        self.body.line = line;
    }

    /// Looks at the clock and the word that says stop, and gives fuel if the kernel may go on: little where what was done since the last look took
    /// long, as accesses do that wait for the host. If not, the word
    /// says so from here on, and what the cache of the multiprocessor holds of it is thrown away, so that threads that begin later see it.
    fn look(&mut self) {
        put_in!(self.body, "mov.u32 %wk, %clock;");
        put_in!(self.body, "sub.u32 %wv, %wk, %wv;");
        put_in!(self.body, "setp.lt.u32 %wn, %wv, {SLOW_CYCLES};");
        put_in!(self.body, "selp.u32 %wv, 0, {UNDUE}, %wn;");
        put_in!(self.body, "sub.u32 %wv, %wk, %wv;");
        put_in!(self.body, "ld.volatile.global.u32 %wu, [%wstop];");
        put_in!(self.body, "mov.u64 %wt, %globaltimer;");
        put_in!(self.body, "setp.lt.u64 %wm, %wt, %wuntil;");
        put_in!(self.body, "setp.ne.and.u32 %wm, %wu, %wtok, %wm;");
        put_in!(self.body, "selp.s32 %wf, {MAX_CHARGE}, {LITTLE}, %wn;");
        put_in!(self.body, "selp.s32 %wf, %wf, -1, %wm;");
        put_in!(self.body, "@!%wm st.volatile.global.u32 [%wctl+8], %wone;");
        put_in!(self.body, "@!%wm st.volatile.global.u32 [%wstop], %wtok;");
        put_in!(self.body, "@!%wm ld.acquire.sys.global.u32 %wu, [%wstop];");
    }

    /// How a thread of an entry begins: it asks whether the kernel is to stop. Every thread does, so that most read the word from the cache of their
    /// multiprocessor; those that begin at some moments read it from memory, in [`go`](Self::go). What the guest's code computes first is
    /// done while the word is on its way.
    pub(super) fn begin(&mut self) {
        self.used.fuel = true;
        put_in!(self.body, "and.b32 %wu, %wv, 8176;");
        put_in!(self.body, "setp.eq.u32 %wm, %wu, 0;");
        put_in!(self.body, "ld.global.u32 %wu, [%wstop];");
    }

    /// Before the first thing that takes time: a thread ends where the kernel is to stop, so that a stopped grid drains. Threads that read the word
    /// from memory acquire it: what the cache of their multiprocessor holds is thrown away, for those that come after them.
    pub(super) fn go(&mut self) {
        put_in!(self.body, "@%wm ld.acquire.sys.global.u32 %wu, [%wstop];");
        put_in!(self.body, "setp.eq.u32 %wx, %wu, %wtok;");
        put_in!(self.body, "@%wx exit;");
    }

    pub(super) fn sleep(&mut self, instruction: &Instruction<'m>) -> Result<(), Error> {
        let [time] = &instruction.operands[..] else {
            return Err(refuse(
                &spelled(instruction),
                "it takes one operand",
                instruction.at,
            ));
        };
        self.meter(MAX_CHARGE);
        let time = self.value(instruction, time)?;
        let word = self.used.low();
        put_in!(self.body, "min.u32 %wl{word}, {time}, {MAX_SLEEP_NS};");
        let guard = self.guard(instruction.guard);
        put_in!(self.body, "{guard}nanosleep.u32 %wl{word};");
        Ok(())
    }

    pub(super) fn end(&mut self, instruction: &Instruction<'m>) {
        let guard = self.guard(instruction.guard);
        if !self.is_trapping() || self.nothing_to_note() {
            put_in!(self.body, "{guard}{};", instruction.opcode);
            return;
        }
        let is_exit = instruction.opcode == "exit" && !self.code.is_entry();
        let tail = match is_exit {
            true => self.tails.exit,
            false => self.tails.ret,
        };
        let label = tail.unwrap_or_else(|| self.label());
        match is_exit {
            true => self.tails.exit = Some(label),
            false => self.tails.ret = Some(label),
        }
        put_in!(self.body, "{guard}bra wc_L{label};");
    }

    /// The label of the code that records and exits.
    pub(super) fn record_label(&mut self) -> OwnLabel {
        let label = self.tails.record.unwrap_or_else(|| self.label());
        self.tails.record = Some(label);
        label
    }

    pub(super) fn trap(&mut self, instruction: &Instruction<'m>) {
        let site = self.site(SiteKind::Trap, instruction.at.line, 0);
        let guard = self.guard(instruction.guard);
        let label = self.record_label();
        put_in!(self.body, "{guard}mov.u32 %wxsite, {site};");
        put_in!(self.body, "{guard}bra wc_L{label};");
    }

    /// Makes `%wq` say whether a call is made.
    pub(super) fn pay_for_call(&mut self, call: usize) {
        let Step::Instruction(instruction) = &self.code.statements[call] else {
            return;
        };
        self.body.line = instruction.at.line;
        let guard = instruction.guard;
        if self.plan.graph.has_cycle {
            self.used.depth = true;
            let site = self.site(SiteKind::CallDepth, instruction.at.line, 0);
            let (and, also) = self.also(guard);
            let flag = self.used.flag();
            let label = self.record_label();
            put_in!(
                self.body,
                "setp.ge{and}.u32 %wxp{flag}, %wdepth, {}{also};",
                calls::MAX_DEPTH
            );
            put_in!(self.body, "@%wxp{flag} mov.u32 %wxsite, {site};");
            put_in!(self.body, "@%wxp{flag} bra wc_L{label};");
        }
        let callee = calls::parts(instruction)
            .ok()
            .and_then(|parts| self.plan.graph.place_of.get(&parts.callee));
        let weight = callee.map_or(0, |&callee| self.plan.weights[callee]);
        self.meter(CALL_WEIGHT.saturating_add(weight));
        let (and, also) = self.also(guard);
        put_in!(self.body, "setp.ge{and}.s32 %wq, %wf, 0{also};");
        if self.plan.graph.has_cycle {
            put_in!(
                self.body,
                "setp.lt.and.u32 %wq, %wdepth, {}, %wq;",
                calls::MAX_DEPTH
            );
        }
        self.store_the_rest(call, instruction);
    }

    /// Stores zeros to bytes of arguments that nothing is stored to, such as those between the fields of a structure.
    pub(super) fn store_the_rest(&mut self, call: usize, instruction: &Instruction<'m>) {
        let Ok(parts) = calls::parts(instruction) else {
            return;
        };
        let left = self
            .calls
            .bytes_left(self.plan.program, self.code, call, &parts);
        if left.is_empty() {
            return;
        }
        let zero = self.used.word();
        put_in!(self.body, "mov.u32 %wx{zero}, 0;");
        for (id, at) in left {
            let address = at_offset(&self.parameter(id), at);
            put_in!(self.body, "st.param.b8 {address}, %wx{zero};");
        }
    }

    pub(super) fn call(&mut self, instruction: &Instruction<'m>) -> Result<(), Error> {
        let parts = calls::parts(instruction)?;
        let Some(&callee) = self.plan.graph.place_of.get(&parts.callee) else {
            let name = self.plan.program.module.text(parts.callee);
            if FAILED_ASSERTIONS.contains(&name) {
                self.trap(instruction);
                return Ok(());
            }
            let reason = "it is a function of the system's or of another module";
            return Err(refuse(name, reason, instruction.at));
        };
        let function = &self.plan.program.functions[callee];
        if !self.are_passed_as(parts.results, &function.returns)
            || !self.are_passed_as(parts.arguments, &function.params)
        {
            let reason = "it passes or gets other parameters than the function has";
            return Err(refuse(&spelled(instruction), reason, instruction.at));
        }
        let names = |values: &[Value<'m>]| -> Vec<String> {
            let mut names = Vec::new();
            for value in values {
                if let Value::Variable(id, _) = value {
                    names.push(self.parameter(*id));
                }
            }
            names
        };
        let (results, mut arguments) = (names(parts.results), names(parts.arguments));
        arguments.extend(HIDDEN_ARGUMENTS.map(str::to_owned));
        self.used.calls = true;
        let name = self.plan.program.functions[callee].number;
        let results = match results.is_empty() {
            true => String::new(),
            false => format!("({}), ", results.join(", ")),
        };
        let arguments = arguments.join(", ");
        put_in!(self.body, "@%wq call {results}g{name}, ({arguments});");
        Ok(())
    }

    /// Whether what a call names are parameter variables of this function that are laid out as those of the function called.
    fn are_passed_as(&self, values: &[Value<'m>], formals: &[VariableId]) -> bool {
        let shape = |id: VariableId| {
            let variable = self.plan.program.variables[id];
            let (bytes, align) = (variable.bytes(), variable.alignment());
            (variable.space, variable.ty, variable.vector, bytes, align)
        };
        values.len() == formals.len()
            && values.iter().zip(formals).all(|pair| match pair {
                (Value::Variable(id, 0), formal) => {
                    !self.formals.contains(id) && shape(*id) == shape(*formal)
                }
                _ => false,
            })
    }

    /// What a call that was not made gives is zero.
    pub(super) fn clear_unless_called(&mut self, instruction: &Instruction<'m>) {
        let mut registers = Vec::new();
        if let Some(operand) = instruction.operands.first() {
            operand.registers(&mut |register| registers.push(register));
        }
        for register in registers {
            let name = self.register(register);
            if let Some(zero) = zero(self.code.registers[register].ty, &name) {
                put_in!(self.body, "@!%wq {zero};");
            }
        }
    }
}

/// Where a loop begins: the label of ours before it, and the one that it goes round to.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) head: OwnLabel,
    pub(super) target: String,
}

/// Most that is taken off at once, and what a look at the clock gives.
const MAX_CHARGE: u32 = 65536;
/// What it gives where a unit of fuel took 512 cycles of the multiprocessor or more: accesses wait for the host.
const LITTLE: u32 = 64;
/// So long a whole grant of fuel may take then, some 18 milliseconds, and by so much a look is put back of which little was given, which is used up sooner.
const SLOW_CYCLES: u32 = 512 * MAX_CHARGE;
const UNDUE: u32 = SLOW_CYCLES - 512 * LITTLE;
/// What an entry begins with: little, for what it read of the stop word may be old.
pub(super) const START: u32 = 2048;
/// What a call takes beside what the function itself takes.
const CALL_WEIGHT: u32 = 16;
/// What a call passes of ours.
const HIDDEN_ARGUMENTS: [&str; 11] = [
    "%wbase", "%wctl", "%wstop", "%wuntil", "%wglob", "%wmask", "%wfirst", "%wspan", "%wtok",
    "%wlocal", "%wnext",
];
/// Longest sleep.
const MAX_SLEEP_NS: u32 = 1000;
/// Functions of the system's that report a failed assertion and do not return.
const FAILED_ASSERTIONS: [&str; 2] = ["__assert_fail", "__assertfail"];
