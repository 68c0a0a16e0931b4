//! What an instance may have and use: [`Limits`] are set by the embedder, a [`Quota`] counts, a [`Permit`] is the right to one
//! use and gives it back when dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::event::is_measured;

/// Limits of one instance. `docs/abi.md` lists the defaults and the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Kernels loaded at once.
    pub kernels: u64,
    /// Bytes of PTX of one load.
    pub ptx_bytes: u64,
    /// Bytes of PTX of all kernels loaded at once.
    pub ptx_bytes_total: u64,
    /// Device buffers at once.
    pub buffers: u64,
    /// Bytes of one device buffer.
    pub buffer_bytes: u64,
    /// Bytes of all device buffers and module variables at once.
    pub buffer_bytes_total: u64,
    /// Loads under way at once, those among them that nobody waits for any more.
    pub loads: u64,
    /// Launches in flight at once.
    pub launches: u64,
    /// Blocks of a grid, however many the device would take.
    pub blocks: u64,
    /// How long a kernel may run; for ever if `None`.
    pub deadline: Option<Duration>,
    /// Warp instructions that a launch may execute, on devices that count them; no limit if `None`.
    pub budget: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            kernels: 256,
            ptx_bytes: abi::MAX_PTX_BYTES as u64,
            ptx_bytes_total: 512 << 20,
            buffers: 4096,
            buffer_bytes: 256 << 20,
            buffer_bytes_total: 4 << 30,
            loads: 8,
            launches: 256,
            blocks: 1 << 24,
            deadline: Some(Duration::from_secs(10)),
            budget: None,
        }
    }
}

/// A live count with a limit.
#[derive(Debug)]
pub(crate) struct Quota {
    what: &'static str,
    used: AtomicU64,
    limit: u64,
}

impl Quota {
    pub(crate) fn new(what: &'static str, limit: u64) -> Arc<Self> {
        Arc::new(Self {
            what,
            used: AtomicU64::new(0),
            limit,
        })
    }

    /// Takes `amount`, until the permit is dropped.
    pub(crate) fn take(self: &Arc<Self>, amount: u64) -> Result<Permit, Error> {
        let add = |used: u64| used.checked_add(amount).filter(|&sum| sum <= self.limit);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        match taken {
            Ok(_) => {
                if is_measured() {
                    self.gauge().increment(gauged(amount));
                }
                Ok(Permit {
                    quota: Arc::clone(self),
                    amount,
                })
            }
            Err(used) => Err(Error::Quota {
                what: self.what,
                given: used.saturating_add(amount),
                limit: self.limit,
            }),
        }
    }

    /// What all instances hold of it together.
    fn gauge(&self) -> metrics::Gauge {
        metrics::gauge!("wasi_cuda_in_use", "what" => self.what)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// An amount as metrics take it; rounding begins far above what any limit allows.
fn gauged(amount: u64) -> f64 {
    amount as f64
}

/// A share of a [`Quota`].
#[derive(Debug)]
pub(crate) struct Permit {
    quota: Arc<Quota>,
    amount: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.quota.used.fetch_sub(self.amount, Ordering::Relaxed);
        if is_measured() {
            self.quota.gauge().decrement(gauged(self.amount));
        }
    }
}

/// The quotas of one instance.
#[derive(Debug)]
pub(crate) struct Quotas {
    pub(crate) kernels: Arc<Quota>,
    pub(crate) ptx_bytes: Arc<Quota>,
    pub(crate) buffers: Arc<Quota>,
    pub(crate) buffer_bytes: Arc<Quota>,
    pub(crate) loads: Arc<Quota>,
}

impl Quotas {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            kernels: Quota::new("kernels", limits.kernels),
            ptx_bytes: Quota::new("bytes of PTX", limits.ptx_bytes_total),
            buffers: Quota::new("device buffers", limits.buffers),
            buffer_bytes: Quota::new(
                "bytes of device buffers and module variables",
                limits.buffer_bytes_total,
            ),
            loads: Quota::new("loads under way", limits.loads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_given_back_and_a_refusal_takes_nothing() {
        let quota = Quota::new("things", 10);
        let permit = quota.take(7).unwrap();
        assert_eq!(
            quota.take(4).unwrap_err(),
            Error::Quota {
                what: "things",
                given: 11,
                limit: 10
            }
        );
        assert_eq!(
            quota.take(u64::MAX).unwrap_err().abi(),
            abi::AbiError::QuotaExceeded
        );
        assert_eq!(quota.used(), 7);
        drop(permit);
        assert_eq!(quota.used(), 0);
        quota.take(10).unwrap();
    }
}
