//! The thread that gives things back to the driver, which may wait for running kernels, and keeps a few reservations ready in
//! place of those that it freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use super::backing::prepared;
use super::context::Context;
use super::memory::{Allocation, Reservation, Room};
use super::module::Binary;
use super::pinned::Pinned;
use super::spares::{Spare, Spares};
use super::threads;
use crate::error::Error;
use crate::region::Charge;

/// Something that nothing uses any more.
#[derive(Debug)]
pub(super) enum Garbage {
    /// A device buffer that was no part of its region's memory.
    Buffer(Allocation),
    /// A loaded module.
    Module(Binary),
    /// A region's memory that is registered with the driver.
    Pinned(Pinned, Charge),
    /// A region's memory.
    Reservation {
        reservation: Reservation,
        /// It ends when the memory is freed and not before: what waits here may wait long.
        charge: Charge,
        /// How far one that takes its place should be open.
        open_bytes: usize,
    },
    /// A reservation that was kept and is too many; the charge for it ends as above.
    Spare(Spare, Charge),
}

/// Frees on a thread of its own.
#[derive(Debug)]
pub(super) struct Reaper {
    /// There until `drop`.
    sender: Option<Sender<Garbage>>,
    spares: Arc<Spares>,
    /// What waits to be freed.
    waiting: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    pub(super) fn start(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        let (sender, receiver) = mpsc::channel();
        let spares = Arc::new(Spares::default());
        let waiting = Arc::new(AtomicUsize::new(0));
        let (context, kept, left) = (
            Arc::clone(context),
            Arc::clone(&spares),
            Arc::clone(&waiting),
        );
        let thread = threads::spawn("cuda-reaper", move || {
            reap(&receiver, &context, &kept, &left);
        })?;
        Ok(Arc::new(Self {
            sender: Some(sender),
            spares,
            waiting,
            thread: Some(thread),
        }))
    }

    /// Takes something over to free it. Returns at once.
    pub(super) fn bury(&self, garbage: Garbage) {
        if let Some(sender) = &self.sender {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            // The thread lives as long as the sender; where it does not, the garbage comes back and is freed here.
            drop(sender.send(garbage));
        }
    }

    /// A reservation of that room that is ready, best one that is open as far as asked for.
    pub(super) fn spare(&self, room: Room, open_bytes: usize) -> Option<Spare> {
        self.spares.take(room, open_bytes)
    }

    /// Keeps a reservation for the next region. Its charge ends, or is for the one that makes room until that is freed.
    pub(super) fn keep(&self, spare: Spare, charge: Charge) {
        if let Some(oldest) = self.spares.keep(spare) {
            self.bury(Garbage::Spare(oldest, charge));
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.sender = None;
        threads::finish(self.thread.take());
    }
}

/// Reservations that may wait while others are replaced. Where more do, whoever makes instances is faster than this thread, and may
/// make their memory too.
const MOST_WAITING: usize = 4;

fn reap(
    receiver: &Receiver<Garbage>,
    context: &Arc<Context>,
    spares: &Spares,
    waiting: &AtomicUsize,
) {
    for garbage in receiver {
        let left = waiting.fetch_sub(1, Ordering::Relaxed) - 1;
        match garbage {
            Garbage::Buffer(buffer) => drop(buffer),
            Garbage::Module(module) => drop(module),
            Garbage::Pinned(memory, charge) => {
                drop(memory);
                drop(charge);
            }
            Garbage::Reservation {
                reservation,
                charge,
                open_bytes,
            } => {
                let room = reservation.room();
                drop(reservation);
                drop(charge);
                if left <= MOST_WAITING {
                    replace(room, open_bytes, context, spares);
                }
            }
            Garbage::Spare(spare, charge) => {
                drop(spare);
                drop(charge);
            }
        }
    }
    // Freed here, not by whoever drops the reaper.
    spares.clear();
}

/// Makes a reservation in place of one that was freed: that is quicker than clearing the old one where kernels may have written
/// anywhere, and gives its memory back.
fn replace(room: Room, open_bytes: usize, context: &Arc<Context>, spares: &Spares) {
    if !spares.have_room() {
        return;
    }
    let made = context
        .enter()
        .and_then(|()| prepared(context, room, open_bytes));
    match made {
        // There may be no room by now.
        Ok(spare) => drop(spares.keep(spare)),
        Err(error) => tracing::debug!(%error, "no reservation was made ahead of need"),
    }
}
