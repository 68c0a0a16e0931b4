//! Room for loads beside kernels that run long. The driver puts a module onto the device only between kernels, in several steps: where one endless
//! kernel follows another, each step would wait for one of them. While a module is being loaded, launches of guests whose kernels do not
//! end soon wait, for a while.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Kernels that end within that hold no load up.
const BRIEF: Duration = Duration::from_millis(5);
/// How long launches wait at most: loads may follow each other without end, too.
const LONGEST: Duration = Duration::from_secs(1);

/// Open unless a module is being loaded.
#[derive(Debug, Default)]
pub(super) struct Gate {
    loads: AtomicUsize,
    /// Since when there was no moment without a load.
    closed: Mutex<Option<Instant>>,
}

/// A load; the gate is closed as long as there is one.
#[derive(Debug)]
pub(super) struct Loading<'a>(&'a Gate);

impl Gate {
    /// Closes the gate.
    pub(super) fn close(&self) -> Loading<'_> {
        let mut closed = self.closed();
        if self.loads.fetch_add(1, Ordering::Relaxed) == 0 {
            *closed = Some(Instant::now());
        }
        drop(closed);
        Loading(self)
    }

    /// Whether launches wait now that are not known to be brief. Costs next to nothing where there is no load.
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        if self.loads.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let since = *self.closed();
        since.is_some_and(|since| now.saturating_duration_since(since) < LONGEST)
    }

    fn closed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let mut closed = self.0.closed();
        if self.0.loads.fetch_sub(1, Ordering::Relaxed) == 1 {
            *closed = None;
        }
    }
}

/// Whether a kernel that took so long is brief.
pub(super) fn is_brief(took: Duration) -> bool {
    took < BRIEF
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_closed_while_there_are_loads_and_not_for_ever() {
        let gate = Gate::default();
        let now = Instant::now();
        assert!(!gate.is_closed(now));
        let first = gate.close();
        let second = gate.close();
        assert!(gate.is_closed(now));
        drop(first);
        assert!(gate.is_closed(now));
        assert!(!gate.is_closed(Instant::now() + LONGEST));
        drop(second);
        assert!(!gate.is_closed(now));
        let _third = gate.close();
        assert!(gate.is_closed(Instant::now()));
    }
}
