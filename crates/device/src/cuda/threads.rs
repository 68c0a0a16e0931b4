//! Threads of a device: they begin with a name and end without making anyone wait for a kernel.
#![expect(unsafe_code, reason = "asks the operating system for finer timers")]

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Error;

/// How long the end of a thread is waited for. It is out of work by then, or the driver keeps it.
const PATIENCE: Duration = Duration::from_millis(100);

pub(super) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let spawned = thread::Builder::new().name(name.into()).spawn(body);
    spawned.map_err(|error| Error::Backend {
        what: "starting a thread of the CUDA device",
        reason: error.to_string(),
    })
}

/// Joins a thread that was told to end. One that is kept for long, by a kernel that runs on, is left to end by itself, and so is
/// the thread that calls this.
pub(super) fn finish(thread: Option<JoinHandle<()>>) {
    let Some(thread) = thread else { return };
    if thread.thread().id() == thread::current().id() {
        return;
    }
    let begin = Instant::now();
    while !thread.is_finished() && begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_micros(50));
    }
    if !thread.is_finished() {
        tracing::debug!("a thread of the CUDA device is still held by the driver");
    } else if thread.join().is_err() {
        tracing::error!("a thread of the CUDA device panicked");
    }
}

/// Lets this thread's sleeps end within a microsecond of when they should, instead of fifty.
pub(super) fn sharpen_timers() {
    const SLACK_NANOSECONDS: libc::c_ulong = 1_000;
    // SAFETY: `PR_SET_TIMERSLACK` takes one number and no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NANOSECONDS) };
    if result != 0 {
        tracing::debug!("sleeps of this thread stay coarse");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_goes_on_is_not_waited_for_to_its_end() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let begin = Instant::now();
        let held = spawn("held", move || {
            receiver.recv().unwrap_err();
        })
        .unwrap();
        finish(Some(held));
        assert!(begin.elapsed() >= PATIENCE);
        drop(sender);
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let (sender, receiver) = std::sync::mpsc::channel::<JoinHandle<()>>();
        let (done, is_done) = std::sync::mpsc::channel();
        let own = spawn("own", move || {
            finish(receiver.recv().ok());
            done.send(()).unwrap();
        })
        .unwrap();
        sender.send(own).unwrap();
        is_done.recv_timeout(PATIENCE).unwrap();
    }
}
