//! Control blocks in memory that host and device reach: how the host hears what a confined kernel did, and has it end before its time.
//! What the bytes mean is said in `docs/confinement.md`, and read in the crate's own `control.rs`.
//!
//! The block is in the host's memory: kernels write to it across the bus, if they have something to report at all, and the host reads it after
//! each launch without a copy. What every thread looks at, the word that says stop, is in the device's (`stops.rs`).

use std::sync::atomic::Ordering;

use super::lines::Line;
use super::stops::Stop;
use crate::control::{Block, WORDS};
use crate::error::Error;

/// The control block of one launch after the other.
#[derive(Debug)]
pub(super) struct Control {
    line: Line,
    stop: Option<Stop>,
}

impl Control {
    /// `stop` is `None` where there is no way to stop a kernel; then none is confined.
    pub(super) fn new(line: Line, stop: Option<Stop>) -> Self {
        Self { line, stop }
    }

    /// Where the kernel finds it.
    pub(super) fn device_address(&self) -> u64 {
        self.line.device_address()
    }

    /// Makes it ready for a kernel. Nothing runs on it.
    pub(super) fn clear(&self) {
        for word in &self.line.words()[..WORDS] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The word that stops a kernel.
    pub(super) fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// Has the kernel end where it next looks.
    pub(super) fn raise(&self) -> Result<(), Error> {
        self.stop.as_ref().map_or(Ok(()), Stop::raise)
    }

    /// What a kernel that has ended left.
    pub(super) fn block(&self) -> Block {
        let words = self.line.words();
        Block(std::array::from_fn(|at| words[at].load(Ordering::Acquire)))
    }

    /// The first word, for a kernel that answers with a number other than 0.
    pub(super) fn answer(&self) -> u64 {
        self.line.words()[0].load(Ordering::Acquire)
    }
}
