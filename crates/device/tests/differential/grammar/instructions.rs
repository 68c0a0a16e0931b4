//! Single instructions of random kernels, and the addresses that they are given.

use std::fmt::Write as _;

use super::{AREA, CONST_BYTES, DYNAMIC, GLOBAL_BYTES, Generator, LOCAL_BYTES, Manner};

/// Where an address points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Const,
    Generic,
    Global,
    Local,
    Shared,
}

/// A memory access of some width.
#[derive(Clone, Copy)]
struct Width {
    /// As written in `ld` and `st`.
    suffix: &'static str,
    bytes: u32,
    /// Registers of its operand.
    registers: &'static str,
    count: usize,
}

const WIDTHS: [Width; 10] = {
    const fn width(
        suffix: &'static str,
        bytes: u32,
        registers: &'static str,
        count: usize,
    ) -> Width {
        Width {
            suffix,
            bytes,
            registers,
            count,
        }
    }
    [
        width("u32", 4, "r", 1),
        width("u64", 8, "q", 1),
        width("u8", 1, "h", 1),
        width("s16", 2, "h", 1),
        width("b32", 4, "r", 1),
        width("f32", 4, "f", 1),
        width("v2.u32", 8, "r", 2),
        width("v4.u32", 16, "r", 4),
        width("v2.u64", 16, "q", 2),
        width("v4.u8", 4, "h", 4),
    ]
};

impl Generator<'_> {
    pub(super) fn word_operation(&mut self) {
        const TWO: [&str; 16] = [
            "add.s32",
            "sub.u32",
            "mul.lo.u32",
            "mul.hi.s32",
            "and.b32",
            "or.b32",
            "xor.b32",
            "shl.b32",
            "shr.u32",
            "shr.s32",
            "min.s32",
            "max.u32",
            "div.u32",
            "rem.s32",
            "min.u32",
            "add.u32",
        ];
        let [d, a, b, c] = std::array::from_fn(|_| self.r());
        match self.choices.below(12) {
            0..=4 => {
                let operation = self.choices.pick(&TWO);
                emit!(self, "{operation} %r{d}, %r{a}, %r{b};");
            }
            5 | 6 => {
                let (operation, number) =
                    (self.choices.pick(&TWO), self.choices.word().cast_signed());
                emit!(self, "{operation} %r{d}, %r{a}, {number};");
            }
            7 => {
                let p = self.four();
                emit!(self, "@%p{p} mad.lo.u32 %r{d}, %r{a}, %r{b}, %r{c};");
            }
            8 => {
                let p = self.four();
                emit!(self, "selp.b32 %r{d}, %r{a}, %r{b}, %p{p};");
            }
            9 => {
                let from = self.choices.pick(&[
                    "%tid.x",
                    "%ntid.x",
                    "%ctaid.x",
                    "%nctaid.x",
                    "%laneid",
                    "%tid.y",
                ]);
                emit!(self, "mov.u32 %r{d}, {from};");
            }
            10 => {
                let operation = self.choices.pick(&[
                    "popc.b32", "clz.b32", "brev.b32", "not.b32", "neg.s32", "abs.s32", "mov.b32",
                ]);
                emit!(self, "{operation} %r{d}, %r{a};");
            }
            _ => match self.choices.below(5) {
                0 => emit!(self, "bfe.u32 %r{d}, %r{a}, %r{b}, %r{c};"),
                1 => emit!(self, "prmt.b32 %r{d}, %r{a}, %r{b}, %r{c};"),
                2 => emit!(self, "lop3.b32 %r{d}, %r{a}, %r{b}, %r{c}, 0x96;"),
                3 => {
                    let h = self.four();
                    emit!(self, "cvt.u16.u32 %h{h}, %r{a}; cvt.s32.s8 %r{d}, %h{h};");
                }
                _ => emit!(self, "shf.l.wrap.b32 %r{d}, %r{a}, %r{b}, %r{c};"),
            },
        }
    }

    pub(super) fn long_operation(&mut self) {
        let ([d, a, b], r) = (std::array::from_fn(|_| self.four()), self.r());
        match self.choices.below(7) {
            0 | 1 => {
                let operation = self.choices.pick(&[
                    "add.u64",
                    "sub.s64",
                    "mul.lo.u64",
                    "and.b64",
                    "xor.b64",
                    "max.s64",
                ]);
                emit!(self, "{operation} %q{d}, %q{a}, %q{b};");
            }
            2 => {
                let operation = self.choices.pick(&["shl.b64", "shr.u64", "shr.s64"]);
                emit!(self, "{operation} %q{d}, %q{a}, %r{r};");
            }
            3 => emit!(self, "cvt.s64.s32 %q{d}, %r{r};"),
            4 => emit!(self, "mul.wide.u32 %q{d}, %r{r}, %r{r};"),
            5 => emit!(self, "cvt.u32.u64 %r{r}, %q{a};"),
            _ => emit!(
                self,
                "mov.b64 {{%r{r}, %t0}}, %q{a}; mov.b64 %q{d}, {{%t0, %r{r}}};"
            ),
        }
    }

    pub(super) fn float_operation(&mut self) {
        let ([d, a, b], r) = (std::array::from_fn(|_| self.four()), self.r());
        match self.choices.below(4) {
            0 => emit!(self, "fma.rn.f32 %f{d}, %f{a}, %f{b}, %f{a};"),
            1 => emit!(self, "cvt.rn.f32.s32 %f{d}, %r{r};"),
            2 => emit!(self, "cvt.rzi.s32.f32 %r{r}, %f{a};"),
            _ => emit!(self, "add.rn.f32 %f{d}, %f{a}, 0f3F800000;"),
        }
    }

    pub(super) fn comparison(&mut self) {
        let ([p, q], [a, b]) = (
            std::array::from_fn(|_| self.four()),
            std::array::from_fn(|_| self.r()),
        );
        let how = self.choices.pick(&["eq", "ne", "lt", "ge", "gt", "le"]);
        match self.choices.below(4) {
            0 => emit!(self, "setp.{how}.s32 %p{p}, %r{a}, %r{b};"),
            1 => emit!(self, "setp.{how}.u32 %p{p}, %r{a}, 100;"),
            2 => emit!(self, "setp.{how}.and.s32 %p{p}, %r{a}, %r{b}, %p{q};"),
            _ => emit!(
                self,
                "setp.{how}.u64 %p{p}, %q{q}, %q{p}; not.pred %p{q}, %p{p};"
            ),
        }
    }

    /// Computes an address that is in range for `bytes` bytes at it, and gives its register.
    fn good_address(&mut self, space: Space, bytes: u32) -> String {
        let index = self.r();
        let align = bytes.next_power_of_two();
        // A multiple of the width that leaves room for it.
        let masked = |size: u32| {
            (size.next_power_of_two() / if size.is_power_of_two() { 1 } else { 2 } - 1)
                & !(align - 1)
        };
        match space {
            Space::Global | Space::Generic => {
                let mask = masked(AREA);
                let from = self.choices.below(4);
                match from {
                    0 | 1 => {
                        let parameter = if self.in_kernel {
                            self.choices.pick(&["p0", "p1"])
                        } else {
                            "p0"
                        };
                        let load = if self.in_kernel {
                            "ld.param.u64"
                        } else {
                            "ld.param.b64"
                        };
                        emit!(
                            self,
                            "{load} %a2, [{parameter}]; and.b32 %t0, %r{index}, {mask};"
                        );
                    }
                    2 => emit!(
                        self,
                        "mov.u64 %a2, g0; and.b32 %t0, %r{index}, {};",
                        masked(GLOBAL_BYTES)
                    ),
                    _ => emit!(
                        self,
                        "ld.global.u64 %a2, [g2]; and.b32 %t0, %r{index}, {};",
                        masked(GLOBAL_BYTES)
                    ),
                }
                if from >= 2 && space == Space::Generic {
                    emit!(self, "cvta.global.u64 %a2, %a2;");
                }
                emit!(self, "cvt.u64.u32 %u0, %t0; add.u64 %a2, %a2, %u0;");
                "%a2".into()
            }
            Space::Shared => {
                let (name, size) = if self.uses_dynamic && self.choices.once_in(2) {
                    ("s1", DYNAMIC)
                } else {
                    ("s0", self.shared_bytes)
                };
                emit!(
                    self,
                    "mov.u32 %s1, {name}; and.b32 %t0, %r{index}, {}; add.u32 %s1, %s1, %t0;",
                    masked(size)
                );
                "%s1".into()
            }
            Space::Local => {
                emit!(
                    self,
                    "mov.u64 %l1, l0; and.b32 %t0, %r{index}, {}; cvt.u64.u32 %u0, %t0; add.u64 %l1, %l1, %u0;",
                    masked(LOCAL_BYTES)
                );
                "%l1".into()
            }
            Space::Const => {
                emit!(
                    self,
                    "mov.u64 %c1, c0; and.b32 %t0, %r{index}, {}; cvt.u64.u32 %u0, %t0; add.u64 %c1, %c1, %u0;",
                    masked(CONST_BYTES)
                );
                "%c1".into()
            }
        }
    }

    /// A register that may hold an address of the space, with an offset, in range or not.
    fn any_address(&mut self, space: Space) -> String {
        let register = match space {
            Space::Global | Space::Generic => self
                .choices
                .pick(&["%a0", "%a1", "%a2", "%a3", "%q0", "%q1", "%l0"]),
            Space::Shared => self.choices.pick(&["%s0", "%s1", "%s2", "%r0", "%r3"]),
            Space::Local => self.choices.pick(&["%l0", "%l1", "%q2"]),
            Space::Const => self.choices.pick(&["%c0", "%c1", "%q3"]),
        };
        let offset: i64 = match self.choices.below(6) {
            0 | 1 => 0,
            2 => i64::from(self.choices.byte()),
            3 => -i64::from(self.choices.byte()) * 16,
            4 => self
                .choices
                .pick(&[4095, 4096, -4096, -4097, 65536, 4064, 4080]),
            _ => i64::from(self.choices.word().cast_signed()),
        };
        format!("{register}+{offset}")
    }

    fn space(&mut self) -> (Space, &'static str) {
        self.choices.pick(&[
            (Space::Global, ".global"),
            (Space::Shared, ".shared"),
            (Space::Local, ".local"),
            (Space::Generic, ""),
            (Space::Const, ".const"),
            (Space::Shared, ".shared"),
        ])
    }

    /// The address of an access of a width, good or otherwise.
    fn operand(&mut self, space: Space, bytes: u32) -> String {
        if self.manner == Manner::Wild && self.choices.once_in(2) {
            return self.any_address(space);
        }
        let room = self.choices.small(3);
        let width = bytes.next_power_of_two();
        // Offsets up to what was added to the width asked for.
        let address = self.good_address(space, width << room);
        let offset = self.choices.small(1 << room) * width;
        format!("{address}+{offset}")
    }

    fn guard(&mut self) -> String {
        if self.choices.once_in(4) {
            let (not, p) = (self.choices.pick(&["", "!"]), self.four());
            format!("@{not}%p{p} ")
        } else {
            String::new()
        }
    }

    pub(super) fn access(&mut self) {
        let ((space, said), width) = (self.space(), self.choices.pick(&WIDTHS));
        let address = self.operand(space, width.bytes);
        let first = self.choices.below(if width.registers == "r" {
            5
        } else {
            4 / width.count
        });
        let registers: Vec<_> = (first..first + width.count)
            .map(|n| format!("%{}{n}", width.registers))
            .collect();
        let value = if width.count == 1 {
            registers.concat()
        } else {
            format!("{{{}}}", registers.join(", "))
        };
        let guard = self.guard();
        let suffix = width.suffix;
        if space == Space::Const || self.choices.once_in(2) {
            emit!(self, "{guard}ld{said}.{suffix} {value}, [{address}];");
        } else {
            emit!(self, "{guard}st{said}.{suffix} [{address}], {value};");
        }
    }

    pub(super) fn atomic(&mut self) {
        let (space, said) = self.choices.pick(&[
            (Space::Global, ".global"),
            (Space::Shared, ".shared"),
            (Space::Generic, ""),
        ]);
        let ([d, a, b], [q, v]) = (
            std::array::from_fn(|_| self.r()),
            std::array::from_fn(|_| self.four()),
        );
        let is_long = self.choices.once_in(2);
        let address = self.operand(space, if is_long { 8 } else { 4 });
        let guard = self.guard();
        match (is_long, self.choices.below(3)) {
            (false, 0) => emit!(self, "{guard}atom{said}.add.u32 %r{d}, [{address}], %r{a};"),
            (false, 1) => emit!(
                self,
                "{guard}atom{said}.cas.b32 %r{d}, [{address}], %r{a}, %r{b};"
            ),
            (false, _) => emit!(self, "{guard}red{said}.min.s32 [{address}], %r{a};"),
            (true, 0) => emit!(
                self,
                "{guard}atom{said}.exch.b64 %q{q}, [{address}], %q{v};"
            ),
            (true, 1) => emit!(self, "{guard}atom{said}.add.u64 %q{q}, [{address}], %q{v};"),
            (true, _) => emit!(self, "{guard}red{said}.or.b64 [{address}], %q{v};"),
        }
    }

    pub(super) fn copy(&mut self) {
        let (bytes, cache) = self
            .choices
            .pick(&[(4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")]);
        let to = self.operand(Space::Shared, bytes);
        let from = self.operand(Space::Global, bytes);
        emit!(
            self,
            "cp.async.{cache}.shared.global [{to}], [{from}], {bytes};"
        );
        emit!(self, "cp.async.commit_group; cp.async.wait_group 0;");
    }

    /// A variable by its name.
    pub(super) fn direct_access(&mut self) {
        let (r, at) = (self.r(), 4 * self.choices.small(16));
        match self.choices.below(8) {
            0 => emit!(self, "ld.const.u32 %r{r}, [c0+{at}];"),
            1 => emit!(self, "st.shared.u32 [s0+{at}], %r{r};"),
            2 => emit!(self, "ld.shared.u32 %r{r}, [s0+{at}];"),
            3 => emit!(self, "st.global.u32 [g0+{at}], %r{r};"),
            4 => emit!(self, "ld.global.u32 %r{r}, [g1+{}];", at % 16),
            5 => emit!(self, "st.local.u32 [l0+{at}], %r{r};"),
            6 => emit!(self, "ld.local.u32 %r{r}, [l0+{at}];"),
            _ if self.in_kernel => emit!(self, "ld.param.u32 %r{r}, [s+{}];", at % 24),
            _ => emit!(self, "ld.param.b32 %r{r}, [n];"),
        }
    }

    /// Something in a register that wild accesses use.
    pub(super) fn address(&mut self) {
        let (a, r) = (self.four(), self.r());
        match self.choices.below(8) {
            0 => emit!(self, "mov.u64 %a{a}, g0+16;"),
            1 => emit!(self, "mov.u32 %s2, s0; add.u32 %s2, %s2, %r{r};"),
            2 => emit!(
                self,
                "mov.u32 %t1, s0; cvt.u64.u32 %a{a}, %t1; cvta.shared.u64 %a{a}, %a{a};"
            ),
            3 => emit!(self, "mov.u64 %a{a}, l0; cvta.local.u64 %a{a}, %a{a};"),
            4 => emit!(self, "add.u64 %a{a}, %a{a}, %q0;"),
            5 => emit!(
                self,
                "cvt.s64.s32 %u1, %r{r}; add.s64 %l1, %l0, %u1; add.s64 %c1, %c0, %u1;"
            ),
            6 => emit!(self, "isspacep.shared %p3, %a{a};"),
            _ => emit!(self, "add.u64 %a{a}, %a0, 8;"),
        }
    }

    /// Instructions of a whole warp or block, where nothing can have parted it.
    pub(super) fn collective(&mut self, depth: usize) {
        let ([d, a], p) = (std::array::from_fn(|_| self.r()), self.four());
        match self.choices.below(5) {
            0 if depth == 0 => emit!(self, "bar.sync 0;"),
            1 if depth == 0 => emit!(self, "bar.red.popc.u32 %r{d}, 0, %p{p};"),
            2 => emit!(self, "shfl.sync.bfly.b32 %r{d}, %r{a}, 1, 31, -1;"),
            3 => emit!(self, "vote.sync.ballot.b32 %r{d}, %p{p}, -1;"),
            _ => emit!(self, "membar.gl; prefetch.global.L2 [%a0];"),
        }
    }

    pub(super) fn leave(&mut self) {
        let p = self.four();
        match self.choices.below(6) {
            0 => emit!(self, "@%p{p} trap;"),
            1 if self.in_kernel => emit!(self, "@%p{p} ret;"),
            2 => emit!(self, "@%p{p} exit;"),
            3 => emit!(self, "nanosleep.u32 %r1;"),
            4 => emit!(self, "ld.param.u32 %r0, [n];"),
            _ => emit!(self, "brkpt;"),
        }
    }
}
