//! Loads and stores: from registers to addresses, from memory words to registers and back.
#![expect(
    clippy::cast_possible_truncation,
    reason = "stores of narrow words keep the low bits of a register"
)]

use super::code::{Access, LANES, NO_SLOT, Space, Width};
use super::groups::Frame;
use super::lanes::{Longs, Regs, blend};
use super::memory::{Cell, Fault, Local, Memory};

/// The address of each lane.
#[inline(always)]
pub(super) fn addresses(
    regs: &Regs<'_>,
    slot: u16,
    wide: bool,
    offset: i32,
    space: Space,
    frame: Frame,
) -> Longs {
    let offset = i64::from(offset).cast_unsigned();
    if slot == NO_SLOT {
        let base = if space == Space::Local {
            u64::from(frame.local) * 4
        } else {
            0
        };
        return [base.wrapping_add(offset); LANES];
    }
    let mut out = [0; LANES];
    if wide {
        for (out, &base) in out.iter_mut().zip(&regs.d[usize::from(slot)]) {
            *out = base.wrapping_add(offset);
        }
    } else {
        for (out, &base) in out.iter_mut().zip(&regs.w[usize::from(slot)]) {
            *out = u64::from(base.wrapping_add(offset as u32));
        }
    }
    out
}

/// The slots of a vector access' elements.
#[inline(always)]
fn slots<'v, const N: usize>(access: &'v Access, vectors: &'v [u16]) -> &'v [u16] {
    if N == 1 {
        std::slice::from_ref(&access.data)
    } else {
        &vectors[usize::from(access.data)..][..N]
    }
}

/// Runs a load for the lanes of the mask.
#[inline(never)]
pub(super) fn load(
    regs: &mut Regs<'_>,
    memory: &Memory<'_>,
    local: &Local,
    access: &Access,
    vectors: &[u16],
    frame: Frame,
    mask: u32,
) -> Result<(), Fault> {
    let Access {
        address,
        wide_address,
        offset,
        space,
        ..
    } = *access;
    if address == NO_SLOT
        && access.count == 1
        && access.width == Width::B32
        && access.register == Width::B32
    {
        // A variable of the frame, or a parameter: no address differs between lanes.
        let row = (i64::from(frame.local) * 4 + i64::from(offset)) / 4;
        if space == Space::Local
            && offset % 4 == 0
            && let Some(row) = usize::try_from(row).ok().and_then(|row| local.get(row))
        {
            blend(&mut regs.w[usize::from(access.data)], mask, row);
            return Ok(());
        }
    }
    let addresses = addresses(regs, address, wide_address, offset, space, frame);
    match (access.width, access.count) {
        (Width::B32, 1) => words::<u32, 1>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B64, 1) => words::<u64, 1>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B8, 1) => words::<u8, 1>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B16, 1) => words::<u16, 1>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B32, 2) => words::<u32, 2>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B32, 4) => words::<u32, 4>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B32, _) => words::<u32, 8>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B64, 2) => words::<u64, 2>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B64, _) => words::<u64, 4>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B16, 2) => words::<u16, 2>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B16, 4) => words::<u16, 4>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B16, _) => words::<u16, 8>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B8, 2) => words::<u8, 2>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B8, 4) => words::<u8, 4>(regs, memory, local, access, vectors, &addresses, mask),
        (Width::B8, _) => words::<u8, 8>(regs, memory, local, access, vectors, &addresses, mask),
    }
}

#[inline(never)]
fn words<T: Cell, const N: usize>(
    regs: &mut Regs<'_>,
    memory: &Memory<'_>,
    local: &Local,
    access: &Access,
    vectors: &[u16],
    addresses: &Longs,
    mask: u32,
) -> Result<(), Fault> {
    let mut values = [[T::default(); LANES]; N];
    memory.load::<T, N>(local, access.space, addresses, mask, &mut values)?;
    let spare = 64 - 8 * T::BYTES as u32;
    let extend = |value: T| {
        let value = value.widen();
        if access.signed {
            (((value << spare).cast_signed()) >> spare).cast_unsigned()
        } else {
            value
        }
    };
    for (&slot, values) in slots::<N>(access, vectors).iter().zip(&values) {
        if slot == NO_SLOT {
            continue;
        }
        let keep = match access.register {
            Width::B64 => {
                let mut long = [0; LANES];
                for (long, &value) in long.iter_mut().zip(values) {
                    *long = extend(value);
                }
                blend(&mut regs.d[usize::from(slot)], mask, &long);
                continue;
            }
            Width::B32 => u32::MAX,
            Width::B16 => 0xffff,
            Width::B8 => 0xff,
        };
        let mut word = [0; LANES];
        for (word, &value) in word.iter_mut().zip(values) {
            *word = if T::BYTES == 4 {
                value.widen() as u32
            } else {
                extend(value) as u32 & keep
            };
        }
        blend(&mut regs.w[usize::from(slot)], mask, &word);
    }
    Ok(())
}

/// Runs a store for the lanes of the mask.
#[inline(never)]
pub(super) fn store(
    regs: &Regs<'_>,
    memory: &mut Memory<'_>,
    local: &mut Local,
    access: &Access,
    vectors: &[u16],
    frame: Frame,
    mask: u32,
) -> Result<(), Fault> {
    let Access {
        address,
        wide_address,
        offset,
        space,
        ..
    } = *access;
    let addresses = addresses(regs, address, wide_address, offset, space, frame);
    if space == Space::Local
        && address == NO_SLOT
        && access.count == 1
        && access.width == Width::B32
        && access.register == Width::B32
        && let Some(row) = usize::try_from(addresses[0] / 4)
            .ok()
            .and_then(|row| local.get_mut(row))
        && addresses[0].is_multiple_of(4)
    {
        blend(row, mask, &regs.w[usize::from(access.data)]);
        return Ok(());
    }
    let mut put = Put {
        regs,
        memory,
        local,
        access,
        vectors,
        addresses: &addresses,
        mask,
    };
    match (access.width, access.count) {
        (Width::B32, 1) => put.words::<u32, 1>(),
        (Width::B64, 1) => put.words::<u64, 1>(),
        (Width::B8, 1) => put.words::<u8, 1>(),
        (Width::B16, 1) => put.words::<u16, 1>(),
        (Width::B32, 2) => put.words::<u32, 2>(),
        (Width::B32, 4) => put.words::<u32, 4>(),
        (Width::B32, _) => put.words::<u32, 8>(),
        (Width::B64, 2) => put.words::<u64, 2>(),
        (Width::B64, _) => put.words::<u64, 4>(),
        (Width::B16, 2) => put.words::<u16, 2>(),
        (Width::B16, 4) => put.words::<u16, 4>(),
        (Width::B16, _) => put.words::<u16, 8>(),
        (Width::B8, 2) => put.words::<u8, 2>(),
        (Width::B8, 4) => put.words::<u8, 4>(),
        (Width::B8, _) => put.words::<u8, 8>(),
    }
}

/// A store in progress.
struct Put<'a, 'r, 'm> {
    regs: &'a Regs<'r>,
    memory: &'a mut Memory<'m>,
    local: &'a mut Local,
    access: &'a Access,
    vectors: &'a [u16],
    addresses: &'a Longs,
    mask: u32,
}

impl Put<'_, '_, '_> {
    #[inline(never)]
    fn words<T: Cell, const N: usize>(&mut self) -> Result<(), Fault> {
        let mut values = [[T::default(); LANES]; N];
        for (&slot, values) in slots::<N>(self.access, self.vectors)
            .iter()
            .zip(&mut values)
        {
            match self.access.register {
                Width::B64 => {
                    let from = &self.regs.d[usize::from(slot)];
                    for (value, &from) in values.iter_mut().zip(from) {
                        *value = T::truncate(from);
                    }
                }
                _ => {
                    let from = &self.regs.w[usize::from(slot)];
                    for (value, &from) in values.iter_mut().zip(from) {
                        *value = T::truncate(u64::from(from));
                    }
                }
            }
        }
        self.memory.store(
            self.local,
            self.access.space,
            self.addresses,
            self.mask,
            &values,
        )
    }
}
