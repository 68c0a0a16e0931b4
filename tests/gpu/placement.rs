//! Where memory lies: what a hint moves, what an embedder's own memory is good for, and what is counted.

use std::time::{Duration, Instant};

use abi::AbiError;
use abi::argv::Arg;
use abi::info::{FEATURE_CONFINED, FEATURE_COOPERATIVE, FEATURE_PREFETCH, FEATURE_SYMBOL};
use device::{Health, HostAddr};
use host::{Limits, check_engine};
use wasmtime::Val;

use crate::embedder::{self, Kind};
use crate::fake::calls;
use crate::harness::{DATA_AT, Harness, KIT, PAGE_BYTES, Setup, Shape, u32_val};
use crate::rig::{
    assert_fails, assert_nothing_is_reserved, assert_sound, cuda, guest, guest_text, ptr, trusted,
};
use crate::runner::{Case, either, gpu, scripted};

pub(crate) const CASES: &[Case] = &[
    either(
        "memory_that_the_embedder_registered_is_the_kernels",
        memory_that_the_embedder_registered_is_the_kernels,
    ),
    either(
        "managed_memory_of_the_embedder_is_the_kernels",
        managed_memory_of_the_embedder_is_the_kernels,
    ),
    either(
        "memory_that_is_registered_in_part_is_refused",
        memory_that_is_registered_in_part_is_refused,
    ),
    either(
        "memory_of_the_embedder_has_no_room_for_buffers",
        memory_of_the_embedder_has_no_room_for_buffers,
    ),
    either(
        "plain_memory_is_refused_before_the_driver_sees_it",
        plain_memory_is_refused_before_the_driver_sees_it,
    ),
    either("features_say_what_works", features_say_what_works),
    either(
        "all_address_space_is_given_back",
        all_address_space_is_given_back,
    ),
    gpu(
        "prefetched_memory_is_read_at_the_devices_speed",
        prefetched_memory_is_read_at_the_devices_speed,
    ),
    scripted(
        "a_prefetch_moves_whole_pages",
        "",
        a_prefetch_moves_whole_pages,
    ),
    scripted(
        "a_prefetch_that_fails_is_a_hint_not_followed",
        "cuMemPrefetchAsync=1",
        a_prefetch_that_fails_is_a_hint_not_followed,
    ),
    scripted(
        "a_prefetch_whose_advice_fails_is_a_hint_not_followed",
        "cuMemAdvise=801",
        a_prefetch_that_fails_is_a_hint_not_followed,
    ),
    scripted(
        "a_prefetch_that_finds_the_device_lost_says_so",
        "cuMemPrefetchAsync=700",
        a_prefetch_that_finds_the_device_lost_says_so,
    ),
    scripted(
        "buffers_leave_device_memory_to_kernels",
        "free_mib=65",
        buffers_leave_device_memory_to_kernels,
    ),
    scripted(
        "buffers_are_made_where_free_memory_is_not_known",
        "cuMemGetInfo_v2=999",
        buffers_are_made_where_free_memory_is_not_known,
    ),
];

/// An instance on memory of the embedder.
fn guest_on(kind: Kind) -> Harness {
    cuda();
    let engine = embedder::engine(kind);
    Harness::with_text(&trusted(), &engine, &guest_text(4)).unwrap()
}

fn prefetch(guest: &mut Harness, at: u32, len: u32, side: i32) -> i64 {
    guest.call(
        abi::FN_PREFETCH,
        &[u32_val(at), u32_val(len), Val::I32(side)],
    )
}

#[track_caller]
fn assert_is_the_kernels(kind: Kind) {
    let mut guest = guest_on(kind);
    check_engine(&embedder::engine(kind), &cuda()).unwrap();
    let (store, copy) = (guest.kernel(KIT, "k_store"), guest.kernel(KIT, "k_copy"));
    let last = guest.memory_bytes() - 4;
    for at in [DATA_AT, last] {
        guest.run(store, &[ptr(at, 4), Arg::U32(at)]);
        assert_eq!(guest.read_u32(at), at);
    }
    guest.write_memory(DATA_AT, b"from the guest..");
    guest.run(
        copy,
        &[ptr(DATA_AT, 16), ptr(DATA_AT + 64, 16), Arg::U32(4)],
    );
    assert_eq!(guest.read_memory(DATA_AT + 64, 16), b"from the guest..");
    for side in [abi::PREFETCH_DEVICE, abi::PREFETCH_HOST] {
        assert_eq!(prefetch(&mut guest, DATA_AT, 64, side), 0);
    }
    assert_eq!(cuda().regions().reserved_bytes(), 0);
    let base = HostAddr::from_ptr(guest.memory.data_ptr(&guest.store)).unwrap();
    let adopted = cuda().adopt(base, u64::from(guest.memory_bytes())).unwrap();
    assert!(!adopted.unwrap().serves_confined());
    assert_sound(&mut guest);
}

fn memory_that_the_embedder_registered_is_the_kernels() {
    assert_is_the_kernels(Kind::Registered);
}

fn managed_memory_of_the_embedder_is_the_kernels() {
    assert_is_the_kernels(Kind::Managed);
}

fn memory_that_is_registered_in_part_is_refused() {
    let mut guest = guest_on(Kind::AllButAPageRegistered);
    let kernel = guest.kernel(KIT, "k_store");
    let answer = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    let parts = ["argument 0", "plain host memory"];
    assert_fails(&mut guest, answer, AbiError::LaunchFailed, &parts);
    assert_eq!(guest.read_u32(DATA_AT), 0);
}

fn memory_of_the_embedder_has_no_room_for_buffers() {
    for kind in [Kind::Managed, Kind::Registered] {
        let mut guest = guest_on(kind);
        let answer = guest.call(abi::FN_ALLOC, &[Val::I64(64)]);
        let parts = ["a device buffer needs 64 bytes, 0 are available"];
        assert_fails(&mut guest, answer, AbiError::QuotaExceeded, &parts);
    }
}

fn plain_memory_is_refused_before_the_driver_sees_it() {
    let setup = Setup {
        memory: crate::harness::LinearMemory::PlainHost,
        ..trusted()
    };
    let mut guest = Harness::new(&setup);
    let kernel = guest.kernel(KIT, "k_store");
    for _ in 0..3 {
        let answer = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
        let parts = ["argument 0", "plain host memory"];
        assert_fails(&mut guest, answer, AbiError::LaunchFailed, &parts);
    }
    for side in [abi::PREFETCH_DEVICE, abi::PREFETCH_HOST] {
        assert_eq!(prefetch(&mut guest, DATA_AT, 64, side), 0);
    }
    let empty = guest.kernel(KIT, "k_empty");
    guest.run(empty, &[]);
    assert_eq!(cuda().health(), Health::Good);
}

fn features_say_what_works() {
    let info = guest().device_info();
    let placed = FEATURE_COOPERATIVE | FEATURE_PREFETCH;
    assert_eq!(info.features, placed | FEATURE_CONFINED | FEATURE_SYMBOL);
}

fn all_address_space_is_given_back() {
    let device = cuda();
    assert_eq!(device.regions().reserved_bytes(), 0);
    {
        let mut guests = [guest(), guest()];
        assert!(device.regions().reserved_bytes() > 2 << 32);
        let [one, _] = &mut guests;
        assert!(one.call(abi::FN_ALLOC, &[Val::I64(1 << 20)]) > 0);
        one.assert_usable();
    }
    assert_nothing_is_reserved(&device);
}

/// `passes(in, out, count, passes)`: adds up `count` groups of four words, so many times. The count is a multiple of four
/// times the threads.
const PASSES: &str = "\
.version 7.0
.target sm_75
.address_size 64
.visible .entry passes(.param .u64 in, .param .u64 out, .param .u32 count, .param .u32 passes)
{
    .reg .pred %p<3>;
    .reg .b32 %r<26>;
    .reg .b64 %rd<8>;
    .shared .align 4 .b32 sum;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [count];
    ld.param.u32 %r2, [passes];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    mov.u32 %r7, %nctaid.x;
    mul.lo.u32 %r7, %r7, %r4;
    mul.wide.u32 %rd5, %r7, 16;
    mov.u32 %r8, 0;
PASS:
    mov.u32 %r9, %r6;
GROUP:
    setp.ge.u32 %p1, %r9, %r1;
    @%p1 bra PASSED;
    mul.wide.u32 %rd3, %r9, 16;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd4];
    add.u64 %rd4, %rd4, %rd5;
    ld.global.v4.u32 {%r14, %r15, %r16, %r17}, [%rd4];
    add.u64 %rd4, %rd4, %rd5;
    ld.global.v4.u32 {%r18, %r19, %r20, %r21}, [%rd4];
    add.u64 %rd4, %rd4, %rd5;
    ld.global.v4.u32 {%r22, %r23, %r24, %r25}, [%rd4];
    add.u32 %r8, %r8, %r10;
    add.u32 %r8, %r8, %r11;
    add.u32 %r8, %r8, %r12;
    add.u32 %r8, %r8, %r13;
    add.u32 %r8, %r8, %r14;
    add.u32 %r8, %r8, %r15;
    add.u32 %r8, %r8, %r16;
    add.u32 %r8, %r8, %r17;
    add.u32 %r8, %r8, %r18;
    add.u32 %r8, %r8, %r19;
    add.u32 %r8, %r8, %r20;
    add.u32 %r8, %r8, %r21;
    add.u32 %r8, %r8, %r22;
    add.u32 %r8, %r8, %r23;
    add.u32 %r8, %r8, %r24;
    add.u32 %r8, %r8, %r25;
    mad.lo.u32 %r9, %r7, 4, %r9;
    bra GROUP;
PASSED:
    sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p2, %r2, 0;
    @%p2 bra PASS;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra BEGUN;
    st.shared.u32 [sum], 0;
BEGUN:
    bar.sync 0;
    red.shared.add.u32 [sum], %r8;
    bar.sync 0;
    @%p1 bra ENDED;
    ld.shared.u32 %r14, [sum];
    red.global.add.u32 [%rd2], %r14;
ENDED:
    ret;
}
";

/// Reads much of a guest's memory on the device.
struct Reader {
    guest: Harness,
    kernel: i64,
}

impl Reader {
    const AT: u32 = 2 * PAGE_BYTES;
    const BYTES: u32 = 512 << 20;

    fn new() -> Self {
        let mut guest = Harness::new(&Setup {
            pages: (Self::AT + Self::BYTES) / PAGE_BYTES,
            limits: Limits {
                buffer_bytes: Self::BYTES.into(),
                ..Limits::default()
            },
            ..trusted()
        });
        guest.write_memory(Self::AT, &vec![1; Self::BYTES as usize]);
        let kernel = guest.kernel(PASSES, "passes");
        Self { guest, kernel }
    }

    /// Bytes a second of so many passes over the guest's memory.
    fn speed(&mut self, passes: u32) -> f64 {
        self.speed_of(ptr(Self::AT, Self::BYTES), 0x0101_0101, passes)
    }

    /// The same of a new buffer.
    fn speed_of_a_buffer(&mut self, passes: u32) -> f64 {
        let bytes = Val::I64(Self::BYTES.into());
        let handle = self.guest.call(abi::FN_ALLOC, &[bytes]);
        assert!(handle > 0, "{}", self.guest.last_text());
        self.speed_of(Arg::Buffer { handle, offset: 0 }, 0, passes)
    }

    /// Bytes a second of so many passes over memory full of `word`, the better of three launches.
    fn speed_of(&mut self, memory: Arg<'_>, word: u32, passes: u32) -> f64 {
        let count = Self::BYTES / 16;
        let args = [memory, ptr(DATA_AT, 4), Arg::U32(count), Arg::U32(passes)];
        let shape = Shape::line(1024, 256);
        let mut best = Duration::MAX;
        for _ in 0..3 {
            self.guest.write_memory(DATA_AT, &[0; 4]);
            let begin = Instant::now();
            let answer = self.guest.launch(self.kernel, shape, &args);
            best = best.min(begin.elapsed());
            assert_eq!(answer, 0, "{}", self.guest.last_text());
            let sum = (count * 4).wrapping_mul(word).wrapping_mul(passes);
            assert_eq!(self.guest.read_u32(DATA_AT), sum);
        }
        f64::from(Self::BYTES) * f64::from(passes) / best.as_secs_f64()
    }

    fn prefetch(&mut self, side: i32) -> Duration {
        let begin = Instant::now();
        assert_eq!(prefetch(&mut self.guest, Self::AT, Self::BYTES, side), 0);
        begin.elapsed()
    }
}

fn prefetched_memory_is_read_at_the_devices_speed() {
    const PASSES_TIMED: u32 = 100;
    let mut reader = Reader::new();
    let across = reader.speed(1);
    let took = reader.prefetch(abi::PREFETCH_DEVICE);
    let within = reader.speed(PASSES_TIMED);
    let buffer = reader.speed_of_a_buffer(PASSES_TIMED);
    println!(
        "before {across:.3e} bytes/s, moved in {took:?}, after {within:.3e}, a buffer {buffer:.3e}"
    );
    assert!(within > 8.0 * across, "{within:.3e} after {across:.3e}");
    assert!(within > 0.9 * buffer, "{within:.3e} of {buffer:.3e}");

    let took = reader.prefetch(abi::PREFETCH_HOST);
    let back = reader.speed(1);
    println!("moved back in {took:?}, then {back:.3e}");
    assert!(within > 8.0 * back, "{within:.3e} against {back:.3e}");
}

/// The advice and the moves that the driver was asked for since `before`.
fn asked_for(before: usize) -> Vec<String> {
    let is_about_places =
        |call: &String| call.starts_with("cuMemAdvise ") || call.starts_with("cuMemPrefetchAsync ");
    calls()
        .into_iter()
        .skip(before)
        .filter(is_about_places)
        .collect()
}

fn a_prefetch_moves_whole_pages() {
    let mut guest = guest();
    for (at, len, bytes) in [
        (PAGE_BYTES - 1, 2, 2 * PAGE_BYTES),
        (PAGE_BYTES, 1, PAGE_BYTES),
        (0, guest.memory_bytes(), guest.memory_bytes()),
    ] {
        for (side, place, mapped) in [(abi::PREFETCH_DEVICE, 0, 6), (abi::PREFETCH_HOST, -1, 5)] {
            let before = calls().len();
            assert_eq!(prefetch(&mut guest, at, len, side), 0);
            let want = [
                format!("cuMemAdvise {bytes} 3 {place}"),
                format!("cuMemAdvise {bytes} {mapped} 0"),
                format!("cuMemPrefetchAsync {bytes} {place}"),
            ];
            assert_eq!(asked_for(before), want);
        }
    }
    let before = calls().len();
    for at in [0, guest.memory_bytes()] {
        assert_eq!(prefetch(&mut guest, at, 0, abi::PREFETCH_DEVICE), 0);
    }
    assert!(asked_for(before).is_empty());
}

fn a_prefetch_that_fails_is_a_hint_not_followed() {
    let mut guest = guest();
    for side in [abi::PREFETCH_DEVICE, abi::PREFETCH_HOST] {
        assert_eq!(prefetch(&mut guest, DATA_AT, 64, side), 0);
    }
    assert_eq!(guest.last_error(), "");
    assert_sound(&mut guest);
}

fn a_prefetch_that_finds_the_device_lost_says_so() {
    let mut guest = guest();
    let answer = prefetch(&mut guest, DATA_AT, 64, abi::PREFETCH_DEVICE);
    let parts = ["moving memory", "700"];
    assert_fails(&mut guest, answer, AbiError::DeviceLost, &parts);
}

fn buffers_leave_device_memory_to_kernels() {
    let mut guest = guest();
    let answer = guest.call(abi::FN_ALLOC, &[Val::I64((1 << 20) + 1)]);
    let parts = ["a device buffer needs", "1048576 are available"];
    assert_fails(&mut guest, answer, AbiError::QuotaExceeded, &parts);
    assert!(guest.call(abi::FN_ALLOC, &[Val::I64(1 << 20)]) > 0);
    assert_sound(&mut guest);
}

fn buffers_are_made_where_free_memory_is_not_known() {
    let mut guest = guest();
    assert!(guest.call(abi::FN_ALLOC, &[Val::I64(1 << 20)]) > 0);
    assert_sound(&mut guest);
}
