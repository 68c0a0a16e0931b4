//! The clocks that a kernel can read.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::code::{LANES, Timer};
use super::lanes::{Regs, blend};

/// Time stamps are the same in all lanes.
#[expect(
    clippy::cast_possible_truncation,
    reason = "clocks wrap around, as those of a GPU do"
)]
#[inline(never)]
pub(super) fn read_timer(regs: &mut Regs<'_>, d: u16, timer: Timer, epoch: Instant, mask: u32) {
    let since = || epoch.elapsed().as_nanos() as u64;
    let global = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos() as u64
    };
    let value = match timer {
        Timer::Clock32 | Timer::Clock32High | Timer::Clock64 => since(),
        Timer::Global32 | Timer::Global32High | Timer::Global64 => global(),
    };
    match timer {
        Timer::Clock64 | Timer::Global64 => {
            blend(&mut regs.d[usize::from(d)], mask, &[value; LANES])
        }
        Timer::Clock32 | Timer::Global32 => {
            blend(&mut regs.w[usize::from(d)], mask, &[value as u32; LANES])
        }
        Timer::Clock32High | Timer::Global32High => {
            blend(
                &mut regs.w[usize::from(d)],
                mask,
                &[(value >> 32) as u32; LANES],
            );
        }
    }
}
