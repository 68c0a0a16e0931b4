//! A warm launch allocates nothing of ours. A binary of its own, because its allocator counts; each test compares guests that loop over
//! a launch with guests that loop over an async import that does nothing but let others run.
#![expect(
    unsafe_code,
    reason = "counts allocations, which only a global allocator can"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abi::argv::{self, Arg};
use device::{Device, Selector};
use host::{
    HasWasiCuda, InstanceId, KernelEntry, Trust, TrustedByEmbedder, WasiCudaContext, add_to_linker,
    engine_config,
};
use wasmtime::{Caller, Engine, Linker, Module, Store, TypedFunc};

use fake_device::FakeDevice;

#[path = "../all/fake_device.rs"]
#[expect(dead_code, reason = "the device does more than this binary needs")]
mod fake_device;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static ON_THIS_THREAD: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    ON_THIS_THREAD.set(ON_THIS_THREAD.get() + 1);
}

// SAFETY: every call goes to `System` as it is; counting allocates nothing, since the thread's counter is constant at first and
// needs no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is what `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`; `System` gave the pointer.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as in `dealloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Whose allocations count.
#[derive(Clone, Copy)]
enum Threads {
    All,
    ThisOne,
}

impl Threads {
    fn allocations(self) -> u64 {
        match self {
            Self::All => ALLOCATIONS.load(Ordering::SeqCst),
            Self::ThisOne => ON_THIS_THREAD.get(),
        }
    }
}

/// One test at a time, since some count the allocations of all threads.
static TURN: Mutex<()> = Mutex::new(());

const KIT: &str = include_str!("../../fixtures/kernels/kit.ptx");

const ARGV_AT: u32 = 1024;
const DATA_AT: u32 = 4096;

const GUEST: &str = r#"(module
(type $launch (func (param i64 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(import "wasi_cuda" "wasi_cuda_launch" (func $launch (type $launch)))
(import "test" "empty" (func $empty (type $launch)))
(memory (export "memory") 1)
(table funcref (elem $launch $empty))
(func (export "loop") (param $import i32) (param $rounds i32) (param $kernel i64) (param $len i32)
  (result i32) (local $failed i32)
  (loop $again
    (local.set $failed (i32.or (local.get $failed)
      (call_indirect (type $launch) (local.get $kernel)
        (i32.const 1) (i32.const 1) (i32.const 1) (i32.const 32) (i32.const 1) (i32.const 1)
        (i32.const 0) (i32.const 1024) (local.get $len) (local.get $import))))
    (local.set $rounds (i32.sub (local.get $rounds) (i32.const 1)))
    (br_if $again (local.get $rounds)))
  (local.get $failed)))
"#;

/// What the guest's table has.
#[derive(Clone, Copy)]
enum Import {
    Launch = 0,
    Empty = 1,
}

struct Data(WasiCudaContext);

impl HasWasiCuda for Data {
    fn wasi_cuda(&self) -> &WasiCudaContext {
        &self.0
    }
}

struct Guest {
    runtime: tokio::runtime::Runtime,
    store: Store<Data>,
    calls: TypedFunc<(i32, i32, i64, u32), i32>,
    kernel: i64,
    argv_len: u32,
}

impl Guest {
    fn new(device: &Arc<dyn Device>, trust: Trust, entry: &str, args: &[Arg<'_>]) -> Self {
        let owner = InstanceId::random().unwrap();
        let mut context = WasiCudaContext::builder(owner)
            .device(Arc::clone(device))
            .build();
        context.enable_wasi_cuda();
        let entry = KernelEntry::from_ptx(device, owner, entry, KIT.as_bytes(), trust);
        let kernel = context.registry.register(entry.unwrap()).unwrap().handle();

        let engine = Engine::new(&engine_config(device).unwrap()).unwrap();
        let mut linker = Linker::new(&engine);
        add_to_linker::<Data>(&mut linker).unwrap();
        type Args = (i64, i32, i32, i32, i32, i32, i32, i32, i32, i32);
        linker
            .func_wrap_async("test", "empty", |_: Caller<'_, Data>, _: Args| {
                Box::new(async {
                    // Tokio allocates where a task first uses its budget up, and launches spend it.
                    tokio::task::consume_budget().await;
                    0
                })
            })
            .unwrap();

        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut store = Store::new(&engine, Data(context));
        let module = Module::new(&engine, GUEST).unwrap();
        let instance = runtime
            .block_on(linker.instantiate_async(&mut store, &module))
            .unwrap();
        let mut bytes = vec![0; args.iter().map(Arg::encoded_len).sum()];
        let argv_len = argv::encode(args, &mut bytes).unwrap();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        memory.write(&mut store, ARGV_AT as usize, &bytes).unwrap();
        Self {
            calls: instance.get_typed_func(&mut store, "loop").unwrap(),
            runtime,
            store,
            kernel,
            argv_len: u32::try_from(argv_len).unwrap(),
        }
    }

    /// Allocations while the guest calls an import so often.
    fn allocations(&mut self, import: Import, rounds: i32, threads: Threads) -> u64 {
        let args = (import as i32, rounds, self.kernel, self.argv_len);
        let before = threads.allocations();
        let failed = self
            .runtime
            .block_on(self.calls.call_async(&mut self.store, args));
        let after = threads.allocations();
        assert_eq!(failed.unwrap(), 0);
        after - before
    }
}

/// Allocations of launches beyond those of an import that does nothing.
fn of_launches(mut guest: Guest, threads: Threads) -> i64 {
    const ROUNDS: i32 = 1000;
    const ATTEMPTS: u32 = 5;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for import in [Import::Launch, Import::Empty] {
        guest.allocations(import, ROUNDS, threads);
    }
    let attempt = |_| {
        let launches = guest.allocations(Import::Launch, ROUNDS, threads);
        let empty = guest.allocations(Import::Empty, ROUNDS, threads);
        launches.cast_signed() - empty.cast_signed()
    };
    // The threads of the test runner allocate now and then; launches would do so every time.
    (0..ATTEMPTS)
        .map(attempt)
        .min_by_key(|more| more.abs())
        .unwrap()
}

fn ptr(len: u32) -> Arg<'static> {
    Arg::Ptr {
        offset: DATA_AT,
        len,
    }
}

#[test]
fn warm_launches_on_a_device_that_does_nothing_allocate_nothing() {
    let (device, _) = FakeDevice::open();
    let trust = Trust::Embedder(TrustedByEmbedder::i_vouch_for_this_kernel());
    let kernels: [(&str, &[Arg<'_>]); 3] = [
        ("k_empty", &[]),
        ("k_copy", &[ptr(4), ptr(4), Arg::U32(1)]),
        ("k_gap", &[Arg::U32(1), ptr(8), Arg::U32(2)]),
    ];
    for (entry, args) in kernels {
        let guest = Guest::new(&device, trust, entry, args);
        assert_eq!(of_launches(guest, Threads::ThisOne), 0, "{entry}");
    }
}

#[test]
fn warm_launches_on_the_cpu_device_allocate_nothing() {
    let device = device::open(Selector::Cpu).unwrap();
    let kernels: [(&str, &[Arg<'_>]); 3] = [
        ("k_empty", &[]),
        ("k_copy", &[ptr(4), ptr(4), Arg::U32(1)]),
        ("k_count", &[ptr(4)]),
    ];
    for (entry, args) in kernels {
        let guest = Guest::new(
            &device,
            Trust::Isolated(host::Isolation::Trapping),
            entry,
            args,
        );
        // A guest that was suspended has a fresh budget, so what tokio allocates where one is used up falls to the other loop.
        let more = of_launches(guest, Threads::All);
        assert!(more <= 0, "{entry}: {more} allocations in 1000 launches");
    }
}
