//! Linear memory that is a device's: wasmtime asks [`WindowMemoryCreator`] for memory and gets a region of the device.
#![expect(
    unsafe_code,
    reason = "wasmtime's memory traits are unsafe to implement"
)]

use std::sync::Arc;

use device::{Device, Region, RegionSpec};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

/// Makes a region of its device for every linear memory.
#[derive(Debug)]
pub(crate) struct WindowMemoryCreator {
    device: Arc<dyn Device>,
    window_bytes: u64,
}

impl WindowMemoryCreator {
    pub(crate) fn new(device: Arc<dyn Device>, window_bytes: u64) -> Self {
        Self {
            device,
            window_bytes,
        }
    }
}

// SAFETY: `Region` keeps what the trait asks for. It is reserved whole when made, with `reserved` and `guard` inaccessible bytes
// from its base as the call says, so compiled code without bounds checks reaches nothing else; it is page aligned and zero;
// its base never moves (device/src/region.rs).
unsafe impl MemoryCreator for WindowMemoryCreator {
    fn new_memory(
        &self,
        ty: MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        if ty.is_64() {
            return Err("a 64-bit memory cannot be device memory; only 32-bit memories can".into());
        }
        if ty.is_shared() {
            return Err("a shared memory cannot be device memory".into());
        }
        if minimum as u64 > self.window_bytes {
            let window = self.window_bytes;
            return Err(format!(
                "a memory of {minimum} bytes does not fit the instance's window of {window} bytes"
            ));
        }
        let minimum = minimum as u64;
        let reserved = reserved.unwrap_or(0) as u64;
        // Compiled code takes the reservation for the end of a memory that begins inside it.
        let capacity = if (minimum.max(1)..self.window_bytes).contains(&reserved) {
            reserved
        } else {
            self.window_bytes
        };
        let spec = RegionSpec {
            window_bytes: self.window_bytes,
            initial_bytes: minimum,
            maximum_bytes: maximum.map_or(capacity, |bytes| capacity.min(bytes as u64)),
            reserved_bytes: reserved,
            guard_bytes: guard as u64,
        };
        let region = self
            .device
            .new_region(spec)
            .map_err(|error| error.to_string())?;
        Ok(Box::new(WindowMemory { region, capacity }))
    }
}

/// One linear memory.
struct WindowMemory {
    region: Arc<Region>,
    /// How far it may grow: the window or less.
    capacity: u64,
}

// SAFETY: see `WindowMemoryCreator`. `byte_size` is what `grow_to` last made accessible, and `byte_capacity` lies in the
// window, within which growth keeps the base. The region stays mapped as long as this value holds it.
unsafe impl LinearMemory for WindowMemory {
    fn byte_size(&self) -> usize {
        usize::try_from(self.region.size()).unwrap_or(usize::MAX)
    }

    fn byte_capacity(&self) -> usize {
        usize::try_from(self.capacity).unwrap_or(usize::MAX)
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        Ok(self.region.grow(new_size as u64)?)
    }

    fn as_ptr(&self) -> *mut u8 {
        self.region.base().as_ptr()
    }
}
