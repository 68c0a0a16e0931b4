//! State spaces: where an address leads, and loads and stores of a warp's lanes there. Every access is checked for bounds and
//! alignment.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::control;
use crate::error::{AccessSpace, TrapKind};
use crate::mapping::{Window, WindowFault, Word};

use super::code::{Parameter, Space, Width};
use super::lanes::Words;

/// Generic addresses of each space but the guest's window, far above its 4 GiB and from each other.
pub(super) const SHARED_BASE: u64 = 1 << 40;
pub(super) const LOCAL_BASE: u64 = 2 << 40;
pub(super) const GLOBALS_BASE: u64 = 3 << 40;
pub(super) const CONST_BASE: u64 = 4 << 40;
pub(super) const PARAM_BASE: u64 = 5 << 40;
/// The words of a launch that CUDA's grid barrier works on.
pub(super) const WORKSPACE_BASE: u64 = 6 << 40;
/// Addresses of functions.
pub(super) const FUNCTION_ADDRESS: u64 = 7 << 40;
/// The control block of a confined launch.
pub(super) const CONTROL_BASE: u64 = 8 << 40;
/// Bytes of generic addresses that one space has.
pub(super) const SPACE_BYTES: u64 = 1 << 40;

/// An access that failed: what a trap is made from once the thread is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: TrapKind,
    pub(super) lane: usize,
    pub(super) access: Option<(u64, u32, Space)>,
}

impl From<Space> for AccessSpace {
    fn from(space: Space) -> Self {
        match space {
            Space::Const => Self::Const,
            Space::Generic => Self::Generic,
            Space::Global => Self::Global,
            Space::Local => Self::Local,
            Space::Param => Self::Param,
            Space::Shared => Self::Shared,
        }
    }
}

/// A word in memory.
pub(super) trait Cell: Word {
    const BYTES: u64;
    /// Its bytes, little-endian.
    type Bytes: Copy;
    /// Bytes as whole words.
    fn cells(bytes: &[u8]) -> &[Self::Bytes];
    fn cells_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
    fn of(bytes: Self::Bytes) -> Self;
    fn bytes(self) -> Self::Bytes;
    fn read(bytes: &[u8], at: u64) -> Option<Self>;
    fn write(bytes: &mut [u8], at: u64, value: Self) -> Option<()>;
    fn widen(self) -> u64;
    fn truncate(value: u64) -> Self;
}

macro_rules! cells {
    ($($word:ty),*) => {$(
        impl Cell for $word {
            const BYTES: u64 = size_of::<$word>() as u64;
            type Bytes = [u8; size_of::<$word>()];
            #[inline(always)]
            fn cells(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }
            #[inline(always)]
            fn cells_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0
            }
            #[inline(always)]
            fn of(bytes: Self::Bytes) -> Self {
                Self::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn bytes(self) -> Self::Bytes {
                self.to_le_bytes()
            }
            #[inline(always)]
            fn read(bytes: &[u8], at: u64) -> Option<Self> {
                let at = usize::try_from(at).ok()?;
                let word = bytes.get(at..)?.first_chunk()?;
                Some(Self::from_le_bytes(*word))
            }
            #[inline(always)]
            fn write(bytes: &mut [u8], at: u64, value: Self) -> Option<()> {
                let at = usize::try_from(at).ok()?;
                *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_le_bytes();
                Some(())
            }
            #[inline(always)]
            fn widen(self) -> u64 {
                u64::from(self)
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "keeps the low bits on purpose")]
            fn truncate(value: u64) -> Self {
                value as Self
            }
        }
    )*};
}

cells!(u8, u16, u32, u64);

/// The low and the high half of a number.
pub(super) fn halves(of: u64) -> [u32; 2] {
    [u32::truncate(of), u32::truncate(of >> 32)]
}

impl Parameter {
    /// What a load of the parameter gives; zero where the buffer is too short.
    pub(super) fn read(self, params: &[u8]) -> u64 {
        let at = u64::from(self.offset);
        let value = match self.width {
            Width::B8 => u8::read(params, at).map(u64::from),
            Width::B16 => u16::read(params, at).map(u64::from),
            Width::B32 => u32::read(params, at).map(u64::from),
            Width::B64 => u64::read(params, at),
        };
        let value = value.unwrap_or(0);
        let spare = 64 - 8 * self.width.bytes();
        let value = if self.signed {
            (((value << spare).cast_signed()) >> spare).cast_unsigned()
        } else {
            value
        };
        value & (u64::MAX >> (64 - 8 * self.register.bytes()))
    }
}

/// Where a generic or named address leads: a space and an offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Const(u64),
    Control(u64),
    Globals(u64),
    Local(u64),
    Nowhere,
    Param(u64),
    Shared(u64),
    Window(u64),
    Workspace(u64),
}

#[inline(always)]
pub(super) fn place(space: Space, address: u64) -> Place {
    let offset = address % SPACE_BYTES;
    match space {
        Space::Shared => Place::Shared(address),
        Space::Local => Place::Local(address),
        Space::Param => Place::Param(address),
        Space::Const => Place::Const(address),
        Space::Global | Space::Generic => match address - offset {
            0 => Place::Window(address),
            GLOBALS_BASE => Place::Globals(offset),
            WORKSPACE_BASE => Place::Workspace(offset),
            CONTROL_BASE => Place::Control(offset),
            _ if space == Space::Global => Place::Nowhere,
            SHARED_BASE => Place::Shared(offset),
            LOCAL_BASE => Place::Local(offset),
            CONST_BASE => Place::Const(offset),
            PARAM_BASE => Place::Param(offset),
            _ => Place::Nowhere,
        },
    }
}

/// Local memory of a warp: rows of one 32-bit word a lane.
pub(super) type Local = Vec<Words>;

pub(super) fn read_local<T: Cell>(local: &Local, at: u64, lane: usize) -> Option<T> {
    let row = usize::try_from(at / 4).ok()?;
    let low = u64::from(local.get(row)?[lane]);
    if T::BYTES == 8 {
        return Some(T::truncate(
            low | u64::from(local.get(row + 1)?[lane]) << 32,
        ));
    }
    Some(T::truncate(low >> (8 * (at % 4))))
}

#[allow(clippy::cast_possible_truncation, reason = "splits a word in halves")]
pub(super) fn write_local<T: Cell>(
    local: &mut Local,
    at: u64,
    lane: usize,
    value: T,
) -> Option<()> {
    let row = usize::try_from(at / 4).ok()?;
    let value = value.widen();
    if T::BYTES == 8 {
        local.get_mut(row + 1)?[lane] = (value >> 32) as u32;
        local.get_mut(row)?[lane] = value as u32;
        return Some(());
    }
    let shift = 8 * (at % 4);
    let mask = (((1_u64 << (8 * T::BYTES)) - 1) << shift) as u32;
    let word = &mut local.get_mut(row)?[lane];
    *word = *word & !mask | (value << shift) as u32 & mask;
    Some(())
}

/// All that a warp can address.
pub(super) struct Memory<'a> {
    pub(super) window: Window<'a>,
    pub(super) globals: Window<'a>,
    /// The block's own shared memory.
    pub(super) shared: &'a mut [u8],
    pub(super) cluster: Cluster<'a>,
    pub(super) constants: &'a [u8],
    pub(super) params: &'a [u8],
    pub(super) workspace: &'a Workspace,
    /// Of a confined launch only.
    pub(super) control: Option<&'a Control>,
}

/// How far the shared memories of a cluster's blocks are from each other where an address says which block is meant: 0 for
/// the own, 1 for that of rank 0 and so on.
pub(super) const PEER_BYTES: u64 = 1 << 24;

/// The shared memory of the other blocks of a cluster.
#[derive(Default)]
pub(super) struct Cluster<'a> {
    pub(super) rank: usize,
    /// Bytes of each.
    pub(super) bytes: usize,
    /// Of those before and of those after it.
    pub(super) before: &'a mut [u8],
    pub(super) after: &'a mut [u8],
}

/// A few words that the blocks of a launch share, all zero at its start.
#[derive(Debug, Default)]
pub(super) struct Workspace([AtomicU32; 4]);

impl Workspace {
    fn word<T: Cell>(&self, at: u64) -> Option<&AtomicU32> {
        let index = usize::try_from(at / 4).ok()?;
        self.0
            .get(index)
            .filter(|_| T::BYTES == 4 && at.is_multiple_of(4))
    }

    fn load<T: Cell>(&self, at: u64) -> Option<T> {
        Some(T::truncate(
            self.word::<T>(at)?.load(Ordering::Relaxed).into(),
        ))
    }

    fn update<T: Cell>(&self, at: u64, mut change: impl FnMut(T) -> T) -> Option<T> {
        let next = |word: u32| u32::try_from(change(T::truncate(word.into())).widen()).ok();
        let before = self
            .word::<T>(at)?
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        Some(T::truncate(before.unwrap_or_else(|word| word).into()))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The control block of a confined launch.
#[derive(Debug, Default)]
pub(super) struct Control([AtomicU64; control::WORDS]);

impl Control {
    /// Makes it ready for a launch.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What a launch that has ended left.
    pub(super) fn block(&self) -> control::Block {
        control::Block(std::array::from_fn(|at| self.0[at].load(Ordering::Acquire)))
    }

    /// The word of 64 bits that a word is in, and how far up in it.
    fn word<T: Cell>(&self, at: u64) -> Option<(&AtomicU64, u32)> {
        let index = usize::try_from(at / 8).ok()?;
        let shift = 8 * u32::truncate(at % 8);
        Some((self.0.get(index)?, shift)).filter(|_| at.is_multiple_of(T::BYTES))
    }

    fn load<T: Cell>(&self, at: u64) -> Option<T> {
        let (word, shift) = self.word::<T>(at)?;
        Some(T::truncate(word.load(Ordering::Relaxed) >> shift))
    }

    fn update<T: Cell>(&self, at: u64, mut change: impl FnMut(T) -> T) -> Option<T> {
        let (word, shift) = self.word::<T>(at)?;
        let mask = (u64::MAX >> (64 - 8 * T::BYTES)) << shift;
        let next = |word: u64| {
            let changed = change(T::truncate(word >> shift)).widen() << shift;
            Some(word & !mask | changed)
        };
        let before = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        Some(T::truncate(before.unwrap_or_else(|word| word) >> shift))
    }
}

fn kind(fault: WindowFault) -> TrapKind {
    match fault {
        WindowFault::Misaligned => TrapKind::Misaligned,
        WindowFault::OutOfBounds => TrapKind::OutOfBounds,
    }
}

impl Memory<'_> {
    /// The shared memory of the block that an address leads to.
    fn shared_of(&self, at: u64) -> Result<&[u8], TrapKind> {
        let (rank, own) = (self.cluster.rank, &*self.shared);
        let of = |rank: usize, from: &[u8]| (rank * self.cluster.bytes).min(from.len());
        let block = match usize::try_from(at / PEER_BYTES).map_err(|_| TrapKind::OutOfBounds)? {
            0 => own,
            peer if peer - 1 == rank => own,
            peer if peer - 1 < rank => &self.cluster.before[of(peer - 1, self.cluster.before)..],
            peer => &self.cluster.after[of(peer - 2 - rank, self.cluster.after)..],
        };
        Ok(&block[..block.len().min(self.shared.len())])
    }

    fn shared_mut(&mut self, at: u64) -> Result<&mut [u8], TrapKind> {
        let (rank, len) = (self.cluster.rank, self.shared.len());
        let of = |rank: usize, from: &[u8]| (rank * self.cluster.bytes).min(from.len());
        let block = match usize::try_from(at / PEER_BYTES).map_err(|_| TrapKind::OutOfBounds)? {
            0 => &mut *self.shared,
            peer if peer - 1 == rank => &mut *self.shared,
            peer if peer - 1 < rank => {
                let at = of(peer - 1, self.cluster.before);
                &mut self.cluster.before[at..]
            }
            peer => {
                let at = of(peer - 2 - rank, self.cluster.after);
                &mut self.cluster.after[at..]
            }
        };
        let len = block.len().min(len);
        Ok(&mut block[..len])
    }

    #[inline]
    pub(super) fn load_one<T: Cell>(
        &self,
        local: &Local,
        space: Space,
        address: u64,
        lane: usize,
    ) -> Result<T, TrapKind> {
        if !address.is_multiple_of(T::BYTES) {
            return Err(TrapKind::Misaligned);
        }
        match place(space, address) {
            Place::Window(at) => return self.window.load(at).map_err(kind),
            Place::Globals(at) => return self.globals.load(at).map_err(kind),
            Place::Shared(at) => T::read(self.shared_of(at)?, at % PEER_BYTES),
            Place::Local(at) => read_local(local, at, lane),
            Place::Const(at) => T::read(self.constants, at),
            Place::Param(at) => T::read(self.params, at),
            Place::Workspace(at) => self.workspace.load(at),
            Place::Control(at) => self.control.and_then(|control| control.load(at)),
            Place::Nowhere => None,
        }
        .ok_or(TrapKind::OutOfBounds)
    }

    #[inline]
    pub(super) fn store_one<T: Cell>(
        &mut self,
        local: &mut Local,
        space: Space,
        address: u64,
        lane: usize,
        value: T,
    ) -> Result<(), TrapKind> {
        if !address.is_multiple_of(T::BYTES) {
            return Err(TrapKind::Misaligned);
        }
        match place(space, address) {
            Place::Window(at) => return self.window.store(at, value).map_err(kind),
            Place::Globals(at) => return self.globals.store(at, value).map_err(kind),
            Place::Shared(at) => T::write(self.shared_mut(at)?, at % PEER_BYTES, value),
            Place::Local(at) => write_local(local, at, lane, value),
            Place::Workspace(at) => self.workspace.update(at, |_| value).map(drop),
            Place::Control(at) => self
                .control
                .and_then(|control| control.update(at, |_| value))
                .map(drop),
            Place::Const(_) | Place::Param(_) | Place::Nowhere => None,
        }
        .ok_or(TrapKind::OutOfBounds)
    }

    /// Replaces a word of one lane by `change` of it, in one atomic step, and gives the value before.
    pub(super) fn update<T: Cell>(
        &mut self,
        local: &mut Local,
        space: Space,
        address: u64,
        lane: usize,
        mut change: impl FnMut(T) -> T,
    ) -> Result<T, Fault> {
        let failed = |kind| fault(kind, lane, address, T::BYTES, space);
        match place(space, address) {
            Place::Window(at) => self
                .window
                .update(at, change)
                .map_err(|fault| failed(kind(fault))),
            Place::Globals(at) => self
                .globals
                .update(at, change)
                .map_err(|fault| failed(kind(fault))),
            Place::Workspace(at) => self
                .workspace
                .update(at, change)
                .ok_or_else(|| failed(TrapKind::OutOfBounds)),
            Place::Control(at) => self
                .control
                .and_then(|control| control.update(at, change))
                .ok_or_else(|| failed(TrapKind::OutOfBounds)),
            _ => {
                // The block is run by one thread at a time, so nothing comes between.
                let before = self.load_one(local, space, address, lane).map_err(failed)?;
                self.store_one(local, space, address, lane, change(before))
                    .map_err(failed)?;
                Ok(before)
            }
        }
    }

    /// Copies `read` bytes from global to shared memory and fills up to `bytes` with zero.
    pub(super) fn copy_to_shared(
        &mut self,
        lane: usize,
        to: u64,
        from: u64,
        bytes: u32,
        read: u32,
    ) -> Result<(), Fault> {
        let width = u64::from(bytes);
        if !to.is_multiple_of(width) {
            return Err(fault(TrapKind::Misaligned, lane, to, width, Space::Shared));
        }
        if read > 0 && !from.is_multiple_of(width) {
            return Err(fault(
                TrapKind::Misaligned,
                lane,
                from,
                width,
                Space::Global,
            ));
        }
        let mut buffer = [0; 16];
        for (at, byte) in (0..u64::from(read.min(bytes))).zip(&mut buffer) {
            *byte = match place(Space::Global, from.wrapping_add(at)) {
                Place::Window(at) => self.window.load(at).map_err(kind),
                Place::Globals(at) => self.globals.load(at).map_err(kind),
                _ => Err(TrapKind::OutOfBounds),
            }
            .map_err(|kind| fault(kind, lane, from, width, Space::Global))?;
        }
        let to_slice = usize::try_from(to).ok().and_then(|to| {
            self.shared
                .get_mut(to..)?
                .get_mut(..usize::try_from(bytes).ok()?)
        });
        match to_slice {
            Some(slice) => {
                slice.copy_from_slice(&buffer[..slice.len()]);
                Ok(())
            }
            None => Err(fault(TrapKind::OutOfBounds, lane, to, width, Space::Shared)),
        }
    }
}

#[cold]
pub(super) fn fault(kind: TrapKind, lane: usize, address: u64, bytes: u64, space: Space) -> Fault {
    Fault {
        kind,
        lane,
        access: Some((address, u32::try_from(bytes).unwrap_or(u32::MAX), space)),
    }
}
