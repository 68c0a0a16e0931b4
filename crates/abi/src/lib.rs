//! The contract between WebAssembly guests and a `wasi-cuda` host: names, codes, structs and the
//! argv wire format. Both sides compile this crate; nothing here runs, reads memory or decides.
//!
//! It is `no_std`, allocates nothing and has no `unsafe`. `docs/abi.md` is the same contract as
//! text; its tables are rendered from this crate.
//!
//! ```
//! use wasi_cuda_abi::argv::{self, Arg, Dialect};
//!
//! // scale(float *data, float factor) over 4,096 bytes at offset 1,024
//! let args = [Arg::Ptr { offset: 1024, len: 4096 }, Arg::F32(0.5)];
//! let mut bytes = [0; 32];
//! let len = argv::encode(&args, &mut bytes).expect("two small records");
//! let decoded: Result<Vec<Arg>, _> = argv::decode(&bytes[..len], Dialect::Current).collect();
//! assert_eq!(decoded.as_deref(), Ok(&args[..]));
//! ```
#![no_std]

pub mod argv;
mod error_code;
mod handle;
mod imports;
pub mod info;
mod limits;
pub mod oracle;

pub use error_code::AbiError;
pub use handle::{BufferHandle, KernelHandle};
pub use imports::*;
pub use limits::*;
