//! Hostile integers: every import is called correctly but for one range or handle. Each mistake has one code and a text that
//! is fit for a guest, and what was correct works afterwards.

use abi::argv::Arg;
use abi::info::DeviceInfo;
use abi::{AbiError, Import, MODULE, MODULE_V0_2};
use host::{InstanceId, KernelEntry, KernelRegistry};
use wasmtime::Val;

use crate::harness::{
    ARGV_AT, DATA_AT, Harness, INFO_AT, KIT, NAME_AT, PTX_AT, Setup, Shape, Way, assert_all_usable,
    encode, name, u32_val,
};

const BUFFER_BYTES: u32 = 64;

/// What a correct call needs: a kernel, a buffer, a kernel of the embedder's.
struct Things {
    kernel: i64,
    buffer: i64,
}

fn guest() -> Harness {
    guest_in(KernelRegistry::default())
}

/// A guest whose registry others may use too.
fn guest_in(registry: KernelRegistry) -> Harness {
    let instance = InstanceId::random().unwrap();
    registry
        .register(KernelEntry::stub(instance, "k_store", 0))
        .unwrap();
    Harness::new(&Setup {
        instance: Some(instance),
        registry,
        ..Setup::default()
    })
}

/// Puts everything in place for correct calls.
fn things(guest: &mut Harness) -> Things {
    let kernel = guest.kernel(KIT, "k_store");
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(BUFFER_BYTES.into())]);
    guest.write_memory(ARGV_AT, &argv());
    Things { kernel, buffer }
}

fn argv() -> Vec<u8> {
    encode(&[
        Arg::Ptr {
            offset: DATA_AT,
            len: 4,
        },
        Arg::U32(1),
    ])
}

/// The arguments of a correct call.
fn correct(import: &Import, things: &Things) -> Vec<Val> {
    let halves = |handle: i64| {
        let bytes = handle.to_le_bytes();
        let half = |at: usize| Val::I32(i32::from_le_bytes(*bytes[at..].first_chunk().unwrap()));
        (half(0), half(4))
    };
    let value = |parameter: &&str| match *parameter {
        "kernel" => Val::I64(things.kernel),
        "buffer" => Val::I64(things.buffer),
        "handle_lo" => halves(things.buffer).0,
        "handle_hi" => halves(things.buffer).1,
        "bytes" | "offset" => Val::I64(0),
        "ptx" => u32_val(PTX_AT),
        "ptx_len" => u32_val(u32::try_from(KIT.len()).unwrap()),
        "entry" | "name" => u32_val(NAME_AT),
        "entry_len" => u32_val(7),
        "len" if matches!(import.name, abi::FN_FIND_KERNEL | abi::FN_SYMBOL) => u32_val(7),
        "len" => u32_val(BUFFER_BYTES),
        "dst" | "src" | "ptr" => u32_val(INFO_AT),
        "argv" => u32_val(ARGV_AT),
        "argv_len" => u32_val(u32::try_from(argv().len()).unwrap()),
        "size_lo" => u32_val(1),
        "size_hi" | "shared_bytes" | "side" => u32_val(0),
        axis if axis.starts_with("grid") || axis.starts_with("block") => u32_val(1),
        other => panic!("no value for `{other}`"),
    };
    let mut args: Vec<_> = import.param_names.iter().map(value).collect();
    if (import.module, import.name) == (MODULE, abi::FN_ALLOC) {
        args[0] = Val::I64(1);
    }
    args
}

/// Where in an import's parameters each range is: its start and its length.
fn ranges(import: &Import) -> Vec<(usize, usize)> {
    let place = |name: &str| import.param_names.iter().position(|param| *param == name);
    let pairs = [
        ("ptx", "ptx_len"),
        ("entry", "entry_len"),
        ("argv", "argv_len"),
        ("name", "len"),
        ("dst", "len"),
        ("src", "len"),
        ("ptr", "len"),
    ];
    let both = |(at, len)| Some((place(at)?, place(len)?));
    pairs.into_iter().filter_map(both).collect()
}

/// What a range past the end is answered with, which depends on caps that are looked at first.
fn code_past_end(import: &Import, len_name: &str, len: u32) -> AbiError {
    let copies = [
        abi::FN_WRITE,
        abi::FN_READ,
        abi::FN_MEMCPY_D2H,
        abi::FN_MEMCPY_H2D,
    ];
    let is_name =
        matches!(import.name, abi::FN_FIND_KERNEL | abi::FN_SYMBOL) || len_name == "entry_len";
    match len_name {
        "ptx_len" if len as usize > abi::MAX_PTX_BYTES => AbiError::QuotaExceeded,
        _ if is_name && len as usize > abi::MAX_ENTRY_NAME_BYTES => AbiError::QuotaExceeded,
        _ if copies.contains(&import.name) && len > BUFFER_BYTES => AbiError::InvalidArgs,
        _ => AbiError::InvalidPointer,
    }
}

#[test]
fn a_correct_call_of_every_import_succeeds() {
    let mut guest = guest();
    for import in abi::IMPORTS {
        let things = things(&mut guest);
        let answer = guest.call_in(import.module, import.name, &correct(import, &things));
        if import.name == abi::FN_SYMBOL {
            assert_eq!(name(answer), "UnsupportedPtx");
        } else {
            assert!(answer >= 0, "{}: {}", import.name, guest.last_text());
        }
    }
}

#[test]
fn a_range_past_the_end_of_memory_is_refused_by_every_import() {
    let mut guest = guest();
    let things = things(&mut guest);
    let end = guest.memory_bytes();
    let past_end = [
        (end, 1),
        (end - 1, 2),
        (end + 1, 0),
        (0, end + 1),
        (0, u32::MAX),
        (1, u32::MAX),
        (1 << 31, 1),
        (1 << 31, 1 << 31),
        (u32::MAX, 1),
        (u32::MAX, u32::MAX),
    ];
    let mut ranges_seen = 0;
    for import in abi::IMPORTS {
        for (at_place, len_place) in ranges(import) {
            ranges_seen += 1;
            for (at, len) in past_end {
                let mut args = correct(import, &things);
                args[at_place] = u32_val(at);
                args[len_place] = u32_val(len);
                let answer = guest.call_in(import.module, import.name, &args);
                let code = code_past_end(import, import.param_names[len_place], len);
                let call = format!("{}({at}, {len}): {}", import.name, guest.last_text());
                assert_eq!(name(answer), code.name(), "{call}");
                let says_length = guest.last_text().contains(&len.to_string());
                assert!(says_length, "{call}");
            }
        }
    }
    assert_eq!(ranges_seen, 19, "every range of both modules");
    assert_all_usable(&mut guest);
}

#[test]
fn handles_that_are_not_this_instances_are_refused_by_every_import() {
    let registry = KernelRegistry::default();
    let mut other = guest_in(registry.clone());
    let foreign = things(&mut other);
    let mut guest = guest_in(registry);
    let stale = things(&mut guest);
    assert_eq!(guest.call(abi::FN_UNLOAD, &[Val::I64(stale.kernel)]), 0);
    assert_eq!(guest.call(abi::FN_FREE, &[Val::I64(stale.buffer)]), 0);
    let mine = things(&mut guest);
    let numbers = [
        0,
        1,
        -1,
        -3,
        i64::MIN,
        i64::MAX,
        1 << 32,
        1 << 62,
        i64::from(DATA_AT),
    ];
    for import in abi::IMPORTS {
        let kernels = numbers
            .into_iter()
            .chain([stale.kernel, foreign.kernel, mine.buffer]);
        let buffers = numbers
            .into_iter()
            .chain([stale.buffer, foreign.buffer, mine.kernel]);
        let calls: Vec<(Things, AbiError, String)> = if import.param_names.contains(&"kernel") {
            let wrong = |kernel| {
                let text = format!("no kernel {kernel} of this instance");
                (Things { kernel, ..mine }, AbiError::InvalidKernel, text)
            };
            kernels.map(wrong).collect()
        } else {
            let wrong = |buffer| {
                let text = format!("no buffer {buffer} of this instance");
                (Things { buffer, ..mine }, AbiError::InvalidHandle, text)
            };
            buffers.map(wrong).collect()
        };
        let takes_handle = ["kernel", "buffer", "handle_lo"];
        if !import
            .param_names
            .iter()
            .any(|param| takes_handle.contains(param))
        {
            continue;
        }
        for (things, code, text) in calls {
            let answer = guest.call_in(import.module, import.name, &correct(import, &things));
            guest.knows(&[things.buffer.cast_unsigned()]);
            guest.assert_refused(answer, code, &text);
        }
    }
    other.assert_usable();
    let (_, argv_len) = other.put(ARGV_AT, &argv());
    assert_eq!(
        other.launch_at(Way::Plain, foreign.kernel, Shape::ONE, (ARGV_AT, argv_len)),
        0
    );
    assert_all_usable(&mut guest);
}

#[test]
fn a_range_of_no_bytes_is_in_order_up_to_the_end() {
    let mut guest = guest();
    let things = things(&mut guest);
    let end = guest.memory_bytes();
    let empty_entry = "no entry ``";
    for import in abi::IMPORTS {
        for (at_place, len_place) in ranges(import) {
            let mut args = correct(import, &things);
            args[at_place] = u32_val(end);
            args[len_place] = u32_val(0);
            let answer = guest.call_in(import.module, import.name, &args);
            let text = guest.last_text();
            let (code, says) = match (import.name, import.param_names[len_place]) {
                (_, "ptx_len") => (AbiError::MalformedPtx, "no PTX text"),
                (_, "entry_len") => (AbiError::MalformedPtx, empty_entry),
                (abi::FN_FIND_KERNEL, _) => (AbiError::InvalidKernel, "no registered kernel ``"),
                (abi::FN_SYMBOL, _) => (AbiError::UnsupportedPtx, "the variables of a kernel"),
                (_, "argv_len") => (AbiError::InvalidArgs, "declares 2 arguments, 0 given"),
                (import, _) => {
                    assert!(answer >= 0, "{import}: {text}");
                    continue;
                }
            };
            assert_eq!(name(answer), code.name(), "{}: {text}", import.name);
            assert!(text.contains(says), "{}: {text}", import.name);
        }
    }
    assert_all_usable(&mut guest);
}

#[test]
fn argv_lies_at_any_address() {
    let mut guest = guest();
    let things = things(&mut guest);
    let end = guest.memory_bytes();
    let len = u32::try_from(argv().len()).unwrap();
    for at in [1, 3, 7, ARGV_AT + 5, end - len] {
        guest.write_memory(DATA_AT, &[0; 4]);
        guest.write_memory(at, &argv());
        for way in Way::ALL {
            assert_eq!(
                guest.launch_at(way, things.kernel, Shape::ONE, (at, len)),
                0,
                "{}",
                guest.last_text()
            );
        }
        assert_eq!(guest.read_u32(DATA_AT), 1, "argv at {at}");
    }
}

#[test]
fn a_name_lies_at_any_address() {
    let mut guest = guest();
    let end = guest.memory_bytes();
    let text = ".version 7.8 .target sm_80 .address_size 64 .visible .entry k() { ret; }";
    let ptx = guest.put(PTX_AT + 1, text.as_bytes());
    guest.write_memory(end - 1, b"k");
    let kernel = guest.load_at(MODULE, ptx, (end - 1, 1));
    assert_eq!(guest.launch(kernel, Shape::ONE, &[]), 0);
}

#[test]
fn ranges_may_overlap() {
    let mut guest = guest();
    // The name is a part of the text.
    let ptx = guest.put(PTX_AT, KIT.as_bytes());
    let at = u32::try_from(KIT.find("k_store(").unwrap()).unwrap();
    let kernel = guest.load_at(MODULE, ptx, (PTX_AT + at, 7));
    assert!(kernel > 0, "{}", guest.last_text());
    // The kernel overwrites its own argv, and other arguments point into it.
    let argv = encode(&[
        Arg::Ptr {
            offset: ARGV_AT + 4,
            len: 14,
        },
        Arg::U32(0x0202_0202),
    ]);
    assert_eq!(guest.launch_bytes(kernel, Shape::ONE, &argv), 0);
    assert_eq!(guest.read_u32(ARGV_AT + 4), 0x0202_0202);
    // A struct is written over the memory that a text was just read from.
    let whole = [u32_val(0), u32_val(guest.memory_bytes())];
    assert_eq!(
        usize::try_from(guest.call(abi::FN_DEVICE_INFO, &whole)),
        Ok(DeviceInfo::SIZE)
    );
    assert_all_usable(&mut guest);
}

#[test]
fn argv_is_capped_by_bytes_and_by_records() {
    let mut guest = guest();
    let kernel = guest.kernel(KIT, "k_empty");
    let records = |count: usize, bytes: usize| {
        let each = vec![0; bytes / count - 3];
        let last = vec![0; bytes - (count - 1) * (each.len() + 3) - 3];
        let mut args = vec![Arg::Bytes(&each); count - 1];
        args.push(Arg::Bytes(&last));
        args.iter()
            .flat_map(|arg| {
                let Arg::Bytes(data) = arg else {
                    unreachable!("only bytes")
                };
                let len = u16::try_from(data.len()).unwrap();
                [&[0x09], &len.to_le_bytes()[..], data].concat()
            })
            .collect::<Vec<u8>>()
    };
    let given = "kernel `k_empty` declares 0 arguments";
    let cases = [
        (
            128,
            4096,
            AbiError::InvalidArgs,
            format!("{given}, 128 given"),
        ),
        (1, 4096, AbiError::InvalidArgs, format!("{given}, 1 given")),
        (
            128,
            4097,
            AbiError::KernelArgsUnsupported,
            "argv is 4097 bytes, the most is 4096".into(),
        ),
        (
            1,
            4097,
            AbiError::KernelArgsUnsupported,
            "argv is 4097 bytes, the most is 4096".into(),
        ),
        (
            129,
            4096,
            AbiError::KernelArgsUnsupported,
            "argv goes on after 128 records, which is the most".into(),
        ),
    ];
    for (count, bytes, code, text) in cases {
        let argv = records(count, bytes);
        assert_eq!(argv.len(), bytes);
        for way in [Way::Plain, Way::Cooperative] {
            let answer = guest.launch_as(way, kernel, Shape::ONE, &argv);
            guest.assert_refused(answer, code, &text);
        }
    }
    let all = (0, guest.memory_bytes());
    let answer = guest.launch_at(Way::Plain, kernel, Shape::ONE, all);
    guest.assert_refused(
        answer,
        AbiError::KernelArgsUnsupported,
        "argv is 4097 bytes, the most is 4096",
    );
    assert_all_usable(&mut guest);
}

#[test]
fn a_record_cut_short_says_where() {
    let mut guest = guest();
    let kernel = guest.kernel(KIT, "k_empty");
    let whole = encode(&[
        Arg::U32(1),
        Arg::F64(1.0),
        Arg::Ptr { offset: 0, len: 0 },
        Arg::Buffer {
            handle: 1,
            offset: 0,
        },
        Arg::Bytes(&[1, 2, 3]),
    ]);
    let starts = [0, 5, 14, 23, 40];
    for len in 1..whole.len() {
        if starts.contains(&len) {
            continue;
        }
        let answer = guest.launch_bytes(kernel, Shape::ONE, &whole[..len]);
        let start = starts.iter().rfind(|start| **start < len).unwrap();
        assert_eq!(name(answer), "InvalidArgs", "{len} bytes");
        let begins = format!("the argv record at byte {start} needs ");
        assert!(
            guest.last_text().starts_with(&begins),
            "{len} bytes: {}",
            guest.last_text()
        );
    }
    assert_all_usable(&mut guest);
}

#[test]
fn in_four_gibibytes_of_memory_the_last_byte_is_in_reach_and_the_next_is_not() {
    let mut guest = Harness::new(&Setup {
        pages: 65_536,
        ..Setup::default()
    });
    let prefetch = |guest: &mut Harness, at, len| {
        guest.call(abi::FN_PREFETCH, &[u32_val(at), u32_val(len), Val::I32(1)])
    };
    for (at, len) in [
        (0, u32::MAX),
        (1, u32::MAX),
        (u32::MAX, 1),
        (u32::MAX, 0),
        (1 << 31, 1 << 31),
    ] {
        assert_eq!(prefetch(&mut guest, at, len), 0, "{at} + {len}");
    }
    for (at, len) in [
        (u32::MAX, 2),
        (2, u32::MAX),
        (u32::MAX, u32::MAX),
        (1 << 31, (1 << 31) + 1),
    ] {
        assert_eq!(
            name(prefetch(&mut guest, at, len)),
            "InvalidPointer",
            "{at} + {len}"
        );
    }
    let kernel = guest.kernel(KIT, "k_store");
    let last = u32::MAX - 3;
    guest.run(
        kernel,
        &[
            Arg::Ptr {
                offset: last,
                len: 4,
            },
            Arg::U32(0x1234_5678),
        ],
    );
    assert_eq!(guest.read_u32(last), 0x1234_5678);
    let answer = guest.launch(
        kernel,
        Shape::ONE,
        &[
            Arg::Ptr {
                offset: last,
                len: 5,
            },
            Arg::U32(0),
        ],
    );
    let text =
        "argument 0 is 5 bytes from 4294967292, which ends past the 4294967296 bytes of memory";
    guest.assert_refused(answer, AbiError::InvalidPointer, text);
    assert_all_usable(&mut guest);
}

#[test]
fn the_earlier_module_answers_hostile_ranges_with_the_same_codes() {
    let mut guest = guest();
    let end = guest.memory_bytes();
    for (import, args) in [
        (abi::FN_LAST_ERROR_COPY, vec![u32_val(end), u32_val(1)]),
        (
            abi::FN_LOAD_PTX,
            vec![u32_val(1 << 31), u32_val(1), u32_val(0), u32_val(1)],
        ),
    ] {
        let earlier = guest.call_in(MODULE_V0_2, import, &args);
        let current = guest.call_in(MODULE, import, &args);
        assert_eq!(
            (name(earlier).as_str(), earlier),
            ("InvalidPointer", current)
        );
    }
}
