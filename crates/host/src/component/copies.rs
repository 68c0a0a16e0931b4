//! Device buffers of components: made, and copied to and from bytes that a call owns.

use std::sync::Arc;

use super::window;
use crate::buffers::{self, CopyCall, Copying, Direction};
use crate::context::Shared;
use crate::core_abi::contained;
use crate::error::Error;
use crate::guest_mem::{GuestMemory, GuestSlice};

/// A buffer in the memory that this component's kernels run on.
pub(super) async fn alloc(shared: &Arc<Shared>, bytes: u64) -> Result<i64, Error> {
    let allocating = contained(|| {
        shared.enter()?;
        let window = window(shared)?;
        let mut memory = GuestMemory::of_call(&mut [], Some(&window));
        buffers::alloc(shared, &mut memory, bytes)
    })?;
    allocating.finish(shared).await
}

/// Copies bytes into a buffer.
pub(super) async fn write(
    shared: &Arc<Shared>,
    buffer: i64,
    at: u64,
    bytes: &mut [u8],
) -> Result<(), Error> {
    let guest = GuestMemory::new(bytes).whole("a source");
    let call = CopyCall { buffer, at, guest };
    copy(shared, bytes, call, Direction::In).await
}

/// Bytes of a buffer.
pub(super) async fn read(
    shared: &Arc<Shared>,
    buffer: i64,
    at: u64,
    len: u32,
) -> Result<Vec<u8>, Error> {
    let what = "a destination";
    let guest = GuestSlice { what, at: 0, len };
    let call = CopyCall { buffer, at, guest };
    // Checked before there is room made for it: the length is whatever the component says.
    contained(|| {
        shared.enter()?;
        shared.device()?;
        buffers::range(shared, call).map(drop)
    })?;
    let mut bytes = vec![0; len as usize];
    copy(shared, &mut bytes, call, Direction::Out).await?;
    Ok(bytes)
}

/// A copy between bytes of the call and a buffer, a piece at a time.
async fn copy(
    shared: &Arc<Shared>,
    bytes: &mut [u8],
    call: CopyCall,
    direction: Direction,
) -> Result<(), Error> {
    let mut copying = contained(|| {
        shared.enter()?;
        Copying::new(shared, &GuestMemory::new(bytes), call, direction)
    })?;
    loop {
        tokio::task::consume_budget().await;
        let step = contained(|| {
            shared.enter()?;
            copying.step(shared, &GuestMemory::new(bytes))
        })?;
        let Some(step) = step else { return Ok(()) };
        let moved = step.finish().await?;
        contained(|| {
            shared.enter()?;
            copying.take(&mut GuestMemory::new(bytes), moved)
        })?;
    }
}
