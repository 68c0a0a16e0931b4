//! Linear memory that is the driver's: its bounds for the guest, and what it holds after kernels reached past them.

use abi::AbiError;
use abi::argv::Arg;
use wasmtime::{Trap, Val};

use crate::harness::{
    DATA_AT, GROW, Harness, KIT, LinearMemory, PAGE_BYTES, Setup, guest_text_with, name, u32_val,
};
use crate::rig::{assert_sound, guest, ptr, trusted};
use crate::runner::{Case, either, memories};

pub(crate) const CASES: &[Case] = &[
    either(
        "growth_gives_zero_pages_where_a_kernel_wrote",
        growth_gives_zero_pages_where_a_kernel_wrote,
    ),
    either(
        "an_instance_in_used_memory_finds_zeroes",
        an_instance_in_used_memory_finds_zeroes,
    ),
    memories(
        "an_instance_after_one_without_kernels_has_zeroes_and_its_own_bounds",
        an_instance_after_one_without_kernels_has_zeroes_and_its_own_bounds,
    ),
    memories(
        "growth_keeps_the_base_and_kernels_reach_it",
        growth_keeps_the_base_and_kernels_reach_it,
    ),
    memories(
        "a_guests_access_out_of_bounds_traps",
        a_guests_access_out_of_bounds_traps,
    ),
    memories(
        "a_guest_cannot_touch_device_buffers",
        a_guest_cannot_touch_device_buffers,
    ),
    memories(
        "data_segments_are_seen_by_kernels",
        data_segments_are_seen_by_kernels,
    ),
    memories(
        "of_several_memories_the_one_named_memory_is_the_kernels",
        of_several_memories_the_one_named_memory_is_the_kernels,
    ),
    memories("a_prefetch_changes_nothing", a_prefetch_changes_nothing),
];

const PEEK: &str = r#"
(func (export "peek") (param i32) (result i32) (i32.load8_u (local.get 0)))
(func (export "poke") (param i32 i32) (result i32) (i32.store8 (local.get 0) (local.get 1)) (i32.const 0))
(func (export "peek far") (param i32) (result i32) (i32.load8_u offset=0xffffffff (local.get 0)))
(func (export "fill") (param i32) (result i32)
  (memory.fill (local.get 0) (i32.const 7) (i32.const 4)) (i32.const 0))
"#;

fn guest_with(setup: &Setup, definitions: &str) -> Harness {
    Harness::with_text(setup, &setup.engine(), &guest_text_with(definitions)).unwrap()
}

fn peeking(setup: &Setup) -> Harness {
    let memory = r#"(memory (export "memory") 4)"#;
    guest_with(setup, &format!("{memory} {GROW} {PEEK}"))
}

#[track_caller]
fn assert_traps(harness: &mut Harness, export: &str, args: &[u32]) {
    let args: Vec<Val> = args.iter().copied().map(u32_val).collect();
    let error = harness.export(export, &args).unwrap_err();
    let trap = error.downcast_ref::<Trap>();
    assert_eq!(trap, Some(&Trap::MemoryOutOfBounds), "{error:?}");
}

fn growth_gives_zero_pages_where_a_kernel_wrote() {
    let mut guest = Harness::new(&Setup {
        pages: 3,
        ..trusted()
    });
    let past = guest.kernel(KIT, "k_past");
    let end = u64::from(3 * PAGE_BYTES - DATA_AT);
    let far = end + u64::from(40 * PAGE_BYTES);
    for offset in [end, end + 4_096, end + u64::from(PAGE_BYTES) - 4, far] {
        guest.run(past, &[ptr(DATA_AT, 4), Arg::U64(offset)]);
    }
    assert_eq!(guest.grow(2), 3);
    let gained = guest.read_memory(3 * PAGE_BYTES, 2 * PAGE_BYTES as usize);
    assert!(gained.iter().all(|&byte| byte == 0));
    assert_eq!(guest.grow(60), 5);
    let gained = guest.read_memory(5 * PAGE_BYTES, 60 * PAGE_BYTES as usize);
    assert!(gained.iter().all(|&byte| byte == 0));
    guest.run(past, &[ptr(DATA_AT, 4), Arg::U64(far)]);
    assert_eq!(guest.read_u32(43 * PAGE_BYTES), 0xdead_beef);
    assert_sound(&mut guest);
}

fn an_instance_in_used_memory_finds_zeroes() {
    for _ in 0..20 {
        let mut guest = guest();
        let bytes = guest.memory_bytes();
        let found = guest.read_memory(0, bytes as usize);
        assert!(found.iter().all(|&byte| byte == 0));
        guest.write_memory(0, &vec![0xA5; bytes as usize]);
        let past = guest.kernel(KIT, "k_past");
        guest.run(past, &[ptr(DATA_AT, 4), Arg::U64(u64::from(bytes))]);
    }
}

fn an_instance_after_one_without_kernels_has_zeroes_and_its_own_bounds() {
    let setup = trusted();
    for (pages, more) in [
        (4, 0),
        (4, 0),
        (9, 2),
        (2, 0),
        (2, 60),
        (4, 0),
        (40, 1),
        (3, 0),
    ] {
        let memory = format!(r#"(memory (export "memory") {pages})"#);
        let mut guest = guest_with(&setup, &format!("{memory} {GROW} {PEEK}"));
        guest.grow(more);
        let bytes = guest.memory_bytes();
        assert_eq!(bytes, (pages + more) * PAGE_BYTES);
        let found = guest.read_memory(0, bytes as usize);
        assert!(found.iter().all(|&byte| byte == 0), "{pages} pages");
        guest.write_memory(0, &vec![0xA5; bytes as usize]);
        assert_traps(&mut guest, "peek", &[bytes]);
        assert_traps(&mut guest, "poke", &[bytes + PAGE_BYTES, 1]);
    }
    assert_sound(&mut guest());
}

fn growth_keeps_the_base_and_kernels_reach_it() {
    let mut guest = guest();
    let before = guest.memory.data_ptr(&guest.store);
    let kernel = guest.kernel(KIT, "k_store");
    for (pages, more) in [(16, 1), (17, 3), (20, 100), (120, 1)] {
        assert_eq!(guest.grow(more), pages);
        assert_eq!(guest.memory.data_ptr(&guest.store), before);
        let last = guest.memory_bytes() - 4;
        guest.run(kernel, &[ptr(last, 4), Arg::U32(last)]);
        assert_eq!(guest.read_u32(last), last);
    }
}

fn a_guests_access_out_of_bounds_traps() {
    let mut guest = peeking(&trusted());
    for _ in 0..2 {
        let size = guest.memory_bytes();
        for at in [size, size + 1, size + PAGE_BYTES, 1 << 31, u32::MAX] {
            assert_traps(&mut guest, "peek", &[at]);
            assert_traps(&mut guest, "poke", &[at, 1]);
            assert_traps(&mut guest, "fill", &[at]);
        }
        assert_traps(&mut guest, "peek far", &[0]);
        assert_traps(&mut guest, "peek far", &[u32::MAX]);
        assert_traps(&mut guest, "fill", &[size - 3]);
        assert_eq!(guest.export("peek", &[u32_val(size - 1)]).unwrap(), 0);
        guest.grow(3);
    }
    assert_sound(&mut guest);
}

fn a_guest_cannot_touch_device_buffers() {
    let window_bytes = 1 << 20;
    let mut guest = peeking(&Setup {
        memory: LinearMemory::Device { window_bytes },
        ..trusted()
    });
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(PAGE_BYTES.into())]);
    let kernel = guest.kernel(KIT, "k_store");
    let (handle, offset) = (buffer, 0);
    guest.run(kernel, &[Arg::Buffer { handle, offset }, Arg::U32(42)]);
    let end = 1 << 20;
    for at in [end - PAGE_BYTES, end - PAGE_BYTES + 4, end - 1] {
        assert_traps(&mut guest, "peek", &[at]);
        assert_traps(&mut guest, "poke", &[at, 1]);
    }
    assert_eq!(guest.grow(12), -1);
    assert_eq!(guest.grow(11), 4);
    let refused = guest.call(abi::FN_ALLOC, &[Val::I64(1)]);
    assert_eq!(name(refused), AbiError::QuotaExceeded.name());
    let args = [Val::I64(buffer), Val::I64(0), u32_val(DATA_AT), u32_val(4)];
    assert_eq!(guest.call(abi::FN_READ, &args), 0);
    assert_eq!(guest.read_u32(DATA_AT), 42);

    assert_eq!(guest.call(abi::FN_FREE, &[Val::I64(buffer)]), 0);
    assert_eq!(guest.grow(1), 15);
    let gained = guest.read_memory(15 * PAGE_BYTES, PAGE_BYTES as usize);
    assert!(gained.iter().all(|&byte| byte == 0));
}

fn data_segments_are_seen_by_kernels() {
    let data = format!(r#"(data (i32.const {DATA_AT}) "hello, device...")"#);
    let memory = r#"(memory (export "memory") 4)"#;
    let mut guest = guest_with(&trusted(), &format!("{memory} {data} {GROW}"));
    let kernel = guest.kernel(KIT, "k_copy");
    let copy = DATA_AT + 64;
    guest.run(kernel, &[ptr(DATA_AT, 16), ptr(copy, 16), Arg::U32(4)]);
    assert_eq!(guest.read_memory(copy, 16), b"hello, device...");
}

fn of_several_memories_the_one_named_memory_is_the_kernels() {
    let memories = r#"(memory $first (export "first") 4) (memory $second (export "memory") 4)
        (func (export "peek first") (param i32) (result i32) (i32.load8_u $first (local.get 0)))
        (func (export "peek second") (param i32) (result i32) (i32.load8_u $second (local.get 0)))"#;
    let mut guest = guest_with(&trusted(), &format!("{memories} {GROW}"));
    let kernel = guest.kernel(KIT, "k_store");
    guest.run(kernel, &[ptr(DATA_AT, 4), Arg::U32(7)]);
    assert_eq!(guest.export("peek first", &[u32_val(DATA_AT)]).unwrap(), 0);
    assert_eq!(guest.export("peek second", &[u32_val(DATA_AT)]).unwrap(), 7);
    assert_traps(&mut guest, "peek first", &[4 * PAGE_BYTES]);
}

fn a_prefetch_changes_nothing() {
    let mut guest = guest();
    let kernel = guest.kernel(KIT, "k_store");
    let bytes: Vec<u8> = (0..=250).cycle().take(200_000).collect();
    let (at, len) = guest.put(2 * PAGE_BYTES, &bytes);
    for place in [
        abi::PREFETCH_DEVICE,
        abi::PREFETCH_HOST,
        abi::PREFETCH_DEVICE,
    ] {
        let args = [u32_val(at), u32_val(len), Val::I32(place)];
        assert_eq!(
            guest.call(abi::FN_PREFETCH, &args),
            0,
            "{}",
            guest.last_text()
        );
        guest.run(kernel, &[ptr(at, 4), Arg::U32(place.cast_unsigned())]);
        assert_eq!(guest.read_u32(at), place.cast_unsigned());
        assert!(guest.read_memory(at + 4, bytes.len() - 4) == bytes[4..]);
    }
    let args = [u32_val(guest.memory_bytes() - 4), u32_val(8), Val::I32(0)];
    let refused = guest.call(abi::FN_PREFETCH, &args);
    assert_eq!(name(refused), AbiError::InvalidPointer.name());
}
