//! What a call answers instead of success, and the text that the host keeps about it.

use core::fmt;

use abi::{AbiError, KernelHandle};

use crate::sys;

/// A call failed: the code that the host answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Error(pub AbiError);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::error::Error for Error {}

/// A code that this crate has no name for is an error all the same.
fn named(code: i64) -> Error {
    let known = i32::try_from(code).ok().and_then(AbiError::from_code);
    Error(known.unwrap_or(AbiError::Internal))
}

/// A status or a count.
pub(crate) fn status(answer: i32) -> Result<u32, Error> {
    u32::try_from(answer).map_err(|_| named(answer.into()))
}

/// A kernel's handle.
pub(crate) fn handle(answer: i64) -> Result<KernelHandle, Error> {
    KernelHandle::new(answer).ok_or_else(|| named(answer))
}

/// The text of this instance's last failed call, as much of it as `buffer` has room for; empty
/// when no call has failed. [`LAST_ERROR_BYTES`](abi::LAST_ERROR_BYTES) hold any.
pub fn last_error(buffer: &mut [u8]) -> &str {
    let copied = status(sys::last_error_copy(buffer)).unwrap_or(0);
    let copied = usize::try_from(copied).unwrap_or(0).min(buffer.len());
    // A text that was cut inside a character is valid up to it.
    let whole = buffer[..copied].utf8_chunks().next();
    whole.map_or("", |chunk| chunk.valid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_split_into_values_and_codes() {
        assert_eq!(status(0), Ok(0));
        assert_eq!(status(144), Ok(144));
        assert_eq!(status(-13), Err(Error(AbiError::KernelTrap)));
        assert_eq!(handle(i64::MAX).map(i64::from), Ok(i64::MAX));
        assert_eq!(handle(-4), Err(Error(AbiError::MalformedPtx)));
        for unnamed in [0, -16, i64::MIN] {
            assert_eq!(handle(unnamed), Err(Error(AbiError::Internal)));
        }
    }

    #[test]
    fn without_a_host_there_is_no_text() {
        assert_eq!(last_error(&mut [b'x'; 16]), "");
    }
}
