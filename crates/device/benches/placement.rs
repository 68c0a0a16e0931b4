//! Where should memory lie that guest and kernel take turns on? The host writes the input, a kernel reads it and writes as
//! much output, the host reads that: in regions of this library and in the other ways that a C program has, all in one run.
//!
//! Without a GPU it says so and ends.
#![expect(
    clippy::expect_used,
    reason = "a bench ends where something is not as it must be"
)]

extern crate wasi_cuda_device as device;

#[path = "../tests/harness/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the bench uses its part of the harness"
)]
mod harness;
#[allow(dead_code, reason = "each bench uses its part of the driver")]
mod raw;

use std::cell::RefCell;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use device::{
    Arguments, Geometry, IntegerPointers, Launch, LaunchControl, Mode, Region, RegionSpec,
    Selector, Side, Value,
};

use harness::Rig;
use raw::{Argument, Driver, Kernel, Kind, Memory, Stream, Words};

/// Kernels of (input, output, count), `count` a power of two, one thread an element:
/// * `stream`: out[i] = in[i] + 1
/// * `atomics`: out[somewhere] += in[i]
/// * `random`: out[i] = in[somewhere]
/// * `reuse`: out[i] = the sum of 16 elements of the input: the whole input is read 16 times
const KERNELS: &str = r"
.version 7.8
.target sm_80
.address_size 64

.visible .entry stream(.param .u64 in, .param .u64 out, .param .u32 n)
{
  .reg .b64 %a, %b, %o; .reg .b32 %i, %n, %t, %x; .reg .pred %p;
  ld.param.u64 %a, [in]; ld.param.u64 %b, [out]; ld.param.u32 %n, [n];
  mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mul.lo.u32 %i, %i, %t; mov.u32 %t, %tid.x; add.u32 %i, %i, %t;
  setp.ge.u32 %p, %i, %n; @%p ret;
  mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; add.u64 %b, %b, %o;
  ld.global.u32 %x, [%a]; add.u32 %x, %x, 1; st.global.u32 [%b], %x;
  ret;
}

.visible .entry atomics(.param .u64 in, .param .u64 out, .param .u32 n)
{
  .reg .b64 %a, %b, %o; .reg .b32 %i, %n, %t, %x; .reg .pred %p;
  ld.param.u64 %a, [in]; ld.param.u64 %b, [out]; ld.param.u32 %n, [n];
  mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mul.lo.u32 %i, %i, %t; mov.u32 %t, %tid.x; add.u32 %i, %i, %t;
  setp.ge.u32 %p, %i, %n; @%p ret;
  mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; ld.global.u32 %x, [%a];
  mul.lo.u32 %i, %i, 0x9E3779B1; sub.u32 %t, %n, 1; and.b32 %i, %i, %t;
  mul.wide.u32 %o, %i, 4; add.u64 %b, %b, %o;
  red.global.add.u32 [%b], %x;
  ret;
}

.visible .entry random(.param .u64 in, .param .u64 out, .param .u32 n)
{
  .reg .b64 %a, %b, %o; .reg .b32 %i, %n, %t, %x; .reg .pred %p;
  ld.param.u64 %a, [in]; ld.param.u64 %b, [out]; ld.param.u32 %n, [n];
  mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mul.lo.u32 %i, %i, %t; mov.u32 %t, %tid.x; add.u32 %i, %i, %t;
  setp.ge.u32 %p, %i, %n; @%p ret;
  mul.wide.u32 %o, %i, 4; add.u64 %b, %b, %o;
  mul.lo.u32 %i, %i, 0x9E3779B1; sub.u32 %t, %n, 1; and.b32 %i, %i, %t;
  mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
  ld.global.u32 %x, [%a]; st.global.u32 [%b], %x;
  ret;
}

.visible .entry reuse(.param .u64 in, .param .u64 out, .param .u32 n)
{
  .reg .b64 %a, %b, %o, %c; .reg .b32 %i, %n, %t, %x, %k, %s, %m, %d; .reg .pred %p;
  ld.param.u64 %a, [in]; ld.param.u64 %b, [out]; ld.param.u32 %n, [n];
  mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mul.lo.u32 %i, %i, %t; mov.u32 %t, %tid.x; add.u32 %i, %i, %t;
  setp.ge.u32 %p, %i, %n; @%p ret;
  mul.wide.u32 %o, %i, 4; add.u64 %b, %b, %o;
  sub.u32 %m, %n, 1; shr.u32 %d, %n, 4; mov.u32 %k, 0; mov.u32 %s, 0;
L: and.b32 %t, %i, %m; mul.wide.u32 %o, %t, 4; add.u64 %c, %a, %o;
  ld.global.u32 %x, [%c]; add.u32 %s, %s, %x; add.u32 %i, %i, %d; add.u32 %k, %k, 1;
  setp.lt.u32 %p, %k, 16; @%p bra L;
  st.global.u32 [%b], %s;
  ret;
}
";

const ENTRIES: [&str; 4] = ["stream", "atomics", "random", "reuse"];
/// How often `reuse` reads its input.
const PASSES: u32 = 16;
const THREADS: u32 = 256;
/// What the host writes to every word of the input.
const INPUT: u32 = 3;
const WINDOW_BYTES: u64 = 1 << 31;
/// How long a row of the table may take.
const ROW: Duration = Duration::from_secs(5);

fn full() -> bool {
    let given = |name: &str| std::env::args().any(|argument| argument == name);
    given("--bench") && !given("--test")
}

fn blocks(words: usize) -> u32 {
    u32::try_from(words)
        .expect("a small size")
        .div_ceil(THREADS)
}

/// What the sum of the output must be; `None` for outputs that add up over rounds.
fn expected(entry: &str, words: usize) -> Option<u32> {
    let words = u32::try_from(words).expect("a small size");
    match entry {
        "stream" => Some(words.wrapping_mul(INPUT + 1)),
        "random" => Some(words.wrapping_mul(INPUT)),
        "reuse" => Some(words.wrapping_mul(PASSES * INPUT)),
        _ => None,
    }
}

/// A way to share memory: input and output of one size.
trait Way {
    fn write(&self);
    fn run(&self);
    fn sum(&self) -> u32;
}

/// Linear memory of this library.
struct Ours<'a> {
    rig: &'a Rig,
    region: Arc<Region>,
    program: Arc<dyn device::Program>,
    /// What one launch leaves for the next, as a guest's context keeps it.
    launch: RefCell<Arc<Launch>>,
    words: usize,
    moves: Moves,
}

impl<'a> Ours<'a> {
    fn new(rig: &'a Rig, entry: &str, words: usize, moves: Moves) -> Self {
        let bytes = (words as u64 * 8).next_multiple_of(1 << 16);
        let region = rig.device().new_region(RegionSpec {
            window_bytes: WINDOW_BYTES,
            initial_bytes: bytes,
            maximum_bytes: WINDOW_BYTES,
            reserved_bytes: WINDOW_BYTES,
            guard_bytes: 1 << 16,
        });
        Self {
            rig,
            region: region.expect("a region"),
            program: rig.load(KERNELS, entry),
            launch: RefCell::default(),
            words,
            moves,
        }
    }

    /// Moves input and output as a guest's hint does.
    fn prefetch(&self, side: Side) {
        let (sender, receiver) = channel();
        let done = Box::new(move |moved| sender.send(moved).expect("somebody waits"));
        let region = Arc::clone(&self.region);
        let bytes = self.words as u64 * 8;
        self.rig.device().prefetch(region, 0..bytes, side, done);
        let moved = receiver.recv().expect("the device answers");
        moved.expect("memory that can be moved");
    }

    fn output_at(&self) -> u64 {
        self.words as u64 * 4
    }
}

impl Way for Ours<'_> {
    fn write(&self) {
        Words::of_region(&self.region, 0, self.words).write(INPUT);
    }

    fn run(&self) {
        if self.moves == Moves::Prefetched {
            self.prefetch(Side::Device);
        }
        let len = self.words as u64 * 4;
        let count = u32::try_from(self.words).expect("a small size");
        let values = [
            Value::Pointer { offset: 0, len },
            Value::Pointer {
                offset: self.output_at(),
                len,
            },
            Value::U32(count),
        ];
        let (grid, block) = ([blocks(self.words), 1, 1], [THREADS, 1, 1]);
        let limits = &self.rig.device().info().limits;
        let attributes = self.program.attributes();
        let geometry = Geometry::new(grid, block, 0, Mode::Plain, limits, Some(attributes));
        let geometry = geometry.expect("a geometry in order");
        let pointers = IntegerPointers::Refuse;
        let arguments = Arguments::new(&values, attributes, pointers);
        let arguments = arguments.expect("arguments in order");
        let region = Some(&self.region);
        let control = LaunchControl::default();
        let mut slot = self.launch.borrow_mut();
        let prepared = Launch::prepare(&mut slot, geometry, arguments, region, control);
        prepared.expect("memory of the device");
        let completion = Arc::clone(&slot).start(Arc::clone(&self.program));
        completion.wait().expect("a kernel without faults");
        if self.moves == Moves::Prefetched {
            self.prefetch(Side::Host);
        }
    }

    fn sum(&self) -> u32 {
        Words::of_region(&self.region, self.output_at(), self.words).sum()
    }
}

/// Managed memory of a C program.
struct Managed {
    stream: Stream,
    kernel: Kernel,
    input: Memory,
    output: Memory,
    words: usize,
    moves: Moves,
}

#[derive(Clone, Copy, PartialEq)]
enum Moves {
    /// By page faults.
    Never,
    /// To the device before the kernel, to the host after it.
    Prefetched,
    /// The device reaches it where it is.
    Advised,
}

fn launch(stream: &Stream, kernel: Kernel, input: &Memory, output: &Memory, words: usize) {
    let count = Argument::Word(u32::try_from(words).expect("a small size"));
    let arguments = [input.argument(), output.argument(), count];
    stream.launch(kernel, [blocks(words), THREADS], arguments);
}

impl Managed {
    fn new(driver: &Arc<Driver>, kernel: Kernel, words: usize, moves: Moves) -> Self {
        let [input, output] = [(); 2].map(|()| driver.memory(Kind::Managed, words * 4));
        if moves == Moves::Advised {
            input.advise_host();
            output.advise_host();
        }
        Self {
            stream: driver.stream(),
            kernel,
            input,
            output,
            words,
            moves,
        }
    }
}

impl Way for Managed {
    fn write(&self) {
        self.input.words().write(INPUT);
    }

    fn run(&self) {
        let (stream, memories) = (&self.stream, [&self.input, &self.output]);
        if self.moves == Moves::Prefetched {
            for memory in memories {
                stream.prefetch(memory, Side::Device);
            }
        }
        launch(stream, self.kernel, &self.input, &self.output, self.words);
        if self.moves == Moves::Prefetched {
            for memory in memories {
                stream.prefetch(memory, Side::Host);
            }
        }
        stream.synchronize();
    }

    fn sum(&self) -> u32 {
        self.output.words().sum()
    }
}

/// Pinned memory of the host, and copies of it on the device.
struct Copied {
    stream: Stream,
    kernel: Kernel,
    host: [Memory; 2],
    device: [Memory; 2],
    words: usize,
}

impl Copied {
    fn new(driver: &Arc<Driver>, kernel: Kernel, words: usize) -> Self {
        let both = |kind| [(); 2].map(|()| driver.memory(kind, words * 4));
        Self {
            stream: driver.stream(),
            kernel,
            host: both(Kind::Pinned),
            device: both(Kind::Device),
            words,
        }
    }
}

impl Way for Copied {
    fn write(&self) {
        self.host[0].words().write(INPUT);
    }

    fn run(&self) {
        let [input, output] = &self.device;
        self.stream.copy_in(input, &self.host[0]);
        launch(&self.stream, self.kernel, input, output, self.words);
        self.stream.copy_out(&self.host[1], output);
        self.stream.synchronize();
    }

    fn sum(&self) -> u32 {
        self.host[1].words().sum()
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn round_trip(way: &dyn Way, want: Option<u32>) -> f64 {
    let begin = Instant::now();
    way.write();
    way.run();
    let sum = way.sum();
    let took = begin.elapsed();
    if let Some(want) = want {
        assert_eq!(sum, want, "what the kernel computed");
    }
    microseconds(took)
}

const WAYS: [&str; 6] = [
    "ours",
    "ours, moved",
    "advised",
    "default",
    "prefetched",
    "pinned+copies",
];
/// Of them, those of this library.
const OURS: usize = 2;

fn table(rig: &Rig, driver: &Arc<Driver>, sizes: &[usize]) {
    let text = CString::new(KERNELS).expect("a text without NUL");
    println!(
        "round trip: host writes, kernel, host reads; medians in us, and ours to the best other"
    );
    print!("{:<8} | {:>11}", "kernel", "bytes");
    for way in WAYS {
        print!(" | {way:>13}");
    }
    println!(" | ours/best");
    for entry in ENTRIES {
        let name = CString::new(entry).expect("a name without NUL");
        let kernel = driver.kernel(&text, &name);
        for &bytes in sizes {
            let words = bytes / 4;
            let managed = |moves| Box::new(Managed::new(driver, kernel, words, moves));
            let ways: [Box<dyn Way + '_>; WAYS.len()] = [
                Box::new(Ours::new(rig, entry, words, Moves::Advised)),
                Box::new(Ours::new(rig, entry, words, Moves::Prefetched)),
                managed(Moves::Advised),
                managed(Moves::Never),
                managed(Moves::Prefetched),
                Box::new(Copied::new(driver, kernel, words)),
            ];
            let rounds = match bytes {
                _ if !full() => 2,
                0..=65_536 => 200,
                65_537..=4_194_304 => 50,
                _ => 7,
            };
            let mut times: [Vec<f64>; WAYS.len()] = Default::default();
            let begin = Instant::now();
            // The first round makes pages and is not counted.
            for round in 0..=rounds {
                if round > 2 && begin.elapsed() > ROW {
                    break;
                }
                for (way, times) in ways.iter().zip(&mut times) {
                    // Some ways leave the processor asleep and its caches cold. The first of two trips pays for that.
                    round_trip(&**way, expected(entry, words));
                    let time = round_trip(&**way, expected(entry, words));
                    if round > 0 {
                        times.push(time);
                    }
                }
            }
            let medians = times.map(median);
            let [ours, others] = [&medians[..OURS], &medians[OURS..]];
            let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
            let ratio = least(ours) / least(others);
            print!("{entry:<8} | {bytes:>11}");
            for time in medians {
                print!(" | {time:>13.1}");
            }
            println!(" | {ratio:>9.2}");
        }
    }
}

/// How fast a kernel passes over memory again and again, by where the memory is.
fn bandwidth(rig: &Rig, driver: &Arc<Driver>, bytes: usize) {
    let text = CString::new(KERNELS).expect("a text without NUL");
    let kernel = driver.kernel(&text, c"reuse");
    let words = bytes / 4;
    let stream = driver.stream();
    let rate = |times: Vec<f64>| {
        let moved = bytes as f64 * f64::from(PASSES + 1);
        moved / median(times) / 1e3
    };
    let rounds = if full() { 20 } else { 1 };
    println!("reuse alone, {bytes} bytes read {PASSES} times and written once, GB/s:");
    for (what, kind, moves) in [
        ("device memory", Kind::Device, Moves::Never),
        ("managed, prefetched", Kind::Managed, Moves::Prefetched),
        ("managed, advised", Kind::Managed, Moves::Advised),
    ] {
        let [input, output] = [(); 2].map(|()| driver.memory(kind, bytes));
        match moves {
            Moves::Prefetched => [&input, &output].map(|it| stream.prefetch(it, Side::Device)),
            Moves::Advised => [&input, &output].map(Memory::advise_host),
            Moves::Never => [(), ()],
        };
        let once = || {
            let begin = Instant::now();
            launch(&stream, kernel, &input, &output, words);
            stream.synchronize();
            microseconds(begin.elapsed())
        };
        once();
        println!(
            "  {what:<20} {:>8.0}",
            rate((0..rounds).map(|_| once()).collect())
        );
    }
    let ours = Ours::new(rig, "reuse", words, Moves::Advised);
    ours.write();
    for (what, side) in [("ours", Side::Host), ("ours, prefetched", Side::Device)] {
        ours.prefetch(side);
        let once = || {
            let begin = Instant::now();
            ours.run();
            microseconds(begin.elapsed())
        };
        once();
        let times = (0..rounds).map(|_| once()).collect();
        println!("  {what:<20} {:>8.0}", rate(times));
    }
}

fn main() {
    let device = match device::open(Selector::Cuda(0)) {
        Ok(device) => device,
        Err(error) => {
            println!("not measured: {error}");
            return;
        }
    };
    let driver = Driver::find().expect("the driver of the device");
    let rig = Rig::new(device);
    if full() {
        let sizes = [256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20];
        table(&rig, &driver, &sizes);
        // Half a millisecond, of which waking a thread is a part, and two.
        bandwidth(&rig, &driver, 128 << 20);
        bandwidth(&rig, &driver, 512 << 20);
    } else {
        table(&rig, &driver, &[256, 64 << 10]);
        bandwidth(&rig, &driver, 1 << 20);
    }
}
