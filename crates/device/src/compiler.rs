//! Where texts are compiled for a CUDA device, as an embedder chooses it, in builds with and without the backend.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::guest_memory::GuestMemory;

/// The environment variable by which a process is told to compile, and nothing else: see `cuda::serve_compiles`.
pub(crate) const SERVES: &str = "WASI_CUDA_SERVES_COMPILES";

/// How a CUDA device is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Options {
    /// How linear memory is made reachable.
    pub memory: GuestMemory,
    /// Where texts are compiled.
    pub compiler: Compiler,
}

/// Where texts are compiled for a CUDA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compiler {
    /// In processes of their own, which are ended where a text takes too much.
    Child(ChildCompiler),
    /// By the driver in this process. Nothing ends what takes long or takes all memory, and meanwhile the driver keeps others of the
    /// process waiting.
    #[default]
    InProcess,
}

impl Compiler {
    /// In processes that run this very program once more, within the usual limits. Its `main` must begin with `cuda::serve_compiles()`.
    #[must_use]
    pub fn this_program() -> Self {
        Self::Child(ChildCompiler::this_program())
    }
}

/// Which program compiles, and what one text may cost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildCompiler {
    /// The program, which is started with an environment variable by which `cuda::serve_compiles` knows what to do.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How long one text may take.
    pub text_time: Duration,
    /// How much memory of the host the process may hold meanwhile.
    pub resident_bytes: u64,
    /// How long a process without work is kept, and with it its share of the device's memory.
    pub idle_time: Duration,
}

impl ChildCompiler {
    /// The usual limit of the time for one text.
    pub const TEXT_TIME: Duration = Duration::from_secs(20);
    /// The usual limit of memory.
    pub const RESIDENT_BYTES: u64 = 4 << 30;
    /// The usual time that a process without work is kept.
    pub const IDLE_TIME: Duration = Duration::from_secs(30);

    /// This very program, within the usual limits.
    #[must_use]
    pub fn this_program() -> Self {
        Self::program("/proc/self/exe")
    }

    /// A program whose `main` begins with `cuda::serve_compiles()`, within the usual limits.
    #[must_use]
    pub fn program(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            text_time: Self::TEXT_TIME,
            resident_bytes: Self::RESIDENT_BYTES,
            idle_time: Self::IDLE_TIME,
        }
    }
}
