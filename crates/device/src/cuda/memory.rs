//! Memory of the driver's making ([`Allocation`]): the device's own, or managed memory, which host and device reach at the same
//! addresses; and managed memory whose pages are closed to the host until they are opened ([`Reservation`]).
#![expect(
    unsafe_code,
    reason = "allocates, frees and copies the driver's memory"
)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use cust::sys::{self, CUdevice, CUmem_advise, CUmemAttach_flags};

use super::backing::LEAD_BYTES;
use super::context::Context;
use super::error::{check, code};
use super::staging::STAGE_BYTES;
use super::stream::{Lane, Stream};
use crate::error::Error;
use crate::mapping::{HostAddr, Mapping, page_bytes};

/// The driver puts smaller allocations together into blocks of this size, and gives back to the operating system no less: a
/// whole number of blocks shares its pages with nobody and is zero when new.
pub(super) const BLOCK_BYTES: usize = 2 << 20;

/// `CU_DEVICE_CPU` of cuda.h: the host as a place of memory.
const HOST: CUdevice = -1;

/// Bytes of the device's memory that nothing takes at present. Enter the context first.
pub(super) fn free_bytes(context: &Context) -> Result<u64, Error> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are live places for one size.
    let result = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    context.check("asking for free memory", result)?;
    Ok(free as u64)
}

/// Where pages should lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the device's memory.
    Device,
    /// In the host's memory, where the device reads and writes them across the bus.
    Host,
}

/// An allocation. Frees may wait for kernels: only the reaper drops one that was in use.
pub(super) struct Allocation {
    base: u64,
    /// Bytes from the base that nothing uses: offsets begin behind them.
    skipped: usize,
    bytes: usize,
    context: Arc<Context>,
}

impl Allocation {
    /// Allocates at least `bytes` of managed memory, in whole blocks. Enter the context first.
    fn managed(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        let too_large = || Error::OutOfMemory {
            what: "managed memory of the CUDA device",
            requested: bytes as u64,
            available: 0,
        };
        let bytes = bytes
            .checked_next_multiple_of(BLOCK_BYTES)
            .ok_or_else(too_large)?;
        let mut base = 0;
        let flags = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
        // SAFETY: `base` is a live place for one device address.
        let result = unsafe { sys::cuMemAllocManaged(&raw mut base, bytes, flags) };
        match check("allocating managed memory", result) {
            Ok(()) => Ok(Self::made(context, base, bytes)),
            Err(failure) if failure.code == code::OUT_OF_MEMORY => Err(too_large()),
            Err(failure) => Err(context.error(failure)),
        }
    }

    /// Allocates memory of the device alone. Enter the context first.
    pub(super) fn on_device(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        let mut base = 0;
        // SAFETY: `base` is a live place for one device address.
        let result = unsafe { sys::cuMemAlloc_v2(&raw mut base, bytes) };
        match check("allocating device memory", result) {
            Ok(()) => Ok(Self::made(context, base, bytes)),
            Err(failure) if failure.code == code::OUT_OF_MEMORY => Err(Error::OutOfMemory {
                what: "memory of the CUDA device",
                requested: bytes as u64,
                available: 0,
            }),
            Err(failure) => Err(context.error(failure)),
        }
    }

    fn made(context: &Arc<Context>, base: u64, bytes: usize) -> Self {
        Self {
            base,
            skipped: 0,
            bytes,
            context: Arc::clone(context),
        }
    }

    /// Where the device finds it.
    pub(super) fn address(&self) -> u64 {
        self.base + self.skipped as u64
    }

    /// The device address of a range of this allocation.
    pub(super) fn at(&self, range: &Range<usize>) -> u64 {
        let is_inside = range.start <= range.end && range.end <= self.bytes;
        assert!(is_inside, "a range lies in its allocation");
        self.address() + range.start as u64
    }

    /// Whose memory a place is, as the driver counts.
    fn processor(&self, place: Place) -> CUdevice {
        match place {
            Place::Device => self.context.ordinal().raw(),
            Place::Host => HOST,
        }
    }

    /// Says where pages of managed memory should lie. Those in the host's memory are mapped for the device; those in its own need not be, since what
    /// the host touches comes back when a kernel does, and mapping them takes as long as moving them. Enter the context first.
    pub(super) fn advise(&self, range: Range<usize>, place: Place) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let (at, bytes, device) = (self.at(&range), range.len(), self.context.ordinal().raw());
        let preferred = self.processor(place);
        let advice = CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
        // SAFETY: the range lies in this allocation (`at`); the driver refuses what is not managed.
        let result = unsafe { sys::cuMemAdvise(at, bytes, advice, preferred) };
        self.context
            .check("saying where memory should lie", result)?;
        let advice = match place {
            Place::Device => CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY,
            Place::Host => CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY,
        };
        // SAFETY: as above.
        let result = unsafe { sys::cuMemAdvise(at, bytes, advice, device) };
        self.context.check("saying who uses memory", result)
    }

    /// Starts to move pages of managed memory.
    pub(super) fn prefetch(
        &self,
        stream: &Stream,
        range: Range<usize>,
        place: Place,
    ) -> Result<(), Error> {
        let (at, bytes, to) = (self.at(&range), range.len(), self.processor(place));
        // SAFETY: the range lies in this allocation (`at`), which is freed by the reaper only, and `stream` is live.
        let result = unsafe { sys::cuMemPrefetchAsync(at, bytes, to, stream.raw()) };
        self.context.check("moving memory", result)
    }

    /// Makes a range zero, on the device.
    pub(super) fn clear(&self, stream: &Stream, range: Range<usize>) -> Result<(), Error> {
        let (at, bytes) = (self.at(&range), range.len());
        // SAFETY: the range lies in this allocation (`at`), and `stream` is live.
        let result = unsafe { sys::cuMemsetD8Async(at, 0, bytes, stream.raw()) };
        self.context.check("clearing device memory", result)?;
        stream.synchronize()
    }

    /// Copies bytes in, through the driver.
    pub(super) fn write(&self, lane: &mut Lane, at: usize, from: &[u8]) -> Result<(), Error> {
        lane.with_stage(|stream, mut stage| {
            for (index, piece) in from.chunks(STAGE_BYTES).enumerate() {
                let at = at + index * STAGE_BYTES;
                let to = self.at(&(at..at + piece.len()));
                let source = match &mut stage {
                    Some(stage) => {
                        stage.bytes()[..piece.len()].copy_from_slice(piece);
                        stage.raw().cast_const()
                    }
                    None => piece.as_ptr().cast(),
                };
                // SAFETY: the destination lies in this allocation (`at`). The source is borrowed until this returns, and the
                // copy has ended by then: the stream is awaited, and where that fails the driver has stopped all work.
                let result =
                    unsafe { sys::cuMemcpyHtoDAsync_v2(to, source, piece.len(), stream.raw()) };
                self.context.check("copying to the device", result)?;
                stream.synchronize()?;
            }
            Ok(())
        })
    }

    /// Copies bytes out, through the driver.
    pub(super) fn read(&self, lane: &mut Lane, at: usize, into: &mut [u8]) -> Result<(), Error> {
        lane.with_stage(|stream, mut stage| {
            for (index, piece) in into.chunks_mut(STAGE_BYTES).enumerate() {
                let at = at + index * STAGE_BYTES;
                let from = self.at(&(at..at + piece.len()));
                let target = match &stage {
                    Some(stage) => stage.raw(),
                    None => piece.as_mut_ptr().cast(),
                };
                // SAFETY: as in `write`, the other way round.
                let result =
                    unsafe { sys::cuMemcpyDtoHAsync_v2(target, from, piece.len(), stream.raw()) };
                self.context.check("copying from the device", result)?;
                stream.synchronize()?;
                if let Some(stage) = &mut stage {
                    piece.copy_from_slice(&stage.bytes()[..piece.len()]);
                }
            }
            Ok(())
        })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.context.give_back("freeing memory of the driver", || {
            // SAFETY: this value's own allocation. Launches hold the region that holds it, so no kernel that was started on
            // it still runs, and every copy was awaited.
            unsafe { sys::cuMemFree_v2(self.base) }
        });
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// How much is reserved for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes in all.
    pub(super) bytes: usize,
    /// Where the byte [`LEAD_BYTES`] after the start lies: at a multiple of this, which takes as many of the bytes.
    pub(super) align: usize,
}

impl Room {
    /// For bytes that may lie anywhere.
    pub(super) fn anywhere(bytes: usize) -> Self {
        Self { bytes, align: 1 }
    }

    /// Bytes to leave out at the start of an allocation so that the window behind the lead is aligned.
    fn skipped(self, base: usize) -> usize {
        let window = base + LEAD_BYTES;
        window.next_multiple_of(self.align) - window
    }
}

/// Managed memory that the host reaches only where [`pages`](Self::pages) were opened. Kernels reach all of it.
#[derive(Debug)]
pub(super) struct Reservation {
    // Fields drop in this order: the mapping may not outlive what it maps.
    pages: Mapping,
    memory: Allocation,
    room: Room,
}

impl Reservation {
    /// Reserves room, all of it closed and zero. Enter the context first.
    pub(super) fn make(context: &Arc<Context>, room: Room) -> Result<Self, Error> {
        let failed = |reason: String| Error::Backend {
            what: "closing the pages of managed memory",
            reason,
        };
        let mut memory = Allocation::managed(context, room.bytes)?;
        let base = usize::try_from(memory.base).unwrap_or(0);
        if !base.is_multiple_of(page_bytes()) {
            return Err(failed("it does not begin with a page".into()));
        }
        let start = HostAddr::from_ptr(std::ptr::with_exposed_provenance_mut(base));
        let start = start.ok_or_else(|| failed("the host does not reach it".into()))?;
        // SAFETY: managed memory is mapped at its device address on the host too (CUDA driver API, "Unified Addressing"), from a
        // page bound to a page bound, until `memory` is dropped, which is after the mapping; and it is this value's own.
        let all = unsafe { Mapping::lent(start, memory.bytes) };
        all.deny(0..memory.bytes)
            .map_err(|error| failed(error.to_string()))?;
        memory.skipped = room.skipped(base);
        memory.bytes -= memory.skipped;
        let start = all.at(memory.skipped);
        // SAFETY: as above: what is skipped are whole pages, since the lead and the alignment are. `all` is not used after.
        let pages = unsafe { Mapping::lent(start, memory.bytes) };
        Ok(Self {
            pages,
            memory,
            room,
        })
    }

    /// What was asked for; a little more may be there.
    pub(super) fn room(&self) -> Room {
        self.room
    }

    /// The host's side.
    pub(super) fn pages(&self) -> &Mapping {
        &self.pages
    }

    /// The device's side.
    pub(super) fn memory(&self) -> &Allocation {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_behind_the_lead_is_aligned_and_no_more_is_skipped_than_it_takes() {
        const ALIGN: usize = 4 << 30;
        let room = Room {
            bytes: 0,
            align: ALIGN,
        };
        for base in [
            ALIGN,
            ALIGN - LEAD_BYTES,
            ALIGN - LEAD_BYTES + 4096,
            7 << 21,
        ] {
            let skipped = room.skipped(base);
            assert!(
                (base + skipped + LEAD_BYTES).is_multiple_of(ALIGN),
                "{base:#x}"
            );
            assert!(skipped < ALIGN, "{base:#x}");
        }
        assert_eq!(room.skipped(ALIGN - LEAD_BYTES), 0);
        assert_eq!(Room::anywhere(0).skipped(7 << 21), 0);
    }
}
