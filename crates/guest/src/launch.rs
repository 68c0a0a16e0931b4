//! One launch as it is put together: geometry, and the argv bytes on the stack. Running it is in
//! `sys.rs`, since only its caller can promise what the kernel does.

use core::marker::PhantomData;

use abi::argv::{Arg, EncodeError, encode};
use abi::{AbiError, KernelHandle, MAX_ARGV_BYTES, MAX_ARGV_RECORDS};

use crate::buffer::Buffer;
use crate::error::Error;
use crate::pod::{Pod, bytes};

/// How many along x, y and z. A number stands for x alone, two for x and y.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent(pub [u32; 3]);

impl From<u32> for Extent {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<(u32, u32)> for Extent {
    fn from((x, y): (u32, u32)) -> Self {
        Self([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Extent {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self([x, y, z])
    }
}

impl From<[u32; 3]> for Extent {
    fn from(along: [u32; 3]) -> Self {
        Self(along)
    }
}

/// What a kernel takes by value with a type of its own. The kernel's parameter must have that type: what is an
/// `int` there is an `i32` or a `u32` here. Anything else goes by [`Launch::value`].
pub trait Argument {
    /// The record that it is sent as.
    fn record(&self) -> Arg<'_>;
}

macro_rules! arguments {
    ($($ty:ty as $record:ident),*) => {
        $(
            impl Argument for $ty {
                fn record(&self) -> Arg<'_> {
                    Arg::$record(*self)
                }
            }
        )*
    };
}

arguments!(
    i32 as I32, i64 as I64, f32 as F32, f64 as F64, u32 as U32, u64 as U64
);

impl Argument for Arg<'_> {
    fn record(&self) -> Arg<'_> {
        *self
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

/// A launch in the making: the arguments in the order of the kernel's parameters, then [`run`](Self::run), once or
/// more often.
///
/// What is lent to it by [`input`](Self::input) and [`output`](Self::output) stays lent until the launch is dropped.
/// The first argument that cannot be sent fails the launch.
#[derive(Debug)]
#[must_use = "a launch does nothing until it is run"]
pub struct Launch<'a> {
    pub(crate) kernel: KernelHandle,
    pub(crate) shape: Shape,
    argv: [u8; MAX_ARGV_BYTES],
    len: usize,
    records: usize,
    error: Option<Error>,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(kernel: KernelHandle, Extent(grid): Extent, Extent(block): Extent) -> Self {
        Launch {
            kernel,
            shape: Shape {
                grid,
                block,
                shared_bytes: 0,
            },
            argv: [0; MAX_ARGV_BYTES],
            len: 0,
            records: 0,
            error: None,
            lent: PhantomData,
        }
    }

    /// Dynamic shared memory of each block; none unless it is asked for.
    pub fn shared_bytes(&mut self, bytes: u32) -> &mut Self {
        self.shape.shared_bytes = bytes;
        self
    }

    /// The next argument: a number.
    pub fn arg(&mut self, argument: impl Argument) -> &mut Self {
        self.push(argument.record())
    }

    /// The next argument: memory that the kernel reads.
    pub fn input<T: Pod>(&mut self, data: &'a [T]) -> &mut Self {
        self.memory(data.as_ptr().expose_provenance(), size_of_val(data))
    }

    /// The next argument: memory that the kernel writes, and may read.
    pub fn output<T: Pod>(&mut self, data: &'a mut [T]) -> &mut Self {
        self.memory(data.as_mut_ptr().expose_provenance(), size_of_val(data))
    }

    /// The next argument: a pointer to nothing, which the kernel sees as null.
    pub fn null(&mut self) -> &mut Self {
        self.memory(0, 0)
    }

    /// The next argument: a device buffer, from its beginning.
    pub fn buffer(&mut self, buffer: &'a Buffer) -> &mut Self {
        self.buffer_at(buffer, 0)
    }

    /// The next argument: a device buffer, from byte `offset` on.
    pub fn buffer_at(&mut self, buffer: &'a Buffer, offset: u64) -> &mut Self {
        let handle = buffer.handle().raw();
        self.push(Arg::Buffer { handle, offset })
    }

    /// The next argument: a struct or another value that the kernel takes by value.
    pub fn value<T: Pod>(&mut self, value: &T) -> &mut Self {
        self.bytes(bytes(core::slice::from_ref(value)))
    }

    /// The next argument: bytes that the kernel takes by value.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.push(Arg::Bytes(value))
    }

    // The addresses are exposed: the kernel reaches the memory behind the compiler's back.
    fn memory(&mut self, offset: usize, len: usize) -> &mut Self {
        match (u32::try_from(offset), u32::try_from(len)) {
            (Ok(offset), Ok(len)) => self.push(Arg::Ptr { offset, len }),
            _ => self.fail(AbiError::InvalidPointer),
        }
    }

    fn push(&mut self, arg: Arg<'_>) -> &mut Self {
        match self.encode(arg) {
            Ok(()) => self,
            // Too many or too long are all that encoding can find.
            Err(_) => self.fail(AbiError::KernelArgsUnsupported),
        }
    }

    fn fail(&mut self, code: AbiError) -> &mut Self {
        self.error.get_or_insert(Error::unsent(code));
        self
    }

    fn encode(&mut self, arg: Arg<'_>) -> Result<(), EncodeError> {
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
        Launch::new(KernelHandle::new(1).unwrap(), 1.into(), 1.into())
    }

    fn refusal(launch: &Launch<'_>) -> AbiError {
        launch.argv().unwrap_err().code()
    }

    #[test]
    fn arguments_are_encoded_in_their_order() {
        let mut launch = launch();
        launch.memory(1024, 4096).arg(1024_u32).null();
        launch.value(&[1_u8, 2]);
        let bytes = [
            7, 0, 4, 0, 0, 0, 16, 0, 0, 5, 0, 4, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 9, 2, 0, 1, 2,
        ];
        assert_eq!(launch.argv().unwrap(), bytes);
    }

    #[test]
    fn numbers_keep_their_types() {
        let mut launch = launch();
        launch.arg(-1_i32).arg(-1_i64).arg(1.0_f32).arg(1.0_f64);
        launch.arg(1_u32).arg(1_u64).arg(Arg::U32(2));
        let (args, len) = ([1, 2, 3, 4, 5, 6, 5], 5 + 9 + 5 + 9 + 5 + 9 + 5);
        let argv = launch.argv().unwrap();
        assert_eq!(argv.len(), len);
        let tags = abi::argv::decode(argv, abi::argv::Dialect::Current)
            .map(|arg| arg.unwrap().tag().byte());
        assert!(tags.eq(args));
    }

    #[test]
    fn one_number_stands_for_x() {
        assert_eq!(Extent::from(7), Extent([7, 1, 1]));
        assert_eq!(Extent::from((7, 8)), Extent([7, 8, 1]));
        assert_eq!(Extent::from((7, 8, 9)), Extent::from([7, 8, 9]));
    }

    #[test]
    fn arguments_over_the_caps_fail_the_launch() {
        let mut full = launch();
        for _ in 0..MAX_ARGV_RECORDS {
            full.arg(7_u32);
        }
        assert_eq!(full.argv().unwrap().len(), MAX_ARGV_RECORDS * 5);
        full.arg(7_u32);
        assert_eq!(refusal(&full), AbiError::KernelArgsUnsupported);

        let mut full = launch();
        full.bytes(&[0; MAX_ARGV_BYTES - 3]);
        assert_eq!(full.argv().unwrap().len(), MAX_ARGV_BYTES);
        full.arg(7_u32).memory(1 << 32, 4);
        assert_eq!(refusal(&full), AbiError::KernelArgsUnsupported);
    }

    #[test]
    fn memory_outside_32_bits_fails_the_launch() {
        let mut far = launch();
        far.memory(1 << 32, 4).arg(7_u32);
        assert_eq!(refusal(&far), AbiError::InvalidPointer);
    }
}
