//! A region's bytes in managed memory: what the guest has is open to the host and lies in its memory, what is carved for buffers
//! is closed to it and lies in the device's.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::context::Context;
use super::memory::{BLOCK_BYTES, Place, Reservation, Room, free_bytes};
use super::reaper::{Garbage, Reaper};
use super::spares::Spare;
use super::stream::Lanes;
use crate::backing::{Backing, offset, pages};
use crate::device::Side;
use crate::error::Error;
use crate::mapping::{HostAddr, Window};
use crate::region::{Charge, MAX_WINDOW_BYTES, RegionSpec};

/// Bytes below a window that nothing uses: reservations lie back to back, and an address may be a little negative. It is
/// 64 KiB, the largest page of any host.
pub(super) const LEAD_BYTES: usize = 64 << 10;

/// Device memory that buffers leave free, for kernels' local memory and for modules.
const SPARE_BYTES: u64 = 64 << 20;

/// What is moved at once: a page of WebAssembly. The driver keeps a record of each piece that lies elsewhere than its
/// neighbours, so that smaller ones would let a guest fill the host's memory with records.
const GRAIN_BYTES: u64 = 64 << 10;

/// How often a memory may grow. The operating system never joins opened pages of a driver with their neighbours, so each
/// growth costs one of the mappings that the whole process may have (`vm.max_map_count`, 65,530 by default).
pub(super) const MOST_GROWTHS: u32 = 4_096;

/// Open memory that is cleared for the next instance, or opened ahead of need, at most. Clearing as much takes 50 microseconds; the
/// first touch of new memory alone takes 130.
const READY_BYTES: usize = 2 << 20;

/// Seams of a reservation that is used again, at most.
const MOST_SEAMS: u32 = 8;

/// What new managed memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// Anything: the driver was seen to hand out used pages.
    Anything,
    /// Zero bytes.
    Zero,
}

/// One reservation, the window of which begins [`LEAD_BYTES`] after its base.
pub(super) struct ManagedBacking {
    /// There until `drop`.
    reservation: Option<(Reservation, Charge)>,
    lanes: Arc<Lanes>,
    reaper: Arc<Reaper>,
    /// Whether closed pages may hold something: a kernel ran, or a buffer was carved. Kernels reach them.
    is_used: AtomicBool,
    /// Whether pages may lie elsewhere than with the host.
    is_moved: AtomicBool,
    fresh: Fresh,
    /// Bytes of the window that are open.
    open_bytes: AtomicUsize,
    growths: AtomicU32,
}

/// Where a window may begin: at a multiple of its own size where that is 4 GiB, so that kernels can be confined to it in the cheapest form.
/// The driver promises no more than a page, and reservations lie back to back.
fn alignment(spec: RegionSpec) -> usize {
    match spec.window_bytes {
        MAX_WINDOW_BYTES => offset(MAX_WINDOW_BYTES),
        _ => 1,
    }
}

/// Bytes that a reservation has below its window, at most: they are charged for, though only the last [`LEAD_BYTES`] serve a purpose.
pub(super) fn lead_bytes(spec: RegionSpec) -> u64 {
    match alignment(spec) {
        1 => LEAD_BYTES as u64,
        align => (LEAD_BYTES + align) as u64,
    }
}

impl ManagedBacking {
    /// Takes a spare reservation as long as what is charged for, or makes one. No more of it is open than `initial_bytes`.
    pub(super) fn reserve(
        lanes: &Arc<Lanes>,
        reaper: &Arc<Reaper>,
        fresh: Fresh,
        charge: Charge,
        spec: RegionSpec,
    ) -> Result<Self, Error> {
        let room = Room {
            bytes: usize::try_from(charge.bytes()).unwrap_or(usize::MAX),
            align: alignment(spec),
        };
        let initial_bytes = pages(spec.initial_bytes);
        lanes.context().enter()?;
        let mut spare = match reaper.spare(room, initial_bytes) {
            Some(spare) => spare,
            None => prepared(lanes.context(), room, 0)?,
        };
        if spare.open_bytes > initial_bytes {
            let rest = LEAD_BYTES + initial_bytes..LEAD_BYTES + spare.open_bytes;
            let closed = spare.reservation.pages().deny(rest);
            closed.map_err(|error| failed("closing the pages of managed memory", &error))?;
            spare.open_bytes = initial_bytes;
            spare.seams += 1;
        }
        Ok(Self {
            reservation: Some((spare.reservation, charge)),
            lanes: Arc::clone(lanes),
            reaper: Arc::clone(reaper),
            is_used: AtomicBool::new(fresh == Fresh::Anything),
            is_moved: AtomicBool::new(false),
            fresh,
            open_bytes: AtomicUsize::new(spare.open_bytes),
            growths: AtomicU32::new(spare.seams),
        })
    }

    #[expect(clippy::expect_used, reason = "only `drop` takes the reservation")]
    fn reservation(&self) -> &Reservation {
        let held = self.reservation.as_ref();
        &held
            .expect("a backing has its reservation until it is dropped")
            .0
    }

    /// Says where pages should lie: a hint.
    fn advise(&self, range: Range<usize>, place: Place) -> Result<(), Error> {
        advise(self.reservation(), range, place)
    }
}

/// Refuses a buffer that would push other memory out of the device: the driver would take it from running kernels. Enter the
/// context first.
pub(super) fn has_room(context: &Context, bytes: u64) -> Result<(), Error> {
    let Some(free) = hint(free_bytes(context))? else {
        return Ok(());
    };
    let available = free.saturating_sub(SPARE_BYTES);
    if bytes <= available {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        what: "a device buffer",
        requested: bytes,
        available,
    })
}

fn failed(what: &'static str, error: &std::io::Error) -> Error {
    let reason = error.to_string();
    Error::Backend { what, reason }
}

fn advise(reservation: &Reservation, range: Range<usize>, place: Place) -> Result<(), Error> {
    hint(reservation.memory().advise(range, place)).map(drop)
}

/// A new reservation whose window is open for the first `open_bytes`, or for [`READY_BYTES`] where those are fewer. Only for memory that is
/// zero when new may any of it be opened. Enter the context first.
pub(super) fn prepared(
    context: &Arc<Context>,
    room: Room,
    open_bytes: usize,
) -> Result<Spare, Error> {
    let reservation = Reservation::make(context, room)?;
    let open_bytes = open_bytes.min(READY_BYTES);
    if open_bytes > 0 {
        let (open, host) = (LEAD_BYTES..LEAD_BYTES + open_bytes, reservation.pages());
        advise(&reservation, open.clone(), Place::Host)?;
        let opened = host.commit(open);
        opened.map_err(|error| failed("opening the pages of managed memory", &error))?;
        let window = Window::new(host, LEAD_BYTES, open_bytes, None, open_bytes..open_bytes);
        // The driver fills a block when it is first touched. They lie across the window's start.
        for at in
            std::iter::once(0).chain((BLOCK_BYTES - LEAD_BYTES..open_bytes).step_by(BLOCK_BYTES))
        {
            // It lies inside.
            window.store(at as u64, 0_u64).unwrap_or_default();
        }
    }
    Ok(Spare {
        reservation,
        open_bytes,
        seams: 0,
    })
}

/// What came of something that a guest can do without: `None` where it failed, which is noted. A lost device is an error.
fn hint<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ Error::DeviceLost { .. }) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "memory is placed as the driver sees fit");
            Ok(None)
        }
    }
}

/// The whole grains that `range` touches.
fn grains(range: Range<u64>) -> Range<u64> {
    range.start / GRAIN_BYTES * GRAIN_BYTES..range.end.next_multiple_of(GRAIN_BYTES)
}

/// A range of the window in the reservation.
fn inside(range: Range<u64>) -> Range<usize> {
    LEAD_BYTES + offset(range.start)..LEAD_BYTES + offset(range.end)
}

impl Backing for ManagedBacking {
    fn base(&self) -> HostAddr {
        self.reservation().pages().at(LEAD_BYTES)
    }

    /// Trusted kernels, the only ones, go to the driver as they are: a pointer is an address.
    fn pointer_base(&self) -> u64 {
        self.base().number() as u64
    }

    fn serves_confined(&self) -> bool {
        true
    }

    fn grow(&self, old_bytes: u64, new_bytes: u64) -> Result<(), Error> {
        let open_bytes = self.open_bytes.load(Ordering::Relaxed);
        let gained = LEAD_BYTES + pages(old_bytes).max(open_bytes)..LEAD_BYTES + pages(new_bytes);
        if gained.is_empty() {
            return Ok(());
        }
        if self.growths.fetch_add(1, Ordering::Relaxed) >= MOST_GROWTHS {
            return Err(Error::Backend {
                what: "growing memory",
                reason: format!("it has grown {MOST_GROWTHS} times, and that is the limit"),
            });
        }
        self.lanes.context().enter()?;
        self.advise(gained.clone(), Place::Host)?;
        let host = self.reservation().pages();
        let opened = if self.is_used.load(Ordering::Acquire) {
            host.commit_zeroed(gained)
        } else {
            host.commit(gained)
        };
        opened.map_err(|error| failed("growing memory", &error))?;
        self.open_bytes.store(pages(new_bytes), Ordering::Relaxed);
        Ok(())
    }

    fn carve(&self, pages: Range<u64>) -> Result<(), Error> {
        self.is_used.store(true, Ordering::Release);
        let lane = self.lanes.for_copy()?;
        has_room(self.lanes.context(), pages.end - pages.start)?;
        let (memory, pages) = (self.reservation().memory(), inside(pages));
        self.advise(pages.clone(), Place::Device)?;
        memory.prefetch(lane.stream(), pages.clone(), Place::Device)?;
        memory.clear(lane.stream(), pages)
    }

    /// What a buffer held is cleared when its pages are next handed out, by `carve` or `grow`.
    fn uncarve(&self, _pages: Range<u64>) -> Result<(), Error> {
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        if from.is_empty() {
            return Ok(());
        }
        let mut lane = self.lanes.for_copy()?;
        let memory = self.reservation().memory();
        memory.write(&mut lane, LEAD_BYTES + offset(at), from)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        if into.is_empty() {
            return Ok(());
        }
        let mut lane = self.lanes.for_copy()?;
        let memory = self.reservation().memory();
        memory.read(&mut lane, LEAD_BYTES + offset(at), into)
    }

    /// What is advised for a range lasts, or its pages would go back at the first touch.
    fn prefetch(&self, range: Range<u64>, side: Side) -> Result<(), Error> {
        let place = match side {
            Side::Device => Place::Device,
            Side::Host => Place::Host,
        };
        let range = inside(grains(range));
        self.is_moved.store(true, Ordering::Relaxed);
        let lane = self.lanes.for_copy()?;
        self.advise(range.clone(), place)?;
        let moving = self
            .reservation()
            .memory()
            .prefetch(lane.stream(), range, place);
        match hint(moving)? {
            Some(()) => lane.stream().synchronize(),
            None => Ok(()),
        }
    }

    /// Buffers are closed to the host, so that the window ends with linear memory.
    fn window(&self, low_bytes: u64, top: Range<u64>) -> Window<'_> {
        let top = offset(top.start)..offset(top.end);
        Window::new(
            self.reservation().pages(),
            LEAD_BYTES,
            offset(low_bytes),
            None,
            top,
        )
    }

    fn note_kernel(&self) {
        // Read first: it is set once, and then every launch would take the cache line from the others.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Release);
        }
    }
}

impl Drop for ManagedBacking {
    /// Clears what only the guest can have written, if that is little. What kernels may have written is the reaper's.
    fn drop(&mut self) {
        let Some((reservation, charge)) = self.reservation.take() else {
            return;
        };
        let open_bytes = *self.open_bytes.get_mut();
        let (is_used, is_moved) = (*self.is_used.get_mut(), *self.is_moved.get_mut());
        let seams = *self.growths.get_mut();
        let is_kept = !is_used
            && !is_moved
            && open_bytes <= READY_BYTES
            && seams <= MOST_SEAMS
            && self.lanes.context().lost().is_none();
        let open = LEAD_BYTES..LEAD_BYTES + open_bytes;
        if is_kept && reservation.pages().commit_zeroed(open).is_ok() {
            let spare = Spare {
                reservation,
                open_bytes,
                seams,
            };
            self.reaper.keep(spare, charge);
        } else {
            self.reaper.bury(Garbage::Reservation {
                reservation,
                charge,
                open_bytes: match self.fresh {
                    Fresh::Anything => 0,
                    Fresh::Zero => open_bytes,
                },
            });
        }
    }
}

impl fmt::Debug for ManagedBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedBacking")
            .field("reservation", &self.reservation)
            .field("is_used", &self.is_used)
            .finish_non_exhaustive()
    }
}

/// Finds out what new managed memory holds, by writing to some, freeing it and looking at the next.
pub(super) fn fresh(lanes: &Arc<Lanes>) -> Result<Fresh, Error> {
    const BYTES: usize = 32 << 20;
    const STEP: usize = 256 << 10;
    const PATTERN: u64 = 0xA5A5_A5A5_A5A5_A5A5;

    lanes.context().enter()?;
    let mut found = Fresh::Zero;
    for _ in 0..2 {
        let reservation = Reservation::make(lanes.context(), Room::anywhere(BYTES))?;
        let opened = reservation.pages().commit(0..BYTES);
        opened.map_err(|error| failed("opening the pages of managed memory", &error))?;
        let window = Window::new(reservation.pages(), 0, BYTES, None, BYTES..BYTES);
        for at in (0..BYTES as u64).step_by(STEP) {
            if window.load::<u64>(at) != Ok(0) || window.store(at, PATTERN).is_err() {
                found = Fresh::Anything;
            }
        }
    }
    Ok(found)
}
