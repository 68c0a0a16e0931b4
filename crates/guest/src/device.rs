//! What the whole instance has: the version of the ABI, the device in use, where memory should lie, and waiting.

use abi::info::DeviceInfo;
use abi::{PREFETCH_DEVICE, PREFETCH_HOST};

use crate::error::{Error, status};
use crate::pod::{Pod, bytes};
use crate::sys;

/// The version of the host's ABI: major and minor number. A guest built with this crate runs on every 1.x.
///
/// # Errors
///
/// `NotAvailable` while the capability is off.
pub fn abi_version() -> Result<(u32, u32), Error> {
    let version = status(sys::abi_version())?;
    Ok((version >> 16, version & 0xffff))
}

/// The device in use: its kind, limits and name. Without a device the kind says so.
///
/// # Errors
///
/// `NotAvailable` while the capability is off.
pub fn device_info() -> Result<DeviceInfo, Error> {
    let mut bytes = [0; DeviceInfo::SIZE];
    status(sys::device_info(&mut bytes))?;
    Ok(DeviceInfo::from_bytes(&bytes))
}

/// Where memory is wanted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// On the device: kernels will pass over it more than once.
    Device,
    /// On the host: the guest itself will read or write much of it.
    Host,
}

/// A hint that `data` is wanted on the device or on the host next. It changes no byte.
///
/// # Errors
///
/// `NotAvailable` without a device, `DeviceLost`.
pub fn prefetch<T: Pod>(data: &[T], side: Side) -> Result<(), Error> {
    let side = match side {
        Side::Device => PREFETCH_DEVICE,
        Side::Host => PREFETCH_HOST,
    };
    status(sys::prefetch(bytes(data), side)).map(drop)
}

/// Waits for this instance's work. A launch waits by itself.
///
/// # Errors
///
/// `NotAvailable` without a device.
pub fn sync() -> Result<(), Error> {
    status(sys::sync()).map(drop)
}

#[cfg(test)]
mod tests {
    use abi::AbiError;
    use abi::info::DeviceKind;

    use super::*;
    use crate::mock;

    #[test]
    fn the_device_is_the_hosts() {
        assert_eq!(abi_version().unwrap(), (1, 0));
        let info = device_info().unwrap();
        assert_eq!(DeviceKind::from_number(info.kind), Some(DeviceKind::Cpu));
        assert_eq!(info.name_str(), "a device of the tests");
        mock::refuse(AbiError::NotAvailable, "");
        assert_eq!(device_info().unwrap_err().code(), AbiError::NotAvailable);
    }

    #[test]
    fn memory_is_wanted_where_the_caller_says() {
        prefetch(&[0.0_f32; 8], Side::Device).unwrap();
        prefetch(&[0.0_f32; 2], Side::Host).unwrap();
        assert_eq!(mock::prefetched(), [(32, 1), (8, 0)]);
    }

    #[test]
    fn waiting_fails_as_the_host_says() {
        sync().unwrap();
        mock::refuse(AbiError::DeviceLost, "it fell off the bus");
        assert_eq!(sync().unwrap_err().code(), AbiError::DeviceLost);
    }
}
