//! Mappings whose pages a driver made: they can be made inaccessible and accessible again, keep what they hold, and are never
//! unmapped here.
#![expect(unsafe_code, reason = "takes pages of another owner, and clears them")]

use std::ops::Range;

use super::{HostAddr, Mapping};

impl Mapping {
    /// A mapping of pages that the lender mapped and will unmap.
    ///
    /// # Safety
    /// The `bytes` bytes from `base` are whole pages that stay mapped as long as the mapping lives, and nothing on the
    /// host changes their protection, or what they hold, but through it.
    pub(crate) unsafe fn lent(base: HostAddr, bytes: usize) -> Self {
        Self {
            base,
            bytes,
            is_lent: true,
        }
    }

    /// Makes the pages of `range` inaccessible; what they hold stays.
    pub(crate) fn deny(&self, range: Range<usize>) -> std::io::Result<()> {
        self.protect(range, libc::PROT_NONE)
    }

    /// Makes the pages of `range` accessible, and zero whatever they held.
    pub(crate) fn commit_zeroed(&self, range: Range<usize>) -> std::io::Result<()> {
        self.commit(range.clone())?;
        let (at, bytes) = self.pages(range);
        // SAFETY: the pages lie in this mapping (`pages`) and are writable, since `commit` succeeded.
        unsafe { at.as_ptr().write_bytes(0, bytes) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Window, page_bytes};

    /// Two pages of an owner, of which the first holds a number, and the same pages lent.
    fn pages() -> (Mapping, Mapping) {
        let bytes = 2 * page_bytes();
        let owner = Mapping::reserve(bytes).unwrap();
        owner.commit(0..bytes).unwrap();
        let window = Window::new(&owner, 0, bytes, None, bytes..bytes);
        window.store(8, 7_u64).unwrap();
        // SAFETY: the tests below drop the owner last, and use its pages through the lent mapping
        // alone as long as that lives.
        let lent = unsafe { Mapping::lent(owner.at(0), bytes) };
        (owner, lent)
    }

    fn number(mapping: &Mapping) -> u64 {
        let bytes = page_bytes();
        let window = Window::new(mapping, 0, bytes, None, bytes..bytes);
        window.load(8).unwrap()
    }

    #[test]
    fn closed_pages_keep_what_they_hold_and_opened_ones_lose_it_where_asked() {
        let (_owner, lent) = pages();
        lent.deny(0..2 * page_bytes()).unwrap();
        lent.commit(0..page_bytes()).unwrap();
        assert_eq!(number(&lent), 7);
        lent.deny(0..page_bytes()).unwrap();
        lent.commit_zeroed(0..page_bytes()).unwrap();
        assert_eq!(number(&lent), 0);
    }

    #[test]
    fn dropping_what_was_lent_leaves_it_to_its_owner() {
        let (owner, lent) = pages();
        drop(lent);
        assert_eq!(number(&owner), 7);
    }
}
