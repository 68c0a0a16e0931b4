//! Waiting on the calling thread, for imports that are asked to. What they wait for is not here.

use std::future::Future;
use std::panic::catch_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::runtime::Handle;

use crate::policy::Limits;

const NO_DEADLINE: &str =
    "an import that blocks cannot be given up, so the limits of the instance must have a deadline";
const ASYNC_THREAD: &str =
    "an import that blocks was called on a thread that an async runtime needs; see `add_to_linker`";

/// That an instance's imports may wait on the calling thread: every wait of theirs ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait(());

impl Wait {
    pub(crate) fn new(limits: &Limits) -> wasmtime::Result<Self> {
        match limits.deadline {
            Some(_) => Ok(Self(())),
            None => Err(wasmtime::Error::msg(NO_DEADLINE)),
        }
    }

    /// Waits on this thread. The wait ends by the kernel's end or its deadline, which devices see to on threads of their own.
    pub(crate) fn on<R>(self, future: impl Future<Output = R>) -> wasmtime::Result<R> {
        block_on(future)
    }
}

fn block_on<R>(future: impl Future<Output = R>) -> wasmtime::Result<R> {
    if Handle::try_current().is_err() {
        return Ok(park(future));
    }
    // tokio knows whether its thread may block: a worker hands its other tasks on first, and where there is nobody to hand
    // them to, it panics.
    if catch_unwind(|| tokio::task::block_in_place(|| ())).is_err() {
        return Err(wasmtime::Error::msg(ASYNC_THREAD));
    }
    Ok(tokio::task::block_in_place(|| park(future)))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn park<R>(future: impl Future<Output = R>) -> R {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::oneshot;

    /// Something that another thread ends later.
    async fn later() -> u32 {
        let (sender, receiver) = oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            sender.send(7).unwrap();
        });
        receiver.await.unwrap()
    }

    #[test]
    fn a_thread_of_its_own_waits() {
        assert_eq!(block_on(later()).unwrap(), 7);
    }

    #[test]
    fn threads_for_blocking_work_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let blocking = runtime.spawn_blocking(|| block_on(later()).unwrap());
        assert_eq!(runtime.block_on(blocking).unwrap(), 7);
    }

    #[test]
    fn a_worker_waits_while_others_take_its_tasks() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (sender, receiver) = oneshot::channel();
        let waits = runtime.spawn(async { block_on(async { receiver.await.unwrap() }).unwrap() });
        let ends = runtime.spawn(async move { sender.send(7).unwrap() });
        let (waited, ended) = runtime.block_on(async { (waits.await, ends.await) });
        assert_eq!(waited.unwrap(), 7);
        ended.unwrap();
    }

    #[test]
    fn the_only_thread_of_a_runtime_is_not_blocked() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let refusal = runtime.block_on(async { block_on(later()).unwrap_err() });
        assert_eq!(refusal.to_string(), ASYNC_THREAD);
    }
}
