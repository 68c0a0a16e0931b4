//! Guests beside each other: nobody waits for another's kernel, and a call that is dropped stops its kernel and harms nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use abi::AbiError;
use abi::argv::Arg;
use device::Selector;
use host::Limits;
use host::kernel_args::LoweredArg;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wasmtime::{Module, TypedFunc, Val};

use crate::fake_device::FakeDevice;
use crate::harness::{DATA_AT, Guest, Harness, KIT, Setup, Shape, Way, block_on, encode, linker};

/// Longer than anything here takes on a machine that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);

fn ptr(offset: u32, len: u32) -> Arg<'static> {
    Arg::Ptr { offset, len }
}

fn workers(count: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(count)
        .enable_time()
        .build()
        .unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Runs a test that would hang if it failed.
#[track_caller]
fn within_patience(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let runner = std::thread::spawn(move || {
        test();
        // Nobody listens where the test took too long.
        done.send(()).unwrap_or_default();
    });
    match wait.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not done after {PATIENCE:?}"),
        _ => runner.join().unwrap(),
    }
}

pub(crate) async fn kernel(guest: &mut Guest, entry: &str) -> i64 {
    let kernel = guest.load_bytes(KIT.as_bytes(), entry.as_bytes()).await;
    assert!(kernel > 0, "{entry}: {}", guest.last_text());
    kernel
}

pub(crate) async fn launch(guest: &mut Guest, kernel: i64, args: &[Arg<'_>]) -> i64 {
    let argv = encode(args);
    guest
        .launch_bytes(Way::Plain, kernel, Shape::ONE, &argv)
        .await
}

/// Launches `rounds` times and looks at what each left in memory.
async fn store_in_turn(setup: Setup, seed: u32, rounds: u32) {
    let mut guest = Guest::start(&setup).await;
    let store = kernel(&mut guest, "k_store").await;
    for round in 0..rounds {
        let value = seed.wrapping_mul(0x9e37_79b9) ^ round;
        let code = launch(&mut guest, store, &[ptr(DATA_AT, 4), Arg::U32(value)]).await;
        assert_eq!(code, 0, "{}", guest.last_text());
        assert_eq!(guest.read_u32(DATA_AT), value);
    }
}

async fn join_all(mut tasks: JoinSet<()>) {
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
}

fn many_at_once(runtime: &Runtime) {
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for seed in 0..32 {
            tasks.spawn(store_in_turn(Setup::default(), seed, 25));
        }
        join_all(tasks).await;
    });
}

#[test]
fn many_instances_run_at_once_on_one_thread() {
    many_at_once(&one_thread());
}

#[test]
fn many_instances_run_at_once_on_several_threads() {
    many_at_once(&workers(4));
}

/// The lateness of a millisecond ticker that 99 of 100 ticks do not exceed, while `guests` launch without pause.
fn lateness_beside(runtime: &Runtime, guests: usize) -> Duration {
    const TICK: Duration = Duration::from_millis(1);
    const TICKS: u32 = 300;
    // Long enough that a worker which waited for one would be late for all.
    const KERNEL_NS: u64 = 5_000_000;
    let stop = Arc::new(AtomicBool::new(false));
    let (launching, mut all_launch) = tokio::sync::mpsc::channel(guests);
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..guests {
            let (stop, launching) = (Arc::clone(&stop), launching.clone());
            tasks.spawn(async move {
                let mut guest = Guest::start(&Setup::default()).await;
                let spin = kernel(&mut guest, "k_spin").await;
                launching.send(()).await.unwrap();
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(launch(&mut guest, spin, &[Arg::U64(KERNEL_NS)]).await, 0);
                }
            });
        }
        for _ in 0..guests {
            all_launch.recv().await.unwrap();
        }
        let ticker = tokio::spawn(async {
            let mut late = Vec::new();
            let started = Instant::now();
            for tick in 1..=TICKS {
                let due = started + TICK * tick;
                tokio::time::sleep_until(due.into()).await;
                late.push(due.elapsed());
            }
            late.sort();
            late[late.len() * 99 / 100]
        });
        let late = ticker.await.unwrap();
        stop.store(true, Ordering::Relaxed);
        join_all(tasks).await;
        late
    })
}

#[test]
fn a_running_kernel_never_blocks_a_worker() {
    const ATTEMPTS: usize = 10;
    let runtime = workers(2);
    let mut seen = Vec::new();
    // Other work of the machine delays ticks as well, so the best attempt counts. Launches that block their worker would keep it
    // for as long as all other guests' kernels take, in every attempt.
    for _ in 0..ATTEMPTS {
        let late = lateness_beside(&runtime, 64);
        if late <= Duration::from_millis(10) {
            return;
        }
        seen.push(late);
    }
    panic!("one tick of 100 was later than {seen:?}");
}

/// A guest that calls one import for ever, or until it fails.
const SPINNER: &str = r#"(module
(import "wasi_cuda" "wasi_cuda_sync" (func $sync (result i32)))
(import "wasi_cuda" "wasi_cuda_launch"
  (func $launch (param i64 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
(memory (export "memory") 1)
(func (export "spin on sync") (param i64) (result i32) (local $code i32)
  (loop $again (br_if $again (i32.eqz (local.tee $code (call $sync)))))
  (local.get $code))
(func (export "spin on launch") (param $kernel i64) (result i32) (local $code i32)
  (loop $again (br_if $again (i32.eqz (local.tee $code
    (call $launch (local.get $kernel) (i32.const 1) (i32.const 1) (i32.const 1)
      (i32.const 1) (i32.const 1) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0))))))
  (local.get $code)))
"#;

/// Two guests spin on an import that ends at once, on the thread whose timers must go on.
fn timers_beside_spinners(export: &'static str) {
    within_patience(move || {
        one_thread().block_on(async {
            let (device, _) = FakeDevice::open();
            let setup = Setup::on(device);
            let engine = setup.engine();
            let module = Module::new(&engine, SPINNER).unwrap();
            let mut tasks = JoinSet::new();
            for _ in 0..2 {
                let mut store = setup.store(&engine);
                let instance = linker(&engine)
                    .instantiate_async(&mut store, &module)
                    .await
                    .unwrap();
                let spin: TypedFunc<i64, i32> =
                    instance.get_typed_func(&mut store, export).unwrap();
                let context = &store.data().cuda;
                let device = Arc::clone(context.device().unwrap());
                let owner = context.instance();
                let kit = KIT.as_bytes();
                let trust =
                    host::Trust::Embedder(host::TrustedByEmbedder::i_vouch_for_this_kernel());
                let entry =
                    host::KernelEntry::from_ptx(&device, owner, "k_empty", kit, trust).unwrap();
                let kernel = context.registry.register(entry).unwrap().handle();
                tasks.spawn(async move {
                    let ended = spin.call_async(&mut store, kernel).await;
                    panic!("a spinner ended with {ended:?}");
                });
            }
            let started = Instant::now();
            for _ in 0..50 {
                sleep(Duration::from_millis(1)).await;
            }
            assert!(
                started.elapsed() < Duration::from_secs(5),
                "took {:?}",
                started.elapsed()
            );
            tasks.abort_all();
        });
    });
}

#[test]
fn guests_that_spin_on_sync_do_not_starve_timers() {
    timers_beside_spinners("spin on sync");
}

#[test]
fn guests_that_spin_on_launches_do_not_starve_timers() {
    timers_beside_spinners("spin on launch");
}

/// Drops a launch of `k_forever` after a while, and gives how long dropping took.
async fn cancel_forever(guest: &mut Guest, kernel: i64) -> Duration {
    guest.write_memory(DATA_AT, &[0; 4]);
    let argv = encode(&[ptr(DATA_AT, 4)]);
    let shape = Shape::line(8, 64);
    let mut call = Box::pin(guest.launch_bytes(Way::Plain, kernel, shape, &argv));
    let running = timeout(Duration::from_millis(30), &mut call).await;
    assert!(running.is_err(), "it runs for ever");
    let dropped = Instant::now();
    drop(call);
    dropped.elapsed()
}

/// Waits until the device has let go: on a busy machine a kernel may not have had a turn to stop in when its call has been dropped,
/// which bars the instance for as long.
async fn settle(guest: &mut Guest) {
    let quarantined = AbiError::DeadlineExceeded.code().into();
    let started = Instant::now();
    while guest.call_import(abi::MODULE, abi::FN_SYNC, &[]).await == quarantined {
        assert!(started.elapsed() < PATIENCE, "the kernel does not stop");
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_call_that_is_dropped_stops_its_kernel_and_the_store_goes_on() {
    block_on(async {
        let mut guest = Guest::start(&Setup::default()).await;
        let forever = kernel(&mut guest, "k_forever").await;
        let store = kernel(&mut guest, "k_store").await;
        guest.write_memory(DATA_AT + 64, b"mine");
        let mut fastest = PATIENCE;
        for round in 0..5 {
            fastest = fastest.min(cancel_forever(&mut guest, forever).await);
            settle(&mut guest).await;
            assert_eq!(guest.read_memory(DATA_AT + 64, 4), b"mine");
            let code = launch(&mut guest, store, &[ptr(DATA_AT, 4), Arg::U32(round)]).await;
            assert_eq!(code, 0, "{}", guest.last_text());
            assert_eq!(guest.read_u32(DATA_AT), round);
        }
        assert!(
            fastest < Duration::from_millis(50),
            "dropping took {fastest:?}"
        );
        assert_eq!(guest.cuda().metrics().stopped, 5);
        assert_eq!(guest.call_export("grow", &[Val::I32(1)]).await, 16);
    });
}

#[test]
fn a_call_that_is_dropped_does_not_touch_its_neighbours() {
    workers(2).block_on(async {
        let mut tasks = JoinSet::new();
        for seed in 0..4 {
            tasks.spawn(store_in_turn(Setup::default(), seed, 200));
        }
        for _ in 0..4 {
            tasks.spawn(async {
                let mut guest = Guest::start(&Setup::default()).await;
                let forever = kernel(&mut guest, "k_forever").await;
                for _ in 0..3 {
                    cancel_forever(&mut guest, forever).await;
                    settle(&mut guest).await;
                }
            });
        }
        join_all(tasks).await;
    });
}

#[test]
fn a_call_that_is_dropped_leaves_the_last_failure_as_it_was() {
    block_on(async {
        let mut guest = Guest::start(&Setup::default()).await;
        let forever = kernel(&mut guest, "k_forever").await;
        let trap = kernel(&mut guest, "k_trap").await;
        assert_eq!(
            launch(&mut guest, trap, &[]).await,
            AbiError::KernelTrap.code().into()
        );
        let before = (guest.last_text(), guest.cuda().last_trap());
        assert!(before.1.is_some());
        cancel_forever(&mut guest, forever).await;
        sleep(Duration::from_millis(50)).await;
        assert_eq!((guest.last_text(), guest.cuda().last_trap()), before);
        let argument = LoweredArg::ptr_for_encoding(DATA_AT, 4);
        assert_eq!(guest.cuda().last_lowered_args(), [argument]);
    });
}

#[test]
fn a_task_that_is_aborted_gives_its_memory_back() {
    let device = device::open(Selector::Cpu).unwrap();
    let regions = Arc::clone(device.regions());
    workers(2).block_on(async move {
        let setup = Setup::on(device);
        let (started, mut wait) = tokio::sync::mpsc::channel(1);
        let task = tokio::spawn(async move {
            let mut guest = Guest::start(&setup).await;
            let forever = kernel(&mut guest, "k_forever").await;
            started.send(()).await.unwrap();
            launch(&mut guest, forever, &[ptr(DATA_AT, 4)]).await
        });
        wait.recv().await.unwrap();
        sleep(Duration::from_millis(20)).await;
        assert!(regions.reserved_bytes() > 0);
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        let aborted = Instant::now();
        while regions.reserved_bytes() > 0 {
            assert!(aborted.elapsed() < PATIENCE, "the memory is not given back");
            sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_deadline_stops_a_kernel_that_never_ends() {
    let deadline = Duration::from_millis(50);
    let limits = Limits {
        deadline: Some(deadline),
        ..Limits::default()
    };
    let mut guest = Harness::new(&Setup {
        limits,
        ..Setup::default()
    });
    let forever = guest.kernel(KIT, "k_forever");
    let started = Instant::now();
    let stopped = guest.launch(forever, Shape::line(8, 64), &[ptr(DATA_AT, 4)]);
    let took = started.elapsed();
    guest.assert_refused(
        stopped,
        AbiError::DeadlineExceeded,
        "kernel stopped: its deadline has passed",
    );
    assert!(deadline <= took && took < PATIENCE, "took {took:?}");
    assert_eq!(guest.cuda().metrics().stopped, 1);
    guest.assert_usable();
}

#[test]
fn a_budget_stops_a_kernel_that_never_ends() {
    let limits = Limits {
        budget: Some(100_000),
        deadline: None,
        ..Limits::default()
    };
    let mut guest = Harness::new(&Setup {
        limits,
        ..Setup::default()
    });
    let forever = guest.kernel(KIT, "k_forever");
    let stopped = guest.launch(forever, Shape::ONE, &[ptr(DATA_AT, 4)]);
    guest.assert_refused(
        stopped,
        AbiError::DeadlineExceeded,
        "kernel stopped: its instruction budget is used up",
    );
    guest.assert_usable();
}
