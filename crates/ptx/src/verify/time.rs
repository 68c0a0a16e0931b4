//! The sequences by which a text keeps time, to the letter: BEGIN and GO in an entry's head, HEAD and BACK around a loop, METER before what takes long.

use super::body::{Body, Paid, Result};
use super::fact::Fact;
use super::idiom::FUELED;
use super::text::check_limit;
use crate::ast::{Operand, Statement};
use crate::error::VerifyErrorKind;

/// Registers that BEGIN, GO, METER and BACK write beside `%wf` and `%wq`.
pub(super) const METER_REGISTERS: [&str; 5] = ["%wk", "%wm", "%wn", "%wt", "%wu"];

/// The fuel that a look at the clock gives, and the most that is taken at once.
pub(super) const FUEL: u32 = 65_536;

/// The fuel that an entry begins with.
pub(super) const START: u32 = 2_048;

/// Most instructions that one unit of fuel pays for.
const INSTRUCTIONS_PER_FUEL: usize = 256;

/// Longest nap, in nanoseconds.
pub(super) const MAX_NAP: u32 = 1000;

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
    /// Text of a statement that has a line of its own.
    pub(super) fn text_of(&self, index: usize) -> &'t str {
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

    pub(super) fn line_of(&self, index: usize) -> u32 {
        match self.statements.get(index) {
            Some(Statement::Instruction(instruction)) => instruction.at.line,
            _ => 0,
        }
    }

    /// Whether the registers that these sequences use hold what they have to.
    pub(super) fn has_reins(&self) -> bool {
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
    pub(super) fn is_text<'a>(
        &self,
        from: usize,
        expected: impl IntoIterator<Item = &'a str>,
    ) -> bool {
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
    pub(super) fn pays_for(&self, instructions: usize) -> bool {
        let fuel = usize::try_from(self.paid.fuel.unwrap_or(0)).unwrap_or(0);
        fuel.saturating_mul(INSTRUCTIONS_PER_FUEL) >= instructions
    }

    /// Instructions from one statement to before another.
    pub(super) fn instructions(&self, from: usize, to: usize) -> usize {
        let before = |index: usize| self.instructions_before.get(index).copied().unwrap_or(0);
        before(to).saturating_sub(before(from))
    }
}
