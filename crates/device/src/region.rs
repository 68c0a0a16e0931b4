//! A guest's window: linear memory that grows from the bottom at a fixed base, buffers carved from the top, and the table
//! by which the guard knows which memory a device can address.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use ptx::{Globals, WindowForm};

use crate::backing::{Backing, HostBacking};
use crate::confinement::Reach;
use crate::device::Side;
use crate::error::Error;
use crate::mapping::{HostAddr, Window, page_bytes};

/// The largest window: what 32-bit offsets reach.
pub const MAX_WINDOW_BYTES: u64 = 1 << 32;

/// How a region is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// Bytes that kernels can address, a power of two up to 4 GiB: linear memory and carved buffers share it.
    pub window_bytes: u64,
    /// Bytes of linear memory accessible from the start.
    pub initial_bytes: u64,
    /// Most bytes that linear memory may grow to.
    pub maximum_bytes: u64,
    /// Bytes kept inaccessible or accessible from the base on, at least: what compiled code relies on. The window where it is larger.
    pub reserved_bytes: u64,
    /// Bytes kept inaccessible behind that.
    pub guard_bytes: u64,
}

/// One instance's memory. Its base never moves, and it lives as long as anything that uses it.
pub struct Region {
    spec: RegionSpec,
    base: HostAddr,
    backing: Box<dyn Backing>,
    size: AtomicU64,
    floor: AtomicU64,
    carved: Mutex<BTreeMap<u64, u64>>,
    /// Whether the kernel that ended last had ended soon.
    runs_briefly: AtomicBool,
    table: Arc<RegionTable>,
}

impl Region {
    /// Reserves memory of the host and enters it in `table`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the table's budget does not allow it, [`Error::Backend`] if the spec contradicts itself or the
    /// operating system refuses.
    pub fn anonymous(table: &Arc<RegionTable>, spec: RegionSpec) -> Result<Arc<Self>, Error> {
        let page = page_bytes() as u64;
        Self::on(table, spec, page, |charge| {
            Ok(Box::new(HostBacking::reserve(charge, spec.window_bytes)?))
        })
    }

    /// Enters a region in `table` whose bytes `reserve` provides: it is given the charge for a reservation whose first
    /// `lead_bytes`, a multiple of the page size, lie below the window. The backing keeps it until it has given all back.
    pub(crate) fn on(
        table: &Arc<RegionTable>,
        spec: RegionSpec,
        lead_bytes: u64,
        reserve: impl FnOnce(Charge) -> Result<Box<dyn Backing>, Error>,
    ) -> Result<Arc<Self>, Error> {
        let fits = spec.window_bytes.is_power_of_two()
            && spec.window_bytes <= MAX_WINDOW_BYTES
            && spec.window_bytes >= page_bytes() as u64
            && spec.initial_bytes <= spec.window_bytes
            && spec.initial_bytes <= spec.maximum_bytes;
        if !fits {
            let reason = format!(
                "{} bytes of memory, at most {}, do not fit a window of {} bytes (a power of two up to {MAX_WINDOW_BYTES})",
                spec.initial_bytes, spec.maximum_bytes, spec.window_bytes
            );
            return Err(Error::Backend {
                what: "making a region",
                reason,
            });
        }
        let backing = reserve(table.charge(total_bytes(spec, lead_bytes))?)?;
        backing.grow(0, spec.initial_bytes)?;
        let region = Arc::new(Self {
            spec,
            base: backing.base(),
            backing,
            size: AtomicU64::new(spec.initial_bytes),
            floor: AtomicU64::new(spec.window_bytes),
            carved: Mutex::default(),
            runs_briefly: AtomicBool::new(false),
            table: Arc::clone(table),
        });
        table.enter(&region);
        Ok(region)
    }

    /// A region of memory that another owner made, so many bytes. It does not grow, and nothing is carved from it; it is not
    /// entered in `table`, which says whose it is, nor charged.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "the CPU device runs on its own memory only")
    )]
    pub(crate) fn adopted(
        table: &Arc<RegionTable>,
        bytes: u64,
        backing: Box<dyn Backing>,
    ) -> Arc<Self> {
        let spec = RegionSpec {
            window_bytes: bytes,
            initial_bytes: bytes,
            maximum_bytes: bytes,
            reserved_bytes: 0,
            guard_bytes: 0,
        };
        Arc::new(Self {
            spec,
            base: backing.base(),
            backing,
            size: AtomicU64::new(bytes),
            floor: AtomicU64::new(bytes),
            carved: Mutex::default(),
            runs_briefly: AtomicBool::new(false),
            table: Arc::clone(table),
        })
    }

    /// Where linear memory begins.
    #[must_use]
    pub fn base(&self) -> HostAddr {
        self.base
    }

    /// What a kernel of the region's device is given for an offset: the offset itself where kernels see offsets, as on the CPU
    /// device; a kernel that goes to a GPU as it is sees addresses.
    pub(crate) fn pointer(&self, offset: u64) -> u64 {
        self.backing.pointer(offset)
    }

    /// Whether a kernel that is confined to the window may run here: every address of the window, and of the guards beside it,
    /// is this region's. It is not so in memory of the embedder's making and in memory of exactly the size of linear memory,
    /// where an address just past the end is somebody else's: those serve kernels that the embedder vouches for.
    #[must_use]
    pub fn serves_confined(&self) -> bool {
        self.backing.serves_confined()
    }

    /// The form that programs are confined in to run here; `None` where confined ones do not run. A program confined for
    /// [`WindowForm::Masked`] runs on both.
    #[must_use]
    pub fn form(&self) -> Option<WindowForm> {
        let is_whole = self.spec.window_bytes == MAX_WINDOW_BYTES
            && self.pointer(0).is_multiple_of(MAX_WINDOW_BYTES);
        self.serves_confined().then_some(if is_whole {
            WindowForm::Whole
        } else {
            WindowForm::Masked
        })
    }

    /// The table that the region is entered in, which is its device's.
    #[must_use]
    pub fn table(&self) -> &Arc<RegionTable> {
        &self.table
    }

    /// Bytes of linear memory at present.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// The layout that was asked for.
    #[must_use]
    pub fn spec(&self) -> RegionSpec {
        self.spec
    }

    /// What kernels on the host may touch now. It does not follow later growth. Where carved bytes are a device's own, it ends
    /// with linear memory.
    #[must_use]
    pub fn window(&self) -> Window<'_> {
        let floor = self.floor.load(Ordering::Acquire);
        self.backing
            .window(self.size(), floor..self.spec.window_bytes)
    }

    /// What is the guest's of the window at present.
    pub(crate) fn reach(&self) -> Reach {
        let floor = self.floor.load(Ordering::Acquire);
        Reach::new(self.size(), floor, self.spec.window_bytes)
    }

    /// Whether `bytes` bytes from `offset` are linear memory or lie where buffers are carved, wholly.
    #[must_use]
    pub fn covers(&self, offset: u64, bytes: u64) -> bool {
        let (low, top) = (
            0..self.size(),
            self.floor.load(Ordering::Acquire)..self.spec.window_bytes,
        );
        let inside = |end: u64| end <= low.end || (offset >= top.start && end <= top.end);
        offset.checked_add(bytes).is_some_and(inside)
    }

    /// Moves the part of `range` that is linear memory to where it will be used next, and waits until it is there: see
    /// [`Device::prefetch`](crate::Device::prefetch), which does not wait.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn prefetch(&self, range: Range<u64>, side: Side) -> Result<(), Error> {
        let range = range.start..range.end.min(self.size());
        if range.is_empty() {
            Ok(())
        } else {
            self.backing.prefetch(range, side)
        }
    }

    /// Notes that a kernel is about to run on this memory.
    pub(crate) fn note_kernel(&self) {
        self.backing.note_kernel();
    }

    /// Notes whether a kernel on this memory ended soon.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "nothing waits for kernels of the CPU device")
    )]
    pub(crate) fn note_run(&self, was_brief: bool) {
        self.runs_briefly.store(was_brief, Ordering::Relaxed);
    }

    /// Whether the kernel that ended last on this memory ended soon; nothing is known of memory that none ran on.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "nothing waits for kernels of the CPU device")
    )]
    pub(crate) fn runs_briefly(&self) -> bool {
        self.runs_briefly.load(Ordering::Relaxed)
    }

    /// Makes linear memory `new_bytes` long; the bytes gained are zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if that is over the maximum or meets what is carved from the top.
    pub fn grow(&self, new_bytes: u64) -> Result<(), Error> {
        let carved = self.carved();
        let old = self.size();
        let limit = floor(&carved, self.spec.window_bytes).min(self.spec.maximum_bytes);
        if new_bytes > limit {
            return Err(Error::OutOfMemory {
                what: "linear memory",
                requested: new_bytes,
                available: limit,
            });
        }
        if new_bytes > old {
            self.backing.grow(old, new_bytes)?;
            self.size.store(new_bytes, Ordering::Release);
        }
        drop(carved);
        Ok(())
    }

    /// Takes `bytes` zero bytes, rounded up to pages, from the top of the window.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if no gap is large enough.
    pub fn carve(self: &Arc<Self>, bytes: u64) -> Result<Carved, Error> {
        let mut carved = self.carved();
        let need = bytes
            .max(1)
            .checked_next_multiple_of(page_bytes() as u64)
            .unwrap_or(u64::MAX);
        let lowest = self.size().next_multiple_of(page_bytes() as u64);
        let start = highest_gap(&carved, lowest, self.spec.window_bytes, need).ok_or(
            Error::OutOfMemory {
                what: "a device buffer",
                requested: bytes,
                available: floor(&carved, self.spec.window_bytes).saturating_sub(lowest),
            },
        )?;
        self.backing.carve(start..start + need)?;
        carved.insert(start, need);
        self.floor
            .store(floor(&carved, self.spec.window_bytes), Ordering::Release);
        drop(carved);
        Ok(Carved {
            region: Arc::clone(self),
            start,
            bytes,
        })
    }

    fn uncarve(&self, start: u64) {
        let mut carved = self.carved();
        let Some(bytes) = carved.remove(&start) else {
            return;
        };
        if let Err(error) = self.backing.uncarve(start..start + bytes) {
            tracing::error!(%error, "a freed device buffer could not be cleared and is not used again");
            carved.insert(start, bytes);
        }
        self.floor
            .store(floor(&carved, self.spec.window_bytes), Ordering::Release);
    }

    fn carved(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.carved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn total_bytes(spec: RegionSpec, lead_bytes: u64) -> u64 {
    let page = page_bytes() as u64;
    let reserved = spec
        .reserved_bytes
        .max(spec.window_bytes)
        .saturating_add(spec.guard_bytes);
    reserved.saturating_add(lead_bytes).div_ceil(page) * page
}

fn floor(carved: &BTreeMap<u64, u64>, window_bytes: u64) -> u64 {
    carved.keys().next().copied().unwrap_or(window_bytes)
}

/// Where `need` bytes fit between `lowest` and `end`, as high as possible.
fn highest_gap(carved: &BTreeMap<u64, u64>, lowest: u64, end: u64, need: u64) -> Option<u64> {
    let mut ceiling = end;
    for (&start, &bytes) in carved.iter().rev() {
        if ceiling - (start + bytes) >= need {
            return Some(ceiling - need);
        }
        ceiling = start;
    }
    ceiling.checked_sub(need).filter(|&start| start >= lowest)
}

impl Drop for Region {
    fn drop(&mut self) {
        self.table.leave(self);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("size", &self.size())
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

/// Bytes carved from the top of a region: a device buffer. Given back when dropped.
#[derive(Debug)]
pub struct Carved {
    region: Arc<Region>,
    start: u64,
    bytes: u64,
}

impl Carved {
    /// Carves room for a module's variables and fills it with what they hold at first; `None` where there are none.
    ///
    /// # Errors
    /// As [`Region::carve`], or [`Error::Backend`] if the variables contradict themselves.
    pub fn for_globals(region: &Arc<Region>, globals: &Globals) -> Result<Option<Self>, Error> {
        if globals.image.is_empty() {
            return Ok(None);
        }
        let carved = region.carve(globals.image.len() as u64)?;
        let mut image = globals.image.clone();
        for &at in &globals.addresses {
            let place = usize::try_from(at).ok();
            let word = place.and_then(|at| image.get_mut(at..)?.first_chunk_mut());
            let word: &mut [u8; 8] = word.ok_or_else(|| Error::Backend {
                what: "filling in the variables of a module",
                reason: format!("there is no address at {at}"),
            })?;
            *word = u64::from_le_bytes(*word)
                .wrapping_add(carved.start)
                .to_le_bytes();
        }
        carved.write(0, &image)?;
        Ok(Some(carved))
    }

    /// Where it begins in the window.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The same as a kernel's 32-bit offset: a window ends at 4 GiB, and nothing carved is empty.
    #[must_use]
    pub fn start_u32(&self) -> u32 {
        u32::try_from(self.start).unwrap_or(u32::MAX)
    }

    /// Bytes asked for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The region that it was carved from.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Copies `from` to `at` in the buffer.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if it does not fit; then nothing was copied.
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        let start = self.check(at, from.len() as u64)?;
        self.region.backing.write(start, from)
    }

    /// Copies bytes from `at` in the buffer.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there are not as many; then nothing was copied.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let start = self.check(at, into.len() as u64)?;
        self.region.backing.read(start, into)
    }

    fn check(&self, at: u64, bytes: u64) -> Result<u64, Error> {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if fits {
            Ok(self.start + at)
        } else {
            Err(self.overrun(at, bytes))
        }
    }

    fn overrun(&self, at: u64, bytes: u64) -> Error {
        let available = self.bytes.saturating_sub(at);
        Error::OutOfMemory {
            what: "a copy to or from a device buffer",
            requested: bytes,
            available,
        }
    }
}

impl Drop for Carved {
    fn drop(&mut self) {
        self.region.uncarve(self.start);
    }
}

/// The regions of one device, by base, and the budget that their reservations are charged to.
#[derive(Debug)]
pub struct RegionTable {
    regions: RwLock<BTreeMap<usize, Weak<Region>>>,
    reserved: AtomicU64,
    budget: u64,
}

/// Address space that is counted against a table's budget, until dropped: by whoever reserved it, after giving it back.
#[derive(Debug)]
pub(crate) struct Charge {
    table: Arc<RegionTable>,
    bytes: u64,
}

impl Charge {
    /// What is charged.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The same table charged for `bytes` more.
    pub(crate) fn more(&self, bytes: u64) -> Result<Self, Error> {
        self.table.charge(bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.table.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl RegionTable {
    /// A table whose regions may reserve `budget` bytes of address space together.
    #[must_use]
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            regions: RwLock::default(),
            reserved: AtomicU64::new(0),
            budget,
        })
    }

    /// Bytes of address space that regions reserve at present, those among them that are gone and still being given back.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// The region whose linear memory begins at `base`.
    #[must_use]
    pub fn find(&self, base: HostAddr) -> Option<Arc<Region>> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.get(&base.number())?.upgrade()
    }

    fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, Error> {
        let charged =
            self.reserved
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                    reserved
                        .checked_add(bytes)
                        .filter(|&sum| sum <= self.budget)
                });
        match charged {
            Ok(_) => Ok(Charge {
                table: Arc::clone(self),
                bytes,
            }),
            Err(reserved) => {
                let available = self.budget - reserved;
                Err(Error::OutOfMemory {
                    what: "a memory window with its guards",
                    requested: bytes,
                    available,
                })
            }
        }
    }

    fn enter(&self, region: &Arc<Region>) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.insert(region.base().number(), Arc::downgrade(region));
    }

    fn leave(&self, region: &Region) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let base = region.base().number();
        if regions
            .get(&base)
            .is_some_and(|entered| std::ptr::eq(entered.as_ptr(), region))
        {
            regions.remove(&base);
        }
    }
}

#[cfg(test)]
mod tests;
