//! Guest memory for one test: a region, and buffers placed in it with canaries between them. After
//! a kernel only the buffers may have changed.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use device::{Carved, Device, DeviceKind, MAX_WINDOW_BYTES, Region, RegionSpec, Value};
use ptx::{Globals, WindowForm};

use super::Admission;

const WINDOW_BYTES: u64 = 64 << 20;
const INITIAL_BYTES: u64 = 4 << 20;
const GUARD_BYTES: u64 = 64 << 10;
const CANARY: u8 = 0xC5;
const CANARY_BYTES: usize = 64;
/// What a buffer without data holds: not zero, so that a kernel that writes nothing is noticed.
const UNWRITTEN: u8 = 0x5A;

/// What kind of number a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    F32,
    F64,
    Integer,
}

/// A number that a buffer holds, little-endian.
pub(crate) trait Plain: Copy {
    /// Bytes of one.
    const BYTES: usize;
    /// Which kind it is.
    const NUMBER: Number;
    /// Appends the bytes of this one.
    fn append(self, bytes: &mut Vec<u8>);
    /// The number in `Self::BYTES` bytes.
    fn of(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($number:ty: $kind:ident),*) => {$(
        impl Plain for $number {
            const BYTES: usize = size_of::<Self>();
            const NUMBER: Number = Number::$kind;
            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
            fn of(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("as many bytes as the number has"))
            }
        }
    )*};
}

plain!(u8: Integer, u16: Integer, u32: Integer, i32: Integer, u64: Integer, i64: Integer, f32: F32, f64: F64);

/// The bytes of some numbers.
fn bytes_of<T: Plain>(data: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.len() * T::BYTES);
    for &number in data {
        number.append(&mut bytes);
    }
    bytes
}

/// Numbers somewhere in a memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer<T> {
    offset: u64,
    count: usize,
    numbers: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    /// Where it begins in the window.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that it has.
    pub(crate) fn bytes(&self) -> u64 {
        (self.count * T::BYTES) as u64
    }

    /// The address right behind it.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes()
    }

    /// As an argument.
    pub(crate) fn pointer(&self) -> Value<'static> {
        Value::Pointer {
            offset: self.offset,
            len: self.bytes(),
        }
    }
}

/// A buffer without its type.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) range: Range<usize>,
    pub(crate) number: Number,
    /// Bytes of one number.
    pub(crate) bytes: usize,
}

/// What a memory held at some time, its buffers and what kernels were told of where they lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) placed: Vec<Placed>,
    /// Buffers whose addresses are somewhere in the data or in arguments.
    addressed: Vec<Range<u64>>,
}

impl Image {
    /// Whether a buffer holds what [`Memory::room`] fills it with.
    pub(crate) fn is_unwritten(&self, placed: &Placed) -> bool {
        let bytes = &self.bytes[placed.range.clone()];
        bytes.iter().all(|&byte| byte == UNWRITTEN)
    }

    /// Moves each address in some bytes, words of eight, from one origin to another: what lies in a buffer whose address was
    /// asked for.
    pub(crate) fn move_addresses(&self, bytes: &mut [u8], from: u64, to: u64) {
        for word in bytes.chunks_exact_mut(8) {
            let offset = u64::of(word).wrapping_sub(from);
            if self.addressed.iter().any(|range| range.contains(&offset)) {
                word.copy_from_slice(&(offset + to).to_le_bytes());
            }
        }
    }
}

/// The memory of one guest.
pub(crate) struct Memory {
    region: Arc<Region>,
    /// What kernels see at the beginning of the window: 0, or its address in the process.
    origin: u64,
    /// Bytes in use, from 0; zeroes follow.
    end: usize,
    placed: Vec<Placed>,
    addressed: Mutex<Vec<Range<u64>>>,
    /// Variables of modules that kernels of this memory were launched from, with what they were at first.
    variables: Mutex<Vec<(Globals, Carved)>>,
}

impl Memory {
    /// Memory that kernels of `device` can address, when they are let onto it so.
    pub(crate) fn new(device: &dyn Device, admission: Admission) -> Self {
        let window_bytes = match admission {
            Admission::Confined(options) if options.window == WindowForm::Whole => MAX_WINDOW_BYTES,
            Admission::Confined(_) | Admission::AsTheyAre => WINDOW_BYTES,
        };
        let spec = RegionSpec {
            window_bytes,
            initial_bytes: INITIAL_BYTES,
            maximum_bytes: WINDOW_BYTES,
            reserved_bytes: window_bytes,
            guard_bytes: GUARD_BYTES,
        };
        let region = device.new_region(spec).expect("a small region");
        let origin = match (device.info().kind, admission) {
            (DeviceKind::Cpu, _) | (_, Admission::Confined(_)) => 0,
            (DeviceKind::Cuda, Admission::AsTheyAre) => region.base().as_ptr().addr() as u64,
        };
        let memory = Self {
            region,
            origin,
            end: CANARY_BYTES,
            placed: Vec::new(),
            addressed: Mutex::default(),
            variables: Mutex::default(),
        };
        memory.write(0, &[CANARY; CANARY_BYTES]);
        memory
    }

    /// The region itself.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Where the variables of a module are, which are made at its first launch on this memory; `None` where it has none.
    pub(crate) fn variables_at(&self, globals: &Globals) -> Option<u32> {
        let mut variables = self
            .variables
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = variables.iter().position(|(known, _)| known == globals);
        let at = match known {
            Some(at) => at,
            None => {
                let carved =
                    Carved::for_globals(&self.region, globals).expect("room for variables")?;
                variables.push((globals.clone(), carved));
                variables.len() - 1
            }
        };
        Some(u32::try_from(variables[at].1.start()).expect("a place in a window"))
    }

    /// Bytes of linear memory.
    pub(crate) fn size(&self) -> u64 {
        self.region.size()
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let window = self.region.window();
        window
            .store_run(at as u64, bytes)
            .expect("what a test places lies in its memory");
    }

    fn grow_to(&self, end: usize) {
        if end as u64 > self.size() {
            let grown = (end as u64).next_multiple_of(64 << 10);
            self.region.grow(grown).expect("room in the window");
        }
    }

    fn place_bytes<T: Plain>(&mut self, bytes: &[u8]) -> Buffer<T> {
        let start = self.end;
        let end = start + bytes.len();
        let next = (end + CANARY_BYTES).next_multiple_of(CANARY_BYTES);
        self.grow_to(next);
        self.write(start, bytes);
        self.write(end, &vec![CANARY; next - end]);
        self.end = next;
        self.placed.push(Placed {
            range: start..end,
            number: T::NUMBER,
            bytes: T::BYTES,
        });
        Buffer {
            offset: start as u64,
            count: bytes.len() / T::BYTES,
            numbers: PhantomData,
        }
    }

    /// Places numbers, aligned to 64 bytes.
    pub(crate) fn place<T: Plain>(&mut self, data: &[T]) -> Buffer<T> {
        self.place_bytes(&bytes_of(data))
    }

    /// Room for `count` numbers, filled with a pattern.
    pub(crate) fn room<T: Plain>(&mut self, count: usize) -> Buffer<T> {
        self.place_bytes(&vec![UNWRITTEN; count * T::BYTES])
    }

    /// Where a buffer begins for a kernel that finds its address in memory or in a structure.
    pub(crate) fn address<T: Plain>(&self, buffer: Buffer<T>) -> u64 {
        let mut addressed = self
            .addressed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        addressed.push(buffer.offset..buffer.end());
        self.origin + buffer.offset
    }

    /// What kernels see at the beginning of the window.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// What is in it, with addresses from 0.
    pub(crate) fn image(&self) -> Image {
        let mut bytes = vec![0; self.end];
        let window = self.region.window();
        window.load_run(0, &mut bytes).expect("bytes in use");
        let addressed = self
            .addressed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut image = Image {
            bytes: Vec::new(),
            placed: self.placed.clone(),
            addressed: addressed.clone(),
        };
        image.move_addresses(&mut bytes, self.origin, 0);
        image.bytes = bytes;
        image
    }

    /// Makes a new memory what another was, with the addresses of this one.
    pub(crate) fn become_as(&mut self, image: &Image) {
        self.grow_to(image.bytes.len());
        self.end = image.bytes.len();
        self.placed.clone_from(&image.placed);
        self.addressed = Mutex::new(image.addressed.clone());
        let mut bytes = image.bytes.clone();
        image.move_addresses(&mut bytes, 0, self.origin);
        self.write(0, &bytes);
    }

    /// Overwrites a buffer.
    pub(crate) fn fill<T: Plain>(&self, buffer: Buffer<T>, data: &[T]) {
        assert_eq!(buffer.count, data.len());
        let window = self.region.window();
        window
            .store_run(buffer.offset, &bytes_of(data))
            .expect("a placed buffer");
    }

    /// The numbers in a buffer.
    pub(crate) fn read<T: Plain>(&self, buffer: Buffer<T>) -> Vec<T> {
        let mut bytes = vec![0; buffer.count * T::BYTES];
        let window = self.region.window();
        window
            .load_run(buffer.offset, &mut bytes)
            .expect("a placed buffer");
        bytes.chunks_exact(T::BYTES).map(T::of).collect()
    }

    /// Whether every byte of a buffer is as [`Memory::room`] left it.
    pub(crate) fn is_unwritten<T: Plain>(&self, buffer: Buffer<T>) -> bool {
        let mut bytes = vec![0_u8; buffer.count * T::BYTES];
        let window = self.region.window();
        window
            .load_run(buffer.offset, &mut bytes)
            .expect("a placed buffer");
        bytes.iter().all(|&byte| byte == UNWRITTEN)
    }

    /// Panics if a byte outside of the buffers has changed.
    pub(crate) fn check_canaries(&self) {
        let mut bytes = vec![0_u8; self.end];
        let window = self.region.window();
        window.load_run(0, &mut bytes).expect("bytes in use");
        let mut from = 0;
        let none = self.end..self.end;
        let ranges = self.placed.iter().map(|placed| &placed.range);
        for placed in ranges.chain(std::iter::once(&none)) {
            let wrong = bytes[from..placed.start]
                .iter()
                .position(|&byte| byte != CANARY);
            assert_eq!(wrong.map(|at| from + at), None, "a canary was overwritten");
            from = placed.end;
        }
        let rest = usize::try_from(self.size()).expect("a small window") - self.end;
        let mut words = vec![0_u64; rest / 8];
        window
            .load_run(self.end as u64, &mut words)
            .expect("linear memory");
        let wrong = words.iter().position(|&word| word != 0);
        assert_eq!(
            wrong.map(|at| self.end + at * 8),
            None,
            "unused memory was written"
        );
    }
}
