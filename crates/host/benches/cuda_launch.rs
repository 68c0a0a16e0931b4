//! How much longer does a launch take from a guest than from a C program? The same kernel on memory of the same kind, both in
//! one process and in turn: one tenant's times, then the launches a second of sixteen. And what an instance costs, and a
//! guest's own work on such memory.
//!
//! Without a GPU it says so and ends.
#![expect(
    clippy::expect_used,
    reason = "a bench ends where something is not as it must be"
)]

#[path = "../../device/benches/raw/mod.rs"]
#[allow(dead_code, reason = "each bench uses its part of the driver")]
mod raw;
mod tenants;

use std::ffi::CString;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use wasi_cuda::device::HostAddr;
use wasi_cuda::device::cuda::{Compiler, Options};
use wasi_cuda::{InstanceId, Selector};
use wasmtime::{Config, Engine, Instance, Module, Store, TypedFunc};

use raw::{Argument, Driver, Kernel, Kind, Memory, Stream};
use tenants::{BYTES, CHUNK, ELEMENTS, Guest, Prepared, Tenancy, VECADD, nanoseconds};

const TENANTS: usize = 16;

/// Work of a guest on its own memory: what it writes and reads in 1 MiB, `n` times over.
const WORK: &str = r#"
(module
  (memory (export "memory") 17)
  (data (i32.const 0) "data")
  (func (export "sum") (param $n i32) (result i64)
    (local $i i32) (local $sum i64)
    (loop $round
      (local.set $i (i32.const 0))
      (loop $next
        (i64.store (local.get $i) (i64.add (i64.load (local.get $i)) (i64.extend_i32_u (local.get $i))))
        (local.set $sum (i64.add (local.get $sum) (i64.load offset=8 (local.get $i))))
        (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 16))) (i32.const 1048576))))
      (br_if $round (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (local.get $sum)))
"#;

fn full() -> bool {
    let given = |name: &str| std::env::args().any(|argument| argument == name);
    given("--bench") && !given("--test")
}

/// The same launch from a C program.
struct Raw {
    stream: Stream,
    kernel: Kernel,
    memory: Memory,
    arguments: [Argument; 4],
}

impl Raw {
    fn new(driver: &Arc<Driver>, kernel: Kernel) -> Self {
        let memory = driver.memory(Kind::Managed, 3 * BYTES as usize);
        memory.advise_host();
        let Argument::Address(base) = memory.argument() else {
            unreachable!("memory is an address")
        };
        let vector = |index: u64| Argument::Address(base + index * u64::from(BYTES));
        Self {
            stream: driver.stream(),
            kernel,
            memory,
            arguments: [vector(0), vector(1), vector(2), Argument::Word(ELEMENTS)],
        }
    }

    fn once(&self) {
        self.stream.launch(self.kernel, [2, 32], self.arguments);
        self.stream.synchronize();
    }

    fn times(&self, zero: Instant, into: &mut Vec<f64>) {
        let mut before = nanoseconds(zero.elapsed());
        for _ in 0..CHUNK {
            self.once();
            let now = nanoseconds(zero.elapsed());
            into.push((now - before) as f64 / 1e3);
            before = now;
        }
    }
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

fn one_tenant(tenancy: &Tenancy, driver: &Arc<Driver>, kernel: Kernel) -> wasmtime::Result<()> {
    let rounds = if full() { 100 } else { 2 };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut guest = runtime.block_on(Guest::start(tenancy))?;
    let raw = Raw::new(driver, kernel);
    assert!(raw.memory.words().sum() == 0, "new memory");
    let (mut of_guest, mut of_raw) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        runtime.block_on(guest.times(&mut of_guest))?;
        raw.times(tenancy.zero, &mut of_raw);
        if round == 0 {
            of_guest.clear();
            of_raw.clear();
        }
    }
    of_guest.sort_by(f64::total_cmp);
    of_raw.sort_by(f64::total_cmp);
    println!(
        "vector_add of {ELEMENTS}, one tenant, {} launches each, us: guest | raw | ratio",
        of_raw.len()
    );
    for percent in [50, 95, 99] {
        let (ours, theirs) = (percentile(&of_guest, percent), percentile(&of_raw, percent));
        println!(
            "  p{percent:<3} {ours:>8.2} | {theirs:>8.2} | {:>6.3}",
            ours / theirs
        );
    }
    Ok(())
}

/// Launches a second of all raw threads.
fn raw_rate(driver: &Arc<Driver>, kernel: Kernel, tenants: usize, time: Duration) -> f64 {
    let (is_over, launches) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Barrier::new(tenants + 1);
    let mut took = Duration::ZERO;
    std::thread::scope(|scope| {
        for _ in 0..tenants {
            scope.spawn(|| {
                driver.enter();
                let raw = Raw::new(driver, kernel);
                raw.once();
                start.wait();
                while !is_over.load(Ordering::Relaxed) {
                    for _ in 0..50 {
                        raw.once();
                    }
                    launches.fetch_add(50, Ordering::Relaxed);
                }
            });
        }
        start.wait();
        let begin = Instant::now();
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        took = begin.elapsed();
    });
    launches.load(Ordering::Relaxed) as f64 / took.as_secs_f64()
}

/// Launches a second of all guests, on as many worker threads.
fn guest_rate(tenancy: &Arc<Tenancy>, tenants: usize, time: Duration) -> wasmtime::Result<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(tenants)
        .enable_time()
        .build()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let launches = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let mut guests = Vec::new();
        for _ in 0..tenants {
            let mut guest = Guest::start(tenancy).await?;
            let untimed = guest.untimed.clone();
            guest.call(&untimed, 1).await?;
            guests.push(guest);
        }
        let begin = Instant::now();
        let tasks: Vec<_> = guests
            .into_iter()
            .map(|mut guest| {
                let (is_over, launches) = (Arc::clone(&is_over), Arc::clone(&launches));
                tokio::spawn(async move {
                    let untimed = guest.untimed.clone();
                    while !is_over.load(Ordering::Relaxed) {
                        guest.call(&untimed, 50).await?;
                        launches.fetch_add(50, Ordering::Relaxed);
                    }
                    wasmtime::Result::<()>::Ok(())
                })
            })
            .collect();
        tokio::time::sleep(time).await;
        is_over.store(true, Ordering::Relaxed);
        let took = begin.elapsed();
        for task in tasks {
            task.await.expect("a tenant ends")?;
        }
        Ok(launches.load(Ordering::Relaxed) as f64 / took.as_secs_f64())
    })
}

fn many_tenants(
    tenancy: &Arc<Tenancy>,
    driver: &Arc<Driver>,
    kernel: Kernel,
) -> wasmtime::Result<()> {
    let time = Duration::from_millis(if full() { 1_500 } else { 20 });
    println!("launches a second in all: tenants | guests | raw threads | ratio");
    let numbers = if full() {
        vec![1, 4, TENANTS, 4 * TENANTS]
    } else {
        vec![2]
    };
    for tenants in numbers {
        let ours = guest_rate(tenancy, tenants, time)?;
        let theirs = raw_rate(driver, kernel, tenants, time);
        println!(
            "  {tenants:>4} | {ours:>9.0} | {theirs:>9.0} | {:>6.3}",
            ours / theirs
        );
    }
    Ok(())
}

fn instances(engine: &Engine) -> wasmtime::Result<Vec<f64>> {
    let module = Module::new(engine, WORK)?;
    let rounds = if full() { 1_000 } else { 5 };
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begin = Instant::now();
        let mut store = Store::new(engine, ());
        Instance::new(&mut store, &module, &[])?;
        drop(store);
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The same for instances with a context, each of which launches once in between; and how many of them come and go in a second.
/// `pause` is how long there is none after each.
fn launched(
    tenancy: &Tenancy,
    launches: usize,
    pause: Duration,
    rounds: u32,
) -> wasmtime::Result<(Vec<f64>, f64)> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut times = Vec::new();
    let begin = Instant::now();
    for _ in 0..rounds {
        let owner = InstanceId::random()?;
        let mut guest = Guest::prepare(tenancy, owner)?;
        let begin = Instant::now();
        let instance = runtime.block_on(
            tenancy
                .linker
                .instantiate_async(&mut guest.store, &tenancy.module),
        )?;
        let made = begin.elapsed();
        if launches > 0 {
            let mut guest = guest.enter(instance)?;
            let untimed = guest.untimed.clone();
            runtime.block_on(guest.call(&untimed, launches))?;
            let begin = Instant::now();
            drop(guest);
            times.push((made + begin.elapsed()).as_secs_f64() * 1e6);
        } else {
            let begin = Instant::now();
            drop(guest);
            times.push((made + begin.elapsed()).as_secs_f64() * 1e6);
        }
        std::thread::sleep(pause);
    }
    let rate = f64::from(rounds) / begin.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    Ok((times, rate))
}

fn worker(engine: &Engine) -> wasmtime::Result<(Store<()>, TypedFunc<i32, i64>)> {
    let module = Module::new(engine, WORK)?;
    let mut store = Store::new(engine, ());
    let instance = Instance::new(&mut store, &module, &[])?;
    let sum = instance.get_typed_func(&mut store, "sum")?;
    Ok((store, sum))
}

fn beside_stock(tenancy: &Tenancy) -> wasmtime::Result<()> {
    let stock = Engine::new(&Config::new())?;
    println!("instance made and dropped, us: engine | p50 | p95 | p99");
    for (what, engine) in [("ours", &tenancy.engine), ("stock", &stock)] {
        let times = instances(engine)?;
        let of = |percent| percentile(&times, percent);
        println!(
            "  {what:<6} {:>8.1} | {:>8.1} | {:>8.1}",
            of(50),
            of(95),
            of(99)
        );
    }
    for (what, launches, pause, rounds) in [
        ("with a context", 0, Duration::ZERO, 1_000),
        // More than could wait at once for their memory to be given back.
        ("launched once", 1, Duration::ZERO, 10_000),
        (
            "launched once, 1 ms apart",
            1,
            Duration::from_millis(1),
            1_000,
        ),
        ("launched 20 times", 20, Duration::ZERO, 1_000),
    ] {
        let rounds = if full() { rounds } else { 5 };
        let (times, rate) = launched(tenancy, launches, pause, rounds)?;
        let reserved = tenancy.device.regions().reserved_bytes();
        let of = |percent| percentile(&times, percent);
        let [p50, p95, p99] = [50, 95, 99].map(of);
        let waiting = reserved >> 32;
        println!(
            "  {what}: {p50:.1} | {p95:.1} | {p99:.1}; {rate:.0} a second in all, {waiting} not given back at the end"
        );
    }
    let ((mut our_store, ours), (mut stock_store, stocks)) =
        (worker(&tenancy.engine)?, worker(&stock)?);
    let (mut of_ours, mut of_stock) = (Vec::new(), Vec::new());
    let rounds = if full() { 50 } else { 1 };
    for _ in 0..=rounds {
        let begin = Instant::now();
        let sum = ours.call(&mut our_store, 20)?;
        of_ours.push(begin.elapsed().as_secs_f64() * 1e6);
        let begin = Instant::now();
        assert_eq!(stocks.call(&mut stock_store, 20)?, sum);
        of_stock.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    of_ours.sort_by(f64::total_cmp);
    of_stock.sort_by(f64::total_cmp);
    let (ours, stock) = (percentile(&of_ours, 50), percentile(&of_stock, 50));
    let speed = stock / ours;
    println!(
        "a guest's loop over 1 MiB, 20 times, us: ours {ours:.0}, stock {stock:.0}; ours at {speed:.3} of stock's speed"
    );
    Ok(())
}

/// A guest that copies between its memory and a buffer.
const COPYING: &str = r#"
(module
  (import "wasi_cuda" "wasi_cuda_alloc" (func $alloc (param i64) (result i64)))
  (import "wasi_cuda" "wasi_cuda_write" (func $write (param i64 i64 i32 i32) (result i32)))
  (import "wasi_cuda" "wasi_cuda_read" (func $read (param i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 257)
  (func (export "alloc") (param i64) (result i64) (call $alloc (local.get 0)))
  (func (export "write") (param i64 i32) (result i32)
    (call $write (local.get 0) (i64.const 0) (i32.const 0) (local.get 1)))
  (func (export "read") (param i64 i32) (result i32)
    (call $read (local.get 0) (i64.const 0) (i32.const 0) (local.get 1))))
"#;

/// What copies between a guest and a buffer take, beside a C program's from and to pinned memory.
fn copies(tenancy: &Tenancy, driver: &Arc<Driver>) -> wasmtime::Result<()> {
    let module = Module::new(&tenancy.engine, COPYING)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let Prepared { mut store, .. } = Guest::prepare(tenancy, InstanceId::random()?)?;
    let instantiated = tenancy.linker.instantiate_async(&mut store, &module);
    let instance = runtime.block_on(instantiated)?;
    let alloc = instance.get_typed_func::<i64, i64>(&mut store, "alloc")?;
    let [write, read] =
        ["write", "read"].map(|name| instance.get_typed_func::<(i64, i32), i32>(&mut store, name));
    let (write, read) = (write?, read?);
    let sizes = if full() {
        vec![64, 4 << 10, 64 << 10, 1 << 20, 16 << 20]
    } else {
        vec![64]
    };
    let rounds = if full() { 200 } else { 2 };
    let stream = driver.stream();
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        percentile(&times, 50)
    };
    println!("copied to a buffer and back, us, p50: bytes | written | read | raw in | raw out");
    for bytes in sizes {
        let buffer = runtime.block_on(alloc.call_async(&mut store, i64::try_from(bytes)?))?;
        assert!(buffer > 0, "{}", store.data().0.last_error());
        let (pinned, device) = (
            driver.memory(Kind::Pinned, bytes),
            driver.memory(Kind::Device, bytes),
        );
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..rounds {
            for (function, times) in [&write, &read].into_iter().zip(&mut times) {
                let begin = Instant::now();
                let args = (buffer, i32::try_from(bytes)?);
                let code = runtime.block_on(function.call_async(&mut store, args))?;
                times.push(begin.elapsed().as_secs_f64() * 1e6);
                assert_eq!(code, 0, "{}", store.data().0.last_error());
            }
            let begin = Instant::now();
            stream.copy_in(&device, &pinned);
            stream.synchronize();
            times[2].push(begin.elapsed().as_secs_f64() * 1e6);
            let begin = Instant::now();
            stream.copy_out(&pinned, &device);
            stream.synchronize();
            times[3].push(begin.elapsed().as_secs_f64() * 1e6);
        }
        let [written, read, raw_in, raw_out] = times.map(median);
        println!("  {bytes:>9} | {written:>8.1} | {read:>8.1} | {raw_in:>8.1} | {raw_out:>8.1}");
    }
    Ok(())
}

/// What it costs to find out whether a pointer may be passed on.
fn guard(tenancy: &Tenancy) -> wasmtime::Result<()> {
    let (device, rounds) = (&tenancy.device, if full() { 100_000 } else { 10 });
    let module = Module::new(&tenancy.engine, WORK)?;
    let mut store = Store::new(&tenancy.engine, ());
    let instance = Instance::new(&mut store, &module, &[])?;
    let memory = instance.get_memory(&mut store, "memory");
    let base = memory.map(|memory| memory.data_ptr(&store));
    let base = base
        .and_then(HostAddr::from_ptr)
        .expect("the guest's memory");
    let mut plain = vec![0_u8; 65_536];
    let elsewhere = HostAddr::from_ptr(plain.as_mut_ptr()).expect("memory of the host");
    let each = |what: &dyn Fn()| {
        let begin = Instant::now();
        for _ in 0..rounds {
            what();
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
    };
    let hit = each(&|| {
        let region = device.regions().find(black_box(base));
        assert!(region.is_some_and(|region| region.covers(black_box(64), 4_096)));
    });
    let miss = each(&|| {
        assert!(device.regions().find(black_box(elsewhere)).is_none());
        let adopted = device.adopt(elsewhere, black_box(65_536));
        assert!(adopted.is_ok_and(|region| region.is_none()));
    });
    println!(
        "a pointer checked, ns: in memory of the device {hit:.0}, in plain memory that the driver is asked about {miss:.0}"
    );
    Ok(())
}

fn main() -> wasmtime::Result<()> {
    // The device compiles in processes that run this binary.
    wasi_cuda::device::cuda::serve_compiles();
    let options = Options {
        compiler: Compiler::this_program(),
        ..Options::default()
    };
    let device = match wasi_cuda::device::open_with(Selector::Cuda(0), &options) {
        Ok(device) => device,
        Err(error) => {
            println!("not measured: {error}");
            return Ok(());
        }
    };
    println!("{}", device.info().name);
    let driver = Driver::find().expect("the driver of the device");
    let text = CString::new(VECADD)?;
    let kernel = driver.kernel(&text, c"vecadd");
    let tenancy = Arc::new(Tenancy::new(device)?);
    one_tenant(&tenancy, &driver, kernel)?;
    many_tenants(&tenancy, &driver, kernel)?;
    beside_stock(&tenancy)?;
    guard(&tenancy)?;
    copies(&tenancy, &driver)
}
