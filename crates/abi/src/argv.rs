//! The argv wire format: the arguments of a launch as records of one tag byte and a little-endian
//! value, without padding. Matching them to a kernel's parameters is the host's business.
//!
//! Decoding is total: any bytes give records or exactly one error, and never panic.

use core::fmt;

use crate::AbiError;
use crate::limits::{MAX_ARGV_BYTES, MAX_ARGV_RECORDS};

/// What a record holds: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Tag {
    /// A signed 32-bit integer.
    I32 = 0x01,
    /// A signed 64-bit integer.
    I64 = 0x02,
    /// A 32-bit float.
    F32 = 0x03,
    /// A 64-bit float.
    F64 = 0x04,
    /// An unsigned 32-bit integer.
    U32 = 0x05,
    /// An unsigned 64-bit integer.
    U64 = 0x06,
    /// A range of guest memory: 32-bit offset, 32-bit length.
    Ptr = 0x07,
    /// A place in a device buffer: 64-bit handle, 64-bit offset. Not in the earlier module.
    Buffer = 0x08,
    /// 16-bit length, then that many bytes of a value. Not in the earlier module.
    Bytes = 0x09,
}

impl Tag {
    /// Every tag, in the order of their numbers. `0x0a` is reserved for 64-bit pointers.
    pub const ALL: &'static [Tag] = &[
        Tag::I32,
        Tag::I64,
        Tag::F32,
        Tag::F64,
        Tag::U32,
        Tag::U64,
        Tag::Ptr,
        Tag::Buffer,
        Tag::Bytes,
    ];

    /// The tag with this number in this dialect, if there is one.
    #[must_use]
    pub const fn from_byte(byte: u8, dialect: Dialect) -> Option<Tag> {
        match (byte, dialect) {
            (0x01, _) => Some(Tag::I32),
            (0x02, _) => Some(Tag::I64),
            (0x03, _) => Some(Tag::F32),
            (0x04, _) => Some(Tag::F64),
            (0x05, _) => Some(Tag::U32),
            (0x06, _) => Some(Tag::U64),
            (0x07, _) => Some(Tag::Ptr),
            (0x08, Dialect::Current) => Some(Tag::Buffer),
            (0x09, Dialect::Current) => Some(Tag::Bytes),
            _ => None,
        }
    }

    /// The tag's number.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// The name that texts use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Tag::I32 => "i32",
            Tag::I64 => "i64",
            Tag::F32 => "f32",
            Tag::F64 => "f64",
            Tag::U32 => "u32",
            Tag::U64 => "u64",
            Tag::Ptr => "ptr",
            Tag::Buffer => "buffer",
            Tag::Bytes => "bytes",
        }
    }

    /// What follows the tag byte, in words.
    #[must_use]
    pub const fn layout(self) -> &'static str {
        match self {
            Tag::I32 => "i32",
            Tag::I64 => "i64",
            Tag::F32 => "f32",
            Tag::F64 => "f64",
            Tag::U32 => "u32",
            Tag::U64 => "u64",
            Tag::Ptr => "u32 offset, u32 length",
            Tag::Buffer => "i64 handle, u64 offset",
            Tag::Bytes => "u16 length, then that many bytes",
        }
    }

    /// Bytes that follow the tag byte, without the data of [`Tag::Bytes`].
    #[must_use]
    pub const fn fixed_len(self) -> usize {
        match self {
            Tag::Bytes => 2,
            Tag::I32 | Tag::F32 | Tag::U32 => 4,
            Tag::I64 | Tag::F64 | Tag::U64 | Tag::Ptr => 8,
            Tag::Buffer => 16,
        }
    }
}

/// Whose argv it is: the earlier module knows no tag after `0x07`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Module [`MODULE`](crate::MODULE).
    Current,
    /// Module [`MODULE_V0_2`](crate::MODULE_V0_2).
    V0_2,
}

/// One argument, as the guest alleges it.
///
/// Two floats are equal when their bits are: a NaN equals itself, and 0.0 differs from -0.0.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A signed 32-bit integer.
    I32(i32),
    /// A signed 64-bit integer.
    I64(i64),
    /// A 32-bit float; the bits of a NaN are kept.
    F32(f32),
    /// A 64-bit float; the bits of a NaN are kept.
    F64(f64),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// An unsigned 64-bit integer.
    U64(u64),
    /// A range of guest memory.
    Ptr {
        /// Where it begins in guest memory.
        offset: u32,
        /// Its length in bytes.
        len: u32,
    },
    /// A place in a device buffer.
    Buffer {
        /// The buffer's handle, not yet looked up.
        handle: i64,
        /// Bytes from the buffer's beginning.
        offset: u64,
    },
    /// A value of any size, passed as it is.
    Bytes(&'a [u8]),
}

impl Arg<'_> {
    /// The tag that this argument is sent with.
    #[must_use]
    pub const fn tag(&self) -> Tag {
        match self {
            Arg::I32(_) => Tag::I32,
            Arg::I64(_) => Tag::I64,
            Arg::F32(_) => Tag::F32,
            Arg::F64(_) => Tag::F64,
            Arg::U32(_) => Tag::U32,
            Arg::U64(_) => Tag::U64,
            Arg::Ptr { .. } => Tag::Ptr,
            Arg::Buffer { .. } => Tag::Buffer,
            Arg::Bytes(_) => Tag::Bytes,
        }
    }

    /// Bytes of the whole record, with its tag.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        let data = match self {
            Arg::Bytes(data) => data.len(),
            _ => 0,
        };
        (1 + self.tag().fixed_len()).saturating_add(data)
    }
}

impl PartialEq for Arg<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Arg::I32(a), Arg::I32(b)) => a == b,
            (Arg::I64(a), Arg::I64(b)) => a == b,
            (Arg::F32(a), Arg::F32(b)) => a.to_bits() == b.to_bits(),
            (Arg::F64(a), Arg::F64(b)) => a.to_bits() == b.to_bits(),
            (Arg::U32(a), Arg::U32(b)) => a == b,
            (Arg::U64(a), Arg::U64(b)) => a == b,
            (Arg::Ptr { offset, len }, Arg::Ptr { offset: o, len: l }) => (offset, len) == (o, l),
            (
                Arg::Buffer { handle, offset },
                Arg::Buffer {
                    handle: h,
                    offset: o,
                },
            ) => (handle, offset) == (h, o),
            (Arg::Bytes(a), Arg::Bytes(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Arg<'_> {}

/// Why arguments could not be encoded. Nothing has been written then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The output is shorter than the records.
    NoRoom {
        /// Bytes that the records need.
        needed: usize,
        /// Bytes that there are.
        given: usize,
    },
    /// The records are longer than [`MAX_ARGV_BYTES`].
    TooLong {
        /// Bytes that the records need.
        needed: usize,
    },
    /// There are more records than [`MAX_ARGV_RECORDS`].
    TooMany {
        /// Records that there are.
        given: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::NoRoom { needed, given } => {
                write!(f, "argv needs {needed} bytes, the output has {given}")
            }
            EncodeError::TooLong { needed } => {
                write!(f, "argv is {needed} bytes, the most is {MAX_ARGV_BYTES}")
            }
            EncodeError::TooMany { given } => {
                write!(f, "argv is {given} records, the most is {MAX_ARGV_RECORDS}")
            }
        }
    }
}

impl core::error::Error for EncodeError {}

/// Writes the records of `args` to the beginning of `out` and answers how many bytes they take.
///
/// # Errors
///
/// When the records are over the caps or longer than `out`; nothing is written then.
pub fn encode(args: &[Arg<'_>], out: &mut [u8]) -> Result<usize, EncodeError> {
    if args.len() > MAX_ARGV_RECORDS {
        return Err(EncodeError::TooMany { given: args.len() });
    }
    let needed = args
        .iter()
        .fold(0_usize, |sum, arg| sum.saturating_add(arg.encoded_len()));
    if needed > MAX_ARGV_BYTES {
        return Err(EncodeError::TooLong { needed });
    }
    let given = out.len();
    let Some(out) = out.get_mut(..needed) else {
        return Err(EncodeError::NoRoom { needed, given });
    };
    let mut writer = Writer { out };
    for arg in args {
        writer.put([arg.tag().byte()]);
        match *arg {
            Arg::I32(value) => writer.put(value.to_le_bytes()),
            Arg::I64(value) => writer.put(value.to_le_bytes()),
            Arg::F32(value) => writer.put(value.to_bits().to_le_bytes()),
            Arg::F64(value) => writer.put(value.to_bits().to_le_bytes()),
            Arg::U32(value) => writer.put(value.to_le_bytes()),
            Arg::U64(value) => writer.put(value.to_le_bytes()),
            Arg::Ptr { offset, len } => {
                writer.put(offset.to_le_bytes());
                writer.put(len.to_le_bytes());
            }
            Arg::Buffer { handle, offset } => {
                writer.put(handle.to_le_bytes());
                writer.put(offset.to_le_bytes());
            }
            Arg::Bytes(data) => {
                let len = u16::try_from(data.len()).unwrap_or(u16::MAX);
                writer.put(len.to_le_bytes());
                writer.slice(data);
            }
        }
    }
    Ok(needed)
}

/// Writes to a slice that was cut to the exact length before.
struct Writer<'a> {
    out: &'a mut [u8],
}

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.slice(&bytes);
    }

    fn slice(&mut self, bytes: &[u8]) {
        let out = core::mem::take(&mut self.out);
        if let Some((head, rest)) = out.split_at_mut_checked(bytes.len()) {
            head.copy_from_slice(bytes);
            self.out = rest;
        }
    }
}

/// Why argv bytes are not arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are more than [`MAX_ARGV_BYTES`].
    TooLong {
        /// Bytes that there are.
        given: usize,
    },
    /// There are bytes after [`MAX_ARGV_RECORDS`] records.
    TooMany,
    /// A record ends after the bytes do.
    Truncated {
        /// Where the record begins.
        offset: usize,
        /// Bytes that the record needs, as far as it could be read.
        wanted: usize,
        /// Bytes that are left for it.
        given: usize,
    },
    /// A record begins with a byte that is no tag of this dialect.
    UnknownTag {
        /// Where the record begins.
        offset: usize,
        /// The byte.
        tag: u8,
    },
}

impl DecodeError {
    /// The code that a guest receives.
    #[must_use]
    pub const fn abi(self) -> AbiError {
        match self {
            DecodeError::TooLong { .. } | DecodeError::TooMany => AbiError::KernelArgsUnsupported,
            DecodeError::Truncated { .. } | DecodeError::UnknownTag { .. } => AbiError::InvalidArgs,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::TooLong { given } => {
                write!(f, "argv is {given} bytes, the most is {MAX_ARGV_BYTES}")
            }
            DecodeError::TooMany => {
                write!(
                    f,
                    "argv goes on after {MAX_ARGV_RECORDS} records, which is the most"
                )
            }
            DecodeError::Truncated {
                offset,
                wanted,
                given,
            } => write!(
                f,
                "the argv record at byte {offset} needs {wanted} bytes, {given} are left"
            ),
            DecodeError::UnknownTag { offset, tag } => {
                write!(
                    f,
                    "the argv record at byte {offset} has the unknown tag {tag:#04x}"
                )
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// Reads records one by one. The caps are checked first: more than [`MAX_ARGV_BYTES`] give one
/// error and no record.
#[must_use]
pub fn decode(bytes: &[u8], dialect: Dialect) -> Decoder<'_> {
    Decoder {
        bytes,
        offset: 0,
        records: 0,
        dialect,
        failed: false,
    }
}

/// The records of an argv; see [`decode`]. It ends after its first error.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
    records: usize,
    dialect: Dialect,
    failed: bool,
}

impl<'a> Decoder<'a> {
    /// Where the next record begins: the number of bytes that made whole records.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// The next record if it is whole, else `None`: [`finish`](Self::finish) then says whether that is the end. For a
    /// caller that counts nanoseconds; the iterator does the same. It is inlined whole, so that a record is never put
    /// together only to be taken apart (the host's bench `launch`).
    #[inline(always)]
    pub fn whole(&mut self) -> Option<Arg<'a>> {
        if self.bytes.len() > MAX_ARGV_BYTES || self.records == MAX_ARGV_RECORDS {
            return None;
        }
        let (&byte, value) = self.bytes.get(self.offset..)?.split_first()?;
        let arg = match Tag::from_byte(byte, self.dialect)? {
            Tag::I32 => Arg::I32(i32::from_le_bytes(head(value, 0)?)),
            Tag::I64 => Arg::I64(i64::from_le_bytes(head(value, 0)?)),
            Tag::F32 => Arg::F32(f32::from_bits(u32::from_le_bytes(head(value, 0)?))),
            Tag::F64 => Arg::F64(f64::from_bits(u64::from_le_bytes(head(value, 0)?))),
            Tag::U32 => Arg::U32(u32::from_le_bytes(head(value, 0)?)),
            Tag::U64 => Arg::U64(u64::from_le_bytes(head(value, 0)?)),
            Tag::Ptr => Arg::Ptr {
                offset: u32::from_le_bytes(head(value, 0)?),
                len: u32::from_le_bytes(head(value, 4)?),
            },
            Tag::Buffer => Arg::Buffer {
                handle: i64::from_le_bytes(head(value, 0)?),
                offset: u64::from_le_bytes(head(value, 8)?),
            },
            Tag::Bytes => {
                let len = usize::from(u16::from_le_bytes(head(value, 0)?));
                Arg::Bytes(value.get(2..2 + len)?)
            }
        };
        self.offset += arg.encoded_len();
        self.records += 1;
        Some(arg)
    }

    /// Whether all bytes made whole records.
    ///
    /// # Errors
    /// What is wrong at [`offset`](Self::offset).
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.offset >= self.bytes.len() {
            return Ok(());
        }
        Err(self.error())
    }

    /// What is wrong at the offset, where there is no whole record.
    #[cold]
    fn error(&self) -> DecodeError {
        if self.bytes.len() > MAX_ARGV_BYTES {
            let given = self.bytes.len();
            return DecodeError::TooLong { given };
        }
        if self.records == MAX_ARGV_RECORDS {
            return DecodeError::TooMany;
        }
        let offset = self.offset;
        let record = self.bytes.get(offset..).unwrap_or_default();
        let truncated = |wanted| DecodeError::Truncated {
            offset,
            wanted,
            given: record.len(),
        };
        let Some((&byte, value)) = record.split_first() else {
            return truncated(1);
        };
        match Tag::from_byte(byte, self.dialect) {
            None => DecodeError::UnknownTag { offset, tag: byte },
            Some(Tag::Bytes) => match head(value, 0) {
                Some(len) => truncated(3 + usize::from(u16::from_le_bytes(len))),
                None => truncated(1 + Tag::Bytes.fixed_len()),
            },
            Some(tag) => truncated(1 + tag.fixed_len()),
        }
    }
}

/// `N` bytes of `value` from `at`, if it has them.
#[inline]
fn head<const N: usize>(value: &[u8], at: usize) -> Option<[u8; N]> {
    value.get(at..)?.first_chunk().copied()
}

impl<'a> Iterator for Decoder<'a> {
    type Item = Result<Arg<'a>, DecodeError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.offset >= self.bytes.len() {
            return None;
        }
        let record = self.whole();
        self.failed = record.is_none();
        Some(record.ok_or_else(|| self.error()))
    }
}

impl core::iter::FusedIterator for Decoder<'_> {}

#[cfg(test)]
mod tests;
