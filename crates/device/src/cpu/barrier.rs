//! The sixteen barriers of a block. Who waits is known to the warps; here is what was counted.

use super::groups::Wait;
use super::warp::Warp;

/// Barriers of a block (PTX ISA, `barrier`).
const BARRIERS: usize = 16;

/// The number by which a group waits for its cluster.
pub(super) const CLUSTER: u8 = 16;

/// What has come to a barrier since it was last complete.
#[derive(Clone, Copy, Debug, Default)]
struct Barrier {
    /// Threads that wait.
    waiting: u32,
    /// Threads that have come without waiting, in whole warps.
    passed: u32,
    /// Threads that complete it; all that are alive if `None`.
    threads: Option<u32>,
    /// Waiting threads whose predicate was true.
    yes: u32,
}

/// The barriers of a block and the threads that are alive.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    list: [Barrier; BARRIERS],
    /// Barriers to which threads have come.
    in_use: u16,
    alive: u32,
    /// Whether anything has happened since they were last looked at.
    changed: bool,
    /// The same for the barrier of the cluster.
    gathered: bool,
}

/// What the threads of a complete barrier are told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Complete {
    pub(super) id: u8,
    pub(super) yes: u32,
    pub(super) threads: u32,
}

impl Barriers {
    pub(super) fn reset(&mut self, threads: u32) {
        *self = Self {
            alive: threads,
            ..Self::default()
        };
    }

    pub(super) fn alive(&self) -> u32 {
        self.alive
    }

    pub(super) fn exit(&mut self, lanes: u32) {
        self.alive -= lanes.count_ones();
        self.changed = true;
        self.gathered = true;
    }

    /// Lanes come to the barrier of the cluster.
    pub(super) fn gather(&mut self) {
        self.gathered = true;
    }

    /// Whether the barrier of the cluster may have become complete.
    pub(super) fn take_gathered(&mut self) -> bool {
        std::mem::take(&mut self.gathered)
    }

    /// Whether a barrier may have become complete.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Lanes begin to wait. `None` if there is no such barrier.
    pub(super) fn arrive(
        &mut self,
        id: u8,
        threads: Option<u32>,
        lanes: u32,
        yes: u32,
    ) -> Option<()> {
        let barrier = self.list.get_mut(usize::from(id))?;
        barrier.waiting += lanes.count_ones();
        barrier.yes += yes.count_ones();
        barrier.threads = threads;
        self.in_use |= 1 << id;
        self.changed = true;
        Some(())
    }

    /// Threads come without waiting.
    pub(super) fn pass(&mut self, id: u8, threads: u32, rounded: u32) -> Option<()> {
        let barrier = self.list.get_mut(usize::from(id))?;
        barrier.passed = barrier.passed.saturating_add(rounded);
        barrier.threads = Some(threads);
        self.in_use |= 1 << id;
        self.changed = true;
        Some(())
    }

    /// A barrier that is complete, which begins anew.
    pub(super) fn take_complete(&mut self, warps: &[Warp]) -> Option<Complete> {
        let mut ids = self.in_use;
        while ids != 0 {
            let id = ids.trailing_zeros();
            ids &= ids - 1;
            let barrier = &mut self.list[id as usize];
            let id = u8::try_from(id).ok()?;
            // Threads that have exited count as come, unless a number was given.
            let complete = match barrier.threads {
                None => barrier.waiting == self.alive,
                Some(threads) => barrier.passed.saturating_add(rounded(warps, id)) >= threads,
            };
            if complete {
                let done = Complete {
                    id,
                    yes: barrier.yes,
                    threads: barrier.waiting,
                };
                *barrier = Barrier::default();
                self.in_use &= !(1 << id);
                return Some(done);
            }
        }
        None
    }
}

/// Threads that wait, where a warp all of whose living lanes do counts whole.
fn rounded(warps: &[Warp], id: u8) -> u32 {
    let of = |warp: &Warp| match warp.groups.waiting(id) {
        0 => 0,
        lanes if lanes == warp.live => 32,
        lanes => lanes.count_ones(),
    };
    warps.iter().map(of).sum()
}

/// Lets the waiting groups of a warp go; gives each to `tell` first.
pub(super) fn release(warp: &mut Warp, id: u8, mut tell: impl FnMut(&mut Warp, usize)) {
    for index in 0..warp.groups.all().len() {
        if warp.groups.all()[index].wait == Wait::Barrier(id) {
            tell(warp, index);
            let group = &mut warp.groups.all_mut()[index];
            group.wait = Wait::Nothing;
            group.pc += 1;
        }
    }
}

/// Lets the threads of a cluster go that wait for each other, once all that are alive have come; those that have come and do
/// not wait yet will pass.
pub(super) fn gather(warps: &mut [Warp]) {
    let all = warps.iter().all(|warp| warp.live & !warp.arrived == 0);
    let any = warps.iter().any(|warp| warp.arrived != 0);
    if !all || !any {
        return;
    }
    for warp in warps {
        let waiting = warp.groups.waiting(CLUSTER);
        warp.passed |= std::mem::take(&mut warp.arrived) & !waiting;
        release(warp, CLUSTER, |_, _| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_come_without_end_are_counted_without_wrapping() {
        let mut barriers = Barriers::default();
        barriers.reset(32);
        for rounded in [u32::MAX - 64, 32, 31] {
            barriers.pass(1, u32::MAX, rounded).unwrap();
            assert!(barriers.take_complete(&[]).is_none());
        }
        barriers.pass(1, u32::MAX, 32).unwrap();
        assert_eq!(barriers.take_complete(&[]).unwrap().id, 1);
    }
}
