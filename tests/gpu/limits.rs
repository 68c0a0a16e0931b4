//! The limits of launches: what the device has is allowed to the last byte and block, and what is over it is refused
//! with the limit.

use abi::AbiError;
use abi::argv::Arg;

use crate::harness::{DATA_AT, Harness, KIT, PAGE_BYTES, Shape, Way, encode};
use crate::rig::{assert_fails, assert_sound, cuda, guest, ptr};
use crate::runner::{Case, either, gpu};

pub(crate) const CASES: &[Case] = &[
    either(
        "dynamic_shared_memory_reaches_to_the_devices_limit",
        dynamic_shared_memory_reaches_to_the_devices_limit,
    ),
    either(
        "static_shared_memory_counts_against_the_limit",
        static_shared_memory_counts_against_the_limit,
    ),
    either("blocks_and_grids_are_bounded", blocks_and_grids_are_bounded),
    gpu("a_cooperative_grid_is_right", a_cooperative_grid_is_right),
    either(
        "a_cooperative_grid_that_does_not_fit_is_refused",
        a_cooperative_grid_that_does_not_fit_is_refused,
    ),
    either(
        "kernel_info_is_what_the_driver_says",
        kernel_info_is_what_the_driver_says,
    ),
];

const COOP: &str = include_str!("../../fixtures/corpus/cuda/coop_grid.sm_80.ptx");

fn shared(bytes: u32) -> Shape {
    Shape::new([1; 3], [1; 3], bytes)
}

fn dynamic_shared_memory_reaches_to_the_devices_limit() {
    let info = cuda().info().clone();
    let limit = info.limits.shared_bytes;
    if info.compute_capability == (9, 0) {
        assert_eq!(limit, 232_448);
    }
    let mut guest = guest();
    let kernel = guest.kernel(KIT, "k_dynsmem");
    for bytes in [4, 1_024, 49_152, 49_156, 65_536, 100_000, limit - 4, limit] {
        guest.write_memory(DATA_AT, &[0; 4]);
        let args = [ptr(DATA_AT, 4), Arg::U32(bytes)];
        let answer = guest.launch(kernel, shared(bytes), &args);
        assert_eq!(answer, 0, "{bytes}: {}", guest.last_text());
        assert_eq!(guest.read_u32(DATA_AT), 77);
    }
    let args = [ptr(DATA_AT, 4), Arg::U32(limit)];
    for bytes in [limit + 1, 1 << 20, u32::MAX] {
        let answer = guest.launch(kernel, shared(bytes), &args);
        let given = format!("{bytes} bytes of dynamic");
        let parts = [given.as_str(), &limit.to_string()];
        assert_fails(&mut guest, answer, AbiError::InvalidDimensions, &parts);
    }
    assert_sound(&mut guest);
}

fn static_shared_memory_counts_against_the_limit() {
    let room = cuda().info().limits.shared_bytes - 1_024;
    let mut guest = guest();
    let kernel = guest.kernel(KIT, "k_bothsmem");
    let answer = guest.launch(kernel, shared(room), &[ptr(DATA_AT, 4)]);
    assert_eq!(answer, 0, "{}", guest.last_text());
    assert_eq!(guest.read_u32(DATA_AT), 5);
    let answer = guest.launch(kernel, shared(room + 1), &[ptr(DATA_AT, 4)]);
    let parts = ["1024 of static"];
    assert_fails(&mut guest, answer, AbiError::InvalidDimensions, &parts);
    assert_sound(&mut guest);
}

fn blocks_and_grids_are_bounded() {
    let limits = cuda().info().limits;
    let mut guest = guest();
    let kernel = guest.kernel(KIT, "k_empty");
    let most = limits.threads_per_block;
    let ([bx, _, bz], [_, gy, gz]) = (limits.block, limits.grid);
    for (grid, block) in [
        ([1; 3], [bx, 1, 1]),
        ([1; 3], [most / bz, 1, bz]),
        ([1, gy, 1], [1; 3]),
        ([1, 1, gz], [1; 3]),
    ] {
        let answer = guest.launch(kernel, Shape::new(grid, block, 0), &[]);
        assert_eq!(answer, 0, "{grid:?} {block:?}: {}", guest.last_text());
    }
    for (grid, block) in [
        ([1; 3], [bx + 1, 1, 1]),
        ([1; 3], [1, 1, bz + 1]),
        ([1; 3], [most, 2, 1]),
        ([1; 3], [1, 0, 1]),
        ([1, gy + 1, 1], [1; 3]),
        ([1, 1, gz + 1], [1; 3]),
        ([0, 1, 1], [1; 3]),
    ] {
        let answer = guest.launch(kernel, Shape::new(grid, block, 0), &[]);
        assert_fails(&mut guest, answer, AbiError::InvalidDimensions, &["limit"]);
    }
    assert_sound(&mut guest);
}

fn cooperative(guest: &mut Harness, kernel: i64, shape: Shape, args: &[Arg<'_>]) -> i64 {
    guest.launch_as(Way::Cooperative, kernel, shape, &encode(args))
}

fn a_cooperative_grid_is_right() {
    const N: u32 = 20_000;
    const STEPS: u32 = 25;
    let mut values: Vec<f32> = (0_u16..)
        .take(N as usize)
        .map(|i| f32::from(i % 97))
        .collect();
    let mut guest = guest();
    let (a, b) = (2 * PAGE_BYTES, 4 * PAGE_BYTES);
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    guest.write_memory(a, &bytes);
    let kernel = guest.kernel(COOP, "grid_relax");
    let args = [ptr(a, 4 * N), ptr(b, 4 * N), Arg::U32(N), Arg::U32(STEPS)];
    let answer = cooperative(&mut guest, kernel, Shape::line(100, 128), &args);
    assert_eq!(answer, 0, "{}", guest.last_text());

    for _ in 0..STEPS {
        let old = values.clone();
        let at = |i: Option<usize>| i.and_then(|i| old.get(i)).copied().unwrap_or(0.0);
        for (i, value) in values.iter_mut().enumerate() {
            let (left, right) = (at(i.checked_sub(1)), at(Some(i + 1)));
            *value = right.mul_add(0.25, left.mul_add(0.25, old[i] * 0.5));
        }
    }
    // After an odd number of steps, the result is where the first step wrote.
    let found = guest.read_memory(b, 4 * N as usize);
    let want: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    assert!(found == want, "the grids differ");
    assert_sound(&mut guest);
}

fn a_cooperative_grid_that_does_not_fit_is_refused() {
    let mut guest = guest();
    let kernel = guest.kernel(COOP, "grid_relax");
    let args = [
        ptr(DATA_AT, 4),
        ptr(DATA_AT + 64, 4),
        Arg::U32(1),
        Arg::U32(1),
    ];
    let most = cuda().info().multiprocessors * 2_048;
    for (blocks, threads) in [(1_000_000, 1), (1_000_000, 128), (most / 1_024 + 1, 1_024)] {
        let shape = Shape::line(blocks, threads);
        let answer = cooperative(&mut guest, kernel, shape, &args);
        let given = format!("{blocks} blocks, ");
        let parts = [given.as_str(), "fit on the device at once"];
        assert_fails(&mut guest, answer, AbiError::InvalidDimensions, &parts);
        let text = guest.last_text();
        let limit: u32 = text
            .split([' ', ','])
            .filter_map(|word| word.parse().ok())
            .nth(1)
            .unwrap();
        assert!((1..blocks).contains(&limit), "{text}");
    }
    assert_sound(&mut guest);
}

fn kernel_info_is_what_the_driver_says() {
    let mut guest = guest();
    let kernel = guest.kernel(KIT, "k_bothsmem");
    let (info, params) = guest.kernel_info(kernel);
    assert_eq!(info.static_shared_bytes, 1_024);
    assert_eq!(info.max_threads, cuda().info().limits.threads_per_block);
    assert!(info.registers > 0);
    assert_eq!(params.len(), 1);
}
