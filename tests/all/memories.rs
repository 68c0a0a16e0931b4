//! Which memories of a guest serve its kernels, and which are refused.

use abi::AbiError;
use abi::argv::Arg;
use host::{InstanceId, KernelEntry, Trust, engine_config};
use wasmtime::{Engine, Module, Val};

use crate::harness::{
    DATA_AT, GROW, Guest, Harness, KIT, LinearMemory, PAGE_BYTES, PTX_AT, Setup, Shape, Way,
    block_on, cpu, encode, guest_text_with, linker, name, pages_for_text, u32_val, wrapper,
};
use crate::memory::{PEEK, assert_traps, guest_with, ptr};

#[test]
fn of_several_memories_the_one_named_memory_is_the_kernels() {
    let mut guest = guest_with(&format!(
        r#"(memory $first (export "first") 4) (memory $second (export "memory") 4) (memory $third 1)
        {GROW}
        (func (export "peek first") (param i32) (result i32) (i32.load8_u $first (local.get 0)))
        (func (export "peek second") (param i32) (result i32) (i32.load8_u $second (local.get 0)))
        (func (export "poke third") (param i32) (result i32)
          (i32.store8 $third (local.get 0) (i32.const 1)) (i32.const 0))"#
    ));
    let kernel = guest.kernel(KIT, "k_store");
    guest.run(kernel, &[ptr(DATA_AT, 4), Arg::U32(7)]);
    assert_eq!(guest.export("peek first", &[u32_val(DATA_AT)]).unwrap(), 0);
    assert_eq!(guest.export("peek second", &[u32_val(DATA_AT)]).unwrap(), 7);
    assert_traps(&mut guest, "poke third", &[PAGE_BYTES]);
    assert_traps(&mut guest, "peek first", &[4 * PAGE_BYTES]);
}

#[test]
fn a_memory_that_another_module_made_serves_kernels() {
    let setup = Setup::default();
    let engine = setup.engine();
    let helper = Module::new(&engine, r#"(module (memory (export "memory") 4))"#).unwrap();
    let text = guest_text_with(&format!(r#"(export "memory" (memory 0)) {GROW} {PEEK}"#)).replacen(
        "(module",
        r#"(module (import "helper" "memory" (memory 4))"#,
        1,
    );
    let module = Module::new(&engine, text).unwrap();

    block_on(async {
        let mut store = setup.store(&engine);
        let mut linker = linker(&engine);
        linker
            .module_async(&mut store, "helper", &helper)
            .await
            .unwrap();
        let mut guest = Guest::start_in(store, setup.word, &linker, &module)
            .await
            .unwrap();
        let kernel = guest.load_bytes(KIT.as_bytes(), b"k_store").await;
        let argv = encode(&[ptr(DATA_AT, 4), Arg::U32(7)]);
        let code = guest
            .launch_bytes(Way::Plain, kernel, Shape::ONE, &argv)
            .await;
        assert_eq!(code, 0, "{}", guest.last_text());
        assert_eq!(guest.call_export("peek", &[u32_val(DATA_AT)]).await, 7);
    });
}

#[test]
fn two_instances_of_one_store_have_their_own_memory_each() {
    block_on(async {
        let mut guest = Guest::start(&Setup::default()).await;
        let first = (guest.instance, guest.memory);
        let module = first.0.module(&guest.store).clone();
        let linker = linker(module.engine());
        let second = linker
            .instantiate_async(&mut guest.store, &module)
            .await
            .unwrap();
        let second = (
            second,
            second
                .get_memory(&mut guest.store, abi::MEMORY_EXPORT)
                .unwrap(),
        );

        // Both instances belong to one context, so one kernel serves both.
        let kernel = guest.load_bytes(KIT.as_bytes(), b"k_store").await;
        for (instance, value) in [(first, 1), (second, 2)] {
            (guest.instance, guest.memory) = instance;
            let argv = encode(&[ptr(DATA_AT, 4), Arg::U32(value)]);
            let code = guest
                .launch_bytes(Way::Plain, kernel, Shape::ONE, &argv)
                .await;
            assert_eq!(code, 0, "{}", guest.last_text());
        }
        for (instance, value) in [(first, 1), (second, 2)] {
            (guest.instance, guest.memory) = instance;
            assert_eq!(guest.read_u32(DATA_AT), value);
        }
    });
}

#[test]
fn a_64_bit_memory_is_refused() {
    let text = guest_text_with(r#"(memory (export "memory") i64 1)"#);
    let setup = Setup::default();
    let error = Harness::with_text(&setup, &setup.engine(), &text).unwrap_err();
    let text_of = format!("{error:#}");
    assert!(
        text_of.contains("a 64-bit memory cannot be device memory"),
        "{text_of}"
    );

    let setup = Setup {
        memory: LinearMemory::PlainHost,
        ..setup
    };
    let mut guest = Harness::with_text(&setup, &setup.engine(), &text).unwrap();
    assert_no_memory(&mut guest);
}

#[test]
fn a_shared_memory_is_refused() {
    let text = guest_text_with(r#"(memory (export "memory") 1 1 shared)"#);
    for memory in [Setup::default().memory, LinearMemory::PlainHost] {
        let setup = Setup {
            memory,
            ..Setup::default()
        };
        let error = Harness::with_text(&setup, &setup.engine(), &text).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("threads") || error.contains("shared"),
            "{error}"
        );
    }
}

#[test]
fn a_guest_without_an_exported_memory_is_told_so() {
    let setup = Setup::default();
    let engine = setup.engine();
    let text = guest_text_with(
        r#"(memory (export "mem") 1) (global (export "memory") i32 (i32.const 0))"#,
    );
    let module = Module::new(&engine, text).unwrap();
    block_on(async {
        let mut store = setup.store(&engine);
        let instance = linker(&engine)
            .instantiate_async(&mut store, &module)
            .await
            .unwrap();
        let load = instance
            .get_func(&mut store, &wrapper(abi::MODULE, abi::FN_LOAD_PTX))
            .unwrap();
        let mut result = [Val::I64(0)];
        load.call_async(&mut store, &[u32_val(0); 4], &mut result)
            .await
            .unwrap();
        assert_eq!(
            result[0].i64(),
            Some(AbiError::InvalidPointer.code().into())
        );
        let text = store.data().cuda.last_error();
        assert_eq!(
            text,
            "the guest exports no 32-bit unshared memory named `memory`"
        );
    });
}

fn assert_no_memory(guest: &mut Harness) {
    for name in [
        abi::FN_LOAD_PTX,
        abi::FN_LAUNCH,
        abi::FN_ALLOC,
        abi::FN_DEVICE_INFO,
    ] {
        let import = abi::IMPORTS
            .iter()
            .find(|i| (i.module, i.name) == (abi::MODULE, name))
            .unwrap();
        let zero = |ty: &abi::ValType| match ty {
            abi::ValType::I32 => Val::I32(0),
            abi::ValType::I64 => Val::I64(0),
        };
        let args: Vec<_> = import.params.iter().map(zero).collect();
        assert_eq!(
            guest.call(name, &args),
            AbiError::InvalidPointer.code().into()
        );
        let text = guest.last_text();
        assert_eq!(
            text,
            "the guest exports no 32-bit unshared memory named `memory`"
        );
    }
}

#[test]
fn memory_that_begins_empty_is_used_once_it_has_grown() {
    let setup = Setup {
        pages: 0,
        max_pages: Some(10),
        ..Setup::default()
    };
    let mut guest = Harness::new(&setup);
    let len = u32::try_from(KIT.len()).unwrap();
    let refused = guest.load_at(abi::MODULE, (0, len), (len, 7));
    let text = format!("PTX of {len} bytes from 0 ends past the 0 bytes of memory");
    assert_eq!(
        (name(refused).as_str(), guest.last_text()),
        (AbiError::InvalidPointer.name(), text)
    );
    let device_info = guest.call(abi::FN_DEVICE_INFO, &[u32_val(0), u32_val(0)]);
    assert!(device_info > 0);

    assert_eq!(guest.grow(pages_for_text(KIT.len())), 0);
    guest.assert_usable();
    assert_eq!(guest.grow(10), -1);
}

#[test]
fn memory_that_stays_empty_serves_kernels_without_memory() {
    let owner = InstanceId::random().unwrap();
    let setup = Setup {
        pages: 0,
        max_pages: Some(0),
        instance: Some(owner),
        ..Setup::default()
    };
    let entry = KernelEntry::from_ptx(
        &cpu(),
        owner,
        "k_empty",
        KIT.as_bytes(),
        Trust::Isolated(host::Isolation::Trapping),
    );
    let kernel = setup.registry.register(entry.unwrap()).unwrap().handle();
    let mut guest = Harness::new(&setup);
    assert_eq!(guest.grow(1), -1);
    assert_eq!(guest.launch_at(Way::Plain, kernel, Shape::ONE, (0, 0)), 0);
    let refused = guest.launch_at(Way::Plain, kernel, Shape::ONE, (0, 1));
    assert_eq!(name(refused), AbiError::InvalidPointer.name());
}

#[test]
fn memory_of_four_gigabytes_is_addressable_to_its_last_byte() {
    let setup = Setup {
        pages: 65_536,
        max_pages: Some(65_536),
        ..Setup::default()
    };
    let mut guest = Harness::new(&setup);
    let kernel = guest.kernel(KIT, "k_store");
    let last = u32::MAX - 3;
    guest.run(kernel, &[ptr(last, 4), Arg::U32(9)]);
    assert_eq!(guest.read_u32(last), 9);
    guest.run(kernel, &[ptr(0, u32::MAX), Arg::U32(8)]);
    assert_eq!(guest.read_u32(0), 8);

    let refused = guest.launch(kernel, Shape::ONE, &[ptr(u32::MAX, 2), Arg::U32(9)]);
    let text =
        "argument 0 is 2 bytes from 4294967295, which ends past the 4294967296 bytes of memory";
    guest.assert_refused(refused, AbiError::InvalidPointer, text);
    assert_eq!(guest.grow(1), -1);
    let refused = guest.call(abi::FN_ALLOC, &[Val::I64(1)]);
    guest.assert_refused(
        refused,
        AbiError::QuotaExceeded,
        "a device buffer needs 1 bytes, 0 are available",
    );
}

#[test]
fn memory_of_single_byte_pages_ends_at_its_last_byte() {
    let size = PTX_AT + 3 * PAGE_BYTES + 100;
    let setup = Setup::default();
    let mut config = engine_config(&cpu()).unwrap();
    config.wasm_custom_page_sizes(true);
    let memory = format!(r#"(memory (export "memory") {size} (pagesize 1)) {GROW} {PEEK}"#);
    let engine = Engine::new(&config).unwrap();
    let mut guest = Harness::with_text(&setup, &engine, &guest_text_with(&memory)).unwrap();
    assert_eq!(guest.memory_bytes(), size);
    assert_eq!(guest.export("peek", &[u32_val(size - 1)]).unwrap(), 0);
    assert_traps(&mut guest, "peek", &[size]);
    assert_traps(&mut guest, "poke", &[size, 1]);

    let kernel = guest.kernel(KIT, "k_past");
    guest.run(kernel, &[ptr(size - 4, 4), Arg::U64(0)]);
    let trap = guest.launch(kernel, Shape::ONE, &[ptr(size - 4, 4), Arg::U64(4)]);
    assert_eq!(name(trap), AbiError::KernelTrap.name());
    let refused = guest.launch(kernel, Shape::ONE, &[ptr(size - 4, 5), Arg::U64(0)]);
    assert_eq!(name(refused), AbiError::InvalidPointer.name());

    assert_eq!(guest.grow(4), i64::from(size));
    guest.run(kernel, &[ptr(size - 4, 4), Arg::U64(4)]);
    assert_eq!(guest.read_u32(size), 0xdead_beef);
    assert_traps(&mut guest, "peek", &[size + 4]);
}
