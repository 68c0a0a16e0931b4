//! Bodies that run kernels of `fixtures/` on a backend and compare with plain Rust. No comparison of backends.

mod algorithms;
mod approximate;
mod bitonic;
mod clang;
mod cluster;
mod concurrency;
mod dyn_shared;
mod elements;
mod generic_ptr;
mod globals;
mod grid_stride;
mod histogram;
mod image;
mod integers;
mod kit;
mod kit_stop;
mod linked_list;
mod local_mem;
mod mandelbrot;
mod math;
mod matmul_tiled;
mod models;
pub(crate) mod narrow;
mod nbody;
mod recursion;
mod reduce_shfl;
mod rounding;
mod rows;
mod saxpy;
mod scan;
mod sha256;
mod softmax;
mod stencil;
mod struct_param;
mod switch_vm;
mod system;
mod tensor;
mod transpose;
mod vecadd;
mod warp_vote;

use crate::harness::Case;

/// Every body.
pub(crate) fn cases() -> Vec<Case> {
    [
        algorithms::CASES,
        approximate::CASES,
        bitonic::CASES,
        clang::CASES,
        cluster::CASES,
        concurrency::CASES,
        dyn_shared::CASES,
        elements::CASES,
        generic_ptr::CASES,
        globals::CASES,
        grid_stride::CASES,
        histogram::CASES,
        image::CASES,
        integers::CASES,
        kit::CASES,
        kit_stop::CASES,
        linked_list::CASES,
        local_mem::CASES,
        mandelbrot::CASES,
        math::CASES,
        matmul_tiled::CASES,
        models::CASES,
        nbody::CASES,
        recursion::CASES,
        reduce_shfl::CASES,
        rounding::CASES,
        rows::CASES,
        saxpy::CASES,
        scan::CASES,
        sha256::CASES,
        softmax::CASES,
        stencil::CASES,
        struct_param::CASES,
        switch_vm::CASES,
        system::CASES,
        tensor::CASES,
        transpose::CASES,
        vecadd::CASES,
        warp_vote::CASES,
    ]
    .concat()
}

/// The size as kernels take it.
fn int(size: usize) -> i32 {
    i32::try_from(size).expect("a small size")
}

/// The size as launches take it.
fn count(size: usize) -> u32 {
    u32::try_from(size).expect("a small size")
}
