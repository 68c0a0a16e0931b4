//! Which device runs the kernels of this instance.

use abi::info::DeviceInfo;

use crate::error::{Error, status};
use crate::sys;

/// The device in use: its kind, limits and name. Without a device the kind says so.
///
/// # Errors
///
/// [`AbiError::NotAvailable`](abi::AbiError) while the capability is off.
pub fn device_info() -> Result<DeviceInfo, Error> {
    let mut bytes = [0; DeviceInfo::SIZE];
    status(sys::device_info(&mut bytes))?;
    Ok(DeviceInfo::from_bytes(&bytes))
}
