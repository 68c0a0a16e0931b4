//! What keeps a kernel in its guest's memory: [`Isolation`] is what the embedder asks for, and [`admit`] turns a guest's program into what
//! its device may load.

use device::Device;
use ptx::{Admitted, ConfineOptions, Level, TrustedByEmbedder, Validated, WindowForm};

use crate::error::Error;

/// What becomes of a kernel's access outside its guest's memory. In no case does it reach anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// It lands somewhere in the guest's own window, and the kernel goes on.
    Confined,
    /// The launch answers [`KernelTrap`](abi::AbiError::KernelTrap) and reports the access: a memory checker. A GPU may go on for a
    /// while, inside the guest's window.
    Trapping,
}

impl Isolation {
    /// What a device does where nobody asks for anything: the CPU device checks every access in any case.
    #[must_use]
    pub fn default_on(device: &dyn Device) -> Self {
        if device.abilities().checks_accesses {
            Self::Trapping
        } else {
            Self::Confined
        }
    }

    /// How a program is confined at this level, to run on windows of a form.
    #[must_use]
    pub fn options(self, window: WindowForm) -> ConfineOptions {
        ConfineOptions {
            level: match self {
                Self::Confined => Level::Confined,
                Self::Trapping => Level::Trapping,
            },
            window,
            clear_shared: true,
        }
    }

    /// Whether the guest's text runs as it is, on a device that looks at each access.
    pub(crate) fn is_checked_by(self, device: &dyn Device) -> bool {
        self == Self::Trapping && device.abilities().checks_accesses
    }
}

/// Who answers for a kernel's text.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Trust {
    /// The embedder: the kernel runs as it is and can reach all that the process can.
    Embedder(TrustedByEmbedder),
    /// Nobody.
    Isolated(Isolation),
}

impl Trust {
    /// What `device` may load of a program that will run on windows of a form.
    ///
    /// # Errors
    /// [`Error::Device`] with the line of what cannot be confined.
    pub fn admit(
        self,
        device: &dyn Device,
        program: Validated,
        window: WindowForm,
    ) -> Result<Admitted, Error> {
        let options = match self {
            Self::Embedder(word) => return Ok(Admitted::trusted(program, word)),
            Self::Isolated(isolation) if isolation.is_checked_by(device) => {
                return Ok(Admitted::checked(program));
            }
            Self::Isolated(isolation) => isolation.options(window),
        };
        let confined = ptx::confine(&program, options).map_err(device::Error::from)?;
        let verified = ptx::verify(confined).map_err(|error| {
            if error.is_limit() {
                return Error::TooLargeToConfine {
                    reason: error.kind.to_string(),
                };
            }
            // The text is the rewriter's, so that this is no mistake of the guest's.
            tracing::error!(%error, "a confined text was refused");
            Error::Internal {
                what: "confining the kernel",
            }
        })?;
        Ok(Admitted::confined(verified))
    }
}
