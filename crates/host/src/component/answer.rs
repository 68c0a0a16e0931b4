//! Answers of operations as values of the component interface.

use abi::AbiError;
use abi::info::{self, DeviceInfo, KernelInfo, PARAM_FLAG_PTR, ParamClass};

use super::api;
use crate::context::{Shared, clip};
use crate::error::Error;

/// A failure, recorded as every other is.
pub(super) fn failure(shared: &Shared, error: &Error) -> api::Error {
    let code = shared.fail(error);
    let message = match error {
        Error::Disabled => String::new(),
        error => clip(&error.to_string()).into_owned(),
    };
    let trap = match error {
        Error::Device(device::Error::Trap(trap)) => Some(api::Trap {
            kind: trap_kind(trap.kind),
            line: trap.line,
            block: extent(trap.block),
            thread: extent(trap.thread),
            access: trap.access.map(|access| api::Access {
                bytes: access.bytes,
                address: access.address,
            }),
        }),
        _ => None,
    };
    let code = error_code(code);
    api::Error {
        code,
        message,
        trap,
    }
}

fn error_code(code: AbiError) -> api::ErrorCode {
    use api::ErrorCode as E;
    match code {
        AbiError::NotAvailable => E::NotAvailable,
        AbiError::InvalidPointer => E::InvalidPointer,
        AbiError::InvalidKernel => E::InvalidKernel,
        AbiError::MalformedPtx => E::MalformedPtx,
        AbiError::LaunchFailed => E::LaunchFailed,
        AbiError::QuotaExceeded => E::QuotaExceeded,
        AbiError::InvalidDimensions => E::InvalidDimensions,
        AbiError::InvalidArgs => E::InvalidArgs,
        AbiError::KernelArgsUnsupported => E::KernelArgsUnsupported,
        AbiError::InvalidHandle => E::InvalidHandle,
        AbiError::DeviceLost => E::DeviceLost,
        AbiError::KernelTrap => E::KernelTrap,
        AbiError::DeadlineExceeded => E::DeadlineExceeded,
        AbiError::UnsupportedPtx => E::UnsupportedPtx,
        // A code that this version of the interface has no case for cannot be said more exactly.
        _ => E::Internal,
    }
}

fn trap_kind(kind: device::TrapKind) -> api::TrapKind {
    use device::TrapKind as K;
    match kind {
        K::BarrierDeadlock => api::TrapKind::BarrierDeadlock,
        K::CallDepth => api::TrapKind::CallDepth,
        K::Misaligned => api::TrapKind::Misaligned,
        K::OutOfBounds => api::TrapKind::OutOfBounds,
        K::TrapInstruction => api::TrapKind::TrapInstruction,
    }
}

fn extent([x, y, z]: [u32; 3]) -> api::Extent {
    api::Extent { x, y, z }
}

/// What `device_info` wrote.
pub(super) fn device_info(written: &[u8]) -> Result<api::DeviceInfo, Error> {
    let info = DeviceInfo::from_bytes(written);
    let kind = match info::DeviceKind::from_number(info.kind) {
        Some(info::DeviceKind::Cpu) => api::DeviceKind::Cpu,
        Some(info::DeviceKind::Cuda) => api::DeviceKind::Cuda,
        _ => {
            return Err(Error::Internal {
                what: "device info",
            });
        }
    };
    let features = [
        (info::FEATURE_COOPERATIVE, api::Features::COOPERATIVE),
        (info::FEATURE_TRAPPING, api::Features::TRAPPING),
        (info::FEATURE_CONFINED, api::Features::CONFINED),
        (info::FEATURE_SYMBOL, api::Features::SYMBOL),
    ];
    let features = features
        .into_iter()
        .filter(|(bit, _)| info.features & bit != 0)
        .fold(api::Features::empty(), |all, (_, feature)| all | feature);
    Ok(api::DeviceInfo {
        kind,
        name: info.name_str().into(),
        compute_capability: (info.compute_major, info.compute_minor),
        multiprocessors: info.multiprocessors,
        max_threads_per_block: info.max_threads_per_block,
        max_block: extent(info.max_block),
        max_grid: extent(info.max_grid),
        warp_size: info.warp_size,
        max_shared_bytes: info.max_shared_bytes,
        features,
    })
}

/// What `kernel_info` wrote.
pub(super) fn kernel_info(written: &[u8]) -> api::KernelInfo {
    let info = KernelInfo::from_bytes(written);
    let params = KernelInfo::params(written).map(|param| api::ParamInfo {
        offset: param.offset,
        size: param.size,
        align: param.align,
        class: param_class(param.class),
        is_pointer: param.flags & PARAM_FLAG_PTR != 0,
    });
    api::KernelInfo {
        max_threads: info.max_threads,
        static_shared_bytes: info.static_shared_bytes,
        registers: info.registers,
        local_bytes: info.local_bytes,
        params: params.collect(),
    }
}

fn param_class(class: u32) -> api::ParamClass {
    match ParamClass::from_number(class) {
        Some(ParamClass::Bytes) => api::ParamClass::Bytes,
        Some(ParamClass::Float) => api::ParamClass::Float,
        Some(ParamClass::Integer) => api::ParamClass::Integer,
        _ => api::ParamClass::Bits,
    }
}
