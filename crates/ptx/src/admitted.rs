//! What a device may load. The only ways to an [`Admitted`] are the constructors here, each of which says
//! who vouches for the text.

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
///     Admitted { validated, trust: Trust::Trusted }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Admitted {
    validated: Validated,
    trust: Trust,
}

impl Admitted {
    /// For a backend that checks every access itself.
    #[must_use]
    pub fn checked(validated: Validated) -> Self {
        Self {
            validated,
            trust: Trust::Checked,
        }
    }

    /// For a kernel of the embedder's own.
    #[must_use]
    pub fn trusted(validated: Validated, _: TrustedByEmbedder) -> Self {
        Self {
            validated,
            trust: Trust::Trusted,
        }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Validated {
        &self.validated
    }

    /// The reason.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust
    }
}
