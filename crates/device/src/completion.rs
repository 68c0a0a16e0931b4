//! How a launch reports its end: a [`Signal`] that the device completes and a [`Completion`] that the
//! caller awaits. Nothing here allocates, so a signal serves one launch after another.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::Error;
use crate::launch::Launch;

/// How long dropping a [`Completion`] waits for the device to let go of the launch.
pub const DRAIN: Duration = Duration::from_millis(10);

/// The meeting point of a device and the one who waits for it.
#[derive(Debug, Default)]
pub struct Signal {
    stop: AtomicBool,
    stuck: AtomicBool,
    phase: AtomicU8,
    state: Mutex<State>,
    ended: Condvar,
}

/// How far a launch is, as far as can be told without the lock. Most launches end well before anyone waits for them: that
/// takes one step from running to ended well, and no lock. All else is in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Nobody waits, nothing was reported.
    Running = 0,
    /// Somebody waits, or the launch was given up: its end is told under the lock.
    Watched = 1,
    /// It ended well, and there is nothing in the state.
    EndedWell = 2,
    /// It ended; the outcome is in the state until it is taken.
    Ended = 3,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<(), Error>>,
    given_up: bool,
    waker: Option<Waker>,
    /// Threads that wait on `ended`: notifying costs a system call whether there are any or not.
    sleepers: u32,
}

/// Whom to tell of an end.
struct Listeners {
    are_threads: bool,
    waker: Option<Waker>,
}

impl State {
    fn listeners(&mut self) -> Listeners {
        Listeners {
            are_threads: self.sleepers > 0,
            waker: self.waker.take(),
        }
    }
}

impl Signal {
    /// Makes the signal ready for another launch. The one before was completed, though the thread that did so may not have
    /// let go of the signal yet.
    pub fn reset(&self) {
        if !self.has_ended_well() {
            let mut state = self.state();
            state.outcome = None;
            state.given_up = false;
            state.waker = None;
        }
        self.stop.store(false, Ordering::Relaxed);
        self.stuck.store(false, Ordering::Relaxed);
        self.phase.store(Phase::Running as u8, Ordering::Release);
    }

    /// Device side: whether the kernel should end now.
    #[must_use]
    pub fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Caller side: asks the kernel to end.
    pub fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Device side: reports the end. The device must have let go of the launch, its memory and its program before. After
    /// [`give_up`](Self::give_up) the outcome stays the one that was reported then.
    pub fn complete(&self, outcome: Result<(), Error>) {
        if outcome.is_ok() && self.advance(Phase::EndedWell) {
            return;
        }
        let listeners = {
            let mut state = self.state();
            if !state.given_up {
                state.outcome = Some(outcome);
            }
            self.phase.store(Phase::Ended as u8, Ordering::Release);
            state.listeners()
        };
        self.announce(listeners);
    }

    /// Takes a launch that runs unwatched to another phase; whether it did.
    fn advance(&self, to: Phase) -> bool {
        let (from, to) = (Phase::Running as u8, to as u8);
        self.phase
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    #[inline]
    fn has_ended_well(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::EndedWell as u8
    }

    /// The outcome if there is one; else the end will be told to those that `state` knows of when its lock is released.
    fn watch(&self, state: &mut State) -> Option<Result<(), Error>> {
        let outcome = state.outcome.take();
        if outcome.is_none() && !self.advance(Phase::Watched) && self.has_ended_well() {
            return Some(Ok(()));
        }
        outcome
    }

    /// Device side: reports that the launch is not waited for any longer although it runs on. The signal is stuck until
    /// [`complete`](Self::complete): the device still holds the launch, its memory and its program.
    pub fn give_up(&self, outcome: Error) {
        let listeners = {
            let mut state = self.state();
            if state.outcome.is_none() && !state.given_up {
                state.outcome = Some(Err(outcome));
            }
            state.given_up = true;
            self.advance(Phase::Watched);
            self.stuck.store(true, Ordering::Release);
            state.listeners()
        };
        self.announce(listeners);
    }

    fn announce(&self, listeners: Listeners) {
        if listeners.are_threads {
            self.ended.notify_all();
        }
        if let Some(waker) = listeners.waker {
            waker.wake();
        }
    }

    /// Whether the end was reported and the device has let go of the launch.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= Phase::EndedWell as u8
    }

    /// Whether a launch outlived the wait for it and still runs.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire) && !self.is_done()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.has_ended_well() {
            return Poll::Ready(Ok(()));
        }
        self.poll_state(context)
    }

    fn poll_state(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = self.state();
        match self.watch(&mut state) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    fn drain(&self) {
        self.request_stop();
        let mut state = self.state();
        if self.watch(&mut state).is_some() {
            return;
        }
        state.sleepers += 1;
        let (mut state, timeout) = self
            .ended
            .wait_timeout_while(state, DRAIN, |state| state.outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        state.sleepers -= 1;
        if timeout.timed_out() {
            self.stuck.store(true, Ordering::Release);
        }
    }
}

/// The end of a launch, as a future. Dropping it before the end stops the kernel and waits, for at most
/// [`DRAIN`], until the device has let go; a launch that outlives that leaves its signal *stuck*.
#[derive(Debug)]
#[must_use = "dropping a completion stops the kernel"]
pub struct Completion {
    /// None once it was given back.
    launch: Option<Arc<Launch>>,
    taken: bool,
}

impl Completion {
    pub(crate) fn new(launch: Arc<Launch>) -> Self {
        Self {
            launch: Some(launch),
            taken: false,
        }
    }

    /// Gives the launch back, to be used again. Before the end this stops the kernel and waits as dropping does.
    #[must_use]
    pub fn into_launch(mut self) -> Option<Arc<Launch>> {
        self.stop();
        self.launch.take()
    }

    fn stop(&self) {
        if let Some(launch) = &self.launch
            && !self.taken
            && !launch.signal().is_done()
        {
            launch.signal().drain();
        }
    }

    /// Blocks this thread until the end. For callers outside an async runtime.
    ///
    /// # Errors
    /// What the device reported.
    pub fn wait(mut self) -> Result<(), Error> {
        self.taken = true;
        let Some(launch) = &self.launch else {
            return Ok(());
        };
        let signal = launch.signal();
        let mut state = signal.state();
        if let Some(outcome) = signal.watch(&mut state) {
            return outcome;
        }
        state.sleepers += 1;
        let mut state = signal
            .ended
            .wait_while(state, |state| state.outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        state.sleepers -= 1;
        state.outcome.take().unwrap_or(Ok(()))
    }
}

impl Future for Completion {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(launch) = &self.launch else {
            return Poll::Pending;
        };
        let outcome = launch.signal().poll(context);
        self.taken |= outcome.is_ready();
        outcome
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StopReason;

    fn completion(signal: &Arc<Signal>) -> Completion {
        Completion::new(Arc::new(Launch::with_signal(Arc::clone(signal))))
    }

    #[test]
    fn dropping_stops_the_kernel_and_waits_for_the_device() {
        let signal = Arc::new(Signal::default());
        let device = Arc::clone(&signal);
        let worker = std::thread::spawn(move || {
            while !device.stop_requested() {
                std::hint::spin_loop();
            }
            device.complete(Ok(()));
        });
        drop(completion(&signal));
        assert!(signal.is_done());
        assert!(!signal.is_stuck());
        worker.join().unwrap();
    }

    #[test]
    fn a_launch_that_does_not_stop_leaves_the_signal_stuck_until_it_ends() {
        let signal = Arc::new(Signal::default());
        drop(completion(&signal));
        assert!(signal.is_stuck());
        signal.complete(Ok(()));
        assert!(!signal.is_stuck());
    }

    #[test]
    fn a_launch_given_up_tells_its_caller_at_once_and_is_stuck_until_the_device_lets_go() {
        let signal = Arc::new(Signal::default());
        let given_up = Error::Stopped(StopReason::Deadline);
        signal.give_up(given_up.clone());
        assert_eq!(completion(&signal).wait(), Err(given_up));
        assert!(signal.is_stuck());
        assert!(!signal.is_done());
        signal.complete(Ok(()));
        assert!(!signal.is_stuck());
        assert!(signal.is_done());
    }

    #[test]
    fn the_end_of_a_launch_that_was_given_up_does_not_change_its_outcome() {
        let signal = Arc::new(Signal::default());
        let given_up = Error::Stopped(StopReason::Deadline);
        signal.give_up(given_up.clone());
        signal.complete(Ok(()));
        assert_eq!(completion(&signal).wait(), Err(given_up));
    }

    #[test]
    fn a_signal_that_is_used_again_is_not_stuck() {
        let signal = Signal::default();
        signal.give_up(Error::Stopped(StopReason::Deadline));
        signal.complete(Ok(()));
        signal.reset();
        assert!(!signal.is_stuck());
        assert!(!signal.is_done());
        signal.complete(Ok(()));
        assert_eq!(completion(&Arc::new(signal)).wait(), Ok(()));
    }

    #[test]
    fn an_end_at_any_moment_of_a_wait_is_told() {
        // The end falls before, into and after the short time in which the waiting thread says that it waits.
        for round in 0..20_000_u32 {
            let signal = Arc::new(Signal::default());
            let device = Arc::clone(&signal);
            let worker = std::thread::spawn(move || {
                for _ in 0..round % 64 {
                    std::hint::spin_loop();
                }
                device.complete(Ok(()));
            });
            assert_eq!(completion(&signal).wait(), Ok(()));
            worker.join().unwrap();
        }
    }

    #[test]
    fn waiting_gives_what_the_device_reported() {
        let signal = Arc::new(Signal::default());
        let error = Error::DeviceLost {
            reason: "unplugged".into(),
        };
        signal.complete(Err(error.clone()));
        assert_eq!(completion(&signal).wait(), Err(error));
    }
}
