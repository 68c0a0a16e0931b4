//! Counters for operators. They are written here and there; no decision reads them.

use std::sync::atomic::{AtomicU64, Ordering};

/// What an instance has done so far, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Kernels loaded by the guest.
    pub loads: u64,
    /// Loads that shared a module which was already loaded.
    pub loads_shared: u64,
    /// Launches that a device started.
    pub launches: u64,
    /// Launches that ended in a kernel trap.
    pub traps: u64,
    /// Launches that were stopped: deadline, budget or a caller that had gone.
    pub stopped: u64,
    /// Imports that answered a code, whatever the reason.
    pub failures: u64,
    /// Kernels loaded by the guest at present.
    pub kernels: u64,
    /// Bytes of device buffers and module variables at present.
    pub buffer_bytes: u64,
}

/// The counters behind [`Metrics`], except those that are kept under a lock anyway.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) loads: AtomicU64,
    pub(crate) loads_shared: AtomicU64,
    pub(crate) traps: AtomicU64,
    pub(crate) stopped: AtomicU64,
    pub(crate) failures: AtomicU64,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn snapshot(&self, launches: u64, kernels: u64, buffer_bytes: u64) -> Metrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            loads: read(&self.loads),
            loads_shared: read(&self.loads_shared),
            launches,
            traps: read(&self.traps),
            stopped: read(&self.stopped),
            failures: read(&self.failures),
            kernels,
            buffer_bytes,
        }
    }
}
