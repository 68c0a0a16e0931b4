//! The component interface in `wit/`: it is well formed, and its codes are those of the core ABI.

use abi::AbiError;

mod bindings {
    wasmtime::component::bindgen!({ path: "../wit", world: "wasi-cuda:cuda/guest" });
}

use bindings::wasi_cuda::cuda::api::ErrorCode;

#[test]
fn the_codes_of_components_are_those_of_core_modules_in_the_same_order() {
    use ErrorCode as E;
    let codes = [
        E::NotAvailable,
        E::InvalidPointer,
        E::InvalidKernel,
        E::MalformedPtx,
        E::LaunchFailed,
        E::QuotaExceeded,
        E::Internal,
        E::InvalidDimensions,
        E::InvalidArgs,
        E::KernelArgsUnsupported,
        E::InvalidHandle,
        E::DeviceLost,
        E::KernelTrap,
        E::DeadlineExceeded,
        E::UnsupportedPtx,
    ];
    assert_eq!(codes.len(), AbiError::ALL.len());
    for (index, (code, core)) in codes.into_iter().zip(AbiError::ALL).enumerate() {
        assert_eq!(format!("{code:?}"), format!("ErrorCode::{}", core.name()));
        assert_eq!(code as usize, index);
    }
}
