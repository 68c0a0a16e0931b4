//! Handles as the guest sees them: positive 64-bit numbers, one type for each kind of thing.
//! Whether a handle is known, and whose it is, only the host's registry can say.

use core::num::NonZero;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(NonZero<i64>);

        impl $name {
            /// The handle with this number; `None` unless it is in `1..=i64::MAX`.
            #[must_use]
            pub const fn new(raw: i64) -> Option<Self> {
                match NonZero::new(raw) {
                    Some(raw) if raw.get() > 0 => Some(Self(raw)),
                    _ => None,
                }
            }

            /// The number that crosses the boundary.
            #[must_use]
            pub const fn raw(self) -> i64 {
                self.0.get()
            }
        }

        impl From<$name> for i64 {
            fn from(handle: $name) -> i64 {
                handle.raw()
            }
        }
    };
}

handle! {
    /// A kernel that this instance loaded or found.
    KernelHandle
}

handle! {
    /// A device buffer that belongs to this instance.
    BufferHandle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_numbers_are_handles() {
        for raw in [1, 2, i64::MAX] {
            assert_eq!(KernelHandle::new(raw).map(i64::from), Some(raw));
            assert_eq!(BufferHandle::new(raw).map(i64::from), Some(raw));
        }
        for raw in [0, -1, i64::MIN] {
            assert_eq!(KernelHandle::new(raw), None);
            assert_eq!(BufferHandle::new(raw), None);
        }
    }
}
