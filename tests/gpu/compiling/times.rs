//! What it costs to compile in a process of its own, and what it saves others: tables of in-process against child, each in one run. No text is
//! compiled twice, so that no cache of the driver's in memory answers; `CUDA_CACHE_DISABLE=1` turns off the one on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use device::cuda::{Compiler, Options};
use device::{Device, Module, Selector};
use ptx::Admitted;
use wasmtime::Val;

use crate::harness::tenants::class;
use crate::harness::{Harness, KIT, Shape};
use crate::rig::{WORD, trusted_on};

/// Kernels from the quickest to compile to the slowest.
const TEXTS: [(&str, &str); 5] = [
    (
        "vecadd",
        include_str!("../../../fixtures/corpus/cuda/vecadd.sm_75.ptx"),
    ),
    (
        "mandelbrot",
        include_str!("../../../fixtures/corpus/cuda/mandelbrot.sm_75.ptx"),
    ),
    (
        "matmul_reg",
        include_str!("../../../fixtures/corpus/cuda/matmul_reg.sm_80.ptx"),
    ),
    (
        "libm_f64",
        include_str!("../../../fixtures/corpus/cuda/libm_f64.sm_75.ptx"),
    ),
    (
        "sha256",
        include_str!("../../../fixtures/corpus/cuda/sha256.sm_75.ptx"),
    ),
];
const ROUNDS: usize = 5;

fn open(compiler: Compiler) -> Arc<dyn Device> {
    let options = Options {
        compiler,
        ..Options::default()
    };
    device::open_with(Selector::Cuda(0), &options).unwrap()
}

/// The text, read, as nobody has seen it before.
fn unseen(text: &str) -> Admitted {
    static NUMBER: AtomicU32 = AtomicU32::new(0);

    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let text = format!("{text}\n// {number}\n");
    Admitted::trusted(ptx::read(text.as_bytes()).unwrap(), WORD)
}

fn load(device: &Arc<dyn Device>, text: &str) -> (Duration, Arc<dyn Module>) {
    let program = unseen(text);
    let begin = Instant::now();
    let module = device.load(&program).unwrap();
    (begin.elapsed(), module)
}

fn median(device: &Arc<dyn Device>, text: &str) -> Duration {
    let mut times: Vec<_> = (0..ROUNDS).map(|_| load(device, text).0).collect();
    times.sort_unstable();
    times[ROUNDS / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) fn of_loads() {
    let within = open(Compiler::InProcess);
    let apart = open(Compiler::this_program());
    // The first load of a process pays for what the driver makes then, wherever the text is compiled.
    load(&within, KIT);
    let (first, _) = load(&apart, KIT);
    println!(
        "the first load, with the start of the child: {:.1} ms",
        ms(first)
    );
    println!(
        "{:<12} {:>14} {:>14}",
        "load of", "in process, ms", "in a child, ms"
    );
    for (name, text) in TEXTS {
        let [within, apart] = [&within, &apart].map(|device| ms(median(device, text)));
        println!("{name:<12} {within:>14.1} {apart:>14.1}");
    }
}

/// What a neighbour saw while a text was compiled.
#[derive(Default)]
struct Seen {
    launches: u32,
    launch: Duration,
    buffer: Duration,
    load: Duration,
}

fn neighbour(device: &Arc<dyn Device>, until: &AtomicBool) -> Seen {
    let mut guest = Harness::new(&trusted_on(Arc::clone(device)));
    let kernel = guest.kernel(KIT, "k_empty");
    let mut seen = Seen::default();
    let mut worst = |place: fn(&mut Seen) -> &mut Duration, work: &mut dyn FnMut()| {
        let begin = Instant::now();
        work();
        let longest = place(&mut seen);
        *longest = begin.elapsed().max(*longest);
    };
    let mut rounds = 0_u32;
    while !until.load(Ordering::Relaxed) {
        worst(|seen| &mut seen.launch, &mut || {
            assert_eq!(guest.launch(kernel, Shape::ONE, &[]), 0);
        });
        if rounds.is_multiple_of(16) {
            worst(|seen| &mut seen.buffer, &mut || {
                let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(1 << 20)]);
                assert!(buffer > 0, "{}", guest.last_text());
                assert_eq!(guest.call(abi::FN_FREE, &[Val::I64(buffer)]), 0);
            });
        }
        if rounds.is_multiple_of(256) {
            worst(|seen| &mut seen.load, &mut || {
                load(device, TEXTS[0].1);
            });
        }
        rounds += 1;
    }
    seen.launches = rounds;
    seen
}

pub(super) fn beside_a_bomb() {
    let bomb = class("jit_bomb").text;
    println!("a neighbour's longest, in ms, while a text that is slow to compile is loaded");
    println!(
        "{:<12} {:>8} {:>9} {:>8} {:>8} {:>8}",
        "compiled", "load, ms", "launches", "launch", "buffer", "load"
    );
    for (name, compiler) in [
        ("nothing", None),
        ("in process", Some(Compiler::InProcess)),
        ("in a child", Some(Compiler::this_program())),
    ] {
        let device = open(compiler.clone().unwrap_or_else(Compiler::this_program));
        load(&device, KIT);
        let is_over = AtomicBool::new(false);
        let (took, seen) = thread::scope(|scope| {
            let neighbour = scope.spawn(|| neighbour(&device, &is_over));
            thread::sleep(Duration::from_millis(300));
            let took = match compiler {
                None => {
                    thread::sleep(Duration::from_secs(1));
                    None
                }
                Some(_) => Some(load(&device, &bomb).0),
            };
            is_over.store(true, Ordering::Relaxed);
            (took, neighbour.join().unwrap())
        });
        let took = took.map_or_else(|| "-".to_owned(), |took| format!("{:.0}", ms(took)));
        let [launch, buffer, load] = [seen.launch, seen.buffer, seen.load].map(ms);
        println!(
            "{name:<12} {took:>8} {:>9} {launch:>8.2} {buffer:>8.2} {load:>8.2}",
            seen.launches
        );
    }
}
