//! Load and launch CUDA kernels from a WebAssembly guest: thin types over the imports of module
//! `wasi_cuda`. It is `no_std` and allocates nothing; it has no kernels and knows no PTX.
//!
//! A kernel works on the guest's own memory, in place. [`Kernel::load`] takes PTX, as `nvcc -ptx` or Triton make it;
//! [`Kernel::launch`] collects the arguments, and [`Launch::run`] returns when the kernel has ended:
//!
//! ```
//! use wasi_cuda_guest::{AbiError, Error, Kernel, last_trap};
//!
//! /// `extern "C" __global__ void saxpy(float a, const float *x, float *y, int n)`: y[i] += a * x[i]
//! fn saxpy(ptx: &str, a: f32, x: &[f32], y: &mut [f32]) -> Result<(), Error> {
//!     assert_eq!(x.len(), y.len());
//!     let n = u32::try_from(y.len()).expect("a guest's memory has 32 bits");
//!     let kernel = Kernel::load(ptx, "saxpy")?;
//!     let mut launch = kernel.launch(n.div_ceil(256), 256);
//!     launch.arg(a).input(x).output(y).arg(n);
//!     // SAFETY: `saxpy` reads `x[i]` and writes `y[i]` for `i < n`, and nothing else.
//!     let ended = unsafe { launch.run() };
//!     if let Err(error) = ended
//!         && error.code() == AbiError::KernelTrap
//!         && let Some(trap) = last_trap()?
//!     {
//!         eprintln!("saxpy: {trap}");
//!     }
//!     ended
//! }
//!
//! let mut y = [1.0, 2.0];
//! let error = saxpy(".version 7.0 …", 2.0, &[3.0, 4.0], &mut y).unwrap_err();
//! assert_eq!(error.code(), AbiError::NotAvailable); // no host on this target
//! ```
//!
//! What a launch may touch is for its caller to promise, which is why `run` is unsafe: the host keeps a kernel inside
//! the guest's memory, and no closer.
//!
//! On targets other than wasm32 the crate compiles too, for documentation and tests; every call answers
//! [`AbiError::NotAvailable`] there. For guests in C, `include/wasi_cuda.h` of this package is the same ABI.
#![no_std]

mod buffer;
mod device;
mod error;
mod kernel;
mod launch;
#[cfg(test)]
mod mock;
mod pod;
mod sys;
mod trap;

pub use abi::argv::Arg;
pub use abi::info::{
    DeviceInfo, DeviceKind, FEATURE_CONFINED, FEATURE_COOPERATIVE, FEATURE_PREFETCH,
    FEATURE_SYMBOL, FEATURE_TRAPPING, KernelInfo, ParamClass, ParamInfo, TrapInfo, TrapKind,
};
pub use abi::{AbiError, BufferHandle, KernelHandle, LAST_ERROR_BYTES};
pub use buffer::Buffer;
pub use device::{Side, abi_version, device_info, prefetch, sync};
pub use error::{Error, last_error, last_error_len};
pub use kernel::Kernel;
pub use launch::{Argument, Extent, Launch};
pub use pod::Pod;
pub use trap::{Trap, last_trap};

/// Compiles the example of the package's front page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
