//! The argv side of the embedder API: encode, parse and lay out kernel arguments without a guest.

use abi::AbiError;
use abi::argv::{self, Arg, Dialect};
pub use device::ParamStorage as KernelParamStorage;

/// A kernel argument. Pointers are offsets in guest memory; no variant ever holds a host address.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "each scalar variant is the Rust type of the same name"
)]
#[non_exhaustive]
pub enum LoweredArg {
    /// A place in a device buffer.
    Buffer {
        handle: i64,
        offset: u64,
    },
    /// A value of any size, passed as it is.
    Bytes(Vec<u8>),
    F32(f32),
    F64(f64),
    I32(i32),
    I64(i64),
    /// A range of guest memory.
    Ptr {
        offset: u32,
        len: u32,
    },
    U32(u32),
    U64(u64),
}

/// A recorded argument: the argument itself, since none holds a host address.
pub type LoweredArgSnapshot = LoweredArg;

impl LoweredArg {
    /// A pointer to `len` bytes at `offset` of guest memory.
    #[must_use]
    pub fn ptr_for_encoding(offset: u32, len: u32) -> Self {
        Self::Ptr { offset, len }
    }

    fn as_arg(&self) -> Arg<'_> {
        match *self {
            Self::Buffer { handle, offset } => Arg::Buffer { handle, offset },
            Self::Bytes(ref bytes) => Arg::Bytes(bytes),
            Self::F32(value) => Arg::F32(value),
            Self::F64(value) => Arg::F64(value),
            Self::I32(value) => Arg::I32(value),
            Self::I64(value) => Arg::I64(value),
            Self::Ptr { offset, len } => Arg::Ptr { offset, len },
            Self::U32(value) => Arg::U32(value),
            Self::U64(value) => Arg::U64(value),
        }
    }
}

impl From<Arg<'_>> for LoweredArg {
    fn from(arg: Arg<'_>) -> Self {
        match arg {
            Arg::Buffer { handle, offset } => Self::Buffer { handle, offset },
            Arg::Bytes(bytes) => Self::Bytes(bytes.into()),
            Arg::F32(value) => Self::F32(value),
            Arg::F64(value) => Self::F64(value),
            Arg::I32(value) => Self::I32(value),
            Arg::I64(value) => Self::I64(value),
            Arg::Ptr { offset, len } => Self::Ptr { offset, len },
            Arg::U32(value) => Self::U32(value),
            Arg::U64(value) => Self::U64(value),
        }
    }
}

/// Encodes arguments as a guest of module `wasi_cuda` does.
///
/// # Errors
/// [`KernelArgsUnsupported`](AbiError::KernelArgsUnsupported) if they are over the caps on argv.
pub fn encode_argv(args: &[LoweredArg]) -> Result<Vec<u8>, AbiError> {
    let args: Vec<Arg<'_>> = args.iter().map(LoweredArg::as_arg).collect();
    let mut bytes = vec![0; args.iter().map(Arg::encoded_len).sum()];
    argv::encode(&args, &mut bytes).map_err(|_| AbiError::KernelArgsUnsupported)?;
    Ok(bytes)
}

/// Decodes argv bytes of module `wasi_cuda`; ranges of guest memory must lie in `memory_bytes` bytes.
///
/// # Errors
/// The code that a guest would receive.
pub fn parse_argv(bytes: &[u8], memory_bytes: u64) -> Result<Vec<LoweredArg>, AbiError> {
    let args = argv::decode(bytes, Dialect::Current).map(|arg| {
        match arg.map_err(|error| error.abi())? {
            Arg::Ptr { offset, len } if u64::from(offset) + u64::from(len) > memory_bytes => {
                Err(AbiError::InvalidPointer)
            }
            arg => Ok(arg.into()),
        }
    });
    args.collect()
}

/// Lays arguments out in one buffer: each at its natural alignment, in order, one slot each. Pointers and buffers take 8 bytes,
/// which hold the offset: bytes come unaligned.
#[must_use]
pub fn build_kernel_param_storage(args: &[LoweredArg]) -> KernelParamStorage {
    let mut storage = KernelParamStorage::default();
    for arg in args {
        match *arg {
            LoweredArg::Buffer { offset, .. } => storage.push(8, &offset.to_le_bytes()),
            LoweredArg::Bytes(ref bytes) => storage.push(1, bytes),
            LoweredArg::F32(value) => storage.push(4, &value.to_le_bytes()),
            LoweredArg::F64(value) => storage.push(8, &value.to_le_bytes()),
            LoweredArg::I32(value) => storage.push(4, &value.to_le_bytes()),
            LoweredArg::I64(value) => storage.push(8, &value.to_le_bytes()),
            LoweredArg::Ptr { offset, .. } => storage.push(8, &u64::from(offset).to_le_bytes()),
            LoweredArg::U32(value) => storage.push(4, &value.to_le_bytes()),
            LoweredArg::U64(value) => storage.push(8, &value.to_le_bytes()),
        }
    }
    storage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<LoweredArg> {
        vec![
            LoweredArg::I32(-1),
            LoweredArg::I64(i64::MIN),
            LoweredArg::F32(1.5),
            LoweredArg::F64(-0.25),
            LoweredArg::U32(u32::MAX),
            LoweredArg::U64(u64::MAX),
            LoweredArg::ptr_for_encoding(16, 32),
            LoweredArg::Buffer {
                handle: 7,
                offset: 8,
            },
            LoweredArg::Bytes(vec![1, 2, 3]),
        ]
    }

    #[test]
    fn what_is_encoded_is_parsed() {
        let args = one_of_each();
        let bytes = encode_argv(&args).unwrap();
        assert_eq!(parse_argv(&bytes, 48), Ok(args));
        assert_eq!(parse_argv(&bytes, 47), Err(AbiError::InvalidPointer));
        assert_eq!(
            parse_argv(&bytes[..bytes.len() - 1], 48),
            Err(AbiError::InvalidArgs)
        );
        assert_eq!(parse_argv(&[0xff], 48), Err(AbiError::InvalidArgs));
        assert_eq!(
            encode_argv(&vec![LoweredArg::U32(0); 129]),
            Err(AbiError::KernelArgsUnsupported)
        );
    }

    #[test]
    fn sixteen_scalars_share_one_buffer_with_every_slot_inside_it() {
        let args: Vec<_> = (0..16)
            .map(|i| {
                if i % 2 == 0 {
                    LoweredArg::U32(i)
                } else {
                    LoweredArg::F64(0.0)
                }
            })
            .collect();
        let storage = build_kernel_param_storage(&args);
        assert_eq!(storage.len(), 16);
        let buffer = storage.backing().as_ptr_range();
        let mut end = buffer.start;
        for (slot, (pointer, arg)) in storage.slots().iter().zip(storage.slot_ptrs().zip(&args)) {
            let size = if matches!(arg, LoweredArg::U32(_)) {
                4
            } else {
                8
            };
            assert_eq!(slot % size, 0, "natural alignment");
            assert!(pointer >= end && pointer.addr() + size as usize <= buffer.end.addr());
            end = pointer;
        }
        assert_eq!(storage.backing()[..4], 0_u32.to_le_bytes());
        assert_eq!(storage.backing().len(), 8 * 16);
    }
}
