//! The one thread that waits for all launches of a device, by looking at each in turn. What a launch is and how one looks at it
//! is the job's affair ([`Job`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::threads;
use crate::error::Error;

/// Something that runs elsewhere and ends.
pub(super) trait Job: Send + 'static {
    /// How it ended.
    type Outcome;

    /// Looks whether it has ended. Called again and again: must be quick.
    fn look(&mut self, now: Instant) -> Option<Self::Outcome>;

    /// Tells whoever waits.
    fn end(self, outcome: Self::Outcome);
}

/// Looks at jobs until they end. Dropping it lets the jobs that it has end, and takes no more.
#[derive(Debug)]
pub(super) struct Poller<J> {
    inbox: Arc<Inbox<J>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inbox<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<J> {
    jobs: Vec<J>,
    is_closed: bool,
}

/// Jobs that there is room for without allocating.
const ROOM: usize = 1_024;

impl<J: Job> Poller<J> {
    /// Starts the thread, which runs `prepare` first.
    pub(super) fn start(prepare: impl FnOnce() + Send + 'static) -> Result<Self, Error> {
        let state = State {
            jobs: Vec::with_capacity(ROOM),
            is_closed: false,
        };
        let inbox = Arc::new(Inbox {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&inbox);
        let thread = threads::spawn("cuda-poller", move || {
            threads::sharpen_timers();
            prepare();
            poll(&own);
        })?;
        Ok(Self {
            inbox,
            thread: Some(thread),
        })
    }

    /// Takes a job over.
    pub(super) fn push(&self, job: J) {
        self.inbox.state().jobs.push(job);
        self.inbox.changed.notify_one();
    }
}

impl<J> Inbox<J> {
    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> Drop for Poller<J> {
    fn drop(&mut self) {
        self.inbox.state().is_closed = true;
        self.inbox.changed.notify_one();
        threads::finish(self.thread.take());
    }
}

fn poll<J: Job>(inbox: &Inbox<J>) {
    let mut jobs = Vec::with_capacity(ROOM);
    let mut active = Instant::now();
    loop {
        let pause = pause(active.elapsed());
        if !jobs.is_empty() && pause == Pause::Yield {
            std::thread::yield_now();
        }
        let mut state = inbox.state();
        if jobs.is_empty() {
            // Parked until there is something to look at.
            let idle = |state: &mut State<J>| state.jobs.is_empty() && !state.is_closed;
            state = inbox
                .changed
                .wait_while(state, idle)
                .unwrap_or_else(PoisonError::into_inner);
            if state.jobs.is_empty() {
                return;
            }
        } else if let Pause::Sleep(pause) = pause {
            let idle = |state: &mut State<J>| state.jobs.is_empty();
            let waited = inbox.changed.wait_timeout_while(state, pause, idle);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        } else {
            std::hint::spin_loop();
        }
        let now = Instant::now();
        if !state.jobs.is_empty() {
            active = now;
            jobs.append(&mut state.jobs);
        }
        drop(state);
        if look(&mut jobs, now) {
            active = now;
        }
    }
}

/// Looks at each job once and ends those that have; whether there were any.
fn look<J: Job>(jobs: &mut Vec<J>, now: Instant) -> bool {
    let before = jobs.len();
    let mut index = 0;
    while index < jobs.len() {
        match jobs[index].look(now) {
            None => index += 1,
            Some(outcome) => {
                let job = jobs.swap_remove(index);
                // It runs a stranger's waker. Should that panic, the others' launches still have to be waited for.
                if catch_unwind(AssertUnwindSafe(|| job.end(outcome))).is_err() {
                    tracing::error!("whoever waited for a launch panicked when it ended");
                }
            }
        }
    }
    jobs.len() < before
}

/// What is done before the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// Others are let run who wait for a processor.
    Yield,
    Sleep(Duration),
    Spin,
}

/// What is done before the next look, `idle` after a job came or ended. A launch of less than a millisecond is noticed at once, so
/// that of such kernels one after the other little is lost between them; a longer one late by a thirty-second of its time, and by
/// 200 microseconds at most.
fn pause(idle: Duration) -> Pause {
    const BUSY: Duration = Duration::from_micros(50);
    const AWAKE: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_micros(200);

    if idle < BUSY {
        Pause::Spin
    } else if idle < AWAKE {
        Pause::Yield
    } else {
        Pause::Sleep((idle / 32).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// A job that ends when it is told to.
    struct Fake {
        number: u32,
        may_end: Arc<AtomicBool>,
        ended: Sender<u32>,
        panics: bool,
    }

    impl Job for Fake {
        type Outcome = u32;

        fn look(&mut self, _now: Instant) -> Option<u32> {
            self.may_end.load(Ordering::Acquire).then_some(self.number)
        }

        fn end(self, outcome: u32) {
            assert!(!self.panics, "as asked");
            self.ended.send(outcome).unwrap();
        }
    }

    struct Bench {
        poller: Poller<Fake>,
        sender: Sender<u32>,
        ended: Receiver<u32>,
    }

    impl Bench {
        fn new() -> Self {
            let (sender, ended) = channel();
            let poller = Poller::start(|| {}).unwrap();
            Self {
                poller,
                sender,
                ended,
            }
        }

        fn push(&self, number: u32, panics: bool) -> Arc<AtomicBool> {
            let may_end = Arc::new(AtomicBool::new(false));
            self.poller.push(Fake {
                number,
                may_end: Arc::clone(&may_end),
                ended: self.sender.clone(),
                panics,
            });
            may_end
        }
    }

    #[test]
    fn the_poller_is_busy_at_first_and_then_sleeps_longer_and_longer() {
        let micros = Duration::from_micros;
        assert_eq!(pause(micros(0)), Pause::Spin);
        assert_eq!(pause(micros(49)), Pause::Spin);
        assert_eq!(pause(micros(50)), Pause::Yield);
        assert_eq!(pause(micros(999)), Pause::Yield);
        assert_eq!(pause(micros(1_600)), Pause::Sleep(micros(50)));
        assert_eq!(pause(LONG), Pause::Sleep(micros(200)));
    }

    #[test]
    fn jobs_end_in_the_order_in_which_their_work_does() {
        let bench = Bench::new();
        let [first, second, third] = [1, 2, 3].map(|number| bench.push(number, false));
        for (number, may_end) in [(2, second), (3, third), (1, first)] {
            may_end.store(true, Ordering::Release);
            assert_eq!(bench.ended.recv_timeout(LONG), Ok(number));
        }
    }

    #[test]
    fn a_job_that_comes_while_the_poller_sleeps_is_seen() {
        let bench = Bench::new();
        let endless = bench.push(1, false);
        std::thread::sleep(Duration::from_millis(5));
        bench.push(2, false).store(true, Ordering::Release);
        assert_eq!(bench.ended.recv_timeout(LONG), Ok(2));
        endless.store(true, Ordering::Release);
        assert_eq!(bench.ended.recv_timeout(LONG), Ok(1));
    }

    #[test]
    fn a_waker_that_panics_takes_nobody_with_it() {
        let bench = Bench::new();
        bench.push(1, true).store(true, Ordering::Release);
        bench.push(2, false).store(true, Ordering::Release);
        assert_eq!(bench.ended.recv_timeout(LONG), Ok(2));
    }

    #[test]
    fn jobs_that_outlive_the_poller_end_all_the_same() {
        let bench = Bench::new();
        let may_end = bench.push(7, false);
        let Bench {
            poller,
            sender,
            ended,
        } = bench;
        drop(poller);
        drop(sender);
        may_end.store(true, Ordering::Release);
        assert_eq!(ended.recv_timeout(LONG), Ok(7));
        assert!(
            ended.recv_timeout(LONG).is_err(),
            "the thread ended and dropped its sender"
        );
    }
}
