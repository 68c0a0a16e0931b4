//! One launch while it runs: what its workers share, and how it ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::completion::{DRAIN, Signal};
use crate::device::Program;
use crate::error::{Error, StopReason};
use crate::launch::{Launch, Mode};

use super::block::{Pace, Step};
use super::memory::{Control, Workspace};
use super::program::CpuProgram;

/// Warp instructions between two looks at stop word, deadline and budget: about 20 microseconds of plain ones.
const QUANTUM: u32 = 1024;
/// How long a block keeps a worker while other launches wait.
pub(super) const SLICE: Duration = Duration::from_millis(2);
/// How long a worker sleeps for a block that sleeps, before it looks for a stop again.
const NAP: Duration = Duration::from_micros(100);

/// A launch that is running. Kept for the next one when over, so that a warm launch allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Different for every launch of the process.
    pub(super) id: u64,
    pub(super) workspace: Workspace,
    /// Of a confined launch: its control block, and its parameters with the hidden ones.
    pub(super) control: Control,
    pub(super) params: Vec<u8>,
    work: Option<(Arc<CpuProgram>, Arc<Launch>)>,
    budget: Option<AtomicU64>,
    deadline: Option<Instant>,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl Run {
    /// Takes up a launch.
    pub(super) fn begin(&mut self, id: u64, program: Arc<CpuProgram>, launch: Arc<Launch>) {
        self.id = id;
        self.budget = launch.control().budget.map(AtomicU64::new);
        self.deadline = launch.control().deadline();
        self.workspace.clear();
        if let Some(confined) = &program.confined {
            let until = self.deadline.map_or(u64::MAX, until);
            self.control.clear();
            // It sees for itself when its time is up.
            self.deadline = self
                .deadline
                .and_then(|deadline| deadline.checked_add(DRAIN));
            self.params.clear();
            self.params.extend_from_slice(launch.params().backing());
            confined
                .hidden(&launch, until)
                .put(&confined.signature, &mut self.params);
        }
        self.failed = AtomicBool::new(false);
        *self.failure() = None;
        self.work = Some((program, launch));
    }

    /// The program and the launch; `None` only between launches.
    pub(super) fn work(&self) -> Option<&(Arc<CpuProgram>, Arc<Launch>)> {
        self.work.as_ref()
    }

    /// Ends the launch for all workers; the first failure is the one reported.
    pub(super) fn fail(&self, error: Error) {
        self.failure().get_or_insert(error);
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Lets go of the launch, its memory and its program; what is left is to report.
    pub(super) fn finish(&mut self) -> Option<(Arc<Signal>, Result<(), Error>)> {
        let (program, launch) = self.work.take()?;
        let signal = Arc::clone(launch.signal());
        let mut outcome = self.failure().take().map_or(Ok(()), Err);
        if let Some(confined) = &program.confined {
            let known = confined.known(&program.attributes().signature, &launch);
            outcome = match outcome {
                Ok(()) => self.control.block().outcome(&known),
                Err(Error::Trap(trap)) => Err(Error::Trap(known.told_trap(trap))),
                stopped => stopped,
            };
        }
        drop(launch);
        drop(program);
        Some((signal, outcome))
    }

    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to a quantum from the budget of the grid. Half of what is left stays for others, so that a worker does not
    /// find nothing left while another is about to give back what it does not need.
    fn grant(&self, workers: u64) -> u32 {
        let Some(budget) = &self.budget else {
            return QUANTUM;
        };
        let share = |left: u64| {
            (left / (2 * workers.max(1)))
                .clamp(1, QUANTUM.into())
                .min(left)
        };
        let before = budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left - share(left))
            })
            .unwrap_or_default();
        u32::try_from(share(before)).unwrap_or(QUANTUM)
    }

    /// Why the launch is to end now, if it is.
    pub(super) fn stop_reason(&self) -> Option<StopReason> {
        let (_, launch) = self.work.as_ref()?;
        if launch.signal().stop_requested() {
            return Some(StopReason::Requested);
        }
        self.deadline
            .filter(|&deadline| Instant::now() >= deadline)
            .map(|_| StopReason::Deadline)
    }

    /// Whether the blocks have to be resident together and so take turns quickly.
    pub(super) fn is_cooperative(&self) -> bool {
        self.work
            .as_ref()
            .is_some_and(|(_, launch)| launch.geometry().mode() == Mode::Cooperative)
    }
}

/// What the clock that kernels see will show at a time.
fn until(deadline: Instant) -> u64 {
    let left = deadline.saturating_duration_since(Instant::now());
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = now.unwrap_or_default().saturating_add(left);
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

/// How a worker paces the blocks of a run.
pub(super) struct Worker<'a, F: Fn() -> bool> {
    pub(super) run: &'a Run,
    pub(super) since: Instant,
    /// How many may be at the run.
    pub(super) workers: u64,
    /// Whether something else waits for a worker.
    pub(super) others_wait: F,
    /// Whether the block has run at all since it was taken up.
    pub(super) progressed: bool,
}

impl<F: Fn() -> bool> Worker<'_, F> {
    /// Whether it is another's turn.
    pub(super) fn over(&self) -> bool {
        (self.run.is_cooperative() || self.since.elapsed() >= SLICE) && (self.others_wait)()
    }
}

impl<F: Fn() -> bool> Pace for Worker<'_, F> {
    fn next(&mut self, sleeping: Option<Duration>) -> Step {
        if self.run.has_failed() {
            // Reported by whoever failed first.
            return Step::Stop(StopReason::Requested);
        }
        if let Some(reason) = self.run.stop_reason() {
            return Step::Stop(reason);
        }
        if let Some(left) = sleeping {
            if (self.others_wait)() {
                return Step::Yield;
            }
            std::thread::sleep(left.min(NAP));
        } else if self.progressed && self.over() {
            return Step::Yield;
        }
        match self.run.grant(self.workers) {
            0 => Step::Stop(StopReason::Budget),
            instructions => {
                self.progressed = true;
                Step::Go(instructions)
            }
        }
    }

    fn unused(&mut self, instructions: u32) {
        if let Some(budget) = &self.run.budget {
            budget.fetch_add(u64::from(instructions), Ordering::Relaxed);
        }
    }
}
