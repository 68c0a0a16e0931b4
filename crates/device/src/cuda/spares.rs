//! Reservations that are ready for the next instance: zero, and open to the host from the start of the window as far as they
//! were for the last. Who makes and clears them is said in `backing.rs` and `reaper.rs`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::{Reservation, Room};

/// Spares at most. No region is charged for them: they come on top of what regions may reserve.
const MOST: usize = 16;

/// A reservation that nothing uses. All of it is zero, as far as it was so when new.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) reservation: Reservation,
    /// Bytes of the window, from its start, that are open to the host and advised to lie there.
    pub(super) open_bytes: usize,
    /// How often the pages that are open were changed: see `MOST_GROWTHS` in `backing.rs`.
    pub(super) seams: u32,
}

/// A few spares, the newest last.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Vec<Spare>>);

impl Spares {
    /// A spare of that room, best one that is open as far as asked for.
    pub(super) fn take(&self, room: Room, open_bytes: usize) -> Option<Spare> {
        let mut spares = self.lock();
        let fits = |spare: &Spare| spare.reservation.room() == room;
        let best = spares
            .iter()
            .rposition(|spare| fits(spare) && spare.open_bytes == open_bytes);
        let found = best.or_else(|| spares.iter().rposition(fits))?;
        Some(spares.remove(found))
    }

    /// Keeps a spare; the oldest one comes back if there is no room for both.
    pub(super) fn keep(&self, spare: Spare) -> Option<Spare> {
        let mut spares = self.lock();
        let oldest = (spares.len() >= MOST).then(|| spares.remove(0));
        spares.push(spare);
        oldest
    }

    pub(super) fn have_room(&self) -> bool {
        self.lock().len() < MOST
    }

    /// All of them, when no more are needed.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
