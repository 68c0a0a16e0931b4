//! The CUDA driver API's entry points, each forwarding to `libcuda.so.1`, which is opened at the
//! first call. A binary that links this crate starts on a machine with no NVIDIA driver; there,
//! every call answers `CUDA_ERROR_NO_DEVICE`.
//!
//! Building it where no CUDA toolkit is installed needs `CUDA_LIBRARY_PATH=/usr` (any directory
//! with a `lib64`) in the environment: `cust_raw`'s build script asks for one, and nothing is
//! taken from it.
//!
//! Two more things are put right on the way, which `cust` 0.3.2 needs with a driver newer than
//! CUDA 11.4: a result code that its closed enum lacks becomes `CUDA_ERROR_UNKNOWN` (the code
//! itself is in [`last_result`]), and the text functions always give a text (`CudaError`'s
//! `Display` panics otherwise).
//!
//! It is not a safe interface to CUDA, and offers nothing to call but what newer drivers have and
//! `cust` lacks ([`symbol`]). Refer to the crate somewhere, by [`available`] say: nothing links it
//! otherwise.
//!
//! ```
//! match wasi_cuda_driver::available() {
//!     Ok(()) => assert!(wasi_cuda_driver::symbol(c"cuInit").is_some()),
//!     Err(why) => assert!(!why.is_empty()),
//! }
//! ```

mod entry_points;
mod library;
mod result;

pub use library::{available, symbol};
pub use result::{describe, last_result};
