//! Linear memory that a device can address: what a guest, its host and its kernels see of it. Which memories serve kernels is in
//! `memories.rs`. The guard at a launch is in `guard.rs`, engines are in `engine.rs`.

use abi::AbiError;
use abi::argv::Arg;
use host::{EngineOptions, engine_config};
use wasmtime::{Config, Engine, Instance, Module, Store, Trap, TypedFunc, Val};

use crate::harness::{
    DATA_AT, GROW, Harness, KIT, LinearMemory, PAGE_BYTES, Setup, Shape, cpu, guest_text_with,
    name, u32_val,
};

/// Exports `peek` and `poke` of a byte.
pub(crate) const PEEK: &str = r#"
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
pub(crate) fn guest_with(definitions: &str) -> Harness {
    let setup = Setup::default();
    Harness::with_text(&setup, &setup.engine(), &guest_text_with(definitions)).unwrap()
}

pub(crate) fn ptr(offset: u32, len: u32) -> Arg<'static> {
    Arg::Ptr { offset, len }
}

pub(crate) fn base(harness: &Harness) -> usize {
    harness.memory.data_ptr(&harness.store).addr()
}

#[track_caller]
pub(crate) fn assert_traps(harness: &mut Harness, export: &str, args: &[u32]) {
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
