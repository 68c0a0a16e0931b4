//! What an operation can answer instead of success, and the one map from there to the codes that guests see.

use abi::AbiError;
use abi::argv::DecodeError;

/// Why an import refused or failed. The text is what `wasi_cuda_last_error_copy` gives the guest, so it holds no host address,
/// path or other guest's data.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the text of each variant says what it is and names its fields"
)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "argument {index} is {len} bytes from {at}, which ends past the {size} bytes of memory"
    )]
    ArgumentPastEnd {
        index: usize,
        at: u32,
        len: u32,
        size: u64,
    },
    #[error("argument {index} is at byte {at} of a buffer of {size} bytes")]
    ArgumentPastBuffer { index: usize, at: u64, size: u64 },
    #[error("{0}")]
    Argv(DecodeError),
    #[error("{what} of {len} bytes at {at} does not lie in the buffer of {size} bytes")]
    BufferRange {
        what: &'static str,
        at: u64,
        len: u64,
        size: u64,
    },
    #[error(
        "argument {index}: the buffer was carved from another memory than the one the kernel runs on"
    )]
    BufferOfOtherMemory { index: usize },
    #[error("wasi_cuda is not enabled for this instance")]
    Disabled,
    #[error("{0}")]
    Device(#[from] device::Error),
    #[error("no buffer {handle} of this instance")]
    InvalidHandle { handle: i64 },
    #[error("no kernel {handle} of this instance")]
    InvalidKernel { handle: i64 },
    #[error("{what} broke in the host; this is a bug in the host")]
    Internal { what: &'static str },
    #[error("kernel {handle} was registered by the embedder and cannot be unloaded")]
    KernelOfEmbedder { handle: i64 },
    #[error("kernel `{entry}` is a stub without code")]
    KernelStub { entry: String },
    #[error(
        "the guest's memory is plain host memory that the device cannot address (see `engine_config`)"
    )]
    MemoryNotOfDevice,
    #[error("the guest exports no 32-bit unshared memory named `memory`")]
    NoMemory,
    #[error("no registered kernel `{name}` of this instance")]
    NoSuchName { name: String },
    #[error("the kernel's module has no variable `{name}` that others may name")]
    NoSuchVariable { name: String },
    #[error("no device: {reason}")]
    NoDevice { reason: String },
    #[error("{what} of {len} bytes from {at} ends past the {size} bytes of memory")]
    PastEnd {
        what: &'static str,
        at: u32,
        len: u32,
        size: u64,
    },
    #[error("{what} is not UTF-8")]
    NotUtf8 { what: &'static str },
    #[error("{what}: {given} given, the limit is {limit}")]
    Quota {
        what: &'static str,
        given: u64,
        limit: u64,
    },
    #[error(
        "an earlier kernel of this instance did not stop; its memory is quarantined until the store is dropped"
    )]
    Stuck,
    #[error(
        "the variables of a kernel whose accesses are checked one by one cannot be reached by guests"
    )]
    SymbolUnsupported,
    #[error("the kernel cannot be confined, being too large: {reason}")]
    TooLargeToConfine { reason: String },
    #[error(
        "the text has variables in global space, which lie in the memory of the instance that loads it; an embedder cannot register its kernels isolated"
    )]
    VariablesWithoutMemory,
    #[error("{what} is {given}, expected {expected}")]
    Value {
        what: &'static str,
        given: i64,
        expected: &'static str,
    },
}

impl Error {
    /// The code that a guest receives.
    #[must_use]
    pub fn abi(&self) -> AbiError {
        match self {
            Self::ArgumentPastEnd { .. }
            | Self::ArgumentPastBuffer { .. }
            | Self::NoMemory
            | Self::PastEnd { .. } => AbiError::InvalidPointer,
            Self::Argv(error) => error.abi(),
            Self::BufferRange { .. }
            | Self::NoSuchVariable { .. }
            | Self::NotUtf8 { .. }
            | Self::Value { .. } => AbiError::InvalidArgs,
            Self::BufferOfOtherMemory { .. } | Self::InvalidHandle { .. } => {
                AbiError::InvalidHandle
            }
            Self::Disabled | Self::NoDevice { .. } => AbiError::NotAvailable,
            Self::Device(error) => device_code(error),
            Self::Internal { .. } => AbiError::Internal,
            Self::InvalidKernel { .. }
            | Self::KernelOfEmbedder { .. }
            | Self::KernelStub { .. }
            | Self::NoSuchName { .. } => AbiError::InvalidKernel,
            Self::MemoryNotOfDevice => AbiError::LaunchFailed,
            Self::Quota { .. } => AbiError::QuotaExceeded,
            Self::Stuck => AbiError::DeadlineExceeded,
            Self::SymbolUnsupported
            | Self::TooLargeToConfine { .. }
            | Self::VariablesWithoutMemory => AbiError::UnsupportedPtx,
        }
    }
}

fn device_code(error: &device::Error) -> AbiError {
    use device::Error as E;
    match error {
        E::ArgumentCount { .. } | E::ArgumentType { .. } => AbiError::InvalidArgs,
        E::NotAvailable { .. } => AbiError::NotAvailable,
        E::BlockAxis { .. }
        | E::BlockThreads { .. }
        | E::BlockRequired { .. }
        | E::GridAxis { .. }
        | E::GridBlocks { .. }
        | E::GridCooperative { .. }
        | E::SharedBytes { .. }
        | E::SharedBytesConfined { .. } => AbiError::InvalidDimensions,
        E::NotAddressable { .. } | E::Backend { .. } | E::Driver { .. } => AbiError::LaunchFailed,
        E::Trap(_) => AbiError::KernelTrap,
        E::Stopped(_) => AbiError::DeadlineExceeded,
        E::DeviceLost { .. } => AbiError::DeviceLost,
        E::Busy { .. } | E::OutOfMemory { .. } => AbiError::QuotaExceeded,
        E::Compile { .. } | E::EntryMissing { .. } => AbiError::MalformedPtx,
        E::CompileLimit(_) | E::Unsupported { .. } => AbiError::UnsupportedPtx,
        E::Ptx(error) if error.is_unsupported() => AbiError::UnsupportedPtx,
        E::Ptx(_) => AbiError::MalformedPtx,
    }
}
