//! The device's clock (`%globaltimer`) beside the host's, so that a deadline of the host can be told to a kernel.

use std::time::{Duration, Instant};

/// A reading of the device's clock, and when the host began to wait for it and had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) before: Instant,
    pub(super) device: u64,
    pub(super) after: Instant,
}

/// How the clocks are beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    reading: Reading,
}

/// No two clocks go alike. One of a computer is set right by less than an eighth of this, and an oscillator off by less than a quarter.
const DRIFT_SHIFT: u32 = 12;

impl Clock {
    /// From several readings, of which the shortest says most. The device's clock never shows 0: such a reading was not made.
    pub(super) fn of(readings: impl IntoIterator<Item = Reading>) -> Option<Self> {
        let made = readings.into_iter().filter(|reading| reading.device != 0);
        let reading = made.min_by_key(|reading| reading.after - reading.before)?;
        Some(Self { reading })
    }

    /// What the device's clock shows at `deadline`, or a little later: by as long as the reading took, and by what the clocks may have
    /// drifted apart since. The host stops kernels itself when it is time; this is for those that it does not reach.
    pub(super) fn until(&self, deadline: Instant) -> u64 {
        let since = deadline.saturating_duration_since(self.reading.before);
        let since = nanoseconds(since);
        let late = since.saturating_add(since >> DRIFT_SHIFT);
        self.reading.device.saturating_add(late)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    fn reading(at: Instant, took: u32, device: u64) -> Reading {
        Reading {
            before: at,
            device,
            after: at + took * MICROSECOND,
        }
    }

    #[test]
    fn the_shortest_reading_counts_and_one_that_was_not_made_does_not() {
        let now = Instant::now();
        let [long, short, unmade] =
            [(30, 7), (8, 5), (2, 0)].map(|(took, at)| reading(now, took, at));
        assert_eq!(
            Clock::of([long, short, unmade]),
            Some(Clock { reading: short })
        );
        assert_eq!(Clock::of([unmade]), None);
        assert_eq!(Clock::of([]), None);
    }

    #[test]
    fn a_deadline_is_never_told_early_and_late_by_little() {
        let (now, at) = (Instant::now(), 1_700_000_000_000_000_000);
        let clock = Clock::of([reading(now, 10, at)]).unwrap();
        for (after, most) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_millis(10), 3 * MICROSECOND),
            (Duration::from_secs(10), Duration::from_millis(3)),
            (Duration::from_secs(86_400), Duration::from_secs(22)),
        ] {
            let until = clock.until(now + after);
            let told = Duration::from_nanos(until - at);
            assert!(told >= after && told <= after + most, "{after:?}: {told:?}");
        }
    }

    #[test]
    fn what_is_past_is_now_and_what_no_clock_shows_is_for_ever() {
        let now = Instant::now();
        let clock = Clock::of([reading(now + MICROSECOND, 1, 99)]).unwrap();
        assert_eq!(clock.until(now), 99);
        let clock = Clock::of([reading(now, 1, u64::MAX - 10)]).unwrap();
        assert_eq!(clock.until(now + MICROSECOND), u64::MAX);
    }
}
