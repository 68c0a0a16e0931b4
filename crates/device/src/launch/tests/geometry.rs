//! Grids, blocks and shared memory against the limits of a device and of a kernel.

use super::*;

#[test]
fn blocks_are_held_to_every_axis_and_to_their_product() {
    let axis = |axis, given, limit| Err(Error::BlockAxis { axis, given, limit });
    let threads = |given| Err(Error::BlockThreads { given, limit: 1024 });
    for (block, want) in [
        ([1, 1, 1], Ok([1, 1, 1])),
        ([1024, 1, 1], Ok([1024, 1, 1])),
        ([1, 1024, 1], Ok([1, 1024, 1])),
        ([4, 4, 64], Ok([4, 4, 64])),
        ([0, 1, 1], axis('x', 0, 1024)),
        ([1, 0, 1], axis('y', 0, 1024)),
        ([1, 1, 0], axis('z', 0, 64)),
        ([1025, 1, 1], axis('x', 1025, 1024)),
        ([1, 1025, 1], axis('y', 1025, 1024)),
        ([1, 1, 65], axis('z', 65, 64)),
        ([32, 33, 1], threads(1056)),
        ([1024, 1024, 64], threads(1 << 26)),
        ([65_536, 65_536, 1], axis('x', 65_536, 1024)),
        ([u32::MAX; 3], axis('x', u32::MAX, 1024)),
    ] {
        let found = on_device([1, 1, 1], block, 0).map(|geometry| geometry.block());
        assert_eq!(found, want, "block {block:?}");
    }
}

#[test]
fn the_product_of_a_block_does_not_wrap() {
    let wide = DeviceLimits {
        block: [u32::MAX; 3],
        ..LIMITS
    };
    let found = Geometry::new([1; 3], [65_536, 65_536, 1], 0, Mode::Plain, &wide, None);
    let want = Error::BlockThreads {
        given: 1 << 32,
        limit: 1024,
    };
    assert_eq!(found, Err(want));
    let found = Geometry::new([1; 3], [1 << 31, 1 << 31, 4], 0, Mode::Plain, &wide, None);
    let want = Error::BlockThreads {
        given: u64::MAX,
        limit: 1024,
    };
    assert_eq!(found, Err(want));
}

#[test]
fn grids_are_held_to_every_axis_and_to_their_product() {
    let most_x = i32::MAX.cast_unsigned();
    let axis = |axis, given, limit| Err(Error::GridAxis { axis, given, limit });
    for (grid, want) in [
        ([1, 1, 1], Ok(1)),
        ([most_x, 1, 1], Ok(u64::from(most_x))),
        ([1, 65_535, 1], Ok(65_535)),
        ([1, 1, 65_535], Ok(65_535)),
        ([0, 1, 1], axis('x', 0, most_x)),
        ([1, 0, 1], axis('y', 0, 65_535)),
        ([1, 1, 0], axis('z', 0, 65_535)),
        ([most_x + 1, 1, 1], axis('x', most_x + 1, most_x)),
        ([1, 65_536, 1], axis('y', 65_536, 65_535)),
        ([1, 1, 65_536], axis('z', 65_536, 65_535)),
        (
            [most_x, 2, 1],
            Err(Error::GridBlocks {
                given: u128::from(most_x) * 2,
                limit: u64::from(most_x),
            }),
        ),
        (
            [most_x, 65_535, 65_535],
            Err(Error::GridBlocks {
                given: u128::from(most_x) * 65_535 * 65_535,
                limit: u64::from(most_x),
            }),
        ),
    ] {
        let found = on_device(grid, [1, 1, 1], 0).map(|geometry| geometry.blocks());
        assert_eq!(found, want, "grid {grid:?}");
    }
}

#[test]
fn the_product_of_a_grid_does_not_wrap() {
    let wide = DeviceLimits {
        grid: [u32::MAX; 3],
        blocks: u64::MAX,
        ..LIMITS
    };
    let found = Geometry::new([u32::MAX; 3], [1; 3], 0, Mode::Plain, &wide, None);
    let want = Error::GridBlocks {
        given: u128::from(u32::MAX).pow(3),
        limit: u64::MAX,
    };
    assert_eq!(found, Err(want));
}

#[test]
fn static_and_dynamic_shared_memory_share_one_limit() {
    let limit = LIMITS.shared_bytes;
    let refused = |dynamic, fixed| {
        Err(Error::SharedBytes {
            dynamic,
            fixed,
            limit,
        })
    };
    for (fixed, dynamic, want) in [
        (0, 0, Ok(0)),
        (0, limit, Ok(limit)),
        (0, limit + 1, refused(limit + 1, 0)),
        (0, u32::MAX, refused(u32::MAX, 0)),
        (1024, limit - 1024, Ok(limit - 1024)),
        (1024, limit - 1023, refused(limit - 1023, 1024)),
        (u32::MAX, u32::MAX, refused(u32::MAX, u32::MAX)),
    ] {
        let kernel = attributes(Signature {
            static_shared_bytes: fixed,
            ..store_signature()
        });
        let found = Geometry::new([1; 3], [1; 3], dynamic, Mode::Plain, &LIMITS, Some(&kernel));
        assert_eq!(
            found.map(|geometry| geometry.shared_bytes()),
            want,
            "{fixed} + {dynamic}"
        );
    }
}

#[test]
fn a_kernel_narrows_its_blocks() {
    let kernel = Attributes {
        max_threads_per_block: 256,
        ..attributes(store_signature())
    };
    let check =
        |block| Geometry::new([1; 3], block, 0, Mode::Plain, &LIMITS, Some(&kernel)).map(|_| ());
    assert_eq!(check([16, 16, 1]), Ok(()));
    let want = Error::BlockThreads {
        given: 272,
        limit: 256,
    };
    assert_eq!(check([16, 17, 1]), Err(want));
}

#[test]
fn required_threads_are_required_axis_by_axis() {
    let kernel = attributes(Signature {
        required_threads: Some([16, 8, 1]),
        ..store_signature()
    });
    let check =
        |block| Geometry::new([1; 3], block, 0, Mode::Plain, &LIMITS, Some(&kernel)).map(|_| ());
    assert_eq!(check([16, 8, 1]), Ok(()));
    for block in [[8, 16, 1], [128, 1, 1], [16, 8, 2]] {
        let want = Error::BlockRequired {
            kernel: "k".into(),
            given: block,
            required: [16, 8, 1],
        };
        assert_eq!(check(block), Err(want));
    }
}

#[test]
fn cooperative_grids_must_be_resident_at_once() {
    let kernel = attributes(store_signature());
    let check =
        |grid, mode| Geometry::new(grid, [1; 3], 0, mode, &LIMITS, Some(&kernel)).map(|_| ());
    assert_eq!(check([64, 1, 1], Mode::Cooperative), Ok(()));
    assert_eq!(check([65, 1, 1], Mode::Plain), Ok(()));
    for (grid, given) in [([65, 1, 1], 65), ([8, 3, 3], 72)] {
        let want = Error::GridCooperative { given, limit: 64 };
        assert_eq!(check(grid, Mode::Cooperative), Err(want));
    }
}

#[test]
fn a_geometry_gives_back_what_it_was_made_of() {
    let geometry =
        Geometry::new([5, 6, 7], [2, 3, 4], 96, Mode::Cooperative, &LIMITS, None).unwrap();
    assert_eq!((geometry.grid(), geometry.block()), ([5, 6, 7], [2, 3, 4]));
    assert_eq!((geometry.blocks(), geometry.threads_per_block()), (210, 24));
    assert_eq!(
        (geometry.shared_bytes(), geometry.mode()),
        (96, Mode::Cooperative)
    );
}
