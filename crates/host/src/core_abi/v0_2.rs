//! Module `wasi:cuda/host@0.2.0`: the nine imports that guests of the earlier system use, over the same operations.

use abi::argv::Dialect::V0_2;
use abi::{self, MODULE_V0_2 as MODULE};
use device::Mode;
use wasmtime::Caller;

use super::{
    Imports, LaunchArgs, LoadArgs, add_last_error, alloc, call, copy, launch, load, load_call, sync,
};
use crate::buffers::{self, CopyCall, Direction};
use crate::context::HasWasiCuda;
use crate::guest_mem::GuestSlice;

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
        |caller: Caller<'_, T>, args: LaunchArgs| Box::new(launch(caller, args, Mode::Plain, V0_2)),
    )?;
    linker.func_wrap_async(
        MODULE,
        abi::FN_LOAD_PTX,
        |caller: Caller<'_, T>, args: LoadArgs| Box::new(load(caller, V0_2, load_call(args))),
    )?;
    linker.func_wrap_async(MODULE, abi::FN_SYNC, |caller: Caller<'_, T>, (): ()| {
        Box::new(sync(caller, V0_2))
    })?;
    linker.func_wrap_async(
        MODULE,
        abi::FN_ALLOC,
        |caller: Caller<'_, T>, (low, high): (i32, i32)| {
            Box::new(alloc(caller, V0_2, joined(low, high)))
        },
    )?;
    linker.func_wrap(
        MODULE,
        abi::FN_FREE,
        |caller: Caller<'_, T>, low: i32, high: i32| {
            call(&caller, V0_2, |shared| {
                buffers::free(shared, joined(low, high).cast_signed()).map(|()| 0)
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        abi::FN_MEMCPY_H2D,
        |caller: Caller<'_, T>, (low, high, src, len): (i32, i32, i32, i32)| {
            let call = copy_call(low, high, GuestSlice::new("a source", src, len));
            Box::new(copy(caller, V0_2, call, Direction::In))
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        abi::FN_MEMCPY_D2H,
        |caller: Caller<'_, T>, (dst, low, high, len): (i32, i32, i32, i32)| {
            let call = copy_call(low, high, GuestSlice::new("a destination", dst, len));
            Box::new(copy(caller, V0_2, call, Direction::Out))
        },
    )?;
    add_last_error(linker, MODULE, V0_2)
}
