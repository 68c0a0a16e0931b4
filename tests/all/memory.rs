//! Linear memory that a device can address: what a guest, its host and its kernels see of it, and which memories are
//! refused. The guard at a launch is in `guard.rs`, engines are in `engine.rs`.

use abi::AbiError;
use abi::argv::Arg;
use host::{EngineOptions, InstanceId, KernelEntry, Trust, engine_config};
use wasmtime::{Config, Engine, Instance, Module, Store, Trap, TypedFunc, Val};

use crate::harness::{
    DATA_AT, GROW, Guest, Harness, KIT, LinearMemory, PAGE_BYTES, PTX_AT, Setup, Shape, Way,
    block_on, cpu, encode, guest_text_with, linker, name, pages_for_text, u32_val, wrapper,
};

/// Exports `peek` and `poke` of a byte.
const PEEK: &str = r#"
(func (export "peek") (param i32) (result i32) (i32.load8_u (local.get 0)))
(func (export "poke") (param i32 i32) (result i32) (i32.store8 (local.get 0) (local.get 1)) (i32.const 0))
"#;

/// A window of 16 pages.
pub(crate) const SMALL_WINDOW: u64 = 1 << 20;

pub(crate) fn small_window() -> Setup {
    Setup {
        memory: LinearMemory::Device {
            window_bytes: SMALL_WINDOW,
        },
        ..Setup::default()
    }
}

/// A guest of the test's own memory definitions, on the CPU device.
fn guest_with(definitions: &str) -> Harness {
    let setup = Setup::default();
    Harness::with_text(&setup, &setup.engine(), &guest_text_with(definitions)).unwrap()
}

fn ptr(offset: u32, len: u32) -> Arg<'static> {
    Arg::Ptr { offset, len }
}

fn base(harness: &Harness) -> usize {
    harness.memory.data_ptr(&harness.store).addr()
}

#[track_caller]
fn assert_traps(harness: &mut Harness, export: &str, args: &[u32]) {
    let args: Vec<Val> = args.iter().copied().map(u32_val).collect();
    let error = harness.export(export, &args).unwrap_err();
    assert_eq!(
        error.downcast_ref::<Trap>(),
        Some(&Trap::MemoryOutOfBounds),
        "{error:?}"
    );
}

#[test]
fn data_segments_are_seen_by_guest_host_and_kernel() {
    let mut guest = guest_with(&format!(
        r#"(memory (export "memory") 4) (data (i32.const {DATA_AT}) "hello, device...") {GROW} {PEEK}"#
    ));
    assert_eq!(
        guest.export("peek", &[u32_val(DATA_AT + 4)]).unwrap(),
        i64::from(b'o')
    );
    let data = guest.memory.data(&guest.store);
    assert_eq!(&data[DATA_AT as usize..][..16], b"hello, device...");

    let kernel = guest.kernel(KIT, "k_copy");
    let copy = DATA_AT + 64;
    guest.run(kernel, &[ptr(DATA_AT, 16), ptr(copy, 16), Arg::U32(4)]);
    assert_eq!(guest.read_memory(copy, 16), b"hello, device...");
    assert_eq!(
        guest.export("peek", &[u32_val(copy)]).unwrap(),
        i64::from(b'h')
    );
}

#[test]
fn what_a_guest_writes_is_what_a_kernel_reads() {
    let mut guest = guest_with(&format!(r#"(memory (export "memory") 4) {GROW} {PEEK}"#));
    let kernel = guest.kernel(KIT, "k_copy");
    for (at, byte) in (DATA_AT..).zip(*b"abcd") {
        guest
            .export("poke", &[u32_val(at), u32_val(byte.into())])
            .unwrap();
    }
    guest.run(kernel, &[ptr(DATA_AT, 4), ptr(DATA_AT + 4, 4), Arg::U32(1)]);
    assert_eq!(
        guest.export("peek", &[u32_val(DATA_AT + 7)]).unwrap(),
        i64::from(b'd')
    );
}

#[test]
fn growth_keeps_the_base_and_gives_zero_pages() {
    let mut guest = Harness::new(&Setup {
        pages: 3,
        ..Setup::default()
    });
    let before = base(&guest);
    for (pages, more) in [(3, 1), (4, 2), (6, 32), (38, 1)] {
        let old = guest.memory_bytes();
        assert_eq!(guest.grow(more), i64::from(pages));
        assert_eq!(base(&guest), before);
        let gained = &guest.memory.data(&guest.store)[old as usize..];
        assert_eq!(gained.len(), (more * PAGE_BYTES) as usize);
        assert!(gained.iter().all(|&byte| byte == 0));

        let kernel = guest.kernel(KIT, "k_store");
        let last = guest.memory_bytes() - 4;
        guest.run(kernel, &[ptr(last, 4), Arg::U32(u32::MAX)]);
        assert_eq!(guest.read_u32(last), u32::MAX);
    }
}

#[test]
fn a_kernel_leaves_nothing_in_pages_that_the_guest_gains_later() {
    let mut guest = Harness::new(&Setup {
        pages: 3,
        ..Setup::default()
    });
    let kernel = guest.kernel(KIT, "k_past");
    let end = u64::from(guest.memory_bytes());
    let offset = Arg::U64(end - u64::from(DATA_AT));
    let code = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), offset]);
    assert_eq!(name(code), AbiError::KernelTrap.name());
    assert_eq!(guest.grow(1), 3);
    assert_eq!(guest.read_u32(3 * PAGE_BYTES), 0);
    guest.run(kernel, &[ptr(DATA_AT, 4), offset]);
    assert_eq!(guest.read_u32(3 * PAGE_BYTES), 0xdead_beef);
}

/// Functions that access memory in every way that bounds are checked differently for.
const ACCESSES: &str = r#"(module
(memory (export "memory") 2 10)
(func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
(func (export "load8") (param i32) (result i32) (i32.load8_u (local.get 0)))
(func (export "load32") (param i32) (result i32) (i32.load (local.get 0)))
(func (export "load8 far") (param i32) (result i32) (i32.load8_u offset=0xffffffff (local.get 0)))
(func (export "load32 a page on") (param i32) (result i32) (i32.load offset=0x10000 (local.get 0)))
(func (export "store8") (param i32) (result i32) (i32.store8 (local.get 0) (i32.const 7)) (i32.const 0))
(func (export "store32") (param i32) (result i32) (i32.store (local.get 0) (i32.const 7)) (i32.const 0))
(func (export "store8 far") (param i32) (result i32)
  (i32.store8 offset=0xffffffff (local.get 0) (i32.const 7)) (i32.const 0))
(func (export "store32 a page on") (param i32) (result i32)
  (i32.store offset=0x10000 (local.get 0) (i32.const 7)) (i32.const 0))
(func (export "fill") (param i32) (result i32)
  (memory.fill (local.get 0) (i32.const 7) (i32.const 4)) (i32.const 0)))
"#;

/// An instance of [`ACCESSES`].
struct Accesses {
    what: &'static str,
    store: Store<()>,
    instance: Instance,
}

impl Accesses {
    fn new(what: &'static str, config: &Config) -> Self {
        let engine = Engine::new(config).unwrap();
        let module = Module::new(&engine, ACCESSES).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        Self {
            what,
            store,
            instance,
        }
    }

    fn call(&mut self, export: &str, argument: u32) -> wasmtime::Result<u32> {
        let function: TypedFunc<u32, u32> =
            self.instance.get_typed_func(&mut self.store, export)?;
        function.call(&mut self.store, argument)
    }

    #[track_caller]
    fn assert_inside(&mut self, export: &str, at: u32) {
        let Self { what, .. } = *self;
        self.call(export, at)
            .unwrap_or_else(|error| panic!("{what}: {export} at {at:#x}: {error}"));
    }

    #[track_caller]
    fn assert_outside(&mut self, export: &str, at: u32) {
        let Self { what, .. } = *self;
        let trap = self
            .call(export, at)
            .map_err(|error| error.downcast_ref::<Trap>().copied());
        assert_eq!(
            trap,
            Err(Some(Trap::MemoryOutOfBounds)),
            "{what}: {export} at {at:#x}"
        );
    }

    /// Accesses around the end of a memory of `size` bytes.
    fn check_bounds(&mut self, size: u32) {
        let simple = [
            ("load8", 1),
            ("load32", 4),
            ("store8", 1),
            ("store32", 4),
            ("fill", 4),
        ];
        for (export, bytes) in simple {
            self.assert_inside(export, size - bytes);
            for at in [
                size - bytes + 1,
                size,
                size + PAGE_BYTES,
                1 << 31,
                u32::MAX - 3,
                u32::MAX,
            ] {
                self.assert_outside(export, at);
            }
        }
        for export in ["load8 far", "store8 far"] {
            for at in [0, 1, size, u32::MAX] {
                self.assert_outside(export, at);
            }
        }
        for export in ["load32 a page on", "store32 a page on"] {
            let end = size - PAGE_BYTES;
            self.assert_inside(export, end - 4);
            for at in [end - 3, end, size, u32::MAX - PAGE_BYTES + 1, u32::MAX] {
                self.assert_outside(export, at);
            }
        }
    }
}

fn assert_bounds_hold(what: &'static str, change: impl FnOnce(&mut Config)) {
    let mut config = engine_config(&cpu()).unwrap();
    change(&mut config);
    let mut accesses = Accesses::new(what, &config);
    accesses.check_bounds(2 * PAGE_BYTES);
    assert_eq!(accesses.call("grow", 5).unwrap(), 2, "{what}");
    accesses.check_bounds(7 * PAGE_BYTES);
    assert_eq!(
        accesses.call("grow", 4).unwrap(),
        u32::MAX,
        "{what}: past its maximum"
    );
    accesses.check_bounds(7 * PAGE_BYTES);
}

#[test]
fn accesses_past_the_end_trap_with_guard_and_reservation() {
    assert_bounds_hold("as configured", |_| {});
    assert_bounds_hold("more of both", |config| {
        config
            .memory_reservation(8 << 30)
            .memory_guard_size(1 << 30);
    });
}

#[test]
fn accesses_past_the_end_trap_without_guard() {
    assert_bounds_hold("no guard", |config| {
        config.memory_guard_size(0);
    });
    assert_bounds_hold("a guard of a page", |config| {
        config.memory_guard_size(1 << 16);
    });
}

#[test]
fn accesses_past_the_end_trap_without_reservation() {
    assert_bounds_hold("no reservation", |config| {
        config.memory_reservation(0);
    });
    assert_bounds_hold("neither", |config| {
        config.memory_reservation(0).memory_guard_size(0);
    });
}

#[test]
fn accesses_past_the_end_trap_with_explicit_checks() {
    assert_bounds_hold("no signals", |config| {
        config.signals_based_traps(false);
    });
}

#[test]
fn accesses_past_the_end_trap_in_small_windows() {
    let config = EngineOptions::default()
        .window_bytes(SMALL_WINDOW)
        .config(&cpu())
        .unwrap();
    let mut accesses = Accesses::new("a small window", &config);
    accesses.check_bounds(2 * PAGE_BYTES);
    assert_eq!(accesses.call("grow", 8).unwrap(), 2);
    accesses.check_bounds(10 * PAGE_BYTES);
}

#[test]
fn a_memory_does_not_outgrow_the_reservation_it_begins_in() {
    let mut config = engine_config(&cpu()).unwrap();
    let reserved = 4 * PAGE_BYTES;
    config
        .memory_reservation(reserved.into())
        .memory_guard_size(0);
    let mut accesses = Accesses::new("a reservation of 4 pages", &config);
    accesses.check_bounds(2 * PAGE_BYTES);
    assert_eq!(accesses.call("grow", 3).unwrap(), u32::MAX);
    assert_eq!(accesses.call("grow", 2).unwrap(), 2);
    accesses.check_bounds(reserved);
}

#[test]
fn a_memory_that_begins_past_the_reservation_grows_in_its_window() {
    assert_bounds_hold("a reservation of a page", |config| {
        config.memory_reservation(1 << 16).memory_guard_size(0);
    });
}

#[test]
fn growth_past_the_limit_answers_minus_one() {
    let mut guest = Harness::new(&Setup {
        pages: 1,
        max_pages: Some(2),
        ..Setup::default()
    });
    assert_eq!(guest.grow(2), -1);
    assert_eq!(guest.grow(1), 1);
    assert_eq!(guest.grow(1), -1);

    let mut guest = Harness::new(&small_window());
    assert_eq!(guest.memory_bytes(), 16 * PAGE_BYTES);
    assert_eq!(guest.grow(1), -1);
    assert_eq!(guest.grow(0), 16);
}

#[test]
fn growth_stops_at_device_buffers_and_goes_on_when_they_are_freed() {
    let mut guest = Harness::new(&Setup {
        pages: 13,
        ..small_window()
    });
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64((PAGE_BYTES * 2).into())]);
    assert!(buffer > 0, "{}", guest.last_text());
    assert_eq!(guest.grow(2), -1);
    assert_eq!(guest.grow(1), 13);
    assert_eq!(guest.grow(1), -1);
    let refused = guest.call(abi::FN_ALLOC, &[Val::I64(1)]);
    assert_eq!(name(refused), AbiError::QuotaExceeded.name());
    assert_eq!(guest.call(abi::FN_FREE, &[Val::I64(buffer)]), 0);
    assert_eq!(guest.grow(2), 14);
    let end = guest.read_memory(14 * PAGE_BYTES, 2 * PAGE_BYTES as usize);
    assert!(end.iter().all(|&byte| byte == 0));
}

#[test]
fn the_guest_cannot_touch_device_buffers() {
    let text = guest_text_with(&format!(r#"(memory (export "memory") 4) {GROW} {PEEK}"#));
    let setup = small_window();
    let mut guest = Harness::with_text(&setup, &setup.engine(), &text).unwrap();
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(PAGE_BYTES.into())]);
    let kernel = guest.kernel(KIT, "k_store");
    guest.run(
        kernel,
        &[
            Arg::Buffer {
                handle: buffer,
                offset: 0,
            },
            Arg::U32(42),
        ],
    );
    let start = 15 * PAGE_BYTES;
    for at in [start, start + 4, 16 * PAGE_BYTES - 1] {
        assert_traps(&mut guest, "peek", &[at]);
        assert_traps(&mut guest, "poke", &[at, 1]);
    }
    let args = [Val::I64(buffer), Val::I64(0), u32_val(DATA_AT), u32_val(4)];
    assert_eq!(guest.call(abi::FN_READ, &args), 0);
    assert_eq!(guest.read_u32(DATA_AT), 42);
}

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
