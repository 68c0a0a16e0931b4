//! How many blocks of a kernel the device runs at once: the bound of cooperative launches. The driver is asked once for each shape of
//! block; where it does not answer, it is left to refuse the launch itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// Measured bounds of one entry.
#[derive(Debug)]
pub(super) struct Occupancy {
    multiprocessors: u64,
    runs_cooperative: bool,
    measured: Mutex<Vec<Measured>>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    threads: u32,
    shared_bytes: u32,
    blocks: u64,
}

/// Shapes that are remembered for an entry.
const MOST_SHAPES: usize = 16;

/// Blocks that fit a multiprocessor of any compute capability up to 12, at most.
const MOST_RESIDENT: u64 = 32;

/// How often the driver did not answer, in this process.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// How often the driver did not say how many blocks fit.
pub(super) fn failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

impl Occupancy {
    pub(super) fn new(runs_cooperative: bool, multiprocessors: u32) -> Self {
        Self {
            multiprocessors: multiprocessors.into(),
            runs_cooperative,
            measured: Mutex::default(),
        }
    }

    /// The most blocks of a cooperative launch, asking `measure` for those of one multiprocessor if need be.
    pub(super) fn bound(
        &self,
        threads: u32,
        shared_bytes: u32,
        measure: impl FnOnce(u32, u32) -> Result<u32, Error>,
    ) -> u64 {
        if !self.runs_cooperative {
            return 0;
        }
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let known = measured
            .iter()
            .find(|it| it.threads == threads && it.shared_bytes == shared_bytes);
        if let Some(known) = known {
            return known.blocks;
        }
        match measure(threads, shared_bytes) {
            Ok(resident) => {
                let blocks = u64::from(resident) * self.multiprocessors;
                if measured.len() == MOST_SHAPES {
                    measured.remove(0);
                }
                measured.push(Measured {
                    threads,
                    shared_bytes,
                    blocks,
                });
                blocks
            }
            Err(error) => {
                FAILURES.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "the bound of cooperative launches is not known");
                MOST_RESIDENT * self.multiprocessors
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unasked(_: u32, _: u32) -> Result<u32, Error> {
        panic!("the driver was asked again")
    }

    #[test]
    fn each_shape_is_measured_once() {
        let occupancy = Occupancy::new(true, 132);
        assert_eq!(occupancy.bound(256, 0, |_, _| Ok(8)), 8 * 132);
        assert_eq!(occupancy.bound(256, 1024, |_, _| Ok(3)), 3 * 132);
        assert_eq!(occupancy.bound(256, 0, unasked), 8 * 132);
        assert_eq!(occupancy.bound(256, 1024, unasked), 3 * 132);
    }

    #[test]
    fn the_oldest_shape_is_forgotten_when_there_are_many() {
        let occupancy = Occupancy::new(true, 1);
        for threads in 0..=16 {
            occupancy.bound(threads, 0, |threads, _| Ok(threads));
        }
        assert_eq!(occupancy.bound(16, 0, unasked), 16);
        assert_eq!(occupancy.bound(0, 0, |_, _| Ok(5)), 5);
    }

    #[test]
    fn a_driver_that_does_not_answer_is_counted_and_left_to_refuse() {
        let occupancy = Occupancy::new(true, 10);
        let before = failures();
        let failed = |_, _| {
            Err(Error::Backend {
                what: "measuring",
                reason: "x".into(),
            })
        };
        assert_eq!(occupancy.bound(32, 0, failed), 320);
        assert_eq!(failures(), before + 1);
        assert_eq!(occupancy.bound(32, 0, |_, _| Ok(1)), 10);
    }

    #[test]
    fn a_device_without_cooperative_launches_has_no_room_for_them() {
        assert_eq!(Occupancy::new(false, 132).bound(1, 0, unasked), 0);
    }
}
