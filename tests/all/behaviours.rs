//! What guests of the earlier system rely on, each shown through a real launch call.

use std::collections::HashSet;

use abi::AbiError;
use abi::argv::Arg;
use host::kernel_args::{LoweredArg, build_kernel_param_storage, encode_argv, parse_argv};
use host::{InstanceId, KernelEntry, KernelRegistry};

use crate::harness::{
    Backing, DATA_AT, Harness, LinearMemory, PAGE_BYTES, Setup, Shape, VECADD, Way,
    assert_text_is_clean, encode,
};

/// An instance with a stub kernel, on a device or none.
fn with_stub(setup: Setup) -> (Harness, i64) {
    let instance = InstanceId::random().unwrap();
    let registry = KernelRegistry::default();
    let id = registry
        .register(KernelEntry::stub(instance, "stub", 10))
        .unwrap();
    let setup = Setup {
        instance: Some(instance),
        registry,
        ..setup
    };
    (Harness::new(&setup), id.handle())
}

fn scalars() -> [Arg<'static>; 6] {
    [
        Arg::I32(-7),
        Arg::I64(i64::MIN),
        Arg::F32(1.5),
        Arg::F64(-0.1),
        Arg::U32(u32::MAX),
        Arg::U64(u64::MAX),
    ]
}

#[test]
fn scalars_of_six_kinds_arrive_as_they_were_sent() {
    for setup in [Setup::default(), Setup::no_device()] {
        for way in Way::ALL {
            let (mut guest, stub) = with_stub(setup.clone());
            guest.launch_as(way, stub, Shape::ONE, &encode(&scalars()));
            let expected = scalars().map(LoweredArg::from);
            assert_eq!(guest.cuda().last_lowered_args(), expected);
        }
    }
}

#[test]
fn pointers_are_recorded_as_offset_and_length() {
    let (mut guest, stub) = with_stub(Setup::default());
    let args = [
        Arg::Ptr {
            offset: 1024,
            len: 256,
        },
        Arg::I32(3),
        Arg::Ptr { offset: 0, len: 0 },
        Arg::F64(2.0),
        Arg::Ptr {
            offset: 16 * PAGE_BYTES,
            len: 0,
        },
    ];
    guest.launch(stub, Shape::ONE, &args);
    let recorded = guest.cuda().last_lowered_args();
    let expected = [
        LoweredArg::ptr_for_encoding(1024, 256),
        LoweredArg::I32(3),
        LoweredArg::ptr_for_encoding(0, 0),
        LoweredArg::F64(2.0),
        LoweredArg::ptr_for_encoding(16 * PAGE_BYTES, 0),
    ];
    assert_eq!(recorded, expected);
    assert_text_is_clean(&format!("{recorded:?}"), &HashSet::new());
}

#[test]
fn a_window_past_the_end_of_memory_is_an_invalid_pointer_and_records_nothing() {
    for way in Way::ALL {
        let (mut guest, stub) = with_stub(Setup {
            pages: 4,
            ..Setup::default()
        });
        let end = 4 * PAGE_BYTES;
        guest.launch_as(
            way,
            stub,
            Shape::ONE,
            &encode(&[Arg::Ptr {
                offset: 0,
                len: end,
            }]),
        );
        assert_eq!(guest.cuda().last_lowered_args().len(), 1);

        let past = [
            Arg::U32(1),
            Arg::Ptr {
                offset: end - 255,
                len: 256,
            },
        ];
        let answer = guest.launch_as(way, stub, Shape::ONE, &encode(&past));
        let text = format!(
            "argument 1 is 256 bytes from {}, which ends past the {end} bytes of memory",
            end - 255
        );
        guest.assert_refused(answer, AbiError::InvalidPointer, &text);
        assert_eq!(guest.cuda().last_lowered_args(), []);
    }
}

#[test]
fn without_a_device_arguments_are_recorded_and_the_launch_is_not_available() {
    let (mut guest, stub) = with_stub(Setup::no_device());
    let answer = guest.launch(stub, Shape::ONE, &[Arg::F32(0.5)]);
    guest.assert_refused(
        answer,
        AbiError::NotAvailable,
        "no device: this instance was given none",
    );
    assert_eq!(guest.cuda().last_lowered_args(), [LoweredArg::F32(0.5)]);
}

#[test]
fn a_stub_kernel_records_its_arguments_and_is_invalid() {
    let (mut guest, stub) = with_stub(Setup::default());
    let answer = guest.launch(stub, Shape::ONE, &[Arg::F32(0.5)]);
    guest.assert_refused(
        answer,
        AbiError::InvalidKernel,
        "kernel `stub` is a stub without code",
    );
    assert_eq!(guest.cuda().last_lowered_args(), [LoweredArg::F32(0.5)]);
}

#[test]
fn vector_add_works_on_regions_of_linear_memory() {
    const N: u32 = 64;
    let bytes = N * 4;
    for way in Way::ALL {
        let mut guest = Harness::cpu();
        let floats = |value: fn(u32) -> f32| -> Vec<u8> {
            (0..N).flat_map(|i| value(i).to_le_bytes()).collect()
        };
        let [a, b, c] = [0, 1, 2].map(|region| DATA_AT + region * bytes);
        guest.write_memory(a, &floats(|i| i as f32));
        guest.write_memory(b, &floats(|i| 100.0 + i as f32));
        let kernel = guest.kernel(VECADD, "vecadd");
        let [a, b, c] = [a, b, c].map(|offset| Arg::Ptr { offset, len: bytes });
        let answer = guest.launch_as(
            way,
            kernel,
            Shape::line(2, 32),
            &encode(&[a, b, c, Arg::I32(64)]),
        );
        assert_eq!(answer, 0, "{}", guest.last_text());
        let expected = floats(|i| 100.0 + 2.0 * i as f32);
        assert_eq!(
            guest.read_memory(DATA_AT + 2 * bytes, bytes as usize),
            expected
        );
    }
}

#[test]
fn sixteen_scalars_share_one_buffer_with_every_slot_inside() {
    let args: Vec<_> = scalars()
        .into_iter()
        .cycle()
        .take(16)
        .map(LoweredArg::from)
        .collect();
    let bytes = encode_argv(&args).unwrap();
    assert_eq!(parse_argv(&bytes, 0), Ok(args.clone()));
    let storage = build_kernel_param_storage(&args);
    assert_eq!((storage.len(), storage.slot_ptrs().len()), (16, 16));
    let backing = storage.backing().as_ptr_range();
    for (pointer, arg) in storage.slot_ptrs().zip(&args) {
        let size = match arg {
            LoweredArg::I32(_) | LoweredArg::F32(_) | LoweredArg::U32(_) => 4,
            _ => 8,
        };
        assert!(backing.start <= pointer && pointer.addr() + size <= backing.end.addr());
    }
}

#[test]
fn an_engine_of_plain_configuration_links_and_instantiates() {
    // This guest imports everything, and `LinearMemory::PlainHost` is `Config::new()`.
    let mut guest = Harness::new(&Setup {
        memory: LinearMemory::PlainHost,
        ..Setup::default()
    });
    assert_eq!(guest.call(abi::FN_ABI_VERSION, &[]), abi::VERSION.into());
    assert_eq!(guest.call(abi::FN_SYNC, &[]), 0);
}

#[test]
fn memory_that_is_not_the_devices_is_refused_by_argument() {
    let mut guest = Harness::new(&Setup {
        memory: LinearMemory::PlainHost,
        ..Setup::default()
    });
    let kernel = guest.kernel(VECADD, "vecadd");
    let pointer = Arg::Ptr {
        offset: DATA_AT,
        len: 4,
    };
    let answer = guest.launch(
        kernel,
        Shape::ONE,
        &[pointer, pointer, pointer, Arg::I32(1)],
    );
    let text = "argument 0: the guest's memory is plain host memory that the device cannot address (see `engine_config`)";
    guest.assert_refused(answer, AbiError::LaunchFailed, text);
}

#[test]
fn without_a_device_an_engine_of_plain_configuration_serves_as_well() {
    let plain = Setup {
        memory: LinearMemory::PlainHost,
        backing: Backing::None,
        ..Setup::default()
    };
    let (mut guest, stub) = with_stub(plain);
    let answer = guest.launch(stub, Shape::ONE, &[Arg::Ptr { offset: 0, len: 64 }]);
    guest.assert_refused(
        answer,
        AbiError::NotAvailable,
        "no device: this instance was given none",
    );
    assert_eq!(
        guest.cuda().last_lowered_args(),
        [LoweredArg::ptr_for_encoding(0, 64)]
    );
}
