//! Device buffers: carved from the top of the window, written and read by the driver, arguments of kernels.

use abi::AbiError;
use abi::argv::Arg;
use wasmtime::Val;

use crate::harness::{DATA_AT, Harness, KIT, PAGE_BYTES, Setup, Shape, u32_val};
use crate::rig::{assert_fails, assert_sound, guest, ptr, trusted};
use crate::runner::{Case, memories};

pub(crate) const CASES: &[Case] = &[
    memories(
        "what_is_written_to_a_buffer_is_read_again",
        what_is_written_to_a_buffer_is_read_again,
    ),
    memories("a_new_buffer_is_zero", a_new_buffer_is_zero),
    memories("buffers_are_arguments", buffers_are_arguments),
    memories(
        "the_bytes_of_a_freed_buffer_are_zero_in_the_next",
        the_bytes_of_a_freed_buffer_are_zero_in_the_next,
    ),
    memories("quotas_hold", quotas_hold),
];

fn alloc(guest: &mut Harness, bytes: i64) -> i64 {
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(bytes)]);
    assert!(buffer > 0, "{}", guest.last_text());
    buffer
}

fn copy(guest: &mut Harness, import: &str, buffer: i64, at: i64, range: (u32, u32)) {
    let args = [
        Val::I64(buffer),
        Val::I64(at),
        u32_val(range.0),
        u32_val(range.1),
    ];
    assert_eq!(guest.call(import, &args), 0, "{}", guest.last_text());
}

fn what_is_written_to_a_buffer_is_read_again() {
    let mut guest = guest();
    let bytes: Vec<u8> = (0..=250).cycle().take(100_000).collect();
    let range = guest.put(2 * PAGE_BYTES, &bytes);
    let buffer = alloc(&mut guest, 200_000);
    copy(&mut guest, abi::FN_WRITE, buffer, 77, range);
    let back = 8 * PAGE_BYTES;
    copy(&mut guest, abi::FN_READ, buffer, 77, (back, range.1));
    assert!(guest.read_memory(back, bytes.len()) == bytes);
    copy(&mut guest, abi::FN_READ, buffer, 0, (back, 77));
    assert_eq!(guest.read_memory(back, 77), [0; 77]);
}

fn a_new_buffer_is_zero() {
    let mut guest = guest();
    let buffer = alloc(&mut guest, 65_536);
    guest.write_memory(PAGE_BYTES, &[0xEE; 65_536]);
    copy(&mut guest, abi::FN_READ, buffer, 0, (PAGE_BYTES, 65_536));
    assert!(
        guest
            .read_memory(PAGE_BYTES, 65_536)
            .iter()
            .all(|&byte| byte == 0)
    );
}

fn buffers_are_arguments() {
    let mut guest = guest();
    let (store, copy_words) = (guest.kernel(KIT, "k_store"), guest.kernel(KIT, "k_copy"));
    let handle = alloc(&mut guest, 4_096);
    let at = |offset| Arg::Buffer { handle, offset };
    guest.run(store, &[at(0), Arg::U32(11)]);
    guest.run(store, &[at(4_092), Arg::U32(12)]);
    guest.run(copy_words, &[at(0), ptr(DATA_AT, 4), Arg::U32(1)]);
    guest.run(copy_words, &[at(4_092), ptr(DATA_AT + 4, 4), Arg::U32(1)]);
    assert_eq!(
        (guest.read_u32(DATA_AT), guest.read_u32(DATA_AT + 4)),
        (11, 12)
    );

    guest.write_memory(DATA_AT, &99_u32.to_le_bytes());
    guest.run(copy_words, &[ptr(DATA_AT, 4), at(8), Arg::U32(1)]);
    copy(&mut guest, abi::FN_READ, handle, 8, (DATA_AT + 8, 4));
    assert_eq!(guest.read_u32(DATA_AT + 8), 99);

    assert_eq!(guest.call(abi::FN_FREE, &[Val::I64(handle)]), 0);
    let answer = guest.launch(store, Shape::ONE, &[at(0), Arg::U32(1)]);
    let text = format!("no buffer {handle} of this instance");
    guest.assert_refused(answer, AbiError::InvalidHandle, &text);
    assert_sound(&mut guest);
}

fn the_bytes_of_a_freed_buffer_are_zero_in_the_next() {
    let mut guest = guest();
    let store = guest.kernel(KIT, "k_store");
    for _ in 0..3 {
        let handle = alloc(&mut guest, 65_536);
        for offset in [0, 32_768, 65_532] {
            copy(&mut guest, abi::FN_READ, handle, offset, (DATA_AT, 4));
            assert_eq!(guest.read_u32(DATA_AT), 0);
            let offset = offset.cast_unsigned();
            guest.run(store, &[Arg::Buffer { handle, offset }, Arg::U32(u32::MAX)]);
        }
        assert_eq!(guest.call(abi::FN_FREE, &[Val::I64(handle)]), 0);
    }
}

fn quotas_hold() {
    let mut guest = Harness::new(&Setup {
        limits: host::Limits {
            buffer_bytes_total: 100_000,
            ..host::Limits::default()
        },
        ..trusted()
    });
    let buffer = alloc(&mut guest, 80_000);
    let answer = guest.call(abi::FN_ALLOC, &[Val::I64(20_001)]);
    let parts = ["100001", "100000"];
    assert_fails(&mut guest, answer, AbiError::QuotaExceeded, &parts);
    assert_eq!(guest.call(abi::FN_FREE, &[Val::I64(buffer)]), 0);
    alloc(&mut guest, 100_000);
}
