//! The control block of a confined launch, as `docs/confinement.md` has it: what its bytes say once the kernel has ended. A kernel wrote
//! them, so that nothing in them is believed.

use ptx::{ConfinedMap, SiteKind};

use crate::error::{Access, AccessSpace, Error, StopReason, Trap, TrapKind};
use crate::launch::Geometry;

/// Words of 64 bits of a block.
pub(crate) const WORDS: usize = 8;

/// Offsets of what is in a block.
const CUT: usize = 8;
const STATE: usize = 16;
const SITE: usize = 20;
const ADDRESS: usize = 24;
const BLOCK: [usize; 3] = [32, 36, 40];
const THREAD: [usize; 3] = [44, 48, 52];

/// A copy of a block, after its kernel has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(pub(crate) [u64; WORDS]);

/// What is known of a launch without asking its kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) map: &'a ConfinedMap,
    pub(crate) geometry: Geometry,
    /// Line of the entry in the guest's text.
    pub(crate) line: u32,
    /// Where the window lies to the kernel, and its bytes.
    pub(crate) base: u64,
    pub(crate) window_bytes: u64,
    /// Why the host told the kernel to stop, if it did.
    pub(crate) told: Option<StopReason>,
}

impl Known<'_> {
    /// An address as its guest may be told it. The guest knows offsets only: of one in the window, or just beside it, where the window
    /// lies to the kernel, that is the offset.
    fn told_address(&self, address: u64) -> u64 {
        const BESIDE: u64 = 64 << 10;
        let offset = address.wrapping_sub(self.base);
        let is_ours = offset.wrapping_add(BESIDE) < self.window_bytes.saturating_add(2 * BESIDE);
        if is_ours { offset } else { address }
    }

    /// The line of the guest's text that a line of the confined one was made from; the entry's where it was made from none.
    pub(crate) fn told_line(&self, line: u32) -> u32 {
        self.map.guest_line(line).unwrap_or(self.line)
    }

    /// A trap that a device saw in the confined text, as one of the guest's text.
    pub(crate) fn told_trap(&self, trap: Trap) -> Trap {
        Trap {
            line: self.told_line(trap.line),
            access: trap.access.map(|access| Access {
                address: self.told_address(access.address),
                ..access
            }),
            ..trap
        }
    }
}

impl Block {
    /// How the launch ended: with a report, which comes first, or cut short, or well. Threads that begin once the host has told the kernel to stop
    /// end without a trace, so that a kernel that was told did not do all that it was to do, as far as anybody knows; one that saw its
    /// time pass before the host did was stopped for that.
    pub(crate) fn outcome(&self, known: &Known<'_>) -> Result<(), Error> {
        if self.narrow(STATE) != 0 {
            return Err(Error::Trap(self.trap(known)));
        }
        let saw_it = (self.narrow(CUT) != 0).then_some(StopReason::Deadline);
        match known.told.or(saw_it) {
            Some(reason) => Err(Error::Stopped(reason)),
            None => Ok(()),
        }
    }

    fn trap(&self, known: &Known<'_>) -> Trap {
        let sites = &known.map.sites;
        let site = usize::try_from(self.narrow(SITE))
            .ok()
            .and_then(|at| sites.get(at));
        let place = |at: [usize; 3], sizes: [u32; 3]| {
            std::array::from_fn(|axis| self.narrow(at[axis]).min(sizes[axis].saturating_sub(1)))
        };
        let trap = Trap {
            kind: TrapKind::TrapInstruction,
            line: site.map_or(known.line, |site| site.line),
            block: place(BLOCK, known.geometry.grid()),
            thread: place(THREAD, known.geometry.block()),
            access: None,
        };
        let Some(site) = site else { return trap };
        let accessed = |space| {
            let address = known.told_address(self.wide(ADDRESS));
            let bytes = site.bytes;
            let is_aligned = address.is_multiple_of(u64::from(bytes.max(1)));
            Trap {
                kind: if is_aligned {
                    TrapKind::OutOfBounds
                } else {
                    TrapKind::Misaligned
                },
                // A site of several accesses does not know which of them it was.
                access: (bytes > 0).then_some(Access {
                    address,
                    bytes,
                    space,
                }),
                ..trap
            }
        };
        match site.kind {
            SiteKind::CallDepth => Trap {
                kind: TrapKind::CallDepth,
                ..trap
            },
            SiteKind::GlobalAccess => accessed(AccessSpace::Global),
            SiteKind::LocalAccess => accessed(AccessSpace::Local),
            SiteKind::SharedAccess => accessed(AccessSpace::Shared),
            SiteKind::Trap => trap,
        }
    }

    fn wide(&self, at: usize) -> u64 {
        self.0[at / 8]
    }

    fn narrow(&self, at: usize) -> u32 {
        let [low, high] = halves(self.wide(at));
        if at.is_multiple_of(8) { low } else { high }
    }
}

/// The low and the high half of a word.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use ptx::Site;

    use super::*;
    use crate::device::DeviceLimits;
    use crate::launch::Mode;

    const BASE: u64 = 0x7e00_0000_0000;

    fn map() -> ConfinedMap {
        let site = |kind, line, bytes| Site { kind, line, bytes };
        ConfinedMap {
            sites: vec![
                site(SiteKind::GlobalAccess, 11, 4),
                site(SiteKind::Trap, 12, 0),
                site(SiteKind::CallDepth, 13, 0),
                site(SiteKind::SharedAccess, 14, 16),
                site(SiteKind::LocalAccess, 15, 0),
            ],
            lines: vec![0, 21, 22],
            ..ConfinedMap::default()
        }
    }

    fn known(map: &ConfinedMap, told: Option<StopReason>) -> Known<'_> {
        let limits = &DeviceLimits::ARCHITECTURAL;
        let geometry = Geometry::new([5, 2, 1], [32, 4, 2], 0, Mode::Plain, limits, None);
        Known {
            map,
            geometry: geometry.unwrap(),
            line: 3,
            base: BASE,
            window_bytes: 1 << 20,
            told,
        }
    }

    /// A block whose words of 32 bits are those given, by offset.
    fn block(words: &[(usize, u32)]) -> Block {
        let mut block = Block([0; WORDS]);
        for &(at, word) in words {
            block.0[at / 8] |= u64::from(word) << (8 * (at % 8));
        }
        block
    }

    fn report(site: u32, address: u64) -> Block {
        let mut block = block(&[
            (STATE, 1),
            (SITE, site),
            (32, 4),
            (36, 1),
            (44, 31),
            (52, 1),
        ]);
        block.0[ADDRESS / 8] = address;
        block
    }

    fn trap(block: &Block) -> Trap {
        match block.outcome(&known(&map(), None)) {
            Err(Error::Trap(trap)) => trap,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_report_comes_before_a_cut_and_a_cut_before_a_good_end() {
        let map = map();
        let outcome = |words: &[_], told| block(words).outcome(&known(&map, told));
        let stopped = |reason| Err(Error::Stopped(reason));
        for told in [StopReason::Deadline, StopReason::Requested] {
            assert_eq!(outcome(&[], Some(told)), stopped(told));
            assert_eq!(outcome(&[(CUT, 1)], Some(told)), stopped(told));
            let reported = outcome(&[(CUT, 1), (STATE, 1)], Some(told));
            assert!(matches!(reported, Err(Error::Trap(_))), "{reported:?}");
        }
        assert_eq!(outcome(&[(CUT, 1)], None), stopped(StopReason::Deadline));
        assert_eq!(outcome(&[], None), Ok(()));
    }

    #[test]
    fn a_report_is_told_with_line_place_and_access() {
        let want = Trap {
            kind: TrapKind::OutOfBounds,
            line: 11,
            block: [4, 1, 0],
            thread: [31, 0, 1],
            access: Some(Access {
                address: 0xdead_beec,
                bytes: 4,
                space: AccessSpace::Global,
            }),
        };
        assert_eq!(trap(&report(0, 0xdead_beec)), want);
        let misaligned = trap(&report(3, 24));
        assert_eq!(
            (misaligned.kind, misaligned.line),
            (TrapKind::Misaligned, 14)
        );
        for (site, kind, line) in [
            (1, TrapKind::TrapInstruction, 12),
            (2, TrapKind::CallDepth, 13),
        ] {
            let found = trap(&report(site, 7));
            assert_eq!((found.kind, found.line, found.access), (kind, line, None));
        }
    }

    #[test]
    fn no_bytes_make_a_report_of_what_is_not_there() {
        for word in [
            u64::MAX,
            0x0000_0005_0000_0001,
            0x8000_0000_8000_0000,
            0x0101_0101_0101_0101,
        ] {
            let found = trap(&Block([word; WORDS]));
            assert_eq!(found.kind, TrapKind::TrapInstruction);
            assert_eq!((found.line, found.access), (3, None));
            assert!(
                found.block[0] < 5 && found.block[1] < 2 && found.block[2] < 1,
                "{found:?}"
            );
            assert!(
                found.thread[0] < 32 && found.thread[1] < 4 && found.thread[2] < 2,
                "{found:?}"
            );
        }
        // A width of none is no division by it.
        assert_eq!(trap(&report(4, u64::MAX)).kind, TrapKind::OutOfBounds);
    }

    #[test]
    fn where_the_window_lies_to_a_kernel_is_not_told() {
        let address = |reported| trap(&report(0, reported)).access.unwrap().address;
        for (reported, want) in [
            (BASE, 0),
            (BASE + 4, 4),
            (BASE + (1 << 20) + 4, (1 << 20) + 4),
            (BASE - 4, 4_u64.wrapping_neg()),
            (64, 64),
            (1 << 40, 1 << 40),
        ] {
            assert_eq!(address(reported), want, "{reported:#x}");
        }
    }

    #[test]
    fn lines_of_the_confined_text_are_told_as_the_guests() {
        let map = map();
        let lines = [0, 1, 2, 3, 4, u32::MAX].map(|line| known(&map, None).told_line(line));
        assert_eq!(lines, [3, 3, 21, 22, 3, 3]);
    }
}
