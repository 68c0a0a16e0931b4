//! One function at a time to confined text: what is done with each statement, and how operands are written.

use std::collections::HashSet;

use super::access::{Way, Ways, Where, spelled};
use super::ahead::Ahead;
use super::aligned::Aligned;
use super::blocks::Blocks;
use super::calls::{self, Calls, Graph};
use super::flow;
use super::globals::Images;
use super::head::Used;
use super::names::{
    Base, Code, Guard, Instruction, Label, Program, Register, Step, Value, VariableId, refuse,
};
use super::strays::Joined;
use super::text::{Text, put, put_in};
use crate::ast::{ScalarType, Space};
use crate::confined::{ConfineOptions, Level, Site, SiteKind};
use crate::error::Error;
use crate::isa::{self, Action};

/// What is known of the module when its functions are written.
#[derive(Debug)]
pub(super) struct Plan<'p, 'm> {
    pub(super) program: &'p Program<'m>,
    pub(super) options: ConfineOptions,
    pub(super) images: &'p Images,
    /// By variable: its offset in its function's frame.
    pub(super) locals: &'p [Option<u32>],
    pub(super) graph: &'p Graph,
    pub(super) blocks: &'p Blocks,
    /// By function: what it weighs.
    pub(super) weights: &'p [u32],
}

/// What is counted through the whole module.
#[derive(Debug, Default)]
pub(super) struct Shares {
    pub(super) labels: u32,
    pub(super) sites: Vec<Site>,
}

/// A label of ours, `wc_L<n>`.
pub(super) type OwnLabel = u32;

/// A function that is being written.
#[derive(Debug)]
pub(super) struct Emitter<'p, 'm> {
    pub(super) plan: &'p Plan<'p, 'm>,
    /// The function's place in the program.
    pub(super) place: usize,
    pub(super) code: &'p Code<'m>,
    pub(super) ways: &'p Ways,
    pub(super) calls: &'p Calls,
    pub(super) shares: &'p mut Shares,
    pub(super) body: Text,
    pub(super) used: Used,
    /// By group: the number of its address register, once it is there.
    pub(super) address_of: Vec<Option<u32>>,
    /// The parameter variable whose address is taken.
    pub(super) param_base: Option<VariableId>,
    /// By label: its statement.
    pub(super) places: Vec<Option<usize>>,
    pub(super) weights: Vec<u32>,
    /// By label: the label of ours before it, where a loop begins.
    pub(super) heads: Vec<Option<OwnLabel>>,
    /// Of an entry, what is written of its first statements, before the body: see [`Ahead`].
    pub(super) ahead: [Text; 3],
    /// Whether a label of the guest's was written.
    pub(super) has_label: bool,
    /// What addresses are multiples of, where strays are told.
    pub(super) aligned: Option<Aligned>,
    /// What the checks of this stretch have in common, where they have.
    pub(super) joined: Option<Joined>,
    /// By stretch: whether its checks are joined.
    pub(super) is_joined: Vec<bool>,
    /// Where threads go that return, exit or report.
    pub(super) tails: Tails,
    /// Variables of the function that calls pass or get.
    pub(super) passed: HashSet<VariableId>,
    pub(super) formals: HashSet<VariableId>,
}

/// The parameter variables of the calls that are printed.
fn passed(plan: &Plan<'_, '_>, code: &Code<'_>) -> HashSet<VariableId> {
    let mut passed = HashSet::new();
    for step in &code.statements {
        if let Step::Instruction(instruction) = step
            && instruction.opcode == "call"
            && let Ok(parts) = calls::parts(instruction)
            && plan.graph.place_of.contains_key(&parts.callee)
        {
            let values = parts.results.iter().chain(parts.arguments);
            passed.extend(values.filter_map(|value| match value {
                Value::Variable(id, _) => Some(*id),
                _ => None,
            }));
        }
    }
    passed
}

/// Labels at the end of the function, made on first use.
#[derive(Debug, Default)]
pub(super) struct Tails {
    pub(super) exit: Option<OwnLabel>,
    pub(super) record: Option<OwnLabel>,
    pub(super) ret: Option<OwnLabel>,
}

impl<'p, 'm> Emitter<'p, 'm> {
    pub(super) fn new(
        plan: &'p Plan<'p, 'm>,
        place: usize,
        ways: &'p Ways,
        calls: &'p Calls,
        shares: &'p mut Shares,
    ) -> Self {
        let code = &plan.program.functions[place];
        Self {
            plan,
            place,
            code,
            ways,
            calls,
            shares,
            body: Text::default(),
            used: Used::default(),
            address_of: vec![None; ways.groups.len()],
            param_base: None,
            places: flow::label_places(&code.statements, code.labels.len()),
            weights: flow::weights(&code.statements),
            heads: vec![None; code.labels.len()],
            ahead: Default::default(),
            has_label: false,
            aligned: (plan.options.level == Level::Trapping)
                .then(|| Aligned::of(plan.program, code)),
            joined: None,
            is_joined: Vec::new(),
            tails: Tails::default(),
            passed: passed(plan, code),
            formals: code.params.iter().chain(&code.returns).copied().collect(),
        }
    }

    pub(super) fn is_trapping(&self) -> bool {
        self.plan.options.level == Level::Trapping
    }

    pub(super) fn label(&mut self) -> OwnLabel {
        self.shares.labels += 1;
        self.shares.labels
    }

    /// A place that reports; gives its number.
    pub(super) fn site(&mut self, kind: SiteKind, line: u32, bytes: u32) -> usize {
        self.used.reports = true;
        self.shares.sites.push(Site { kind, line, bytes });
        self.shares.sites.len() - 1
    }

    /// The name of a register.
    pub(super) fn register(&self, register: Register) -> String {
        format!("%g{}", self.code.registers[register].number)
    }

    pub(super) fn guest_label(&self, label: Label) -> String {
        format!("g{}", self.code.labels[label])
    }

    /// A parameter variable's name.
    pub(super) fn parameter(&self, id: VariableId) -> String {
        format!("g{}", self.plan.program.numbers as usize + id)
    }

    /// `@%g1 `, `@!%g1 ` or nothing.
    pub(super) fn guard(&self, guard: Option<Guard>) -> String {
        match guard {
            Some(guard) => format!(
                "@{}{} ",
                if guard.negated { "!" } else { "" },
                self.register(guard.register)
            ),
            None => String::new(),
        }
    }

    /// The words and operand with which a `setp` takes a guard in: `.and` and `, %g1`.
    pub(super) fn also(&self, guard: Option<Guard>) -> (&'static str, String) {
        match guard {
            Some(guard) => {
                let mark = if guard.negated { "!" } else { "" };
                (".and", format!(", {mark}{}", self.register(guard.register)))
            }
            None => ("", String::new()),
        }
    }

    /// Writes the body, without what comes before and after it.
    pub(super) fn statements(&mut self) -> Result<(), Error> {
        let code = self.code;
        if self.is_trapping() {
            self.join_checks();
        }
        self.find_loops();
        let (mut stage, mut loaded) = (Ahead::Computes, HashSet::new());
        for (index, step) in code.statements.iter().enumerate() {
            if stage < Ahead::Not {
                let mut next = self.stage_of(index, step).max(stage);
                if next == Ahead::Loads && self.awaits(index, step, &mut loaded) {
                    next = Ahead::Awaits;
                }
                stage = self.advance(stage, next);
            }
            if let Some(call) = self.calls.metered_at(index) {
                self.note_joined();
                self.pay_for_call(call);
            }
            match step {
                Step::Label(label) => {
                    self.note_joined();
                    self.has_label = true;
                    self.body.line = 0;
                    if let Some(head) = self.heads[*label] {
                        self.head_of_loop(head);
                    }
                    let name = self.guest_label(*label);
                    put!(self.body, "{name}:");
                }
                Step::Instruction(instruction) => {
                    self.body.line = instruction.at.line;
                    self.instruction(index, instruction)?;
                }
            }
        }
        self.note_joined();
        self.advance(stage, Ahead::Not);
        self.body.line = 0;
        Ok(())
    }

    /// Gives labels that are branched back to one of ours.
    fn find_loops(&mut self) {
        for (index, step) in self.code.statements.iter().enumerate() {
            if let Step::Instruction(instruction) = step
                && instruction.opcode == "bra"
                && let Some(&Value::Label(label)) = instruction.operands.last()
                && self.places[label].is_some_and(|place| place <= index)
                && self.heads[label].is_none()
            {
                self.heads[label] = Some(self.label());
            }
        }
    }

    fn instruction(&mut self, index: usize, instruction: &Instruction<'m>) -> Result<(), Error> {
        let Some(row) = isa::row(instruction.opcode) else {
            return Err(refuse(
                instruction.opcode,
                isa::reason(instruction.opcode),
                instruction.at,
            ));
        };
        if flow::ends_stretch(instruction, row.action) {
            self.note_joined();
            self.body.line = instruction.at.line;
        }
        match row.action {
            Action::Access | Action::CopyAsync => self.access(index, instruction),
            Action::Branch if instruction.opcode == "brx" => self.indexed_branch(instruction),
            Action::Branch => self.branch(index, instruction),
            Action::ConvertAddress => self.convert_address(instruction),
            Action::Call => self.call(instruction),
            Action::Drop => Ok(()),
            Action::End => {
                self.end(instruction);
                Ok(())
            }
            Action::Barrier => {
                self.used.fuel |= !instruction.modifiers.contains(&"warp");
                self.keep(instruction)
            }
            Action::Keep => self.keep(instruction),
            Action::Sleep => self.sleep(instruction),
            Action::Trap => {
                self.trap(instruction);
                Ok(())
            }
        }
    }

    /// Writes an instruction as it is.
    fn keep(&mut self, instruction: &Instruction<'m>) -> Result<(), Error> {
        if instruction.opcode != "mov"
            && instruction
                .operands
                .iter()
                .any(|operand| matches!(operand, Value::Variable(id, _) if self.is_param(*id)))
        {
            let reason = "the address of a parameter is only moved to a register";
            return Err(refuse(&spelled(instruction), reason, instruction.at));
        }
        let operands = self.operands(instruction)?;
        let guard = self.guard(instruction.guard);
        let separator = if operands.is_empty() { "" } else { " " };
        put_in!(
            self.body,
            "{guard}{}{separator}{operands};",
            spelled(instruction)
        );
        Ok(())
    }

    pub(super) fn is_param(&self, id: VariableId) -> bool {
        self.plan.program.variables[id].space == Space::Param
    }

    fn operands(&mut self, instruction: &Instruction<'m>) -> Result<String, Error> {
        let mut text = String::new();
        for operand in &instruction.operands {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text += &self.value(instruction, operand)?;
        }
        Ok(text)
    }

    /// An operand as text; what it needs first is written before.
    pub(super) fn value(
        &mut self,
        instruction: &Instruction<'m>,
        value: &Value<'m>,
    ) -> Result<String, Error> {
        let refused = |reason| Err(refuse(&spelled(instruction), reason, instruction.at));
        Ok(match value {
            Value::Register(register) => self.register(*register),
            Value::Negated(register) => format!("!{}", self.register(*register)),
            Value::Immediate(value) => value.to_string(),
            Value::Sink => "_".to_owned(),
            Value::Special(name, component) => {
                if !isa::is_special(name) {
                    return Err(refuse(
                        name,
                        "this special register is not read",
                        instruction.at,
                    ));
                }
                match *component {
                    "" => (*name).to_owned(),
                    "x" | "y" | "z" | "w" => format!("{name}.{component}"),
                    _ => return refused("a special register has no such component"),
                }
            }
            Value::Pair(pair) => {
                let first = self.value(instruction, &pair.0)?;
                format!("{first}|{}", self.value(instruction, &pair.1)?)
            }
            Value::Vector(values) => {
                let mut text = "{".to_owned();
                for value in values {
                    if text.len() > 1 {
                        text.push_str(", ");
                    }
                    text += &self.value(instruction, value)?;
                }
                text + "}"
            }
            Value::Variable(id, offset) => self.address_of(instruction, *id, *offset)?,
            Value::Address { .. } => return refused("it takes no address"),
            Value::Function(_) => return refused("functions have no addresses here"),
            Value::Label(_) => return refused("labels have no addresses here"),
            Value::List(_) => return refused("it takes no list"),
        })
    }

    /// The value that stands for the address of a variable.
    fn address_of(
        &mut self,
        instruction: &Instruction<'m>,
        id: VariableId,
        offset: i64,
    ) -> Result<String, Error> {
        let elsewhere = || {
            refuse(
                &spelled(instruction),
                "the variable is defined elsewhere",
                instruction.at,
            )
        };
        let variable = self.plan.program.variables[id];
        let is_wide = instruction
            .modifiers
            .last()
            .is_some_and(|word| word.ends_with("64"));
        match variable.space {
            Space::Shared => {
                let place = self
                    .plan
                    .blocks
                    .shared_offset(self.place, id)
                    .ok_or_else(elsewhere)?;
                Ok(offset.wrapping_add(i64::from(place)).to_string())
            }
            Space::Const => {
                let place = self.plan.images.offsets[id].ok_or_else(elsewhere)?;
                Ok(offset.wrapping_add(i64::from(place)).to_string())
            }
            Space::Local => {
                let (start, level) = self.plan.blocks.frames[self.place];
                let place = self.plan.locals[id].ok_or_else(elsewhere)?;
                let place = offset
                    .wrapping_add(i64::from(place))
                    .wrapping_add(i64::from(start));
                if level == 0 {
                    return Ok(place.to_string());
                }
                let word = self.used.word();
                self.used.depth = true;
                put_in!(
                    self.body,
                    "mad.lo.u32 %wx{word}, %wdepth, {level}, {};",
                    low(place)
                );
                Ok(self.widened(word, is_wide))
            }
            Space::Global => {
                let place = self.plan.images.offsets[id].ok_or_else(elsewhere)?;
                let word = self.used.word();
                self.used.globals = true;
                put_in!(
                    self.body,
                    "add.u32 %wx{word}, %wglob, {};",
                    low(offset.wrapping_add(i64::from(place)))
                );
                Ok(self.widened(word, is_wide))
            }
            Space::Param => {
                if self.param_base.is_some_and(|base| base != id) {
                    let reason = "the addresses of two parameters are taken in one function";
                    return Err(refuse(&spelled(instruction), reason, instruction.at));
                }
                self.param_base = Some(id);
                Ok(offset.to_string())
            }
            _ => Err(refuse(
                &spelled(instruction),
                "the variable has no address",
                instruction.at,
            )),
        }
    }

    fn widened(&mut self, word: u32, is_wide: bool) -> String {
        if !is_wide {
            return format!("%wx{word}");
        }
        let double = self.used.double();
        put_in!(self.body, "cvt.u64.u32 %wxd{double}, %wx{word};");
        format!("%wxd{double}")
    }

    /// What the whole function weighs.
    pub(super) fn weight(&self) -> u32 {
        self.weights.last().copied().unwrap_or(1)
    }

    /// Accesses of an instruction, each by its way.
    fn access(&mut self, index: usize, instruction: &Instruction<'m>) -> Result<(), Error> {
        let ways = self.ways.of[index];
        if ways[0].is_none() {
            return self.keep(instruction);
        }
        if let Some((access, Way::Tagged)) = ways[0] {
            return self.tagged(instruction, access);
        }
        // Arguments of calls that are not printed.
        if let Some(id) = calls::parameter(instruction, "st")
            && !self.formals.contains(&id)
            && !self.passed.contains(&id)
        {
            return Ok(());
        }
        if let Some(id) = calls::parameter(instruction, "ld")
            && !self.formals.contains(&id)
            && !self.passed.contains(&id)
        {
            return Err(refuse(
                &spelled(instruction),
                "no call gives it",
                instruction.at,
            ));
        }
        if let Some(id) = calls::parameter(instruction, "st") {
            let refused = |reason| Err(refuse(&spelled(instruction), reason, instruction.at));
            if instruction.guard.is_some() {
                return refused("it stores to a parameter under a guard");
            }
            if self.code.params.contains(&id) {
                return refused("it stores to what the function was given");
            }
        }
        let mut addresses = [String::new(), String::new()];
        for (way, address) in ways.iter().zip(&mut addresses) {
            if let Some((access, way)) = way {
                *address = match way {
                    Way::Group(group, delta) => self.group_address(instruction, *group, *delta)?,
                    _ => match &instruction.operands[access.operand] {
                        Value::Address {
                            base: Base::Variable(id),
                            offset,
                            ..
                        } => self.direct_address(
                            instruction,
                            access.space,
                            *id,
                            *offset,
                            access.width,
                        )?,
                        _ => String::new(),
                    },
                };
            }
        }
        let mut operands = String::new();
        for (position, operand) in instruction.operands.iter().enumerate() {
            if !operands.is_empty() {
                operands.push_str(", ");
            }
            let way = ways
                .iter()
                .position(|way| way.is_some_and(|(access, _)| access.operand == position));
            match way {
                Some(slot) => operands += &addresses[slot],
                None if instruction.opcode == "cp" && position == 3 => {
                    // No more is read of global memory than is written of shared memory.
                    let bytes = self.value(instruction, operand)?;
                    let word = self.used.low();
                    let width = ways[0].map_or(16, |(access, _)| access.width);
                    put_in!(self.body, "min.u32 %wl{word}, {bytes}, {width};");
                    operands += &format!("%wl{word}");
                }
                None => operands += &self.value(instruction, operand)?,
            }
        }
        let guard = self.guard(instruction.guard);
        let space = ways[0].map_or(Where::Global, |(access, _)| access.space);
        put_in!(
            self.body,
            "{guard}{} {operands};",
            with_space(instruction, space, Caching::Keep)
        );
        if self.calls.results.contains(&index) {
            self.clear_unless_called(instruction);
        }
        Ok(())
    }
}

/// The low word of a number.
pub(super) fn low(value: i64) -> u32 {
    u32::try_from(value.cast_unsigned() & 0xffff_ffff).unwrap_or(0)
}

/// The instruction that sets a register to zero, without its end; `None` for types that have none.
pub(super) fn zero(ty: ScalarType, name: &str) -> Option<String> {
    if ty == ScalarType::Pred {
        return Some(format!("mov.pred {name}, 0"));
    }
    Some(match ty.bytes()? {
        1 => format!("cvt.u8.u32 {name}, 0"),
        2 => format!("mov.b16 {name}, 0"),
        4 => format!("mov.b32 {name}, 0"),
        8 => format!("mov.b64 {name}, 0"),
        _ => format!("mov.b128 {name}, {{%wxzero, %wxzero}}"),
    })
}

/// What becomes of hints to caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    Drop,
    Keep,
}

/// The opcode and modifiers of an access that names its space, with hints left out that reach beyond what is accessed.
pub(super) fn with_space(instruction: &Instruction<'_>, space: Where, caching: Caching) -> String {
    let word = match space {
        Where::Const => "const",
        Where::Generic | Where::Global => "global",
        Where::Local => "local",
        Where::Param => "param",
        Where::Shared => "shared",
    };
    let mut text = instruction.opcode.to_owned();
    let names_space = |word: &str| {
        matches!(
            word,
            "const"
                | "global"
                | "local"
                | "param"
                | "param::entry"
                | "param::func"
                | "shared"
                | "shared::cta"
        )
    };
    let mut is_open = !instruction.modifiers.iter().any(|word| names_space(word));
    let ordering = [
        "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "cta", "cluster",
        "gpu", "sys",
    ];
    let caches = ["ca", "cg", "cs", "lu", "cv", "nc", "wb", "wt"];
    for modifier in &instruction.modifiers {
        let is_ordering = ordering.contains(modifier);
        if modifier.starts_with("L2::")
            || (caching == Caching::Drop
                && (modifier.starts_with("L1::") || caches.contains(modifier)))
            || (is_ordering && space == Where::Local && is_open)
        {
            continue;
        }
        if is_open && !is_ordering {
            text.push('.');
            text.push_str(word);
            is_open = false;
        }
        text.push('.');
        text.push_str(modifier);
    }
    text
}
