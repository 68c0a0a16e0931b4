//! What a guest *alleges* about its memory, and the one way from there to bytes.

use std::sync::Arc;

use device::{Device, HostAddr, Region, RegionTable};

use crate::error::Error;

/// A range of guest memory as the guest gave it: nothing is known about it yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestSlice {
    /// For texts: what the range is.
    pub(crate) what: &'static str,
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl GuestSlice {
    /// Takes an import's arguments, which are unsigned whatever their core type says.
    pub(crate) fn new(what: &'static str, at: i32, len: i32) -> Self {
        Self {
            what,
            at: at.cast_unsigned(),
            len: len.cast_unsigned(),
        }
    }

    fn range(self, size: usize) -> Result<std::ops::Range<usize>, Error> {
        let Self { what, at, len } = self;
        let past_end = || Error::PastEnd {
            what,
            at,
            len,
            size: size as u64,
        };
        let end = u64::from(at) + u64::from(len);
        let end = usize::try_from(end)
            .ok()
            .filter(|&end| end <= size)
            .ok_or_else(past_end)?;
        Ok(end - len as usize..end)
    }
}

/// The memory of the instance that makes a call, as long as the call holds on to it. For a component it is the call's own bytes.
#[derive(Debug)]
pub(crate) struct GuestMemory<'a> {
    bytes: &'a mut [u8],
    /// What kernels run on where that is not `bytes`.
    window: Option<&'a Arc<Region>>,
}

impl<'a> GuestMemory<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        let window = None;
        Self { bytes, window }
    }

    /// The bytes of one call whose kernels and buffers have a region of their own.
    pub(crate) fn of_call(bytes: &'a mut [u8], window: Option<&'a Arc<Region>>) -> Self {
        Self { bytes, window }
    }

    /// Present size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The bytes of an alleged range.
    pub(crate) fn read(&self, slice: GuestSlice) -> Result<&[u8], Error> {
        Ok(&self.bytes[slice.range(self.bytes.len())?])
    }

    /// The bytes of an alleged range, to write.
    pub(crate) fn write(&mut self, slice: GuestSlice) -> Result<&mut [u8], Error> {
        let range = slice.range(self.bytes.len())?;
        Ok(&mut self.bytes[range])
    }

    /// Writes as much of `bytes` as the range holds and gives the number written.
    pub(crate) fn write_prefix(&mut self, slice: GuestSlice, bytes: &[u8]) -> Result<usize, Error> {
        let into = self.write(slice)?;
        let len = into.len().min(bytes.len());
        into[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    /// All of it, as a range.
    pub(crate) fn whole(&self, what: &'static str) -> GuestSlice {
        let len = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        GuestSlice { what, at: 0, len }
    }

    /// The text of an alleged range.
    pub(crate) fn text(&self, slice: GuestSlice) -> Result<&str, Error> {
        str::from_utf8(self.read(slice)?).map_err(|_| Error::NotUtf8 { what: slice.what })
    }

    /// The region that this memory is, if it is one of a device's.
    pub(crate) fn region(&mut self, regions: &RegionTable) -> Option<Arc<Region>> {
        regions.find(self.base()?)
    }

    /// The region that this memory is, be it one of the device's or one that the embedder made addressable by itself.
    pub(crate) fn addressable(
        &mut self,
        device: &Arc<dyn Device>,
    ) -> Result<Option<Arc<Region>>, Error> {
        match (self.region(device.regions()), self.base()) {
            (Some(region), _) => Ok(Some(region)),
            (None, Some(base)) => Ok(device.adopt(base, self.size())?),
            (None, None) => Ok(None),
        }
    }

    /// Where the memory that kernels run on begins.
    pub(crate) fn base(&mut self) -> Option<HostAddr> {
        match self.window {
            Some(window) => Some(window.base()),
            None => HostAddr::from_ptr(self.bytes.as_mut_ptr()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_without_wrapping() {
        for (at, len, size, good) in [
            (0, 0, 0, true),
            (0, 1, 0, false),
            (10, 0, 10, true),
            (10, 1, 10, false),
            (11, 0, 10, false),
            (9, 1, 10, true),
            (0, 10, 10, true),
            (1, 10, 10, false),
            (u32::MAX, 1, 10, false),
            (1, u32::MAX, 10, false),
            (u32::MAX, u32::MAX, 10, false),
            (u32::MAX, 1, 1 << 32, true),
            (u32::MAX, 2, 1 << 32, false),
            (0, u32::MAX, 1 << 32, true),
        ] {
            let range = GuestSlice {
                what: "range",
                at,
                len,
            }
            .range(size);
            assert_eq!(range.is_ok(), good, "{at} + {len} in {size}");
            if let Ok(range) = range {
                assert_eq!(
                    (range.start as u64, range.len() as u64),
                    (u64::from(at), u64::from(len))
                );
            }
        }
    }
}
