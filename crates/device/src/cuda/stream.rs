//! A queue of the device that runs beside all others, and the pools of them: a launch or a copy has one to itself.
//! A launch's end is seen in a word of the host's memory that its stream writes after it.
#![expect(unsafe_code, reason = "makes, asks, awaits and destroys streams")]

use std::ffi::{c_uint, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use cust::sys::{self, CUstream, CUstream_flags};

use super::context::Context;
use super::control::Control;
use super::error::{check, check_number, code};
use super::lines::Line;
use super::memory::Allocation;
use super::staging::Staging;
use super::stops::Stop;
use crate::error::Error;

/// Whether what was put on a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All of it.
    Ended,
    /// Not yet.
    Running,
}

/// A stream that does not wait for the null stream, nor the null stream for it.
pub(super) struct Stream {
    raw: CUstream,
    mark: Option<Mark>,
    control: Option<Control>,
    stage: Option<Staging>,
    context: Arc<Context>,
}

// SAFETY: a stream handle may be used on every thread in whose context it was made, and the driver locks for itself.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    fn new(context: &Arc<Context>) -> Result<Self, Error> {
        const ORDINARY: i32 = 0;
        Self::with_priority(context, ORDINARY)
    }

    /// A stream whose work goes before that of others. Enter the context first.
    pub(super) fn urgent(context: &Arc<Context>) -> Result<Self, Error> {
        // The driver takes the nearest that there is.
        Self::with_priority(context, i32::MIN)
    }

    fn with_priority(context: &Arc<Context>, priority: i32) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `raw` is a live place for one handle.
        let result = unsafe { sys::cuStreamCreateWithPriority(&raw mut raw, flags, priority) };
        context.check("making a CUDA stream", result)?;
        Ok(Self {
            raw,
            mark: None,
            control: None,
            stage: None,
            context: Arc::clone(context),
        })
    }

    /// Has the stream write its mark when all that was put on it so far has ended. Where it cannot, it has to be queried.
    pub(super) fn put_mark(&self) {
        if let Some(mark) = &self.mark {
            mark.put(self.raw);
        }
    }

    /// Whether a mark was put last, and so whether [`has_passed_mark`](Self::has_passed_mark) will tell of the end. It never does
    /// where a kernel faults.
    pub(super) fn is_marked(&self) -> bool {
        self.mark
            .as_ref()
            .is_some_and(|mark| mark.is_put.load(Ordering::Relaxed))
    }

    /// Whether all before the mark has ended without a fault. Asks no driver.
    pub(super) fn has_passed_mark(&self) -> bool {
        self.mark.as_ref().is_some_and(Mark::is_passed)
    }

    /// Has the stream write a word of an allocation when all that was put on it so far has ended. Enter the context first.
    pub(super) fn write(
        &self,
        Writer(write): Writer,
        to: &Allocation,
        at: usize,
        value: u32,
    ) -> Result<(), Error> {
        let at = to.at(&(at..at + size_of::<u32>()));
        // SAFETY: the stream is live, and the word lies in the allocation (`at`), which waits for the stream when it is freed.
        let result = unsafe { write(self.raw, at, value, WRITE_DEFAULT) };
        check_number("writing a word", result).map_err(|failure| self.context.error(failure))
    }

    /// The control block for a confined kernel on this stream; `None` where there is no memory for such.
    pub(super) fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    /// The handle, valid as long as this value lives.
    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Looks whether everything on the stream has ended. An error is the end of it, and of the device.
    pub(super) fn query(&self) -> Result<Progress, Error> {
        // SAFETY: the handle is this value's own.
        let result = unsafe { sys::cuStreamQuery(self.raw) };
        match check("running a kernel", result) {
            Ok(()) => Ok(Progress::Ended),
            Err(failure) if failure.code == code::NOT_READY => Ok(Progress::Running),
            Err(failure) => Err(self.context.lose(failure)),
        }
    }

    /// Waits until everything on the stream has ended.
    pub(super) fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the handle is this value's own.
        let result = unsafe { sys::cuStreamSynchronize(self.raw) };
        check("waiting for the CUDA device", result).map_err(|failure| self.context.lose(failure))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.context.give_back("destroying a CUDA stream", || {
            // SAFETY: the handle is this value's own and not used after; the driver lets work that is still on it end.
            unsafe { sys::cuStreamDestroy_v2(self.raw) }
        });
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// `cuStreamWriteValue32_v2`, which drivers before CUDA 11.7 lack.
type WriteValue = unsafe extern "C" fn(CUstream, u64, u32, c_uint) -> u32;

/// By default the driver has everything that came before seen by all before the word is written.
const WRITE_DEFAULT: c_uint = 0;

/// The driver's way to have a stream write a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer(WriteValue);

impl Writer {
    fn find() -> Option<Self> {
        let write = cuda_driver::symbol(c"cuStreamWriteValue32_v2")?;
        // SAFETY: the driver's function of that name, which cuda.h declares so; its result is an integer of 32 bits.
        Some(Self(unsafe {
            std::mem::transmute::<*const c_void, WriteValue>(write)
        }))
    }
}

/// The word of a line where its stream writes, behind the control block.
const MARK_WORD: usize = 8;

/// A number that goes up, and where a stream writes it.
struct Mark {
    line: Line,
    writer: Writer,
    /// The number that was put last, or was to be.
    number: AtomicU32,
    is_put: AtomicBool,
}

impl Mark {
    fn put(&self, stream: CUstream) {
        let number = self.number.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let at = self.line.device_address() + 8 * MARK_WORD as u64;
        // SAFETY: the stream is live, and the word, which the device may write, is freed after it. No other stream writes it.
        let result = unsafe { (self.writer.0)(stream, at, number, WRITE_DEFAULT) };
        self.is_put.store(result == 0, Ordering::Relaxed);
    }

    fn is_passed(&self) -> bool {
        // Of the word, the stream writes the low half; the other one stays zero.
        let written = || self.line.words()[MARK_WORD].load(Ordering::Acquire);
        self.is_put.load(Ordering::Relaxed)
            && written() == u64::from(self.number.load(Ordering::Relaxed))
    }
}

/// Gives each stream a control block, and a mark if the driver can write them: waiting for one costs less than asking the driver again
/// and again, and keeps no lock of the driver from others. Enter the context first.
fn give_lines(context: &Arc<Context>, streams: &mut [Stream]) -> Result<(), Error> {
    let lines = Line::allocate(context, streams.len())?;
    let writer = Writer::find();
    let mut stops = match writer {
        Some(writer) => Some(Stop::allocate(context, writer, streams.len())?),
        None => None,
    };
    let mut writes_marks = true;
    for (line, stream) in lines.zip(streams) {
        let stop = stops.as_mut().and_then(Iterator::next);
        stream.control = Some(Control::new(line.clone(), stop));
        let Some(writer) = writer.filter(|_| writes_marks) else {
            continue;
        };
        stream.mark = Some(Mark {
            line,
            writer,
            number: AtomicU32::new(0),
            is_put: AtomicBool::new(false),
        });
        stream.put_mark();
        if !stream.is_marked() {
            stream.mark = None;
            writes_marks = false;
            tracing::debug!("the driver writes no marks");
        }
    }
    Ok(())
}

/// Launches that run at once, at most: no GPU has more grids resident. Later ones wait until one of them ends.
pub(super) const LAUNCH_LANES: usize = 128;

/// Copies that run at once, at most. They do not wait for launches.
const COPY_LANES: usize = 8;

/// All streams of a device. They are made when it is opened, and no more later: making one may wait for whatever runs.
#[derive(Debug)]
pub(super) struct Lanes {
    context: Arc<Context>,
    launches: Pool,
    copies: Pool,
}

/// Streams that nothing runs on, and how many want one.
#[derive(Debug)]
struct Pool {
    state: Mutex<Idle>,
    returned: Condvar,
}

#[derive(Debug)]
struct Idle {
    streams: Vec<Stream>,
    /// Who has a [`Place`] in the queue. They come before all others.
    queued: usize,
    /// Threads that wait on `returned`.
    sleepers: usize,
}

impl Pool {
    fn of(streams: Vec<Stream>) -> Self {
        let state = Idle {
            streams,
            queued: 0,
            sleepers: 0,
        };
        Self {
            state: Mutex::new(state),
            returned: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Idle> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which pool a lane is of.
#[derive(Clone, Copy, Debug)]
enum Use {
    Copy,
    Launch,
}

impl Lanes {
    /// Makes all streams. Enters the context.
    pub(super) fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        context.enter()?;
        let streams = |count| {
            let streams = (0..count).map(|_| Stream::new(context));
            streams.collect::<Result<Vec<_>, _>>()
        };
        let (mut launches, mut copies) = (streams(LAUNCH_LANES)?, streams(COPY_LANES)?);
        if let Err(error) = give_lines(context, &mut launches) {
            tracing::warn!(%error, "launches are waited for by asking the driver, and no confined ones are possible");
        }
        for stream in &mut copies {
            match Staging::allocate(context) {
                Ok(stage) => stream.stage = Some(stage),
                Err(error) => tracing::debug!(%error, "copies go by the driver's own memory"),
            }
        }
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            launches: Pool::of(launches),
            copies: Pool::of(copies),
        }))
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// A stream for a launch, or a place in the queue for one. Enter the context first.
    pub(super) fn for_launch(self: &Arc<Self>) -> Result<Lane, Place> {
        let mut state = self.launches.state();
        // Read before the pop, so that nobody overtakes.
        let idle = match state.queued {
            0 => state.streams.pop(),
            _ => None,
        };
        match idle {
            Some(stream) => {
                drop(state);
                Ok(self.lane(stream, Use::Launch))
            }
            None => {
                state.queued += 1;
                drop(state);
                Err(Place {
                    lanes: Arc::clone(self),
                })
            }
        }
    }

    /// A stream for a copy, after other copies if there are many; the context is entered on this thread.
    pub(super) fn for_copy(self: &Arc<Self>) -> Result<Lane, Error> {
        self.context.enter()?;
        let mut state = self.copies.state();
        loop {
            if let Some(stream) = state.streams.pop() {
                drop(state);
                return Ok(self.lane(stream, Use::Copy));
            }
            state.sleepers += 1;
            state = self
                .copies
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
        }
    }

    fn lane(self: &Arc<Self>, stream: Stream, of: Use) -> Lane {
        Lane {
            stream: Some(stream),
            of,
            lanes: Arc::clone(self),
        }
    }

    fn pool(&self, of: Use) -> &Pool {
        match of {
            Use::Copy => &self.copies,
            Use::Launch => &self.launches,
        }
    }
}

/// A place in the queue for a stream of launches.
#[derive(Debug)]
pub(super) struct Place {
    lanes: Arc<Lanes>,
}

impl Place {
    /// A stream, if one is idle.
    pub(super) fn take(&self) -> Option<Lane> {
        let stream = self.lanes.launches.state().streams.pop()?;
        Some(self.lanes.lane(stream, Use::Launch))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lanes.launches.state().queued -= 1;
    }
}

/// A stream taken from its pool, which it goes back to when dropped. Whoever drops it knows that nothing runs on it.
#[derive(Debug)]
pub(super) struct Lane {
    /// There until `drop`.
    stream: Option<Stream>,
    of: Use,
    lanes: Arc<Lanes>,
}

impl Lane {
    #[expect(clippy::expect_used, reason = "only `drop` takes the stream")]
    pub(super) fn stream(&self) -> &Stream {
        self.stream
            .as_ref()
            .expect("a lane has a stream until it is dropped")
    }
}

impl Lane {
    /// Lends what copies go by to `copy`; there is none where there was no memory for it.
    pub(super) fn with_stage<R>(
        &mut self,
        copy: impl FnOnce(&Stream, Option<&mut Staging>) -> R,
    ) -> R {
        let mut stage = self.stream.as_mut().and_then(|stream| stream.stage.take());
        let result = copy(self.stream(), stage.as_mut());
        if let Some(stream) = &mut self.stream {
            stream.stage = stage;
        }
        result
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let pool = self.lanes.pool(self.of);
        let mut state = pool.state();
        state.streams.extend(self.stream.take());
        let is_awaited = state.sleepers > 0;
        drop(state);
        if is_awaited {
            pool.returned.notify_one();
        }
    }
}

#[cfg(test)]
impl Lanes {
    /// The lanes of a device that has none.
    pub(super) fn detached(context: &Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            launches: Pool::of(Vec::new()),
            copies: Pool::of(Vec::new()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes of `count` streams that no driver knows, for launches and for copies.
    fn lanes(count: usize) -> Arc<Lanes> {
        let context = Context::detached("there is no device");
        let pool = || {
            let streams = (0..count).map(|_| Stream {
                raw: std::ptr::null_mut(),
                mark: None,
                control: None,
                stage: None,
                context: Arc::clone(&context),
            });
            Pool::of(streams.collect())
        };
        Arc::new(Lanes {
            launches: pool(),
            copies: pool(),
            context,
        })
    }

    #[test]
    fn a_launch_too_many_gets_the_stream_of_the_first_that_ends() {
        let lanes = lanes(2);
        let (first, second) = (lanes.for_launch().unwrap(), lanes.for_launch().unwrap());
        let place = lanes.for_launch().unwrap_err();
        assert!(place.take().is_none());
        drop(first);
        drop(place.take().unwrap());
        drop(second);
    }

    #[test]
    fn nobody_overtakes_those_who_wait_for_a_stream() {
        let lanes = lanes(1);
        let only = lanes.for_launch().unwrap();
        let early = lanes.for_launch().unwrap_err();
        drop(only);
        let late = lanes.for_launch().unwrap_err();
        let taken = early.take().unwrap();
        drop(early);
        assert!(late.take().is_none());
        drop(taken);
        drop(late);
        lanes.for_launch().unwrap();
    }
}
