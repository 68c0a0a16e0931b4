//! The groups of a warp: lanes that run together. Who runs next, who joins whom; nothing here executes.

use super::code::LANES;

/// Back edges that a group takes while others are ready before one of those gets a turn: spin locks inside a warp make progress.
const PATIENCE: u32 = 32;
/// Instructions of such a turn.
pub(super) const TURN: u32 = 256;

/// Where a frame's registers and local memory begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) words: u32,
    pub(super) longs: u32,
    pub(super) predicates: u32,
    pub(super) local: u32,
    pub(super) depth: u32,
}

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The block's barrier of this number.
    Barrier(u8),
    Nothing,
    /// Other lanes of its warp.
    Warp,
}

/// Lanes that run together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) pc: u32,
    pub(super) mask: u32,
    pub(super) frame: Frame,
    pub(super) wait: Wait,
}

/// How a group was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// By the rule: deepest frame, then lowest pc.
    Ordinary,
    /// Out of turn, so that it makes some progress.
    Boosted,
    /// It waits for lanes that will not come.
    Forced,
}

/// The groups of a warp that do not run at the moment.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    list: [Group; LANES],
    len: usize,
    turn: usize,
    boost: bool,
    /// Back edges until another gets a turn. Kept when a group leaves, since a loop may call, sleep or wait in its body.
    patience: u32,
}

impl Default for Groups {
    fn default() -> Self {
        let nobody = Group {
            pc: 0,
            mask: 0,
            frame: Frame::default(),
            wait: Wait::Nothing,
        };
        Self {
            list: [nobody; LANES],
            len: 0,
            turn: 0,
            boost: false,
            patience: PATIENCE,
        }
    }
}

impl Groups {
    /// One group of all lanes of `mask` at the start.
    pub(super) fn reset(&mut self, pc: u32, mask: u32) {
        self.list[0] = Group {
            pc,
            mask,
            frame: Frame::default(),
            wait: Wait::Nothing,
        };
        self.len = 1;
        self.turn = 0;
        self.boost = false;
        self.patience = PATIENCE;
    }

    pub(super) fn all(&self) -> &[Group] {
        &self.list[..self.len]
    }

    pub(super) fn all_mut(&mut self) -> &mut [Group] {
        &mut self.list[..self.len]
    }

    /// Adds a group; it joins one that is ready at the same place.
    pub(super) fn push(&mut self, group: Group) {
        if group.mask == 0 {
            return;
        }
        let twin = self.all_mut().iter_mut().find(|other| {
            other.pc == group.pc && other.frame == group.frame && other.wait == group.wait
        });
        match twin {
            Some(twin) if group.wait == Wait::Nothing => twin.mask |= group.mask,
            // Masks are disjoint and not empty, so there are never more groups than lanes.
            _ => {
                self.list[self.len] = group;
                self.len += 1;
            }
        }
    }

    pub(super) fn any_ready(&self) -> bool {
        self.all().iter().any(|group| group.wait == Wait::Nothing)
    }

    pub(super) fn any_runnable(&self) -> bool {
        self.all()
            .iter()
            .any(|group| !matches!(group.wait, Wait::Barrier(_)))
    }

    /// Lanes that wait at a barrier.
    pub(super) fn waiting(&self, barrier: u8) -> u32 {
        let at = self
            .all()
            .iter()
            .filter(|group| group.wait == Wait::Barrier(barrier));
        at.fold(0, |mask, group| mask | group.mask)
    }

    /// The next group is to be one that the rule would leave waiting.
    pub(super) fn rotate(&mut self) {
        self.boost = true;
        self.patience = PATIENCE;
    }

    /// A group takes a back edge while others are ready. Whether one of those is to run instead.
    #[inline]
    pub(super) fn tire(&mut self) -> bool {
        self.patience -= 1;
        if self.patience == 0 {
            self.rotate();
            return true;
        }
        false
    }

    /// Takes the group that runs next, joined by all at the same place.
    pub(super) fn next(&mut self) -> Option<(Group, Turn)> {
        let (index, turn) = if std::mem::take(&mut self.boost) {
            self.turn = self.turn.wrapping_add(1);
            let ready = self
                .all()
                .iter()
                .filter(|group| group.wait == Wait::Nothing)
                .count();
            let nth = self.turn.checked_rem(ready)?;
            let mut indices = (0..self.len).filter(|&index| self.list[index].wait == Wait::Nothing);
            (indices.nth(nth)?, Turn::Boosted)
        } else if let Some(index) = self.first(Wait::Nothing) {
            (index, Turn::Ordinary)
        } else {
            (self.first(Wait::Warp)?, Turn::Forced)
        };
        let mut chosen = self.remove(index);
        chosen.wait = Wait::Nothing;
        chosen.mask |= self.absorb(&chosen);
        Some((chosen, turn))
    }

    /// The deepest group that waits so, and of those the one with the lowest pc.
    fn first(&self, wait: Wait) -> Option<usize> {
        let of = |index: &usize| self.list[*index];
        (0..self.len)
            .filter(|index| of(index).wait == wait)
            .min_by_key(|index| (u32::MAX - of(index).frame.depth, of(index).pc))
    }

    /// Takes the lanes that stand where `group` stands.
    pub(super) fn absorb(&mut self, group: &Group) -> u32 {
        let mut gained = 0;
        let mut index = 0;
        while index < self.len {
            let other = self.list[index];
            if other.pc == group.pc
                && other.frame == group.frame
                && !matches!(other.wait, Wait::Barrier(_))
            {
                gained |= self.remove(index).mask;
            } else {
                index += 1;
            }
        }
        gained
    }

    fn remove(&mut self, index: usize) -> Group {
        let group = self.list[index];
        self.len -= 1;
        self.list[index] = self.list[self.len];
        group
    }

    /// The pc at which a group in this frame must let another run, which it may join. Those in other frames of the same
    /// function it never joins, so that neither waits for the other.
    pub(super) fn meeting_point(&self, frame: Frame) -> u32 {
        let ready = self
            .all()
            .iter()
            .filter(|group| group.wait == Wait::Nothing && group.frame == frame);
        ready.map(|group| group.pc).min().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(pc: u32, mask: u32) -> Group {
        Group {
            pc,
            mask,
            frame: Frame::default(),
            wait: Wait::Nothing,
        }
    }

    #[test]
    fn the_lowest_pc_runs_and_takes_along_who_stands_there() {
        let mut groups = Groups::default();
        groups.reset(9, 0b0001);
        groups.push(group(4, 0b0010));
        groups.push(Group {
            wait: Wait::Warp,
            ..group(4, 0b0100)
        });
        let (next, turn) = groups.next().unwrap();
        assert_eq!((next.pc, next.mask, turn), (4, 0b0110, Turn::Ordinary));
        assert_eq!(groups.meeting_point(Frame::default()), 9);
    }

    #[test]
    fn a_rotation_gives_every_group_a_turn() {
        let mut groups = Groups::default();
        groups.reset(1, 0b001);
        groups.push(group(2, 0b010));
        groups.push(group(3, 0b100));
        let mut seen = 0;
        for _ in 0..6 {
            groups.rotate();
            let (next, turn) = groups.next().unwrap();
            assert_eq!(turn, Turn::Boosted);
            seen |= next.mask;
            groups.push(next);
        }
        assert_eq!(seen, 0b111);
    }

    #[test]
    fn who_waits_for_lanes_that_will_not_come_is_let_go() {
        let mut groups = Groups::default();
        groups.reset(1, 0b01);
        groups.all_mut()[0].wait = Wait::Barrier(0);
        groups.push(Group {
            wait: Wait::Warp,
            ..group(5, 0b10)
        });
        let (next, turn) = groups.next().unwrap();
        assert_eq!((next.mask, turn), (0b10, Turn::Forced));
        assert!(groups.next().is_none());
    }
}
