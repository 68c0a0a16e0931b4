//! Random kernels: any bytes are one, so that a fuzzer can steer. Every instruction is well typed; where its addresses point is another
//! matter. A tame kernel keeps within its memory and ends; a wild one does what it likes.

macro_rules! emit {
    ($generator:expr, $($what:tt)*) => {
        writeln!($generator.text, $($what)*).expect("a string")
    };
}

#[path = "grammar/instructions.rs"]
mod instructions;

use std::fmt::Write as _;

/// Bytes as a sequence of choices; zero where there are no more, which is the simplest choice everywhere.
#[derive(Debug)]
pub(crate) struct Choices<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.iter(),
        }
    }

    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    /// A number below a small end.
    fn small(&mut self, end: u8) -> u32 {
        u32::from(self.byte() % end.max(1))
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// True once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    fn is_over(&self) -> bool {
        self.bytes.len() == 0
    }
}

/// What kernels may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Tame,
    Wild,
}

impl Manner {
    /// Of a byte, for whoever has nothing else to choose by.
    pub(crate) fn of(byte: u8) -> Self {
        if byte.is_multiple_of(2) {
            Self::Tame
        } else {
            Self::Wild
        }
    }
}

/// Bytes at each pointer parameter that a tame kernel uses.
pub(crate) const AREA: u32 = 4096;
/// Bytes of dynamic shared memory that it needs.
pub(crate) const DYNAMIC: u32 = 256;

const CONST_BYTES: u32 = 64;
const GLOBAL_BYTES: u32 = 128;
const LOCAL_BYTES: u32 = 128;
/// Statements of a kernel, at most.
const MOST: usize = 120;
const DEEPEST: usize = 3;

#[derive(Debug)]
struct Generator<'a> {
    choices: Choices<'a>,
    manner: Manner,
    text: String,
    labels: usize,
    statements: usize,
    /// Functions that can be called from here: those before.
    functions: usize,
    /// Whether the function has parameters of a kernel.
    in_kernel: bool,
    /// Bytes of the shared variable.
    shared_bytes: u32,
    uses_dynamic: bool,
    loops: usize,
}

/// A kernel `k(p0: pointer, p1: pointer, n: u32, m: u32, x: u64, s: 24 bytes)` made of bytes.
pub(crate) fn kernel(choices: Choices<'_>, manner: Manner) -> String {
    let mut generator = Generator {
        choices,
        manner,
        text: String::new(),
        labels: 0,
        statements: 0,
        functions: 0,
        in_kernel: false,
        shared_bytes: 0,
        uses_dynamic: false,
        loops: 0,
    };
    generator.module();
    generator.text
}

impl Generator<'_> {
    fn module(&mut self) {
        self.shared_bytes = self.choices.pick(&[64, 100, 256, 1000, 4096]);
        self.uses_dynamic = self.choices.once_in(3);
        emit!(self, ".version 7.8\n.target sm_80\n.address_size 64");
        let bytes: Vec<String> = (0..CONST_BYTES)
            .map(|at| (at * 7 % 251).to_string())
            .collect();
        emit!(
            self,
            ".const .align 8 .b8 c0[{CONST_BYTES}] = {{{}}};",
            bytes.join(",")
        );
        emit!(self, ".global .align 16 .b8 g0[{GLOBAL_BYTES}];");
        emit!(self, ".global .align 4 .u32 g1[4] = {{1, 2, 3, 4}};");
        emit!(self, ".global .align 8 .u64 g2[2] = {{g0, generic(g1)+4}};");
        emit!(self, ".shared .align 16 .b8 s0[{}];", self.shared_bytes);
        if self.uses_dynamic {
            emit!(self, ".extern .shared .align 16 .b8 s1[];");
        }
        for function in 0..self.choices.below(3) {
            self.function(function);
            self.functions = function + 1;
        }
        self.in_kernel = true;
        emit!(
            self,
            ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u32 n, .param .u32 m, .param .u64 x, .param .align 8 .b8 s[24])\n{{"
        );
        self.registers();
        emit!(self, ".local .align 16 .b8 l0[{LOCAL_BYTES}];");
        self.start();
        while self.statements < MOST && !self.choices.is_over() {
            self.statement(0);
        }
        self.finish();
        emit!(self, "ret;\n}}");
    }

    fn registers(&mut self) {
        emit!(
            self,
            ".reg .b32 %r<8>, %s<4>, %i<8>, %t<4>; .reg .b64 %q<4>, %a<4>, %l<2>, %c<2>, %u<4>; .reg .b16 %h<4>; .reg .f32 %f<4>; .reg .pred %p<4>;"
        );
    }

    /// Gives some registers a value; the others are read as they are found.
    fn start(&mut self) {
        emit!(
            self,
            "ld.param.u32 %r0, [n]; ld.param.u32 %r1, [m]; ld.param.u64 %q0, [x]; mov.u32 %r2, %tid.x;"
        );
        emit!(
            self,
            "ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; mov.u32 %s0, s0; mov.u64 %l0, l0; mov.u64 %c0, c0;"
        );
        if self.choices.once_in(2) {
            emit!(
                self,
                "mov.u64 %a2, g0; cvta.global.u64 %a2, %a2; mov.b64 %q1, {{%r0, %r1}}; setp.lt.u32 %p0, %r0, %r1;"
            );
        }
    }

    /// Writes what it has computed to the first parameter's memory.
    fn finish(&mut self) {
        emit!(self, "ld.param.u64 %a0, [p0];");
        // Each thread has a place of its own.
        emit!(
            self,
            "mov.u32 %t0, %tid.x; mul.wide.u32 %u0, %t0, 128; add.u64 %a0, %a0, %u0;"
        );
        for register in 0..8 {
            emit!(
                self,
                "st.global.u32 [%a0+{}], %r{register};",
                AREA + 4 * register
            );
        }
        for register in 0..4 {
            emit!(
                self,
                "st.global.u64 [%a0+{}], %q{register};",
                AREA + 32 + 8 * register
            );
            emit!(
                self,
                "st.global.u16 [%a0+{}], %h{register};",
                AREA + 64 + 2 * register
            );
            emit!(
                self,
                "st.global.f32 [%a0+{}], %f{register};",
                AREA + 80 + 4 * register
            );
            emit!(
                self,
                "selp.u32 %t1, 1, 0, %p{register}; st.global.u8 [%a0+{}], %t1;",
                AREA + 96 + register
            );
        }
    }

    /// A function of a number and a pointer.
    fn function(&mut self, number: usize) {
        self.in_kernel = false;
        emit!(
            self,
            ".func (.param .b32 out) f{number}(.param .b64 p0, .param .b32 n)\n{{"
        );
        self.registers();
        emit!(self, ".local .align 16 .b8 l0[{LOCAL_BYTES}];");
        // Registers and frames of a function hold anything at first, while those of a kernel are zero on the CPU device.
        for register in 0..8 {
            emit!(
                self,
                "mov.u32 %r{register}, {register}; mov.u32 %i{register}, 1;"
            );
        }
        for register in 0..4 {
            emit!(
                self,
                "mov.u64 %q{register}, {register}; mov.u64 %a{register}, 0; mov.u64 %u{register}, 0; mov.u32 %s{register}, 0; mov.u32 %t{register}, 0;"
            );
            emit!(
                self,
                "mov.b16 %h{register}, {register}; mov.f32 %f{register}, 0f00000000; setp.eq.u32 %p{register}, %r{register}, 1;"
            );
        }
        emit!(self, "mov.u64 %l0, l0; mov.u64 %l1, l0; mov.u64 %c1, c0;");
        for at in (0..LOCAL_BYTES).step_by(16) {
            emit!(self, "st.local.v2.u64 [l0+{at}], {{%q1, %q2}};");
        }
        emit!(
            self,
            "ld.param.b64 %a0, [p0]; ld.param.b32 %r0, [n]; mov.u64 %a1, %a0; mov.u64 %a2, %a0; mov.u32 %s0, s0; mov.u32 %s1, s0; mov.u64 %c0, c0;"
        );
        if self.choices.once_in(2) {
            // It calls itself, as deep as its argument says.
            let mask = match self.manner {
                Manner::Tame => "7",
                Manner::Wild => self.choices.pick(&["7", "-1"]),
            };
            let skip = self.label();
            emit!(
                self,
                "and.b32 %t0, %r0, {mask}; setp.eq.u32 %p3, %t0, 0; @%p3 bra {skip}; sub.u32 %t0, %t0, 1;"
            );
            self.call(number, "%t0");
            emit!(self, "{skip}:");
        }
        for _ in 0..1 + self.choices.below(6) {
            self.statement(1);
        }
        emit!(self, "st.param.b32 [out], %r1;\nret;\n}}");
    }

    fn call(&mut self, number: usize, argument: &str) {
        emit!(
            self,
            "{{ .param .b64 to; .param .b32 of; .param .b32 back; st.param.b64 [to], %a0; st.param.b32 [of], {argument};"
        );
        emit!(
            self,
            "call.uni (back), f{number}, (to, of); ld.param.b32 %r1, [back]; }}"
        );
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    fn r(&mut self) -> usize {
        self.choices.below(8)
    }

    fn four(&mut self) -> usize {
        self.choices.below(4)
    }

    fn statement(&mut self, depth: usize) {
        self.statements += 1;
        match self.choices.below(24) {
            0..=3 => self.word_operation(),
            4 | 5 => self.long_operation(),
            6 => self.float_operation(),
            7 | 8 => self.comparison(),
            9..=13 => self.access(),
            14 => self.atomic(),
            15 => self.copy(),
            16 => self.direct_access(),
            17 if depth < DEEPEST => self.branch(depth),
            18 if depth < DEEPEST => self.repeat(depth),
            19 if depth < DEEPEST => self.switch(depth),
            20 => self.address(),
            21 if self.functions > 0 => {
                let (function, argument) = (self.choices.below(self.functions), self.r());
                emit!(self, "and.b32 %t3, %r{argument}, 7;");
                self.call(function, "%t3");
            }
            22 => self.collective(depth),
            23 if self.manner == Manner::Wild => self.leave(),
            _ if depth < DEEPEST => self.scope(depth),
            _ => self.word_operation(),
        }
    }

    fn branch(&mut self, depth: usize) {
        let (p, not) = (self.four(), self.choices.pick(&["", "!"]));
        let [otherwise, end] = std::array::from_fn(|_| self.label());
        emit!(self, "@{not}%p{p} bra {otherwise};");
        self.body(depth);
        emit!(self, "bra {end};\n{otherwise}:");
        if self.choices.once_in(2) {
            self.body(depth);
        }
        emit!(self, "{end}:");
    }

    fn body(&mut self, depth: usize) {
        for _ in 0..1 + self.choices.below(4) {
            self.statement(depth + 1);
        }
    }

    fn repeat(&mut self, depth: usize) {
        let (i, r) = (self.loops % 8, self.r());
        self.loops += 1;
        let start = self.label();
        let mask = match self.manner {
            Manner::Tame => 7,
            Manner::Wild => self.choices.pick(&[7, 7, 7, -1]),
        };
        emit!(self, "and.b32 %i{i}, %r{r}, {mask};\n{start}:");
        self.body(depth);
        self.loops -= 1;
        match self.choices.below(3) {
            0 => emit!(
                self,
                "sub.u32 %i{i}, %i{i}, 1; setp.gt.s32 %p1, %i{i}, 0; @%p1 bra {start};"
            ),
            1 => {
                let end = self.label();
                emit!(
                    self,
                    "sub.u32 %i{i}, %i{i}, 1; setp.le.s32 %p1, %i{i}, 0; @%p1 bra {end}; bra {start};\n{end}:"
                );
            }
            _ => {
                // Two ways back.
                let again = self.label();
                emit!(
                    self,
                    "sub.u32 %i{i}, %i{i}, 1; setp.gt.s32 %p1, %i{i}, 3; @%p1 bra {start};"
                );
                emit!(
                    self,
                    "setp.le.s32 %p1, %i{i}, 0; @%p1 bra {again}; bra.uni {start};\n{again}:"
                );
            }
        }
    }

    fn switch(&mut self, depth: usize) {
        let r = self.r();
        let count = 2 + self.choices.below(3);
        let [table, end] = std::array::from_fn(|_| self.label());
        let labels: Vec<_> = (0..count).map(|_| self.label()).collect();
        let is_clamped = self.manner == Manner::Tame || self.choices.once_in(2);
        if is_clamped {
            emit!(self, "rem.u32 %t2, %r{r}, {count};");
        } else {
            emit!(self, "mov.u32 %t2, %r{r};");
        }
        emit!(
            self,
            "{table}: .branchtargets {};\nbrx.idx %t2, {table};",
            labels.join(", ")
        );
        for label in &labels {
            emit!(self, "{label}:");
            self.statement(depth + 1);
            if self.choices.once_in(2) {
                emit!(self, "bra {end};");
            }
        }
        emit!(self, "{end}:");
    }

    /// Names of its own, which hide those around it.
    fn scope(&mut self, depth: usize) {
        let r = self.r();
        emit!(
            self,
            "{{ .reg .b32 %r{r}; .reg .pred %p2; .local .align 16 .b8 l0[{LOCAL_BYTES}];"
        );
        self.body(depth);
        emit!(self, "}}");
    }
}
