//! Memory of the host that the device reaches, in lines of which each launch has one to itself: the control block of a confined kernel
//! is in it (`control.rs`), and the word where a stream writes that all before has ended (`stream.rs`).
#![expect(unsafe_code, reason = "allocates memory of the host and looks at it")]

use std::ffi::{c_uint, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cust::sys;

use super::context::Context;
use crate::error::Error;

/// Words of a line: two lines of 64 bytes, which processors fetch together.
const WORDS: usize = 16;
const LINE_BYTES: usize = WORDS * 8;

/// Lines, allocated together.
struct Lines {
    base: NonNull<Words>,
    device: u64,
    count: usize,
    context: Arc<Context>,
}

/// What is in a line.
type Words = [AtomicU64; WORDS];

// SAFETY: the words are atomic, and the memory is this value's own.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Drop for Lines {
    fn drop(&mut self) {
        self.context.give_back("freeing memory of the host", || {
            // SAFETY: this value's own allocation. Streams and kernels that write to it are held by who holds it, and the driver lets
            // what is on streams end.
            unsafe { sys::cuMemFreeHost(self.base.as_ptr().cast()) }
        });
    }
}

/// One line of zeroes at first.
#[derive(Clone)]
pub(super) struct Line {
    lines: Arc<Lines>,
    index: usize,
}

impl Line {
    /// Allocates lines, all zero. Enter the context first.
    pub(super) fn allocate(
        context: &Arc<Context>,
        count: usize,
    ) -> Result<impl Iterator<Item = Self>, Error> {
        const DEVICE_MAPPED: c_uint = 2;
        let mut base = std::ptr::null_mut::<c_void>();
        // SAFETY: `base` is a live place for one address.
        let result =
            unsafe { sys::cuMemHostAlloc(&raw mut base, count * LINE_BYTES, DEVICE_MAPPED) };
        let what = "allocating memory of the host";
        context.check(what, result)?;
        let base = NonNull::new(base).ok_or_else(|| Error::Backend {
            what,
            reason: "there is none".into(),
        })?;
        // From here on dropping it frees the memory.
        let mut lines = Lines {
            base: base.cast(),
            device: 0,
            count,
            context: Arc::clone(context),
        };
        // SAFETY: the bytes were allocated above, and nothing else knows of them yet.
        unsafe { base.cast::<u8>().write_bytes(0, count * LINE_BYTES) };
        // SAFETY: `device` is a live place for one address, and the memory was just allocated.
        let result =
            unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut lines.device, base.as_ptr(), 0) };
        context.check("finding memory of the host", result)?;
        let lines = Arc::new(lines);
        Ok((0..count).map(move |index| Self {
            lines: Arc::clone(&lines),
            index,
        }))
    }

    /// What is in it. The device may change it at any time.
    pub(super) fn words(&self) -> &Words {
        assert!(self.index < self.lines.count, "a line is one of its lines");
        // SAFETY: the index is below the count of lines that were allocated, just checked.
        let words = unsafe { self.lines.base.add(self.index) };
        // SAFETY: the line is aligned, since the driver allocates whole pages, was zeroed, and lives as long as `self.lines`; host and
        // device access it in whole aligned words or parts of them, the host atomically only.
        unsafe { words.as_ref() }
    }

    /// Where kernels and streams find it.
    pub(super) fn device_address(&self) -> u64 {
        self.lines.device + (self.index * LINE_BYTES) as u64
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
