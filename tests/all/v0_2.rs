//! Module `wasi:cuda/host@0.2.0`: where it differs from `wasi_cuda`, that guests of the earlier system find what they know.

use std::sync::Arc;

use abi::argv::Arg;
use abi::{AbiError, MODULE_V0_2};
use device::{Error, StopReason, Trap, TrapKind};
use host::Limits;
use wasmtime::Val;

use crate::fake_device::{FakeDevice, Runs};
use crate::harness::{
    ARGV_AT, DATA_AT, Harness, KIT, NAME_AT, PTX_AT, Setup, Shape, VECADD, Way, assert_all_usable,
    encode, name, u32_val,
};

fn call(guest: &mut Harness, import: &str, args: &[Val]) -> i64 {
    guest.call_in(MODULE_V0_2, import, args)
}

fn load(guest: &mut Harness, ptx: &str, entry: &str) -> i64 {
    let (ptx, entry) = (
        guest.put(PTX_AT, ptx.as_bytes()),
        guest.put(NAME_AT, entry.as_bytes()),
    );
    guest.load_at(MODULE_V0_2, ptx, entry)
}

fn launch(guest: &mut Harness, kernel: i64, argv: &[u8]) -> i64 {
    guest.launch_as(Way::V0_2, kernel, Shape::ONE, argv)
}

/// The two halves in which a 64-bit number travels.
fn halves(number: i64) -> [Val; 2] {
    let number = number.cast_unsigned();
    let half = |bits: u64| u32_val(u32::try_from(bits & 0xFFFF_FFFF).unwrap());
    [half(number), half(number >> 32)]
}

fn alloc(guest: &mut Harness, bytes: u64) -> i64 {
    call(guest, abi::FN_ALLOC, &halves(bytes.cast_signed()))
}

fn free(guest: &mut Harness, buffer: i64) -> i64 {
    call(guest, abi::FN_FREE, &halves(buffer))
}

fn to_device(guest: &mut Harness, buffer: i64, src: u32, len: u32) -> i64 {
    let [low, high] = halves(buffer);
    call(
        guest,
        abi::FN_MEMCPY_H2D,
        &[low, high, u32_val(src), u32_val(len)],
    )
}

fn to_host(guest: &mut Harness, dst: u32, buffer: i64, len: u32) -> i64 {
    let [low, high] = halves(buffer);
    call(
        guest,
        abi::FN_MEMCPY_D2H,
        &[u32_val(dst), low, high, u32_val(len)],
    )
}

fn faking() -> (Harness, Arc<Runs>) {
    let (device, runs) = FakeDevice::open();
    (Harness::new(&Setup::on(device)), runs)
}

#[test]
fn a_guest_of_the_earlier_system_adds_vectors() {
    // The argv of its own documentation: vadd(a, b, c, n) over 4,096 bytes each, laid out by hand.
    let mut argv = Vec::new();
    for at in [0x4000_u32, 0x5000, 0x6000] {
        argv.push(0x07);
        argv.extend(at.to_le_bytes());
        argv.extend(4096_u32.to_le_bytes());
    }
    argv.push(0x01);
    argv.extend(1024_i32.to_le_bytes());

    let mut guest = Harness::cpu();
    let floats = |factor: f32| -> Vec<u8> {
        (0..1024_u16)
            .flat_map(|i| (factor * f32::from(i)).to_le_bytes())
            .collect()
    };
    guest.write_memory(0x4000, &floats(1.0));
    guest.write_memory(0x5000, &floats(2.0));
    let kernel = load(&mut guest, VECADD, "vecadd");
    assert!(kernel > 0, "{}", guest.last_text());
    let answer = guest.launch_as(Way::V0_2, kernel, Shape::line(4, 256), &argv);
    assert_eq!(answer, 0, "{}", guest.last_text());
    assert_eq!(call(&mut guest, abi::FN_SYNC, &[]), 0);
    assert_eq!(guest.read_memory(0x6000, 4096), floats(3.0));
}

#[test]
fn codes_that_came_later_are_answered_in_terms_of_those_it_had() {
    let trap = Trap {
        kind: TrapKind::CallDepth,
        line: 3,
        block: [1, 2, 3],
        thread: [4, 5, 6],
        access: None,
    };
    let ends = [
        (
            Error::DeviceLost {
                reason: "it fell off the bus".into(),
            },
            AbiError::DeviceLost,
            AbiError::LaunchFailed,
        ),
        (
            Error::Trap(trap),
            AbiError::KernelTrap,
            AbiError::LaunchFailed,
        ),
        (
            Error::Stopped(StopReason::Deadline),
            AbiError::DeadlineExceeded,
            AbiError::QuotaExceeded,
        ),
        (
            Error::Stopped(StopReason::Budget),
            AbiError::DeadlineExceeded,
            AbiError::QuotaExceeded,
        ),
        (
            Error::Backend {
                what: "cuLaunchKernel",
                reason: "CUDA_ERROR_LAUNCH_TIMEOUT (702)".into(),
            },
            AbiError::LaunchFailed,
            AbiError::LaunchFailed,
        ),
        (
            Error::OutOfMemory {
                what: "local memory",
                requested: 2,
                available: 1,
            },
            AbiError::QuotaExceeded,
            AbiError::QuotaExceeded,
        ),
    ];
    for (end, current, earlier) in ends {
        let (mut guest, runs) = faking();
        let kernel = guest.kernel(KIT, "k_empty");
        runs.end_with(Err(end.clone()));
        for (way, code) in [
            (Way::Plain, current),
            (Way::Cooperative, current),
            (Way::V0_2, earlier),
        ] {
            let answer = guest.launch_as(way, kernel, Shape::ONE, &[]);
            guest.assert_refused(answer, code, &end.to_string());
        }
        assert_eq!(
            guest.call(abi::FN_SYNC, &[]),
            0,
            "the failure was the launch's"
        );
        let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(16)]);
        assert_eq!(guest.call(abi::FN_FREE, &[Val::I64(buffer)]), 0);
    }
}

#[test]
fn ptx_that_is_understood_but_refused_is_malformed_here() {
    let mut guest = Harness::cpu();
    let text = KIT.replacen(".address_size 64", ".address_size 32", 1);
    let current = guest.load(&text, "k_empty");
    assert_eq!(name(current), "UnsupportedPtx");
    let said = guest.last_error();
    assert!(
        said.contains("addresses have 64 bits here, not 32"),
        "{said}"
    );
    let earlier = load(&mut guest, &text, "k_empty");
    guest.assert_refused(earlier, AbiError::MalformedPtx, &said);
    assert_all_usable(&mut guest);
}

#[test]
fn tags_that_came_later_are_unknown() {
    let (mut guest, runs) = faking();
    let kernel = guest.kernel(KIT, "k_ptrattr");
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(64)]);
    let pointer = Arg::Ptr {
        offset: DATA_AT,
        len: 16,
    };
    let argv = encode(&[
        pointer,
        Arg::Buffer {
            handle: buffer,
            offset: 0,
        },
    ]);
    let answer = launch(&mut guest, kernel, &argv);
    guest.assert_refused(
        answer,
        AbiError::InvalidArgs,
        "the argv record at byte 9 has the unknown tag 0x08",
    );
    let answer = launch(&mut guest, kernel, &encode(&[Arg::Bytes(&[0; 8])]));
    guest.assert_refused(
        answer,
        AbiError::InvalidArgs,
        "the argv record at byte 0 has the unknown tag 0x09",
    );
    assert_eq!(
        guest.launch_bytes(kernel, Shape::ONE, &argv),
        0,
        "the same argv in the current module"
    );
    for tag in (0x0A..=0xFF).chain([0]) {
        for way in [Way::Plain, Way::V0_2] {
            let answer = guest.launch_as(way, kernel, Shape::ONE, &[tag; 20]);
            let text = format!("the argv record at byte 0 has the unknown tag {tag:#04x}");
            guest.assert_refused(answer, AbiError::InvalidArgs, &text);
        }
    }
    assert_eq!(runs.launches(), 1);
}

#[test]
fn buffers_park_bytes() {
    let mut guest = Harness::cpu();
    let buffer = alloc(&mut guest, 4096);
    assert!(buffer > 0, "{}", guest.last_text());
    let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    guest.write_memory(DATA_AT, &bytes);
    assert_eq!(to_device(&mut guest, buffer, DATA_AT, 4096), 0);
    guest.write_memory(DATA_AT, &[0; 4096]);
    assert_eq!(to_host(&mut guest, DATA_AT, buffer, 100), 0);
    assert_eq!(guest.read_memory(DATA_AT, 100), bytes[..100]);
    assert_eq!(guest.read_memory(DATA_AT + 100, 100), [0; 100]);
    assert_eq!(to_device(&mut guest, buffer, DATA_AT, 0), 0);
    assert_eq!(free(&mut guest, buffer), 0);
    let answer = free(&mut guest, buffer);
    guest.assert_refused(
        answer,
        AbiError::InvalidHandle,
        &format!("no buffer {buffer} of this instance"),
    );
}

#[test]
fn a_copy_longer_than_its_buffer_is_refused() {
    let mut guest = Harness::cpu();
    let buffer = alloc(&mut guest, 64);
    let text = "a copy of 65 bytes at 0 does not lie in the buffer of 64 bytes";
    let answer = to_device(&mut guest, buffer, DATA_AT, 65);
    guest.assert_refused(answer, AbiError::InvalidArgs, text);
    let answer = to_host(&mut guest, DATA_AT, buffer, 65);
    guest.assert_refused(answer, AbiError::InvalidArgs, text);
    let end = guest.memory_bytes();
    let answer = to_host(&mut guest, end - 63, buffer, 64);
    let text = format!(
        "a destination of 64 bytes from {} ends past the {end} bytes of memory",
        end - 63
    );
    guest.assert_refused(answer, AbiError::InvalidPointer, &text);
    assert_all_usable(&mut guest);
}

#[test]
fn sizes_and_handles_are_joined_from_both_halves() {
    let mut guest = Harness::cpu();
    let answer = alloc(&mut guest, 0);
    guest.assert_refused(
        answer,
        AbiError::InvalidArgs,
        "the size of a buffer is 0, expected at least 1",
    );
    for bytes in [(256 << 20) + 1, 1 << 32, (1 << 32) + 64, 1 << 63, u64::MAX] {
        let answer = alloc(&mut guest, bytes);
        guest.knows(&[bytes]);
        let text = format!("bytes of one device buffer: {bytes} given, the limit is 268435456");
        guest.assert_refused(answer, AbiError::QuotaExceeded, &text);
    }
    let buffer = alloc(&mut guest, 64);
    let swapped = i64::from_le_bytes({
        let mut bytes = buffer.to_le_bytes();
        bytes.rotate_left(4);
        bytes
    });
    for handle in [swapped, buffer ^ 1, buffer ^ (1 << 32), 0, -1, i64::MIN] {
        let answer = free(&mut guest, handle);
        guest.knows(&[handle.cast_unsigned()]);
        guest.assert_refused(
            answer,
            AbiError::InvalidHandle,
            &format!("no buffer {handle} of this instance"),
        );
    }
    assert_eq!(free(&mut guest, buffer), 0);
}

#[test]
fn caps_are_those_of_the_earlier_system() {
    let mut guest = Harness::cpu();
    let kernel = load(&mut guest, KIT, "k_empty");
    let records = |n| encode(&vec![Arg::U32(0); n]);
    let mut argv = records(128);
    let answer = launch(&mut guest, kernel, &argv);
    let text = "kernel `k_empty` declares 0 arguments, 128 given";
    guest.assert_refused(answer, AbiError::InvalidArgs, text);
    argv.extend(records(1));
    let answer = launch(&mut guest, kernel, &argv);
    let text = "argv goes on after 128 records, which is the most";
    guest.assert_refused(answer, AbiError::KernelArgsUnsupported, text);

    let name = (NAME_AT, 257);
    let ptx = guest.put(PTX_AT, KIT.as_bytes());
    let answer = guest.load_at(MODULE_V0_2, ptx, name);
    let text = "bytes of an entry name: 257 given, the limit is 256";
    guest.assert_refused(answer, AbiError::QuotaExceeded, text);
    let answer = guest.load_at(MODULE_V0_2, (PTX_AT, (8 << 20) + 1), (NAME_AT, 1));
    let text = "bytes of PTX: 8388609 given, the limit is 8388608";
    guest.assert_refused(answer, AbiError::QuotaExceeded, text);
    assert_all_usable(&mut guest);
}

#[test]
fn a_deadline_is_a_quota_here() {
    let deadline = Some(std::time::Duration::from_millis(50));
    let limits = Limits {
        deadline,
        ..Limits::default()
    };
    let mut guest = Harness::new(&Setup {
        limits,
        ..Setup::default()
    });
    let kernel = load(&mut guest, KIT, "k_forever");
    guest.write_memory(DATA_AT, &[0; 4]);
    let argv = encode(&[Arg::Ptr {
        offset: DATA_AT,
        len: 4,
    }]);
    let answer = launch(&mut guest, kernel, &argv);
    guest.assert_refused(
        answer,
        AbiError::QuotaExceeded,
        "kernel stopped: its deadline has passed",
    );
    let answer = guest.launch_bytes(kernel, Shape::ONE, &argv);
    guest.assert_refused(
        answer,
        AbiError::DeadlineExceeded,
        "kernel stopped: its deadline has passed",
    );
    assert_all_usable(&mut guest);
}

#[test]
fn both_modules_have_one_set_of_kernels_buffers_and_texts() {
    let mut guest = Harness::cpu();
    let kernel = load(&mut guest, KIT, "k_store");
    let buffer = alloc(&mut guest, 64);
    guest.run(
        kernel,
        &[
            Arg::Buffer {
                handle: buffer,
                offset: 0,
            },
            Arg::U32(6),
        ],
    );
    assert_eq!(to_host(&mut guest, DATA_AT, buffer, 4), 0);
    assert_eq!(guest.read_u32(DATA_AT), 6);

    let answer = guest.launch_at(Way::V0_2, 3, Shape::ONE, (ARGV_AT, 0));
    assert_eq!(name(answer), "InvalidKernel");
    let (len, copied) = (
        call(&mut guest, abi::FN_LAST_ERROR_LEN, &[]),
        call(
            &mut guest,
            abi::FN_LAST_ERROR_COPY,
            &[u32_val(DATA_AT), u32_val(512)],
        ),
    );
    assert_eq!(len, copied);
    assert_eq!(guest.last_error(), "no kernel 3 of this instance");
}
