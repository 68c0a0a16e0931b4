//! Control flow, barriers, what the lanes of a warp do together, and the table of all opcodes.

use ptx::ast::{FunctionKind, Operand, ScalarType as T};

use crate::cpu::code::{
    BarrierKind, BarrierSite, NO_SLOT, Op, ReduceOp, ShuffleMode, VoteMode, Width,
};

use super::float::is_float;
use super::function::Lowering;
use super::types::{Lowered, Modifiers, Refusal, width};

/// Modifiers of `fence` and `membar`: all are done as the strongest.
const FENCES: [&str; 17] = [
    "sc",
    "acq_rel",
    "acquire",
    "release",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "gl",
    "proxy",
    "async",
    "alias",
    "shared::cta",
    "shared::cluster",
    "global",
    "mbarrier_init",
    "async::generic",
];

/// Refuses modifiers but these.
fn only(mut modifiers: Modifiers<'_>, known: &[&str]) -> Lowered<()> {
    modifiers.drop_if(|modifier| known.contains(&modifier));
    modifiers.finish()
}

impl Lowering<'_, '_> {
    /// Lowers an instruction by its opcode.
    pub(super) fn opcode(
        &mut self,
        opcode: &str,
        modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let float = modifiers.peek_scalar().is_some_and(is_float);
        match opcode {
            "abs" | "add" | "div" | "max" | "min" | "mul" | "mad" | "neg" | "sub" if float => {
                self.float(opcode, modifiers, operands)
            }
            "cos" | "ex2" | "fma" | "lg2" | "rcp" | "rsqrt" | "sin" | "sqrt" | "tanh" if float => {
                self.float(opcode, modifiers, operands)
            }
            "add" | "addc" | "sub" | "subc" => self.sum(opcode, modifiers, operands),
            "mad" | "mad24" | "madc" | "mul" | "mul24" => self.product(opcode, modifiers, operands),
            "abs" | "div" | "max" | "min" | "neg" | "rem" | "sad" => {
                self.plain_integer(opcode, modifiers, operands)
            }
            "and" | "cnot" | "not" | "or" | "xor" => self.logic(opcode, modifiers, operands),
            "bfe" | "bfi" | "bfind" | "bmsk" | "brev" | "clz" | "dp4a" | "fns" | "lop3"
            | "popc" | "prmt" | "shf" | "shl" | "shr" => self.bits(opcode, modifiers, operands),
            "vabsdiff4" => self.video(modifiers, operands),
            "copysign" => self.copy_sign(modifiers, operands),
            "testp" => self.test_property(modifiers, operands),
            "setp" => self.set_predicate(modifiers, operands),
            "set" => self.set(modifiers, operands),
            "selp" | "slct" => self.select(opcode, modifiers, operands),
            "cvt" => self.convert(modifiers, operands),
            "mov" => self.movement(modifiers, operands),
            "cvta" => self.convert_address(modifiers, operands),
            "isspacep" => self.is_space(modifiers, operands),
            "mapa" => self.map_address(modifiers, operands),
            "getctarank" => self.rank_of_address(modifiers, operands),
            "ld" | "ldu" => self.access(true, modifiers, operands),
            "st" => self.access(false, modifiers, operands),
            "atom" => self.atomic(false, modifiers, operands),
            "red" => self.atomic(true, modifiers, operands),
            "cp" => self.copy(modifiers, operands),
            "bra" => {
                let [Operand::Name(label)] = operands else {
                    return Err(Refusal::Form);
                };
                only(modifiers, &["uni"])?;
                self.branch(*label)
            }
            "brx" => self.branch_indexed(modifiers, operands),
            "call" => {
                only(modifiers, &["uni"])?;
                self.call(operands)
            }
            "ret" => {
                only(modifiers, &["uni"])?;
                self.leave()
            }
            "exit" => {
                only(modifiers, &[])?;
                self.emit(Op::Exit)
            }
            "trap" | "brkpt" => {
                only(modifiers, &[])?;
                self.emit(Op::Trap)
            }
            "bar" | "barrier" => self.barrier(modifiers, operands),
            "membar" | "fence" => {
                only(modifiers, &FENCES)?;
                self.emit(Op::Fence)
            }
            "nanosleep" => {
                let [time] = operands else {
                    return Err(Refusal::Form);
                };
                only(modifiers, &["u32"])?;
                let a = self.source(time, T::U32)?;
                self.emit(Op::Nanosleep { a })
            }
            // Hints that change nothing that a kernel can see.
            "applypriority" | "discard" | "griddepcontrol" | "pmevent" | "prefetch"
            | "prefetchu" | "setmaxnreg" => Ok(()),
            "activemask" => {
                let [to] = operands else {
                    return Err(Refusal::Form);
                };
                let d = self.destination(to, T::B32)?;
                self.emit(Op::ActiveMask { d })
            }
            "elect" | "match" | "redux" | "shfl" | "vote" => {
                self.collective(opcode, modifiers, operands)
            }
            "ldmatrix" | "stmatrix" => {
                self.matrix_access(opcode == "ldmatrix", modifiers, operands)
            }
            "mbarrier" => self.phase(modifiers, operands),
            "mma" => self.multiply(modifiers, operands),
            "wmma" => self.tiles(modifiers, operands),
            _ => Err(Refusal::Form),
        }
    }

    fn branch_indexed(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        if !modifiers.take("idx") {
            return Err(Refusal::Form);
        }
        only(modifiers, &["uni"])?;
        let [index, Operand::Name(table)] = operands else {
            return Err(Refusal::Form);
        };
        let index = self.source(index, T::U32)?;
        let table = self
            .scopes
            .blocks()
            .find_map(|block| self.tables.get(&(block, *table)).copied())
            .ok_or(Refusal::Form)?;
        self.emit(Op::BranchTable { index, table })
    }

    fn leave(&mut self) -> Lowered<()> {
        if self.kind == FunctionKind::Device {
            self.store_results()?;
        }
        self.emit(Op::Return)
    }

    /// Barriers of the block, of the warp and of the cluster.
    fn barrier(&mut self, mut modifiers: Modifiers<'_>, operands: &[Operand]) -> Lowered<()> {
        if modifiers.take("warp") {
            let [members] = operands else {
                return Err(Refusal::Form);
            };
            let members = self.source(members, T::B32)?;
            return self.emit(Op::SyncWarp { members });
        }
        if modifiers.take("cluster") {
            let action = modifiers.take_of(&["arrive", "wait"]);
            only(modifiers, &["aligned", "acquire", "release", "relaxed"])?;
            return match (action, operands) {
                (Some("arrive"), []) => self.emit(Op::ClusterArrive),
                (Some("wait"), []) => self.emit(Op::ClusterWait),
                _ => Err(Refusal::Form),
            };
        }
        modifiers.drop_if(|modifier| matches!(modifier, "cta" | "aligned"));
        let action = modifiers
            .take_of(&["sync", "arrive", "red"])
            .ok_or(Refusal::Form)?;
        let operation = modifiers.take_of(&["and", "or", "popc"]);
        let ty = modifiers.scalar().ok();
        modifiers.finish()?;
        let (kind, operands) = match (action, operation, ty, operands) {
            ("sync", None, None, operands) => (BarrierKind::Sync, operands),
            ("arrive", None, None, [_, _]) => (BarrierKind::Arrive, operands),
            ("red", Some("popc"), Some(T::U32), [to, rest @ .., condition]) => {
                let p = self.condition(condition)?;
                (
                    BarrierKind::Popc {
                        d: self.destination(to, T::U32)?,
                        p,
                    },
                    rest,
                )
            }
            ("red", Some(operation), Some(T::Pred), [to, rest @ .., condition]) => {
                let p = self.condition(condition)?;
                let d = self
                    .predicate_destination(to)?
                    .map_or_else(|| self.predicate(), Ok)?;
                (
                    if operation == "and" {
                        BarrierKind::And { d, p }
                    } else {
                        BarrierKind::Or { d, p }
                    },
                    rest,
                )
            }
            _ => return Err(Refusal::Form),
        };
        let (id, threads) = match operands {
            [id] => (self.source(id, T::U32)?, None),
            [id, threads] => (
                self.source(id, T::U32)?,
                Some(self.source(threads, T::U32)?),
            ),
            _ => return Err(Refusal::Form),
        };
        let site = u32::try_from(self.image.barriers.len()).map_err(|_| Refusal::Form)?;
        self.image.barriers.push(BarrierSite { id, threads, kind });
        self.emit(Op::Barrier { site })
    }

    /// What the lanes of a warp do together.
    fn collective(
        &mut self,
        opcode: &str,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        if !modifiers.take("sync") {
            return Err(Refusal::Form);
        }
        match (opcode, operands) {
            ("shfl", [to, a, b, c, members]) => {
                let mode = match modifiers.take_of(&["up", "down", "bfly", "idx"]) {
                    Some("up") => ShuffleMode::Up,
                    Some("down") => ShuffleMode::Down,
                    Some("bfly") => ShuffleMode::Butterfly,
                    Some(_) => ShuffleMode::Index,
                    None => return Err(Refusal::Form),
                };
                let ty = modifiers.scalar()?;
                modifiers.finish()?;
                let (d, p) = self.pair(to, T::B32)?;
                let a = self.source(a, ty)?;
                if width(ty) != Some(Width::B32) {
                    return Err(Refusal::Form);
                }
                let (b, c) = (self.source(b, T::U32)?, self.source(c, T::U32)?);
                let members = self.source(members, T::B32)?;
                self.emit(Op::Shuffle {
                    mode,
                    d,
                    p,
                    a,
                    b,
                    c,
                    members,
                })
            }
            ("vote", [to, condition, members]) => {
                let mode = modifiers
                    .take_of(&["all", "any", "uni", "ballot"])
                    .ok_or(Refusal::Form)?;
                let ty = modifiers.scalar()?;
                modifiers.finish()?;
                let p = self.condition(condition)?;
                let members = self.source(members, T::B32)?;
                let (mode, d) = match (mode, ty) {
                    ("ballot", T::B32) => (VoteMode::Ballot, self.destination(to, T::B32)?),
                    (mode, T::Pred) => {
                        let mode = match mode {
                            "all" => VoteMode::All,
                            "any" => VoteMode::Any,
                            "uni" => VoteMode::Uniform,
                            _ => return Err(Refusal::Form),
                        };
                        (
                            mode,
                            self.predicate_destination(to)?
                                .map_or_else(|| self.predicate(), Ok)?,
                        )
                    }
                    _ => return Err(Refusal::Form),
                };
                self.emit(Op::Vote {
                    mode,
                    d,
                    p,
                    members,
                })
            }
            ("match", [to, a, members]) => {
                let all = match modifiers.take_of(&["any", "all"]) {
                    Some(mode) => mode == "all",
                    None => return Err(Refusal::Form),
                };
                let ty = modifiers.scalar()?;
                modifiers.finish()?;
                let (d, p) = self.pair(to, T::B32)?;
                let wide = match ty {
                    T::B32 => false,
                    T::B64 => true,
                    _ => return Err(Refusal::Form),
                };
                let a = self.source(a, ty)?;
                let members = self.source(members, T::B32)?;
                self.emit(Op::Match {
                    all,
                    wide,
                    d,
                    p,
                    a,
                    members,
                })
            }
            ("redux", [to, a, members]) => {
                let op = modifiers
                    .take_of(&["add", "min", "max", "and", "or", "xor"])
                    .ok_or(Refusal::Form)?;
                let ty = modifiers.scalar()?;
                modifiers.finish()?;
                let op = match (op, ty) {
                    ("add", T::U32 | T::S32) => ReduceOp::Add,
                    ("min", T::U32) => ReduceOp::MinUnsigned,
                    ("max", T::U32) => ReduceOp::MaxUnsigned,
                    ("min", T::S32) => ReduceOp::MinSigned,
                    ("max", T::S32) => ReduceOp::MaxSigned,
                    ("and", T::B32) => ReduceOp::And,
                    ("or", T::B32) => ReduceOp::Or,
                    ("xor", T::B32) => ReduceOp::Xor,
                    _ => return Err(Refusal::Form),
                };
                let a = self.source(a, ty)?;
                let members = self.source(members, T::B32)?;
                let d = self.destination(to, ty)?;
                self.emit(Op::Reduce { op, d, a, members })
            }
            ("elect", [to, members]) => {
                modifiers.finish()?;
                let (d, p) = self.pair(to, T::B32)?;
                let members = self.source(members, T::B32)?;
                let p = if p == NO_SLOT { self.predicate()? } else { p };
                self.emit(Op::Elect { d, p, members })
            }
            _ => Err(Refusal::Form),
        }
    }

    /// `d|p`, or `d` alone.
    fn pair(&mut self, operand: &Operand, ty: T) -> Lowered<(u16, u16)> {
        match operand {
            Operand::Pair(pair) => {
                let p = self.predicate_destination(&pair.1)?.unwrap_or(NO_SLOT);
                Ok((self.destination(&pair.0, ty)?, p))
            }
            _ => Ok((self.destination(operand, ty)?, NO_SLOT)),
        }
    }
}
