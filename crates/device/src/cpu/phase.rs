//! Barriers in shared memory (`mbarrier`), the bulk copies that report to them, and `cp.async`. Copies are done at once.
#![expect(
    clippy::cast_possible_truncation,
    reason = "counts are fields of a word"
)]

use crate::error::TrapKind;

use super::access::addresses;
use super::code::{BulkSite, CopySite, Location, NO_SLOT, PhaseOp, PhaseSite};
use super::groups::Frame;
use super::lanes::{Longs, Regs, bit, blend_bits, lanes};
use super::memory::{Fault, Local, Memory, fault};

/// Bytes that are copied in the time of an instruction.
const BYTES_PER_INSTRUCTION: u64 = 64;
/// Bulk copies are in multiples of this.
const BULK_ALIGN: u64 = 16;

/// The word of a barrier, which PTX leaves open: threads that have yet to come in this phase, threads of a phase, bytes that
/// are expected and have not come, and the parity of the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Phase {
    pending: u32,
    threads: u32,
    /// May come before they are expected: then it is negative, modulo 2^21.
    bytes: u32,
    parity: bool,
}

const COUNT_BITS: u32 = 20;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const BYTES_BITS: u32 = 21;
const BYTES: u64 = (1 << BYTES_BITS) - 1;

impl Phase {
    fn of(word: u64) -> Self {
        Self {
            pending: (word & COUNT) as u32,
            threads: (word >> COUNT_BITS & COUNT) as u32,
            bytes: (word >> (2 * COUNT_BITS) & BYTES) as u32,
            parity: word >> 63 != 0,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.pending) & COUNT
            | (u64::from(self.threads) & COUNT) << COUNT_BITS
            | (u64::from(self.bytes) & BYTES) << (2 * COUNT_BITS)
            | u64::from(self.parity) << 63
    }

    fn new(threads: u32) -> Self {
        Self {
            pending: threads,
            threads,
            bytes: 0,
            parity: false,
        }
    }

    fn arrive(&mut self, threads: u32) {
        self.pending = self.pending.saturating_sub(threads);
    }

    fn expect(&mut self, bytes: u32) {
        self.bytes = self.bytes.wrapping_add(bytes) & BYTES as u32;
    }

    /// The next phase begins when all have come.
    fn advanced(self) -> Self {
        if self.pending > 0 || self.bytes > 0 {
            return self;
        }
        Self {
            pending: self.threads,
            parity: !self.parity,
            ..self
        }
    }
}

/// The address of each lane.
fn located(regs: &Regs<'_>, location: Location, frame: Frame) -> Longs {
    let Location {
        slot,
        wide,
        offset,
        space,
    } = location;
    addresses(regs, slot, wide, offset, space, frame)
}

/// Runs an `mbarrier` instruction for the lanes of the mask, lowest first.
#[inline(never)]
pub(super) fn phase(
    regs: &mut Regs<'_>,
    memory: &mut Memory<'_>,
    local: &mut Local,
    site: &PhaseSite,
    frame: Frame,
    mask: u32,
) -> Result<(), Fault> {
    let addresses = located(regs, site.barrier, frame);
    let space = site.barrier.space;
    let mut over = 0;
    for lane in lanes(mask) {
        let number = match site.op {
            PhaseOp::Invalidate | PhaseOp::Test => 0,
            _ => regs.w[usize::from(site.a)][lane],
        };
        let change = |word: u64| {
            let mut phase = Phase::of(word);
            match site.op {
                PhaseOp::Arrive { expect, drop } => {
                    if expect {
                        phase.expect(number);
                    }
                    let threads = if expect { 1 } else { number };
                    if drop {
                        phase.threads = phase.threads.saturating_sub(threads);
                    }
                    phase.arrive(threads);
                    phase.advanced().word()
                }
                PhaseOp::CompleteBytes => {
                    phase.expect(number.wrapping_neg());
                    phase.advanced().word()
                }
                PhaseOp::ExpectBytes => {
                    phase.expect(number);
                    phase.word()
                }
                PhaseOp::Initialize => Phase::new(number).word(),
                PhaseOp::Invalidate => 0,
                PhaseOp::Test | PhaseOp::TestParity => word,
            }
        };
        let before = memory.update(local, space, addresses[lane], lane, change)?;
        let parity = match site.op {
            PhaseOp::Test => Phase::of(regs.d[usize::from(site.a)][lane]).parity,
            PhaseOp::TestParity => number & 1 != 0,
            _ => {
                if site.d != NO_SLOT {
                    regs.d[usize::from(site.d)][lane] = before;
                }
                continue;
            }
        };
        if Phase::of(before).parity != parity {
            over |= bit(lane);
        }
    }
    if matches!(site.op, PhaseOp::Test | PhaseOp::TestParity) && site.d != NO_SLOT {
        blend_bits(&mut regs.p[usize::from(site.d)], mask, over);
    }
    Ok(())
}

/// `cp.async` copies at once; its groups and waits have nothing left to do.
pub(super) fn copy(
    regs: &Regs<'_>,
    memory: &mut Memory<'_>,
    site: &CopySite,
    mask: u32,
) -> Result<(), Fault> {
    let ignored = site.ignore.map_or(0, |guard| guard.lanes(regs.p, mask));
    for lane in lanes(mask) {
        let to = if site.to_wide {
            regs.d[usize::from(site.to)][lane]
        } else {
            u64::from(regs.w[usize::from(site.to)][lane])
        };
        let to = to.wrapping_add(i64::from(site.to_offset).cast_unsigned());
        let from = regs.d[usize::from(site.from)][lane]
            .wrapping_add(i64::from(site.from_offset).cast_unsigned());
        let bytes = u32::from(site.bytes);
        let given = site
            .source_bytes
            .map_or(bytes, |slot| regs.w[usize::from(slot)][lane]);
        let read = if ignored >> lane & 1 == 1 { 0 } else { given };
        memory.copy_to_shared(lane, to, from, bytes, read)?;
    }
    Ok(())
}

/// Runs a bulk copy for the lanes of the mask, lowest first. Gives the instructions that it counts as beyond itself.
#[inline(never)]
pub(super) fn bulk(
    regs: &Regs<'_>,
    memory: &mut Memory<'_>,
    local: &mut Local,
    site: &BulkSite,
    frame: Frame,
    mask: u32,
) -> Result<u32, Fault> {
    let (to, from) = (
        located(regs, site.to, frame),
        located(regs, site.from, frame),
    );
    let barriers = site
        .barrier
        .map(|barrier| (located(regs, barrier, frame), barrier.space));
    let mut all = 0_u64;
    for lane in lanes(mask) {
        let bytes = u64::from(regs.w[usize::from(site.bytes)][lane]);
        for (address, space) in [(to[lane], site.to.space), (from[lane], site.from.space)] {
            if !(address | bytes).is_multiple_of(BULK_ALIGN) {
                return Err(fault(TrapKind::Misaligned, lane, address, bytes, space));
            }
        }
        for at in (0..bytes).step_by(8) {
            let (source, target) = (from[lane].wrapping_add(at), to[lane].wrapping_add(at));
            let word = memory
                .load_one::<u64>(local, site.from.space, source, lane)
                .map_err(|kind| fault(kind, lane, source, 8, site.from.space))?;
            memory
                .store_one(local, site.to.space, target, lane, word)
                .map_err(|kind| fault(kind, lane, target, 8, site.to.space))?;
        }
        if let Some((addresses, space)) = &barriers {
            let complete = |word: u64| {
                let mut phase = Phase::of(word);
                phase.expect((bytes as u32).wrapping_neg());
                phase.advanced().word()
            };
            memory.update(local, *space, addresses[lane], lane, complete)?;
        }
        all += bytes;
    }
    Ok(u32::try_from(all / BYTES_PER_INSTRUCTION).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_when_all_threads_and_bytes_have_come() {
        let mut phase = Phase::new(2);
        phase.expect(64_u32.wrapping_neg());
        phase.arrive(1);
        assert_eq!(phase.advanced(), phase);
        phase = Phase::of(phase.word());
        phase.expect(96);
        phase.arrive(1);
        assert!(!phase.advanced().parity);
        phase.expect(32_u32.wrapping_neg());
        let next = phase.advanced();
        assert_eq!((next.parity, next.pending, next.bytes), (true, 2, 0));
        assert_eq!(Phase::of(next.word()), next);
    }
}
