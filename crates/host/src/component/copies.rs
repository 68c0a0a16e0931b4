//! Device buffers of components: made, and copied to and from bytes that a call owns.

use std::sync::Arc;

use super::window;
use crate::context::Shared;
use crate::core_abi::contained;
use crate::error::Error;
use crate::guest_mem::{GuestMemory, GuestSlice};
use crate::ops::{self, CopyCall};

/// A buffer in the memory that this component's kernels run on.
pub(super) async fn alloc(shared: &Arc<Shared>, bytes: u64) -> Result<i64, Error> {
    contained(|| {
        shared.enter()?;
        let window = window(shared)?;
        let mut memory = GuestMemory::of_call(&mut [], Some(&window));
        ops::alloc(shared, &mut memory, bytes)
    })
}

/// Copies bytes into a buffer.
pub(super) async fn write(
    shared: &Arc<Shared>,
    buffer: i64,
    at: u64,
    bytes: &mut [u8],
) -> Result<(), Error> {
    contained(|| {
        shared.enter()?;
        let memory = GuestMemory::new(bytes);
        let guest = memory.whole("a source");
        ops::write(shared, &memory, CopyCall { buffer, at, guest })
    })
}

/// Bytes of a buffer.
pub(super) async fn read(
    shared: &Arc<Shared>,
    buffer: i64,
    at: u64,
    len: u32,
) -> Result<Vec<u8>, Error> {
    contained(|| {
        shared.enter()?;
        let what = "a destination";
        let guest = GuestSlice { what, at: 0, len };
        let call = CopyCall { buffer, at, guest };
        // Checked before there is room made for it: the length is whatever the component says.
        ops::buffer_of(shared, call)?;
        let mut bytes = vec![0; len as usize];
        ops::read(shared, &mut GuestMemory::new(&mut bytes), call)?;
        Ok(bytes)
    })
}
