//! Comparing what a kernel wrote with what was wanted.

use std::fmt::Debug;

use super::Plain;

/// Panics at the first number whose bits differ.
pub(crate) fn assert_same<T: Plain + Debug>(found: &[T], want: &[T], what: impl Debug) {
    assert_eq!(found.len(), want.len(), "{what:?}");
    for (index, (found, want)) in found.iter().zip(want).enumerate() {
        let bits = |number: &T| {
            let mut bytes = Vec::new();
            number.append(&mut bytes);
            bytes
        };
        assert_eq!(
            bits(found),
            bits(want),
            "{what:?}, index {index}: found {found:?}, want {want:?}"
        );
    }
}

/// A value and how far from it a result may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) value: f64,
    pub(crate) error: f64,
}

/// Panics at the first number that is further from the value than its error allows, or not a number.
pub(crate) fn assert_close(found: &[f32], want: &[About], what: impl Debug) {
    assert_eq!(found.len(), want.len(), "{what:?}");
    for (index, (&found, want)) in found.iter().zip(want).enumerate() {
        let distance = (f64::from(found) - want.value).abs();
        assert!(
            distance <= want.error,
            "{what:?}, index {index}: found {found}, {distance:e} from {want:?}"
        );
    }
}
