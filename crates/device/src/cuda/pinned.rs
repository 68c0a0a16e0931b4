//! Pages of the host that are registered with the driver range by range, as they are opened: host and device reach those, and
//! nobody the rest.
#![expect(unsafe_code, reason = "registers memory of the host with the driver")]

use std::ffi::{c_uint, c_void};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cust::sys;

use super::context::Context;
use crate::error::Error;
use crate::mapping::{HostAddr, Mapping};

/// A reservation of the host's address space. The device finds it in one piece as well, or as much of it as could be opened.
pub(super) struct Pinned {
    // Fields drop in this order: nothing is unmapped that is registered.
    ranges: Mutex<Vec<Registered>>,
    pages: Mapping,
    /// The device's address of the start, whether that is open or not; 0 until something is.
    device: AtomicU64,
    context: Arc<Context>,
}

impl Pinned {
    /// Reserves `bytes`, a multiple of the page size, all of them closed.
    pub(super) fn reserve(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        let pages = Mapping::reserve(bytes).map_err(|error| Error::Backend {
            what: "reserving memory",
            reason: error.to_string(),
        })?;
        Ok(Self {
            ranges: Mutex::default(),
            pages,
            device: AtomicU64::new(0),
            context: Arc::clone(context),
        })
    }

    /// The host's side.
    pub(super) fn pages(&self) -> &Mapping {
        &self.pages
    }

    /// The device's address of the start.
    pub(super) fn device(&self) -> u64 {
        self.device.load(Ordering::Acquire)
    }

    /// Opens whole pages that were never open, which are zero. Enter the context first.
    pub(super) fn open(&self, range: Range<usize>) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let failed = |reason| Error::Backend {
            what: "opening memory to the CUDA device",
            reason,
        };
        let opened = self.pages.commit(range.clone());
        opened.map_err(|error| failed(error.to_string()))?;
        let registered = self.register(range.clone()).and_then(|registered| {
            let before = self.device();
            let start = registered.device.wrapping_sub(range.start as u64);
            if before != 0 && start != before {
                return Err(failed("the device finds it apart from the rest".into()));
            }
            self.device.store(start, Ordering::Release);
            Ok(registered)
        });
        match registered {
            Ok(registered) => {
                let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
                ranges.push(registered);
                Ok(())
            }
            Err(error) => {
                // It stays open to the host where that fails too; the guest is told that it does not have it.
                let closed = self.pages.deny(range);
                closed.map_err(|error| failed(error.to_string()))?;
                Err(error)
            }
        }
    }

    fn register(&self, range: Range<usize>) -> Result<Registered, Error> {
        const DEVICE_MAPPED: c_uint = 2;
        let bytes = range.len();
        let host = self.pages.at(range.start).as_ptr().cast::<c_void>();
        // SAFETY: the pages lie in this mapping and are accessible (`open`); they stay mapped until they are no longer
        // registered, since `ranges` is dropped first.
        let result = unsafe { sys::cuMemHostRegister_v2(host, bytes, DEVICE_MAPPED) };
        self.context
            .check("registering memory of the host", result)?;
        let mut registered = Registered {
            host: self.pages.at(range.start),
            device: 0,
            context: Arc::clone(&self.context),
        };
        // SAFETY: `device` is a live place for one address, and the memory was registered just now.
        let result =
            unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut registered.device, host, 0) };
        self.context.check("finding memory of the host", result)?;
        Ok(registered)
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").finish_non_exhaustive()
    }
}

/// A registration, ended when dropped.
struct Registered {
    host: HostAddr,
    device: u64,
    context: Arc<Context>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.context
            .give_back("giving back memory of the host", || {
                // SAFETY: registered once, at this address. Launches hold the region that holds it, so no kernel that was
                // started on it still runs.
                unsafe { sys::cuMemHostUnregister(self.host.as_ptr().cast()) }
            });
    }
}
