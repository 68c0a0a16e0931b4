//! Control flow, barriers, what the lanes of a warp do together, and the table of all opcodes.

use ptx::ast::{FunctionKind, Operand, ScalarType as T, Symbol};

use crate::cpu::code::{
    BarrierKind, BarrierSite, CallSite, Copied, MatrixSite, Multiply, NO_SLOT, Op, ReduceOp,
    ShuffleMode, VoteMode, Width,
};

use super::float::is_float;
use super::function::Lowering;
use super::types::{Lowered, Modifiers, Refusal, width};

/// Modifiers of `fence` and `membar`: all are done as the strongest.
const FENCES: [&str; 14] = [
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
            "mma" => self.multiply(modifiers, operands),
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

    /// A direct call. Arguments and results are parameters of the caller's, registers or literals.
    fn call(&mut self, operands: &[Operand]) -> Lowered<()> {
        let (results, name, arguments): (&[Operand], Symbol, &[Operand]) = match operands {
            [Operand::Name(name)] => (&[], *name, &[]),
            [Operand::Name(name), Operand::List(arguments)] => (&[], *name, arguments),
            [Operand::List(results), Operand::Name(name)] => (results, *name, &[]),
            [
                Operand::List(results),
                Operand::Name(name),
                Operand::List(arguments),
            ] => (results, *name, arguments),
            _ => return Err(Refusal::Other("of a function that is not named".into())),
        };
        let text = self.program.module.text(name);
        let function = self.program.program.function_of(name);
        let Some(function) = function else {
            return Err(Refusal::Other("of a function that is not named".into()));
        };
        if function.body.is_none() {
            // An assertion that fails is a trap; nothing returns from it.
            if text == "__assertfail" {
                return self.emit(Op::Trap);
            }
            return Err(Refusal::Other(format!("of `{text}`, which has no body,")));
        }
        let number = self
            .program
            .numbers
            .get(&function.name)
            .copied()
            .ok_or(Refusal::Form)?;
        let interface = self
            .program
            .interfaces
            .get(number)
            .ok_or(Refusal::Form)?
            .clone();
        if arguments.len() != interface.parameters.len() || results.len() != interface.results.len()
        {
            return Err(Refusal::Other(format!(
                "of `{text}` with another number of arguments"
            )));
        }
        let mut site = CallSite {
            caller: u32::try_from(self.number).map_err(|_| Refusal::Form)?,
            callee: u32::try_from(number).map_err(|_| Refusal::Form)?,
            arguments: Vec::new(),
            results: Vec::new(),
        };
        for ((operand, &(callee, words)), variable) in arguments
            .iter()
            .zip(&interface.parameters)
            .zip(&function.params)
        {
            let caller = self.passed(operand, variable.ty, words, true)?;
            site.arguments.push(Copied {
                caller,
                callee,
                words,
            });
        }
        let mut loads = Vec::new();
        for ((operand, &(callee, words)), variable) in results
            .iter()
            .zip(&interface.results)
            .zip(&function.returns)
        {
            let caller = self.passed(operand, variable.ty, words, false)?;
            site.results.push(Copied {
                caller,
                callee,
                words,
            });
            loads.push((operand, variable.ty, caller));
        }
        let index = u32::try_from(self.image.calls.len()).map_err(|_| Refusal::Form)?;
        self.image.calls.push(site);
        self.emit(Op::Call { site: index })?;
        for (operand, ty, word) in loads {
            self.fetch_result(operand, ty, word)?;
        }
        Ok(())
    }

    /// Barriers of the block, of the warp and, as a cluster is one block here, of the cluster.
    fn barrier(&mut self, mut modifiers: Modifiers<'_>, operands: &[Operand]) -> Lowered<()> {
        if modifiers.take("warp") {
            let [members] = operands else {
                return Err(Refusal::Form);
            };
            let members = self.source(members, T::B32)?;
            return self.emit(Op::SyncWarp { members });
        }
        if modifiers.take("cluster") {
            return Err(Refusal::Form);
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

    fn matrix(&mut self, site: MatrixSite) -> Lowered<()> {
        let index = u32::try_from(self.image.matrices.len()).map_err(|_| Refusal::Form)?;
        self.image.matrices.push(site);
        self.emit(Op::Matrix { site: index })
    }

    /// Exactly these many 32-bit registers.
    fn words<const N: usize>(&mut self, operand: &Operand, count: usize) -> Lowered<[u16; N]> {
        let (slots, width) = match operand {
            Operand::Vector(_) => self.vector(operand)?,
            _ => {
                let (slot, width) = self.loose_destination(operand)?;
                (vec![slot], width)
            }
        };
        if slots.len() != count || count > N || width != Width::B32 || slots.contains(&NO_SLOT) {
            return Err(Refusal::Form);
        }
        let mut out = [NO_SLOT; N];
        out[..count].copy_from_slice(&slots);
        Ok(out)
    }

    /// `ldmatrix` and `stmatrix` of 8x8 matrices of 16-bit elements.
    fn matrix_access(
        &mut self,
        load: bool,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let count = match modifiers.take_of(&["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2_u8,
            Some(_) => 4,
            None => return Err(Refusal::Form),
        };
        let transposed = modifiers.take("trans");
        let known = ["sync", "aligned", "m8n8", "b16"]
            .iter()
            .all(|modifier| modifiers.take(modifier))
            && modifiers.take_of(&["shared", "shared::cta"]).is_some();
        modifiers.finish()?;
        let (data, address) = match (load, operands) {
            (true, [data, address]) | (false, [address, data]) => (data, address),
            _ => return Err(Refusal::Form),
        };
        if !known {
            return Err(Refusal::Form);
        }
        let slots = self.words(data, count.into())?;
        let of = self.address(address)?;
        if of.slot == NO_SLOT {
            return Err(Refusal::Form);
        }
        let (address, wide_address, offset) = (of.slot, of.wide, of.offset);
        self.matrix(if load {
            MatrixSite::Load {
                d: slots,
                count,
                transposed,
                address,
                wide_address,
                offset,
            }
        } else {
            MatrixSite::Store {
                a: slots,
                count,
                transposed,
                address,
                wide_address,
                offset,
            }
        })
    }

    /// `mma.sync` of 16-bit floats.
    fn multiply(&mut self, mut modifiers: Modifiers<'_>, operands: &[Operand]) -> Lowered<()> {
        let k = match modifiers.take_of(&["m16n8k8", "m16n8k16"]) {
            Some("m16n8k8") => 8_u8,
            Some(_) => 16,
            None => return Err(Refusal::Form),
        };
        let known = ["sync", "aligned", "row", "col"]
            .iter()
            .all(|modifier| modifiers.take(modifier));
        let types = [
            modifiers.scalar()?,
            modifiers.scalar()?,
            modifiers.scalar()?,
            modifiers.scalar()?,
        ];
        modifiers.finish()?;
        let [d, a, b, c] = operands else {
            return Err(Refusal::Form);
        };
        let (bf16, wide) = match types {
            [T::F32, T::F16, T::F16, T::F32] => (false, true),
            [T::F16, T::F16, T::F16, T::F16] => (false, false),
            [T::F32, T::Bf16, T::Bf16, T::F32] => (true, true),
            _ => return Err(Refusal::Form),
        };
        if !known {
            return Err(Refusal::Form);
        }
        let accumulators = if wide { 4 } else { 2 };
        let multiply = Multiply {
            a: self.words(a, usize::from(k) / 4)?,
            b: self.words(b, usize::from(k) / 8)?,
            c: self.words(c, accumulators)?,
            d: self.words(d, accumulators)?,
            k,
            bf16,
            wide,
        };
        self.matrix(MatrixSite::Multiply(multiply))
    }
}
