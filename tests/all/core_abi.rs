//! Module `wasi_cuda` as a guest sees it: what links, what is answered about the device, and what is left with the capability
//! off or without a device. Kernels and buffers have files of their own.

use std::collections::HashSet;

use abi::argv::Arg;
use abi::info::{self, DeviceInfo, DeviceKind, TrapInfo, TrapKind};
use abi::{AbiError, Import, ValType};
use host::{Isolation, KernelEntry};
use wasmtime::{Module, Store, Val};

use crate::harness::{
    ARGV_AT, Capability, DATA_AT, Data, Harness, INFO_AT, KIT, LinearMemory, Setup, Shape, Way,
    assert_all_usable, block_on, cpu, encode, linker, name, u32_val,
};

const FAULTS: &str = include_str!("../../fixtures/kernels/faults.ptx");

/// The line of a text, from 1, on which `part` first appears after `after`.
fn line_of(text: &str, after: &str, part: &str) -> u32 {
    let start = text.find(after).unwrap();
    let at = start + text[start..].find(part).unwrap();
    u32::try_from(text[..at].lines().count()).unwrap()
}

/// An import's arguments, all the same number.
fn same(import: &Import, number: i64) -> Vec<Val> {
    let value = |ty: &ValType| match ty {
        ValType::I32 => Val::I32(i32::try_from(number).unwrap()),
        ValType::I64 => Val::I64(number),
    };
    import.params.iter().map(value).collect()
}

#[test]
fn the_linker_has_the_imports_of_the_table_and_no_other() {
    let setup = Setup::default();
    let engine = setup.engine();
    let mut store = Store::new(
        &engine,
        Data {
            cuda: setup.context(),
        },
    );
    let linker = linker(&engine);
    let found: Vec<_> = linker
        .iter(&mut store)
        .map(|(module, name, item)| (module.to_owned(), name.to_owned(), item))
        .collect();
    let names: HashSet<_> = found
        .iter()
        .map(|(module, name, _)| (module.as_str(), name.as_str()))
        .collect();
    let table: HashSet<_> = abi::IMPORTS
        .iter()
        .map(|import| (import.module, import.name))
        .collect();
    assert_eq!(names, table);
    for import in abi::IMPORTS {
        let (_, _, item) = found
            .iter()
            .find(|(m, n, _)| (m.as_str(), n.as_str()) == (import.module, import.name))
            .unwrap();
        let ty = item.clone().into_func().unwrap().ty(&store);
        let params: Vec<_> = ty.params().map(|ty| ty.to_string()).collect();
        let results: Vec<_> = ty.results().map(|ty| ty.to_string()).collect();
        let wanted: Vec<_> = import.params.iter().map(|ty| ty.name()).collect();
        assert_eq!(
            (params, results),
            (
                wanted.iter().map(|n| (*n).to_owned()).collect(),
                vec![import.result.name().to_owned()]
            ),
            "{}",
            import.name
        );
    }
}

#[test]
fn an_import_of_another_type_or_name_does_not_link() {
    let setup = Setup::default();
    let engine = setup.engine();
    let linker = linker(&engine);
    let absent = [
        (abi::MODULE, "wasi_cuda_last_error_ptr", "(result i32)"),
        (abi::MODULE_V0_2, "wasi_cuda_last_error_ptr", "(result i32)"),
        (abi::MODULE_V0_2, abi::FN_UNLOAD, "(param i64) (result i32)"),
        ("wasi:cuda/host@0.1.0", abi::FN_SYNC, "(result i32)"),
        (abi::MODULE, abi::FN_SYNC, "(param i32) (result i32)"),
        (abi::MODULE, abi::FN_FREE, "(param i32) (result i32)"),
        (abi::MODULE, abi::FN_ALLOC, "(param i64) (result i32)"),
    ];
    for (module, name, ty) in absent {
        let text = format!("(module (import \"{module}\" \"{name}\" (func {ty})))");
        let guest = Module::new(&engine, text).unwrap();
        let mut store = Store::new(
            &engine,
            Data {
                cuda: setup.context(),
            },
        );
        let refused = block_on(linker.instantiate_async(&mut store, &guest)).unwrap_err();
        assert!(format!("{refused:#}").contains(name), "{refused:#}");
    }
}

#[test]
fn the_version_is_one_point_zero() {
    assert_eq!(Harness::cpu().call(abi::FN_ABI_VERSION, &[]), 0x1_0000);
    assert_eq!(
        Harness::new(&Setup::no_device()).call(abi::FN_ABI_VERSION, &[]),
        0x1_0000
    );
}

#[test]
fn device_info_tells_what_the_device_is() {
    let window_bytes = 1 << 26;
    let memory = LinearMemory::Device { window_bytes };
    let mut guest = Harness::new(&Setup {
        memory,
        ..Setup::default()
    });
    let told = guest.device_info();
    let device = cpu();
    let limits = device.info().limits;
    assert_eq!(told.kind, DeviceKind::Cpu.number());
    assert_eq!(
        (told.compute_major, told.compute_minor),
        device.info().compute_capability
    );
    assert_eq!(told.multiprocessors, device.info().multiprocessors);
    assert_eq!(told.max_threads_per_block, limits.threads_per_block);
    assert_eq!((told.max_block, told.max_grid), (limits.block, limits.grid));
    assert_eq!(
        (told.warp_size, told.max_shared_bytes),
        (32, limits.shared_bytes)
    );
    assert_eq!(told.max_shared_default_bytes, 48 << 10);
    assert_eq!(
        told.window_bytes, window_bytes,
        "what is this instance's, not the machine's"
    );
    assert_eq!(told.name_str(), device.info().name);
    assert_eq!(
        told.features,
        info::FEATURE_COOPERATIVE | info::FEATURE_TRAPPING | info::FEATURE_CONFINED
    );
}

#[test]
fn device_info_of_no_device_is_zero_after_its_size() {
    let mut guest = Harness::new(&Setup::no_device());
    assert_eq!(guest.device_info(), DeviceInfo::from_bytes(&[]));
    assert_eq!(guest.read_u32(INFO_AT), 144);
    assert_eq!(guest.last_error(), "");
}

#[test]
fn a_guest_on_memory_of_another_kind_has_no_window() {
    let mut guest = Harness::new(&Setup {
        memory: LinearMemory::PlainHost,
        ..Setup::default()
    });
    let told = guest.device_info();
    assert_eq!(
        (told.kind, told.window_bytes),
        (DeviceKind::Cpu.number(), 0)
    );
}

#[test]
fn a_short_buffer_takes_the_beginning_of_a_struct() {
    let mut guest = Harness::cpu();
    let kernel = guest.kernel(KIT, "k_echo");
    let calls = [
        (abi::FN_DEVICE_INFO, vec![], DeviceInfo::SIZE),
        (abi::FN_TRAP_INFO, vec![], TrapInfo::SIZE),
        (abi::FN_KERNEL_INFO, vec![Val::I64(kernel)], 28 + 7 * 20),
    ];
    for (name, before, size) in calls {
        let ask = |guest: &mut Harness, len: usize| {
            guest.write_memory(DATA_AT, &[0xAA; 256]);
            let into = [u32_val(DATA_AT), u32_val(u32::try_from(len).unwrap())];
            let answer = guest.call(name, &[before.as_slice(), &into].concat());
            assert_eq!(usize::try_from(answer), Ok(size), "{name}, {len} bytes");
            guest.read_memory(DATA_AT, 256)
        };
        let whole = ask(&mut guest, 256);
        assert_eq!(whole[size..], vec![0xAA; 256 - size]);
        for len in [0, 1, 4, 7, 20, size - 1, size] {
            let part = ask(&mut guest, len);
            assert_eq!(part[..len], whole[..len], "{name}");
            assert_eq!(part[len..], vec![0xAA; 256 - len], "{name}");
        }
    }
}

#[test]
fn trap_info_is_empty_until_a_kernel_traps_and_kept_after() {
    let mut guest = Harness::cpu();
    assert_eq!(guest.trap_info(), TrapInfo::NONE);

    let kernel = guest.kernel(KIT, "k_trap");
    let answer = guest.launch(kernel, Shape::ONE, &[]);
    let line = line_of(KIT, "k_trap", "trap;");
    let text = format!(
        "kernel trap: trap instruction at PTX line {line}, block (0, 0, 0), thread (0, 0, 0)"
    );
    guest.assert_refused(answer, AbiError::KernelTrap, &text);
    let trap = TrapInfo {
        kind: TrapKind::TrapInstruction.number(),
        line,
        ..TrapInfo::NONE
    };
    assert_eq!(guest.trap_info(), trap);

    assert_all_usable(&mut guest);
    assert_eq!(guest.trap_info(), trap);
}

#[test]
fn trap_info_says_which_thread_reached_for_what() {
    let mut guest = Harness::cpu();
    let kernel = guest.kernel(FAULTS, "store_u32");
    let end = u64::from(guest.memory_bytes());
    let from = guest.memory_bytes() - 40 * 4;
    let args = [
        Arg::Ptr {
            offset: from,
            len: 160,
        },
        Arg::U64(4),
    ];
    let answer = guest.launch(kernel, Shape::line(1, 64), &args);
    let line = line_of(FAULTS, "store_u32", "st.global.u32");
    let text = format!(
        "kernel trap: access out of bounds at PTX line {line}, block (0, 0, 0), thread (40, 0, 0): 4 bytes at global address {end:#x}"
    );
    guest.assert_refused(answer, AbiError::KernelTrap, &text);
    let trap = TrapInfo {
        kind: TrapKind::OutOfBounds.number(),
        line,
        block: [0; 3],
        thread: [40, 0, 0],
        access_bytes: 4,
        address: end,
    };
    assert_eq!(guest.trap_info(), trap);
    assert_all_usable(&mut guest);
}

#[test]
fn a_store_to_an_address_without_memory_is_reported() {
    // The kernel stores to byte 16, which is nobody's while the guest has no page.
    let setup = Setup {
        pages: 0,
        max_pages: Some(1),
        ..Setup::default()
    };
    let instance = host::InstanceId::random().unwrap();
    let kernel = KernelEntry::from_ptx(
        &cpu(),
        instance,
        "k_wild",
        KIT.as_bytes(),
        host::Trust::Isolated(host::Isolation::Trapping),
    );
    let id = setup.registry.register(kernel.unwrap()).unwrap();
    let mut guest = Harness::new(&Setup {
        instance: Some(instance),
        ..setup
    });
    let answer = guest.launch_at(Way::Plain, id.handle(), Shape::ONE, (0, 0));
    assert_eq!(name(answer), "KernelTrap");
    assert!(
        guest
            .last_text()
            .ends_with("4 bytes at global address 0x10"),
        "{}",
        guest.last_text()
    );

    assert_eq!(guest.grow(1), 0);
    assert_eq!(guest.trap_info().address, 16);
    assert_eq!(
        guest.launch_at(Way::Plain, id.handle(), Shape::ONE, (0, 0)),
        0
    );
    assert_eq!(guest.read_u32(16), 1);
}

#[test]
fn a_prefetch_is_a_hint_with_checked_arguments() {
    let mut guest = Harness::cpu();
    let end = guest.memory_bytes();
    let prefetch = |guest: &mut Harness, at, len, side| {
        guest.call(
            abi::FN_PREFETCH,
            &[u32_val(at), u32_val(len), Val::I32(side)],
        )
    };
    for side in [abi::PREFETCH_HOST, abi::PREFETCH_DEVICE] {
        for (at, len) in [(0, 0), (0, end), (end, 0), (3, 5)] {
            assert_eq!(prefetch(&mut guest, at, len, side), 0);
        }
        let answer = prefetch(&mut guest, end - 1, 2, side);
        let text = format!(
            "a range to prefetch of 2 bytes from {} ends past the {end} bytes of memory",
            end - 1
        );
        guest.assert_refused(answer, AbiError::InvalidPointer, &text);
    }
    for side in [2, -1, i32::MIN, i32::MAX] {
        let answer = prefetch(&mut guest, 0, 16, side);
        let text = format!("the destination of a prefetch is {side}, expected 0 or 1");
        guest.assert_refused(answer, AbiError::InvalidArgs, &text);
    }
    assert_all_usable(&mut guest);
}

/// Counts in a variable that has a name for others, and gives what it was.
const COUNTER: &str = ".version 7.8
.target sm_80
.address_size 64
.visible .global .align 4 .u32 counter = 41;
.global .align 4 .u32 inner;
.visible .entry count(.param .u64 out) {
  .reg .b64 %o; .reg .b32 %x;
  ld.param.u64 %o, [out]; atom.global.add.u32 %x, [counter], 1; st.global.u32 [inner], %x; st.global.u32 [%o], %x; ret;
}
";

#[test]
fn a_variable_of_a_confined_kernels_module_is_a_buffer() {
    let mut guest = Harness::new(&Setup {
        isolation: Some(Isolation::Confined),
        ..Setup::default()
    });
    let kernel = guest.kernel(COUNTER, "count");
    let symbol = |guest: &mut Harness, name: &str| {
        let (at, len) = guest.put(DATA_AT, name.as_bytes());
        guest.call(
            abi::FN_SYMBOL,
            &[Val::I64(kernel), u32_val(at), u32_val(len)],
        )
    };
    let counter = symbol(&mut guest, "counter");
    assert!(counter > 0, "{}", guest.last_text());
    let count = |guest: &mut Harness| {
        let out = Arg::Ptr {
            offset: DATA_AT,
            len: 4,
        };
        guest.run(kernel, &[out]);
        guest.read_u32(DATA_AT)
    };
    let copy = |guest: &mut Harness, import| {
        let args = [Val::I64(counter), Val::I64(0), u32_val(DATA_AT), u32_val(4)];
        assert_eq!(guest.call(import, &args), 0, "{}", guest.last_text());
    };
    assert_eq!(count(&mut guest), 41);
    copy(&mut guest, abi::FN_READ);
    assert_eq!(guest.read_u32(DATA_AT), 42);
    guest.write_memory(DATA_AT, &7_u32.to_le_bytes());
    copy(&mut guest, abi::FN_WRITE);
    assert_eq!(count(&mut guest), 7);
    assert_eq!(count(&mut guest), 8);

    let unknown = symbol(&mut guest, "inner");
    let text = "the kernel's module has no variable `inner` that others may name";
    guest.assert_refused(unknown, AbiError::InvalidArgs, text);
    assert_all_usable(&mut guest);
}

#[test]
fn a_module_variable_is_not_reached() {
    let mut guest = Harness::cpu();
    let kernel = guest.kernel(KIT, "k_count");
    let (at, len) = guest.put(DATA_AT, b"g_counter");
    let symbol = |guest: &mut Harness, kernel| {
        guest.call(
            abi::FN_SYMBOL,
            &[Val::I64(kernel), u32_val(at), u32_val(len)],
        )
    };
    let answer = symbol(&mut guest, kernel);
    let text = "the variables of a kernel whose accesses are checked one by one cannot be reached by guests";
    guest.assert_refused(answer, AbiError::UnsupportedPtx, text);
    let answer = symbol(&mut guest, 1);
    guest.assert_refused(
        answer,
        AbiError::InvalidKernel,
        "no kernel 1 of this instance",
    );
    guest.write_memory(at, b"\xff");
    let answer = symbol(&mut guest, kernel);
    guest.assert_refused(
        answer,
        AbiError::InvalidArgs,
        "a variable name is not UTF-8",
    );
    assert_all_usable(&mut guest);
}

#[test]
fn sync_has_nothing_to_wait_for() {
    let mut guest = Harness::cpu();
    assert_eq!(guest.call(abi::FN_SYNC, &[]), 0);
    let kernel = guest.kernel(KIT, "k_trap");
    assert_eq!(name(guest.launch(kernel, Shape::ONE, &[])), "KernelTrap");
    assert_eq!(
        guest.call(abi::FN_SYNC, &[]),
        0,
        "a failed launch is not reported twice"
    );
}

#[test]
fn with_the_capability_off_every_import_answers_not_available_without_a_text() {
    for setup in [Setup::default(), Setup::no_device()] {
        let mut guest = Harness::new(&Setup {
            capability: Capability::Off,
            ..setup
        });
        for import in abi::IMPORTS {
            for number in [0, 1, -1, i32::MIN.into()] {
                let answer = guest.call_in(import.module, import.name, &same(import, number));
                assert_eq!(name(answer), "NotAvailable", "{}({number}, …)", import.name);
                assert_eq!(guest.last_text(), "");
            }
        }
        assert!(guest.cuda().last_lowered_args().is_empty());
    }
}

#[test]
fn taking_the_capability_away_takes_the_text_too() {
    let mut guest = Harness::cpu();
    assert_eq!(
        name(guest.call(abi::FN_FREE, &[Val::I64(1)])),
        "InvalidHandle"
    );
    assert_ne!(guest.last_error(), "");
    guest.cuda_mut().disable_wasi_cuda();
    assert_eq!(guest.last_text(), "");
    assert_eq!(
        name(guest.call(abi::FN_LAST_ERROR_LEN, &[])),
        "NotAvailable"
    );
    guest.cuda_mut().enable_wasi_cuda();
    assert_eq!(guest.last_error(), "");
    assert_all_usable(&mut guest);
}

#[test]
fn without_a_device_what_needs_none_works_and_all_else_says_why_not() {
    let mut guest = Harness::new(&Setup::no_device());
    let works = [
        abi::FN_ABI_VERSION,
        abi::FN_DEVICE_INFO,
        abi::FN_LAST_ERROR_LEN,
        abi::FN_LAST_ERROR_COPY,
    ];
    let launches = [abi::FN_LAUNCH, abi::FN_LAUNCH_COOPERATIVE];
    for import in abi::IMPORTS {
        if launches.contains(&import.name) {
            continue;
        }
        let answer = guest.call_in(import.module, import.name, &same(import, 0));
        if works.contains(&import.name) {
            assert!(answer >= 0, "{}", import.name);
        } else {
            guest.assert_refused(
                answer,
                AbiError::NotAvailable,
                "no device: this instance was given none",
            );
        }
    }
}

#[test]
fn without_a_device_a_launch_is_checked_and_recorded_before_it_is_refused() {
    let instance = host::InstanceId::random().unwrap();
    let setup = Setup {
        instance: Some(instance),
        ..Setup::no_device()
    };
    let id = setup
        .registry
        .register(KernelEntry::stub(instance, "k", 0))
        .unwrap();
    let mut guest = Harness::new(&setup);
    for way in Way::ALL {
        let answer = guest.launch_as(way, id.handle(), Shape::line(1, 1025), &[]);
        guest.assert_refused(
            answer,
            AbiError::InvalidDimensions,
            "block is 1025 threads along x, the limit is 1024",
        );
        let answer = guest.launch_as(way, id.handle(), Shape::ONE, &encode(&[Arg::U32(7)]));
        guest.assert_refused(
            answer,
            AbiError::NotAvailable,
            "no device: this instance was given none",
        );
        assert_eq!(
            guest.cuda().last_lowered_args(),
            [host::kernel_args::LoweredArg::U32(7)]
        );
    }
}

#[test]
fn the_last_error_is_copied_as_far_as_there_is_room() {
    let mut guest = Harness::cpu();
    assert_eq!(
        guest.call(abi::FN_LAST_ERROR_COPY, &[u32_val(DATA_AT), u32_val(100)]),
        0
    );
    assert_eq!(
        name(guest.call(abi::FN_FREE, &[Val::I64(7)])),
        "InvalidHandle"
    );
    let text = "no buffer 7 of this instance";
    for room in [0, 1, text.len() - 1, text.len(), 200] {
        guest.write_memory(DATA_AT, &[0xAA; 200]);
        let len = u32::try_from(room).unwrap();
        let copied = guest.call(abi::FN_LAST_ERROR_COPY, &[u32_val(DATA_AT), u32_val(len)]);
        let copied = usize::try_from(copied).unwrap();
        assert_eq!(copied, room.min(text.len()));
        let memory = guest.read_memory(DATA_AT, 200);
        assert_eq!(&memory[..copied], &text.as_bytes()[..copied]);
        assert_eq!(memory[copied..], vec![0xAA; 200 - copied]);
    }
    assert_all_usable(&mut guest);
    assert_eq!(guest.last_error(), text, "success leaves the text alone");
}

#[test]
fn the_text_of_one_instance_is_not_shown_to_another() {
    let (mut one, mut other) = (Harness::cpu(), Harness::cpu());
    assert_eq!(
        name(one.call(abi::FN_FREE, &[Val::I64(7)])),
        "InvalidHandle"
    );
    let kernel = one.kernel(KIT, "k_trap");
    assert_eq!(name(one.launch(kernel, Shape::ONE, &[])), "KernelTrap");
    assert_eq!(other.last_error(), "");
    assert_eq!(other.trap_info(), TrapInfo::NONE);
    assert_eq!(
        other.launch_at(Way::Plain, kernel, Shape::ONE, (ARGV_AT, 0)),
        -3,
        "kernels of others are unknown"
    );
}
