//! How long launches of a device are waited for on the threads that start them: a little, and longer where launches were lately
//! seen to end soon after. What is not seen there is the poller's to see, and its word takes a while to reach a thread that sleeps.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// For kernels of which nothing is known.
const SHORT: Duration = Duration::from_micros(20);
/// Where the last ones ended within that.
const LONG: Duration = Duration::from_micros(100);
/// A launch that the poller saw end within that would have been seen by a long wait.
const SEEN_LATE: Duration = Duration::from_micros(150);
/// Launches that must end soon, after a long wait that was in vain, before there is another.
const DISTRUST: i32 = 16;

/// What was seen of the last launches.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Above 0 a long wait is worth it.
    credit: AtomicI32,
}

impl Patience {
    /// How long to wait for the next launch.
    pub(super) fn limit(&self) -> Duration {
        if self.credit.load(Ordering::Relaxed) > 0 {
            LONG
        } else {
            SHORT
        }
    }

    /// A launch has not ended within `limit`.
    pub(super) fn was_in_vain(&self, limit: Duration) {
        if limit == LONG {
            self.credit.store(-DISTRUST, Ordering::Relaxed);
        }
    }

    /// The poller saw a launch end, so long after its start.
    pub(super) fn saw_end(&self, after: Duration) {
        if after > SEEN_LATE {
            return;
        }
        // Which of two threads counts does not matter.
        let credit = self.credit.load(Ordering::Relaxed);
        if credit <= 0 {
            self.credit.store(credit + 1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_that_end_soon_are_waited_for_longer() {
        let patience = Patience::default();
        assert_eq!(patience.limit(), SHORT);
        patience.was_in_vain(SHORT);
        patience.saw_end(Duration::from_micros(60));
        assert_eq!(patience.limit(), LONG);
    }

    #[test]
    fn long_launches_are_not_waited_for_again_and_again() {
        let patience = Patience::default();
        patience.saw_end(SEEN_LATE);
        patience.was_in_vain(LONG);
        let mut long = 0;
        for _ in 0..1_000 {
            let limit = patience.limit();
            long += u32::from(limit == LONG);
            // It takes longer than any wait, and less than what counts as long.
            patience.was_in_vain(limit);
            patience.saw_end(SEEN_LATE);
        }
        assert!(long <= 1_000 / 16, "{long}");
        for _ in 0..1_000 {
            patience.saw_end(Duration::from_secs(1));
        }
        assert!(patience.credit.load(Ordering::Relaxed) <= 1);
    }
}
