//! What everything of one device shares, and what outlives the device where a region or a program does.

use std::sync::{Arc, OnceLock};

use super::clock::Clock;
use super::context::Context;
use super::flight::Flight;
use super::gate::Gate;
use super::patience::Patience;
use super::poller::Poller;
use super::reaper::Reaper;
use super::stream::Lanes;
use crate::device::DeviceInfo;
use crate::region::RegionTable;

/// Context, streams, threads and facts of a device.
#[derive(Debug)]
pub(super) struct Core {
    // Fields drop in this order: the poller's jobs use streams, and all hold the context.
    pub(super) poller: Poller<Flight>,
    pub(super) reaper: Arc<Reaper>,
    pub(super) lanes: Arc<Lanes>,
    pub(super) context: Arc<Context>,
    pub(super) regions: Arc<RegionTable>,
    pub(super) info: DeviceInfo,
    pub(super) runs_cooperative: bool,
    /// Read when the first confined program is loaded; `None` where it could not be.
    pub(super) clock: OnceLock<Option<Clock>>,
    pub(super) patience: Patience,
    pub(super) gate: Gate,
}
