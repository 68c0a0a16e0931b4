//! The arena of `malloc` and `free` in kernels. What is handed out is a range of offsets; the memory itself is a module's.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a module's arena: CUDA's default (Programming Guide, "Dynamic Global Memory Allocation").
pub(super) const HEAP_BYTES: u64 = 8 << 20;
/// Arenas begin at multiples of this.
pub(super) const HEAP_ALIGN: u64 = GRAIN;
/// Pieces are multiples of this, which bounds how many there are.
const GRAIN: u64 = 64;

/// The free and the used pieces of an arena, by offset; together they are all of it.
#[derive(Debug, Default)]
struct Pieces {
    free: BTreeMap<u64, u64>,
    used: BTreeMap<u64, u64>,
}

/// An arena.
#[derive(Debug)]
pub(super) struct Heap {
    pieces: Mutex<Pieces>,
}

impl Heap {
    /// An arena of `bytes` from `start` on; `start` is a multiple of [`HEAP_ALIGN`].
    pub(super) fn new(start: u64, bytes: u64) -> Self {
        let mut pieces = Pieces::default();
        if bytes > 0 {
            pieces.free.insert(start, bytes);
        }
        Self {
            pieces: Mutex::new(pieces),
        }
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset of a piece of at least `bytes`. `None` where there is no such piece, or nothing is asked for.
    pub(super) fn allocate(&self, bytes: u64) -> Option<u64> {
        let bytes = bytes
            .checked_next_multiple_of(GRAIN)
            .filter(|&bytes| bytes > 0)?;
        let mut pieces = self.pieces();
        let mut fits = pieces.free.iter().filter(|(_, free)| **free >= bytes);
        let (at, room) = fits.next().map(|(&at, &room)| (at, room))?;
        drop(fits);
        pieces.free.remove(&at);
        if room > bytes {
            pieces.free.insert(at + bytes, room - bytes);
        }
        pieces.used.insert(at, bytes);
        Some(at)
    }

    /// Takes back a piece. `None` if it was not handed out.
    pub(super) fn release(&self, at: u64) -> Option<()> {
        let mut pieces = self.pieces();
        let (mut start, mut bytes) = (at, pieces.used.remove(&at)?);
        if let Some(after) = pieces.free.remove(&(at + bytes)) {
            bytes += after;
        }
        let before = pieces.free.range(..at).next_back();
        let before = before.map(|(&start, &bytes)| (start, bytes));
        if let Some((from, room)) = before.filter(|&(from, room)| from + room == at) {
            start = from;
            bytes += room;
        }
        pieces.free.insert(start, bytes);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_becomes_one_piece_again() {
        let heap = Heap::new(128, 64 * 4);
        let all: Vec<_> = (0..4).map(|_| heap.allocate(1).unwrap()).collect();
        assert_eq!(all, [128, 192, 256, 320]);
        assert_eq!(heap.allocate(1), None);
        for at in [192, 320, 128, 256] {
            assert_eq!(heap.release(at), Some(()));
        }
        assert_eq!(heap.release(192), None);
        assert_eq!(heap.allocate(256), Some(128));
    }

    #[test]
    fn nothing_and_too_much_are_not_handed_out() {
        let heap = Heap::new(0, HEAP_BYTES);
        for bytes in [0, HEAP_BYTES + 1, u64::MAX] {
            assert_eq!(heap.allocate(bytes), None, "{bytes}");
        }
        assert_eq!(Heap::new(0, 0).allocate(1), None);
    }
}
