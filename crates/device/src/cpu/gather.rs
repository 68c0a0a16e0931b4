//! Loads and stores of a warp: all lanes at once where their addresses allow it, else lane by lane, which also finds out what
//! is wrong with which.
//!
//! Warps are looked at by halves, since blocks are often 16 threads wide: the addresses of a half are the same, or follow each
//! other, or neither.

use crate::error::TrapKind;
use crate::mapping::Window;

use super::code::{LANES, Space};
use super::lanes::{Longs, blend, lanes};
use super::memory::{Cell, Fault, Local, Memory, Place, SPACE_BYTES, fault, place, read_local};

/// Lanes that are looked at together.
pub(super) const HALF: usize = 16;

/// How addresses lie to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    Any,
    Same,
    /// One after the other.
    Run,
}

#[inline(always)]
pub(super) fn pattern<const N: usize>(addresses: &[u64; N], stride: u64) -> Pattern {
    let first = addresses[0];
    let (mut run, mut same) = (0, 0);
    let mut expected = first;
    for &address in addresses {
        run |= address ^ expected;
        same |= address ^ first;
        expected = expected.wrapping_add(stride);
    }
    if run == 0 {
        Pattern::Run
    } else if same == 0 {
        Pattern::Same
    } else {
        Pattern::Any
    }
}

/// The same of addresses of 32 bits, for words of four bytes.
#[inline(always)]
pub(super) fn pattern32(addresses: &[u32; HALF]) -> Pattern {
    let first = addresses[0];
    let (mut run, mut same) = (0, 0);
    let mut expected = first;
    for &address in addresses {
        run |= address ^ expected;
        same |= address ^ first;
        expected = expected.wrapping_add(4);
    }
    if run == 0 {
        Pattern::Run
    } else if same == 0 {
        Pattern::Same
    } else {
        Pattern::Any
    }
}

/// The place that all addresses lead to, if it is one: where the first leads, and the base of the space.
#[inline(always)]
fn common_place(space: Space, addresses: &Longs) -> Option<(Place, u64)> {
    let first = addresses[0];
    let common = place(space, first);
    if !matches!(space, Space::Global | Space::Generic) {
        return Some((common, 0));
    }
    let base = first - first % SPACE_BYTES;
    let apart = addresses
        .iter()
        .fold(0, |apart, address| apart | (address ^ base));
    (apart < SPACE_BYTES).then_some((common, base))
}

/// The addresses with those of lanes outside the mask replaced by one inside.
fn filled(addresses: &Longs, mask: u32) -> Longs {
    let one = addresses[mask.trailing_zeros() as usize % LANES];
    let mut filled = [one; LANES];
    blend(&mut filled, mask, addresses);
    filled
}

/// Offsets of words behind each other.
#[inline(always)]
fn steps<T: Cell>() -> impl Iterator<Item = u64> {
    (0..).step_by(size_of::<T>())
}

/// Words of a half, from the first address on.
#[inline(always)]
fn window_run<T: Cell, const N: usize>(
    window: &Window<'_>,
    at: u64,
    half: usize,
    out: &mut [[T; LANES]; N],
) -> bool {
    if N == 1 {
        return window.load_run(at, &mut out[0][half..half + HALF]).is_ok();
    }
    let mut run = [[T::default(); N]; HALF];
    if window.load_run(at, run.as_flattened_mut()).is_err() {
        return false;
    }
    for (lane, words) in run.iter().enumerate() {
        for (out, &word) in out.iter_mut().zip(words) {
            out[half + lane] = word;
        }
    }
    true
}

/// Words of a half, each from its address.
#[inline(always)]
fn window_gather<T: Cell, const N: usize>(
    window: &Window<'_>,
    addresses: &[u64; HALF],
    base: u64,
    half: usize,
    out: &mut [[T; LANES]; N],
) -> bool {
    let mut bits = 0;
    for (lane, &address) in addresses.iter().enumerate() {
        bits |= address;
        for (step, out) in steps::<T>().zip(out.iter_mut()) {
            match window.load(address - base + step) {
                Ok(word) => out[half + lane] = word,
                Err(_) => return false,
            }
        }
    }
    bits.is_multiple_of(T::BYTES * N as u64)
}

/// Words of a half from a slice.
#[inline(always)]
fn slice_gather<T: Cell, const N: usize>(
    from: &[u8],
    addresses: &[u64; HALF],
    base: u64,
    half: usize,
    out: &mut [[T; LANES]; N],
) -> bool {
    let cells = T::cells(from);
    let mut bits = 0;
    for (lane, &address) in addresses.iter().enumerate() {
        bits |= address;
        let at = usize::try_from((address - base) / T::BYTES).unwrap_or(usize::MAX);
        let Some(words) = cells.get(at..).and_then(|cells| cells.first_chunk::<N>()) else {
            return false;
        };
        for (out, &word) in out.iter_mut().zip(words) {
            out[half + lane] = T::of(word);
        }
    }
    bits.is_multiple_of(T::BYTES * N as u64)
}

// The functions below are loops and always inlined, so that all of a load is compiled for the processor that it runs on.

/// Words of a half from a window.
#[inline(always)]
fn window_half<T: Cell, const N: usize>(
    window: &Window<'_>,
    addresses: &[u64; HALF],
    base: u64,
    half: usize,
    out: &mut [[T; LANES]; N],
) -> bool {
    let bytes = T::BYTES * N as u64;
    let first = addresses[0];
    match pattern(addresses, bytes) {
        Pattern::Any => window_gather(window, addresses, base, half, out),
        Pattern::Run | Pattern::Same if !first.is_multiple_of(bytes) => false,
        Pattern::Run => window_run(window, first - base, half, out),
        Pattern::Same => {
            for (step, out) in steps::<T>().zip(out.iter_mut()) {
                match window.load(first - base + step) {
                    Ok(word) => out[half..half + HALF].fill(word),
                    Err(_) => return false,
                }
            }
            true
        }
    }
}

/// Words of a half from a slice.
#[inline(always)]
fn slice_half<T: Cell, const N: usize>(
    slice: &[u8],
    addresses: &[u64; HALF],
    base: u64,
    half: usize,
    out: &mut [[T; LANES]; N],
) -> bool {
    let bytes = T::BYTES * N as u64;
    let first = addresses[0];
    let pattern = pattern(addresses, bytes);
    if pattern == Pattern::Any {
        return slice_gather(slice, addresses, base, half, out);
    }
    let at = usize::try_from((first - base) / T::BYTES).unwrap_or(usize::MAX);
    let Some(cells) = T::cells(slice)
        .get(at..)
        .filter(|_| first.is_multiple_of(bytes))
    else {
        return false;
    };
    if pattern == Pattern::Same {
        let Some(words) = cells.first_chunk::<N>() else {
            return false;
        };
        for (out, &word) in out.iter_mut().zip(words) {
            out[half..half + HALF].fill(T::of(word));
        }
        return true;
    }
    let Some(run) = cells.get(..HALF * N) else {
        return false;
    };
    for (lane, words) in run.chunks_exact(N).enumerate() {
        for (out, &word) in out.iter_mut().zip(words) {
            out[half + lane] = T::of(word);
        }
    }
    true
}

impl Memory<'_> {
    /// Reads `N` consecutive words for each lane of the mask; what other lanes get means nothing.
    #[inline(always)]
    pub(super) fn load<T: Cell, const N: usize>(
        &self,
        local: &Local,
        space: Space,
        addresses: &Longs,
        mask: u32,
        out: &mut [[T; LANES]; N],
    ) -> Result<(), Fault> {
        let spare;
        let all = if mask == u32::MAX {
            addresses
        } else {
            spare = filled(addresses, mask);
            &spare
        };
        if self.load_all(local, space, all, out) {
            return Ok(());
        }
        self.load_each(local, space, addresses, mask, out)
    }

    /// Reads for all lanes, where their addresses lead to one place. `false` if something is wrong with one of them, or if they
    /// lead to several.
    #[inline(always)]
    fn load_all<T: Cell, const N: usize>(
        &self,
        local: &Local,
        space: Space,
        addresses: &Longs,
        out: &mut [[T; LANES]; N],
    ) -> bool {
        let Some((common, base)) = common_place(space, addresses) else {
            return false;
        };
        let (halves, _) = addresses.as_chunks::<HALF>();
        let slice = match common {
            Place::Window(_) | Place::Globals(_) => {
                let window = if base == 0 {
                    &self.window
                } else {
                    &self.globals
                };
                for (addresses, half) in halves.iter().zip([0, HALF]) {
                    if !window_half(window, addresses, base, half, out) {
                        return false;
                    }
                }
                return true;
            }
            Place::Local(_) => return local_rows(local, addresses, base, out),
            Place::Shared(_) => &*self.shared,
            Place::Const(_) => self.constants,
            Place::Param(_) => self.params,
            Place::Control(_) | Place::Nowhere | Place::Workspace(_) => return false,
        };
        for (addresses, half) in halves.iter().zip([0, HALF]) {
            if !slice_half(slice, addresses, base, half, out) {
                return false;
            }
        }
        true
    }

    /// Reads lane by lane.
    #[inline(never)]
    fn load_each<T: Cell, const N: usize>(
        &self,
        local: &Local,
        space: Space,
        addresses: &Longs,
        mask: u32,
        out: &mut [[T; LANES]; N],
    ) -> Result<(), Fault> {
        let bytes = T::BYTES * N as u64;
        for lane in lanes(mask) {
            let address = addresses[lane];
            if N > 1 && !address.is_multiple_of(bytes) {
                return Err(fault(TrapKind::Misaligned, lane, address, bytes, space));
            }
            for (step, out) in steps::<T>().zip(out.iter_mut()) {
                out[lane] = self
                    .load_one(local, space, address.wrapping_add(step), lane)
                    .map_err(|kind| fault(kind, lane, address, bytes, space))?;
            }
        }
        Ok(())
    }

    /// Writes `N` consecutive words for each lane of the mask, in order of lanes.
    #[inline(always)]
    pub(super) fn store<T: Cell, const N: usize>(
        &mut self,
        local: &mut Local,
        space: Space,
        addresses: &Longs,
        mask: u32,
        values: &[[T; LANES]; N],
    ) -> Result<(), Fault> {
        if mask == u32::MAX && self.store_all(space, addresses, values) {
            return Ok(());
        }
        self.store_each(local, space, addresses, mask, values)
    }

    /// Writes for all lanes, where their addresses lead to one place. `false` if something is wrong with one of them, or if they
    /// lead to several; some lanes may have written then, which write the same again.
    #[inline(always)]
    fn store_all<T: Cell, const N: usize>(
        &mut self,
        space: Space,
        addresses: &Longs,
        values: &[[T; LANES]; N],
    ) -> bool {
        let Some((common, base)) = common_place(space, addresses) else {
            return false;
        };
        let (halves, _) = addresses.as_chunks::<HALF>();
        match common {
            Place::Window(_) | Place::Globals(_) => {
                let window = if base == 0 {
                    &self.window
                } else {
                    &self.globals
                };
                for (addresses, half) in halves.iter().zip([0, HALF]) {
                    if !store_window_half(window, addresses, base, half, values) {
                        return false;
                    }
                }
                true
            }
            Place::Shared(_) => store_slice(self.shared, addresses, base, values),
            _ => false,
        }
    }

    #[inline(never)]
    fn store_each<T: Cell, const N: usize>(
        &mut self,
        local: &mut Local,
        space: Space,
        addresses: &Longs,
        mask: u32,
        values: &[[T; LANES]; N],
    ) -> Result<(), Fault> {
        let bytes = T::BYTES * N as u64;
        for lane in lanes(mask) {
            let address = addresses[lane];
            if N > 1 && !address.is_multiple_of(bytes) {
                return Err(fault(TrapKind::Misaligned, lane, address, bytes, space));
            }
            for (step, values) in steps::<T>().zip(values) {
                self.store_one(local, space, address.wrapping_add(step), lane, values[lane])
                    .map_err(|kind| fault(kind, lane, address, bytes, space))?;
            }
        }
        Ok(())
    }
}

/// Writes words of a half to a window.
#[inline(always)]
fn store_window_half<T: Cell, const N: usize>(
    window: &Window<'_>,
    addresses: &[u64; HALF],
    base: u64,
    half: usize,
    values: &[[T; LANES]; N],
) -> bool {
    let bytes = T::BYTES * N as u64;
    let first = addresses[0];
    if pattern(addresses, bytes) == Pattern::Run && first.is_multiple_of(bytes) {
        if N == 1 {
            let run = &values[0][half..half + HALF];
            return window.store_run(first - base, run).is_ok();
        }
        let mut run = [[T::default(); N]; HALF];
        for (lane, words) in run.iter_mut().enumerate() {
            for (word, values) in words.iter_mut().zip(values) {
                *word = values[half + lane];
            }
        }
        return window.store_run(first - base, run.as_flattened()).is_ok();
    }
    let bits = addresses.iter().fold(0, |bits, address| bits | address);
    if !bits.is_multiple_of(bytes) {
        return false;
    }
    for (lane, address) in addresses.iter().enumerate() {
        for (step, values) in steps::<T>().zip(values) {
            let at = address - base + step;
            if window.store(at, values[half + lane]).is_err() {
                return false;
            }
        }
    }
    true
}

/// Writes words to a slice.
#[inline(always)]
fn store_slice<T: Cell, const N: usize>(
    slice: &mut [u8],
    addresses: &Longs,
    base: u64,
    values: &[[T; LANES]; N],
) -> bool {
    let bits = addresses.iter().fold(0, |bits, address| bits | address);
    if !bits.is_multiple_of(T::BYTES * N as u64) {
        return false;
    }
    let cells = T::cells_mut(slice);
    for (lane, &address) in addresses.iter().enumerate() {
        let at = usize::try_from((address - base) / T::BYTES).unwrap_or(usize::MAX);
        let room = cells
            .get_mut(at..)
            .and_then(|cells| cells.first_chunk_mut::<N>());
        let Some(room) = room else { return false };
        for (word, values) in room.iter_mut().zip(values) {
            *word = values[lane].bytes();
        }
    }
    true
}

/// Words of local memory at one address, which is a row or two.
#[inline(always)]
fn local_rows<T: Cell, const N: usize>(
    local: &Local,
    addresses: &Longs,
    base: u64,
    out: &mut [[T; LANES]; N],
) -> bool {
    let at = addresses[0] - base;
    let same = addresses
        .iter()
        .fold(0, |apart, address| apart | (address ^ addresses[0]))
        == 0;
    if !same || !at.is_multiple_of(T::BYTES * N as u64) {
        return false;
    }
    for (step, out) in steps::<T>().zip(out) {
        for (lane, out) in out.iter_mut().enumerate() {
            match read_local(local, at + step, lane) {
                Some(word) => *out = word,
                None => return false,
            }
        }
    }
    true
}
