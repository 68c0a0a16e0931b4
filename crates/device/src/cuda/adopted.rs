//! Memory that the embedder itself made addressable to the device: the driver is asked about it at each launch, since nobody tells
//! when it is freed.
#![expect(unsafe_code, reason = "asks the driver about an address")]

use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::sync::Arc;

use cust::sys::{self, CUmemorytype, CUpointer_attribute as Attribute};

use super::core::Core;
use super::error::{Failure, check};
use super::probe::MemoryTraits;
use crate::backing::Backing;
use crate::error::Error;
use crate::mapping::{HostAddr, Window};
use crate::region::Region;

/// The region for `bytes` bytes from `base`, if the driver knows one range that holds them all and that kernels of this device reach.
/// For other memory, the host's above all, the answer is `None`.
pub(super) fn adopt(
    core: &Core,
    traits: MemoryTraits,
    base: HostAddr,
    bytes: u64,
) -> Result<Option<Arc<Region>>, Error> {
    core.context.enter()?;
    let known = match Known::ask(base.number() as u64) {
        Ok(known) => known,
        Err(failure) => {
            return match core.context.error(failure) {
                lost @ Error::DeviceLost { .. } => Err(lost),
                // Some drivers answer so where the address is none of theirs.
                _ => Ok(None),
            };
        }
    };
    let pointer_base = known.reached(core.context.ordinal().raw(), traits, bytes);
    Ok(pointer_base.map(|pointer_base| {
        let backing = AdoptedBacking { base, pointer_base };
        Region::adopted(&core.regions, bytes, Box::new(backing))
    }))
}

/// What a driver knows of an address; zeroes where it knows nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    memory_type: c_uint,
    is_managed: c_uint,
    ordinal: c_int,
    device_pointer: u64,
    range_start: u64,
    range_bytes: usize,
}

impl Known {
    /// Asks the driver. Enter the context first.
    fn ask(address: u64) -> Result<Self, Failure> {
        let mut known = Self::default();
        let mut attributes = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        ];
        let mut places = [
            (&raw mut known.memory_type).cast(),
            (&raw mut known.is_managed).cast(),
            (&raw mut known.ordinal).cast(),
            (&raw mut known.device_pointer).cast(),
            (&raw mut known.range_start).cast(),
            (&raw mut known.range_bytes).cast(),
        ];
        const COUNT: c_uint = 6;
        // SAFETY: both arrays are `COUNT` long, and each place is live and as large as cuda.h says of the attribute beside it.
        // The address is only looked up.
        let result = unsafe {
            let (attributes, places) = (attributes.as_mut_ptr(), places.as_mut_ptr());
            sys::cuPointerGetAttributes(COUNT, attributes, places, address)
        };
        check("asking about memory", result)?;
        Ok(known)
    }

    /// Where kernels of this device find the address, if they reach `bytes` bytes from there on and so does the host.
    fn reached(&self, ordinal: c_int, traits: MemoryTraits, bytes: u64) -> Option<u64> {
        let is_shared = if self.is_managed != 0 {
            traits.concurrent_managed_access
        } else {
            self.memory_type == CUmemorytype::CU_MEMORYTYPE_HOST as c_uint
        };
        let range_end = self.range_start.checked_add(self.range_bytes as u64)?;
        let end = self.device_pointer.checked_add(bytes)?;
        let is_whole = self.range_start <= self.device_pointer && end <= range_end;
        let is_ours = self.ordinal == ordinal && self.device_pointer != 0;
        (is_shared && is_whole && is_ours).then_some(self.device_pointer)
    }
}

/// The bytes of an embedder.
#[derive(Debug)]
struct AdoptedBacking {
    base: HostAddr,
    pointer_base: u64,
}

/// What a region never asks of memory that does not grow and has no room for buffers.
fn not_ours() -> Error {
    Error::Backend {
        what: "using memory of the embedder for more than kernels",
        reason: "only its owner can".into(),
    }
}

impl Backing for AdoptedBacking {
    fn base(&self) -> HostAddr {
        self.base
    }

    fn pointer_base(&self) -> u64 {
        self.pointer_base
    }

    fn serves_confined(&self) -> bool {
        false
    }

    fn grow(&self, _old_bytes: u64, _new_bytes: u64) -> Result<(), Error> {
        Err(not_ours())
    }

    fn carve(&self, _pages: Range<u64>) -> Result<(), Error> {
        Err(not_ours())
    }

    fn uncarve(&self, _pages: Range<u64>) -> Result<(), Error> {
        Err(not_ours())
    }

    fn write(&self, _at: u64, _from: &[u8]) -> Result<(), Error> {
        Err(not_ours())
    }

    fn read(&self, _at: u64, _into: &mut [u8]) -> Result<(), Error> {
        Err(not_ours())
    }

    /// Nothing keeps the memory there as long as a window on it would be.
    fn window(&self, _low_bytes: u64, _top: Range<u64>) -> Window<'_> {
        Window::empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDINAL: c_int = 1;
    const BASE: u64 = 0x7f00_0001_0000;
    const BYTES: usize = 64 << 10;
    const BOTH: MemoryTraits = MemoryTraits {
        concurrent_managed_access: true,
        pageable_memory_access: false,
    };

    fn managed() -> Known {
        Known {
            memory_type: CUmemorytype::CU_MEMORYTYPE_DEVICE as c_uint,
            is_managed: 1,
            ordinal: ORDINAL,
            device_pointer: BASE,
            range_start: BASE,
            range_bytes: BYTES,
        }
    }

    fn registered() -> Known {
        Known {
            memory_type: CUmemorytype::CU_MEMORYTYPE_HOST as c_uint,
            is_managed: 0,
            ..managed()
        }
    }

    #[track_caller]
    fn assert_reached(known: Known, bytes: u64, want: Option<u64>) {
        assert_eq!(known.reached(ORDINAL, BOTH, bytes), want, "{known:?}");
    }

    #[test]
    fn managed_and_registered_memory_is_reached_to_its_end() {
        for known in [managed(), registered()] {
            for bytes in [0, 1, BYTES as u64] {
                assert_reached(known, bytes, Some(BASE));
            }
            assert_reached(known, BYTES as u64 + 1, None);
            assert_reached(known, u64::MAX, None);
        }
    }

    #[test]
    fn memory_inside_a_larger_range_is_reached_where_that_holds_it_whole() {
        let known = Known {
            range_start: BASE - 4096,
            range_bytes: BYTES + 8192,
            ..managed()
        };
        assert_reached(known, BYTES as u64 + 4096, Some(BASE));
        assert_reached(known, BYTES as u64 + 4097, None);
    }

    #[test]
    fn the_device_is_given_its_own_address_of_registered_memory() {
        let known = Known {
            device_pointer: 0x1000,
            range_start: 0x1000,
            ..registered()
        };
        assert_reached(known, BYTES as u64, Some(0x1000));
    }

    #[test]
    fn what_the_driver_does_not_know_is_refused() {
        let nothing = Known {
            ordinal: -2,
            ..Known::default()
        };
        assert_reached(nothing, 0, None);
        assert_reached(Known::default(), 0, None);
        let elsewhere = Known {
            range_start: BASE + 1,
            ..managed()
        };
        assert_reached(elsewhere, 1, None);
    }

    #[test]
    fn memory_that_the_host_does_not_reach_is_refused() {
        let device_only = Known {
            is_managed: 0,
            ..managed()
        };
        assert_reached(device_only, 1, None);
        let apart = MemoryTraits {
            concurrent_managed_access: false,
            ..BOTH
        };
        assert_eq!(managed().reached(ORDINAL, apart, 1), None);
        assert_eq!(registered().reached(ORDINAL, apart, 1), Some(BASE));
    }

    #[test]
    fn memory_of_another_device_is_refused() {
        assert_eq!(managed().reached(0, BOTH, 1), None);
    }

    #[test]
    fn a_range_past_the_end_of_all_addresses_is_refused() {
        let known = Known {
            range_bytes: usize::MAX,
            ..managed()
        };
        assert_reached(known, 1, None);
    }
}
