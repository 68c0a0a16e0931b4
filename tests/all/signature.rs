//! Arguments against what a kernel declares: every way to launch refuses a mismatch with one code and one text, before the
//! device hears of it.

use std::sync::Arc;

use abi::AbiError;
use abi::argv::Arg;

use crate::fake_device::{FakeDevice, Runs};
use crate::harness::{DATA_AT, Harness, KIT, Setup, Shape, Way, encode};

const PTR: Arg<'_> = Arg::Ptr {
    offset: DATA_AT,
    len: 64,
};

/// Parameters of the kinds that `kit.ptx` has not.
const MORE: &str = ".version 7.8
.target sm_80
.address_size 64
.visible .entry k_bits(.param .b8 a, .param .b16 b, .param .b32 c, .param .b64 d) { ret; }
.visible .entry k_signed(.param .s32 a, .param .s64 b) { ret; }
.visible .entry k_halves(.param .f16 a, .param .u16 b) { ret; }
.visible .entry k_one(.param .u8 a) { ret; }
.visible .entry k_vector(.param .u32 a, .param .align 16 .b8 v[16], .param .u32 b) { ret; }
.visible .entry k_array(.param .align 4 .b8 a[12], .param .u64 b) { ret; }
";

/// A guest of a device that runs nothing, and the device's count of launches.
fn guest() -> (Harness, Arc<Runs>) {
    let (device, runs) = FakeDevice::open();
    (Harness::new(&Setup::on(device)), runs)
}

fn text_of(entry: &str) -> &'static str {
    if KIT.contains(&format!(".entry {entry}(")) {
        KIT
    } else {
        MORE
    }
}

/// Launches `entry` in every way; each must be refused with this text.
fn assert_mismatch(guest: &mut Harness, entry: &str, args: &[Arg<'_>], ways: &[Way], text: &str) {
    let kernel = guest.kernel(text_of(entry), entry);
    for &way in ways {
        let answer = guest.launch_as(way, kernel, Shape::ONE, &encode(args));
        guest.assert_refused(answer, AbiError::InvalidArgs, text);
    }
}

#[test]
fn too_few_and_too_many_arguments_are_refused_in_every_way() {
    let (mut guest, runs) = guest();
    let tables: &[(&str, &[Arg<'_>], &str)] = &[
        (
            "k_store",
            &[],
            "kernel `k_store` declares 2 arguments, 0 given",
        ),
        (
            "k_store",
            &[PTR],
            "kernel `k_store` declares 2 arguments, 1 given",
        ),
        (
            "k_store",
            &[PTR, Arg::U32(1), Arg::U32(2)],
            "kernel `k_store` declares 2 arguments, 3 given",
        ),
        (
            "k_empty",
            &[Arg::U32(1)],
            "kernel `k_empty` declares 0 arguments, 1 given",
        ),
        (
            "k_empty",
            &[Arg::U32(1); 128],
            "kernel `k_empty` declares 0 arguments, 128 given",
        ),
        (
            "k_copy",
            &[PTR, PTR],
            "kernel `k_copy` declares 3 arguments, 2 given",
        ),
        (
            "k_echo",
            &[PTR; 6],
            "kernel `k_echo` declares 7 arguments, 6 given",
        ),
    ];
    for (entry, args, text) in tables {
        assert_mismatch(&mut guest, entry, args, &Way::ALL, text);
    }
    assert_eq!(runs.launches(), 0);
}

#[test]
fn a_value_of_another_size_or_class_is_refused_in_every_way() {
    let (mut guest, runs) = guest();
    // k_store takes (.u64, .u32), k_echo (.u64, .u8, .u16, .u32, .u64, .f32, .f64).
    let tables: &[(&str, &[Arg<'_>], &str)] = &[
        (
            "k_store",
            &[Arg::U32(0), Arg::U32(1)],
            "argument 0 is u32, kernel `k_store` declares .u64",
        ),
        (
            "k_store",
            &[Arg::I32(0), Arg::U32(1)],
            "argument 0 is i32, kernel `k_store` declares .u64",
        ),
        (
            "k_store",
            &[Arg::F64(0.0), Arg::U32(1)],
            "argument 0 is f64, kernel `k_store` declares .u64",
        ),
        (
            "k_store",
            &[PTR, Arg::F64(0.0)],
            "argument 1 is f64, kernel `k_store` declares .u32",
        ),
        (
            "k_store",
            &[PTR, Arg::F32(0.0)],
            "argument 1 is f32, kernel `k_store` declares .u32",
        ),
        (
            "k_store",
            &[PTR, Arg::U64(0)],
            "argument 1 is u64, kernel `k_store` declares .u32",
        ),
        (
            "k_store",
            &[PTR, Arg::I64(0)],
            "argument 1 is i64, kernel `k_store` declares .u32",
        ),
        (
            "k_store",
            &[PTR, PTR],
            "argument 1 is a pointer, kernel `k_store` declares .u32",
        ),
        (
            "k_spin",
            &[Arg::I32(1)],
            "argument 0 is i32, kernel `k_spin` declares .u64",
        ),
        (
            "k_echo",
            &[
                PTR,
                Arg::U32(1),
                Arg::U32(1),
                Arg::U32(1),
                Arg::U64(1),
                Arg::F32(1.0),
                Arg::F64(1.0),
            ],
            "argument 1 is u32, kernel `k_echo` declares .u8",
        ),
        (
            "k_tail",
            &[PTR, Arg::I32(1)],
            "argument 1 is i32, kernel `k_tail` declares .u16",
        ),
        (
            "k_signed",
            &[Arg::F32(1.0), Arg::I64(1)],
            "argument 0 is f32, kernel `k_signed` declares .s32",
        ),
        (
            "k_signed",
            &[Arg::I32(1), Arg::I32(1)],
            "argument 1 is i32, kernel `k_signed` declares .s64",
        ),
        (
            "k_one",
            &[Arg::I32(1)],
            "argument 0 is i32, kernel `k_one` declares .u8",
        ),
    ];
    for (entry, args, text) in tables {
        assert_mismatch(&mut guest, entry, args, &Way::ALL, text);
    }
    assert_eq!(runs.launches(), 0);
}

#[test]
fn an_aggregate_takes_bytes_of_its_size_only() {
    const CURRENT: [Way; 2] = [Way::Plain, Way::Cooperative];
    let (mut guest, runs) = guest();
    let one = Arg::Bytes(&[1]);
    let tables: &[(&str, &[Arg<'_>], &str)] = &[
        (
            "k_struct",
            &[PTR, Arg::U32(1), Arg::Bytes(&[0; 31]), one, one],
            "argument 2 is 31 bytes, kernel `k_struct` declares .b8[32]",
        ),
        (
            "k_struct",
            &[PTR, Arg::U32(1), Arg::Bytes(&[0; 33]), one, one],
            "argument 2 is 33 bytes, kernel `k_struct` declares .b8[32]",
        ),
        (
            "k_struct",
            &[PTR, Arg::U32(1), PTR, one, one],
            "argument 2 is a pointer, kernel `k_struct` declares .b8[32]",
        ),
        (
            "k_struct",
            &[PTR, Arg::U32(1), Arg::Bytes(&[0; 32]), Arg::Bytes(&[]), one],
            "argument 3 is 0 bytes, kernel `k_struct` declares .u8",
        ),
        (
            "k_vector",
            &[Arg::U32(1), Arg::F64(0.0), Arg::U32(1)],
            "argument 1 is f64, kernel `k_vector` declares .b8[16]",
        ),
        (
            "k_array",
            &[Arg::U64(0), Arg::U64(0)],
            "argument 0 is u64, kernel `k_array` declares .b8[12]",
        ),
        (
            "k_array",
            &[Arg::Bytes(&[0; 12]), Arg::Bytes(&[0; 9])],
            "argument 1 is 9 bytes, kernel `k_array` declares .u64",
        ),
        (
            "k_ptrattr",
            &[Arg::Bytes(&[0; 8]), PTR],
            "argument 0 is 8 bytes, kernel `k_ptrattr` declares .u64",
        ),
    ];
    for (entry, args, text) in tables {
        assert_mismatch(&mut guest, entry, args, &CURRENT, text);
    }
    assert_eq!(runs.launches(), 0);
}

#[test]
fn an_integer_stands_for_a_marked_pointer_in_the_earlier_module_only() {
    let (mut guest, runs) = guest();
    for integer in [Arg::U64(64), Arg::I64(64)] {
        let (args, given) = (
            [integer, PTR],
            if integer == Arg::U64(64) {
                "u64"
            } else {
                "i64"
            },
        );
        let text = format!("argument 0 is {given}, kernel `k_ptrattr` declares .u64");
        assert_mismatch(
            &mut guest,
            "k_ptrattr",
            &args,
            &[Way::Plain, Way::Cooperative],
            &text,
        );
        let kernel = guest.kernel(KIT, "k_ptrattr");
        assert_eq!(
            guest.launch_as(Way::V0_2, kernel, Shape::ONE, &encode(&args)),
            0
        );
    }
    assert_eq!(runs.launches(), 2);
    for narrow in [Arg::U32(64), Arg::F64(64.0)] {
        let given = if narrow == Arg::U32(64) { "u32" } else { "f64" };
        let text = format!("argument 1 is {given}, kernel `k_ptrattr` declares .u64");
        assert_mismatch(&mut guest, "k_ptrattr", &[PTR, narrow], &Way::ALL, &text);
    }
    assert_eq!(runs.launches(), 2);
}

#[test]
fn what_matches_is_launched_in_every_way() {
    let (mut guest, runs) = guest();
    let tables: &[(&str, &[Arg<'_>])] = &[
        ("k_empty", &[]),
        ("k_store", &[PTR, Arg::U32(1)]),
        ("k_store", &[PTR, Arg::I32(1)]),
        ("k_store", &[Arg::U64(0), Arg::U32(1)]),
        ("k_store", &[Arg::I64(0), Arg::U32(1)]),
        ("k_ptrattr", &[PTR, PTR]),
        ("k_signed", &[Arg::U32(1), Arg::U64(1)]),
        ("k_signed", &[Arg::I32(1), PTR]),
    ];
    for (entry, args) in tables {
        let kernel = guest.kernel(text_of(entry), entry);
        for way in Way::ALL {
            let answer = guest.launch_as(way, kernel, Shape::ONE, &encode(args));
            assert_eq!(answer, 0, "{entry}: {}", guest.last_text());
        }
    }
    assert_eq!(runs.launches(), tables.len() * Way::ALL.len());
}

#[test]
fn bytes_stand_for_any_parameter_of_their_size() {
    let (mut guest, runs) = guest();
    let tables: &[(&str, &[Arg<'_>])] = &[
        ("k_one", &[Arg::Bytes(&[1])]),
        ("k_halves", &[Arg::Bytes(&[0, 0x3c]), Arg::Bytes(&[1, 0])]),
        (
            "k_bits",
            &[
                Arg::Bytes(&[1]),
                Arg::Bytes(&[1; 2]),
                Arg::F32(1.0),
                Arg::F64(1.0),
            ],
        ),
        (
            "k_bits",
            &[Arg::Bytes(&[1]), Arg::Bytes(&[1; 2]), Arg::I32(1), PTR],
        ),
        ("k_signed", &[Arg::Bytes(&[1; 4]), Arg::Bytes(&[1; 8])]),
        ("k_array", &[Arg::Bytes(&[1; 12]), Arg::U64(1)]),
        (
            "k_vector",
            &[Arg::U32(1), Arg::Bytes(&[1; 16]), Arg::U32(1)],
        ),
        (
            "k_struct",
            &[
                PTR,
                Arg::U32(1),
                Arg::Bytes(&[1; 32]),
                Arg::Bytes(&[1]),
                Arg::Bytes(&[1]),
            ],
        ),
    ];
    for (entry, args) in tables {
        let kernel = guest.kernel(text_of(entry), entry);
        let answer = guest.launch(kernel, Shape::ONE, args);
        assert_eq!(answer, 0, "{entry}: {}", guest.last_text());
    }
    assert_eq!(runs.launches(), tables.len());
}
