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

use crate::harness::tenants::classes::slow_to_compile;
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

/// The median of some loads, and what the compiler made of each entry.
fn measured(device: &Arc<dyn Device>, text: &str) -> (Duration, Vec<(u32, u32)>) {
    let mut times: Vec<_> = (0..ROUNDS).map(|_| load(device, text).0).collect();
    times.sort_unstable();
    let (_, module) = load(device, text);
    let entries = ptx::read(text.as_bytes()).unwrap();
    let entries = entries.entries().iter().map(|signature| {
        let program = module.entry(&signature.entry).unwrap();
        let attributes = program.attributes();
        (attributes.registers, attributes.local_bytes)
    });
    (times[ROUNDS / 2], entries.collect())
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
        "{:<12} {:>14} {:>14}  registers and local bytes of each entry",
        "load of", "in process, ms", "in a child, ms"
    );
    for (name, text) in TEXTS {
        let [within, apart] = [&within, &apart].map(|device| measured(device, text));
        let same = if within.1 == apart.1 {
            "the same".to_owned()
        } else {
            format!("in process {:?}, in a child", within.1)
        };
        println!(
            "{name:<12} {:>14.1} {:>14.1}  {same}: {:?}",
            ms(within.0),
            ms(apart.0),
            apart.1
        );
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

/// A text that takes the compiler a second or more.
fn slow(device: &Arc<dyn Device>) -> String {
    let sizes = (0..8).map(|doubled| 500 << doubled);
    let texts = sizes.map(|blocks| slow_to_compile(500, blocks));
    let mut slow = texts.skip_while(|text| load(device, text).0 < Duration::from_secs(1));
    slow.next().expect("a text that is slow to compile")
}

pub(super) fn beside_a_bomb() {
    let bomb = slow(&open(Compiler::InProcess));
    println!("a neighbour's longest, in ms, while a text is loaded");
    println!(
        "{:<26} {:>8} {:>9} {:>8} {:>8} {:>8}",
        "the text is", "load, ms", "launches", "launch", "buffer", "load"
    );
    let child = Compiler::this_program;
    // The last child is started by the load itself, and the neighbour's kernels are compiled elsewhere.
    for (name, compiler, text, is_started) in [
        ("none", child(), None, true),
        ("slow, in process", Compiler::InProcess, Some(&*bomb), true),
        ("slow, in a child", child(), Some(&*bomb), true),
        ("quick, child starts for it", child(), Some(KIT), false),
    ] {
        let device = open(compiler);
        let others = if is_started {
            load(&device, KIT);
            Arc::clone(&device)
        } else {
            open(Compiler::InProcess)
        };
        let is_over = AtomicBool::new(false);
        let (took, seen) = thread::scope(|scope| {
            let neighbour = scope.spawn(|| neighbour(&others, &is_over));
            thread::sleep(Duration::from_millis(300));
            let took = match text {
                None => {
                    thread::sleep(Duration::from_secs(1));
                    "-".to_owned()
                }
                Some(text) => format!("{:.0}", ms(load(&device, text).0)),
            };
            is_over.store(true, Ordering::Relaxed);
            (took, neighbour.join().unwrap())
        });
        let [launch, buffer, load] = [seen.launch, seen.buffer, seen.load].map(ms);
        println!(
            "{name:<26} {took:>8} {:>9} {launch:>8.2} {buffer:>8.2} {load:>8.2}",
            seen.launches
        );
        // Its child ends before the next row.
        drop((device, others));
        thread::sleep(Duration::from_millis(300));
    }
}
