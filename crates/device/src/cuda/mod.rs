//! The CUDA backend: runs kernels on an NVIDIA GPU through the driver API. It is the only place that names `cust`.
//!
//! Three layers: the driver's functions (`cust::sys`), called in the files that own what they make; results (`error.rs` and
//! the context's check), which keep the driver's own code and notice when the device is lost; and
//! owners with `Drop`, each of which holds the context. Kernels are checked nowhere here: see `program.rs`.

mod adopted;
mod backing;
mod cache;
mod clock;
mod clock_kernel;
mod compiler;
mod context;
mod control;
mod core;
mod device;
mod error;
mod exact;
mod flight;
mod gate;
mod jit;
mod lines;
mod linker;
mod memory;
mod module;
mod occupancy;
mod patience;
mod pinned;
mod poller;
mod probe;
mod program;
mod reaper;
mod spares;
mod stack;
mod staging;
mod stops;
mod stream;
mod threads;
mod workers;

use std::sync::Arc;

use context::{Ordinal, Presence, presence};

use crate::device::Device;
use crate::error::Error;

pub use cache::CacheCounters;
pub use compiler::serve_compiles;
pub use device::CudaDevice;
pub use probe::MemoryTraits;

pub use crate::compiler::{ChildCompiler, Compiler, Options};
pub use crate::guest_memory::GuestMemory;

/// Whether CUDA devices can be used, in one line for people: the driver's version, or why not.
///
/// # Errors
/// Why not.
pub fn driver_status() -> Result<String, String> {
    match presence() {
        Ok(Presence::NoDriver(why)) => Err(why.into()),
        Ok(Presence::NoDevice) => Err("the CUDA driver has no device".into()),
        Ok(Presence::Devices(count)) => {
            let (major, minor) = probe::driver_version().map_err(error::Failure::text)?;
            let devices = if count == 1 { "device" } else { "devices" };
            Ok(format!(
                "driver for CUDA {major}.{minor}, {count} {devices}"
            ))
        }
        Err(failure) => Err(failure.text()),
    }
}

/// The names of the CUDA devices, in the order of their ordinals. No device is opened for it.
///
/// # Errors
/// [`Error::NotAvailable`] if there are none; what a driver that is there but does not work says.
pub fn devices() -> Result<Vec<String>, Error> {
    let names = (0..count()?).map(|number| Ordinal::find(number).and_then(probe::name));
    Ok(names.collect::<Result<_, _>>()?)
}

/// The device of an ordinal: the same one for all who ask while it is in use.
///
/// # Errors
/// [`Error::NotAvailable`] if it is not there; what a driver that is there but does not work says; [`Error::DeviceLost`] where a
/// kernel's fault ended its use in this process.
pub fn device(ordinal: u32) -> Result<Arc<CudaDevice>, Error> {
    device_with(ordinal, &Options::default())
}

/// As [`device()`], in a given way. All who ask for an ordinal in the same way share a device.
///
/// # Errors
/// As [`device()`].
pub fn device_with(ordinal: u32, options: &Options) -> Result<Arc<CudaDevice>, Error> {
    CudaDevice::open(ordinal, options, || {
        let count = count()?;
        if ordinal < count {
            return Ok(Ordinal::find(ordinal)?);
        }
        let reason = format!("CUDA device {ordinal} is not there; the driver has {count}");
        Err(Error::NotAvailable { reason })
    })
}

/// Opens the first device, if there is one. A driver that is there but does not work is an error.
pub(crate) fn open_first(options: &Options) -> Result<Option<Arc<dyn Device>>, Error> {
    match device_with(0, options) {
        Ok(device) => Ok(Some(device)),
        Err(Error::NotAvailable { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn count() -> Result<u32, Error> {
    let reason = match presence()? {
        Presence::Devices(count) => return Ok(count),
        Presence::NoDevice => "the CUDA driver has no device".into(),
        Presence::NoDriver(why) => why.into(),
    };
    Err(Error::NotAvailable { reason })
}

#[cfg(test)]
mod tests;
