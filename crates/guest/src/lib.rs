//! Load and launch CUDA kernels from a WebAssembly guest: thin types over the imports of module
//! `wasi_cuda`. It is `no_std` and allocates nothing; it has no kernels and knows no PTX.
//!
//! On any other target it compiles too, for documentation and tests; every call answers
//! [`AbiError::NotAvailable`] there.
//!
//! ```
//! use wasi_cuda_guest::{AbiError, Arg, Error, Kernel};
//!
//! fn double(ptx: &str, data: &mut [f32]) -> Result<(), Error> {
//!     let count = u32::try_from(data.len()).map_err(|_| Error(AbiError::InvalidArgs))?;
//!     let launch = Kernel::load(ptx, "double")?;
//!     let launch = launch
//!         .launch([count.div_ceil(256), 1, 1], [256, 1, 1])
//!         .output(data)
//!         .arg(Arg::U32(count));
//!     // SAFETY: `double` writes `data[i]` for `i < count` and nothing else.
//!     unsafe { launch.run() }
//! }
//!
//! let error = double(".version 7.0 …", &mut [1.0, 2.0]).unwrap_err();
//! assert_eq!(error, Error(AbiError::NotAvailable)); // no host on this target
//! ```
#![no_std]

mod device;
mod error;
mod kernel;
mod launch;
mod sys;

pub use abi::AbiError;
pub use abi::argv::Arg;
pub use abi::info::{DeviceInfo, DeviceKind};
pub use device::device_info;
pub use error::{Error, last_error};
pub use kernel::Kernel;
pub use launch::Launch;
