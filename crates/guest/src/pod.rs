//! Types that are nothing but their bytes, and slices of them seen as bytes.
#![expect(unsafe_code, reason = "which types these are is a promise")]

use core::slice;

/// A type whose values may be copied to and from a device as bytes: numbers, arrays of them, and `#[repr(C)]` structs of
/// them without padding.
///
/// ```
/// use wasi_cuda_guest::Pod;
///
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// struct Body {
///     place: [f32; 3],
///     mass: f32,
/// }
///
/// // SAFETY: `repr(C)`, 16 bytes of floats and no padding.
/// unsafe impl Pod for Body {}
/// ```
///
/// # Safety
///
/// The type has no padding, and any bytes are a value of it.
pub unsafe trait Pod: Copy + 'static {}

macro_rules! numbers {
    ($($ty:ty),*) => {
        $(
            // SAFETY: a number has no padding, and any bytes are one.
            unsafe impl Pod for $ty {}
        )*
    };
}

numbers!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64
);

// SAFETY: elements of an array lie one after another, so it has no padding if they have none.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

pub(crate) fn bytes<T: Pod>(data: &[T]) -> &[u8] {
    // SAFETY: a `Pod` has no padding, so all of the slice's bytes are initialised; they are borrowed as `data` is.
    unsafe { slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

pub(crate) fn bytes_mut<T: Pod>(data: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and whatever bytes are written are values of a `Pod`.
    unsafe { slice::from_raw_parts_mut(data.as_mut_ptr().cast(), size_of_val(data)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_their_bytes() {
        assert_eq!(bytes(&[0x0201_u16, 0x0403]), [1, 2, 3, 4]);
        assert_eq!(bytes::<u64>(&[]), []);
        let mut data = [[0_u8; 2]; 2];
        bytes_mut(&mut data).copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(data, [[1, 2], [3, 4]]);
    }
}
