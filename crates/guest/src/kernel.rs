//! A kernel that the host has loaded for this instance, given back when it is dropped.

use abi::KernelHandle;

use crate::error::{Error, handle};
use crate::launch::Launch;
use crate::sys;

/// A loaded kernel.
#[derive(Debug)]
pub struct Kernel {
    handle: KernelHandle,
}

impl Kernel {
    /// Loads `ptx` and finds its kernel `entry`.
    ///
    /// # Errors
    ///
    /// `MalformedPtx` or `UnsupportedPtx` when the host refuses the text, `QuotaExceeded` when
    /// there are too many kernels, `NotAvailable` without a device.
    pub fn load(ptx: &str, entry: &str) -> Result<Kernel, Error> {
        let handle = handle(sys::load_ptx(ptx.as_bytes(), entry.as_bytes()))?;
        Ok(Kernel { handle })
    }

    /// Begins a launch over `grid` blocks of `block` threads, along x, y and z.
    pub fn launch(&self, grid: [u32; 3], block: [u32; 3]) -> Launch<'_> {
        Launch::new(self.handle, grid, block)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // A kernel that the host no longer knows is as good as unloaded.
        sys::unload(self.handle);
    }
}
