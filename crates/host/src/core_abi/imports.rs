//! How imports wait: by suspending the guest, or by blocking its thread. What they do is the same and is not here.

use std::future::Future;

use wasmtime::{Caller, IntoFunc, Linker, WasmTy, WasmTyList};

use crate::context::HasWasiCuda;
use crate::wait::Wait;

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
                    let wait = Wait::new(&caller.data().wasi_cuda().shared().limits)?;
                    wait.on(Box::into_pin(func(caller, ($($arg,)*))))
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
