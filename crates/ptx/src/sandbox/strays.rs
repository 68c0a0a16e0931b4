//! Reports of accesses outside memory: a check beside each confined address, which nothing of confinement depends on.

use super::access::{Group, Origin, Way, Where};
use super::aligned::{self, Askew, Pointer};
use super::blocks::Shared;
use super::emit::Emitter;
use super::names::{Guard, Instruction, Step, Value};
use super::text::put_in;
use crate::confined::SiteKind;

/// Checks of one stretch whose outcomes are joined. The farthest offset in the window and the bits of all addresses are kept, which takes an
/// instruction an address or less, and looked at where the stretch ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    kind: SiteKind,
    line: u32,
    /// Set where an offset in a block is too large.
    flag: Option<u32>,
    /// The word with how far the farthest access to the window reaches.
    farthest: Option<u32>,
    /// By what they have to be multiples of: the word with the bits of all addresses.
    low: [Option<u32>; 6],
    /// Pointers with which they are askew, up to a number.
    pointers: [Option<usize>; 4],
}

/// How words are joined.
#[derive(Clone, Copy, Debug)]
enum Join {
    Bits,
    Farthest,
}

impl Joined {
    fn new(kind: SiteKind, line: u32) -> Self {
        Self {
            kind,
            line,
            flag: None,
            farthest: None,
            low: [None; 6],
            pointers: [None; 4],
        }
    }
}

/// Which power of two an alignment is.
fn align_bit(align: u32) -> usize {
    (align.trailing_zeros() as usize).min(5)
}

/// Most checks of a stretch that note a place and an address each.
const MAX_NOTED: u32 = 2;

/// Whether accesses of a space are checked.
pub(super) fn is_checked(space: Where) -> bool {
    matches!(space, Where::Global | Where::Local | Where::Shared)
}

impl<'m> Emitter<'_, 'm> {
    /// Whether a group can be outside memory: what is known now is inside.
    pub(super) fn can_stray(&self, group: &Group) -> bool {
        match group.origin {
            Origin::Register(_) | Origin::Absolute | Origin::Dynamic => true,
            Origin::Frame => false,
            Origin::Globals => {
                let bytes = i64::try_from(self.plan.images.globals.image.len()).unwrap_or(i64::MAX);
                group.anchor < 0 || group.anchor + i64::from(group.end) > bytes
            }
        }
    }

    /// Writes a check beside the access: nothing of confinement depends on it.
    pub(super) fn check(&mut self, instruction: &Instruction<'m>, group: &Group, word: u32) {
        let kind = match group.space {
            Where::Shared => SiteKind::SharedAccess,
            Where::Local => SiteKind::LocalAccess,
            _ => SiteKind::GlobalAccess,
        };
        if self.is_joined.get(group.stretch) == Some(&true) {
            let line = instruction.at.line;
            let joined = self.joined.take().unwrap_or(Joined::new(kind, line));
            self.joined = Some(self.join(joined, group, word));
            return;
        }
        let also = self.also(group.guard);
        self.check_alone(instruction, kind, group, word, also);
    }

    /// Notes an access with its own place and address where a further condition holds too.
    pub(super) fn check_alone(
        &mut self,
        instruction: &Instruction<'m>,
        kind: SiteKind,
        group: &Group,
        word: u32,
        (and, also): (&str, String),
    ) {
        let flag = self.used.flag();
        let askew = self.askew(group);
        if kind == SiteKind::GlobalAccess {
            let reached = self.reached(group, word);
            self.used.span = true;
            let span = match askew {
                Askew::With(pointer) => {
                    let index = self.pointer(pointer, group.align);
                    aligned::names(index).1
                }
                Askew::Never | Askew::Perhaps => "%wspan".to_owned(),
            };
            put_in!(
                self.body,
                "setp.gt{and}.u32 %wxp{flag}, %wx{reached}, {span}{also};"
            );
            if askew == Askew::Perhaps {
                let (bits, askew) = (self.used.word(), self.used.flag());
                put_in!(
                    self.body,
                    "and.b32 %wx{bits}, %wx{word}, {};",
                    group.align - 1
                );
                put_in!(
                    self.body,
                    "setp.ne{and}.u32 %wxp{askew}, %wx{bits}, 0{also};"
                );
                put_in!(self.body, "or.pred %wxp{flag}, %wxp{flag}, %wxp{askew};");
            }
        } else {
            let (comparison, word, limit) = self.strays_in_block(group, askew, word);
            put_in!(
                self.body,
                "setp.{comparison}{and}.u32 %wxp{flag}, %wx{word}, {limit}{also};"
            );
        }
        let site = self.site(kind, instruction.at.line, group.align);
        self.used.strays = true;
        put_in!(self.body, "@%wxp{flag} mov.u32 %wxsite, {site};");
        put_in!(self.body, "@%wxp{flag} mov.b32 %wxaddr, %wx{word};");
    }

    /// A word with how far behind the first byte of the guest's memory a group's last byte is. What is carved from the top of the window comes
    /// before that memory, as offsets wrap, so that all that is the guest's lies in a row.
    fn reached(&mut self, group: &Group, word: u32) -> u32 {
        let last = group.end.saturating_sub(1);
        self.used.reaches.insert(last);
        let reached = self.used.word();
        put_in!(self.body, "add.u32 %wx{reached}, %wx{word}, %wxe{last};");
        reached
    }

    /// Whether a group can be askew.
    fn askew(&self, group: &Group) -> Askew {
        match &self.aligned {
            _ if group.align == 1 => Askew::Never,
            Some(aligned) => aligned.askew(group),
            None => Askew::Perhaps,
        }
    }

    /// The number of a pointer that has to be a multiple of something.
    fn pointer(&mut self, pointer: Pointer, align: u32) -> usize {
        let pointers = &mut self.used.pointers;
        let known = pointers.iter().position(|it| *it == (pointer, align));
        known.unwrap_or_else(|| {
            pointers.push((pointer, align));
            pointers.len() - 1
        })
    }

    /// Takes one more group into the checks of its stretch.
    fn join(&mut self, mut joined: Joined, group: &Group, word: u32) -> Joined {
        let room = joined.pointers.iter().position(Option::is_none);
        match (self.askew(group), room) {
            (Askew::Never, _) => {}
            // Under a guard the pointer may be askew and nothing wrong.
            (Askew::With(pointer), Some(room)) if group.guard.is_none() => {
                let index = Some(self.pointer(pointer, group.align));
                if !joined.pointers.contains(&index) {
                    joined.pointers[room] = index;
                }
            }
            _ => {
                let sum = &mut joined.low[align_bit(group.align)];
                self.take_in(sum, word, Join::Bits, group.guard);
            }
        }
        if group.space == Where::Global {
            let reached = self.reached(group, word);
            self.take_in(&mut joined.farthest, reached, Join::Farthest, group.guard);
            return joined;
        }
        let (comparison, limit) = self.farthest(group);
        let guard = self.guard(group.guard);
        match joined.flag {
            Some(flag) => put_in!(
                self.body,
                "{guard}setp.{comparison}.or.u32 %wxp{flag}, %wx{word}, {limit}, %wxp{flag};"
            ),
            None => {
                let flag = self.used.flag();
                let (and, also) = self.also(group.guard);
                put_in!(
                    self.body,
                    "setp.{comparison}{and}.u32 %wxp{flag}, %wx{word}, {limit}{also};"
                );
                joined.flag = Some(flag);
            }
        }
        joined
    }

    /// Takes a word into what is joined of such.
    fn take_in(&mut self, all: &mut Option<u32>, word: u32, join: Join, guard: Option<Guard>) {
        let all = match (*all, guard) {
            (Some(all), _) => all,
            (None, None) => {
                *all = Some(self.used.word());
                put_in!(self.body, "mov.b32 %wx{}, %wx{word};", all.unwrap_or(0));
                return;
            }
            (None, Some(_)) => {
                let fresh = self.used.word();
                *all = Some(fresh);
                put_in!(self.body, "mov.b32 %wx{fresh}, 0;");
                fresh
            }
        };
        let guard = self.guard(guard);
        let op = match join {
            Join::Bits => "or.b32",
            Join::Farthest => "max.u32",
        };
        put_in!(self.body, "{guard}{op} %wx{all}, %wx{all}, %wx{word};");
    }

    /// With what an offset in a block is compared for a group to be outside.
    fn farthest(&mut self, group: &Group) -> (&'static str, String) {
        let total = match (group.space, self.plan.blocks.shared_of[self.place]) {
            (Where::Shared, Some(Shared::Dynamic { .. })) => {
                self.used.shared = true;
                self.used.dynamic_masks |= 1;
                let limit = self.used.word();
                put_in!(self.body, "sub.u32 %wx{limit}, %wsm1, {};", group.end - 1);
                return ("gt", format!("%wx{limit}"));
            }
            (Where::Shared, Some(Shared::Static { block, .. })) => block.total,
            _ => self.plan.blocks.local.total,
        };
        match total.checked_sub(group.end) {
            Some(limit) => ("gt", limit.to_string()),
            None => ("ge", "0".to_owned()),
        }
    }

    /// Finds the stretches whose checks are joined: those with many, and those of loops, which run often.
    pub(super) fn join_checks(&mut self) {
        let (ways, code) = (self.ways, self.code);
        let mut checks = vec![0_u32; ways.stretches];
        for group in &ways.groups {
            if is_checked(group.space) && self.can_stray(group) {
                checks[group.stretch] += 1;
            }
        }
        self.is_joined = checks.iter().map(|&checks| checks > MAX_NOTED).collect();
        // How many branches back lead over each statement.
        let mut over = vec![0_i32; code.statements.len() + 1];
        for (index, step) in code.statements.iter().enumerate() {
            if let Step::Instruction(instruction) = step
                && instruction.opcode == "bra"
                && let Some(Value::Label(label)) = instruction.operands.last()
                && let Some(place) = self.places[*label].filter(|&place| place <= index)
            {
                over[place] += 1;
                over[index] -= 1;
            }
        }
        let mut depth = 0;
        for (of, over) in ways.of.iter().zip(over) {
            depth += over;
            for (_, way) in of.iter().flatten() {
                if let Way::Group(group, _) = way
                    && depth > 0
                {
                    self.is_joined[ways.groups[*group].stretch] = true;
                }
            }
        }
    }

    /// Where the checks of a stretch are joined: notes the stretch, by the line of its first access, where any of them failed.
    pub(super) fn note_joined(&mut self) {
        let Some(joined) = self.joined.take() else {
            return;
        };
        self.body.line = joined.line;
        let site = self.site(joined.kind, joined.line, 0);
        self.used.strays = true;
        let mut bits = None;
        for (power, sum) in joined.low.iter().enumerate() {
            let Some(sum) = sum else { continue };
            let rest = bits.map_or("0".to_owned(), |bits| format!("%wx{bits}"));
            let sought = self.used.word();
            // (sum & (align - 1)) | rest
            put_in!(
                self.body,
                "lop3.b32 %wx{sought}, %wx{sum}, {}, {rest}, 234;",
                (1_u32 << power) - 1
            );
            bits = Some(sought);
        }
        for index in joined.pointers.into_iter().flatten() {
            let (askew, _) = aligned::names(index);
            let sought = self.used.word();
            match bits {
                Some(bits) => put_in!(self.body, "or.b32 %wx{sought}, %wx{bits}, {askew};"),
                None => put_in!(self.body, "mov.b32 %wx{sought}, {askew};"),
            }
            bits = Some(sought);
        }
        let mut flag = joined.flag;
        let conditions = [(bits, "ne", "0"), (joined.farthest, "gt", "%wspan")];
        for (word, comparison, limit) in conditions {
            let Some(word) = word else { continue };
            self.used.span |= limit == "%wspan";
            match flag {
                Some(flag) => put_in!(
                    self.body,
                    "setp.{comparison}.or.u32 %wxp{flag}, %wx{word}, {limit}, %wxp{flag};"
                ),
                None => {
                    let fresh = self.used.flag();
                    put_in!(
                        self.body,
                        "setp.{comparison}.u32 %wxp{fresh}, %wx{word}, {limit};"
                    );
                    flag = Some(fresh);
                }
            }
        }
        let Some(flag) = flag else { return };
        put_in!(self.body, "@%wxp{flag} mov.u32 %wxsite, {site};");
    }

    /// How a word is compared with what to see that a group is outside its block, or askew: low bits that should be zero are turned to the top, where
    /// they make the offset too large.
    fn strays_in_block(
        &mut self,
        group: &Group,
        askew: Askew,
        mut word: u32,
    ) -> (&'static str, u32, String) {
        let shift = match askew {
            Askew::Never => 0,
            Askew::With(_) | Askew::Perhaps => group.align.trailing_zeros(),
        };
        if shift > 0 {
            let turned = self.used.word();
            put_in!(
                self.body,
                "shf.r.wrap.b32 %wx{turned}, %wx{word}, %wx{word}, {shift};"
            );
            word = turned;
        }
        let total = match (group.space, self.plan.blocks.shared_of[self.place]) {
            (Where::Shared, Some(Shared::Dynamic { .. })) => {
                self.used.shared = true;
                self.used.dynamic_masks |= 1;
                let limit = self.used.word();
                put_in!(self.body, "sub.u32 %wx{limit}, %wsm1, {};", group.end - 1);
                if shift > 0 {
                    put_in!(self.body, "shr.u32 %wx{limit}, %wx{limit}, {shift};");
                }
                return ("gt", word, format!("%wx{limit}"));
            }
            (Where::Shared, Some(Shared::Static { block, .. })) => block.total,
            _ => self.plan.blocks.local.total,
        };
        match total.checked_sub(group.end) {
            Some(limit) => ("gt", word, (limit >> shift).to_string()),
            None => ("ge", word, "0".to_owned()),
        }
    }
}
