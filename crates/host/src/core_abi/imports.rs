//! How imports wait: by suspending the guest, or by blocking its thread. What they do is the same and is not here.

use std::future::Future;
use std::panic::catch_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::runtime::Handle;
use wasmtime::{Caller, IntoFunc, Linker, WasmTy, WasmTyList};

use crate::context::HasWasiCuda;

/// What an import does while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Block,
    Suspend,
}

/// A linker to which imports are added that all wait in one way.
pub(super) struct Imports<'a, T: 'static> {
    pub(super) linker: &'a mut Linker<T>,
    pub(super) waiting: Waiting,
}

impl<T: HasWasiCuda + Send + 'static> Imports<'_, T> {
    /// An import that does not wait.
    pub(super) fn func_wrap<Params, Args>(
        &mut self,
        module: &str,
        name: &str,
        func: impl IntoFunc<T, Params, Args>,
    ) -> wasmtime::Result<()> {
        self.linker.func_wrap(module, name, func).map(drop)
    }

    /// An import that waits.
    pub(super) fn func_wrap_async<Params, R, F>(
        &mut self,
        module: &str,
        name: &str,
        func: F,
    ) -> wasmtime::Result<()>
    where
        Params: Blocking + WasmTyList,
        R: WasmTy,
        F: for<'a> Fn(Caller<'a, T>, Params) -> Box<dyn Future<Output = R> + Send + 'a>
            + Send
            + Sync
            + 'static,
    {
        match self.waiting {
            Waiting::Suspend => self.linker.func_wrap_async(module, name, func).map(drop),
            Waiting::Block => Params::link(self.linker, module, name, func),
        }
    }
}

/// Parameters of an import that blocks.
pub(super) trait Blocking: Sized {
    fn link<T, R, F>(
        linker: &mut Linker<T>,
        module: &str,
        name: &str,
        func: F,
    ) -> wasmtime::Result<()>
    where
        T: HasWasiCuda + Send + 'static,
        R: WasmTy,
        F: for<'a> Fn(Caller<'a, T>, Self) -> Box<dyn Future<Output = R> + Send + 'a>
            + Send
            + Sync
            + 'static;
}

macro_rules! blocking {
    ($($arg:ident: $ty:ident),*) => {
        impl<$($ty: WasmTy),*> Blocking for ($($ty,)*) {
            fn link<T, R, F>(
                linker: &mut Linker<T>,
                module: &str,
                name: &str,
                func: F,
            ) -> wasmtime::Result<()>
            where
                T: HasWasiCuda + Send + 'static,
                R: WasmTy,
                F: for<'a> Fn(Caller<'a, T>, Self) -> Box<dyn Future<Output = R> + Send + 'a>
                    + Send
                    + Sync
                    + 'static,
            {
                let func = move |caller: Caller<'_, T>, $($arg: $ty),*| {
                    let limits = &caller.data().wasi_cuda().shared().limits;
                    if limits.deadline.is_none() {
                        return Err(wasmtime::Error::msg(NO_DEADLINE));
                    }
                    block_on(Box::into_pin(func(caller, ($($arg,)*))))
                };
                linker.func_wrap(module, name, func).map(drop)
            }
        }
    };
}

blocking!();
blocking!(a: A);
blocking!(a: A, b: B);
blocking!(a: A, b: B, c: C);
blocking!(a: A, b: B, c: C, d: D);
blocking!(a: A, b: B, c: C, d: D, e: E, f: G, g: H, h: I, i: J, j: K);

const NO_DEADLINE: &str =
    "an import that blocks cannot be given up, so the limits of the instance must have a deadline";
const ASYNC_THREAD: &str =
    "an import that blocks was called on a thread that an async runtime needs; see `add_to_linker`";

/// Waits on this thread. The wait ends by the kernel's end or its deadline, which devices see to on threads of their own.
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
