//! What the driver answers: integers on its side, a closed enum on cust's, and their texts. No
//! entry point is defined here.
#![expect(unsafe_code, reason = "codes into an enum, and C strings")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;

use cust::sys::CUresult;

use crate::entry_points::KNOWN;
use crate::library::{available, symbol};

thread_local!(static LAST: Cell<u32> = const { Cell::new(0) });

/// What the driver last answered on this thread when it was not success, as it gave it.
#[must_use]
pub fn last_result() -> u32 {
    LAST.get()
}

/// The enum's value for a code of the driver; a failure is kept for [`last_result`].
#[inline]
pub(crate) fn checked(raw: u32) -> CUresult {
    if raw == 0 {
        CUresult::CUDA_SUCCESS
    } else {
        failed(raw)
    }
}

#[cold]
fn failed(raw: u32) -> CUresult {
    LAST.set(raw);
    if KNOWN.binary_search(&raw).is_ok() {
        // SAFETY: `CUresult` is `repr(u32)`, and the line above found `raw` among the
        // discriminants of its variants, which tools/gen.py reads from the enum itself.
        unsafe { transmute::<u32, CUresult>(raw) }
    } else {
        CUresult::CUDA_ERROR_UNKNOWN
    }
}

/// The answer of a function that the driver lacks, or of any when there is no driver.
#[cold]
pub(crate) fn missing() -> CUresult {
    failed(match available() {
        Ok(()) => CUresult::CUDA_ERROR_NOT_SUPPORTED as u32,
        Err(_) => CUresult::CUDA_ERROR_NO_DEVICE as u32,
    })
}

/// The driver's two text functions.
#[derive(Clone, Copy)]
pub(crate) enum Text {
    /// `cuGetErrorName`
    Name,
    /// `cuGetErrorString`
    Description,
}

/// What the driver says about a code; `None` without a driver, or when it does not know the code.
pub(crate) fn driver_text(which: Text, code: u32) -> Option<&'static CStr> {
    type Function = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    let address = symbol(match which {
        Text::Name => c"cuGetErrorName",
        Text::Description => c"cuGetErrorString",
    })?;
    // SAFETY: `symbol` answers the address of the driver's function of that name, and cuda.h
    // declares both as `CUresult (CUresult, const char **)` with a 32-bit result.
    let function = unsafe { transmute::<*const c_void, Function>(address) };
    let mut text = std::ptr::null();
    // SAFETY: `text` is a live place for one pointer; any code is a valid question.
    let answer = unsafe { function(code, &raw mut text) };
    if answer != 0 || text.is_null() {
        return None;
    }
    // SAFETY: on success it is a nul-terminated string in the driver, which is never unloaded.
    Some(unsafe { CStr::from_ptr(text) })
}

/// The driver's name and text for a code, also for one that cust's `CUresult` lacks. Without a
/// driver, or for a code that it does not know, both are `CUDA error` and the number.
#[must_use]
pub fn describe(code: u32) -> (String, String) {
    let text = |which| {
        driver_text(which, code).map_or_else(
            || format!("CUDA error {code}"),
            |text| text.to_string_lossy().into_owned(),
        )
    };
    (text(Text::Name), text(Text::Description))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_outside_the_enum_is_kept_and_answered_as_unknown() {
        assert_eq!(checked(46), CUresult::CUDA_ERROR_UNKNOWN);
        assert_eq!(last_result(), 46);
        assert_eq!(checked(700), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(checked(0), CUresult::CUDA_SUCCESS);
        assert_eq!(last_result(), 700);
    }

    #[test]
    fn cust_agrees_with_the_loader_about_the_driver() {
        match available() {
            Err(why) => {
                assert!(why.contains("libcuda.so.1"), "{why}");
                let error = cust::init(cust::CudaFlags::empty()).unwrap_err();
                assert_eq!(error, cust::error::CudaError::NoDevice);
                assert_eq!(error.to_string(), "\"no CUDA device\"");
                assert_eq!(last_result(), 100);
                assert_eq!(describe(100).0, "CUDA error 100");
            }
            Ok(()) => {
                assert!(symbol(c"cuInit").is_some());
                assert!(symbol(c"cuNoSuchFunction").is_none());
                assert_eq!(describe(100).0, "CUDA_ERROR_NO_DEVICE");
                let mut version = 0;
                // SAFETY: `version` is a live place for one integer.
                let answer = unsafe { cust::sys::cuDriverGetVersion(&raw mut version) };
                assert_eq!(answer, CUresult::CUDA_SUCCESS);
                assert!(
                    version >= 11_040,
                    "driver {version} is older than the bindings"
                );
            }
        }
    }
}
