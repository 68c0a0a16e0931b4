//! The imports of module `wasi_cuda`, each behind a function that takes slices; and
//! [`Launch::run`], which is for its caller to vouch for. No other file of this crate is unsafe.
#![expect(unsafe_code, reason = "imports that read and write guest memory")]

use abi::KernelHandle;

use crate::error::{Error, status};
use crate::launch::Launch;

/// Declares imports. On a target that has no host, functions of the same names answer
/// `NotAvailable`.
macro_rules! imports {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $result:ty;)*) => {
        #[cfg(target_arch = "wasm32")]
        mod imports {
            #[link(wasm_import_module = "wasi_cuda")]
            unsafe extern "C" {
                $(pub(super) fn $name($($arg: $ty),*) -> $result;)*
            }
        }

        #[cfg(not(target_arch = "wasm32"))]
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
    fn wasi_cuda_device_info(dst: *mut u8, len: usize) -> i32;
    fn wasi_cuda_last_error_copy(dst: *mut u8, len: usize) -> i32;
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
    fn wasi_cuda_load_ptx(
        ptx: *const u8,
        ptx_len: usize,
        entry: *const u8,
        entry_len: usize
    ) -> i64;
    fn wasi_cuda_unload(kernel: i64) -> i32;
}

pub(crate) fn device_info(out: &mut [u8]) -> i32 {
    // SAFETY: the host writes at most `len` bytes at `dst`, and they are `out`'s.
    unsafe { imports::wasi_cuda_device_info(out.as_mut_ptr(), out.len()) }
}

pub(crate) fn last_error_copy(out: &mut [u8]) -> i32 {
    // SAFETY: the host writes at most `len` bytes at `dst`, and they are `out`'s.
    unsafe { imports::wasi_cuda_last_error_copy(out.as_mut_ptr(), out.len()) }
}

pub(crate) fn load_ptx(ptx: &[u8], entry: &[u8]) -> i64 {
    let (ptx, ptx_len) = (ptx.as_ptr(), ptx.len());
    let (entry, entry_len) = (entry.as_ptr(), entry.len());
    // SAFETY: the host reads the two slices and writes no guest memory.
    unsafe { imports::wasi_cuda_load_ptx(ptx, ptx_len, entry, entry_len) }
}

pub(crate) fn unload(kernel: KernelHandle) -> i32 {
    // SAFETY: the host touches no guest memory; a wrong handle is answered with a code.
    unsafe { imports::wasi_cuda_unload(kernel.raw()) }
}

impl Launch<'_> {
    /// Runs the kernel and returns when it has ended.
    ///
    /// # Errors
    ///
    /// What the host answers; [`last_error`](crate::last_error) has a text about it. Arguments
    /// over the caps or outside 32 bits are not sent, and leave no text.
    ///
    /// # Safety
    ///
    /// With this geometry and these arguments the kernel must write no memory of this guest but
    /// what the arguments lend it: of an [`input`](Self::input) it only reads, and what it leaves
    /// in an [`output`](Self::output) is a value of that type. The host keeps a kernel inside
    /// this guest's memory, and no closer.
    pub unsafe fn run(self) -> Result<(), Error> {
        let argv = self.argv()?;
        let [grid_x, grid_y, grid_z] = self.grid;
        let [block_x, block_y, block_z] = self.block;
        // SAFETY: the host reads `argv`; what the kernel touches is the caller's promise, and the
        // memory that the arguments name is borrowed for the lifetime of `self`.
        let answer = unsafe {
            imports::wasi_cuda_launch(
                self.kernel.raw(),
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                self.shared_bytes,
                argv.as_ptr(),
                argv.len(),
            )
        };
        status(answer).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::{IMPORTS, MODULE, ValType};

    fn core_type(ty: &str) -> ValType {
        match ty {
            "i64" => ValType::I64,
            "i32" | "u32" | "usize" | "*const u8" | "*mut u8" => ValType::I32,
            other => panic!("{other} has no core type here"),
        }
    }

    #[test]
    fn declarations_match_the_abi() {
        for (name, params, result) in DECLARED {
            let mut found = IMPORTS
                .iter()
                .filter(|import| (import.module, import.name) == (MODULE, name));
            let import = found.next().expect("an import of the module");
            assert!(
                params
                    .iter()
                    .map(|ty| core_type(ty))
                    .eq(import.params.iter().copied())
            );
            assert_eq!(core_type(result), import.result, "{name}");
        }
    }
}
