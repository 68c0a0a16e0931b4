//! Lowering of barriers in shared memory (`mbarrier`) and of bulk copies.

use ptx::ast::{Operand, ScalarType as T};

use crate::cpu::code::{BulkSite, Location, NO_SLOT, Op, PhaseOp, PhaseSite, Space};

use super::access::{is_advice, space};
use super::function::Lowering;
use super::types::{Lowered, Modifiers, Refusal};

impl Lowering<'_, '_> {
    fn location(&mut self, operand: &Operand, written: Space) -> Lowered<Location> {
        let of = self.address(operand)?;
        let space = self.accessed(written, &of)?;
        Ok(Location {
            slot: of.slot,
            wide: of.wide,
            offset: of.offset,
            space,
        })
    }

    /// `mbarrier`.
    pub(super) fn phase(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let actions = [
            "arrive",
            "arrive_drop",
            "complete_tx",
            "init",
            "inval",
            "test_wait",
            "try_wait",
        ];
        let action = modifiers.take_of(&actions);
        let expect = modifiers.take("expect_tx");
        let parity = modifiers.take("parity");
        modifiers.drop_if(|modifier| {
            is_advice(modifier) || ["acquire", "noComplete", "release"].contains(&modifier)
        });
        let written = space(&mut modifiers);
        if modifiers.scalar()? != T::B64 || !matches!(written, Space::Generic | Space::Shared) {
            return Err(Refusal::Form);
        }
        modifiers.finish()?;
        let tests = matches!(action, Some("test_wait" | "try_wait"));
        if expect && !matches!(action, None | Some("arrive" | "arrive_drop")) || parity && !tests {
            return Err(Refusal::Form);
        }
        let (op, to, barrier, number) = match (action, operands) {
            (Some("init"), [barrier, count]) => (PhaseOp::Initialize, None, barrier, Some(count)),
            (Some("inval"), [barrier]) => (PhaseOp::Invalidate, None, barrier, None),
            (None, [barrier, bytes]) if expect => {
                (PhaseOp::ExpectBytes, None, barrier, Some(bytes))
            }
            (Some("complete_tx"), [barrier, bytes]) => {
                (PhaseOp::CompleteBytes, None, barrier, Some(bytes))
            }
            (Some(arrive @ ("arrive" | "arrive_drop")), [to, barrier, count @ ..])
                if count.len() <= 1 && (!expect || count.len() == 1) =>
            {
                let drop = arrive == "arrive_drop";
                let op = PhaseOp::Arrive { expect, drop };
                (op, Some(to), barrier, count.first())
            }
            // The time that it may wait at most is a hint; it waits for none here.
            (Some("test_wait" | "try_wait"), [to, barrier, of] | [to, barrier, of, _]) => {
                let op = if parity {
                    PhaseOp::TestParity
                } else {
                    PhaseOp::Test
                };
                (op, Some(to), barrier, Some(of))
            }
            _ => return Err(Refusal::Form),
        };
        let barrier = self.location(barrier, written)?;
        let a = match number {
            Some(state) if op == PhaseOp::Test => self.source(state, T::B64)?,
            Some(number) => self.source(number, T::U32)?,
            None if op == PhaseOp::Invalidate => NO_SLOT,
            None => self.word_value(1)?,
        };
        let d = match to {
            None => NO_SLOT,
            Some(to) if tests => self.predicate_destination(to)?.unwrap_or(NO_SLOT),
            Some(to) => self.destination(to, T::B64)?,
        };
        let site = u32::try_from(self.image.phases.len()).map_err(|_| Refusal::Form)?;
        self.image.phases.push(PhaseSite { op, barrier, d, a });
        self.emit(Op::Phase { site })
    }

    /// `cp.async.bulk`, of which only the tensor is missing.
    pub(super) fn bulk(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        if modifiers.take("commit_group") {
            return modifiers.finish();
        }
        if modifiers.take("wait_group") {
            modifiers.take("read");
            return modifiers.finish();
        }
        if modifiers.take("prefetch") {
            // It changes nothing that a kernel can see.
            return Ok(());
        }
        let (target, source) = (space(&mut modifiers), space(&mut modifiers));
        let in_group = modifiers.take("bulk_group");
        let reports = modifiers.take("mbarrier::complete_tx::bytes");
        modifiers.finish()?;
        let (to, from, bytes, barrier) = match operands {
            [to, from, bytes] if in_group && !reports => (to, from, bytes, None),
            [to, from, bytes, barrier] if reports && !in_group => (to, from, bytes, Some(barrier)),
            _ => return Err(Refusal::Form),
        };
        match (target, source) {
            (Space::Shared, Space::Global | Space::Shared) if reports => {}
            (Space::Global, Space::Shared) if in_group => {}
            _ => return Err(Refusal::Form),
        }
        let (to, from) = (self.location(to, target)?, self.location(from, source)?);
        let barrier = barrier.map(|barrier| self.location(barrier, Space::Shared));
        let site = BulkSite {
            to,
            from,
            bytes: self.source(bytes, T::U32)?,
            barrier: barrier.transpose()?,
        };
        let index = u32::try_from(self.image.bulks.len()).map_err(|_| Refusal::Form)?;
        self.image.bulks.push(site);
        self.emit(Op::Bulk { site: index })
    }

    /// `cp.async.mbarrier.arrive`: the copies before it are done, so that it comes as `mbarrier.arrive` does; where it also counts
    /// itself as expected, nothing changes.
    pub(super) fn arrive_after_copies(
        &mut self,
        mut modifiers: Modifiers<'_>,
        operands: &[Operand],
    ) -> Lowered<()> {
        let counted = modifiers.take("noinc");
        let known = modifiers.take("arrive");
        let written = space(&mut modifiers);
        let ty = modifiers.scalar()?;
        modifiers.finish()?;
        let ([barrier], true, T::B64) = (operands, known, ty) else {
            return Err(Refusal::Form);
        };
        let barrier = self.location(barrier, written)?;
        if !matches!(barrier.space, Space::Generic | Space::Shared) {
            return Err(Refusal::Form);
        }
        let a = self.word_value(u32::from(counted))?;
        let op = PhaseOp::Arrive {
            expect: false,
            drop: false,
        };
        let d = NO_SLOT;
        let site = u32::try_from(self.image.phases.len()).map_err(|_| Refusal::Form)?;
        self.image.phases.push(PhaseSite { op, barrier, d, a });
        self.emit(Op::Phase { site })
    }
}
