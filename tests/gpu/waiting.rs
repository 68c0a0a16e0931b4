//! Many instances that wait at once: without threads of their own, and without keeping the runtime from its timers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use abi::argv::Arg;
use tokio::task::LocalSet;
use wasmtime::{Module, Val};

use crate::harness::{DATA_AT, Guest, KIT, Shape, Way, block_on, encode, linker, u32_val};
use crate::rig::{assert_sound, guest, guest_text, trusted};
use crate::runner::{Case, either, scripted};

pub(crate) const CASES: &[Case] = &[
    either(
        "sixty_four_instances_wait_on_no_threads_of_their_own",
        sixty_four_instances_wait_on_no_threads_of_their_own,
    ),
    either(
        "more_launches_than_a_device_runs_at_once_all_end",
        more_launches_than_a_device_runs_at_once_all_end,
    ),
    scripted(
        "buffers_keep_nobody_waiting",
        "copy_ms=300",
        buffers_keep_nobody_waiting,
    ),
];

const SPIN: Duration = Duration::from_millis(300);
/// More than a busy machine is ever late, less than a kernel takes.
const LATE: Duration = Duration::from_millis(150);

/// Threads of this process.
fn threads() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"));
    line.unwrap().trim().parse().unwrap()
}

/// Ticks of a timer of a millisecond, and the longest time between two.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    count: u32,
    longest: Duration,
    most_threads: u32,
}

async fn tick(until: Rc<Cell<bool>>) -> Ticks {
    let mut interval = tokio::time::interval(Duration::from_millis(1));
    let mut last = Instant::now();
    let mut ticks = Ticks {
        count: 0,
        longest: Duration::ZERO,
        most_threads: 0,
    };
    while !until.get() {
        interval.tick().await;
        ticks.longest = ticks.longest.max(last.elapsed());
        last = Instant::now();
        ticks.count += 1;
        if ticks.count.is_multiple_of(16) {
            ticks.most_threads = ticks.most_threads.max(threads());
        }
    }
    ticks
}

fn sixty_four_instances_wait_on_no_threads_of_their_own() {
    wait_for(64);
}

/// A device runs 128 grids at once; the other launches begin as those end.
fn more_launches_than_a_device_runs_at_once_all_end() {
    wait_for(150);
}

/// As many instances as `instances` launch at once, and a timer ticks meanwhile.
fn wait_for(instances: usize) {
    let setup = trusted();
    let engine = setup.engine();
    let module = Module::new(&engine, guest_text(4)).unwrap();
    let linker = linker(&engine);
    let nanoseconds = u64::try_from(SPIN.as_nanos()).unwrap();
    let argv = encode(&[Arg::U64(nanoseconds)]);
    let ticks = block_on(LocalSet::new().run_until(async {
        let mut guests = Vec::new();
        for _ in 0..instances {
            let started = Guest::start_in(setup.store(&engine), setup.word, &linker, &module);
            let mut guest = started.await.unwrap();
            let [empty, spin] = ["k_empty", "k_spin"].map(str::as_bytes);
            let empty = guest.load_bytes(KIT.as_bytes(), empty).await;
            let warm = guest.launch_bytes(Way::Plain, empty, Shape::ONE, &[]).await;
            assert_eq!(warm, 0, "{}", guest.last_text());
            let kernel = guest.load_bytes(KIT.as_bytes(), spin).await;
            guests.push((guest, kernel));
        }
        let before = threads();
        let begin = Instant::now();
        let is_over = Rc::new(Cell::new(false));
        let ticker = tokio::task::spawn_local(tick(Rc::clone(&is_over)));
        let waiting: Vec<_> = guests
            .into_iter()
            .map(|(mut guest, kernel)| {
                let argv = argv.clone();
                tokio::task::spawn_local(async move {
                    let code = guest
                        .launch_bytes(Way::Plain, kernel, Shape::ONE, &argv)
                        .await;
                    assert_eq!(code, 0, "{}", guest.last_text());
                })
            })
            .collect();
        for waiting in waiting {
            waiting.await.unwrap();
        }
        let took = begin.elapsed();
        is_over.set(true);
        let ticks = ticker.await.unwrap();
        println!(
            "{instances} kernels of {SPIN:?} took {took:?}: {ticks:?}, {before} threads before"
        );
        assert!(took >= SPIN);
        assert!(ticks.most_threads <= before, "{ticks:?}, {before} before");
        ticks
    }));
    assert!(ticks.longest < LATE, "{ticks:?}");
    assert!(ticks.count >= 30, "{ticks:?}");
    assert_sound(&mut guest());
}

/// Making a buffer, writing and reading take the driver so long that the runtime's only thread would not get to its timer.
fn buffers_keep_nobody_waiting() {
    let setup = trusted();
    let engine = setup.engine();
    let module = Module::new(&engine, guest_text(4)).unwrap();
    let linker = linker(&engine);
    let ticks = block_on(LocalSet::new().run_until(async {
        let started = Guest::start_in(setup.store(&engine), setup.word, &linker, &module);
        let mut guest = started.await.unwrap();
        let is_over = Rc::new(Cell::new(false));
        let ticker = tokio::task::spawn_local(tick(Rc::clone(&is_over)));
        let begin = Instant::now();
        let buffer = guest
            .call_import(abi::MODULE, abi::FN_ALLOC, &[Val::I64(8)])
            .await;
        assert!(buffer > 0, "{}", guest.last_text());
        guest.write_memory(DATA_AT, b"in, out.");
        for (import, at) in [(abi::FN_WRITE, DATA_AT), (abi::FN_READ, DATA_AT + 8)] {
            let copy = [Val::I64(buffer), Val::I64(0), u32_val(at), u32_val(8)];
            assert_eq!(
                guest.call_import(abi::MODULE, import, &copy).await,
                0,
                "{}",
                guest.last_text()
            );
        }
        assert_eq!(guest.read_memory(DATA_AT + 8, 8), b"in, out.");
        assert!(begin.elapsed() >= 3 * SPIN);
        is_over.set(true);
        ticker.await.unwrap()
    }));
    assert!(ticks.longest < LATE, "{ticks:?}");
    assert!(ticks.count >= 30, "{ticks:?}");
}
