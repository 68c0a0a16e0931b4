//! The limits that are part of the contract. Those that an embedder sets live in the host.

/// Bytes of argv in one launch; more is [`KernelArgsUnsupported`](crate::AbiError).
pub const MAX_ARGV_BYTES: usize = 4096;

/// Records of argv in one launch; more is [`KernelArgsUnsupported`](crate::AbiError).
pub const MAX_ARGV_RECORDS: usize = 128;

/// Bytes of a name of a kernel or a symbol; more is [`QuotaExceeded`](crate::AbiError).
pub const MAX_ENTRY_NAME_BYTES: usize = 256;

/// Bytes of PTX in one load; more is [`QuotaExceeded`](crate::AbiError).
pub const MAX_PTX_BYTES: usize = 8 << 20;

/// Bytes of the last-error text; a longer one is cut at a character boundary and ends in "…".
pub const LAST_ERROR_BYTES: usize = 512;
