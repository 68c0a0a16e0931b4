//! Kernels that end CUDA for their process, one process for each class: the call that meets the fault says so, every later
//! one answers at once, and the process lives on and ends in order.

use std::time::{Duration, Instant};

use abi::AbiError;
use abi::argv::Arg;
use device::Health;
use wasmtime::Val;

use crate::harness::{DATA_AT, Guest, Harness, KIT, Shape, Way, block_on, encode, name, u32_val};
use crate::rig::{FAULTS, assert_fails, cuda, guest, guest_text, launch_kit, open, ptr, trusted};
use crate::runner::{Case, either, gpu};

pub(crate) const CASES: &[Case] = &[
    either("a_wild_store_is_700", a_wild_store_is_700),
    gpu("a_failed_assertion_is_710", a_failed_assertion_is_710),
    gpu(
        "a_store_far_past_shared_memory_is_715",
        a_store_far_past_shared_memory_is_715,
    ),
    either("a_misaligned_store_is_716", a_misaligned_store_is_716),
    either("a_trap_is_719", a_trap_is_719),
    gpu(
        "a_store_past_shared_memory_is_700",
        a_store_past_shared_memory_is_700,
    ),
    gpu(
        "a_store_past_local_memory_is_700",
        a_store_past_local_memory_is_700,
    ),
    gpu(
        "a_load_past_constants_is_no_fault",
        a_load_past_constants_is_no_fault,
    ),
    either(
        "a_waiting_neighbour_hears_of_a_fault",
        a_waiting_neighbour_hears_of_a_fault,
    ),
];

const ASSERT: &str = include_str!("../../fixtures/corpus/cuda/assert_trap.sm_75.ptx");

/// How soon a lost device answers.
const AT_ONCE: Duration = Duration::from_millis(200);

struct Fault<'a> {
    ptx: &'a str,
    entry: &'a str,
    args: &'a [Arg<'a>],
    code: u32,
    name: &'a str,
}

fn a_wild_store_is_700() {
    check(&Fault {
        ptx: KIT,
        entry: "k_wild",
        args: &[],
        code: 700,
        name: "CUDA_ERROR_ILLEGAL_ADDRESS",
    });
}

fn a_failed_assertion_is_710() {
    check(&Fault {
        ptx: ASSERT,
        entry: "assert_trap",
        args: &[ptr(DATA_AT, 4), ptr(DATA_AT, 4), Arg::I32(0)],
        code: 710,
        name: "CUDA_ERROR_ASSERT",
    });
}

fn a_store_far_past_shared_memory_is_715() {
    check(&Fault {
        ptx: FAULTS,
        entry: "store_shared",
        args: &[Arg::U32(0x7fff_ffff)],
        code: 715,
        name: "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    });
}

fn a_misaligned_store_is_716() {
    check(&Fault {
        ptx: FAULTS,
        entry: "store_u64",
        args: &[ptr(DATA_AT + 2, 8), Arg::U64(0)],
        code: 716,
        name: "CUDA_ERROR_MISALIGNED_ADDRESS",
    });
}

fn a_trap_is_719() {
    check(&Fault {
        ptx: KIT,
        entry: "k_trap",
        args: &[],
        code: 719,
        name: "CUDA_ERROR_LAUNCH_FAILED",
    });
}

fn a_store_past_shared_memory_is_700() {
    check(&Fault {
        ptx: FAULTS,
        entry: "store_shared",
        args: &[Arg::U32(1 << 20)],
        code: 700,
        name: "CUDA_ERROR_ILLEGAL_ADDRESS",
    });
}

fn a_store_past_local_memory_is_700() {
    check(&Fault {
        ptx: FAULTS,
        entry: "store_local",
        args: &[Arg::U32(16 << 20)],
        code: 700,
        name: "CUDA_ERROR_ILLEGAL_ADDRESS",
    });
}

fn a_load_past_constants_is_no_fault() {
    let mut guest = guest();
    let kernel = guest.kernel(FAULTS, "load_const");
    for at in [0, 8, 4_096, 65_536] {
        guest.run(kernel, &[ptr(DATA_AT, 4), Arg::U64(at)]);
    }
    crate::rig::assert_sound(&mut guest);
}

/// Runs the fault and sees what becomes of everything that was there, and of what comes after.
fn check(fault: &Fault<'_>) {
    let (mut guest, mut other) = (guest(), guest());
    let faulty = guest.kernel(fault.ptx, fault.entry);
    let kernels = [&mut guest, &mut other].map(|guest| guest.kernel(KIT, "k_empty"));
    let buffer = other.call(abi::FN_ALLOC, &[Val::I64(64)]);
    assert!(buffer > 0, "{}", other.last_text());
    guest.write_memory(DATA_AT + 64, b"kept");

    let number = fault.code.to_string();
    let parts = ["device lost: ", fault.name, &number];
    let answer = guest.launch(faulty, Shape::ONE, fault.args);
    assert_fails(&mut guest, answer, AbiError::DeviceLost, &parts);
    match cuda().health() {
        Health::Lost { reason } => {
            assert!(
                reason.contains(fault.name) && reason.contains(&number),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }

    let begin = Instant::now();
    for (guest, kernel) in [&mut guest, &mut other].into_iter().zip(kernels) {
        let answer = guest.launch(kernel, Shape::ONE, &[]);
        assert_fails(guest, answer, AbiError::DeviceLost, &parts);
        let answer = guest.load(KIT, "k_store");
        assert_fails(guest, answer, AbiError::DeviceLost, &parts);
        let answer = guest.call(abi::FN_ALLOC, &[Val::I64(64)]);
        assert_fails(guest, answer, AbiError::DeviceLost, &parts);
        assert_eq!(guest.grow(1), -1);
    }
    let copy = [Val::I64(buffer), Val::I64(0), u32_val(DATA_AT), u32_val(4)];
    for (import, args) in [
        (abi::FN_READ, &copy[..]),
        (abi::FN_WRITE, &copy[..]),
        (abi::FN_FREE, &copy[..1]),
        (abi::FN_SYNC, &[]),
    ] {
        let answer = other.call(import, args);
        assert_fails(&mut other, answer, AbiError::DeviceLost, &parts);
    }
    assert_eq!(guest.read_memory(DATA_AT + 64, 4), b"kept");

    let setup = trusted();
    let refused = Harness::with_text(&setup, &setup.engine(), &guest_text(1));
    let text = format!(
        "{:#}",
        refused
            .expect_err("there is no memory to be had")
            .root_cause()
    );
    assert!(text.contains("device lost"), "{text}");
    drop((guest, other));
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );

    let begin = Instant::now();
    let mut last = Harness::cpu();
    assert!(
        launch_kit(&mut last, "k_empty", &[]) == 0,
        "other devices go on"
    );
    drop(last);
    assert!(begin.elapsed() < Duration::from_secs(5));
    let again = open(0);
    assert_eq!(again.health(), cuda().health());
}

fn a_waiting_neighbour_hears_of_a_fault() {
    let (mut guest, mut neighbour) = (guest(), guest());
    let faulty = guest.kernel(KIT, "k_trap");
    let spin = neighbour.kernel(KIT, "k_spin");
    let empty = neighbour.kernel(KIT, "k_empty");
    let (begin, nanoseconds) = (Instant::now(), 5_000_000_000);
    let argv = encode(&[Arg::U64(nanoseconds)]);
    let waiting = async {
        let neighbour: &mut Guest = &mut neighbour;
        neighbour
            .launch_bytes(Way::Plain, spin, Shape::ONE, &argv)
            .await
    };
    let faulting = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let guest: &mut Guest = &mut guest;
        guest
            .launch_bytes(Way::Plain, faulty, Shape::ONE, &[])
            .await
    };
    let answers = block_on(both(waiting, faulting));
    let took = begin.elapsed();
    for answer in [answers.0, answers.1] {
        assert_eq!(name(answer), AbiError::DeviceLost.name());
    }
    assert!(took < Duration::from_secs(8), "{took:?}");
    let begin = Instant::now();
    let answer = neighbour.launch(empty, Shape::ONE, &[]);
    let parts = ["CUDA_ERROR_LAUNCH_FAILED", "719"];
    assert_fails(&mut neighbour, answer, AbiError::DeviceLost, &parts);
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
}

/// Waits for two futures, which run in turn.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(|context| {
        if of_a.is_none() {
            of_a = ready(a.as_mut().poll(context));
        }
        if of_b.is_none() {
            of_b = ready(b.as_mut().poll(context));
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => std::task::Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

fn ready<T>(poll: std::task::Poll<T>) -> Option<T> {
    match poll {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}
