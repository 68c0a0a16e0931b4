//! What the CPU device is compared with.

use device::cuda::{Compiler, Options};
use device::{Error, Selector};
use ptx::{ConfineOptions, Level, WindowForm};

use crate::harness::{Admission, Rig};

/// A way to run kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The CPU device with texts that are confined.
    Confined,
    /// A GPU with texts as they are.
    Cuda,
}

/// Why a peer is not there.
pub(crate) struct Absence {
    pub(crate) reason: String,
    /// Whether that is in order on this machine.
    pub(crate) is_allowed: bool,
}

impl Peer {
    pub(crate) const ALL: [Self; 2] = [Self::Confined, Self::Cuda];

    /// As tests and processes are told.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Confined => "cpu_confined",
            Self::Cuda => "cuda",
        }
    }

    /// A rig for it.
    pub(crate) fn open(self) -> Result<Rig, Absence> {
        let (selector, admission) = match self {
            Self::Confined => {
                let options = ConfineOptions {
                    level: Level::Confined,
                    window: WindowForm::Whole,
                    clear_shared: true,
                };
                (Selector::Cpu, Admission::Confined(options))
            }
            Self::Cuda => (Selector::Cuda(0), Admission::AsTheyAre),
        };
        let options = Options {
            compiler: Compiler::this_program(),
            ..Options::default()
        };
        match device::open_with(selector, &options) {
            Ok(device) => Ok(Rig::with(device, admission)),
            Err(error) => {
                let required =
                    std::env::var_os("WASI_CUDA_REQUIRE_GPU").is_some_and(|it| it == "1");
                let is_absent = matches!(error, Error::NotAvailable { .. });
                Err(Absence {
                    reason: error.to_string(),
                    is_allowed: is_absent && !required,
                })
            }
        }
    }
}
