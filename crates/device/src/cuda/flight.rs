//! A launch on its way: handed to the driver, waited for briefly on the spot and then by the poller, reported when it ends.
#![expect(unsafe_code, reason = "the two driver calls that start a kernel")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cust::sys::{self, CUresult};

use super::control::Control;
use super::core::Core;
use super::error::{check, code};
use super::gate;
use super::poller::Job;
use super::program::CudaProgram;
use super::stream::{Lane, Place, Progress, Stream};
use crate::completion::DRAIN;
use crate::confinement::{Hidden, Reins};
use crate::control::Known;
use crate::error::{Error, StopReason};
use crate::launch::{Geometry, Launch, Mode};

/// How often the driver is asked about a launch whose end is seen without it.
const QUERY_EVERY: Duration = Duration::from_micros(100);

/// How long a kernel that was told to end at its deadline has to do so before it is given up. Nobody's thread waits for it, as one does where a call
/// was dropped, so that there is time for accesses that take long.
const UNATTENDED: Duration = Duration::from_millis(500);

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
    /// Not yet the driver's: a module is being loaded, and kernels of this memory were not seen to end soon.
    Held,
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
    let manners = match program.confined {
        Some(_) => Manners::EndsWhenTold,
        None => Manners::RunsOn,
    };
    let watch = Watch::new(launch.control().deadline(), manners);
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
    let stage = if is_held(core, launch, Instant::now()) {
        Stage::Held
    } else {
        next_stage(program, launch, &watch)?
    };
    Ok((stage, watch))
}

/// Whether a launch waits for modules that are being loaded. Memory of the embedder's making is nobody's who could mean ill.
fn is_held(core: &Core, launch: &Launch, now: Instant) -> bool {
    core.gate.is_closed(now) && launch.region().is_some_and(|region| !region.runs_briefly())
}

/// Hands a launch to the driver if a stream is idle.
fn next_stage(program: &CudaProgram, launch: &Launch, watch: &Watch) -> Result<Stage, Error> {
    Ok(match program.core.lanes.for_launch() {
        Ok(lane) => {
            hand_over(program, launch, &lane, watch.deadline)?;
            Stage::Started(lane)
        }
        Err(place) => Stage::Queued(place),
    })
}

/// Hands a launch to the driver. Enter the context first.
fn hand_over(
    program: &CudaProgram,
    launch: &Launch,
    lane: &Lane,
    deadline: Option<Instant>,
) -> Result<(), Error> {
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
    let hidden = match program.confined {
        Some(_) => Some(armed(core, launch, lane, deadline)?),
        None => None,
    };
    let result = issue(program, geometry, lane.stream(), launch, hidden)?;
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

/// Makes the control block of a lane ready for a confined kernel, and says what the kernel takes besides its guest's arguments.
fn armed(
    core: &Core,
    launch: &Launch,
    lane: &Lane,
    deadline: Option<Instant>,
) -> Result<Hidden, Error> {
    let control = lane.stream().control();
    let stop = control.and_then(Control::stop);
    let (Some(control), Some(stop), Some(region)) = (control, stop, launch.region()) else {
        let reason = "the driver gives no way to stop a confined kernel".into();
        return Err(Error::NotAvailable { reason });
    };
    control.clear();
    let clock = core.clock.get().copied().flatten();
    let until = clock.zip(deadline).map(|(clock, at)| clock.until(at));
    let reins = Reins {
        control: control.device_address(),
        stop: stop.device_address(),
        token: stop.next_token(),
        until: until.unwrap_or(u64::MAX),
    };
    let window_bytes = region.spec().window_bytes;
    Ok(Hidden::new(
        launch,
        region.pointer(0),
        window_bytes,
        region.reach(),
        reins,
    ))
}

/// Calls the driver with the addresses of the parameters, which it copies before it returns.
fn issue(
    program: &CudaProgram,
    geometry: Geometry,
    stream: &Stream,
    launch: &Launch,
    hidden: Option<Hidden>,
) -> Result<CUresult, Error> {
    let entry = &program.entry;
    if !launch.fits(&program.attributes) {
        let reason = "it was prepared for another kernel".into();
        let what = "launching a kernel";
        return Err(Error::Backend { what, reason });
    }
    let params = launch.params();
    let mut few = [std::ptr::null_mut::<c_void>(); FEW];
    let mut many = Vec::new();
    let hidden_ptrs = hidden.as_ref().map(Hidden::ptrs);
    let hidden_ptrs = hidden_ptrs.iter().flatten().copied();
    let count = params.len() + hidden_ptrs.clone().count();
    let slots = match few.get_mut(..count) {
        Some(few) => few,
        None => {
            many.resize(count, std::ptr::null_mut());
            &mut many[..]
        }
    };
    for (slot, value) in slots.iter_mut().zip(params.slot_ptrs().chain(hidden_ptrs)) {
        *slot = value.cast_mut().cast();
    }
    let (function, slots) = (entry.function.raw(), slots.as_mut_ptr());
    let ([gx, gy, gz], [bx, by, bz]) = (geometry.grid(), geometry.block());
    let (shared, stream) = (geometry.shared_bytes(), stream.raw());
    let none = std::ptr::null_mut();
    Ok(match geometry.mode() {
        // SAFETY: `slots` has the address of one value for each parameter of the entry, at least as long as the parameter:
        // `fits` compared the launch's layout with the signature above, the verifier that signature and what is hidden behind it with
        // the text's, and program.rs the text's with the driver's own where the driver tells. The values are only read. Function
        // and stream are live, borrowed here. What the kernel does to memory is the embedder's word, or it was verified to stay in
        // the window of the region, which the launch holds as the lane holds the control block: only `text_of` lets a program
        // through (program.rs).
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
        match self.watch.look(now, || signal.stop_requested()) {
            None => {}
            Some(Act::Stop) => {
                if self.program.confined.is_some()
                    && let Some(control) = stream.control()
                    && let Err(error) = control.raise()
                {
                    // It ends at its deadline.
                    tracing::error!(%error, "a kernel was not told to stop");
                }
            }
            // It cannot be ended from outside: its caller is told, and what it uses stays held.
            Some(Act::GiveUp(reason)) => signal.give_up(Error::Stopped(reason)),
        }
        None
    }

    /// Looks whether it is the launch's turn, or nobody wants it any more.
    fn look_for_lane(&mut self, now: Instant) -> Option<Result<(), Error>> {
        if self.watch.is_late(now) {
            return Some(Err(Error::Stopped(StopReason::Deadline)));
        }
        if self.launch.signal().stop_requested() {
            return Some(Err(Error::Stopped(StopReason::Requested)));
        }
        if let Err(error) = self.program.core.context.enter() {
            return Some(Err(error));
        }
        let next = match &self.stage {
            Stage::Started(_) => return None,
            Stage::Held if is_held(&self.program.core, &self.launch, now) => return None,
            Stage::Held => next_stage(&self.program, &self.launch, &self.watch),
            Stage::Queued(place) => {
                let lane = place.take()?;
                hand_over(&self.program, &self.launch, &lane, self.watch.deadline)
                    .map(|()| Stage::Started(lane))
            }
        };
        match next {
            Ok(stage) => {
                self.stage = stage;
                self.begun = now;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl Flight {
    /// What a kernel that ran to its end says of it: a confined one may have been cut short, or have something to report.
    fn said(&self) -> Result<(), Error> {
        let (Some(verified), Stage::Started(lane)) = (&self.program.confined, &self.stage) else {
            return Ok(());
        };
        let (Some(control), Some(region)) = (lane.stream().control(), self.launch.region()) else {
            return Ok(());
        };
        control.block().outcome(&Known {
            map: verified.map(),
            geometry: self.launch.geometry(),
            line: self.program.attributes.signature.line,
            base: region.pointer(0),
            window_bytes: region.spec().window_bytes,
            told: self.watch.told(),
        })
    }
}

impl Job for Flight {
    type Outcome = Result<(), Error>;

    fn look(&mut self, now: Instant) -> Option<Self::Outcome> {
        match self.stage {
            Stage::Held | Stage::Queued(_) => self.look_for_lane(now),
            Stage::Started(_) => self.look_at_kernel(now),
        }
    }

    /// Lets go of everything, then reports: whoever waited may use the launch again at once.
    fn end(self, outcome: Self::Outcome) {
        let outcome = outcome.and_then(|()| self.said());
        if let Some(region) = self.launch.region() {
            region.note_run(gate::is_brief(self.begun.elapsed()));
        }
        let signal = Arc::clone(self.launch.signal());
        drop(self);
        signal.complete(outcome);
    }
}

/// What a kernel does when it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manners {
    /// It looks now and then whether it may go on.
    EndsWhenTold,
    /// It hears nothing.
    RunsOn,
}

/// What is to be done about a launch that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Its caller is told that it has not ended.
    GiveUp(StopReason),
    /// It is told to stop.
    Stop,
}

/// When a launch is told to stop, and when its caller that it has not.
#[derive(Clone, Copy, Debug)]
struct Watch {
    deadline: Option<Instant>,
    manners: Manners,
    /// Why one that is to stop is, and until when it may still end.
    stopping: Option<(StopReason, Instant)>,
    is_over: bool,
}

impl Watch {
    fn new(deadline: Option<Instant>, manners: Manners) -> Self {
        Self {
            deadline,
            manners,
            stopping: None,
            is_over: false,
        }
    }

    fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// Why it was told to stop, if it was.
    fn told(&self) -> Option<StopReason> {
        self.stopping.map(|(reason, _)| reason)
    }

    /// What is to be done now; each at most once. One that runs on is given up at its deadline, whatever else there is time for.
    fn look(&mut self, now: Instant, stop_requested: impl FnOnce() -> bool) -> Option<Act> {
        if self.is_over {
            return None;
        }
        let is_late = self.is_late(now);
        let given_up = match self.stopping {
            _ if is_late && self.manners == Manners::RunsOn => Some(StopReason::Deadline),
            Some((reason, patience)) if now >= patience => Some(reason),
            Some(_) => return None,
            None => None,
        };
        if let Some(reason) = given_up {
            self.is_over = true;
            return Some(Act::GiveUp(reason));
        }
        let reason = if is_late {
            StopReason::Deadline
        } else if stop_requested() {
            StopReason::Requested
        } else {
            return None;
        };
        let patience = match reason {
            StopReason::Requested => DRAIN,
            StopReason::Budget | StopReason::Deadline => UNATTENDED,
        };
        self.stopping = Some((reason, now + patience));
        Some(Act::Stop)
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

    const DEADLINE: Act = Act::GiveUp(StopReason::Deadline);
    const REQUESTED: Act = Act::GiveUp(StopReason::Requested);

    #[test]
    fn a_launch_past_its_deadline_is_reported_once() {
        let now = Instant::now();
        let mut watch = Watch::new(Some(now + DRAIN), Manners::RunsOn);
        assert!(!watch.is_late(now));
        assert_eq!(watch.look(now, || false), None);
        assert_eq!(watch.look(now + DRAIN, || false), Some(DEADLINE));
        assert_eq!(watch.look(now + 2 * DRAIN, || true), None);
    }

    #[test]
    fn a_launch_asked_to_stop_has_a_while_to_end_by_itself() {
        for manners in [Manners::EndsWhenTold, Manners::RunsOn] {
            let now = Instant::now();
            let mut watch = Watch::new(None, manners);
            assert_eq!(watch.look(now, || true), Some(Act::Stop));
            assert_eq!(watch.told(), Some(StopReason::Requested));
            assert_eq!(watch.look(now + DRAIN / 2, || true), None);
            assert_eq!(watch.look(now + DRAIN, || true), Some(REQUESTED));
            assert_eq!(watch.look(now + 3 * DRAIN, || true), None);
        }
    }

    #[test]
    fn a_confined_launch_past_its_deadline_is_told_to_stop_and_given_up_as_a_last_resort() {
        let now = Instant::now();
        let mut watch = Watch::new(Some(now + DRAIN), Manners::EndsWhenTold);
        assert_eq!(watch.told(), None);
        assert_eq!(watch.look(now + DRAIN, || false), Some(Act::Stop));
        assert_eq!(watch.told(), Some(StopReason::Deadline));
        let late = now + DRAIN + UNATTENDED;
        assert_eq!(watch.look(now + 2 * DRAIN, || true), None);
        assert_eq!(watch.look(late - DRAIN / 2, || true), None);
        assert_eq!(watch.look(late, || true), Some(DEADLINE));
    }

    #[test]
    fn a_deadline_does_not_wait_for_a_launch_that_hears_nothing() {
        let now = Instant::now();
        let mut watch = Watch::new(Some(now + DRAIN / 2), Manners::RunsOn);
        assert_eq!(watch.look(now, || true), Some(Act::Stop));
        assert_eq!(watch.look(now + DRAIN / 2, || true), Some(DEADLINE));
    }

    #[test]
    fn a_launch_that_may_run_is_never_reported() {
        let late = Instant::now() + Duration::from_secs(3600);
        for manners in [Manners::EndsWhenTold, Manners::RunsOn] {
            assert_eq!(Watch::new(None, manners).look(late, || false), None);
        }
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
