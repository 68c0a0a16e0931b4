//! A region's bytes where managed memory cannot be guarded: the device reaches exactly what the guest has, in memory of the host
//! that is registered with the driver, and buffers in allocations of their own on the device.
//!
//! The guest's side is as ever: a reservation of the whole window with its guards. The device's is not: what is not open is not
//! mapped there, so that only kernels that keep to their memory can run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::backing::{LEAD_BYTES, MOST_GROWTHS, has_room};
use super::memory::Allocation;
use super::pinned::Pinned;
use super::reaper::{Garbage, Reaper};
use super::stream::Lanes;
use crate::backing::{Backing, offset, pages};
use crate::error::Error;
use crate::mapping::{HostAddr, Window};
use crate::region::Charge;

/// One instance's memory.
#[derive(Debug)]
pub(super) struct ExactBacking {
    /// There until `drop`. The window begins [`LEAD_BYTES`] after the start.
    held: Option<(Pinned, Charge)>,
    /// By where they begin in the window, which is nothing to the driver.
    buffers: Mutex<BTreeMap<u64, Allocation>>,
    lanes: Arc<Lanes>,
    reaper: Arc<Reaper>,
    growths: AtomicU32,
}

impl ExactBacking {
    /// Reserves what is charged for.
    pub(super) fn reserve(
        lanes: &Arc<Lanes>,
        reaper: &Arc<Reaper>,
        charge: Charge,
    ) -> Result<Self, Error> {
        let bytes = usize::try_from(charge.bytes()).unwrap_or(usize::MAX);
        lanes.context().enter()?;
        Ok(Self {
            held: Some((Pinned::reserve(lanes.context(), bytes)?, charge)),
            buffers: Mutex::default(),
            lanes: Arc::clone(lanes),
            reaper: Arc::clone(reaper),
            growths: AtomicU32::new(0),
        })
    }

    #[expect(clippy::expect_used, reason = "only `drop` takes the memory")]
    fn memory(&self) -> &Pinned {
        let held = self.held.as_ref();
        &held
            .expect("a backing has its memory until it is dropped")
            .0
    }

    fn buffers(&self) -> MutexGuard<'_, BTreeMap<u64, Allocation>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the buffer that holds `at`, and the place in it.
    fn in_buffer<R>(
        &self,
        at: u64,
        what: impl FnOnce(&Allocation, usize) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self.buffers().range(..=at).next_back() {
            Some((start, buffer)) => what(buffer, offset(at - start)),
            None => Err(Error::Backend {
                what: "a copy to or from a device buffer",
                reason: "it is not there".into(),
            }),
        }
    }
}

impl Backing for ExactBacking {
    fn base(&self) -> HostAddr {
        self.memory().pages().at(LEAD_BYTES)
    }

    fn pointer_base(&self) -> u64 {
        self.memory().device() + LEAD_BYTES as u64
    }

    /// All buffers lie above linear memory in the window.
    fn pointer(&self, at: u64) -> u64 {
        match self.buffers().range(..=at).next_back() {
            Some((start, buffer)) => buffer.address() + (at - start),
            None => self.pointer_base() + at,
        }
    }

    fn serves_confined(&self) -> bool {
        false
    }

    fn grow(&self, old_bytes: u64, new_bytes: u64) -> Result<(), Error> {
        if self.growths.fetch_add(1, Ordering::Relaxed) >= MOST_GROWTHS {
            return Err(Error::Backend {
                what: "growing memory",
                reason: format!("it has grown {MOST_GROWTHS} times, and that is the limit"),
            });
        }
        self.lanes.context().enter()?;
        let gained = LEAD_BYTES + pages(old_bytes)..LEAD_BYTES + pages(new_bytes);
        self.memory().open(gained)
    }

    fn carve(&self, pages: Range<u64>) -> Result<(), Error> {
        let lane = self.lanes.for_copy()?;
        let bytes = pages.end - pages.start;
        has_room(self.lanes.context(), bytes)?;
        let buffer = Allocation::on_device(self.lanes.context(), offset(bytes))?;
        buffer.clear(lane.stream(), 0..offset(bytes))?;
        self.buffers().insert(pages.start, buffer);
        Ok(())
    }

    /// The driver waits for what runs before it frees memory, on the reaper's thread.
    fn uncarve(&self, pages: Range<u64>) -> Result<(), Error> {
        if let Some(buffer) = self.buffers().remove(&pages.start) {
            self.reaper.bury(Garbage::Buffer(buffer));
        }
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        if from.is_empty() {
            return Ok(());
        }
        let mut lane = self.lanes.for_copy()?;
        self.in_buffer(at, |buffer, at| buffer.write(&mut lane, at, from))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        if into.is_empty() {
            return Ok(());
        }
        let mut lane = self.lanes.for_copy()?;
        self.in_buffer(at, |buffer, at| buffer.read(&mut lane, at, into))
    }

    /// Buffers are not the host's to touch, so that the window ends with linear memory.
    fn window(&self, low_bytes: u64, top: Range<u64>) -> Window<'_> {
        let (pages, low_bytes) = (self.memory().pages(), offset(low_bytes));
        let top = offset(top.start)..offset(top.end);
        Window::new(pages, LEAD_BYTES, low_bytes, None, top)
    }
}

impl Drop for ExactBacking {
    fn drop(&mut self) {
        for buffer in std::mem::take(&mut *self.buffers()).into_values() {
            self.reaper.bury(Garbage::Buffer(buffer));
        }
        if let Some((memory, charge)) = self.held.take() {
            self.reaper.bury(Garbage::Pinned(memory, charge));
        }
    }
}
