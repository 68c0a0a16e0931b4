//! Loads and stores: from registers to addresses, from memory words to registers and back. How words are found is in `gather.rs`.
#![expect(
    clippy::cast_possible_truncation,
    reason = "stores of narrow words keep the low bits of a register"
)]

use std::marker::PhantomData;

use super::code::{Access, LANES, NO_SLOT, Space, Width};
use super::gather::{HALF, Pattern, pattern, pattern32};
use super::groups::Frame;
use super::lane_fn::{AccessOp, AccessRun};
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

/// A load or store in progress.
pub(super) struct Accessing<'a, 'r, 'm> {
    pub(super) regs: &'a mut Regs<'r>,
    pub(super) memory: &'a mut Memory<'m>,
    pub(super) local: &'a mut Local,
    pub(super) access: &'a Access,
    pub(super) vectors: &'a [u16],
    pub(super) frame: Frame,
    pub(super) mask: u32,
}

impl Accessing<'_, '_, '_> {
    #[inline(always)]
    fn addresses(&self) -> Longs {
        let Access {
            address,
            wide_address,
            offset,
            space,
            ..
        } = *self.access;
        addresses(self.regs, address, wide_address, offset, space, self.frame)
    }

    /// The row of local memory that a variable of the frame is.
    #[inline(always)]
    fn row(&self) -> Option<usize> {
        let at = i64::from(self.frame.local) * 4 + i64::from(self.access.offset);
        usize::try_from(at / 4).ok().filter(|_| at >= 0)
    }
}

/// Whether an access is of one word of the frame: a variable, or a parameter, whose address is the same for all lanes.
fn is_of_frame(access: &Access) -> bool {
    access.space == Space::Local
        && access.address == NO_SLOT
        && access.count == 1
        && access.width == Width::B32
        && access.register == Width::B32
        && access.offset % 4 == 0
}

/// What of a load or store of single words goes a shorter way while all lanes run and follow each other or agree.
#[derive(PartialEq)]
enum Short {
    No,
    Shared,
    Window,
}

fn short_way(access: &Access) -> Short {
    let is_word = access.count == 1
        && access.width == Width::B32
        && access.register == Width::B32
        && access.address != NO_SLOT;
    match (access.space, access.wide_address) {
        (Space::Shared, false) if is_word => Short::Shared,
        (Space::Global | Space::Generic, true) if is_word => Short::Window,
        _ => Short::No,
    }
}

/// How a load runs.
pub(super) fn load(access: &Access) -> AccessRun {
    if is_of_frame(access) {
        return AccessRun::of::<LoadFrame>();
    }
    match short_way(access) {
        Short::Shared => return AccessRun::of::<LoadShared>(),
        Short::Window => return AccessRun::of::<LoadWindow>(),
        Short::No => {}
    }
    match (access.width, access.count) {
        (Width::B32, 1) => AccessRun::of::<Load<u32, 1>>(),
        (Width::B64, 1) => AccessRun::of::<Load<u64, 1>>(),
        (Width::B8, 1) => AccessRun::of::<Load<u8, 1>>(),
        (Width::B16, 1) => AccessRun::of::<Load<u16, 1>>(),
        (Width::B32, 2) => AccessRun::of::<Load<u32, 2>>(),
        (Width::B32, 4) => AccessRun::of::<Load<u32, 4>>(),
        (Width::B32, _) => AccessRun::of::<Load<u32, 8>>(),
        (Width::B64, 2) => AccessRun::of::<Load<u64, 2>>(),
        (Width::B64, _) => AccessRun::of::<Load<u64, 4>>(),
        (Width::B16, 2) => AccessRun::of::<Load<u16, 2>>(),
        (Width::B16, 4) => AccessRun::of::<Load<u16, 4>>(),
        (Width::B16, _) => AccessRun::of::<Load<u16, 8>>(),
        (Width::B8, 2) => AccessRun::of::<Load<u8, 2>>(),
        (Width::B8, 4) => AccessRun::of::<Load<u8, 4>>(),
        (Width::B8, _) => AccessRun::of::<Load<u8, 8>>(),
    }
}

/// How a store runs.
pub(super) fn store(access: &Access) -> AccessRun {
    if is_of_frame(access) {
        return AccessRun::of::<StoreFrame>();
    }
    if short_way(access) == Short::Window {
        return AccessRun::of::<StoreWindow>();
    }
    match (access.width, access.count) {
        (Width::B32, 1) => AccessRun::of::<Store<u32, 1>>(),
        (Width::B64, 1) => AccessRun::of::<Store<u64, 1>>(),
        (Width::B8, 1) => AccessRun::of::<Store<u8, 1>>(),
        (Width::B16, 1) => AccessRun::of::<Store<u16, 1>>(),
        (Width::B32, 2) => AccessRun::of::<Store<u32, 2>>(),
        (Width::B32, 4) => AccessRun::of::<Store<u32, 4>>(),
        (Width::B32, _) => AccessRun::of::<Store<u32, 8>>(),
        (Width::B64, 2) => AccessRun::of::<Store<u64, 2>>(),
        (Width::B64, _) => AccessRun::of::<Store<u64, 4>>(),
        (Width::B16, 2) => AccessRun::of::<Store<u16, 2>>(),
        (Width::B16, 4) => AccessRun::of::<Store<u16, 4>>(),
        (Width::B16, _) => AccessRun::of::<Store<u16, 8>>(),
        (Width::B8, 2) => AccessRun::of::<Store<u8, 2>>(),
        (Width::B8, 4) => AccessRun::of::<Store<u8, 4>>(),
        (Width::B8, _) => AccessRun::of::<Store<u8, 8>>(),
    }
}

/// A load of a word of the frame.
struct LoadFrame;

impl AccessOp for LoadFrame {
    #[inline(always)]
    fn run(of: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
        match of.row().and_then(|row| of.local.get(row)) {
            Some(row) => {
                blend(&mut of.regs.w[usize::from(of.access.data)], of.mask, row);
                Ok(())
            }
            None => Load::<u32, 1>::run(of),
        }
    }
}

/// A store of one.
struct StoreFrame;

impl AccessOp for StoreFrame {
    #[inline(always)]
    fn run(of: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
        match of.row().and_then(|row| of.local.get_mut(row)) {
            Some(row) => {
                blend(row, of.mask, &of.regs.w[usize::from(of.access.data)]);
                Ok(())
            }
            None => Store::<u32, 1>::run(of),
        }
    }
}

/// A load of a word of shared memory, whose addresses have 32 bits.
struct LoadShared;

impl LoadShared {
    /// `None` where the longer way is to be gone, or finds what is wrong.
    #[inline(always)]
    fn short(of: &mut Accessing<'_, '_, '_>) -> Option<()> {
        if of.mask != u32::MAX {
            return None;
        }
        let offset = of.access.offset.cast_unsigned();
        let cells = u32::cells(of.memory.shared);
        let (halves, _) = of.regs.w[usize::from(of.access.address)].as_chunks::<HALF>();
        // Written at once in the end: the longer way needs the addresses, which may be in the same register.
        let mut words = [0; LANES];
        let (out, _) = words.as_chunks_mut::<HALF>();
        for (addresses, out) in halves.iter().zip(out) {
            let first = addresses[0].wrapping_add(offset);
            let cells = cells.get(usize::try_from(first / 4).ok()?..)?;
            if !first.is_multiple_of(4) {
                return None;
            }
            match pattern32(addresses) {
                Pattern::Run => {
                    for (out, cell) in out.iter_mut().zip(cells.first_chunk::<HALF>()?) {
                        *out = u32::of(*cell);
                    }
                }
                Pattern::Same => *out = [u32::of(*cells.first()?); HALF],
                Pattern::Any => return None,
            }
        }
        of.regs.w[usize::from(of.access.data)] = words;
        Some(())
    }
}

impl AccessOp for LoadShared {
    #[inline(always)]
    fn run(of: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
        match Self::short(of) {
            Some(()) => Ok(()),
            None => Load::<u32, 1>::run(of),
        }
    }
}

/// A load of a word of the guest's window, if the addresses lead there, which have 64 bits.
struct LoadWindow;

impl LoadWindow {
    #[inline(always)]
    fn short(of: &mut Accessing<'_, '_, '_>) -> Option<()> {
        if of.mask != u32::MAX {
            return None;
        }
        let addresses = &of.regs.d[usize::from(of.access.address)];
        let first = addresses[0].wrapping_add(i64::from(of.access.offset).cast_unsigned());
        let out = &mut of.regs.w[usize::from(of.access.data)];
        match pattern(addresses, 4) {
            Pattern::Run => of.memory.window.load_run(first, out).ok(),
            Pattern::Same => {
                *out = [of.memory.window.load(first).ok()?; LANES];
                Some(())
            }
            Pattern::Any => None,
        }
    }
}

impl AccessOp for LoadWindow {
    #[inline(always)]
    fn run(of: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
        match Self::short(of) {
            Some(()) => Ok(()),
            None => Load::<u32, 1>::run(of),
        }
    }
}

/// A store of one.
struct StoreWindow;

impl StoreWindow {
    #[inline(always)]
    fn short(of: &mut Accessing<'_, '_, '_>) -> Option<()> {
        let addresses = &of.regs.d[usize::from(of.access.address)];
        if of.mask != u32::MAX || pattern(addresses, 4) != Pattern::Run {
            return None;
        }
        let first = addresses[0].wrapping_add(i64::from(of.access.offset).cast_unsigned());
        let from = &of.regs.w[usize::from(of.access.data)];
        of.memory.window.store_run(first, from).ok()
    }
}

impl AccessOp for StoreWindow {
    #[inline(always)]
    fn run(of: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
        match Self::short(of) {
            Some(()) => Ok(()),
            None => Store::<u32, 1>::run(of),
        }
    }
}

/// A load of `N` words a lane.
struct Load<T, const N: usize>(PhantomData<T>);

impl<T: Cell, const N: usize> AccessOp for Load<T, N> {
    #[inline(always)]
    fn run(of: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
        let addresses = of.addresses();
        let (access, mask) = (of.access, of.mask);
        let mut values = [[T::default(); LANES]; N];
        of.memory
            .load::<T, N>(of.local, access.space, &addresses, mask, &mut values)?;
        let spare = 64 - 8 * T::BYTES as u32;
        let extend = |value: T| {
            let value = value.widen();
            if access.signed {
                (((value << spare).cast_signed()) >> spare).cast_unsigned()
            } else {
                value
            }
        };
        for (&slot, values) in slots::<N>(access, of.vectors).iter().zip(&values) {
            if slot == NO_SLOT {
                continue;
            }
            let keep = match access.register {
                Width::B64 => {
                    let mut long = [0; LANES];
                    for (long, &value) in long.iter_mut().zip(values) {
                        *long = extend(value);
                    }
                    blend(&mut of.regs.d[usize::from(slot)], mask, &long);
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
            blend(&mut of.regs.w[usize::from(slot)], mask, &word);
        }
        Ok(())
    }
}

/// A store of `N` words a lane.
struct Store<T, const N: usize>(PhantomData<T>);

impl<T: Cell, const N: usize> AccessOp for Store<T, N> {
    #[inline(always)]
    fn run(of: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
        let addresses = of.addresses();
        let mut values = [[T::default(); LANES]; N];
        for (&slot, values) in slots::<N>(of.access, of.vectors).iter().zip(&mut values) {
            match of.access.register {
                Width::B64 => {
                    let from = &of.regs.d[usize::from(slot)];
                    for (value, &from) in values.iter_mut().zip(from) {
                        *value = T::truncate(from);
                    }
                }
                _ => {
                    let from = &of.regs.w[usize::from(slot)];
                    for (value, &from) in values.iter_mut().zip(from) {
                        *value = T::truncate(u64::from(from));
                    }
                }
            }
        }
        of.memory
            .store(of.local, of.access.space, &addresses, of.mask, &values)
    }
}
