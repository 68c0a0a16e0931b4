//! What can go wrong between a caller and a device, as data. No text here holds a host address.

use std::fmt;
use std::time::Duration;

/// Everything a device or a launch can answer instead of success.
///
/// The enum is exhaustive on purpose: whoever turns these into codes for guests must decide about each.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the text of each variant says what it is and names its fields"
)]
pub enum Error {
    #[error("kernel `{kernel}` declares {declared} arguments, {given} given")]
    ArgumentCount {
        kernel: String,
        declared: usize,
        given: usize,
    },
    #[error("argument {index} is {given}, kernel `{kernel}` declares {declared}")]
    ArgumentType {
        kernel: String,
        index: usize,
        declared: String,
        given: String,
    },
    #[error("no device: {reason}")]
    NotAvailable { reason: String },
    #[error("too much waits already: {limit} {what} is the limit")]
    Busy { what: &'static str, limit: usize },
    #[error("block is {given} threads along {axis}, the limit is {limit}")]
    BlockAxis { axis: char, given: u32, limit: u32 },
    #[error("block has {given} threads, the limit is {limit}")]
    BlockThreads { given: u64, limit: u32 },
    #[error("block is {given:?} threads, kernel `{kernel}` requires {required:?}")]
    BlockRequired {
        kernel: String,
        given: [u32; 3],
        required: [u32; 3],
    },
    #[error("grid is {given} blocks along {axis}, the limit is {limit}")]
    GridAxis { axis: char, given: u32, limit: u32 },
    #[error("grid has {given} blocks, the limit is {limit}")]
    GridBlocks { given: u128, limit: u64 },
    #[error(
        "cooperative grid has {given} blocks, {limit} of this kernel fit on the device at once"
    )]
    GridCooperative { given: u128, limit: u64 },
    #[error(
        "{dynamic} bytes of dynamic and {fixed} of static shared memory are over the limit of {limit}"
    )]
    SharedBytes {
        dynamic: u32,
        fixed: u32,
        limit: u32,
    },
    #[error(
        "{given} bytes of dynamic shared memory, {dynamic} as the kernel is confined, and {fixed} of static are over the limit of {limit}"
    )]
    SharedBytesConfined {
        given: u32,
        dynamic: u32,
        fixed: u32,
        limit: u32,
    },
    #[error("argument {index}: {reason}")]
    NotAddressable { index: usize, reason: &'static str },
    #[error("kernel trap: {0}")]
    Trap(Trap),
    #[error("kernel stopped: {0}")]
    Stopped(StopReason),
    #[error("device lost: {reason}; the process must be restarted to use it again")]
    DeviceLost { reason: String },
    #[error("{what} needs {requested} bytes, {available} are available")]
    OutOfMemory {
        what: &'static str,
        requested: u64,
        available: u64,
    },
    #[error("the PTX does not compile: {log}")]
    Compile { log: String },
    #[error("the PTX was not compiled: {0}")]
    CompileLimit(CompileLimit),
    #[error("{what} failed: {text} ({name}, {code})")]
    Driver {
        what: &'static str,
        code: u32,
        name: String,
        text: String,
    },
    #[error("no entry `{name}`; the module has {entries}")]
    EntryMissing { name: String, entries: String },
    #[error("line {line}: {what} is not supported by the {device} device")]
    Unsupported {
        device: &'static str,
        line: u32,
        what: String,
    },
    #[error("{0}")]
    Ptx(#[from] ptx::Error),
    #[error("{what} failed: {reason}")]
    Backend { what: &'static str, reason: String },
}

/// What compiling a text took too much of. The process that compiled it was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompileLimit {
    /// Memory of the host.
    Memory {
        /// The limit.
        bytes: u64,
    },
    /// Time.
    Time {
        /// The limit.
        limit: Duration,
    },
}

impl fmt::Display for CompileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { bytes } => {
                write!(f, "it takes more than the limit of {bytes} bytes of memory")
            }
            Self::Time { limit } => write!(f, "it takes longer than the limit of {limit:?}"),
        }
    }
}

/// Why a kernel was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The launch's instruction budget is used up.
    Budget,
    /// The launch's deadline has passed.
    Deadline,
    /// Whoever waited for it has gone.
    Requested,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Budget => "its instruction budget is used up",
            Self::Deadline => "its deadline has passed",
            Self::Requested => "the caller has gone",
        })
    }
}

/// What a kernel did that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrapKind {
    /// A barrier that can never be complete.
    BarrierDeadlock,
    /// Calls nested deeper than the device allows.
    CallDepth,
    /// An access whose address is no multiple of its width.
    Misaligned,
    /// An access outside the memory that the kernel may touch.
    OutOfBounds,
    /// `trap`, or a failed assertion.
    TrapInstruction,
}

impl fmt::Display for TrapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BarrierDeadlock => "barrier that can never be complete",
            Self::CallDepth => "calls nested too deep",
            Self::Misaligned => "misaligned access",
            Self::OutOfBounds => "access out of bounds",
            Self::TrapInstruction => "trap instruction",
        })
    }
}

/// Report of a kernel trap: what, where in the source, and which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// What happened.
    pub kind: TrapKind,
    /// Line in the PTX source, from 1.
    pub line: u32,
    /// Block index in the grid.
    pub block: [u32; 3],
    /// Thread index in the block: of the lowest offending lane.
    pub thread: [u32; 3],
    /// The access, where the trap is about one.
    pub access: Option<Access>,
}

/// A memory access of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The address as the kernel computed it: an offset in the guest's window, or in shared or local memory.
    pub address: u64,
    /// Width in bytes.
    pub bytes: u32,
    /// The state space accessed.
    pub space: AccessSpace,
}

/// Which memory an access was meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "each variant is the PTX state space of the same name"
)]
pub enum AccessSpace {
    Const,
    Generic,
    Global,
    Local,
    Param,
    Shared,
}

impl fmt::Display for AccessSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Const => "const",
            Self::Generic => "generic",
            Self::Global => "global",
            Self::Local => "local",
            Self::Param => "param",
            Self::Shared => "shared",
        })
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bx, by, bz] = self.block;
        let [tx, ty, tz] = self.thread;
        write!(
            f,
            "{} at PTX line {}, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})",
            self.kind, self.line
        )?;
        if let Some(access) = self.access {
            write!(
                f,
                ": {} bytes at {} address {:#x}",
                access.bytes, access.space, access.address
            )?;
        }
        Ok(())
    }
}
