//! Memory that is set to zero before the guest's code runs, so that nothing of another kernel is read.
//!
//! What is usual runs straight on: a loop of ours, even one that is hardly ever gone round, keeps the assembler from moving constants out of the
//! guest's loops. Loops stand where few threads have much to clear, behind a branch over them.

use std::ops::Range;

use super::blocks::{Block, Shared};
use super::control::Start;
use super::emit::{Emitter, OwnLabel};
use super::head::at_offset;
use super::text::{put, put_in};

/// What a thread clears at once.
const UNIT: u32 = 16;
/// How many threads a block is taken to have at least, where it is not said.
const USUAL_THREADS: u32 = 256;
/// How many times a thread clears a unit before there is a loop.
const MAX_ROUNDS: u32 = 8;
/// The same where only the launch knows how much there is.
const DYNAMIC_ROUNDS: u32 = 4;
/// Most bytes that are cleared by a thread alone without a loop.
const MAX_UNROLLED: u32 = 512;
/// Most bytes of shared memory that each thread of a small block clears without a loop.
const MAX_UNROLLED_SHARED: u32 = 10 << 10;

/// The threads of a block, as code that clears together sees them.
struct Team {
    /// The word with this thread's first unit, as an offset in bytes.
    first: u32,
    /// How far its next unit is, as an operand.
    stride: String,
    /// Their number, where it is known.
    threads: Option<u32>,
}

impl Emitter<'_, '_> {
    /// Sets those bytes of the block of local memory to zero that may be read before they are stored to.
    pub(super) fn clear_local(&mut self, unstored: &[Range<u32>]) {
        let bytes: u32 = unstored.iter().map(|range| range.end - range.start).sum();
        if !self.has_local_block() || bytes == 0 {
            return;
        }
        let size = self.plan.blocks.local.size;
        let zeros = self.zeros();
        if bytes <= MAX_UNROLLED {
            for range in unstored {
                self.clear_range(range.clone(), &zeros);
            }
            return;
        }
        let counter = self.used.word();
        put_in!(self.body, "mov.u32 %wx{counter}, 0;");
        let start = self.start_of_loop();
        let block = Block {
            power: None,
            ..self.plan.blocks.local
        };
        let number = self.in_block("o", "%wlb", block, &format!("%wx{counter}"), UNIT, UNIT);
        put_in!(
            self.body,
            "st.local.v4.u32 [%wo{number}], {};",
            vector(&zeros, 4)
        );
        let whole = size - size % UNIT;
        self.go_round(counter, &UNIT.to_string(), &whole.to_string(), &start);
        self.clear_range(whole..size, &zeros);
    }

    /// Stores zeros to bytes of the block of local memory, as many at once as their place allows.
    fn clear_range(&mut self, range: Range<u32>, zero: &str) {
        let mut at = range.start;
        while at < range.end {
            let left = (range.end - at).ilog2();
            let width = 1 << left.min(at.trailing_zeros()).min(UNIT.ilog2());
            let address = at_offset("wc_local", at);
            match width {
                1 | 2 | 4 => put_in!(self.body, "st.local.b{} {address}, {zero};", width * 8),
                _ => put_in!(
                    self.body,
                    "st.local.v{}.u32 {address}, {};",
                    width / 4,
                    vector(zero, width / 4)
                ),
            }
            at += width;
        }
    }

    /// A register that holds zero.
    fn zeros(&mut self) -> String {
        let zero = self.used.word();
        put_in!(self.body, "mov.u32 %wx{zero}, 0;");
        format!("%wx{zero}")
    }

    /// A scratch register with the bytes that an address in dynamic shared memory is cut to, less one.
    pub(super) fn dynamic_bytes(&mut self, padding: u32) -> u32 {
        let bytes = self.used.word();
        put_in!(self.body, "mov.u32 %wx{bytes}, %dynamic_smem_size;");
        put_in!(self.body, "sub.u32 %wx{bytes}, %wx{bytes}, {padding};");
        bytes
    }

    /// Writes where a loop of ours begins.
    fn start_of_loop(&mut self) -> Start {
        self.used.fuel = true;
        let (head, label) = (self.label(), self.label());
        self.head_of_loop(head);
        put!(self.body, "wc_L{label}:");
        let target = format!("wc_L{label}");
        Start { head, target }
    }

    /// Goes back while a counter, which is moved on, is below a limit.
    fn go_round(&mut self, counter: u32, step: &str, limit: &str, start: &Start) {
        let flag = self.used.flag();
        put_in!(self.body, "add.u32 %wx{counter}, %wx{counter}, {step};");
        put_in!(self.body, "setp.lt.u32 %wxp{flag}, %wx{counter}, {limit};");
        // Light enough for what is cleared at most to take less fuel than one look at the clock gives.
        let guard = (".and", format!(", %wxp{flag}"));
        self.go_back(1, guard, start);
    }

    /// Sets shared memory to zero, all threads of the block together. They wait for each other by [`await_clearing`](Self::await_clearing).
    pub(super) fn clear_shared(&mut self) {
        let Some(shared) = self.cleared_block() else {
            return;
        };
        self.used.shared = true;
        let team = self.team();
        match shared {
            Shared::Static { number, block } => self.clear_static(number, block, &team),
            Shared::Dynamic { padding, .. } => self.clear_dynamic(padding, &team),
        }
    }

    /// Waits until all threads have cleared their part of shared memory.
    pub(super) fn await_clearing(&mut self) {
        if self.cleared_block().is_some() {
            put_in!(self.body, "bar.sync 0;");
        }
    }

    /// The shared memory that is cleared.
    fn cleared_block(&self) -> Option<Shared> {
        let is_cleared = self.plan.options.clear_shared;
        self.plan.blocks.shared_of[self.place].filter(|_| is_cleared)
    }

    /// The block's shape, where the guest says it.
    fn shape(&self) -> Option<[u32; 3]> {
        let is_shape = |name| self.plan.program.module.text(name) == "reqntid";
        let directives = &self.code.source.directives;
        let shape = directives
            .iter()
            .find(|directive| is_shape(directive.name))?;
        let side = |axis: usize| match shape.values.get(axis) {
            Some(&side) => u32::try_from(side)
                .ok()
                .filter(|side| (1..=1024).contains(side)),
            None => Some(1),
        };
        Some([side(0)?, side(1)?, side(2)?])
    }

    /// Writes what the threads need to clear together.
    fn team(&mut self) -> Team {
        let shape = self.shape();
        let first = self.used.word();
        put_in!(self.body, "mov.u32 %wx{first}, %tid.x;");
        let threads = shape.map(|sides| sides.iter().product::<u32>());
        let stride = match shape {
            Some([width, height, depth]) => {
                let mut line = None;
                if depth > 1 {
                    let plane = self.used.word();
                    put_in!(self.body, "mov.u32 %wx{plane}, %tid.z;");
                    put_in!(self.body, "mul.lo.u32 %wx{plane}, %wx{plane}, {height};");
                    line = Some(plane);
                }
                if height > 1 {
                    let row = self.used.word();
                    put_in!(self.body, "mov.u32 %wx{row}, %tid.y;");
                    if let Some(plane) = line {
                        put_in!(self.body, "add.u32 %wx{row}, %wx{row}, %wx{plane};");
                    }
                    line = Some(row);
                }
                if let Some(line) = line {
                    put_in!(
                        self.body,
                        "mad.lo.u32 %wx{first}, %wx{line}, {width}, %wx{first};"
                    );
                }
                (width * height * depth * UNIT).to_string()
            }
            None => {
                let [row, plane, width, height, depth] = [(); 5].map(|()| self.used.word());
                for (word, register) in [
                    (row, "%tid.y"),
                    (plane, "%tid.z"),
                    (width, "%ntid.x"),
                    (height, "%ntid.y"),
                    (depth, "%ntid.z"),
                ] {
                    put_in!(self.body, "mov.u32 %wx{word}, {register};");
                }
                for (x, times, y) in [(row, plane, height), (first, row, width)] {
                    put_in!(self.body, "mad.lo.u32 %wx{x}, %wx{times}, %wx{y}, %wx{x};");
                }
                for other in [height, depth] {
                    put_in!(self.body, "mul.lo.u32 %wx{width}, %wx{width}, %wx{other};");
                }
                put_in!(self.body, "mul.lo.u32 %wx{width}, %wx{width}, {UNIT};");
                format!("%wx{width}")
            }
        };
        put_in!(self.body, "mul.lo.u32 %wx{first}, %wx{first}, {UNIT};");
        Team {
            first,
            stride,
            threads,
        }
    }

    /// The unit after one, for this thread.
    fn next_unit(&mut self, team: &Team, unit: u32) -> u32 {
        let next = self.used.word();
        put_in!(self.body, "add.u32 %wx{next}, %wx{unit}, {};", team.stride);
        next
    }

    /// How far all threads come together in some rounds.
    fn rounds(&mut self, team: &Team, rounds: u32) -> u32 {
        let reached = self.used.word();
        put_in!(self.body, "mov.u32 %wx{reached}, {};", team.stride);
        put_in!(
            self.body,
            "mul.lo.u32 %wx{reached}, %wx{reached}, {rounds};"
        );
        reached
    }

    fn clear_static(&mut self, number: usize, block: Block, team: &Team) {
        let name = format!("wc_shared{number}");
        let zeros = self.zeros();
        let zeros = vector(&zeros, 4);
        let whole = Block {
            power: None,
            ..block
        };
        let units = block.size / UNIT;
        let at_once = team.threads.unwrap_or(USUAL_THREADS);
        let rounds = units.div_ceil(at_once).min(MAX_ROUNDS);
        let mut unit = team.first;
        for round in 0..rounds {
            let flag = self.used.flag();
            put_in!(
                self.body,
                "setp.lt.u32 %wxp{flag}, %wx{unit}, {};",
                block.size
            );
            let number = self.in_block("s", "%wsb", whole, &format!("%wx{unit}"), UNIT, UNIT);
            put_in!(
                self.body,
                "@%wxp{flag} st.shared.v4.u32 [%ws{number}], {zeros};"
            );
            if round + 1 < rounds {
                unit = self.next_unit(team, unit);
            }
        }
        if team
            .threads
            .is_some_and(|threads| rounds * threads >= units)
        {
            return;
        }
        let end = self.label();
        let (reached, flag) = (self.rounds(team, rounds), self.used.flag());
        put_in!(
            self.body,
            "setp.ge.u32 %wxp{flag}, %wx{reached}, {};",
            block.size
        );
        put_in!(self.body, "@%wxp{flag} bra wc_L{end};");
        if self.used.loops && block.size <= MAX_UNROLLED_SHARED {
            for at in (0..block.size).step_by(UNIT as usize) {
                let address = at_offset(&name, at);
                put_in!(self.body, "st.shared.v4.u32 {address}, {zeros};");
            }
        } else {
            let counter = self.next_unit(team, unit);
            let start = self.start_of_loop();
            let number = self.in_block("s", "%wsb", whole, &format!("%wx{counter}"), UNIT, UNIT);
            put_in!(self.body, "st.shared.v4.u32 [%ws{number}], {zeros};");
            self.go_round(counter, &team.stride, &block.size.to_string(), &start);
        }
        put!(self.body, "wc_L{end}:");
    }

    /// Dynamic shared memory: 2^n bytes that an address is cut to, and the padding behind them. Many kernels have no more than a unit for each
    /// thread, and leave it at that.
    fn clear_dynamic(&mut self, padding: u32, team: &Team) {
        let zeros = self.zeros();
        let zeros = vector(&zeros, 4);
        self.used.dynamic_masks |= UNIT | 1;
        self.clear_unit(team.first, &zeros);
        let all = self.clear_padding(padding, team, &zeros);
        let end = self.label();
        self.skip_if_reached(team, 1, all, end);
        let mut unit = team.first;
        for _ in 1..DYNAMIC_ROUNDS {
            unit = self.next_unit(team, unit);
            self.clear_unit(unit, &zeros);
        }
        self.skip_if_reached(team, DYNAMIC_ROUNDS, all, end);
        let last = self.used.word();
        put_in!(self.body, "mov.u32 %wx{last}, -1;");
        let number = self.cut(&format!("%wx{last}"));
        for at in (0..padding).step_by(UNIT as usize) {
            let address = at_offset(&format!("%ws{number}"), at);
            put_in!(self.body, "st.shared.v4.u32 {address}, {zeros};");
        }
        let counter = self.used.word();
        put_in!(self.body, "mov.u32 %wx{counter}, %wx{};", team.first);
        let start = self.start_of_loop();
        let number = self.cut(&format!("%wx{counter}"));
        put_in!(self.body, "st.shared.v4.u32 [%ws{number}], {zeros};");
        let limit = self.dynamic_bytes(padding);
        self.go_round(counter, &team.stride, &format!("%wx{limit}"), &start);
        put!(self.body, "wc_L{end}:");
    }

    /// Clears the padding, from its end on; gives the flag that says whether all of it was reached: there are threads enough, and no more of it
    /// than what it is behind.
    fn clear_padding(&mut self, padding: u32, team: &Team, zeros: &str) -> u32 {
        let at_once = team.threads.unwrap_or(USUAL_THREADS) * UNIT;
        let rounds = padding.div_ceil(at_once);
        let mut behind = team.first;
        for round in 0..rounds {
            let (flag, from_end) = (self.used.flag(), self.used.word());
            put_in!(self.body, "setp.lt.u32 %wxp{flag}, %wx{behind}, {padding};");
            put_in!(self.body, "sub.u32 %wx{from_end}, %wsm16, %wx{behind};");
            let number = self.cut(&format!("%wx{from_end}"));
            let address = at_offset(&format!("%ws{number}"), padding - UNIT);
            put_in!(
                self.body,
                "@%wxp{flag} st.shared.v4.u32 {address}, {zeros};"
            );
            if round + 1 < rounds {
                behind = self.next_unit(team, behind);
            }
        }
        let (reached, all) = (self.rounds(team, rounds), self.used.flag());
        put_in!(self.body, "setp.ge.u32 %wxp{all}, %wx{reached}, {padding};");
        put_in!(
            self.body,
            "setp.ge.and.u32 %wxp{all}, %wsm16, {}, %wxp{all};",
            padding.saturating_sub(2 * UNIT)
        );
        all
    }

    /// Leaves the rest out where some rounds have reached all, and a flag is set.
    fn skip_if_reached(&mut self, team: &Team, rounds: u32, all: u32, end: OwnLabel) {
        let (reached, flag) = (self.rounds(team, rounds), self.used.flag());
        put_in!(
            self.body,
            "setp.gt.and.u32 %wxp{flag}, %wx{reached}, %wsm16, %wxp{all};"
        );
        put_in!(self.body, "@%wxp{flag} bra wc_L{end};");
    }

    /// Clears a unit of dynamic shared memory, if there is one there.
    fn clear_unit(&mut self, unit: u32, zeros: &str) {
        let flag = self.used.flag();
        put_in!(self.body, "setp.le.u32 %wxp{flag}, %wx{unit}, %wsm16;");
        let number = self.cut(&format!("%wx{unit}"));
        put_in!(
            self.body,
            "@%wxp{flag} st.shared.v4.u32 [%ws{number}], {zeros};"
        );
    }

    /// The address of a unit in dynamic shared memory; gives the number of its register.
    fn cut(&mut self, unit: &str) -> u32 {
        let (low, number) = (self.used.low(), self.used.address("s"));
        put_in!(self.body, "and.b32 %wl{low}, {unit}, %wsm16;");
        put_in!(self.body, "add.u32 %ws{number}, %wl{low}, %wsb;");
        number
    }
}

/// A vector of one value.
fn vector(value: &str, width: u32) -> String {
    let values: Vec<_> = (0..width).map(|_| value).collect();
    format!("{{{}}}", values.join(", "))
}
