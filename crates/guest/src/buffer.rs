//! Device memory of this guest that is not part of its linear memory, given back when it is dropped.

use abi::{AbiError, BufferHandle};

use crate::error::{Error, buffer_handle, status};
use crate::pod::{Pod, bytes, bytes_mut};
use crate::sys;

/// A device buffer: memory for what kernels keep between launches and the guest does not look at.
///
/// ```no_run
/// use wasi_cuda_guest::{Buffer, Error};
///
/// fn round_trip() -> Result<(), Error> {
///     let buffer = Buffer::from_slice(&[1.0_f32, 2.0, 3.0])?;
///     let mut found = [0.0_f32; 2];
///     buffer.read(4, &mut found)?;
///     assert_eq!(found, [2.0, 3.0]);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Buffer {
    handle: BufferHandle,
}

impl Buffer {
    /// A buffer of this many bytes. What they are at first is not specified.
    ///
    /// # Errors
    ///
    /// `InvalidArgs` for 0 bytes, `QuotaExceeded` where the limits or the device have no more.
    pub fn new(bytes: u64) -> Result<Self, Error> {
        let Ok(bytes) = i64::try_from(bytes) else {
            return Err(Error::unsent(AbiError::QuotaExceeded));
        };
        Self::from_answer(sys::alloc(bytes))
    }

    /// A buffer that holds a copy of `data`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn from_slice<T: Pod>(data: &[T]) -> Result<Self, Error> {
        let bytes = u64::try_from(size_of_val(data)).unwrap_or(u64::MAX);
        let buffer = Self::new(bytes)?;
        buffer.write(0, data)?;
        Ok(buffer)
    }

    pub(crate) fn from_answer(answer: i64) -> Result<Self, Error> {
        let handle = buffer_handle(answer)?;
        Ok(Self { handle })
    }

    /// Copies `data` to byte `offset` of the buffer and on.
    ///
    /// # Errors
    ///
    /// `InvalidArgs` when it does not lie in the buffer.
    pub fn write<T: Pod>(&self, offset: u64, data: &[T]) -> Result<(), Error> {
        let answer = sys::write(self.handle, offset.cast_signed(), bytes(data));
        status(answer).map(drop)
    }

    /// Fills `out` from byte `offset` of the buffer and on.
    ///
    /// # Errors
    ///
    /// `InvalidArgs` when it does not lie in the buffer.
    pub fn read<T: Pod>(&self, offset: u64, out: &mut [T]) -> Result<(), Error> {
        let answer = sys::read(self.handle, offset.cast_signed(), bytes_mut(out));
        status(answer).map(drop)
    }

    /// The handle that the imports know it by.
    #[must_use]
    pub const fn handle(&self) -> BufferHandle {
        self.handle
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A buffer that the host no longer knows is as good as given back.
        sys::free(self.handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock;

    #[test]
    fn what_is_written_is_read_and_given_back() {
        let buffer = Buffer::from_slice(&[1_u32, 2, 3]).unwrap();
        assert_eq!(mock::held(), (0, 1));
        buffer.write(4, &[9_u16]).unwrap();
        let mut found = [0_u32; 2];
        buffer.read(4, &mut found).unwrap();
        assert_eq!(found, [9, 3]);
        let outside = buffer.read(8, &mut found).unwrap_err();
        assert_eq!(outside.code(), AbiError::InvalidArgs);
        drop(buffer);
        assert_eq!(mock::held(), (0, 0));
    }

    #[test]
    fn a_buffer_that_is_refused_is_an_error() {
        mock::refuse(AbiError::QuotaExceeded, "no room");
        let error = Buffer::new(8).unwrap_err();
        assert_eq!(error.code(), AbiError::QuotaExceeded);
        let error = Buffer::new(u64::MAX).unwrap_err();
        assert_eq!(error.code(), AbiError::QuotaExceeded);
        assert_eq!(mock::held(), (0, 0));
    }
}
