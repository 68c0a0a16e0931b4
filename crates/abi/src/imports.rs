//! The import modules and functions: names, core types and one line each. What an import does is
//! in the host; how it is declared in a guest is in the guest SDK.

/// The import module of this ABI.
pub const MODULE: &str = "wasi_cuda";

/// The import module of the earlier system, whose nine functions are served unchanged.
pub const MODULE_V0_2: &str = "wasi:cuda/host@0.2.0";

/// The version of this ABI, `major << 16 | minor`: what `wasi_cuda_abi_version` answers.
pub const VERSION: i32 = 1 << 16;

/// The export under which a guest's memory is looked up.
pub const MEMORY_EXPORT: &str = "memory";

/// `wasi_cuda_prefetch`: bring the range to the host.
pub const PREFETCH_HOST: i32 = 0;

/// `wasi_cuda_prefetch`: bring the range to the device.
pub const PREFETCH_DEVICE: i32 = 1;

/// A core WebAssembly type that an import takes or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValType {
    /// 32 bits: an offset, a length, a count or a status.
    I32,
    /// 64 bits: a handle or a size.
    I64,
}

impl ValType {
    /// The type's name in the WebAssembly text format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ValType::I32 => "i32",
            ValType::I64 => "i64",
        }
    }
}

/// One import function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    /// The import module: [`MODULE`] or [`MODULE_V0_2`].
    pub module: &'static str,
    /// The function's name, which is also its C symbol.
    pub name: &'static str,
    /// The names of the parameters, one for each of `params`.
    pub param_names: &'static [&'static str],
    /// The types of the parameters.
    pub params: &'static [ValType],
    /// The type of the one result.
    pub result: ValType,
    /// What it does, in one line.
    pub summary: &'static str,
}

macro_rules! imports {
    ($($module:ident $function:ident ($($param:ident: $ty:ident),*) -> $result:ident $summary:literal;)*) => {
        /// Every import of both modules, in the order of the documentation.
        pub const IMPORTS: &[Import] = &[
            $(Import {
                module: $module,
                name: $function,
                param_names: &[$(stringify!($param)),*],
                params: &[$(ValType::$ty),*],
                result: ValType::$result,
                summary: $summary,
            },)*
        ];
    };
}

macro_rules! names {
    ($($function:ident = $name:literal;)*) => {
        $(
            #[doc = concat!("The name of `", $name, "`.")]
            pub const $function: &str = $name;
        )*
    };
}

names! {
    FN_ABI_VERSION = "wasi_cuda_abi_version";
    FN_ALLOC = "wasi_cuda_alloc";
    FN_DEVICE_INFO = "wasi_cuda_device_info";
    FN_FIND_KERNEL = "wasi_cuda_find_kernel";
    FN_FREE = "wasi_cuda_free";
    FN_KERNEL_INFO = "wasi_cuda_kernel_info";
    FN_LAST_ERROR_COPY = "wasi_cuda_last_error_copy";
    FN_LAST_ERROR_LEN = "wasi_cuda_last_error_len";
    FN_LAUNCH = "wasi_cuda_launch";
    FN_LAUNCH_COOPERATIVE = "wasi_cuda_launch_cooperative";
    FN_LOAD_PTX = "wasi_cuda_load_ptx";
    FN_MEMCPY_D2H = "wasi_cuda_memcpy_d2h";
    FN_MEMCPY_H2D = "wasi_cuda_memcpy_h2d";
    FN_PREFETCH = "wasi_cuda_prefetch";
    FN_READ = "wasi_cuda_read";
    FN_SYMBOL = "wasi_cuda_symbol";
    FN_SYNC = "wasi_cuda_sync";
    FN_TRAP_INFO = "wasi_cuda_trap_info";
    FN_UNLOAD = "wasi_cuda_unload";
    FN_WRITE = "wasi_cuda_write";
}

imports! {
    MODULE FN_ABI_VERSION() -> I32
        "the version of this ABI: the major number in the upper 16 bits, the minor in the lower";
    MODULE FN_DEVICE_INFO(dst: I32, len: I32) -> I32
        "write `DeviceInfo`, answer its full size";
    MODULE FN_LOAD_PTX(ptx: I32, ptx_len: I32, entry: I32, entry_len: I32) -> I64
        "check and compile PTX, answer a handle of one of its kernels";
    MODULE FN_FIND_KERNEL(name: I32, len: I32) -> I64
        "a handle of a kernel that the embedder registered for this instance";
    MODULE FN_SYMBOL(kernel: I64, name: I32, len: I32) -> I64
        "a buffer over a variable of the kernel's module";
    MODULE FN_UNLOAD(kernel: I64) -> I32
        "give a kernel back";
    MODULE FN_KERNEL_INFO(kernel: I64, dst: I32, len: I32) -> I32
        "write `KernelInfo` and its parameters, answer their full size";
    MODULE FN_LAUNCH(
        kernel: I64,
        grid_x: I32, grid_y: I32, grid_z: I32,
        block_x: I32, block_y: I32, block_z: I32,
        shared_bytes: I32, argv: I32, argv_len: I32
    ) -> I32
        "run a kernel; answers when it has ended";
    MODULE FN_LAUNCH_COOPERATIVE(
        kernel: I64,
        grid_x: I32, grid_y: I32, grid_z: I32,
        block_x: I32, block_y: I32, block_z: I32,
        shared_bytes: I32, argv: I32, argv_len: I32
    ) -> I32
        "run a kernel with all its blocks resident at once";
    MODULE FN_SYNC() -> I32
        "wait for this instance's work";
    MODULE FN_ALLOC(bytes: I64) -> I64
        "a device buffer";
    MODULE FN_FREE(buffer: I64) -> I32
        "give a device buffer back";
    MODULE FN_WRITE(buffer: I64, offset: I64, ptr: I32, len: I32) -> I32
        "copy guest memory into a device buffer";
    MODULE FN_READ(buffer: I64, offset: I64, ptr: I32, len: I32) -> I32
        "copy from a device buffer into guest memory";
    MODULE FN_PREFETCH(ptr: I32, len: I32, side: I32) -> I32
        "hint that a range is wanted on the host (0) or on the device (1)";
    MODULE FN_LAST_ERROR_LEN() -> I32
        "bytes of the text of the last failure, 0 if there is none";
    MODULE FN_LAST_ERROR_COPY(dst: I32, len: I32) -> I32
        "copy that text, answer the bytes copied";
    MODULE FN_TRAP_INFO(dst: I32, len: I32) -> I32
        "write `TrapInfo` of the last kernel trap, answer its full size";

    MODULE_V0_2 FN_LOAD_PTX(ptx: I32, ptx_len: I32, entry: I32, entry_len: I32) -> I64
        "check and compile PTX, answer a kernel id";
    MODULE_V0_2 FN_LAUNCH(
        kernel: I64,
        grid_x: I32, grid_y: I32, grid_z: I32,
        block_x: I32, block_y: I32, block_z: I32,
        shared_bytes: I32, argv: I32, argv_len: I32
    ) -> I32
        "run a kernel; answers when it has ended";
    MODULE_V0_2 FN_SYNC() -> I32
        "wait for this instance's work";
    MODULE_V0_2 FN_LAST_ERROR_LEN() -> I32
        "bytes of the text of the last failure, 0 if there is none";
    MODULE_V0_2 FN_LAST_ERROR_COPY(dst: I32, len: I32) -> I32
        "copy that text, answer the bytes copied";
    MODULE_V0_2 FN_ALLOC(size_lo: I32, size_hi: I32) -> I64
        "a device buffer";
    MODULE_V0_2 FN_FREE(handle_lo: I32, handle_hi: I32) -> I32
        "give a device buffer back";
    MODULE_V0_2 FN_MEMCPY_H2D(handle_lo: I32, handle_hi: I32, src: I32, len: I32) -> I32
        "copy guest memory to the start of a device buffer";
    MODULE_V0_2 FN_MEMCPY_D2H(dst: I32, handle_lo: I32, handle_hi: I32, len: I32) -> I32
        "copy from the start of a device buffer into guest memory";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_modules_are_whole_and_no_name_is_listed_twice() {
        assert_eq!(IMPORTS.iter().filter(|i| i.module == MODULE).count(), 18);
        assert_eq!(
            IMPORTS.iter().filter(|i| i.module == MODULE_V0_2).count(),
            9
        );
        for (index, import) in IMPORTS.iter().enumerate() {
            let later = &IMPORTS[index + 1..];
            assert!(
                !later
                    .iter()
                    .any(|i| (i.module, i.name) == (import.module, import.name))
            );
            assert_eq!(import.param_names.len(), import.params.len());
            assert!(import.name.starts_with("wasi_cuda_"));
        }
    }

    #[test]
    fn launch_takes_one_handle_and_nine_numbers_in_both_modules() {
        use ValType::{I32, I64};
        let launches = IMPORTS.iter().filter(|i| i.name == FN_LAUNCH);
        let expected = [I64, I32, I32, I32, I32, I32, I32, I32, I32, I32];
        assert_eq!(launches.clone().count(), 2);
        for launch in launches {
            assert_eq!((launch.params, launch.result), (&expected[..], I32));
        }
    }
}
