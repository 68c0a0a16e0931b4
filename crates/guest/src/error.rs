//! What a call answers instead of success: its code, and the text that the host keeps about the last failure.

use core::fmt;
#[cfg(not(test))]
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use abi::{AbiError, BufferHandle, KernelHandle, LAST_ERROR_BYTES};

#[cfg(test)]
use crate::mock::FAILURES;
use crate::sys;

/// How many calls have failed: the host keeps the text of the last one only.
#[cfg(not(test))]
static FAILURES: AtomicU32 = AtomicU32::new(0);

/// A call failed.
///
/// It holds the code. The text stays with the host and is fetched when the error is printed or asked for
/// [`text`](Self::text); after a later failure the text is gone, and the code's own meaning is printed in its place.
#[derive(Clone, Copy)]
pub struct Error {
    code: AbiError,
    /// The place in `FAILURES`; 0 when the host was not asked at all, and so has no text.
    failure: u32,
}

impl Error {
    /// The host answered this number.
    fn answered(number: i64) -> Self {
        let known = i32::try_from(number).ok().and_then(AbiError::from_code);
        // A number that this crate has no name for is a failure all the same.
        let code = known.unwrap_or(AbiError::Internal);
        let failure = FAILURES.load(Relaxed).wrapping_add(1).max(1);
        FAILURES.store(failure, Relaxed);
        Self { code, failure }
    }

    /// What is not sent to the host, because the host could only refuse it.
    pub(crate) const fn unsent(code: AbiError) -> Self {
        Self { code, failure: 0 }
    }

    /// Why it failed, as one of the ABI's codes.
    #[must_use]
    pub const fn code(&self) -> AbiError {
        self.code
    }

    /// What the host says about this failure, as much of it as `buffer` has room for. `None` when a later call has
    /// failed, or the host has said nothing. [`LAST_ERROR_BYTES`] hold any text.
    pub fn text<'buffer>(&self, buffer: &'buffer mut [u8]) -> Option<&'buffer str> {
        if self.failure == 0 || self.failure != FAILURES.load(Relaxed) {
            return None;
        }
        let copied = usize::try_from(sys::last_error_copy(buffer)).ok()?;
        // A text that was cut inside a character is valid up to it.
        let whole = buffer.get(..copied)?.utf8_chunks().next()?;
        Some(whole.valid())
    }
}

impl fmt::Display for Error {
    /// Name, number and text: `InvalidDimensions (-8): a block of 2000 threads …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0; LAST_ERROR_BYTES];
        let text = self.text(&mut buffer).unwrap_or(self.code.meaning());
        write!(f, "{} ({}): {text}", self.code.name(), self.code.code())
    }
}

impl fmt::Debug for Error {
    /// As [`Display`](fmt::Display): this is what a `main` that returns the error prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {}

/// A status or a count.
pub(crate) fn status(answer: i32) -> Result<u32, Error> {
    u32::try_from(answer).map_err(|_| Error::answered(answer.into()))
}

/// A kernel's handle.
pub(crate) fn kernel_handle(answer: i64) -> Result<KernelHandle, Error> {
    KernelHandle::new(answer).ok_or_else(|| Error::answered(answer))
}

/// A buffer's handle.
pub(crate) fn buffer_handle(answer: i64) -> Result<BufferHandle, Error> {
    BufferHandle::new(answer).ok_or_else(|| Error::answered(answer))
}

/// Bytes of the text of this instance's last failed call; 0 when no call has failed, or the capability is off.
#[must_use]
pub fn last_error_len() -> usize {
    usize::try_from(sys::last_error_len()).unwrap_or(0)
}

/// The text of this instance's last failed call, as much of it as `buffer` has room for; empty when no call has failed.
/// An [`Error`] prints its text by itself: this is for failures of other code in the same guest.
pub fn last_error(buffer: &mut [u8]) -> &str {
    let copied = usize::try_from(sys::last_error_copy(buffer)).unwrap_or(0);
    let whole = buffer
        .get(..copied)
        .and_then(|text| text.utf8_chunks().next());
    whole.map_or("", |chunk| chunk.valid())
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;
    use crate::{Kernel, mock};

    #[test]
    fn answers_are_split_into_values_and_codes() {
        assert_eq!(status(0).unwrap(), 0);
        assert_eq!(status(144).unwrap(), 144);
        assert_eq!(status(-13).unwrap_err().code(), AbiError::KernelTrap);
        assert_eq!(kernel_handle(i64::MAX).map(i64::from).unwrap(), i64::MAX);
        let refused = buffer_handle(-6).unwrap_err();
        assert_eq!(refused.code(), AbiError::QuotaExceeded);
        for unnamed in [0, -16, i64::MIN] {
            let error = kernel_handle(unnamed).unwrap_err();
            assert_eq!(error.code(), AbiError::Internal);
        }
    }

    #[test]
    fn an_error_that_was_not_sent_prints_its_meaning() {
        assert_eq!(
            Error::unsent(AbiError::KernelArgsUnsupported).to_string(),
            "KernelArgsUnsupported (-10): argv is over its caps"
        );
    }

    #[test]
    fn a_text_is_that_of_its_own_failure() {
        mock::refuse(AbiError::UnsupportedPtx, "line 9: `cp.async.bulk`");
        let first = Kernel::load(mock::PTX, "scale").unwrap_err();
        let text = "UnsupportedPtx (-15): line 9: `cp.async.bulk`";
        assert_eq!(first.to_string(), text);
        Kernel::load(mock::PTX, "scale").unwrap();
        assert_eq!(first.to_string(), text);
        Kernel::load(mock::PTX, "other").unwrap_err();
        assert_eq!(
            first.to_string(),
            std::format!(
                "UnsupportedPtx (-15): {}",
                AbiError::UnsupportedPtx.meaning()
            )
        );
    }

    #[test]
    fn texts_are_cut_at_characters() {
        mock::refuse(AbiError::MalformedPtx, "line 3: \u{2026}");
        Kernel::load(mock::PTX, "scale").unwrap_err();
        assert_eq!(last_error_len(), 11);
        assert_eq!(last_error(&mut [0; 10]), "line 3: ");
        assert_eq!(last_error(&mut [0; 64]), "line 3: \u{2026}");
        assert_eq!(last_error(&mut []), "");
    }
}
