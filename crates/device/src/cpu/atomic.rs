//! Read-modify-write instructions: what each does to a word, and its lanes in order.
#![expect(
    clippy::cast_possible_truncation,
    reason = "operands narrower than 64 bits are kept in the low bits of one"
)]

use super::access::addresses;
use super::code::{Atomic, AtomicOp, NO_SLOT, Width};
use super::float::{both, sum_half};
use super::groups::Frame;
use super::lanes::{Longs, Regs, lanes};
use super::memory::{Cell, Fault, Local, Memory, Place, place};

/// The new value of a word of `width`, from the old one and the operands; all in the low bits.
fn applied(op: AtomicOp, width: Width, old: u64, b: u64, c: u64) -> u64 {
    let wide = width == Width::B64;
    let signed = |x: u64| {
        if wide {
            x.cast_signed()
        } else {
            i64::from((x as u32).cast_signed())
        }
    };
    match op {
        AtomicOp::Add => old.wrapping_add(b),
        AtomicOp::AddF32 => u64::from(super::float::bits(
            f32::from_bits(old as u32) + f32::from_bits(b as u32),
        )),
        AtomicOp::AddF64 => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        AtomicOp::AddF16 => u64::from(sum_half::<false>(old as u32, b as u32)),
        AtomicOp::AddBf16 => u64::from(sum_half::<true>(old as u32, b as u32)),
        AtomicOp::AddF16x2 => u64::from(both(old as u32, b as u32, 0, |x, y, _| {
            sum_half::<false>(x, y)
        })),
        AtomicOp::AddBf16x2 => u64::from(both(old as u32, b as u32, 0, |x, y, _| {
            sum_half::<true>(x, y)
        })),
        AtomicOp::And => old & b,
        AtomicOp::Or => old | b,
        AtomicOp::Xor => old ^ b,
        AtomicOp::Exchange => b,
        AtomicOp::Cas => {
            if old == b {
                c
            } else {
                old
            }
        }
        AtomicOp::Inc => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Dec => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        AtomicOp::MinUnsigned => old.min(b),
        AtomicOp::MaxUnsigned => old.max(b),
        AtomicOp::MinSigned => {
            if signed(b) < signed(old) {
                b
            } else {
                old
            }
        }
        AtomicOp::MaxSigned => {
            if signed(b) > signed(old) {
                b
            } else {
                old
            }
        }
    }
}

/// Runs an atomic for the lanes of the mask, lowest first.
#[inline(never)]
pub(super) fn atomic(
    regs: &mut Regs<'_>,
    memory: &mut Memory<'_>,
    local: &mut Local,
    atomic: &Atomic,
    frame: Frame,
    mask: u32,
) -> Result<(), Fault> {
    let mut lanes = Lanes {
        addresses: addresses(
            regs,
            atomic.address,
            atomic.wide_address,
            atomic.offset,
            atomic.space,
            frame,
        ),
        regs,
        memory,
        local,
        atomic,
        mask,
    };
    let any = |old, b, c| applied(atomic.op, atomic.width, old, b, c);
    match (atomic.width, atomic.op) {
        // What nearly every kernel does.
        (Width::B32, AtomicOp::Add) => lanes.run::<u32>(|old, b, _| old.wrapping_add(b)),
        (Width::B64, _) => lanes.run::<u64>(any),
        (Width::B32, _) => lanes.run::<u32>(any),
        (Width::B16 | Width::B8, _) => lanes.run::<u16>(any),
    }
}

/// An atomic in progress.
struct Lanes<'a, 'r, 'm> {
    regs: &'a mut Regs<'r>,
    memory: &'a mut Memory<'m>,
    local: &'a mut Local,
    atomic: &'a Atomic,
    addresses: Longs,
    mask: u32,
}

impl Lanes<'_, '_, '_> {
    #[inline(always)]
    fn run<T: Cell>(&mut self, change: impl Fn(u64, u64, u64) -> u64) -> Result<(), Fault> {
        for lane in lanes(self.mask) {
            let (b, c) = (
                self.operand(self.atomic.b, lane),
                self.operand(self.atomic.c, lane),
            );
            let (space, address) = (self.atomic.space, self.addresses[lane]);
            let next = |old: T| T::truncate(change(old.widen(), b, c));
            let old = match place(space, address) {
                Place::Shared(at) if address.is_multiple_of(T::BYTES) => {
                    let index = usize::try_from(at / T::BYTES).unwrap_or(usize::MAX);
                    match T::cells_mut(self.memory.shared).get_mut(index) {
                        Some(word) => {
                            let old = T::of(*word);
                            *word = next(old).bytes();
                            old
                        }
                        // That of another block of the cluster, or none.
                        None => self.memory.update(self.local, space, address, lane, next)?,
                    }
                }
                _ => self.memory.update(self.local, space, address, lane, next)?,
            };
            let d = usize::from(self.atomic.d);
            if self.atomic.d == NO_SLOT {
                continue;
            }
            if self.atomic.width == Width::B64 {
                self.regs.d[d][lane] = old.widen();
            } else {
                self.regs.w[d][lane] = old.widen() as u32;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn operand(&self, slot: u16, lane: usize) -> u64 {
        if slot == NO_SLOT {
            0
        } else if self.atomic.width == Width::B64 {
            self.regs.d[usize::from(slot)][lane]
        } else {
            u64::from(self.regs.w[usize::from(slot)][lane])
        }
    }
}
