//! What stands for the CUDA backend in a build without it: no device is ever there.

use std::sync::Arc;

use crate::compiler::SERVES;
pub use crate::compiler::{ChildCompiler, Compiler, Options};
use crate::device::Device;
use crate::error::Error;
pub use crate::guest_memory::GuestMemory;

const WITHOUT: &str = "this build has no CUDA backend";

/// Whether CUDA devices can be used, in one line for people: the driver's version, or why not.
///
/// # Errors
/// Why not.
pub fn driver_status() -> Result<String, String> {
    Err(WITHOUT.into())
}

/// The names of the CUDA devices, in the order of their ordinals.
///
/// # Errors
/// [`Error::NotAvailable`]: this build has none.
pub fn devices() -> Result<Vec<String>, Error> {
    Err(absent())
}

/// Opens the device of an ordinal, in a given way.
///
/// # Errors
/// [`Error::NotAvailable`]: this build has none.
pub fn device_with(_ordinal: u32, _options: &Options) -> Result<Arc<dyn Device>, Error> {
    Err(absent())
}

/// Compiles for a device, in a process that was started to do so; returns at once in any other. This build has no device, and no
/// process is started for it: one that was all the same ends.
pub fn serve_compiles() {
    if std::env::var_os(SERVES).is_some() {
        std::process::exit(1);
    }
}

/// Opens the first device, if there is one.
pub(crate) fn open_first(_options: &Options) -> Result<Option<Arc<dyn Device>>, Error> {
    Ok(None)
}

fn absent() -> Error {
    Error::NotAvailable {
        reason: WITHOUT.into(),
    }
}
