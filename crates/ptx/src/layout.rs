//! How much room a variable takes. A validated variable fits the limits of its space.

use crate::ast::{Initializer, Variable};

impl Variable {
    /// Bytes of one element, the whole vector where it is one; `None` where the type has no size.
    #[must_use]
    pub fn element_bytes(&self) -> Option<u32> {
        let width = self.vector.map_or(1, |vector| vector.width());
        self.ty.bytes().map(|bytes| bytes * width)
    }

    /// Elements in all; `None` for an array without a size. A first dimension that is not written is
    /// as long as the initial value. Saturates.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        self.dimensions
            .iter()
            .enumerate()
            .try_fold(1_u64, |elements, (index, dimension)| {
                let length = match (dimension, index, &self.initializer) {
                    (Some(length), _, _) => *length,
                    (None, 0, Some(Initializer::List(list))) => list.len() as u64,
                    _ => return None,
                };
                Some(elements.saturating_mul(length))
            })
    }

    /// Bytes in all; `None` where the type or an array has no size. Saturates.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        Some(
            self.elements()?
                .saturating_mul(u64::from(self.element_bytes()?)),
        )
    }

    /// Alignment in bytes: as declared, else that of an element.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.align.or(self.element_bytes()).unwrap_or(1)
    }
}

/// The next multiple of `align`, a power of two. Saturates below the largest number.
#[must_use]
pub(crate) fn align_up(bytes: u64, align: u32) -> u64 {
    let mask = u64::from(align) - 1;
    bytes.saturating_add(mask) & !mask
}
