//! Memory of the host that copies to and from the device go by: the driver moves it without a copy of its own.
#![expect(unsafe_code, reason = "allocates, fills and frees memory of the host")]

use std::ffi::{c_uint, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use cust::sys;

use super::context::Context;
use crate::error::Error;

/// Bytes that go by at once.
pub(super) const STAGE_BYTES: usize = 1 << 20;

/// [`STAGE_BYTES`] bytes.
pub(super) struct Staging {
    base: NonNull<u8>,
    context: Arc<Context>,
}

// SAFETY: the bytes are this value's own, and are written through `&mut` only.
unsafe impl Send for Staging {}
// SAFETY: as above.
unsafe impl Sync for Staging {}

impl Staging {
    /// Allocates them. Enter the context first.
    pub(super) fn allocate(context: &Arc<Context>) -> Result<Self, Error> {
        const PLAIN: c_uint = 0;
        let mut base = std::ptr::null_mut::<c_void>();
        // SAFETY: `base` is a live place for one address.
        let result = unsafe { sys::cuMemHostAlloc(&raw mut base, STAGE_BYTES, PLAIN) };
        let what = "allocating memory of the host";
        context.check(what, result)?;
        let base = NonNull::new(base.cast()).ok_or_else(|| Error::Backend {
            what,
            reason: "there is none".into(),
        })?;
        // SAFETY: the bytes were allocated just now, and nothing else knows of them yet.
        unsafe { base.write_bytes(0, STAGE_BYTES) };
        let context = Arc::clone(context);
        Ok(Self { base, context })
    }

    /// The address, valid as long as this value lives.
    pub(super) fn raw(&self) -> *mut c_void {
        self.base.as_ptr().cast()
    }

    /// All of it. Nothing that the driver was told to do with it may still be under way.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated and written by `allocate`, and borrowed exclusively. Whoever has a copy made awaits it, with this
        // value borrowed (memory.rs).
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), STAGE_BYTES) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.context.give_back("freeing memory of the host", || {
            // SAFETY: this value's own allocation. Copies were awaited, or the driver has stopped all work and this is not reached.
            unsafe { sys::cuMemFreeHost(self.raw()) }
        });
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").finish_non_exhaustive()
    }
}
