//! Callers that do not wait for the end: deadlines, calls that are dropped, stores that are dropped. A kernel that runs as it
//! is cannot be ended from outside, so that what it uses stays held until it ends by itself.

use std::thread;
use std::time::{Duration, Instant};

use abi::AbiError;
use abi::argv::Arg;
use device::Health;
use host::Limits;
use tokio::time::timeout;

use crate::harness::{
    DATA_AT, Guest, Harness, KIT, PAGE_BYTES, Setup, Shape, Way, block_on, encode, name, u32_val,
};
use crate::rig::{assert_fails, assert_sound, cuda, guest, ptr, trusted};
use crate::runner::{Case, either, memories};

pub(crate) const CASES: &[Case] = &[
    either("a_deadline_is_told_in_time", a_deadline_is_told_in_time),
    either(
        "a_call_is_dropped_in_mid_kernel_a_thousand_times",
        a_call_is_dropped_in_mid_kernel_a_thousand_times,
    ),
    either(
        "an_instance_whose_kernel_goes_on_is_quarantined",
        an_instance_whose_kernel_goes_on_is_quarantined,
    ),
    memories(
        "a_store_dropped_in_mid_kernel_keeps_nobody_waiting",
        a_store_dropped_in_mid_kernel_keeps_nobody_waiting,
    ),
];

const MILLISECOND: u64 = 1_000_000;
const PATTERN_AT: u32 = 8 * PAGE_BYTES;

fn a_deadline_is_told_in_time() {
    let mut guest = Harness::new(&Setup {
        limits: Limits {
            deadline: Some(Duration::from_millis(100)),
            ..Limits::default()
        },
        ..trusted()
    });
    let kernel = guest.kernel(KIT, "k_spin");
    let begin = Instant::now();
    let answer = guest.launch(kernel, Shape::ONE, &[Arg::U64(1_500 * MILLISECOND)]);
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    assert!(took < Duration::from_millis(600), "{took:?}");
    let parts = ["its deadline has passed"];
    let text = guest.last_text();
    assert_eq!(name(answer), AbiError::DeadlineExceeded.name(), "{text}");
    assert!(text.contains(parts[0]), "{text}");

    assert_quarantined(&mut guest, kernel);
    self::guest().assert_usable();
    thread::sleep(Duration::from_millis(1_600).saturating_sub(begin.elapsed()));
    assert_sound(&mut guest);
}

/// Every import answers that the instance is quarantined.
fn assert_quarantined(guest: &mut Harness, kernel: i64) {
    let launch = guest.launch(kernel, Shape::ONE, &[]);
    let answers = [
        launch,
        guest.load_at(abi::MODULE, (DATA_AT, 1), (DATA_AT, 1)),
        guest.call(abi::FN_ALLOC, &[wasmtime::Val::I64(8)]),
        guest.call(abi::FN_SYNC, &[]),
        guest.call(abi::FN_UNLOAD, &[wasmtime::Val::I64(kernel)]),
        guest.call(abi::FN_DEVICE_INFO, &[u32_val(DATA_AT), u32_val(4)]),
    ];
    for answer in answers {
        assert_eq!(name(answer), AbiError::DeadlineExceeded.name());
    }
    assert!(
        guest.last_text().contains("quarantine"),
        "{}",
        guest.last_text()
    );
}

/// Launches, and drops the call after a time. Whether it had ended by then.
fn launch_for(guest: &mut Guest, kernel: i64, args: &[Arg<'_>], time: Duration) -> bool {
    let argv = encode(args);
    block_on(async {
        let launch = guest.launch_bytes(Way::Plain, kernel, Shape::ONE, &argv);
        timeout(time, launch).await.is_ok()
    })
}

fn a_call_is_dropped_in_mid_kernel_a_thousand_times() {
    let mut guest = guest();
    let pattern: Vec<u8> = (0..=250).cycle().take(100_000).collect();
    guest.write_memory(PATTERN_AT, &pattern);
    let kernel = guest.kernel(KIT, "k_spin");
    let mut dropped = 0;
    for round in 0..1_000_u64 {
        let nanoseconds = MILLISECOND + round % 10 * 300_000;
        let time = Duration::from_micros(100 * (round % 7));
        if !launch_for(&mut guest, kernel, &[Arg::U64(nanoseconds)], time) {
            dropped += 1;
            // A busy machine may see the kernel's end later than a drop waits for it.
            leave_quarantine(&mut guest);
        }
    }
    // Timers of the runtime are coarse, so that some launches end first.
    assert!(dropped > 500, "{dropped}");
    let found = guest.read_memory(PATTERN_AT, pattern.len());
    assert!(found == pattern, "the guest's memory has changed");
    assert_eq!(guest.cuda().metrics().launches, 1_000);
    assert_sound(&mut guest);
}

fn an_instance_whose_kernel_goes_on_is_quarantined() {
    let (mut guest, mut neighbour) = (guest(), guest());
    let kernel = guest.kernel(KIT, "k_forever");
    // Drivers load nothing while an endless kernel runs.
    let of_neighbour = neighbour.kernel(KIT, "k_store");
    guest.write_memory(DATA_AT, &[0; 8]);
    let begin = Instant::now();
    let ended = launch_for(
        &mut guest,
        kernel,
        &[ptr(DATA_AT, 4)],
        Duration::from_millis(20),
    );
    assert!(!ended);
    assert!(begin.elapsed() < Duration::from_secs(1));
    assert_quarantined(&mut guest, kernel);
    assert_eq!(cuda().health(), Health::Good);
    for number in 0..100 {
        neighbour.run(of_neighbour, &[ptr(DATA_AT, 4), Arg::U32(number)]);
        assert_eq!(neighbour.read_u32(DATA_AT), number);
    }

    // The embedder ends the kernel in the one way that this kernel knows.
    guest.write_memory(DATA_AT, &1_u32.to_le_bytes());
    leave_quarantine(&mut guest);
    assert_sound(&mut guest);
}

/// Waits until the device has let go of the instance's launch.
fn leave_quarantine(guest: &mut Harness) {
    let begin = Instant::now();
    while guest.call(abi::FN_SYNC, &[]) != 0 {
        assert!(begin.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(1));
    }
}

fn a_store_dropped_in_mid_kernel_keeps_nobody_waiting() {
    let device = cuda();
    let reserved = device.regions().reserved_bytes();
    let mut neighbour = guest();
    let kernel = neighbour.kernel(KIT, "k_store");
    let begin = Instant::now();
    {
        let mut guest = guest();
        let kernel = guest.kernel(KIT, "k_spin");
        let spin = [Arg::U64(1_000 * MILLISECOND)];
        let ended = launch_for(&mut guest, kernel, &spin, Duration::from_millis(20));
        assert!(!ended);
    }
    assert!(
        begin.elapsed() < Duration::from_millis(800),
        "{:?}",
        begin.elapsed()
    );
    neighbour.run(kernel, &[ptr(DATA_AT, 4), Arg::U32(5)]);
    assert!(
        begin.elapsed() < Duration::from_millis(900),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(neighbour.read_u32(DATA_AT), 5);
    let with_neighbour = (device.regions().reserved_bytes() - reserved) / 2;
    while device.regions().reserved_bytes() > reserved + with_neighbour {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "its memory is held still"
        );
        thread::sleep(Duration::from_millis(5));
    }
    assert!(
        begin.elapsed() >= Duration::from_secs(1),
        "its memory went before its kernel"
    );
    let answer = neighbour.launch(kernel, Shape::ONE, &[]);
    assert_fails(
        &mut neighbour,
        answer,
        AbiError::InvalidArgs,
        &["2 arguments"],
    );
    assert_sound(&mut neighbour);
}
