//! Reserved address space and the only way that kernels on the host touch it: [`Mapping`] keeps pages, a [`Window`]
//! reads and writes them with every bound checked.
#![expect(
    unsafe_code,
    reason = "maps memory, and reads and writes it by address after checking bounds"
)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// An address in this process. Its `Debug` shows no digits: host addresses appear in no text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostAddr(NonNull<u8>);

// SAFETY: an address is a number; only the `unsafe` blocks of this file turn it into an access.
unsafe impl Send for HostAddr {}
// SAFETY: as above.
unsafe impl Sync for HostAddr {}

impl HostAddr {
    /// The address as a pointer.
    #[must_use]
    pub fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// The address of what `pointer` points to, `None` if null.
    #[must_use]
    pub fn from_ptr(pointer: *mut u8) -> Option<Self> {
        NonNull::new(pointer).map(Self)
    }

    pub(crate) fn number(self) -> usize {
        self.0.as_ptr().addr()
    }
}

impl fmt::Debug for HostAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostAddr(..)")
    }
}

/// Bytes of a page of this host.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: `sysconf` has no requirements.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Address space. Unless it is lent, its pages are anonymous: inaccessible when made, zero where made accessible.
pub(crate) struct Mapping {
    base: HostAddr,
    bytes: usize,
    is_lent: bool,
}

impl Mapping {
    /// Reserves `bytes`, a multiple of the page size, without making any of them accessible.
    pub(crate) fn reserve(bytes: usize) -> std::io::Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice overlaps nothing.
        let pointer = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if pointer == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let base = HostAddr::from_ptr(pointer.cast()).ok_or_else(std::io::Error::last_os_error)?;
        Ok(Self {
            base,
            bytes,
            is_lent: false,
        })
    }

    /// The address `offset` bytes into the mapping.
    pub(crate) fn at(&self, offset: usize) -> HostAddr {
        assert!(offset <= self.bytes, "an offset lies in its mapping");
        // SAFETY: the offset lies in the mapping, just checked.
        HostAddr(unsafe { self.base.0.add(offset) })
    }

    /// Makes the pages of `range` accessible.
    pub(crate) fn commit(&self, range: Range<usize>) -> std::io::Result<()> {
        self.protect(range, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Makes the pages of `range` zero, which are anonymous ones.
    pub(crate) fn discard(&self, range: Range<usize>) -> std::io::Result<()> {
        let (at, bytes) = self.pages(range);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the pages lie in this mapping (`pages`); private anonymous pages read as zero afterwards, and accesses
        // through a `Window` are atomic, so a concurrent one sees the old or the zero value.
        check(unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_DONTNEED) })
    }

    fn protect(&self, range: Range<usize>, protection: libc::c_int) -> std::io::Result<()> {
        let (at, bytes) = self.pages(range);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the pages lie in this mapping (`pages`), which this value owns.
        check(unsafe { libc::mprotect(at.as_ptr().cast(), bytes, protection) })
    }

    fn pages(&self, range: Range<usize>) -> (HostAddr, usize) {
        assert!(
            range.start <= range.end && range.end <= self.bytes,
            "a range lies in its mapping"
        );
        (self.at(range.start), range.end - range.start)
    }
}

fn check(result: libc::c_int) -> std::io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_lent {
            return;
        }
        // SAFETY: the mapping is this value's own, and every `Window` on it borrows the `Region` that holds it.
        let result = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(result, 0, "munmap of an own mapping");
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// A range of addresses in a window and where its bytes are.
#[derive(Clone, Copy)]
struct Segment {
    /// First address.
    start: u64,
    /// Bytes.
    bytes: u64,
    /// Where the byte of address `start` is; dangling where there are no bytes.
    at: NonNull<u8>,
}

impl Segment {
    #[inline]
    fn locate(&self, address: u64, bytes: u64) -> Option<NonNull<u8>> {
        let offset = address.wrapping_sub(self.start);
        if offset > self.bytes || bytes > self.bytes - offset {
            return None;
        }
        // SAFETY: `offset` is at most `self.bytes`, a length of pages that are mapped (see `Window::new`), so it fits `usize`.
        let offset = unsafe { usize::try_from(offset).unwrap_unchecked() };
        // SAFETY: as above, `self.at` begins `self.bytes` committed bytes, so the result stays in the allocation.
        Some(unsafe { self.at.add(offset) })
    }
}

/// What a kernel may touch of a region: the guest's linear memory at the bottom and what is carved from the top.
///
/// Addresses are offsets in the window. Every access is checked, and atomic with relaxed ordering and the access' own
/// width, so that racing blocks are no data race.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    low: Segment,
    top: Segment,
    region: PhantomData<&'a Mapping>,
}

// SAFETY: a window gives access by relaxed atomics only, to memory that outlives it.
unsafe impl Send for Window<'_> {}
// SAFETY: as above.
unsafe impl Sync for Window<'_> {}

impl fmt::Debug for Window<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let top = self.top.start..self.top.start + self.top.bytes;
        f.debug_struct("Window")
            .field("low_bytes", &self.low.bytes)
            .field("top", &top)
            .finish_non_exhaustive()
    }
}

/// Why an access through a window was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFault {
    /// The address is no multiple of the width.
    Misaligned,
    /// Not all bytes lie in the window.
    OutOfBounds,
}

impl Window<'_> {
    /// A window onto nothing.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "the CPU device has a window on all its memory")
    )]
    pub(crate) fn empty() -> Self {
        let nothing = Segment {
            start: 0,
            bytes: 0,
            at: NonNull::dangling(),
        };
        Self {
            low: nothing,
            top: nothing,
            region: PhantomData,
        }
    }
}

impl<'a> Window<'a> {
    /// A window whose addresses `0 .. low_bytes` are the bytes of `low` from `low_at`, and whose addresses in `top_range` are the
    /// bytes of `top` at the same offsets. The caller has committed both ranges and keeps them so while the mappings live.
    pub(crate) fn new(
        low: &'a Mapping,
        low_at: usize,
        low_bytes: usize,
        top: Option<&'a Mapping>,
        top_range: Range<usize>,
    ) -> Self {
        let (low_at, low_bytes) = low.pages(low_at..low_at + low_bytes);
        let low = Segment {
            start: 0,
            bytes: low_bytes as u64,
            at: low_at.0,
        };
        let top_start = top_range.start as u64;
        let top = match top {
            Some(mapping) => {
                let (at, bytes) = mapping.pages(top_range);
                Segment {
                    start: top_start,
                    bytes: bytes as u64,
                    at: at.0,
                }
            }
            None => Segment {
                start: top_start,
                bytes: 0,
                at: NonNull::dangling(),
            },
        };
        Self {
            low,
            top,
            region: PhantomData,
        }
    }

    #[inline]
    fn locate(&self, address: u64, bytes: u64) -> Option<NonNull<u8>> {
        self.low
            .locate(address, bytes)
            .or_else(|| self.top.locate(address, bytes))
    }

    /// Whether `bytes` bytes from `address` may be touched; no bytes at the very end may be.
    #[must_use]
    #[inline]
    pub fn covers(&self, address: u64, bytes: u64) -> bool {
        self.locate(address, bytes).is_some()
    }

    #[inline]
    fn word<T: Word>(&self, address: u64, count: usize) -> Result<NonNull<T>, WindowFault> {
        let width = size_of::<T>() as u64;
        if !address.is_multiple_of(width) {
            return Err(WindowFault::Misaligned);
        }
        let found = self
            .locate(address, width * count as u64)
            .ok_or(WindowFault::OutOfBounds)?;
        Ok(found.cast())
    }

    /// Reads a word.
    ///
    /// # Errors
    /// If the address is misaligned or outside.
    #[inline]
    pub fn load<T: Word>(&self, address: u64) -> Result<T, WindowFault> {
        let word = self.word::<T>(address, 1)?;
        // SAFETY: `word` found the word inside committed pages; it is aligned, because both segments begin at page bounds of
        // address and memory alike.
        Ok(unsafe { T::load(word) })
    }

    /// Writes a word.
    ///
    /// # Errors
    /// If the address is misaligned or outside.
    #[inline]
    pub fn store<T: Word>(&self, address: u64, value: T) -> Result<(), WindowFault> {
        let word = self.word::<T>(address, 1)?;
        // SAFETY: as in `load`.
        unsafe { T::store(word, value) };
        Ok(())
    }

    /// Reads consecutive words with one check.
    ///
    /// # Errors
    /// If the address is misaligned or any word is outside; then nothing was read.
    #[inline]
    pub fn load_run<T: Word>(&self, address: u64, into: &mut [T]) -> Result<(), WindowFault> {
        let first = self.word::<T>(address, into.len())?;
        for (index, value) in into.iter_mut().enumerate() {
            // SAFETY: `word` checked the whole run.
            let word = unsafe { first.add(index) };
            // SAFETY: as in `load`.
            *value = unsafe { T::load(word) };
        }
        Ok(())
    }

    /// Writes consecutive words with one check.
    ///
    /// # Errors
    /// If the address is misaligned or any word is outside; then nothing was written.
    #[inline]
    pub fn store_run<T: Word>(&self, address: u64, from: &[T]) -> Result<(), WindowFault> {
        let first = self.word::<T>(address, from.len())?;
        for (index, &value) in from.iter().enumerate() {
            // SAFETY: `word` checked the whole run.
            let word = unsafe { first.add(index) };
            // SAFETY: as in `load`.
            unsafe { T::store(word, value) };
        }
        Ok(())
    }

    /// Replaces a word by `change` of it in one atomic step and gives the value before. `change` may be called more than once.
    ///
    /// # Errors
    /// If the address is misaligned or outside.
    #[inline]
    pub fn update<T: Word>(
        &self,
        address: u64,
        change: impl FnMut(T) -> T,
    ) -> Result<T, WindowFault> {
        let word = self.word::<T>(address, 1)?;
        // SAFETY: as in `load`.
        Ok(unsafe { T::update(word, change) })
    }
}

/// An unsigned integer that memory is accessed by.
pub trait Word: Copy + Default + sealed::Atomic {}

mod sealed {
    use super::NonNull;

    pub trait Atomic: Copy {
        /// # Safety
        /// `at` is valid for reads, aligned, and written only atomically meanwhile.
        unsafe fn load(at: NonNull<Self>) -> Self;
        /// # Safety
        /// `at` is valid for writes, aligned, and accessed only atomically meanwhile.
        unsafe fn store(at: NonNull<Self>, value: Self);
        /// # Safety
        /// As for `load` and `store`.
        unsafe fn update(at: NonNull<Self>, change: impl FnMut(Self) -> Self) -> Self;
    }
}

macro_rules! words {
    ($($word:ty: $atomic:ty),*) => {$(
        impl Word for $word {}
        impl sealed::Atomic for $word {
            #[inline]
            unsafe fn load(at: NonNull<Self>) -> Self {
                // SAFETY: the caller's promise is `from_ptr`'s requirement.
                unsafe { <$atomic>::from_ptr(at.as_ptr()) }.load(Relaxed)
            }
            #[inline]
            unsafe fn store(at: NonNull<Self>, value: Self) {
                // SAFETY: as in `load`.
                unsafe { <$atomic>::from_ptr(at.as_ptr()) }.store(value, Relaxed);
            }
            #[inline]
            unsafe fn update(at: NonNull<Self>, mut change: impl FnMut(Self) -> Self) -> Self {
                // SAFETY: as in `load`.
                let word = unsafe { <$atomic>::from_ptr(at.as_ptr()) };
                let mut before = word.load(Relaxed);
                loop {
                    match word.compare_exchange_weak(before, change(before), Relaxed, Relaxed) {
                        Ok(before) => return before,
                        Err(now) => before = now,
                    }
                }
            }
        }
    )*};
}

words!(u8: AtomicU8, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64);

#[cfg(feature = "cuda")]
mod lent;
#[cfg(test)]
mod tests;
