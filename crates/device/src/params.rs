//! The parameters of a launch: one backing buffer that holds every value, and a slot for each into it.

/// Parameter values laid out in one buffer. Cleared and filled again, it allocates only when it has to grow.
#[derive(Clone, Debug, Default)]
pub struct ParamStorage {
    backing: Vec<u8>,
    slots: Vec<u32>,
}

impl ParamStorage {
    /// Empties the storage and makes its buffer `size` zero bytes long.
    pub fn reset(&mut self, size: usize) {
        self.slots.clear();
        self.backing.clear();
        self.backing.resize(size, 0);
    }

    /// Adds a slot at `offset` and copies `value` there; the buffer grows, zero filled, where it is too short.
    ///
    /// # Panics
    /// If `offset` does not fit 32 bits; parameter buffers are at most 32,764 bytes long.
    #[expect(
        clippy::expect_used,
        reason = "offsets come from signatures or argv, both far below 4 GiB long"
    )]
    #[inline]
    pub fn put(&mut self, offset: usize, value: &[u8]) {
        let end = offset + value.len();
        if self.backing.len() < end {
            self.backing.resize(end, 0);
        }
        self.backing[offset..end].copy_from_slice(value);
        self.slots
            .push(u32::try_from(offset).expect("a parameter offset fits 32 bits"));
    }

    /// Adds a slot behind the last value, at a multiple of `align`.
    pub fn push(&mut self, align: usize, value: &[u8]) {
        let offset = self.backing.len().next_multiple_of(align);
        self.put(offset, value);
    }

    /// How many slots there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The buffer that every slot lies in.
    #[must_use]
    pub fn backing(&self) -> &[u8] {
        &self.backing
    }

    /// Offset of each slot in the buffer, in order.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// The address of each slot, as a driver takes them; valid until the storage changes.
    pub fn slot_ptrs(&self) -> impl ExactSizeIterator<Item = *const u8> + '_ {
        self.slots
            .iter()
            .map(|&slot| self.backing[slot as usize..].as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_where_they_were_put() {
        let mut storage = ParamStorage::default();
        storage.reset(12);
        storage.put(8, &[5, 6]);
        storage.put(0, &[1, 2, 3, 4]);
        assert_eq!(storage.backing(), [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 0, 0]);
        assert_eq!(storage.slots(), [8, 0]);
    }

    #[test]
    fn the_buffer_grows_zero_filled_where_it_is_too_short() {
        let mut storage = ParamStorage::default();
        storage.reset(2);
        storage.put(4, &[7]);
        assert_eq!(storage.backing(), [0, 0, 0, 0, 7]);
    }

    #[test]
    fn pushed_values_are_aligned() {
        let mut storage = ParamStorage::default();
        for (align, value) in [(1, &[1][..]), (8, &[2; 8]), (2, &[3, 3]), (4, &[4; 4])] {
            storage.push(align, value);
        }
        assert_eq!(storage.slots(), [0, 8, 16, 20]);
        assert_eq!(storage.backing().len(), 24);
        assert_eq!(storage.backing()[1..8], [0; 7]);
        assert_eq!(storage.backing()[18..20], [0; 2]);
    }

    #[test]
    fn every_slot_points_to_its_value() {
        let mut storage = ParamStorage::default();
        storage.push(4, &7_u32.to_le_bytes());
        storage.push(8, &9_u64.to_le_bytes());
        storage.push(1, &[3]);
        let base = storage.backing().as_ptr();
        let found: Vec<_> = storage
            .slot_ptrs()
            .map(|at| at.addr() - base.addr())
            .collect();
        assert_eq!(found, [0, 8, 16]);
        assert_eq!(storage.slot_ptrs().len(), storage.len());
        assert_eq!(storage.backing()[8..16], 9_u64.to_le_bytes());
    }

    #[test]
    fn nothing_of_the_launch_before_is_left_after_a_reset() {
        let mut storage = ParamStorage::default();
        storage.push(8, &[0xFF; 64]);
        storage.reset(16);
        assert!(storage.is_empty());
        assert_eq!(storage.backing(), [0; 16]);
        assert_eq!(storage.slot_ptrs().len(), 0);
    }
}
