//! A kernel that this guest may launch, given back when it is dropped.

use abi::KernelHandle;
use abi::info::{KernelInfo, ParamInfo};

use crate::buffer::Buffer;
use crate::error::{Error, kernel_handle, status};
use crate::launch::{Extent, Launch};
use crate::sys;

/// A kernel, loaded from PTX or found among those that the embedder registered.
#[derive(Debug)]
pub struct Kernel {
    handle: KernelHandle,
    origin: Origin,
}

/// Whether a kernel is this guest's to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Embedder,
    Loaded,
}

impl Kernel {
    /// Loads `ptx` and finds its kernel `entry`.
    ///
    /// # Errors
    ///
    /// `MalformedPtx` or `UnsupportedPtx` when the host refuses the text, `QuotaExceeded` when
    /// there are too many kernels, `NotAvailable` without a device.
    pub fn load(ptx: &str, entry: &str) -> Result<Self, Error> {
        let handle = kernel_handle(sys::load_ptx(ptx.as_bytes(), entry.as_bytes()))?;
        let origin = Origin::Loaded;
        Ok(Self { handle, origin })
    }

    /// A kernel that the embedder registered for this guest under `name`.
    ///
    /// # Errors
    ///
    /// `InvalidKernel` when there is none, `NotAvailable` without a device.
    pub fn find(name: &str) -> Result<Self, Error> {
        let handle = kernel_handle(sys::find_kernel(name.as_bytes()))?;
        let origin = Origin::Embedder;
        Ok(Self { handle, origin })
    }

    /// What the kernel needs: threads, shared memory, registers, number of parameters.
    ///
    /// # Errors
    ///
    /// `NotAvailable` without a device.
    pub fn info(&self) -> Result<KernelInfo, Error> {
        let mut bytes = [0; KernelInfo::SIZE];
        status(sys::kernel_info(self.handle, &mut bytes))?;
        Ok(KernelInfo::from_bytes(&bytes))
    }

    /// The kernel's parameters in their order, as many as `room` has room for: 28 bytes and 20 for each
    /// parameter.
    ///
    /// # Errors
    ///
    /// `NotAvailable` without a device.
    pub fn params<'room>(
        &self,
        room: &'room mut [u8],
    ) -> Result<impl Iterator<Item = ParamInfo> + use<'room>, Error> {
        status(sys::kernel_info(self.handle, room))?;
        Ok(KernelInfo::params(room))
    }

    /// A buffer over a variable of the kernel's module, such as a `__device__` or `__constant__` array. Where the
    /// device's features lack [`FEATURE_SYMBOL`](crate::FEATURE_SYMBOL), pass the data as an argument instead.
    ///
    /// # Errors
    ///
    /// `UnsupportedPtx` where it does not work.
    pub fn symbol(&self, name: &str) -> Result<Buffer, Error> {
        Buffer::from_answer(sys::symbol(self.handle, name.as_bytes()))
    }

    /// Begins a launch over a `grid` of blocks of `block` threads: a number, or two or three for x, y and z.
    pub fn launch<'a>(&'a self, grid: impl Into<Extent>, block: impl Into<Extent>) -> Launch<'a> {
        Launch::new(self.handle, grid.into(), block.into())
    }

    /// The handle that the imports know it by.
    #[must_use]
    pub const fn handle(&self) -> KernelHandle {
        self.handle
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.origin == Origin::Loaded {
            // A kernel that the host no longer knows is as good as unloaded.
            sys::unload(self.handle);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;
    use std::vec::Vec;

    use abi::AbiError;

    use super::*;
    use crate::mock;

    #[test]
    fn a_kernel_is_given_back() {
        let kernel = Kernel::load(mock::PTX, "fill").unwrap();
        assert_eq!(mock::held(), (1, 0));
        drop(kernel);
        assert_eq!(mock::held(), (0, 0));
    }

    #[test]
    fn a_text_that_is_refused_says_why() {
        let error = Kernel::load(mock::PTX, "other").unwrap_err();
        assert_eq!(error.to_string(), "MalformedPtx (-4): no such entry");
    }

    #[test]
    fn a_kernel_of_the_embedders_stays_its_own() {
        drop(Kernel::find(mock::REGISTERED).unwrap());
        // Unloading it would have failed, and left a text.
        assert_eq!(crate::last_error_len(), 0);
        let error = Kernel::find("other").unwrap_err();
        assert_eq!(error.code(), AbiError::InvalidKernel);
    }

    #[test]
    fn its_parameters_are_those_of_the_host() {
        let kernel = Kernel::load(mock::PTX, "fill").unwrap();
        let info = kernel.info().unwrap();
        assert_eq!((info.max_threads, info.param_count), (1024, 2));
        let mut room = [0; 256];
        let sizes: Vec<u32> = kernel.params(&mut room).unwrap().map(|p| p.size).collect();
        assert_eq!(sizes, [8, 4]);
        let mut room = [0; 50];
        assert_eq!(kernel.params(&mut room).unwrap().count(), 1);
    }

    #[test]
    fn a_variable_is_a_buffer() {
        let kernel = Kernel::load(mock::PTX, "fill").unwrap();
        let table = kernel.symbol("table").unwrap();
        let mut bytes = [0_u8; 4];
        table.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4]);
        let error = kernel.symbol("other").unwrap_err();
        assert_eq!(error.code(), AbiError::InvalidArgs);
    }
}
