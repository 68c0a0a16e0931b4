//! What a device may load. The only ways to an [`Admitted`] are the constructors here, each of which says
//! who vouches for the text.

use crate::confined::Verified;
use crate::validate::Validated;

/// The embedder's word that a kernel may run unconfined, with access to all that the process can reach.
///
/// Making one is a statement about *where the text came from*: never make one for text from a guest.
#[derive(Clone, Copy, Debug)]
pub struct TrustedByEmbedder(());

impl TrustedByEmbedder {
    /// States that the embedder itself supplies the kernel and answers for what it does.
    #[must_use]
    pub const fn i_vouch_for_this_kernel() -> Self {
        Self(())
    }
}

/// Why a program is let onto a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The backend checks every access itself (the CPU device).
    Checked,
    /// Its text was rewritten so that it reaches its guest's memory only, and verified.
    Confined,
    /// The embedder vouches for it.
    Trusted,
}

/// A validated program together with the reason why a device may run it.
///
/// Guest text can reach a device in no other form; its fields are private:
/// ```
/// use wasi_cuda_ptx::{Admitted, Validated};
/// fn checked(validated: Validated) -> Admitted {
///     Admitted::checked(validated)
/// }
/// ```
/// ```compile_fail,E0451
/// use wasi_cuda_ptx::{Admitted, Trust, Validated};
/// fn forged(validated: Validated) -> Admitted {
///     Admitted { validated, trust: Trust::Trusted, confined: None }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Admitted {
    validated: Validated,
    trust: Trust,
    confined: Option<Verified>,
}

impl Admitted {
    /// For a backend that checks every access itself.
    #[must_use]
    pub fn checked(validated: Validated) -> Self {
        Self {
            validated,
            trust: Trust::Checked,
            confined: None,
        }
    }

    /// For any backend: the text itself stays within its guest's memory.
    #[must_use]
    pub fn confined(verified: Verified) -> Self {
        Self {
            validated: verified.program().clone(),
            trust: Trust::Confined,
            confined: Some(verified),
        }
    }

    /// For a kernel of the embedder's own.
    #[must_use]
    pub fn trusted(validated: Validated, _: TrustedByEmbedder) -> Self {
        Self {
            validated,
            trust: Trust::Trusted,
            confined: None,
        }
    }

    /// The program as a device is to load it: of a confined one, the confined text.
    #[must_use]
    pub fn program(&self) -> &Validated {
        &self.validated
    }

    /// What a confined program has to do with the guest's; `None` for others.
    #[must_use]
    pub fn as_confined(&self) -> Option<&Verified> {
        self.confined.as_ref()
    }

    /// The reason.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust
    }
}
