//! Module `wasi_cuda`.

use abi::argv::Dialect::Current;
use abi::{self, MODULE};
use device::Mode;
use wasmtime::Caller;

use super::{
    Imports, LaunchArgs, LoadArgs, Needs, add_last_error, alloc, call, call_with_memory, copy,
    launch, load, load_call, prefetch, size, sync,
};
use crate::buffers::{self, CopyCall, Direction};
use crate::context::HasWasiCuda;
use crate::guest_mem::GuestSlice;
use crate::ops;

pub(super) fn add_to_linker<T: HasWasiCuda + Send + 'static>(
    linker: &mut Imports<'_, T>,
) -> wasmtime::Result<()> {
    waiting(linker)?;
    kernels(linker)?;
    memory(linker)?;
    queries(linker)
}

/// Imports that suspend the guest.
fn waiting<T: HasWasiCuda + Send + 'static>(linker: &mut Imports<'_, T>) -> wasmtime::Result<()> {
    for (name, mode) in [
        (abi::FN_LAUNCH, Mode::Plain),
        (abi::FN_LAUNCH_COOPERATIVE, Mode::Cooperative),
    ] {
        linker.func_wrap_async(
            MODULE,
            name,
            move |caller: Caller<'_, T>, args: LaunchArgs| {
                Box::new(launch(caller, args, mode, Current))
            },
        )?;
    }
    linker.func_wrap_async(
        MODULE,
        abi::FN_LOAD_PTX,
        |caller: Caller<'_, T>, args: LoadArgs| Box::new(load(caller, Current, load_call(args))),
    )?;
    linker.func_wrap_async(
        MODULE,
        abi::FN_PREFETCH,
        |caller: Caller<'_, T>, (ptr, len, destination): (i32, i32, i32)| {
            let range = GuestSlice::new("a range to prefetch", ptr, len);
            Box::new(prefetch(caller, range, destination))
        },
    )?;
    linker.func_wrap_async(MODULE, abi::FN_SYNC, |caller: Caller<'_, T>, (): ()| {
        Box::new(sync(caller, Current))
    })?;
    Ok(())
}

/// Kernels: find, ask, unload.
fn kernels<T: HasWasiCuda + Send + 'static>(linker: &mut Imports<'_, T>) -> wasmtime::Result<()> {
    linker.func_wrap(
        MODULE,
        abi::FN_FIND_KERNEL,
        |mut caller: Caller<'_, T>, name: i32, len: i32| {
            let name = GuestSlice::new("a kernel name", name, len);
            call_with_memory(&mut caller, Current, Needs::Device, |shared, memory| {
                ops::find_kernel(shared, memory, name)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        abi::FN_SYMBOL,
        |mut caller: Caller<'_, T>, kernel: i64, name: i32, len: i32| {
            let name = GuestSlice::new("a variable name", name, len);
            call_with_memory(&mut caller, Current, Needs::Device, |shared, memory| {
                ops::symbol(shared, memory, kernel, name)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        abi::FN_UNLOAD,
        |caller: Caller<'_, T>, kernel: i64| {
            call(&caller, Current, |shared| {
                ops::unload(shared, kernel).map(|()| 0)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        abi::FN_KERNEL_INFO,
        |mut caller: Caller<'_, T>, kernel: i64, dst: i32, len: i32| {
            let into = GuestSlice::new("kernel info", dst, len);
            call_with_memory(&mut caller, Current, Needs::Device, |shared, memory| {
                ops::kernel_info(shared, memory, kernel, into).map(size)
            })
        },
    )?;
    Ok(())
}

/// Device buffers. All but `free` suspend the guest.
fn memory<T: HasWasiCuda + Send + 'static>(linker: &mut Imports<'_, T>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        MODULE,
        abi::FN_ALLOC,
        |caller: Caller<'_, T>, (bytes,): (i64,)| {
            Box::new(alloc(caller, Current, bytes.cast_unsigned()))
        },
    )?;
    linker.func_wrap(
        MODULE,
        abi::FN_FREE,
        |caller: Caller<'_, T>, buffer: i64| {
            call(&caller, Current, |shared| {
                buffers::free(shared, buffer).map(|()| 0)
            })
        },
    )?;
    for (name, direction, what) in [
        (abi::FN_WRITE, Direction::In, "a source"),
        (abi::FN_READ, Direction::Out, "a destination"),
    ] {
        linker.func_wrap_async(
            MODULE,
            name,
            move |caller: Caller<'_, T>, (buffer, at, ptr, len): (i64, i64, i32, i32)| {
                let call = CopyCall {
                    buffer,
                    at: at.cast_unsigned(),
                    guest: GuestSlice::new(what, ptr, len),
                };
                Box::new(copy(caller, Current, call, direction))
            },
        )?;
    }
    Ok(())
}

/// What a guest can ask.
fn queries<T: HasWasiCuda + Send + 'static>(linker: &mut Imports<'_, T>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, abi::FN_ABI_VERSION, |caller: Caller<'_, T>| {
        call(&caller, Current, |_| Ok(abi::VERSION))
    })?;
    linker.func_wrap(
        MODULE,
        abi::FN_DEVICE_INFO,
        |mut caller: Caller<'_, T>, dst: i32, len: i32| {
            let into = GuestSlice::new("device info", dst, len);
            call_with_memory(&mut caller, Current, Needs::Nothing, |shared, memory| {
                ops::device_info(shared, memory, into).map(size)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        abi::FN_TRAP_INFO,
        |mut caller: Caller<'_, T>, dst: i32, len: i32| {
            let into = GuestSlice::new("trap info", dst, len);
            call_with_memory(&mut caller, Current, Needs::Device, |shared, memory| {
                ops::trap_info(shared, memory, into).map(size)
            })
        },
    )?;
    add_last_error(linker, MODULE, Current)
}
