//! What keeps a region's bytes: pages of the host here, managed memory of a driver in `cuda/memory.rs`. How long linear memory
//! is and where buffers lie in the window is for `region.rs` to say.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::OnceLock;

use crate::device::Side;
use crate::error::Error;
use crate::mapping::{HostAddr, Mapping, Window, page_bytes};
use crate::region::Charge;

/// The bytes of one region. Offsets and ranges are in its window and below the end of it.
pub(crate) trait Backing: Debug + Send + Sync {
    /// Where offset 0 of the window is.
    fn base(&self) -> HostAddr;

    /// What kernels take for offset 0 of the window.
    fn pointer_base(&self) -> u64;

    /// What kernels take for an offset of the window, in linear memory or in a buffer.
    fn pointer(&self, at: u64) -> u64 {
        self.pointer_base() + at
    }

    /// Whether it is a whole window with its guards, which confined kernels need: see `Region::serves_confined`.
    fn serves_confined(&self) -> bool;

    /// Makes linear memory `new_bytes` long instead of `old_bytes`; the bytes gained are zero.
    fn grow(&self, old_bytes: u64, new_bytes: u64) -> Result<(), Error>;

    /// Makes whole pages a device buffer of zero bytes.
    fn carve(&self, pages: Range<u64>) -> Result<(), Error>;

    /// Takes the pages of a device buffer back.
    fn uncarve(&self, pages: Range<u64>) -> Result<(), Error>;

    /// Copies bytes into a device buffer.
    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error>;

    /// Copies bytes out of a device buffer.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error>;

    /// What kernels on the host may touch: `low_bytes` of linear memory and the buffers in `top`.
    fn window(&self, low_bytes: u64, top: Range<u64>) -> Window<'_>;

    /// Moves bytes to where they will be used next, and waits until they are there. A hint.
    fn prefetch(&self, _range: Range<u64>, _side: Side) -> Result<(), Error> {
        Ok(())
    }

    /// Hears of a kernel before it starts on this memory.
    fn note_kernel(&self) {}
}

/// Anonymous memory of the host. Kernels see window offsets.
#[derive(Debug)]
pub(crate) struct HostBacking {
    /// A page that is never accessible, the window, the rest of the reservation, the guard.
    low: Mapping,
    /// Device buffers, at the offsets that they have in the window; never mapped where the guest's code reaches. There is
    /// none until the first is carved.
    top: OnceLock<Top>,
    window_bytes: u64,
    charge: Charge,
}

/// Address space beside the window's own, charged like it.
#[derive(Debug)]
struct Top {
    // Fields drop in this order: what is charged for is given back first.
    mapping: Mapping,
    _charge: Charge,
}

impl HostBacking {
    /// Reserves what is charged for, which begins with a page below a window of `window_bytes`.
    pub(crate) fn reserve(charge: Charge, window_bytes: u64) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Backend {
            what: "reserving memory",
            reason: error.to_string(),
        };
        let bytes = usize::try_from(charge.bytes())
            .map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self {
            low: Mapping::reserve(bytes).map_err(failed)?,
            top: OnceLock::new(),
            window_bytes,
            charge,
        })
    }

    fn top(&self) -> Option<&Mapping> {
        self.top.get().map(|top| &top.mapping)
    }

    /// The part of a window that is `bytes` long from `at` and lies in one device buffer.
    fn buffer(&self, at: u64, bytes: usize) -> Window<'_> {
        let at = offset(at);
        Window::new(&self.low, page_bytes(), 0, self.top(), at..at + bytes)
    }
}

impl Backing for HostBacking {
    fn base(&self) -> HostAddr {
        self.low.at(page_bytes())
    }

    fn pointer_base(&self) -> u64 {
        0
    }

    fn serves_confined(&self) -> bool {
        true
    }

    fn grow(&self, old_bytes: u64, new_bytes: u64) -> Result<(), Error> {
        let page = page_bytes();
        let gained = page + pages(old_bytes)..page + pages(new_bytes);
        let failed = |error: std::io::Error| Error::Backend {
            what: "growing memory",
            reason: error.to_string(),
        };
        self.low.commit(gained).map_err(failed)
    }

    fn carve(&self, pages: Range<u64>) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::Backend {
            what: "carving a buffer",
            reason: error.to_string(),
        };
        let top = match self.top.get() {
            Some(top) => top,
            None => {
                let charge = self.charge.more(self.window_bytes)?;
                let mapping = Mapping::reserve(offset(self.window_bytes)).map_err(failed)?;
                self.top.get_or_init(|| Top {
                    mapping,
                    _charge: charge,
                })
            }
        };
        top.mapping
            .commit(offset(pages.start)..offset(pages.end))
            .map_err(failed)
    }

    /// Pages between buffers stay accessible, since a window is one range from the floor up; a running kernel's window may
    /// still reach below the new floor. Zero is all that anyone can find there.
    fn uncarve(&self, pages: Range<u64>) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::Backend {
            what: "clearing a buffer",
            reason: error.to_string(),
        };
        let Some(top) = self.top() else { return Ok(()) };
        top.discard(offset(pages.start)..offset(pages.end))
            .map_err(failed)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        self.buffer(at, from.len())
            .store_run(at, from)
            .map_err(|_| outside())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.buffer(at, into.len())
            .load_run(at, into)
            .map_err(|_| outside())
    }

    fn window(&self, low_bytes: u64, top: Range<u64>) -> Window<'_> {
        let top = offset(top.start)..offset(top.end);
        Window::new(&self.low, page_bytes(), offset(low_bytes), self.top(), top)
    }
}

fn outside() -> Error {
    Error::Backend {
        what: "a copy to or from a device buffer",
        reason: "nothing was ever carved".into(),
    }
}

/// Whole pages that hold `bytes`.
pub(crate) fn pages(bytes: u64) -> usize {
    offset(bytes).next_multiple_of(page_bytes())
}

/// An offset in a window as a `usize`.
#[expect(
    clippy::expect_used,
    reason = "windows are at most 4 GiB long (`Region::on`); the crate is for 64-bit hosts"
)]
pub(crate) fn offset(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a window offset fits usize")
}
