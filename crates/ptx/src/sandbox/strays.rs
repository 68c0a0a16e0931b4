//! Reports of accesses outside memory: a check beside each confined address, which nothing of confinement depends on.

use super::access::{Group, Origin, Way, Where};
use super::address::Computed;
use super::blocks::Shared;
use super::emit::Emitter;
use super::names::{Guard, Instruction, Step, Value};
use super::text::put_in;
use crate::confined::{SiteKind, WindowForm};

/// Checks of one stretch whose outcomes are joined. Bits that no address may have are summed up, which takes an instruction for two addresses, and
/// looked at where the stretch ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    kind: SiteKind,
    line: u32,
    /// Set where an offset in a block is too large.
    flag: Option<u32>,
    /// The word with the bits of all high words.
    high: Option<u32>,
    /// Those with the bits of low words: of all that only have to be aligned, and of those that have to be in a masked window; by what they
    /// have to be multiples of.
    low: [[Option<u32>; 6]; 2],
}

impl Joined {
    fn new(kind: SiteKind, line: u32) -> Self {
        Self {
            kind,
            line,
            flag: None,
            high: None,
            low: [[None; 6]; 2],
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
    pub(super) fn check(
        &mut self,
        instruction: &Instruction<'m>,
        group: &Group,
        computed: &Computed,
    ) {
        let kind = match group.space {
            Where::Shared => SiteKind::SharedAccess,
            Where::Local => SiteKind::LocalAccess,
            _ => SiteKind::GlobalAccess,
        };
        if self.is_joined.get(group.stretch) == Some(&true) {
            let line = instruction.at.line;
            let joined = self.joined.take().unwrap_or(Joined::new(kind, line));
            self.joined = Some(self.join(joined, group, computed));
            return;
        }
        let (comparison, word, limit) = match kind {
            SiteKind::GlobalAccess => self.strays_in_window(group, computed),
            _ => self.strays_in_block(group, computed),
        };
        let (and, also) = self.also(group.guard);
        let flag = self.used.flag();
        put_in!(
            self.body,
            "setp.{comparison}{and}.u32 %wxp{flag}, %wx{word}, {limit}{also};"
        );
        self.note(instruction, kind, group.align, flag, computed);
    }

    /// Takes one more group into the checks of its stretch.
    fn join(&mut self, mut joined: Joined, group: &Group, computed: &Computed) -> Joined {
        let is_global = group.space == Where::Global;
        let is_masked = is_global && self.plan.options.window == WindowForm::Masked;
        let word = computed.word;
        if group.align > 1 || is_masked {
            let sum = &mut joined.low[usize::from(is_masked)][align_bit(group.align)];
            self.take_in(sum, word, group.guard);
        }
        if let Some(high) = computed.high {
            self.take_in(&mut joined.high, high, group.guard);
        }
        if is_masked && group.end > group.align {
            let last = self.used.word();
            put_in!(
                self.body,
                "add.u32 %wx{last}, %wx{word}, {};",
                group.end - 1
            );
            self.take_in(&mut joined.low[1][0], last, group.guard);
        }
        if !is_global {
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
        }
        joined
    }

    /// Takes the bits of a word into a sum of such.
    fn take_in(&mut self, sum: &mut Option<u32>, word: u32, guard: Option<Guard>) {
        let sum = match (*sum, guard) {
            (Some(sum), _) => sum,
            (None, None) => {
                *sum = Some(self.used.word());
                put_in!(self.body, "mov.b32 %wx{}, %wx{word};", sum.unwrap_or(0));
                return;
            }
            (None, Some(_)) => {
                let fresh = self.used.word();
                *sum = Some(fresh);
                put_in!(self.body, "mov.b32 %wx{fresh}, 0;");
                fresh
            }
        };
        let guard = self.guard(guard);
        put_in!(self.body, "{guard}or.b32 %wx{sum}, %wx{sum}, %wx{word};");
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
        let mut bits = joined.high;
        for (is_masked, sums) in joined.low.iter().enumerate() {
            for (power, sum) in sums.iter().enumerate() {
                let Some(sum) = sum else { continue };
                let rest = bits.map_or("0".to_owned(), |bits| format!("%wx{bits}"));
                let sought = self.used.word();
                let align = 1_u32 << power;
                if is_masked == 1 {
                    // (sum & ~mask) | rest
                    self.used.masks |= align;
                    put_in!(
                        self.body,
                        "lop3.b32 %wx{sought}, %wx{sum}, %wm{align}, {rest}, 186;"
                    );
                } else {
                    // (sum & (align - 1)) | rest
                    put_in!(
                        self.body,
                        "lop3.b32 %wx{sought}, %wx{sum}, {}, {rest}, 234;",
                        align - 1
                    );
                }
                bits = Some(sought);
            }
        }
        let flag = match (bits, joined.flag) {
            (Some(bits), Some(flag)) => {
                put_in!(
                    self.body,
                    "setp.ne.or.u32 %wxp{flag}, %wx{bits}, 0, %wxp{flag};"
                );
                flag
            }
            (Some(bits), None) => {
                let flag = self.used.flag();
                put_in!(self.body, "setp.ne.u32 %wxp{flag}, %wx{bits}, 0;");
                flag
            }
            (None, Some(flag)) => flag,
            (None, None) => return,
        };
        put_in!(self.body, "@%wxp{flag} mov.u32 %wxsite, {site};");
    }

    /// Notes a place and its address where a flag is set.
    pub(super) fn note(
        &mut self,
        instruction: &Instruction<'m>,
        kind: SiteKind,
        bytes: u32,
        flag: u32,
        computed: &Computed,
    ) {
        let site = self.site(kind, instruction.at.line, bytes);
        self.used.strays = true;
        put_in!(self.body, "@%wxp{flag} mov.u32 %wxsite, {site};");
        match &computed.whole {
            Some(whole) => put_in!(self.body, "@%wxp{flag} mov.b64 %wxaddr, {whole};"),
            None => put_in!(
                self.body,
                "@%wxp{flag} cvt.u64.u32 %wxaddr, %wx{};",
                computed.word
            ),
        }
    }

    /// A word that is not zero where an address or its alignment is not right: the bits of it that the window does not have.
    pub(super) fn strays_in_window(
        &mut self,
        group: &Group,
        computed: &Computed,
    ) -> (&'static str, u32, String) {
        let bits = self.used.word();
        let (word, align) = (computed.word, group.align);
        let high = computed
            .high
            .map_or("0".to_owned(), |high| format!("%wx{high}"));
        let is_whole = self.plan.options.window == WindowForm::Whole;
        if is_whole {
            // (word & (align - 1)) | high
            put_in!(
                self.body,
                "lop3.b32 %wx{bits}, %wx{word}, {}, {high}, 234;",
                align - 1
            );
        } else {
            // (word & ~mask) | high
            self.used.masks |= align;
            put_in!(
                self.body,
                "lop3.b32 %wx{bits}, %wx{word}, %wm{align}, {high}, 186;"
            );
        }
        // The last byte too; in the whole form what lies behind 4 GiB is the guard's alone.
        if group.end > align && !is_whole {
            let last = self.used.word();
            self.used.masks |= 1;
            put_in!(
                self.body,
                "add.u32 %wx{last}, %wx{word}, {};",
                group.end - 1
            );
            put_in!(
                self.body,
                "lop3.b32 %wx{bits}, %wx{last}, %wm1, %wx{bits}, 186;"
            );
        }
        ("ne", bits, "0".to_owned())
    }

    /// The same for a block: low bits that should be zero are turned to the top, where they make the offset too large.
    pub(super) fn strays_in_block(
        &mut self,
        group: &Group,
        computed: &Computed,
    ) -> (&'static str, u32, String) {
        let shift = group.align.trailing_zeros();
        let mut word = computed.word;
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
