//! WASI host functions with which a WebAssembly guest loads CUDA kernels and launches them on its own linear memory.
//!
//! An embedder adds the imports to a [`wasmtime::Linker`] with [`add_to_linker`], keeps a [`WasiCudaContext`] in its store
//! and makes engines with [`engine_config`], so that linear memory is memory that the device can address. What a
//! guest may do is off until [`WasiCudaContext::enable_wasi_cuda`] is called.
//!
//! This crate is not a device: what runs kernels is behind [`Device`]. Nor does it decide what a guest may do beside
//! CUDA: WASI itself and time limits on guest code are the embedder's.

mod buffers;
pub mod component;
mod context;
mod core_abi;
mod engine;
mod error;
mod event;
mod guest_mem;
mod isolation;
pub mod kernel_args;
mod lower;
mod memory;
mod modules;
mod ops;
mod policy;
mod registry;
mod telemetry;
mod wait;

pub use abi;
pub use abi::AbiError;
pub use context::{Builder, HasWasiCuda, InstanceId, WasiCudaContext};
pub use core_abi::{add_to_linker, add_to_linker_sync};
pub use device::{self, Device, Selector};
pub use engine::{EngineOptions, check_engine, engine_config};
pub use error::Error;
pub use event::{Audit, Event, enable_metrics};
pub use isolation::{Isolation, Trust};
pub use policy::Limits;
pub use ptx::TrustedByEmbedder;
pub use registry::{KernelEntry, KernelId, KernelRegistry};
pub use telemetry::Metrics;

/// The embedding example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The guide for embedders, each block compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedders.md")]
struct EmbeddersGuide;
