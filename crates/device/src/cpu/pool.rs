//! The device's threads: workers, which take turns at the blocks of all running launches, and one loader.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::launch::{Launch, Mode};
use crate::region::Region;

use super::block::{Block, End, Surroundings, Tenant};
use super::program::CpuProgram;
use super::run::{Run, Worker};

/// Loads that may wait for the loader: enough for every guest of a busy host to have one, and a few seconds' work at most.
const WAITING_LOADS: usize = 256;

/// How often the queue is searched for launches that are to end: with the slice that a worker is in, well below what a dropped
/// completion waits.
const STOP_INTERVAL: Duration = Duration::from_millis(1);

/// Most bytes that an idle worker holds on to.
const SPARE_BYTES: usize = 4 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// A launch in the queue.
#[derive(Debug, Default)]
struct Active {
    run: Arc<Run>,
    /// Blocks that made way and go on later.
    parked: VecDeque<Box<Block>>,
    /// Workers that are at it.
    busy: usize,
    /// Every block has been begun, or none is wanted any more.
    exhausted: bool,
    /// Bytes that a block may come to take, and those of all that are begun at once: of one, or of a cooperative launch.
    unit: u64,
    whole: u64,
    /// Bytes that it is charged for its blocks.
    charged: u64,
}

impl Active {
    fn has_work(&self) -> bool {
        !self.parked.is_empty() || !self.exhausted
    }

    fn is_over(&self) -> bool {
        self.busy == 0 && !self.has_work()
    }

    /// Nothing is left to do but to say so.
    fn is_to_end(&self) -> bool {
        self.has_work() && self.run.stop_reason().is_some()
    }
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Active>,
    /// What ended launches leave to the next ones.
    spare: Vec<Active>,
    runs: u64,
    idle: usize,
    closing: bool,
    /// When the queue was last searched for launches that are to end.
    searched: Option<Instant>,
    /// Bytes that launches are charged for their blocks, and how many there may be.
    charged: u64,
    block_bytes: u64,
    /// Whether a launch waits for some of them.
    is_short: bool,
}

impl State {
    /// Charges a launch for the block that a worker takes up next. Whether there was room; where there is none, a launch that is
    /// to end is told so all the same.
    fn charge(&mut self, active: &mut Active) -> bool {
        let more = if active.run.is_cooperative() {
            active.whole - active.charged
        } else if active.parked.is_empty() {
            active.unit
        } else {
            // It was charged when it was begun.
            0
        };
        if more > self.block_bytes - self.charged {
            self.is_short = true;
            return active.run.stop_reason().is_some() && active.busy == 0;
        }
        active.charged += more;
        self.charged += more;
        true
    }

    /// Gives back what a launch is charged beyond the blocks that it has, and perhaps as many that it lets go of. Whether
    /// somebody waits for it.
    fn settle(&mut self, at: usize, unwanted: usize) -> bool {
        let active = &mut self.queue[at];
        let blocks = (active.busy + active.parked.len() + unwanted) as u64;
        let kept = if active.run.is_cooperative() && (blocks > 0 || !active.exhausted) {
            active.whole
        } else {
            active.unit.saturating_mul(blocks)
        };
        let back = active.charged.saturating_sub(kept);
        active.charged -= back;
        self.charged -= back;
        back > 0 && std::mem::take(&mut self.is_short)
    }

    /// Gives back what an ended launch was charged. Whether somebody waits for it.
    fn give_back(&mut self, bytes: u64) -> bool {
        self.charged -= bytes;
        bytes > 0 && std::mem::take(&mut self.is_short)
    }

    /// Puts launches that are to end first, so that their callers do not wait for as many slices as there are launches.
    fn advance_stops(&mut self) {
        let is_recent = |at: Instant| at.elapsed() < STOP_INTERVAL;
        if self.queue.len() < 2 || self.searched.is_some_and(is_recent) {
            return;
        }
        self.searched = Some(Instant::now());
        for index in 1..self.queue.len() {
            if self.queue[index].is_to_end()
                && let Some(active) = self.queue.remove(index)
            {
                self.queue.push_front(active);
            }
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    /// Launches in the queue.
    launches: AtomicUsize,
    workers: usize,
    block_bytes: u64,
    /// Memory of a launch that has none.
    nothing: Arc<Region>,
    epoch: Instant,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads of a device. They end when the last program and the device itself are gone.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    loads: Option<SyncSender<Job>>,
}

/// What a worker takes up.
struct Task {
    run: Arc<Run>,
    block: Option<Box<Block>>,
}

/// What became of it.
enum Outcome {
    /// There are no blocks left to begin, or none is wanted.
    Exhausted,
    /// Others are served first.
    More,
    Parked(Box<Block>),
}

impl Pool {
    pub(super) fn new(
        workers: usize,
        block_bytes: u64,
        nothing: Arc<Region>,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                block_bytes,
                ..State::default()
            }),
            work: Condvar::new(),
            launches: AtomicUsize::new(0),
            workers,
            block_bytes,
            nothing,
            epoch: Instant::now(),
        });
        let mut pool = Self {
            shared,
            threads: Vec::new(),
            loads: None,
        };
        for number in 0..workers {
            let shared = Arc::clone(&pool.shared);
            pool.spawn(format!("wasi-cuda cpu {number}"), move || work(&shared))?;
        }
        let (sender, receiver) = sync_channel::<Job>(WAITING_LOADS);
        pool.loads = Some(sender);
        pool.spawn("wasi-cuda loader".into(), move || {
            for job in receiver {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                    tracing::error!(reason = %reason(panic.as_ref()), "a deferred job panicked");
                }
            }
        })?;
        Ok(pool)
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = thread::Builder::new().name(name).spawn(body);
        let failed = |error: std::io::Error| Error::Backend {
            what: "starting a thread",
            reason: error.to_string(),
        };
        self.threads.push(thread.map_err(failed)?);
        Ok(())
    }

    /// Runs a job on the loader's thread.
    pub(super) fn defer(&self, job: Job) -> Result<(), Error> {
        let sent = self.loads.as_ref().map(|loads| loads.try_send(job));
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_))) => Err(Error::Busy {
                what: "loads",
                limit: WAITING_LOADS,
            }),
            Some(Err(TrySendError::Disconnected(_))) | None => {
                let reason = "the loader has ended".into();
                Err(Error::Backend {
                    what: "loading",
                    reason,
                })
            }
        }
    }

    /// Bytes that all blocks of all launches may take together.
    pub(super) fn block_bytes(&self) -> u64 {
        self.shared.block_bytes
    }

    /// Queues a launch, for whose blocks there is room once others have ended.
    pub(super) fn start(&self, program: Arc<CpuProgram>, launch: Arc<Launch>) {
        let geometry = launch.geometry();
        let blocks = geometry.blocks() / program.size.cluster().max(1);
        let unit = program.size.unit(geometry);
        let mut state = self.shared.state();
        state.runs += 1;
        let id = state.runs;
        let mut active = state.spare.pop().unwrap_or_default();
        active.exhausted = false;
        active.unit = unit;
        active.whole = match geometry.mode() {
            Mode::Cooperative => unit.saturating_mul(blocks),
            Mode::Plain => unit,
        };
        if Arc::get_mut(&mut active.run).is_none() {
            active.run = Arc::default();
        }
        if let Some(run) = Arc::get_mut(&mut active.run) {
            run.begin(id, program, launch);
        }
        state.queue.push_back(active);
        self.shared
            .launches
            .store(state.queue.len(), Ordering::Relaxed);
        let idle = state.idle;
        drop(state);
        match idle {
            0 => {}
            _ if blocks == 1 => self.shared.work.notify_one(),
            _ => self.shared.work.notify_all(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.work.notify_all();
        drop(self.loads.take());
        let own = thread::current().id();
        for thread in self.threads.drain(..) {
            // The last program may be dropped by a thread of the pool, which then ends by itself.
            if thread.thread().id() != own && thread.join().is_err() {
                tracing::error!("a thread of the CPU device panicked");
            }
        }
    }
}

fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown".into())
}

/// A worker: takes up blocks until the pool closes.
fn work(shared: &Shared) {
    let mut spare: Option<Box<Block>> = None;
    while let Some(mut task) = take(shared) {
        let block = task.block.take();
        let attempt = AssertUnwindSafe(|| run_blocks(shared, &task.run, block, &mut spare));
        let outcome = catch_unwind(attempt).unwrap_or_else(|panic| {
            let reason = reason(panic.as_ref());
            tracing::error!(%reason, "the interpreter panicked");
            task.run.fail(Error::Backend {
                what: "interpreting a kernel",
                reason,
            });
            Outcome::Exhausted
        });
        // A block that is kept for the next is not charged to anyone.
        if spare
            .as_ref()
            .is_some_and(|block| block.held_bytes() > SPARE_BYTES)
        {
            spare = None;
        }
        report(shared, task.run, outcome);
    }
}

/// Waits for something to do. `None` when the pool closes.
fn take(shared: &Shared) -> Option<Task> {
    let mut state = shared.state();
    loop {
        if let Some(task) = next(&mut state) {
            return Some(task);
        }
        if state.closing {
            return None;
        }
        state.idle += 1;
        state = shared
            .work
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
    }
}

/// The next launch that has work, which goes to the end of the queue.
fn next(state: &mut State) -> Option<Task> {
    state.advance_stops();
    for _ in 0..state.queue.len() {
        let mut active = state.queue.pop_front()?;
        let has_work = active.has_work() && state.charge(&mut active);
        let task = has_work.then(|| {
            active.busy += 1;
            // Blocks of a cooperative launch wait for each other, so all are begun before any goes on. Of a plain one
            // no more are begun than workers are at it.
            let begin = active.run.is_cooperative() && !active.exhausted;
            let block = if begin {
                None
            } else {
                active.parked.pop_front()
            };
            Task {
                run: Arc::clone(&active.run),
                block,
            }
        });
        state.queue.push_back(active);
        if task.is_some() {
            return task;
        }
    }
    None
}

/// Runs blocks of one launch until there are none, or it is another's turn.
fn run_blocks(
    shared: &Shared,
    run: &Run,
    block: Option<Box<Block>>,
    spare: &mut Option<Box<Block>>,
) -> Outcome {
    let Some((program, launch)) = run.work() else {
        return Outcome::Exhausted;
    };
    let region = launch.region().unwrap_or(&shared.nothing);
    let mut around = Surroundings {
        image: &program.image,
        launch,
        window: region.window(),
        globals: program.globals.window(),
        workspace: &run.workspace,
        control: program.confined.as_ref().map(|_| &run.control),
        params: match program.confined {
            Some(_) => &run.params,
            None => launch.params().backing(),
        },
        heap: &program.heap,
        workers: u32::try_from(shared.workers).unwrap_or(u32::MAX),
        epoch: shared.epoch,
    };
    if program.confined.is_some() {
        // Its window begins elsewhere, so that an address that was not confined leads nowhere.
        around.globals = std::mem::replace(&mut around.window, shared.nothing.window());
    }
    let units = launch.geometry().blocks() / program.size.cluster().max(1);
    let crowded = run.is_cooperative() && launch.geometry().blocks() > shared.workers as u64;
    let mut worker = Worker {
        run,
        since: Instant::now(),
        workers: shared.workers as u64,
        others_wait: || crowded || shared.launches.load(Ordering::Relaxed) > 1,
        progressed: false,
    };
    let mut resumed = block;
    loop {
        if run.has_failed() {
            return Outcome::Exhausted;
        }
        // Making a block new takes time.
        if let Some(reason) = run.stop_reason() {
            run.fail(Error::Stopped(reason));
            return Outcome::Exhausted;
        }
        let mut block = match resumed.take() {
            Some(block) => block,
            None => {
                let Some(index) = launch.take_block().filter(|&index| index < units) else {
                    return Outcome::Exhausted;
                };
                let mut block = spare.take().unwrap_or_default();
                block.begin(
                    &around,
                    Tenant {
                        program: program.id,
                        run: run.id,
                    },
                    index,
                );
                block
            }
        };
        match block.run(&around, &mut worker) {
            End::Finished => *spare = Some(block),
            End::Failed(error) => {
                *spare = Some(block);
                run.fail(error);
                return Outcome::Exhausted;
            }
            End::Yielded => return Outcome::Parked(block),
        }
        if worker.over() {
            return Outcome::More;
        }
    }
}

/// Puts back what is left of a task and ends the launch if nothing is.
fn report(shared: &Shared, run: Arc<Run>, outcome: Outcome) {
    let mut state = shared.state();
    let Some(at) = state
        .queue
        .iter()
        .position(|active| Arc::ptr_eq(&active.run, &run))
    else {
        return;
    };
    let failed = run.has_failed();
    let id = run.id;
    // Whoever sees the launch over must be the only one to hold it.
    drop(run);
    let active = &mut state.queue[at];
    active.busy -= 1;
    match outcome {
        Outcome::Exhausted => active.exhausted = true,
        Outcome::More => {}
        Outcome::Parked(block) => active.parked.push_back(block),
    }
    let mut unwanted = VecDeque::new();
    if failed {
        active.exhausted = true;
        unwanted = std::mem::take(&mut active.parked);
    }
    let (is_over, has_work) = (active.is_over(), active.has_work());
    let wanted = state.settle(at, unwanted.len());
    if !is_over {
        if wanted {
            shared.work.notify_all();
        } else if has_work && state.idle > 0 {
            shared.work.notify_one();
        }
        // Blocks may hold hundreds of megabytes, so they are freed when no one waits for the queue.
        drop(state);
        if !unwanted.is_empty() {
            drop(unwanted);
            give_back(shared, id);
        }
        return;
    }
    let Some(mut active) = state.queue.remove(at) else {
        return;
    };
    shared.launches.store(state.queue.len(), Ordering::Relaxed);
    drop(state);
    let done = Arc::get_mut(&mut active.run).and_then(Run::finish);
    let charged = std::mem::take(&mut active.charged);
    if unwanted.is_empty() {
        let mut state = shared.state();
        state.spare.push(active);
        if state.give_back(charged) || wanted {
            shared.work.notify_all();
        }
    } else {
        shared.state().spare.push(active);
    }
    if let Some((signal, outcome)) = done {
        signal.complete(outcome);
    }
    if !unwanted.is_empty() {
        drop(unwanted);
        if shared.state().give_back(charged) || wanted {
            shared.work.notify_all();
        }
    }
}

/// Blocks of a launch that runs on have been freed.
fn give_back(shared: &Shared, run: u64) {
    let mut state = shared.state();
    let at = state.queue.iter().position(|active| active.run.id == run);
    if let Some(at) = at
        && state.settle(at, 0)
    {
        shared.work.notify_all();
    }
}
