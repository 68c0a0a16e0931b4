//! What kernels may take: depth of calls, local memory, residence, time. Who asks for more gets a code, and everyone else goes on.

use std::time::Duration;

use abi::AbiError;
use abi::argv::Arg;
use abi::info::TrapKind;
use host::Limits;

use crate::harness::{DATA_AT, Harness, Setup, Shape, Way, assert_all_usable, encode, name};

const FAULTS: &str = include_str!("../../fixtures/kernels/faults.ptx");
const COOPERATIVE: &str = include_str!("../../fixtures/corpus/cuda/coop_grid.sm_80.ptx");
const TEXTURE: &str = include_str!("../../fixtures/corpus/cuda/texture.sm_75.ptx");
const NESTED: &str = include_str!("../../fixtures/corpus/cuda/cdp.sm_90.ptx");

const OUT: Arg<'_> = Arg::Ptr {
    offset: DATA_AT,
    len: 4096,
};

/// Launches a kernel that must trap and gives the trap's kind.
fn trap(guest: &mut Harness, entry: &str, shape: Shape, args: &[Arg<'_>]) -> Option<TrapKind> {
    let kernel = guest.kernel(FAULTS, entry);
    let answer = guest.launch(kernel, shape, args);
    assert_eq!(name(answer), "KernelTrap", "{entry}: {}", guest.last_text());
    TrapKind::from_number(guest.trap_info().kind)
}

#[test]
fn calls_that_nest_too_deep_end_the_kernel() {
    let mut guest = Harness::cpu();
    let kernel = guest.kernel(FAULTS, "recurse");
    guest.run(kernel, &[OUT, Arg::U32(50)]);
    assert_eq!(guest.read_u32(DATA_AT), 50);
    for depth in [1_000_000, u32::MAX] {
        let kind = trap(
            &mut guest,
            "recurse",
            Shape::line(1, 64),
            &[OUT, Arg::U32(depth)],
        );
        assert_eq!(kind, Some(TrapKind::CallDepth), "{}", guest.last_text());
    }
    assert_all_usable(&mut guest);
}

#[test]
fn a_barrier_that_can_never_be_complete_ends_the_kernel() {
    let mut guest = Harness::cpu();
    for (entry, threads) in [("barrier_mismatch", 64), ("barrier_of_96", 64)] {
        let kind = trap(&mut guest, entry, Shape::line(4, threads), &[]);
        assert_eq!(
            kind,
            Some(TrapKind::BarrierDeadlock),
            "{entry}: {}",
            guest.last_text()
        );
    }
    assert_all_usable(&mut guest);
}

#[test]
fn a_kernel_without_an_end_is_stopped_by_deadline_or_budget() {
    let deadline = Limits {
        deadline: Some(Duration::from_millis(50)),
        ..Limits::default()
    };
    let budget = Limits {
        budget: Some(1_000_000),
        ..Limits::default()
    };
    let reasons = [
        (deadline, "its deadline has passed"),
        (budget, "its instruction budget is used up"),
    ];
    for (limits, reason) in reasons {
        let mut guest = Harness::new(&Setup {
            limits,
            ..Setup::default()
        });
        for entry in ["endless", "endless_barriers"] {
            let kernel = guest.kernel(FAULTS, entry);
            let answer = guest.launch(kernel, Shape::line(4, 64), &[]);
            let text = format!("kernel stopped: {reason}");
            guest.assert_refused(answer, AbiError::DeadlineExceeded, &text);
        }
        assert_eq!(guest.cuda().metrics().stopped, 2);
        assert_all_usable(&mut guest);
    }
}

#[test]
fn local_memory_is_limited_by_thread_and_by_block() {
    let mut guest = Harness::cpu();
    let text = |bytes: u32| {
        format!(
            ".version 7.8\n.target sm_80\n.address_size 64\n\
             .visible .entry k(.param .u64 out) {{\n\
             .local .align 4 .b8 all[{bytes}]; .reg .b64 %o; .reg .b32 %x;\n\
             ld.param.u64 %o, [out]; st.local.u32 [all+{last}], 9;\n\
             ld.local.u32 %x, [all+{last}]; st.u32 [%o], %x; ret; }}",
            last = bytes - 4
        )
    };
    let kernel = guest.kernel(&text(512 << 10), "k");
    let (info, _) = guest.kernel_info(kernel);
    assert_eq!(info.local_bytes, 512 << 10);
    assert!(
        (1..1024).contains(&info.max_threads),
        "{}",
        info.max_threads
    );
    guest.run(kernel, &[OUT]);
    assert_eq!(guest.read_u32(DATA_AT), 9);
    assert_eq!(
        guest.launch(kernel, Shape::line(8, info.max_threads), &[OUT]),
        0,
        "{}",
        guest.last_text()
    );
    let answer = guest.launch(kernel, Shape::line(1, info.max_threads + 1), &[OUT]);
    let said = format!(
        "block has {} threads, the limit is {}",
        info.max_threads + 1,
        info.max_threads
    );
    guest.assert_refused(answer, AbiError::InvalidDimensions, &said);

    let answer = guest.load(&text((512 << 10) + 4), "k");
    let said = "line 5, column 21: variables in .local space take 524292 bytes with `all`, 524288 are the most";
    guest.assert_refused(answer, AbiError::UnsupportedPtx, said);
    assert_all_usable(&mut guest);
}

#[test]
fn a_cooperative_grid_that_does_not_fit_is_refused_with_what_does() {
    let mut guest = Harness::cpu();
    let kernel = guest.kernel(COOPERATIVE, "grid_relax");
    let args = encode(&[OUT, OUT, Arg::U32(1), Arg::U32(1)]);
    for shape in [
        Shape::line(1_000_000, 1),
        Shape::line(1_000_000, 256),
        Shape::new([250; 3], [1024, 1, 1], 0),
    ] {
        let answer = guest.launch_as(Way::Cooperative, kernel, shape, &args);
        let text = guest.last_error();
        assert_eq!(name(answer), "InvalidDimensions", "{text}");
        let blocks: u64 = shape.grid.into_iter().map(u64::from).product();
        assert!(
            text.starts_with(&format!("cooperative grid has {blocks} blocks, ")),
            "{text}"
        );
    }
    let answer = guest.launch_as(Way::Cooperative, kernel, Shape::line(2, 32), &args);
    assert_eq!(answer, 0, "{}", guest.last_text());
    assert_all_usable(&mut guest);
}

#[test]
fn what_the_device_does_not_offer_is_refused_when_it_is_loaded() {
    let mut guest = Harness::cpu();
    for (ptx, entry, says) in [
        (TEXTURE, "tex_sample", "tex.2d"),
        (NESTED, "parent", "`child`"),
    ] {
        let answer = guest.load(ptx, entry);
        let text = guest.last_error();
        assert_eq!(name(answer), "UnsupportedPtx", "{text}");
        assert!(text.starts_with("line ") && text.contains(says), "{text}");
    }
    assert_eq!(guest.cuda().metrics().kernels, 0);
    assert_all_usable(&mut guest);
}
