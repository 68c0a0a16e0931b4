//! The example guests on a GPU: the claims are those of `tests/all/guests.rs`.

use crate::all::guests;
use crate::rig::trusted;
use crate::runner::{Case, gpu};

macro_rules! cases {
    ($($claim:ident),*) => {
        pub(crate) const CASES: &[Case] = &[
            $(gpu(stringify!($claim), || guests::$claim(&trusted())),)*
        ];
    };
}

cases!(
    image_filter_finds_the_edges,
    mandelbrot_draws_its_picture,
    matmul_is_right,
    nbody_keeps_energy,
    saxpy_is_right_by_value_and_in_buffers,
    sha256_is_bit_exact,
    softmax_makes_shares
);
