//! Values that are costly to make, by the text that they are made of: each is made once however many ask for it at the same
//! time, and those not asked for longest are forgotten. What a value is, is the caller's affair.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounters {
    /// Requests that were answered with a value that was there, or was being made for another.
    pub hits: u64,
    /// Requests that made their value.
    pub misses: u64,
    /// Values that were forgotten to make room.
    pub evictions: u64,
}

impl CacheCounters {
    /// The same for people; `None` before the first request.
    pub(super) fn remark(self) -> Option<String> {
        let Self {
            hits,
            misses,
            evictions,
        } = self;
        let text = format!("{misses} shared modules loaded, {hits} found, {evictions} forgotten");
        (hits + misses > 0).then_some(text)
    }
}

/// Values by text. At most so many, of at most so many bytes of text together.
#[derive(Debug)]
pub(super) struct Cache<V> {
    entries: Mutex<Entries<V>>,
    most_entries: usize,
    most_bytes: usize,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

#[derive(Debug)]
struct Entries<V> {
    by_text: HashMap<Arc<str>, Entry<V>>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry<V> {
    slot: Arc<Mutex<Slot<V>>>,
    used: u64,
}

/// A value's place. Whoever makes the value holds the lock meanwhile, and the others wait for it.
type Slot<V> = Option<V>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<V: Clone> Cache<V> {
    pub(super) fn new(most_entries: usize, most_bytes: usize) -> Self {
        let entries = Entries {
            by_text: HashMap::new(),
            bytes: 0,
            clock: 0,
        };
        Self {
            entries: Mutex::new(entries),
            most_entries,
            most_bytes,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The value of `text`, made by `make` if it is not there. What fails is not kept: the next one tries again.
    pub(super) fn get<E>(&self, text: &str, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let place = self.place(text);
        let mut slot = lock(&place);
        if let Some(value) = &*slot {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value.clone());
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        match make() {
            Ok(value) => {
                *slot = Some(value.clone());
                Ok(value)
            }
            Err(error) => {
                drop(slot);
                self.forget_empty(text, &place);
                Err(error)
            }
        }
    }

    pub(super) fn counters(&self) -> CacheCounters {
        CacheCounters {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// The place of a text's value; makes room for it where there is none yet.
    fn place(&self, text: &str) -> Arc<Mutex<Slot<V>>> {
        let mut forgotten = Vec::new();
        let mut entries = lock(&self.entries);
        entries.clock += 1;
        let used = entries.clock;
        if let Some(entry) = entries.by_text.get_mut(text) {
            entry.used = used;
            return Arc::clone(&entry.slot);
        }
        let slot = Arc::default();
        let entry = Entry {
            slot: Arc::clone(&slot),
            used,
        };
        entries.bytes += text.len();
        entries.by_text.insert(text.into(), entry);
        while entries.by_text.len() > self.most_entries.max(1)
            || (entries.bytes > self.most_bytes && entries.by_text.len() > 1)
        {
            let Some(oldest) = entries.oldest() else {
                break;
            };
            forgotten.extend(entries.remove(&oldest));
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        drop(entries);
        // Values are dropped without the lock.
        drop(forgotten);
        slot
    }

    /// Forgets a place that stayed empty, unless somebody waits for it or has taken it over.
    fn forget_empty(&self, text: &str, place: &Arc<Mutex<Slot<V>>>) {
        let mut entries = lock(&self.entries);
        let is_ours = entries
            .by_text
            .get(text)
            .is_some_and(|entry| Arc::ptr_eq(&entry.slot, place));
        // The map and the caller hold it; a third is another request, which makes the value or comes here too.
        if is_ours && Arc::strong_count(place) == 2 {
            entries.remove(text);
        }
    }
}

impl<V> Entries<V> {
    fn oldest(&self) -> Option<Arc<str>> {
        let oldest = self.by_text.iter().min_by_key(|(_, entry)| entry.used);
        oldest.map(|(text, _)| Arc::clone(text))
    }

    fn remove(&mut self, text: &str) -> Option<Entry<V>> {
        let entry = self.by_text.remove(text)?;
        self.bytes -= text.len();
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn made(value: u32) -> Result<u32, Infallible> {
        Ok(value)
    }

    fn absent<T>() -> Result<T, &'static str> {
        Err("was made again")
    }

    fn counters(hits: u64, misses: u64, evictions: u64) -> CacheCounters {
        CacheCounters {
            hits,
            misses,
            evictions,
        }
    }

    #[test]
    fn a_remark_says_what_became_of_requests() {
        assert_eq!(CacheCounters::default().remark(), None);
        let text = "3 shared modules loaded, 4 found, 2 forgotten";
        assert_eq!(counters(4, 3, 2).remark().as_deref(), Some(text));
    }

    #[test]
    fn a_value_is_made_once() {
        let cache = Cache::new(4, 100);
        assert_eq!(cache.get("a", || made(1)), Ok(1));
        assert_eq!(cache.get("a", absent), Ok(1));
        assert_eq!(cache.counters(), counters(1, 1, 0));
    }

    #[test]
    fn the_value_not_asked_for_longest_is_forgotten() {
        let cache = Cache::new(2, 100);
        cache.get("a", || made(1)).unwrap();
        cache.get("b", || made(2)).unwrap();
        cache.get("a", absent).unwrap();
        cache.get("c", || made(3)).unwrap();
        assert_eq!(cache.get("a", absent), Ok(1));
        assert_eq!(cache.get("c", absent), Ok(3));
        assert_eq!(cache.get("b", || made(4)), Ok(4));
        assert_eq!(cache.counters(), counters(3, 4, 2));
    }

    #[test]
    fn texts_are_bounded_in_bytes_but_one_is_always_kept() {
        let cache = Cache::new(10, 8);
        cache.get("four", || made(1)).unwrap();
        cache.get("five!", || made(2)).unwrap();
        assert_eq!(cache.get("five!", absent), Ok(2));
        cache.get("longer than all", || made(3)).unwrap();
        assert_eq!(cache.get("longer than all", absent), Ok(3));
        assert_eq!(cache.counters().evictions, 2);
    }

    #[test]
    fn what_fails_is_not_kept() {
        let cache = Cache::new(4, 100);
        assert_eq!(cache.get("a", || Err::<u32, _>("bad")), Err("bad"));
        assert_eq!(cache.get("a", || made(5)), Ok(5));
        assert_eq!(cache.counters(), counters(0, 2, 0));
        assert_eq!(lock(&cache.entries).bytes, 1);
    }

    #[test]
    fn many_who_ask_at_once_share_one_making() {
        let cache = Cache::new(4, 100);
        let (start, makings) = (Barrier::new(8), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let value = cache.get("a", || {
                        makings.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(20));
                        made(9)
                    });
                    assert_eq!(value, Ok(9));
                });
            }
        });
        assert_eq!(makings.load(Ordering::Relaxed), 1);
        assert_eq!(cache.counters(), counters(7, 1, 0));
    }

    #[test]
    fn making_one_value_does_not_hold_up_another() {
        let cache = Cache::new(4, 100);
        let (begun, may_end) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                cache
                    .get("slow", || {
                        begun.wait();
                        may_end.wait();
                        made(1)
                    })
                    .unwrap();
            });
            begun.wait();
            assert_eq!(cache.get("quick", || made(2)), Ok(2));
            may_end.wait();
        });
    }

    #[test]
    fn a_maker_that_panics_leaves_the_text_to_the_next() {
        let cache = Cache::new(4, 100);
        thread::scope(|scope| {
            let died = scope
                .spawn(|| cache.get("a", || -> Result<u32, Infallible> { panic!("as asked") }));
            died.join().unwrap_err();
        });
        assert_eq!(cache.get("a", || made(3)), Ok(3));
    }
}
