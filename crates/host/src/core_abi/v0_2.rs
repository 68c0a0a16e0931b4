//! Module `wasi:cuda/host@0.2.0`: the nine imports that guests of the earlier system use, over the same operations.

use abi::argv::Dialect::V0_2;
use abi::{self, MODULE_V0_2 as MODULE};
use device::Mode;
use wasmtime::Caller;

use super::{
    Imports, LaunchArgs, LoadArgs, Needs, add_last_error, call, call_with_memory, launch,
    launch_call, load, load_call, sync,
};
use crate::context::HasWasiCuda;
use crate::guest_mem::GuestSlice;
use crate::ops::{self, CopyCall};

/// A 64-bit number that comes in two halves.
fn joined(low: i32, high: i32) -> u64 {
    u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
}

/// A copy from or to the beginning of a buffer.
fn copy_call(low: i32, high: i32, guest: GuestSlice) -> CopyCall {
    CopyCall {
        buffer: joined(low, high).cast_signed(),
        at: 0,
        guest,
    }
}

pub(super) fn add_to_linker<T: HasWasiCuda + Send + 'static>(
    linker: &mut Imports<'_, T>,
) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        MODULE,
        abi::FN_LAUNCH,
        |caller: Caller<'_, T>, args: LaunchArgs| {
            Box::new(launch(caller, launch_call(args, Mode::Plain, V0_2)))
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        abi::FN_LOAD_PTX,
        |caller: Caller<'_, T>, args: LoadArgs| Box::new(load(caller, V0_2, load_call(args))),
    )?;
    linker.func_wrap_async(MODULE, abi::FN_SYNC, |caller: Caller<'_, T>, (): ()| {
        Box::new(sync(caller, V0_2))
    })?;
    linker.func_wrap(
        MODULE,
        abi::FN_ALLOC,
        |mut caller: Caller<'_, T>, low: i32, high: i32| {
            call_with_memory(&mut caller, V0_2, Needs::Device, |shared, memory| {
                ops::alloc(shared, memory, joined(low, high))
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        abi::FN_FREE,
        |caller: Caller<'_, T>, low: i32, high: i32| {
            call(&caller, V0_2, |shared| {
                ops::free(shared, joined(low, high).cast_signed()).map(|()| 0)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        abi::FN_MEMCPY_H2D,
        |mut caller: Caller<'_, T>, low: i32, high: i32, src: i32, len: i32| {
            let copy = copy_call(low, high, GuestSlice::new("a source", src, len));
            call_with_memory(&mut caller, V0_2, Needs::Device, |shared, memory| {
                ops::write(shared, memory, copy).map(|()| 0)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        abi::FN_MEMCPY_D2H,
        |mut caller: Caller<'_, T>, dst: i32, low: i32, high: i32, len: i32| {
            let copy = copy_call(low, high, GuestSlice::new("a destination", dst, len));
            call_with_memory(&mut caller, V0_2, Needs::Device, |shared, memory| {
                ops::read(shared, memory, copy).map(|()| 0)
            })
        },
    )?;
    add_last_error(linker, MODULE, V0_2)
}
