//! One launch as it is put together: geometry, and the argv bytes on the stack. Running it is in
//! `sys.rs`, since only its caller can promise what the kernel does.

use core::marker::PhantomData;

use abi::argv::{Arg, EncodeError, encode};
use abi::{AbiError, KernelHandle, MAX_ARGV_BYTES, MAX_ARGV_RECORDS};

use crate::error::Error;

/// A launch in the making. Arguments are in the order of the kernel's parameters; the first that
/// cannot be sent fails the launch.
#[derive(Debug)]
#[must_use = "a launch does nothing until it is run"]
pub struct Launch<'a> {
    pub(crate) kernel: KernelHandle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    argv: [u8; MAX_ARGV_BYTES],
    len: usize,
    records: usize,
    error: Option<Error>,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(kernel: KernelHandle, grid: [u32; 3], block: [u32; 3]) -> Self {
        Launch {
            kernel,
            grid,
            block,
            shared_bytes: 0,
            argv: [0; MAX_ARGV_BYTES],
            len: 0,
            records: 0,
            error: None,
            lent: PhantomData,
        }
    }

    /// Dynamic shared memory of each block; none unless it is asked for.
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// The next argument.
    pub fn arg(mut self, arg: Arg<'_>) -> Self {
        if self.error.is_none() && self.push(arg).is_err() {
            // Too many or too long are all that encoding can find.
            self.error = Some(Error(AbiError::KernelArgsUnsupported));
        }
        self
    }

    /// The next argument: memory that the kernel reads.
    pub fn input<T: Copy>(self, data: &'a [T]) -> Self {
        self.memory(data.as_ptr().expose_provenance(), size_of_val(data))
    }

    /// The next argument: memory that the kernel writes, and may read.
    pub fn output<T: Copy>(self, data: &'a mut [T]) -> Self {
        self.memory(data.as_mut_ptr().expose_provenance(), size_of_val(data))
    }

    // The addresses are exposed: the kernel reaches the memory behind the compiler's back.
    fn memory(mut self, offset: usize, len: usize) -> Self {
        match (u32::try_from(offset), u32::try_from(len)) {
            (Ok(offset), Ok(len)) => self.arg(Arg::Ptr { offset, len }),
            _ => {
                self.error.get_or_insert(Error(AbiError::InvalidPointer));
                self
            }
        }
    }

    fn push(&mut self, arg: Arg<'_>) -> Result<(), EncodeError> {
        if self.records == MAX_ARGV_RECORDS {
            let given = self.records + 1;
            return Err(EncodeError::TooMany { given });
        }
        self.len += encode(&[arg], &mut self.argv[self.len..])?;
        self.records += 1;
        Ok(())
    }

    /// The argv bytes, or what was wrong with an argument.
    pub(crate) fn argv(&self) -> Result<&[u8], Error> {
        match self.error {
            None => Ok(&self.argv[..self.len]),
            Some(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch<'a>() -> Launch<'a> {
        Launch::new(KernelHandle::new(1).unwrap(), [1; 3], [1; 3])
    }

    #[test]
    fn arguments_are_encoded_in_their_order() {
        let launch = launch()
            .arg(Arg::Ptr {
                offset: 1024,
                len: 4096,
            })
            .arg(Arg::U32(1024))
            .arg(Arg::Bytes(&[1, 2]));
        let bytes = [7, 0, 4, 0, 0, 0, 16, 0, 0, 5, 0, 4, 0, 0, 9, 2, 0, 1, 2];
        assert_eq!(launch.argv(), Ok(&bytes[..]));
    }

    #[test]
    fn arguments_over_the_caps_fail_the_launch() {
        let unsupported = Err(Error(AbiError::KernelArgsUnsupported));
        let full = (0..MAX_ARGV_RECORDS).fold(launch(), |launch, _| launch.arg(Arg::U32(7)));
        assert_eq!(full.argv().map(<[u8]>::len), Ok(MAX_ARGV_RECORDS * 5));
        assert_eq!(full.arg(Arg::U32(7)).argv(), unsupported);

        let data = [0; MAX_ARGV_BYTES - 3];
        let full = launch().arg(Arg::Bytes(&data));
        assert_eq!(full.argv().map(<[u8]>::len), Ok(MAX_ARGV_BYTES));
        let over = full.arg(Arg::U32(7)).arg(Arg::U32(8));
        assert_eq!(over.argv(), unsupported);
    }

    #[test]
    fn memory_outside_32_bits_fails_the_launch() {
        let far = launch().memory(1 << 32, 4).arg(Arg::U32(7));
        assert_eq!(far.argv(), Err(Error(AbiError::InvalidPointer)));
        let near = launch().memory(8, 4);
        assert_eq!(near.argv(), Ok(&[7, 8, 0, 0, 0, 4, 0, 0, 0][..]));
    }
}
