//! What a device says about itself: its attributes, as [`DeviceInfo`] and [`MemoryTraits`].
#![expect(unsafe_code, reason = "asks the driver for attributes and names")]

use std::ffi::{CStr, c_char};

use cust::sys::{self, CUdevice_attribute as Attribute};

use super::context::Ordinal;
use super::error::{Failure, check};
use crate::device::{DeviceInfo, DeviceKind, DeviceLimits};

/// How a device and its host share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryTraits {
    /// Host and device may both use managed memory while a kernel runs.
    pub concurrent_managed_access: bool,
    /// Kernels reach ordinary host memory. Then a stray address of a trusted kernel is not even a fault.
    pub pageable_memory_access: bool,
}

impl MemoryTraits {
    /// What people should know of it.
    pub(super) fn remark(self) -> Option<String> {
        let pageable = "kernels reach all memory of the process";
        self.pageable_memory_access.then(|| pageable.into())
    }
}

/// What a device says about itself.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) info: DeviceInfo,
    pub(super) memory: MemoryTraits,
    pub(super) runs_cooperative: bool,
}

impl Probe {
    pub(super) fn of(device: Ordinal) -> Result<Self, Failure> {
        use Attribute as A;
        let number = |which| attribute(device, which);
        let flag = |which| attribute(device, which).map(|value| value != 0);
        let threads_per_block = number(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        let plain = number(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;
        let by_choice = number(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let limits = DeviceLimits {
            block: [
                number(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                number(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                number(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            threads_per_block,
            grid: [
                number(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                number(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                number(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            // The driver has no attribute for the product.
            blocks: DeviceLimits::ARCHITECTURAL.blocks,
            shared_bytes: plain.max(by_choice),
        };
        let compute_capability = (
            number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        Ok(Self {
            info: DeviceInfo {
                kind: DeviceKind::Cuda,
                name: name(device)?,
                compute_capability,
                multiprocessors: number(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
                limits,
            },
            memory: MemoryTraits {
                concurrent_managed_access: flag(A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)?,
                pageable_memory_access: flag(A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)?,
            },
            runs_cooperative: flag(A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)?,
        })
    }
}

/// A device's attribute; none of those asked for is ever negative.
fn attribute(device: Ordinal, which: Attribute) -> Result<u32, Failure> {
    let mut value = 0;
    // SAFETY: `value` is a live place for one integer, and an `Ordinal` is a device that the driver named.
    let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device.raw()) };
    check("asking the CUDA device for an attribute", result)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// A device's name for people.
pub(super) fn name(device: Ordinal) -> Result<String, Failure> {
    const BYTES: i32 = 256;
    let mut text: [c_char; BYTES as usize] = [0; BYTES as usize];
    // SAFETY: `text` is a live place for `BYTES` characters; the driver writes no more, a NUL among them.
    let result = unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), BYTES, device.raw()) };
    check("asking the CUDA device for its name", result)?;
    let bytes = text.map(|character| character.to_ne_bytes()[0]);
    let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

/// The CUDA version that the driver is for, major and minor.
pub(super) fn driver_version() -> Result<(i32, i32), Failure> {
    let mut version = 0;
    // SAFETY: `version` is a live place for one integer.
    let result = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    check("asking the CUDA driver for its version", result)?;
    Ok((version / 1000, version % 1000 / 10))
}
