//! The driver's linker, which makes a cubin of a text without loading it: for a process that only compiles.
#![expect(unsafe_code, reason = "makes, feeds and destroys linkers")]

use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::slice;

use cust::sys::{self, CUjitInputType, CUlimit, CUlinkState};

use super::error::{Failure, check};
use super::jit::{LOADING, Logs, OPTIONS};

/// Bytes of local memory for each thread that the device can run.
const LEAST_STACK_BYTES: usize = 64;

/// A linker of the driver.
struct Linker(CUlinkState);

impl Drop for Linker {
    fn drop(&mut self) {
        // SAFETY: this value's own handle, made by `link`.
        let result = unsafe { sys::cuLinkDestroy(self.0) };
        if let Err(failure) = check("destroying a linker", result) {
            tracing::debug!(error = %failure.text(), "a linker was not destroyed");
        }
    }
}

/// Has the device keep next to no local memory for a context in which nothing ever runs: about half of what a context takes by itself. Enter
/// the context first.
pub(super) fn keep_no_local_memory() -> Result<(), Failure> {
    let limit = CUlimit::CU_LIMIT_STACK_SIZE;
    // SAFETY: takes numbers only.
    let result = unsafe { sys::cuCtxSetLimit(limit, LEAST_STACK_BYTES) };
    check("giving local memory back", result)
}

/// Compiles a text for the device of the context that this thread has entered; what the compiler says is in `logs`.
pub(super) fn link(text: &CStr, logs: &mut Logs) -> Result<Vec<u8>, Failure> {
    // The driver writes to both arrays and the logs until the linker is gone, which is declared later and so dropped before them.
    let mut options = logs.options();
    let (keys, values) = (options.keys(), options.values());
    let mut state = null_mut();
    // SAFETY: `state` is a live place for one handle, and both arrays hold `OPTIONS` options whose buffers are as long as the options
    // say and borrowed by `options` (jit.rs).
    let result = unsafe { sys::cuLinkCreate_v2(OPTIONS, keys, values, &raw mut state) };
    check(LOADING, result)?;
    let linker = Linker(state);
    let kind = CUjitInputType::CU_JIT_INPUT_PTX;
    let bytes = text.to_bytes_with_nul();
    let data = bytes.as_ptr().cast_mut().cast();
    // SAFETY: the linker is alive; `data` is as long as said and ends with a NUL, and the driver copies it and does not write there; the
    // name may be null, and no options are given.
    let result = unsafe {
        sys::cuLinkAddData_v2(
            linker.0,
            kind,
            data,
            bytes.len(),
            null(),
            0,
            null_mut(),
            null_mut(),
        )
    };
    check(LOADING, result)?;
    let (mut cubin, mut len) = (null_mut(), 0);
    // SAFETY: the linker is alive, and both places are.
    let result = unsafe { sys::cuLinkComplete(linker.0, &raw mut cubin, &raw mut len) };
    check(LOADING, result)?;
    if cubin.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: `cuLinkComplete` succeeded, so this is `len` bytes of the linker's, which lives until the end of this function.
    let cubin = unsafe { slice::from_raw_parts(cubin.cast_const().cast::<u8>(), len) };
    Ok(cubin.to_vec())
}
