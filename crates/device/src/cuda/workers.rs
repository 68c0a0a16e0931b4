//! Threads for what takes long, so that no caller waits for it where it must not: loading programs, moving memory.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::threads;
use crate::error::Error;

/// Something to be done.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// Work that may wait. Each is some guest's, which its quotas bound too.
const MOST_WAITING: usize = 1_024;

/// A few threads and what waits for them. Dropping it does what waits, and takes no more.
pub(super) struct Workers {
    /// What the threads do, for errors.
    what: &'static str,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Pieces of work that wait, for whoever looks without the lock.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    work: VecDeque<Work>,
    is_closed: bool,
    /// Whether a thread looks at `waiting`.
    is_watched: bool,
}

impl Workers {
    /// Starts so many threads of this name, for what `what` says. After its work one of them looks out for more for as long as
    /// `alert` before it sleeps: waking a thread takes longer than many a copy.
    pub(super) fn start(
        name: &str,
        count: usize,
        what: &'static str,
        alert: Duration,
    ) -> Result<Self, Error> {
        let mut workers = Self {
            what,
            queue: Arc::default(),
            threads: Vec::with_capacity(count),
        };
        for _ in 0..count {
            let queue = Arc::clone(&workers.queue);
            let thread = threads::spawn(name, move || queue.serve(alert))?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Does `work` on one of the threads, or drops it where too much waits already. It is never done on
    /// the caller's thread, whose stack may be a guest's and too small for a compiler.
    pub(super) fn defer(&self, work: Work) -> Result<(), Error> {
        let mut state = self.queue.state();
        if state.work.len() >= MOST_WAITING {
            let (what, limit) = (self.what, MOST_WAITING);
            return Err(Error::Busy { what, limit });
        }
        state.work.push_back(work);
        self.queue
            .waiting
            .store(state.work.len(), Ordering::Release);
        // Whoever looks out sees the first; others are woken for what comes on top.
        let is_seen = state.is_watched && state.work.len() == 1;
        drop(state);
        if !is_seen {
            self.queue.changed.notify_one();
        }
        Ok(())
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for work for a while, if there is none and nobody looks.
    fn look_out(&self, alert: Duration) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if alert.is_zero() || state.is_watched || state.is_closed || !state.work.is_empty() {
            return state;
        }
        state.is_watched = true;
        drop(state);
        let begin = Instant::now();
        while self.waiting.load(Ordering::Acquire) == 0 && begin.elapsed() < alert {
            std::hint::spin_loop();
        }
        let mut state = self.state();
        state.is_watched = false;
        state
    }

    fn serve(&self, alert: Duration) {
        loop {
            let idle = |state: &mut State| state.work.is_empty() && !state.is_closed;
            let waited = self.changed.wait_while(self.look_out(alert), idle);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            let Some(work) = state.work.pop_front() else {
                return;
            };
            self.waiting.store(state.work.len(), Ordering::Release);
            drop(state);
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                tracing::error!("work of a thread of the CUDA device panicked");
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.state().is_closed = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            threads::finish(Some(thread));
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const THREADS: usize = 2;

    fn workers() -> Workers {
        Workers::start("test", THREADS, "tests", Duration::ZERO).unwrap()
    }

    #[test]
    fn work_is_done_on_another_thread_even_after_a_panic() {
        let workers = workers();
        for _ in 0..2 * THREADS {
            workers.defer(Box::new(|| panic!("as asked"))).unwrap();
        }
        let (sender, receiver) = channel();
        let send = move || sender.send(thread::current().id()).unwrap();
        workers.defer(Box::new(send)).unwrap();
        assert_ne!(receiver.recv_timeout(LONG).unwrap(), thread::current().id());
    }

    #[test]
    fn work_is_done_whether_a_thread_looks_out_sleeps_or_works() {
        let alert = Duration::from_micros(200);
        let workers = Workers::start("test", THREADS, "tests", alert).unwrap();
        let (sender, receiver) = channel();
        for round in 0..2_000_u32 {
            // As much as there are threads, one more, and one alone; before, while and after they look out.
            let pieces = [1, THREADS, THREADS + 1][round as usize % 3];
            for _ in 0..pieces {
                let sender = sender.clone();
                let send = move || sender.send(round).unwrap();
                workers.defer(Box::new(send)).unwrap();
            }
            for _ in 0..pieces {
                assert_eq!(receiver.recv_timeout(LONG), Ok(round));
            }
            thread::sleep(Duration::from_micros(u64::from(round % 5) * 60));
        }
    }

    #[test]
    fn work_is_refused_where_too_much_waits() {
        let workers = workers();
        let (hold, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begun, is_begun) = channel();
        for _ in 0..THREADS {
            let (held, begun) = (Arc::clone(&held), begun.clone());
            let wait = move || {
                begun.send(()).unwrap();
                held.lock().unwrap().recv().unwrap_err();
            };
            workers.defer(Box::new(wait)).unwrap();
        }
        for _ in 0..THREADS {
            is_begun.recv_timeout(LONG).unwrap();
        }
        let (sender, receiver) = channel();
        let send = |number| {
            let sender = sender.clone();
            workers.defer(Box::new(move || sender.send(number).unwrap()))
        };
        for number in 0..MOST_WAITING {
            send(number).unwrap();
        }
        let refused = send(MOST_WAITING).unwrap_err();
        let (what, limit) = ("tests", MOST_WAITING);
        assert_eq!(refused, Error::Busy { what, limit });
        drop((hold, sender));
        let mut done: Vec<_> = receiver.iter().collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..MOST_WAITING));
    }
}
