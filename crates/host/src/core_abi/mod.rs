//! The imports of core modules: takes a call's integers apart, calls an operation, turns its result into a number. Decides
//! nothing.

mod current;
mod imports;
mod v0_2;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use abi::argv::Dialect;
use device::Mode;
use wasmtime::{Caller, Extern, Linker};

use crate::buffers::{self, CopyCall, Copying, Direction};
use crate::context::{HasWasiCuda, LaunchPermit, Shared};
use crate::error::Error;
use crate::guest_mem::{GuestMemory, GuestSlice};
use crate::lower::LaunchCall;
use crate::ops::{self, LoadCall};

use imports::{Imports, Waiting};

/// Adds the imports of modules `wasi_cuda` and `wasi:cuda/host@0.2.0` to a linker.
///
/// Launches, loads, prefetches and what is done with buffers suspend the guest, so guests that import them must be instantiated and called with the `async`
/// methods of wasmtime. Any engine is accepted; on one whose memory is not the device's, launches with pointers are refused.
///
/// # Errors
/// If the linker already has one of the names.
pub fn add_to_linker<T: HasWasiCuda + Send + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    add(linker, Waiting::Suspend)
}

/// The same for guests that are called without `async`: what waits blocks the calling thread, for as long as a kernel may run.
///
/// Nothing can give up such a call, so an instance whose [`Limits`](crate::Limits) have no deadline traps where it would wait. So
/// does one that is called on the only thread of an async runtime, which must not be blocked; a worker of tokio's runtime of many
/// threads hands its tasks on, and a thread of `spawn_blocking` is made for it. Time limits on guest code (epochs, fuel) do not end a
/// wait, the kernel's deadline does.
///
/// # Errors
/// If the linker already has one of the names.
pub fn add_to_linker_sync<T: HasWasiCuda + Send + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    add(linker, Waiting::Block)
}

fn add<T: HasWasiCuda + Send + 'static>(
    linker: &mut Linker<T>,
    waiting: Waiting,
) -> wasmtime::Result<()> {
    let mut imports = Imports { linker, waiting };
    current::add_to_linker(&mut imports)?;
    v0_2::add_to_linker(&mut imports)
}

/// A result that can travel as a number: itself or a negative code.
trait Status {
    fn from_code(code: i32) -> Self;
}

impl Status for i32 {
    fn from_code(code: i32) -> Self {
        code
    }
}

impl Status for i64 {
    fn from_code(code: i32) -> Self {
        code.into()
    }
}

/// The number for a result; a failure is recorded on the way.
fn status<R: Status>(shared: &Shared, dialect: Dialect, result: Result<R, Error>) -> R {
    result.unwrap_or_else(|error| {
        let code = shared.fail(&error);
        let code = match dialect {
            Dialect::Current => code,
            Dialect::V0_2 => code.to_v0_2(),
        };
        R::from_code(code.code())
    })
}

/// Runs the part of an import that does not wait. A panic is the host's fault, not the guest's: it ends as a code.
pub(crate) fn contained<R>(operation: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|_| {
        tracing::error!("an import panicked");
        Err(Error::Internal { what: "an import" })
    })
}

/// An import that needs no guest memory.
fn call<T: HasWasiCuda, R: Status>(
    caller: &Caller<'_, T>,
    dialect: Dialect,
    operation: impl FnOnce(&Shared) -> Result<R, Error>,
) -> R {
    let shared = caller.data().wasi_cuda().shared();
    let result = contained(|| {
        shared.enter()?;
        operation(shared)
    });
    status(shared, dialect, result)
}

/// An import that reads or writes guest memory.
fn call_with_memory<T: HasWasiCuda + 'static, R: Status>(
    caller: &mut Caller<'_, T>,
    dialect: Dialect,
    needs: Needs,
    operation: impl FnOnce(&Arc<Shared>, &mut GuestMemory<'_>) -> Result<R, Error>,
) -> R {
    let result = enter_with_memory(caller, needs, operation);
    status(caller.data().wasi_cuda().shared(), dialect, result)
}

/// What must be there before guest memory is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// A device.
    Device,
    /// Nothing.
    Nothing,
}

fn enter_with_memory<'a, T: HasWasiCuda + 'static, R>(
    caller: &'a mut Caller<'_, T>,
    needs: Needs,
    operation: impl FnOnce(&'a Arc<Shared>, &mut GuestMemory<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    contained(|| {
        let shared = caller.data().wasi_cuda().shared();
        shared.enter()?;
        if needs == Needs::Device {
            shared.device()?;
        }
        let Some(Extern::Memory(memory)) = caller.get_export(abi::MEMORY_EXPORT) else {
            return Err(Error::NoMemory);
        };
        if memory.ty(&*caller).is_64() {
            return Err(Error::NoMemory);
        }
        let (bytes, data) = memory.data_and_store_mut(caller);
        operation(data.wasi_cuda().shared(), &mut GuestMemory::new(bytes))
    })
}

/// A launch, in either module. It spends tokio's budget, so that a guest that calls in a loop lets others run.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps room for its arguments twice, which the bench `launch` shows"
)]
fn launch<T: HasWasiCuda + Send + 'static>(
    mut caller: Caller<'_, T>,
    args: LaunchArgs,
    mode: Mode,
    dialect: Dialect,
) -> impl Future<Output = i32> + Send {
    async move {
        tokio::task::consume_budget().await;
        let result = match start(&mut caller, args, mode, dialect) {
            Ok(launch) => launch.await.map_err(Error::from),
            Err(error) => Err(error),
        };
        let shared = caller.data().wasi_cuda().shared();
        status(shared, dialect, result.map(|()| 0))
    }
}

fn start<'a, T: HasWasiCuda + 'static>(
    caller: &'a mut Caller<'_, T>,
    args: LaunchArgs,
    mode: Mode,
    dialect: Dialect,
) -> Result<LaunchPermit<'a>, Error> {
    enter_with_memory(caller, Needs::Nothing, |shared, memory| {
        ops::launch(shared, memory, &launch_call(args, mode, dialect))
    })
}

/// A load, in either module.
async fn load<T: HasWasiCuda + 'static>(
    mut caller: Caller<'_, T>,
    dialect: Dialect,
    call: LoadCall,
) -> i64 {
    tokio::task::consume_budget().await;
    let started = enter_with_memory(&mut caller, Needs::Device, |shared, memory| {
        let region = memory.addressable(shared.device()?)?;
        ops::load(shared, memory, region, call)
    });
    let result = match started {
        Ok(loading) => loading.finish().await,
        Err(error) => Err(error),
    };
    status(caller.data().wasi_cuda().shared(), dialect, result)
}

/// A hint where memory will be used, of the current module.
async fn prefetch<T: HasWasiCuda + 'static>(
    mut caller: Caller<'_, T>,
    range: GuestSlice,
    destination: i32,
) -> i32 {
    tokio::task::consume_budget().await;
    let started = enter_with_memory(&mut caller, Needs::Device, |shared, memory| {
        ops::prefetch(shared, memory, range, destination)
    });
    let result = match started {
        Ok(moving) => moving.finish().await.map(|()| 0),
        Err(error) => Err(error),
    };
    let shared = caller.data().wasi_cuda().shared();
    status(shared, Dialect::Current, result)
}

/// A new device buffer, in either module.
async fn alloc<T: HasWasiCuda + 'static>(
    mut caller: Caller<'_, T>,
    dialect: Dialect,
    bytes: u64,
) -> i64 {
    tokio::task::consume_budget().await;
    let started = enter_with_memory(&mut caller, Needs::Device, |shared, memory| {
        buffers::alloc(shared, memory, bytes)
    });
    let shared = caller.data().wasi_cuda().shared();
    let result = match started {
        Ok(allocating) => allocating.finish(shared).await,
        Err(error) => Err(error),
    };
    status(shared, dialect, result)
}

/// A copy between guest memory and a buffer, in either module.
async fn copy<T: HasWasiCuda + 'static>(
    mut caller: Caller<'_, T>,
    dialect: Dialect,
    call: CopyCall,
    direction: Direction,
) -> i32 {
    let result = copy_all(&mut caller, call, direction).await;
    let shared = caller.data().wasi_cuda().shared();
    status(shared, dialect, result.map(|()| 0))
}

async fn copy_all<T: HasWasiCuda + 'static>(
    caller: &mut Caller<'_, T>,
    call: CopyCall,
    direction: Direction,
) -> Result<(), Error> {
    let mut copying = enter_with_memory(caller, Needs::Device, |shared, memory| {
        Copying::new(shared, memory, call, direction)
    })?;
    loop {
        tokio::task::consume_budget().await;
        let step = enter_with_memory(caller, Needs::Device, |shared, memory| {
            copying.step(shared, memory)
        })?;
        let Some(step) = step else { return Ok(()) };
        let bytes = step.finish().await?;
        enter_with_memory(caller, Needs::Nothing, |_, memory| {
            copying.take(memory, bytes)
        })?;
    }
}

/// `sync`, in either module: launches end before their import returns, so nothing of this instance is left to wait for.
async fn sync<T: HasWasiCuda + 'static>(caller: Caller<'_, T>, dialect: Dialect) -> i32 {
    tokio::task::consume_budget().await;
    call(&caller, dialect, |shared| shared.device().map(|_| 0))
}

/// The ten numbers of a launch.
type LaunchArgs = (i64, i32, i32, i32, i32, i32, i32, i32, i32, i32);

// A caller is compiled with the embedder's store, elsewhere, and takes this apart at once.
#[inline]
fn launch_call(args: LaunchArgs, mode: Mode, dialect: Dialect) -> LaunchCall {
    let (kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, argv, argv_len) =
        args;
    LaunchCall {
        kernel,
        grid: [grid_x, grid_y, grid_z].map(i32::cast_unsigned),
        block: [block_x, block_y, block_z].map(i32::cast_unsigned),
        shared_bytes: shared_bytes.cast_unsigned(),
        argv: GuestSlice::new("argv", argv, argv_len),
        mode,
        dialect,
    }
}

/// The four numbers of a load.
type LoadArgs = (i32, i32, i32, i32);

fn load_call((ptx, ptx_len, entry, entry_len): LoadArgs) -> LoadCall {
    LoadCall {
        ptx: GuestSlice::new("PTX", ptx, ptx_len),
        entry: GuestSlice::new("an entry name", entry, entry_len),
    }
}

/// A size as it is answered.
fn size(written: u32) -> i32 {
    written.cast_signed()
}

/// The text of the last failure, which both modules have.
fn add_last_error<T: HasWasiCuda + Send + 'static>(
    linker: &mut Imports<'_, T>,
    module: &str,
    dialect: Dialect,
) -> wasmtime::Result<()> {
    linker.func_wrap(
        module,
        abi::FN_LAST_ERROR_LEN,
        move |caller: Caller<'_, T>| {
            call(&caller, dialect, |shared| {
                Ok(size(ops::last_error_len(shared)))
            })
        },
    )?;
    linker.func_wrap(
        module,
        abi::FN_LAST_ERROR_COPY,
        move |mut caller: Caller<'_, T>, dst: i32, len: i32| {
            let into = GuestSlice::new("the last error", dst, len);
            call_with_memory(&mut caller, dialect, Needs::Nothing, |shared, memory| {
                ops::last_error_copy(shared, memory, into).map(size)
            })
        },
    )?;
    Ok(())
}
