//! What stands around the statements of a function: its declaration, registers of ours, the instructions of its head.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;

use super::aligned::{self, Pointer};
use super::blocks::Shared;
use super::control::START;
use super::emit::{Emitter, zero};
use super::names::{Step, VariableId};
use super::text::{Text, put, put_in};
use crate::ast::{ScalarType, Space, Variable};

/// Instructions that read the carry flag, which is unwritten at first as registers are.
const READ_CARRY: [&str; 3] = ["addc", "madc", "subc"];

/// Which of our registers a function uses.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one register")]
pub(super) struct Used {
    pub(super) base: bool,
    pub(super) calls: bool,
    pub(super) constant: bool,
    pub(super) depth: bool,
    pub(super) fuel: bool,
    pub(super) globals: bool,
    /// Whether the function's own block of local memory is named.
    pub(super) has_frame: bool,
    pub(super) high: bool,
    pub(super) local: bool,
    /// Whether the guest's code has a branch back.
    pub(super) loops: bool,
    pub(super) reports: bool,
    pub(super) shared: bool,
    /// Whether what is the guest's of the window is asked for.
    pub(super) span: bool,
    pub(super) strays: bool,
    /// Pointers that decide whether accesses are aligned, and to what.
    pub(super) pointers: Vec<(Pointer, u32)>,
    /// How far behind an address an access ends that is checked.
    pub(super) reaches: BTreeSet<u32>,
    /// Alignments for which there is a mask; alignments are powers of two, so a sum of them is a set.
    pub(super) masks: u32,
    pub(super) dynamic_masks: u32,
    doubles: u32,
    flags: u32,
    lows: u32,
    wides: u32,
    words: u32,
    addresses: [u32; 5],
}

/// What address registers begin with, after `%w`.
const ADDRESSES: [(&str, &str); 5] = [
    ("a", "b64"),
    ("c", "b32"),
    ("o", "b32"),
    ("p", "b64"),
    ("s", "b32"),
];

impl Used {
    /// A new `%wx`.
    pub(super) fn word(&mut self) -> u32 {
        next(&mut self.words)
    }

    /// A new `%wxd`.
    pub(super) fn double(&mut self) -> u32 {
        next(&mut self.doubles)
    }

    /// A new `%wxp`.
    pub(super) fn flag(&mut self) -> u32 {
        next(&mut self.flags)
    }

    /// A new `%wl`.
    pub(super) fn low(&mut self) -> u32 {
        next(&mut self.lows)
    }

    /// A new `%wz`.
    pub(super) fn wide(&mut self) -> u32 {
        next(&mut self.wides)
    }

    /// A new address register.
    pub(super) fn address(&mut self, prefix: &str) -> u32 {
        let index = ADDRESSES
            .iter()
            .position(|row| row.0 == prefix)
            .unwrap_or(0);
        next(&mut self.addresses[index])
    }
}

fn next(count: &mut u32) -> u32 {
    *count += 1;
    *count - 1
}

/// The alignments in a set of them.
fn alignments(set: u32) -> impl Iterator<Item = u32> {
    (0..6).map(|bit| 1 << bit).filter(move |bit| set & bit != 0)
}

const HIDDEN: [&str; 9] = [
    ".param .u64 wc_base",
    ".param .u64 wc_control",
    ".param .u64 wc_stop",
    ".param .u64 wc_until",
    ".param .u32 wc_globals",
    ".param .u32 wc_mask",
    ".param .u32 wc_first",
    ".param .u32 wc_span",
    ".param .u32 wc_token",
];
const HIDDEN_REGISTERS: [&str; 11] = [
    ".reg .b64 %wbase",
    ".reg .b64 %wctl",
    ".reg .b64 %wstop",
    ".reg .b64 %wuntil",
    ".reg .b32 %wglob",
    ".reg .b32 %wmask",
    ".reg .b32 %wfirst",
    ".reg .b32 %wspan",
    ".reg .b32 %wtok",
    ".reg .b32 %wlocal",
    ".reg .b32 %wdepth",
];

impl Emitter<'_, '_> {
    /// Puts the function together, once its statements are written.
    pub(super) fn assemble(
        mut self,
        unwritten: &[usize],
        unstored: &[Range<u32>],
        text: &mut Text,
    ) {
        let statements = std::mem::take(&mut self.body);
        // What the head's own code needs is counted with the rest, so it is written first.
        if self.code.is_entry() {
            let [computed, loaded, awaited] = std::mem::take(&mut self.ahead);
            self.begin();
            self.body.append(computed);
            self.go();
            self.body.append(loaded);
            self.clear_local(unstored);
            self.clear_shared();
            self.body.append(awaited);
            self.await_clearing();
        } else if self.used.fuel || self.used.calls {
            let weight = self.weight();
            self.meter(weight);
        }
        let ahead = std::mem::take(&mut self.body);
        self.tails();
        let tail = std::mem::take(&mut self.body);
        self.head(unwritten);
        let head = std::mem::take(&mut self.body);

        text.line = self.code.source.at.line;
        self.heading(text);
        put!(text, "{{");
        text.line = 0;
        self.declarations(text);
        for part in [head, ahead, statements, tail] {
            text.append(part);
        }
        put!(text, "}}");
    }

    /// `.func (…) g1(…);`, for those that come before.
    pub(super) fn declaration(&self, text: &mut Text) {
        text.line = self.code.source.at.line;
        let last = self.parameters(text);
        put!(text, "{last};");
    }

    fn heading(&self, text: &mut Text) {
        let last = self.parameters(text);
        put!(text, "{last}");
        for directive in &self.code.source.directives {
            let name = self.plan.program.module.text(directive.name);
            if self.code.is_entry() && KEPT_DIRECTIVES.contains(&name) {
                let values: Vec<_> = directive.values.iter().map(u64::to_string).collect();
                put!(text, ".{name} {}", values.join(", "));
            }
        }
    }

    /// Writes a function's name and parameters but for the last line, which it gives.
    fn parameters(&self, text: &mut Text) -> &'static str {
        let number = self.code.number;
        let line = std::mem::take(&mut text.line);
        put!(text, "");
        text.line = line;
        let hidden = if self.code.is_entry() {
            put!(text, ".visible .entry g{number}(");
            &HIDDEN[..]
        } else {
            let returns: Vec<_> = self
                .code
                .returns
                .iter()
                .map(|&formal| self.formal(formal))
                .collect();
            match returns.is_empty() {
                true => put!(text, ".func g{number}("),
                false => put!(text, ".func ({}) g{number}(", returns.join(", ")),
            }
            &HIDDEN_REGISTERS[..]
        };
        for &formal in &self.code.params {
            put!(text, "    {},", self.formal(formal));
        }
        for (index, parameter) in hidden.iter().enumerate() {
            let comma = if index + 1 < hidden.len() { "," } else { "" };
            put!(text, "    {parameter}{comma}");
        }
        ")"
    }

    fn formal(&self, id: VariableId) -> String {
        declared(self.plan.program.variables[id], &self.parameter(id))
    }

    fn declarations(&self, text: &mut Text) {
        let used = &self.used;
        let is_entry = self.code.is_entry();
        let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (register, declaration) in self.code.registers.iter().enumerate() {
            names
                .entry(declaration.ty.name())
                .or_default()
                .push(self.register(register));
        }
        let counted = [
            ("b32", "x", used.words),
            ("b64", "xd", used.doubles),
            ("pred", "xp", used.flags),
            ("b32", "l", used.lows),
            ("b64", "z", used.wides),
        ];
        let addresses = ADDRESSES
            .iter()
            .zip(used.addresses)
            .map(|(&(name, ty), count)| (ty, name, count));
        for (ty, name, count) in counted.into_iter().chain(addresses) {
            let numbered = (0..count).map(|number| format!("%w{name}{number}"));
            names.entry(ty).or_default().extend(numbered);
        }
        let calls = used.calls;
        let by_use = [
            ("b64", "%wbase", is_entry && self.needs_base()),
            ("b64", "%wctl", is_entry),
            ("b64", "%wstop", is_entry),
            ("b64", "%wuntil", is_entry),
            ("b32", "%wglob", is_entry && (used.globals || calls)),
            ("b32", "%wmask", is_entry && (used.masks != 0 || calls)),
            (
                "b32",
                "%wfirst",
                is_entry && (!used.reaches.is_empty() || calls),
            ),
            (
                "b32",
                "%wspan",
                is_entry && (used.span || !used.pointers.is_empty() || calls),
            ),
            ("b32", "%wtok", is_entry),
            ("b32", "%wlocal", is_entry && calls),
            ("b32", "%wdepth", is_entry && (calls || used.depth)),
            ("b32", "%wnext", calls),
            ("b32", "%wlow", used.high),
            ("b32", "%whi", used.high),
            ("b32", "%wf", used.fuel),
            ("b32", "%wone", used.fuel),
            ("b32", "%wk", used.fuel),
            ("b32", "%wu", used.fuel),
            ("b32", "%wv", used.fuel),
            ("b64", "%wt", used.fuel),
            ("pred", "%wn", used.fuel),
            ("pred", "%wm", used.fuel),
            ("pred", "%wq", used.fuel),
            ("pred", "%wx", used.fuel),
            ("b32", "%wsb", used.shared),
            ("b32", "%wcb", used.constant),
            ("b32", "%wlb", used.local),
            ("b64", "%wpb", self.param_base.is_some()),
            ("b32", "%wxsite", used.reports),
            ("b32", "%wxaddr", used.reports),
            ("b64", "%wxzero", self.has_wide_registers()),
        ];
        for (ty, name, _) in by_use.into_iter().filter(|(.., is_used)| *is_used) {
            names.entry(ty).or_default().push(name.to_owned());
        }
        let reaches = used.reaches.iter().map(|last| format!("%wxe{last}"));
        names.entry("b32").or_default().extend(reaches);
        for index in 0..used.pointers.len() {
            let (askew, span) = aligned::names(index);
            names.entry("b32").or_default().extend([askew, span]);
        }
        let mut masks: Vec<_> = alignments(used.masks)
            .map(|align| format!("%wm{align}"))
            .collect();
        if self.is_dynamic() {
            masks.push("%wd".to_owned());
            masks.extend(alignments(used.dynamic_masks | 1).map(|align| format!("%wsm{align}")));
        }
        names.entry("b32").or_default().extend(masks);
        for (ty, names) in names {
            for name in names {
                put_in!(text, ".reg .{ty} {name};");
            }
        }
        let mut passed: Vec<VariableId> = self.passed.iter().copied().collect();
        passed.sort_unstable();
        for id in passed {
            put_in!(
                text,
                "{};",
                declared(self.plan.program.variables[id], &self.parameter(id))
            );
        }
        if is_entry && self.has_local_block() {
            put_in!(
                text,
                ".local .align 128 .b8 wc_local[{}];",
                self.plan.blocks.local.size
            );
        }
        for (label, targets) in &self.code.tables {
            let targets: Vec<_> = targets
                .iter()
                .map(|&target| self.guest_label(target))
                .collect();
            put!(text, "{}:", self.guest_label(*label));
            put_in!(text, ".branchtargets {};", targets.join(", "));
        }
    }

    fn needs_base(&self) -> bool {
        self.used.base || self.used.high || self.used.calls
    }

    /// Whether the function reaches dynamic shared memory by a register.
    fn is_dynamic(&self) -> bool {
        self.used.shared
            && matches!(
                self.plan.blocks.shared_of[self.place],
                Some(Shared::Dynamic { .. })
            )
    }

    fn has_wide_registers(&self) -> bool {
        self.code
            .registers
            .iter()
            .any(|register| register.ty == ScalarType::B128)
    }

    /// Whether the entry declares the block of local memory.
    pub(super) fn has_local_block(&self) -> bool {
        self.used.local || self.used.has_frame || (self.used.calls && self.plan.blocks.has_local)
    }

    /// The head: what is loaded, derived and set to zero.
    fn head(&mut self, unwritten: &[usize]) {
        let is_entry = self.code.is_entry();
        let calls = self.used.calls;
        if is_entry {
            let loads = [
                ("u64", "%wbase", "wc_base", self.needs_base()),
                ("u64", "%wctl", "wc_control", true),
                ("u64", "%wstop", "wc_stop", true),
                ("u64", "%wuntil", "wc_until", true),
                ("u32", "%wtok", "wc_token", true),
                ("u32", "%wglob", "wc_globals", self.used.globals || calls),
                ("u32", "%wmask", "wc_mask", self.used.masks != 0 || calls),
                (
                    "u32",
                    "%wfirst",
                    "wc_first",
                    !self.used.reaches.is_empty() || calls,
                ),
                (
                    "u32",
                    "%wspan",
                    "wc_span",
                    self.used.span || !self.used.pointers.is_empty() || calls,
                ),
            ];
            for (ty, register, parameter, is_used) in loads {
                if is_used {
                    put_in!(self.body, "ld.param.{ty} {register}, [{parameter}];");
                }
            }
            let has_block = self.has_local_block();
            if calls && has_block {
                put_in!(self.body, "mov.u32 %wlocal, wc_local;");
            } else if calls {
                put_in!(self.body, "mov.u32 %wlocal, 0;");
            }
            if calls || self.used.depth {
                put_in!(self.body, "mov.u32 %wdepth, 0;");
            }
        }
        if self.used.high {
            put_in!(self.body, "mov.b64 {{%wlow, %whi}}, %wbase;");
        }
        for align in alignments(self.used.masks) {
            put_in!(self.body, "and.b32 %wm{align}, %wmask, -{align};");
        }
        if self.used.shared {
            match self.plan.blocks.shared_of[self.place] {
                Some(Shared::Static { number, .. }) => {
                    put_in!(self.body, "mov.u32 %wsb, wc_shared{number};")
                }
                Some(Shared::Dynamic { padding, .. }) => {
                    put_in!(self.body, "mov.u32 %wsb, wc_dynamic;");
                    put_in!(self.body, "mov.u32 %wd, %dynamic_smem_size;");
                    put_in!(self.body, "sub.u32 %wsm1, %wd, {padding};");
                    for align in alignments(self.used.dynamic_masks & !1) {
                        put_in!(self.body, "and.b32 %wsm{align}, %wsm1, -{align};");
                    }
                }
                None => {}
            }
        }
        if self.used.constant {
            put_in!(self.body, "mov.u32 %wcb, wc_const;");
        }
        if self.used.local {
            let block = if is_entry { "wc_local" } else { "%wlocal" };
            put_in!(self.body, "mov.u32 %wlb, {block};");
        }
        if let Some(id) = self.param_base {
            let name = self.parameter(id);
            put_in!(self.body, "mov.b64 %wpb, {name};");
        }
        if calls {
            put_in!(self.body, "add.u32 %wnext, %wdepth, 1;");
        }
        for (index, ((id, offset), align)) in self.used.pointers.clone().into_iter().enumerate() {
            let (askew, span) = aligned::names(index);
            let (address, flag) = (at_offset(&self.parameter(id), offset), self.used.flag());
            put_in!(self.body, "ld.param.u32 {askew}, {address};");
            put_in!(self.body, "and.b32 {askew}, {askew}, {};", align - 1);
            put_in!(self.body, "setp.eq.u32 %wxp{flag}, {askew}, 0;");
            put_in!(self.body, "selp.b32 {span}, %wspan, 0, %wxp{flag};");
        }
        for last in &self.used.reaches {
            put_in!(self.body, "sub.u32 %wxe{last}, {last}, %wfirst;");
        }
        if self.used.fuel {
            put_in!(self.body, "mov.u32 %wone, 1;");
            let fuel = if is_entry { START } else { 0 };
            put_in!(self.body, "mov.s32 %wf, {fuel};");
            put_in!(self.body, "mov.u32 %wv, %clock;");
        }
        for &result in &self.code.returns {
            self.store_zeros(result);
        }
        if self.used.reports {
            put_in!(self.body, "mov.u32 %wxsite, {NO_SITE};");
            put_in!(self.body, "mov.u32 %wxaddr, 0;");
        }
        let reads_carry = |step: &Step<'_>| matches!(step, Step::Instruction(instruction) if READ_CARRY.contains(&instruction.opcode));
        if self.code.statements.iter().any(reads_carry) {
            let sum = self.used.word();
            put_in!(self.body, "add.cc.u32 %wx{sum}, 0, 0;");
        }
        if self.has_wide_registers() {
            put_in!(self.body, "mov.u64 %wxzero, 0;");
        }
        for &register in unwritten {
            if let Some(zero) = zero(self.code.registers[register].ty, &self.register(register)) {
                put_in!(self.body, "{zero};");
            }
        }
    }

    /// Stores zeros to a result: a thread that was cut short returns without one.
    fn store_zeros(&mut self, result: VariableId) {
        let variable = self.plan.program.variables[result];
        let bytes = variable
            .bytes()
            .and_then(|bytes| u32::try_from(bytes).ok())
            .unwrap_or(0);
        let (zero, name) = (self.used.double(), self.parameter(result));
        put_in!(self.body, "mov.u64 %wxd{zero}, 0;");
        let mut at = 0;
        while at < bytes {
            let width = (1 << (bytes - at).ilog2().min(3)).min(variable.alignment());
            let address = at_offset(&name, at);
            put_in!(self.body, "st.param.b{} {address}, %wxd{zero};", width * 8);
            at += width;
        }
    }
}

/// Directives of an entry that are kept.
const KEPT_DIRECTIVES: [&str; 4] = ["maxnreg", "maxntid", "minnctapersm", "reqntid"];
/// What the site's register holds while there is nothing to report.
pub(super) const NO_SITE: u32 = u32::MAX;
/// Bytes of the parameters that are added to an entry's.
pub(super) fn hidden_bytes() -> u64 {
    let bytes = |parameter: &&str| if parameter.contains(".u64") { 8 } else { 4 };
    HIDDEN.iter().map(bytes).sum()
}

/// `[name]` or `[name+offset]`.
pub(super) fn at_offset(name: &str, offset: u32) -> String {
    match offset {
        0 => format!("[{name}]"),
        _ => format!("[{name}+{offset}]"),
    }
}

/// A parameter variable's declaration.
fn declared(variable: &Variable, name: &str) -> String {
    let mut text = format!(".{} ", Space::Param.name());
    if let Some(align) = variable.align {
        let _ = write!(text, ".align {align} ");
    }
    if let Some(vector) = variable.vector {
        let _ = write!(text, ".{} ", vector.name());
    }
    let _ = write!(text, ".{} {name}", variable.ty.name());
    for dimension in &variable.dimensions {
        match dimension {
            Some(length) => {
                let _ = write!(text, "[{length}]");
            }
            None => text += "[]",
        }
    }
    text
}
