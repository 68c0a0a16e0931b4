//! A launch on its way: handed to the driver, waited for briefly on the spot and then by the poller, reported when it ends.
#![expect(unsafe_code, reason = "the two driver calls that start a kernel")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cust::sys::{self, CUresult};

use super::error::{check, code};
use super::poller::Job;
use super::program::{CudaProgram, Entry};
use super::stream::{Lane, Place, Progress, Stream};
use crate::completion::DRAIN;
use crate::error::{Error, StopReason};
use crate::launch::{Geometry, Launch, Mode};

/// How often the driver is asked about a launch whose end is seen without it.
const QUERY_EVERY: Duration = Duration::from_micros(100);

/// Parameters whose addresses fit on the stack.
const FEW: usize = 128;

/// A launch that the device runs or that waits for its turn, and all that it uses.
#[derive(Debug)]
pub(super) struct Flight {
    // Fields drop in this order: the stream is idle by then, the memory and the code are nobody's.
    stage: Stage,
    launch: Arc<Launch>,
    program: Arc<CudaProgram>,
    watch: Watch,
    begun: Instant,
    /// When the driver is asked about a stream that is marked.
    next_query: Option<Instant>,
}

#[derive(Debug)]
enum Stage {
    /// Not yet the driver's: all streams are taken.
    Queued(Place),
    /// On a stream.
    Started(Lane),
}

/// Starts a launch. It has ended, or is the poller's, when this returns.
pub(super) fn start(program: Arc<CudaProgram>, launch: Arc<Launch>) {
    match take_off(&program, &launch) {
        Ok((stage, watch)) => {
            let flight = Flight {
                stage,
                launch,
                program,
                watch,
                begun: Instant::now(),
                next_query: None,
            };
            match flight.spin() {
                Some(outcome) => flight.end(outcome),
                None => {
                    let core = Arc::clone(&flight.program.core);
                    core.poller.push(flight);
                }
            }
        }
        Err(error) => {
            let signal = Arc::clone(launch.signal());
            drop(launch);
            signal.complete(Err(error));
        }
    }
}

/// Checks what only this backend can, and hands the launch to the driver if a stream is idle.
fn take_off(program: &CudaProgram, launch: &Launch) -> Result<(Stage, Watch), Error> {
    let core = &program.core;
    let watch = Watch::new(launch.control().deadline());
    if watch.is_late(Instant::now()) {
        return Err(Error::Stopped(StopReason::Deadline));
    }
    if launch
        .region()
        .is_some_and(|region| !Arc::ptr_eq(region.table(), &core.regions))
    {
        let reason = "the memory is of another device";
        return Err(Error::NotAddressable { index: 0, reason });
    }
    core.context.enter()?;
    let stage = match core.lanes.for_launch() {
        Ok(lane) => {
            hand_over(program, launch, &lane)?;
            Stage::Started(lane)
        }
        Err(place) => Stage::Queued(place),
    };
    Ok((stage, watch))
}

/// Hands a launch to the driver. Enter the context first.
fn hand_over(program: &CudaProgram, launch: &Launch, lane: &Lane) -> Result<(), Error> {
    let (core, entry) = (&program.core, &program.entry);
    let geometry = launch.geometry();
    let (threads, shared_bytes) = (geometry.threads_per_block(), geometry.shared_bytes());
    let bound = || {
        let measure = |threads, shared| entry.function.resident_blocks(threads, shared);
        entry.occupancy.bound(threads, shared_bytes, measure)
    };
    let too_large = |limit| Error::GridCooperative {
        given: geometry.blocks().into(),
        limit,
    };
    if geometry.mode() == Mode::Cooperative {
        let limit = bound();
        if geometry.blocks() > limit {
            return Err(too_large(limit));
        }
    }
    let result = issue(entry, geometry, lane.stream(), launch)?;
    match check("launching a kernel", result) {
        Ok(()) => {
            lane.stream().put_mark();
            Ok(())
        }
        Err(failure) if failure.code == code::COOPERATIVE_LAUNCH_TOO_LARGE => {
            Err(too_large(bound()))
        }
        Err(failure) => Err(core.context.error(failure)),
    }
}

/// Calls the driver with the addresses of the parameters, which it copies before it returns.
fn issue(
    entry: &Entry,
    geometry: Geometry,
    stream: &Stream,
    launch: &Launch,
) -> Result<CUresult, Error> {
    if !launch.fits(&entry.attributes.signature) {
        let reason = "it was prepared for another kernel".into();
        let what = "launching a kernel";
        return Err(Error::Backend { what, reason });
    }
    let params = launch.params();
    let mut few = [std::ptr::null_mut::<c_void>(); FEW];
    let mut many = Vec::new();
    let slots = match few.get_mut(..params.len()) {
        Some(few) => few,
        None => {
            many.resize(params.len(), std::ptr::null_mut());
            &mut many[..]
        }
    };
    for (slot, value) in slots.iter_mut().zip(params.slot_ptrs()) {
        *slot = value.cast_mut().cast();
    }
    let (function, slots) = (entry.function.raw(), slots.as_mut_ptr());
    let ([gx, gy, gz], [bx, by, bz]) = (geometry.grid(), geometry.block());
    let (shared, stream) = (geometry.shared_bytes(), stream.raw());
    let none = std::ptr::null_mut();
    Ok(match geometry.mode() {
        // SAFETY: `slots` has the address of one value for each parameter of the entry, at least as long as the parameter:
        // `fits` compared the launch's layout with the signature above, and program.rs the signature with the driver's own
        // where the driver tells. The values are only read. Function and stream are live, borrowed here. What the kernel
        // does to memory is the embedder's word: only `text_of` lets a program through (program.rs).
        Mode::Plain => unsafe {
            sys::cuLaunchKernel(
                function, gx, gy, gz, bx, by, bz, shared, stream, slots, none,
            )
        },
        // SAFETY: as above.
        Mode::Cooperative => unsafe {
            sys::cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, stream, slots)
        },
    })
}

impl Flight {
    /// Waits for a moment, unless enough threads of the process do so already. An outcome says that the launch ended.
    fn spin(&self) -> Option<Result<(), Error>> {
        let Stage::Started(lane) = &self.stage else {
            return None;
        };
        let _spinner = Spinner::new()?;
        let (stream, patience) = (lane.stream(), &self.program.core.patience);
        let limit = patience.limit();
        loop {
            if stream.has_passed_mark() {
                return Some(Ok(()));
            }
            if !stream.is_marked() {
                match stream.query() {
                    Ok(Progress::Running) => {}
                    Ok(Progress::Ended) => return Some(Ok(())),
                    Err(error) => return Some(Err(error)),
                }
            }
            if self.begun.elapsed() >= limit {
                patience.was_in_vain(limit);
                return None;
            }
            std::hint::spin_loop();
        }
    }

    /// Looks whether a kernel has ended.
    fn look_at_kernel(&mut self, now: Instant) -> Option<Result<(), Error>> {
        let Stage::Started(lane) = &self.stage else {
            return None;
        };
        let stream = lane.stream();
        if stream.has_passed_mark() {
            self.program
                .core
                .patience
                .saw_end(now.duration_since(self.begun));
            return Some(Ok(()));
        }
        // Only the driver tells of faults, but that need not be soon.
        if !stream.is_marked() || self.next_query.is_none_or(|next| now >= next) {
            self.next_query = Some(now + QUERY_EVERY);
            // The end of another launch may have freed something of another device on this thread.
            if let Err(error) = self.program.core.context.bind() {
                return Some(Err(error));
            }
            match stream.query() {
                Ok(Progress::Ended) => return Some(Ok(())),
                Err(error) => return Some(Err(error)),
                Ok(Progress::Running) => {}
            }
        }
        let signal = self.launch.signal();
        // A kernel that runs as it is cannot be ended from outside: its caller is told, and what it uses stays held.
        if let Some(reason) = self.watch.look(now, || signal.stop_requested()) {
            signal.give_up(Error::Stopped(reason));
        }
        None
    }

    /// Looks whether it is the launch's turn, or nobody wants it any more.
    fn look_for_lane(&mut self, now: Instant) -> Option<Result<(), Error>> {
        let Stage::Queued(place) = &self.stage else {
            return None;
        };
        if self.watch.is_late(now) {
            return Some(Err(Error::Stopped(StopReason::Deadline)));
        }
        if self.launch.signal().stop_requested() {
            return Some(Err(Error::Stopped(StopReason::Requested)));
        }
        if let Err(error) = self.program.core.context.enter() {
            return Some(Err(error));
        }
        let lane = place.take()?;
        match hand_over(&self.program, &self.launch, &lane) {
            Ok(()) => {
                self.stage = Stage::Started(lane);
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl Job for Flight {
    type Outcome = Result<(), Error>;

    fn look(&mut self, now: Instant) -> Option<Self::Outcome> {
        match self.stage {
            Stage::Queued(_) => self.look_for_lane(now),
            Stage::Started(_) => self.look_at_kernel(now),
        }
    }

    /// Lets go of everything, then reports: whoever waited may use the launch again at once.
    fn end(self, outcome: Self::Outcome) {
        let signal = Arc::clone(self.launch.signal());
        drop(self);
        signal.complete(outcome);
    }
}

/// When a launch's caller is told that it has not ended.
#[derive(Clone, Copy, Debug)]
struct Watch {
    deadline: Option<Instant>,
    /// Until when one that was asked to stop may still end.
    patience: Option<Instant>,
    is_over: bool,
}

impl Watch {
    fn new(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            patience: None,
            is_over: false,
        }
    }

    fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// Why the caller should be told now; once.
    fn look(&mut self, now: Instant, stop_requested: impl FnOnce() -> bool) -> Option<StopReason> {
        if self.is_over {
            return None;
        }
        let reason = if self.is_late(now) {
            StopReason::Deadline
        } else {
            match self.patience {
                Some(patience) if now >= patience => StopReason::Requested,
                Some(_) => return None,
                None => {
                    self.patience = stop_requested().then(|| now + DRAIN);
                    return None;
                }
            }
        };
        self.is_over = true;
        Some(reason)
    }
}

/// The right to spin: half of the processor's cores may, at least one.
pub(super) struct Spinner;

static SPINNING: AtomicUsize = AtomicUsize::new(0);

impl Spinner {
    pub(super) fn new() -> Option<Self> {
        static MOST: OnceLock<usize> = OnceLock::new();
        let most = *MOST.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            cores.div_ceil(2)
        });
        let before = SPINNING.fetch_add(1, Ordering::Relaxed);
        // Made in any case, so that dropping it takes the count back.
        let spinner = Self;
        (before < most).then_some(spinner)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_past_its_deadline_is_reported_once() {
        let now = Instant::now();
        let mut watch = Watch::new(Some(now + DRAIN));
        assert!(!watch.is_late(now));
        assert_eq!(watch.look(now, || false), None);
        assert_eq!(
            watch.look(now + DRAIN, || false),
            Some(StopReason::Deadline)
        );
        assert_eq!(watch.look(now + 2 * DRAIN, || true), None);
    }

    #[test]
    fn a_launch_asked_to_stop_has_a_while_to_end_by_itself() {
        let now = Instant::now();
        let mut watch = Watch::new(None);
        assert_eq!(watch.look(now, || true), None);
        assert_eq!(watch.look(now + DRAIN / 2, || true), None);
        assert_eq!(
            watch.look(now + DRAIN, || true),
            Some(StopReason::Requested)
        );
        assert_eq!(watch.look(now + 3 * DRAIN, || true), None);
    }

    #[test]
    fn a_launch_that_may_run_is_never_reported() {
        let mut watch = Watch::new(None);
        let late = Instant::now() + Duration::from_secs(3600);
        assert_eq!(watch.look(late, || false), None);
    }

    #[test]
    fn some_threads_may_spin_but_not_all() {
        let mut spinners = Vec::new();
        while let Some(spinner) = Spinner::new() {
            spinners.push(spinner);
            assert!(spinners.len() < 10_000);
        }
        assert!(!spinners.is_empty());
        drop(spinners);
        assert!(Spinner::new().is_some());
    }
}
