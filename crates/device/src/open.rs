//! Choosing a device.

use std::sync::Arc;

use crate::cpu::{self, CpuDevice};
use crate::cuda;
use crate::device::Device;
use crate::error::Error;

/// Which device is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selector {
    /// A GPU where there is a driver and a device, else the CPU device. A driver that fails is an error.
    #[default]
    Auto,
    /// The CPU device.
    Cpu,
    /// The GPU of this ordinal.
    Cuda(u32),
}

/// Opens a device.
///
/// # Errors
/// [`Error::NotAvailable`] where the device asked for is not there; what a driver that is there but does not work says.
pub fn open(selector: Selector) -> Result<Arc<dyn Device>, Error> {
    open_with(selector, &cuda::Options::default())
}

/// As [`open`], and a GPU in a given way.
///
/// # Errors
/// As [`open`].
pub fn open_with(selector: Selector, options: &cuda::Options) -> Result<Arc<dyn Device>, Error> {
    match selector {
        Selector::Auto => match cuda::open_first(options)? {
            Some(device) => Ok(device),
            None => open(Selector::Cpu),
        },
        Selector::Cpu => Ok(CpuDevice::new(cpu::Config::default())?),
        Selector::Cuda(ordinal) => Ok(cuda::device_with(ordinal, options)?),
    }
}
