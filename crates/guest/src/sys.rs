//! The imports of module `wasi_cuda`, each behind a function that takes slices; and the two ways to run a
//! [`Launch`], which are for their caller to vouch for. Nothing here decides or encodes.
#![expect(unsafe_code, reason = "imports that read and write guest memory")]

use abi::{BufferHandle, KernelHandle};

use crate::error::{Error, status};
use crate::launch::{Launch, Shape};

#[cfg(test)]
use crate::mock as imports;

/// Declares imports. On a target that has no host, functions of the same names answer
/// `NotAvailable`; tests of this crate have a host of their own.
macro_rules! imports {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $result:ty;)*) => {
        #[cfg(target_arch = "wasm32")]
        mod imports {
            #[link(wasm_import_module = "wasi_cuda")]
            unsafe extern "C" {
                $(pub(super) fn $name($($arg: $ty),*) -> $result;)*
            }
        }

        #[cfg(all(not(target_arch = "wasm32"), not(test)))]
        #[expect(clippy::too_many_arguments, reason = "the signature of launch")]
        mod imports {
            $(
                pub(super) unsafe fn $name($(_: $ty),*) -> $result {
                    abi::AbiError::NotAvailable.code().into()
                }
            )*
        }

        /// Name, types of the parameters, type of the result.
        #[cfg(test)]
        const DECLARED: &[(&str, &[&str], &str)] = &[
            $((stringify!($name), &[$(stringify!($ty)),*], stringify!($result)),)*
        ];
    };
}

imports! {
    fn wasi_cuda_abi_version() -> i32;
    fn wasi_cuda_device_info(dst: *mut u8, len: usize) -> i32;
    fn wasi_cuda_load_ptx(
        ptx: *const u8,
        ptx_len: usize,
        entry: *const u8,
        entry_len: usize
    ) -> i64;
    fn wasi_cuda_find_kernel(name: *const u8, len: usize) -> i64;
    fn wasi_cuda_symbol(kernel: i64, name: *const u8, len: usize) -> i64;
    fn wasi_cuda_unload(kernel: i64) -> i32;
    fn wasi_cuda_kernel_info(kernel: i64, dst: *mut u8, len: usize) -> i32;
    fn wasi_cuda_launch(
        kernel: i64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        argv: *const u8,
        argv_len: usize
    ) -> i32;
    fn wasi_cuda_launch_cooperative(
        kernel: i64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        argv: *const u8,
        argv_len: usize
    ) -> i32;
    fn wasi_cuda_sync() -> i32;
    fn wasi_cuda_alloc(bytes: i64) -> i64;
    fn wasi_cuda_free(buffer: i64) -> i32;
    fn wasi_cuda_write(buffer: i64, offset: i64, ptr: *const u8, len: usize) -> i32;
    fn wasi_cuda_read(buffer: i64, offset: i64, ptr: *mut u8, len: usize) -> i32;
    fn wasi_cuda_prefetch(ptr: *const u8, len: usize, side: i32) -> i32;
    fn wasi_cuda_last_error_len() -> i32;
    fn wasi_cuda_last_error_copy(dst: *mut u8, len: usize) -> i32;
    fn wasi_cuda_trap_info(dst: *mut u8, len: usize) -> i32;
}

pub(crate) fn abi_version() -> i32 {
    // SAFETY: the host touches no guest memory.
    unsafe { imports::wasi_cuda_abi_version() }
}

pub(crate) fn device_info(out: &mut [u8]) -> i32 {
    // SAFETY: the host writes at most `len` bytes at `dst`, and they are `out`'s.
    unsafe { imports::wasi_cuda_device_info(out.as_mut_ptr(), out.len()) }
}

pub(crate) fn load_ptx(ptx: &[u8], entry: &[u8]) -> i64 {
    let (ptx, ptx_len) = (ptx.as_ptr(), ptx.len());
    let (entry, entry_len) = (entry.as_ptr(), entry.len());
    // SAFETY: the host reads the two slices and writes no guest memory.
    unsafe { imports::wasi_cuda_load_ptx(ptx, ptx_len, entry, entry_len) }
}

pub(crate) fn find_kernel(name: &[u8]) -> i64 {
    // SAFETY: the host reads the slice and writes no guest memory.
    unsafe { imports::wasi_cuda_find_kernel(name.as_ptr(), name.len()) }
}

pub(crate) fn symbol(kernel: KernelHandle, name: &[u8]) -> i64 {
    // SAFETY: the host reads the slice and writes no guest memory.
    unsafe { imports::wasi_cuda_symbol(kernel.raw(), name.as_ptr(), name.len()) }
}

pub(crate) fn unload(kernel: KernelHandle) -> i32 {
    // SAFETY: the host touches no guest memory; a wrong handle is answered with a code.
    unsafe { imports::wasi_cuda_unload(kernel.raw()) }
}

pub(crate) fn kernel_info(kernel: KernelHandle, out: &mut [u8]) -> i32 {
    // SAFETY: the host writes at most `len` bytes at `dst`, and they are `out`'s.
    unsafe { imports::wasi_cuda_kernel_info(kernel.raw(), out.as_mut_ptr(), out.len()) }
}

pub(crate) fn sync() -> i32 {
    // SAFETY: the host touches no guest memory.
    unsafe { imports::wasi_cuda_sync() }
}

pub(crate) fn alloc(bytes: i64) -> i64 {
    // SAFETY: the buffer is no memory of the guest.
    unsafe { imports::wasi_cuda_alloc(bytes) }
}

pub(crate) fn free(buffer: BufferHandle) -> i32 {
    // SAFETY: the host touches no guest memory; a wrong handle is answered with a code.
    unsafe { imports::wasi_cuda_free(buffer.raw()) }
}

pub(crate) fn write(buffer: BufferHandle, offset: i64, data: &[u8]) -> i32 {
    // SAFETY: the host reads the slice and writes no guest memory.
    unsafe { imports::wasi_cuda_write(buffer.raw(), offset, data.as_ptr(), data.len()) }
}

pub(crate) fn read(buffer: BufferHandle, offset: i64, out: &mut [u8]) -> i32 {
    // SAFETY: the host writes at most `len` bytes at `ptr`, and they are `out`'s.
    unsafe { imports::wasi_cuda_read(buffer.raw(), offset, out.as_mut_ptr(), out.len()) }
}

pub(crate) fn prefetch(range: &[u8], side: i32) -> i32 {
    // SAFETY: the host moves pages and changes nothing that is in them.
    unsafe { imports::wasi_cuda_prefetch(range.as_ptr(), range.len(), side) }
}

pub(crate) fn last_error_len() -> i32 {
    // SAFETY: the host touches no guest memory.
    unsafe { imports::wasi_cuda_last_error_len() }
}

pub(crate) fn last_error_copy(out: &mut [u8]) -> i32 {
    // SAFETY: the host writes at most `len` bytes at `dst`, and they are `out`'s.
    unsafe { imports::wasi_cuda_last_error_copy(out.as_mut_ptr(), out.len()) }
}

pub(crate) fn trap_info(out: &mut [u8]) -> i32 {
    // SAFETY: the host writes at most `len` bytes at `dst`, and they are `out`'s.
    unsafe { imports::wasi_cuda_trap_info(out.as_mut_ptr(), out.len()) }
}

/// Calls one of the two imports that launch, which take the same parameters.
macro_rules! call {
    ($import:ident, $launch:ident) => {{
        let argv = $launch.argv()?;
        let Shape {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared_bytes,
        } = $launch.shape;
        // SAFETY: the host reads `argv`; what the kernel touches is the caller's promise, and the
        // memory that the arguments name is borrowed for as long as `$launch` is there.
        status(unsafe {
            imports::$import(
                $launch.kernel.raw(),
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                shared_bytes,
                argv.as_ptr(),
                argv.len(),
            )
        })
        .map(drop)
    }};
}

impl Launch<'_> {
    /// Runs the kernel and returns when it has ended. It may be run again, with the same arguments.
    ///
    /// # Errors
    ///
    /// What the host answers. Arguments over the caps or outside 32 bits are not sent:
    /// `KernelArgsUnsupported`, `InvalidPointer`.
    ///
    /// # Safety
    ///
    /// With this geometry and these arguments the kernel must write no memory of this guest but
    /// what the arguments lend it: of an [`input`](Self::input) it only reads, and what it leaves
    /// in an [`output`](Self::output) is a value of that type. The host keeps a kernel inside
    /// this guest's memory, and no closer.
    pub unsafe fn run(&mut self) -> Result<(), Error> {
        call!(wasi_cuda_launch, self)
    }

    /// Runs the kernel with all its blocks resident at once, so that they may wait for each other.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); `InvalidDimensions` when the grid does not fit the device at once.
    ///
    /// # Safety
    ///
    /// As for [`run`](Self::run).
    pub unsafe fn run_cooperative(&mut self) -> Result<(), Error> {
        call!(wasi_cuda_launch_cooperative, self)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::mock::{self, Launched};
    use crate::{AbiError, Arg, Buffer, Kernel};
    use abi::argv::{Dialect, decode};
    use abi::{IMPORTS, MODULE, ValType};

    fn core_type(ty: &str) -> ValType {
        match ty {
            "i64" => ValType::I64,
            "i32" | "u32" | "usize" | "*const u8" | "*mut u8" => ValType::I32,
            other => panic!("{other} has no core type here"),
        }
    }

    #[test]
    fn declarations_are_the_abi_and_all_of_it() {
        let imports = IMPORTS.iter().filter(|import| import.module == MODULE);
        assert_eq!(imports.clone().count(), DECLARED.len());
        for (import, (name, params, result)) in imports.zip(DECLARED) {
            assert_eq!(import.name, *name);
            assert!(
                params
                    .iter()
                    .map(|ty| core_type(ty))
                    .eq(import.params.iter().copied()),
                "{name}"
            );
            assert_eq!(core_type(result), import.result, "{name}");
        }
    }

    #[test]
    fn a_launch_arrives_as_it_was_built() {
        let kernel = Kernel::load(mock::PTX, "scale").unwrap();
        let buffer = Buffer::new(64).unwrap();
        let mut launch = kernel.launch((4, 2), 32);
        launch
            .shared_bytes(48)
            .buffer_at(&buffer, 16)
            .arg(0.5_f32)
            .arg(7_u64);
        // SAFETY: the mock runs no kernel.
        unsafe { launch.run() }.unwrap();
        // SAFETY: as above.
        unsafe { launch.run_cooperative() }.unwrap();

        let [plain, cooperative]: [Launched; 2] = mock::launches().try_into().unwrap();
        assert_eq!((plain.entry.as_str(), plain.cooperative), ("scale", false));
        assert_eq!(plain.numbers, [4, 2, 1, 32, 1, 1, 48]);
        let args: Result<Vec<_>, _> = decode(&plain.argv, Dialect::Current).collect();
        let handle = buffer.handle().raw();
        let expected = [
            Arg::Buffer { handle, offset: 16 },
            Arg::F32(0.5),
            Arg::U64(7),
        ];
        assert_eq!(args.as_deref(), Ok(&expected[..]));
        assert!(cooperative.cooperative);
        assert_eq!(
            (cooperative.numbers, cooperative.argv),
            (plain.numbers, plain.argv)
        );
    }

    #[test]
    fn a_launch_that_cannot_be_encoded_is_not_sent() {
        let kernel = Kernel::load(mock::PTX, "scale").unwrap();
        let mut launch = kernel.launch(1, 1);
        launch.bytes(&[0; abi::MAX_ARGV_BYTES]);
        // SAFETY: the mock runs no kernel.
        let error = unsafe { launch.run() }.unwrap_err();
        assert_eq!(error.code(), AbiError::KernelArgsUnsupported);
        assert!(mock::launches().is_empty());
    }

    #[test]
    fn a_refused_launch_has_the_hosts_code_and_text() {
        let kernel = Kernel::load(mock::PTX, "scale").unwrap();
        mock::refuse(AbiError::InvalidDimensions, "a block of 2000 threads");
        // SAFETY: the mock runs no kernel.
        let error = unsafe { kernel.launch(1, 2000).run() }.unwrap_err();
        assert_eq!(error.code(), AbiError::InvalidDimensions);
        let mut text = [0; 64];
        assert_eq!(error.text(&mut text), Some("a block of 2000 threads"));
    }
}
