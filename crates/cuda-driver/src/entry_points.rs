//! The entry points themselves, under the driver's own names, so that cust's declarations find
//! them in the link. The list is in `table.rs`, which `tools/gen.py` writes from cust's bindings.
#![expect(unsafe_code, reason = "C functions that forward to C functions")]
#![expect(
    non_snake_case,
    reason = "the names of the driver and of its parameters"
)]

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use std::mem::transmute;

use cust::sys::*;

use crate::library::Slot;
use crate::result::{Text, checked, driver_text, missing};

/// The address of a function, to be held and never called.
#[repr(transparent)]
struct Address(*const c_void);

// SAFETY: it is an address in the program's code, constant and never read through.
unsafe impl Sync for Address {}

/// Keeps every entry point in the link, ahead of any `libcuda.so` on the command line.
pub(crate) fn keep() {
    std::hint::black_box(&ENTRY_POINTS);
}

macro_rules! entry_points {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        $(
            #[doc = concat!("Forwards to the driver's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// What the CUDA driver API asks of callers of the function of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                type Function = unsafe extern "C" fn($($ty),*) -> u32;
                static SLOT: Slot = Slot::new();
                const NAME: &CStr = match CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                };
                let Some(address) = SLOT.address(NAME) else { return missing() };
                // SAFETY: `SLOT` is asked for `NAME` only, so this is the driver's function of
                // that name, whose parameters table.rs takes from the bindings. The result is an
                // integer of the enum's size: the driver may know codes that the enum lacks.
                let function = unsafe { transmute::<*mut c_void, Function>(address) };
                // SAFETY: the arguments are the caller's, unchanged, and so is the promise.
                checked(unsafe { function($($arg),*) })
            }
        )*

        #[used]
        static ENTRY_POINTS: [Address; { 2 $( + { let _ = stringify!($name); 1 } )* }] = [
            Address(cuGetErrorName as *const c_void),
            Address(cuGetErrorString as *const c_void),
            $(Address($name as *const c_void),)*
        ];
    };
}

include!("table.rs");

/// The driver's name of a code; always a text, and always success.
///
/// # Safety
///
/// `text` must be valid for writing one pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: CUresult, text: *mut *const c_char) -> CUresult {
    let name = driver_text(Text::Name, error as u32).unwrap_or(c"CUDA_ERROR");
    // SAFETY: the caller's promise.
    unsafe { text.write(name.as_ptr()) };
    CUresult::CUDA_SUCCESS
}

/// The driver's text for a code; always a text, and always success.
///
/// # Safety
///
/// `text` must be valid for writing one pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> CUresult {
    let otherwise = match error {
        CUresult::CUDA_ERROR_NO_DEVICE => c"no CUDA device",
        _ => c"CUDA error",
    };
    let description = driver_text(Text::Description, error as u32).unwrap_or(otherwise);
    // SAFETY: the caller's promise.
    unsafe { text.write(description.as_ptr()) };
    CUresult::CUDA_SUCCESS
}
