//! Device buffers: make, free, copy. What waits for a driver is done by the device's own threads while the guest is suspended; none of
//! them touches guest memory, which a call that is dropped gives back to its guest at once.

use std::sync::Arc;

use device::{Carved, Device, Region};
use tokio::sync::oneshot;

use crate::context::Shared;
use crate::error::Error;
use crate::guest_mem::{GuestMemory, GuestSlice};
use crate::policy::Permit;

/// Bytes that are copied at once: what a copy holds besides guest memory and buffer.
const CHUNK_BYTES: u32 = 1 << 20;

/// A device buffer: bytes that were carved for it, or a variable of a module.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Arc<Carved>,
    /// Where it begins in `memory`.
    at: u64,
    bytes: u64,
    _charge: Vec<Permit>,
}

impl Buffer {
    /// The whole of what was carved.
    pub(crate) fn of(memory: Carved, charge: Vec<Permit>) -> Self {
        let bytes = memory.bytes();
        Self {
            memory: Arc::new(memory),
            at: 0,
            bytes,
            _charge: charge,
        }
    }

    /// `bytes` bytes from `at` in what a module's variables were carved from.
    pub(crate) fn variable(memory: Arc<Carved>, at: u64, bytes: u64, charge: Permit) -> Self {
        Self {
            memory,
            at,
            bytes,
            _charge: vec![charge],
        }
    }

    /// Where it begins in the window.
    pub(crate) fn start(&self) -> u64 {
        self.memory.start() + self.at
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        self.memory.region()
    }

    /// Copies `from` to `at`; the caller has checked that it fits.
    pub(crate) fn write(&self, at: u64, from: &[u8]) -> Result<(), device::Error> {
        self.memory.write(self.at + at, from)
    }

    /// Copies from `at`; the caller has checked that there are as many bytes.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), device::Error> {
        self.memory.read(self.at + at, into)
    }
}

/// Work that a device does away from the guest's fiber.
struct Away<R>(oneshot::Receiver<R>);

impl<R: Send + 'static> Away<R> {
    fn start(
        device: &Arc<dyn Device>,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<Self, Error> {
        let (sender, receiver) = oneshot::channel();
        // Where the caller has gone, what was made is dropped here.
        device.transfer(Box::new(move || drop(sender.send(work()))))?;
        Ok(Self(receiver))
    }

    async fn finish(self) -> Result<R, Error> {
        let what = "work on a device buffer";
        self.0.await.map_err(|_| Error::Internal { what })
    }
}

/// A buffer that is being made.
pub(crate) struct Allocating {
    carving: Away<Result<(Carved, Vec<Permit>), device::Error>>,
}

/// Begins to make a device buffer of `bytes` zero bytes.
pub(crate) fn alloc(
    shared: &Shared,
    memory: &mut GuestMemory<'_>,
    bytes: u64,
) -> Result<Allocating, Error> {
    let device = shared.device()?;
    if bytes == 0 {
        return Err(Error::Value {
            what: "the size of a buffer",
            given: 0,
            expected: "at least 1",
        });
    }
    let limit = shared.limits.buffer_bytes;
    if bytes > limit {
        return Err(Error::Quota {
            what: "bytes of one device buffer",
            given: bytes,
            limit,
        });
    }
    let charge = vec![
        shared.quotas.buffers.take(1)?,
        shared.quotas.buffer_bytes.take(bytes)?,
    ];
    let region = memory.addressable(device)?;
    let region = region.ok_or(Error::MemoryNotOfDevice)?;
    // The charge lasts as long as the work, also where nobody waits for it.
    let carve = move || region.carve(bytes).map(|carved| (carved, charge));
    let carving = Away::start(device, carve)?;
    Ok(Allocating { carving })
}

impl Allocating {
    /// Waits for the buffer, and gives its handle.
    pub(crate) async fn finish(self, shared: &Shared) -> Result<i64, Error> {
        let (carved, charge) = self.carving.finish().await??;
        shared.add_buffer(Buffer::of(carved, charge))
    }
}

/// Gives a buffer back.
pub(crate) fn free(shared: &Shared, buffer: i64) -> Result<(), Error> {
    shared.device()?;
    shared.remove_buffer(buffer)
}

/// One copy between guest memory and a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyCall {
    pub(crate) buffer: i64,
    pub(crate) at: u64,
    pub(crate) guest: GuestSlice,
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From guest memory into the buffer.
    In,
    /// From the buffer into guest memory.
    Out,
}

/// The buffer of a copy that lies in it.
pub(crate) fn range(shared: &Shared, call: CopyCall) -> Result<Arc<Buffer>, Error> {
    let buffer = shared.buffer(call.buffer)?;
    let (at, len, size) = (call.at, u64::from(call.guest.len), buffer.bytes());
    if at.checked_add(len).is_none_or(|end| end > size) {
        return Err(Error::BufferRange {
            what: "a copy",
            at,
            len,
            size,
        });
    }
    Ok(buffer)
}

/// A copy under way: some bytes at a time, by way of memory that is neither the guest's nor the device's.
pub(crate) struct Copying {
    direction: Direction,
    buffer: Arc<Buffer>,
    call: CopyCall,
    done: u32,
    bytes: Vec<u8>,
}

/// The device's part of a step of a copy.
pub(crate) struct Step(Away<(Vec<u8>, Result<(), device::Error>)>);

impl Copying {
    /// Checks a copy. Nothing has been copied yet.
    pub(crate) fn new(
        shared: &Shared,
        memory: &GuestMemory<'_>,
        call: CopyCall,
        direction: Direction,
    ) -> Result<Self, Error> {
        shared.device()?;
        let buffer = range(shared, call)?;
        memory.read(call.guest)?;
        Ok(Self {
            direction,
            buffer,
            call,
            done: 0,
            bytes: Vec::new(),
        })
    }

    fn len(&self) -> u32 {
        (self.call.guest.len - self.done).min(CHUNK_BYTES)
    }

    /// The part of guest memory that the present step is about.
    fn slice(&self) -> GuestSlice {
        GuestSlice {
            at: self.call.guest.at + self.done,
            len: self.len(),
            ..self.call.guest
        }
    }

    /// Hands the next bytes to the device, if there are any left.
    pub(crate) fn step(
        &mut self,
        shared: &Shared,
        memory: &GuestMemory<'_>,
    ) -> Result<Option<Step>, Error> {
        let device = shared.device()?;
        let len = self.len();
        if len == 0 {
            return Ok(None);
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        if self.direction == Direction::In {
            bytes.clear();
            bytes.extend_from_slice(memory.read(self.slice())?);
        }
        let (direction, at) = (self.direction, self.call.at + u64::from(self.done));
        let buffer = Arc::clone(&self.buffer);
        let away = Away::start(device, move || {
            let copied = match direction {
                Direction::In => buffer.write(at, &bytes),
                Direction::Out => {
                    bytes.resize(len as usize, 0);
                    buffer.read(at, &mut bytes)
                }
            };
            (bytes, copied)
        })?;
        Ok(Some(Step(away)))
    }

    /// Takes up what the device has done.
    pub(crate) fn take(
        &mut self,
        memory: &mut GuestMemory<'_>,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        if self.direction == Direction::Out {
            memory.write(self.slice())?.copy_from_slice(&bytes);
        }
        self.done += self.len();
        self.bytes = bytes;
        Ok(())
    }
}

impl Step {
    /// Waits for the device.
    pub(crate) async fn finish(self) -> Result<Vec<u8>, Error> {
        let (bytes, copied) = self.0.finish().await?;
        copied?;
        Ok(bytes)
    }
}
