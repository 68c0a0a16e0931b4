//! Device buffers: life, copies, limits, and as arguments of kernels.

use abi::AbiError;
use abi::argv::Arg;
use host::Limits;
use wasmtime::Val;

use crate::harness::{
    DATA_AT, Harness, KIT, LinearMemory, Setup, Shape, assert_all_usable, name, u32_val,
};

fn alloc(guest: &mut Harness, bytes: u64) -> i64 {
    guest.call(abi::FN_ALLOC, &[Val::I64(bytes.cast_signed())])
}

fn free(guest: &mut Harness, buffer: i64) -> i64 {
    guest.call(abi::FN_FREE, &[Val::I64(buffer)])
}

/// `write` or `read` of `len` bytes at `at` of the buffer, to or from `ptr` in guest memory.
fn copy(guest: &mut Harness, import: &str, buffer: i64, at: u64, ptr: u32, len: u32) -> i64 {
    let args = [
        Val::I64(buffer),
        Val::I64(at.cast_signed()),
        u32_val(ptr),
        u32_val(len),
    ];
    guest.call(import, &args)
}

fn write(guest: &mut Harness, buffer: i64, at: u64, bytes: &[u8]) {
    let (ptr, len) = guest.put(DATA_AT, bytes);
    assert_eq!(copy(guest, abi::FN_WRITE, buffer, at, ptr, len), 0);
}

fn read(guest: &mut Harness, buffer: i64, at: u64, len: u32) -> Vec<u8> {
    guest.write_memory(DATA_AT, &vec![0xAA; len as usize]);
    assert_eq!(copy(guest, abi::FN_READ, buffer, at, DATA_AT, len), 0);
    guest.read_memory(DATA_AT, len as usize)
}

#[test]
fn what_is_written_is_read_back_and_the_rest_is_zero() {
    let mut guest = Harness::cpu();
    let buffer = alloc(&mut guest, 10_000);
    assert!(buffer > 0);
    assert_eq!(read(&mut guest, buffer, 0, 10_000), [0; 10_000]);
    write(&mut guest, buffer, 4095, b"over a page");
    assert_eq!(read(&mut guest, buffer, 4095, 11), b"over a page");
    assert_eq!(read(&mut guest, buffer, 4094, 1), [0]);
    assert_eq!(read(&mut guest, buffer, 9_999, 1), [0]);
    assert_eq!(
        copy(&mut guest, abi::FN_READ, buffer, 10_000, 0, 0),
        0,
        "nothing, from the end"
    );
    assert_eq!(guest.cuda().metrics().buffer_bytes, 10_000);
    assert_eq!(free(&mut guest, buffer), 0);
    assert_eq!(guest.cuda().metrics().buffer_bytes, 0);
}

#[test]
fn a_buffer_is_zero_whatever_was_in_its_place_before() {
    let mut guest = Harness::cpu();
    for _ in 0..4 {
        let buffer = alloc(&mut guest, 8192);
        assert_eq!(read(&mut guest, buffer, 0, 8192), [0; 8192]);
        write(&mut guest, buffer, 0, &[0xFF; 8192]);
        assert_eq!(free(&mut guest, buffer), 0);
    }
}

#[test]
fn buffers_are_apart_from_each_other_and_from_linear_memory() {
    let mut guest = Harness::cpu();
    let memory = guest.read_memory(0, guest.memory_bytes() as usize);
    let buffers = [1_u8, 2, 3].map(|fill| {
        let buffer = alloc(&mut guest, 4096);
        write(&mut guest, buffer, 0, &[fill; 4096]);
        (buffer, fill)
    });
    for (buffer, fill) in buffers {
        assert_eq!(read(&mut guest, buffer, 0, 4096), [fill; 4096]);
    }
    let after = guest.read_memory(0, guest.memory_bytes() as usize);
    let differs = memory.iter().zip(&after).position(|(a, b)| a != b);
    let end = memory.iter().zip(&after).rposition(|(a, b)| a != b);
    let copied = DATA_AT as usize..DATA_AT as usize + 4096;
    assert!(
        differs.is_some_and(|at| copied.contains(&at))
            && end.is_some_and(|at| copied.contains(&at))
    );
}

#[test]
fn kernels_read_and_write_buffers() {
    let mut guest = Harness::cpu();
    let buffer = alloc(&mut guest, 4096);
    let store = guest.kernel(KIT, "k_store");
    guest.run(
        store,
        &[
            Arg::Buffer {
                handle: buffer,
                offset: 8,
            },
            Arg::U32(0xfeed),
        ],
    );
    let mut expected = [0; 16];
    expected[8..12].copy_from_slice(&0xfeed_u32.to_le_bytes());
    assert_eq!(read(&mut guest, buffer, 0, 16), expected);

    let words: Vec<u8> = (0..64_u8).collect();
    write(&mut guest, buffer, 1024, &words);
    guest.write_memory(DATA_AT, &[0; 64]);
    let copy = guest.kernel(KIT, "k_copy");
    let into = Arg::Ptr {
        offset: DATA_AT,
        len: 64,
    };
    guest.run(
        copy,
        &[
            Arg::Buffer {
                handle: buffer,
                offset: 1024,
            },
            into,
            Arg::U32(16),
        ],
    );
    assert_eq!(guest.read_memory(DATA_AT, 64), words);
    guest.run(
        copy,
        &[
            into,
            Arg::Buffer {
                handle: buffer,
                offset: 2048,
            },
            Arg::U32(16),
        ],
    );
    assert_eq!(read(&mut guest, buffer, 2048, 64), words);
}

#[test]
fn a_kernel_that_leaves_a_buffer_traps() {
    let mut guest = Harness::cpu();
    // The last page of the window: behind it is nothing.
    let buffer = alloc(&mut guest, 4096);
    let kernel = guest.kernel(KIT, "k_past");
    guest.run(
        kernel,
        &[
            Arg::Buffer {
                handle: buffer,
                offset: 0,
            },
            Arg::U64(4092),
        ],
    );
    assert_eq!(
        read(&mut guest, buffer, 4092, 4),
        0xdead_beef_u32.to_le_bytes()
    );
    let past = [
        Arg::Buffer {
            handle: buffer,
            offset: 0,
        },
        Arg::U64(4096),
    ];
    let answer = guest.launch(kernel, Shape::ONE, &past);
    guest.knows(&[1 << 32]);
    assert_eq!(name(answer), "KernelTrap");
    assert_eq!(guest.trap_info().address, 1 << 32, "{}", guest.last_text());
    assert_all_usable(&mut guest);
}

#[test]
fn unknown_and_foreign_handles_are_refused_by_every_use() {
    let (mut guest, mut other) = (Harness::cpu(), Harness::cpu());
    let stale = alloc(&mut guest, 64);
    assert_eq!(free(&mut guest, stale), 0);
    let foreign = alloc(&mut other, 64);
    let kernel = guest.kernel(KIT, "k_store");
    for handle in [stale, foreign, kernel, 0, 1, -1, i64::MIN, i64::MAX] {
        let text = format!("no buffer {handle} of this instance");
        let answers = [
            free(&mut guest, handle),
            copy(&mut guest, abi::FN_WRITE, handle, 0, DATA_AT, 4),
            copy(&mut guest, abi::FN_READ, handle, 0, DATA_AT, 4),
            guest.launch(
                kernel,
                Shape::ONE,
                &[Arg::Buffer { handle, offset: 0 }, Arg::U32(1)],
            ),
        ];
        for answer in answers {
            guest.assert_refused(answer, AbiError::InvalidHandle, &text);
        }
    }
    assert_eq!(read(&mut other, foreign, 0, 64), [0; 64]);
    assert_all_usable(&mut guest);
}

#[test]
fn a_copy_stays_in_its_buffer() {
    let mut guest = Harness::cpu();
    let buffer = alloc(&mut guest, 100);
    for import in [abi::FN_WRITE, abi::FN_READ] {
        for (at, len) in [
            (0, 101),
            (100, 1),
            (99, 2),
            (101, 0),
            (u64::MAX, 1),
            (1 << 63, 0),
            (0, 65_536),
        ] {
            let answer = copy(&mut guest, import, buffer, at, DATA_AT, len);
            guest.knows(&[at]);
            let text =
                format!("a copy of {len} bytes at {at} does not lie in the buffer of 100 bytes");
            guest.assert_refused(answer, AbiError::InvalidArgs, &text);
        }
    }
    assert_eq!(read(&mut guest, buffer, 0, 100), [0; 100]);
    assert_all_usable(&mut guest);
}

#[test]
fn a_copy_stays_in_guest_memory() {
    let mut guest = Harness::cpu();
    let end = guest.memory_bytes();
    let buffer = alloc(&mut guest, 100);
    for (import, what) in [(abi::FN_WRITE, "a source"), (abi::FN_READ, "a destination")] {
        for (ptr, len) in [
            (end - 50, 51),
            (end, 1),
            (u32::MAX, 1),
            (u32::MAX, 100),
            (end + 1, 0),
        ] {
            let answer = copy(&mut guest, import, buffer, 0, ptr, len);
            let text =
                format!("{what} of {len} bytes from {ptr} ends past the {end} bytes of memory");
            guest.assert_refused(answer, AbiError::InvalidPointer, &text);
        }
        assert_eq!(copy(&mut guest, import, buffer, 0, end - 50, 50), 0);
    }
    assert_all_usable(&mut guest);
}

#[test]
fn an_argument_stays_in_its_buffer() {
    let mut guest = Harness::cpu();
    let handle = alloc(&mut guest, 100);
    let kernel = guest.kernel(KIT, "k_store");
    for offset in [101, 4096, 1 << 32, u64::MAX] {
        let answer = guest.launch(
            kernel,
            Shape::ONE,
            &[Arg::Buffer { handle, offset }, Arg::U32(1)],
        );
        guest.knows(&[offset]);
        let text = format!("argument 0 is at byte {offset} of a buffer of 100 bytes");
        guest.assert_refused(answer, AbiError::InvalidPointer, &text);
    }
    guest.run(kernel, &[Arg::Buffer { handle, offset: 96 }, Arg::U32(1)]);
    assert_all_usable(&mut guest);
}

#[test]
fn sizes_and_numbers_of_buffers_are_limited() {
    let limits = Limits {
        buffers: 3,
        buffer_bytes: 1000,
        buffer_bytes_total: 2500,
        ..Limits::default()
    };
    let mut guest = Harness::new(&Setup {
        limits,
        ..Setup::default()
    });
    let answer = alloc(&mut guest, 0);
    guest.assert_refused(
        answer,
        AbiError::InvalidArgs,
        "the size of a buffer is 0, expected at least 1",
    );
    for bytes in [1001, 1 << 32, i64::MAX.cast_unsigned(), u64::MAX] {
        let answer = alloc(&mut guest, bytes);
        let text = format!("bytes of one device buffer: {bytes} given, the limit is 1000");
        guest.assert_refused(answer, AbiError::QuotaExceeded, &text);
    }
    let large = [alloc(&mut guest, 1000), alloc(&mut guest, 1000)];
    let answer = alloc(&mut guest, 501);
    guest.assert_refused(
        answer,
        AbiError::QuotaExceeded,
        "bytes of device buffers and module variables: 2501 given, the limit is 2500",
    );
    let small = alloc(&mut guest, 1);
    let answer = alloc(&mut guest, 1);
    guest.assert_refused(
        answer,
        AbiError::QuotaExceeded,
        "device buffers: 4 given, the limit is 3",
    );
    assert_eq!(
        guest.cuda().metrics().buffer_bytes,
        2001,
        "a refusal takes nothing"
    );

    for buffer in [large[0], large[1], small] {
        assert_eq!(free(&mut guest, buffer), 0);
    }
    assert!(alloc(&mut guest, 1000) > 0);
    assert_all_usable(&mut guest);
}

#[test]
fn a_full_window_has_no_room_for_a_buffer() {
    let memory = LinearMemory::Device {
        window_bytes: 4 << 20,
    };
    let mut guest = Harness::new(&Setup {
        memory,
        pages: 32,
        ..Setup::default()
    });
    let answer = alloc(&mut guest, (2 << 20) + 1);
    let text = "a device buffer needs 2097153 bytes, 2097152 are available";
    guest.assert_refused(answer, AbiError::QuotaExceeded, text);
    assert_eq!(guest.cuda().metrics().buffer_bytes, 0);
    let buffer = alloc(&mut guest, 2 << 20);
    assert!(buffer > 0);
    assert_eq!(guest.grow(1), -1, "memory meets the buffer");
    assert_eq!(free(&mut guest, buffer), 0);
    assert_eq!(guest.grow(1), 32);
    assert_all_usable(&mut guest);
}

#[test]
fn memory_of_another_kind_holds_no_buffer() {
    let mut guest = Harness::new(&Setup {
        memory: LinearMemory::PlainHost,
        ..Setup::default()
    });
    let answer = alloc(&mut guest, 64);
    let text = "the guest's memory is plain host memory that the device cannot address (see `engine_config`)";
    guest.assert_refused(answer, AbiError::LaunchFailed, text);
    assert_eq!(guest.cuda().metrics().buffer_bytes, 0);
}
