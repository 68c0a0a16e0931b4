//! Devices: memory that kernels can address, and what runs PTX on it. This crate knows no WebAssembly.
//!
//! Checks live in `launch.rs`, backends check nothing: a [`Launch`] is the proof that geometry, arguments and memory
//! windows are in order, and a backend is given nothing else.

mod backing;
mod compiler;
mod completion;
mod confinement;
mod control;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub mod cuda;
mod device;
mod error;
mod guest_memory;
mod launch;
mod mapping;
mod open;
mod params;
mod region;

pub use completion::{Completion, DRAIN, Signal};
pub use confinement::Confinement;
pub use device::{
    Abilities, Attributes, Device, DeviceInfo, DeviceKind, DeviceLimits, Health, Module, Moved,
    Program, Side,
};
pub use error::{Access, AccessSpace, CompileLimit, Error, StopReason, Trap, TrapKind};
pub use launch::{
    Arguments, Geometry, IntegerPointers, LOG_BYTES, Launch, LaunchControl, Mode, Value,
};
pub use mapping::{HostAddr, Window, WindowFault, Word};
pub use open::{Selector, open, open_with};
pub use params::ParamStorage;
pub use region::{Carved, MAX_WINDOW_BYTES, Region, RegionSpec, RegionTable};
