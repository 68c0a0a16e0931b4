//! The neighbour: a thread that launches a kernel, loads, allocates, instantiates and drops, one after the other, times each and
//! looks at each result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use abi::argv::Arg;
use wasmtime::Val;

use super::super::{DATA_AT, Guest, Harness, Setup, Shape, block_on, encode, linker};

/// What the neighbour's kernel takes and gives: `out[i] = 3 * in[i] + add`, by way of shared memory that holds the secret at last.
const KERNEL: &str = r"
.version 7.8
.target sm_80
.address_size 64
.visible .entry triple(.param .u64 in, .param .u64 out, .param .u32 add, .param .u64 secret)
{
  .shared .align 8 .b8 words[32768];
  .reg .b64 %a, %b, %o, %s; .reg .b32 %i, %n, %t, %x, %y, %w; .reg .pred %p;
  ld.param.u64 %a, [in]; ld.param.u64 %b, [out]; ld.param.u32 %y, [add]; ld.param.u64 %s, [secret];
  mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %n, %t;
  mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; add.u64 %b, %b, %o;
  ld.global.u32 %x, [%a];
  mov.u32 %w, words; shl.b32 %n, %t, 2; add.u32 %n, %n, %w;
  st.shared.u32 [%n], %x;
  bar.sync 0;
  ld.shared.u32 %x, [%n];
  mul.lo.u32 %x, %x, 3; add.u32 %x, %x, %y;
  st.global.u32 [%b], %x;
  bar.sync 0;
  shl.b32 %n, %t, 3; add.u32 %n, %n, %w;
  mov.u32 %i, 0;
L:
  st.shared.u64 [%n], %s;
  add.u32 %n, %n, 512; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 64; @%p bra L;
  ret;
}
";
const THREADS: u32 = 64;
const BLOCKS: u32 = 16;
const WORDS: u32 = THREADS * BLOCKS;
const OUT_AT: u32 = DATA_AT + 4 * WORDS;
/// Memory that the neighbour never touches again.
const CANARY_AT: u32 = DATA_AT + 0x8000;
const CANARY_WORDS: u32 = 512;
/// How many launches there are to one of each other call.
const LAUNCHES_A_ROUND: u32 = 32;
const BUFFER_BYTES: i64 = 1 << 20;

/// What the other tenant does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Alone = 0,
    Beside = 1,
    Over = 2,
}

/// The calls that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Launch,
    Load,
    Alloc,
    Instantiate,
    Drop,
}

impl Call {
    pub(crate) const ALL: [Self; 5] = [
        Self::Launch,
        Self::Load,
        Self::Alloc,
        Self::Instantiate,
        Self::Drop,
    ];
}

/// What became of the neighbour.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) alone: BTreeMap<Call, Vec<Duration>>,
    pub(super) beside: BTreeMap<Call, Vec<Duration>>,
    pub(super) problem: Option<String>,
}

/// The neighbour, from outside.
#[derive(Debug)]
pub(super) struct Neighbour {
    phase: Arc<AtomicU8>,
    address: u64,
    secret: u64,
    thread: JoinHandle<Seen>,
}

impl Neighbour {
    /// Starts it and waits until its kernel has run.
    pub(super) fn start(setup: Setup) -> Self {
        let phase = Arc::new(AtomicU8::new(Phase::Alone as u8));
        let secret = random();
        let (tell, told) = channel();
        let thread = thread::spawn({
            let phase = Arc::clone(&phase);
            move || live(&setup, &phase, secret, &tell)
        });
        // A neighbour that cannot even start says why when it is stopped.
        let address = told.recv().unwrap_or(0);
        Self {
            phase,
            address,
            secret,
            thread,
        }
    }

    /// Where memory of its own is in the process.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// What is in that memory, and nowhere else.
    pub(super) fn secret(&self) -> u64 {
        self.secret
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// Waits in a phase.
    pub(super) fn stay(&self, phase: Phase, time: Duration) {
        self.enter(phase);
        thread::sleep(time);
    }

    pub(super) fn stop(self) -> Seen {
        self.enter(Phase::Over);
        let panicked = |_| Seen {
            problem: Some("the neighbour's thread panicked".into()),
            ..Seen::default()
        };
        self.thread.join().unwrap_or_else(panicked)
    }
}

fn random() -> u64 {
    // An identifier of an instance is random too.
    let id = format!("{:?}", host::InstanceId::random().unwrap());
    id.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

struct Life<'a> {
    phase: &'a AtomicU8,
    seen: Seen,
}

impl Life<'_> {
    /// Runs a call; its time counts for the phase in which it ended worst: one that began alone may have ended beside.
    fn time<T>(&mut self, call: Call, run: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = run();
        let took = begin.elapsed();
        let times = if self.is_in(Phase::Alone) {
            &mut self.seen.alone
        } else {
            &mut self.seen.beside
        };
        times.entry(call).or_default().push(took);
        result
    }

    fn is_in(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::SeqCst) == phase as u8
    }
}

/// The neighbour's thread.
fn live(setup: &Setup, phase: &AtomicU8, secret: u64, ready: &Sender<u64>) -> Seen {
    let mut life = Life {
        phase,
        seen: Seen::default(),
    };
    if let Err(problem) = try_live(&mut life, setup, secret, ready) {
        life.seen.problem = Some(problem);
    }
    life.seen
}

fn try_live(
    life: &mut Life<'_>,
    setup: &Setup,
    secret: u64,
    ready: &Sender<u64>,
) -> Result<(), String> {
    let (engine, module) = setup.guest();
    let linker = linker(&engine);
    let start = || {
        block_on(Guest::start_in(
            setup.store(&engine),
            setup.word,
            &linker,
            &module,
        ))
    };
    let mut guest = Harness::of(start().map_err(|error| format!("{error:#}"))?);
    let canary: Vec<u8> = secret
        .to_le_bytes()
        .repeat(usize::try_from(CANARY_WORDS).unwrap());
    guest.write_memory(CANARY_AT, &canary);
    let input: Vec<u8> = (0..WORDS).flat_map(u32::to_le_bytes).collect();
    guest.write_memory(DATA_AT, &input);
    let kernel = load(&mut guest, KERNEL)?;
    check(&mut guest, kernel, 0, secret)?;
    let base = guest.memory.data_ptr(&guest.store).addr() as u64;
    // Whoever waits may have gone.
    ready.send(base + u64::from(CANARY_AT)).unwrap_or_default();

    let mut round = 0_u32;
    while !life.is_in(Phase::Over) {
        round += 1;
        for launch in 0..LAUNCHES_A_ROUND {
            let add = round.wrapping_mul(LAUNCHES_A_ROUND).wrapping_add(launch);
            life.time(Call::Launch, || {
                launch_once(&mut guest, kernel, add, secret)
            })?;
            look(&guest, add)?;
        }
        // A text that no cache knows.
        let text = KERNEL.replace(", 3;", &format!(", {};", random() >> 40));
        let other = life.time(Call::Load, || load(&mut guest, &text))?;
        if guest.call(abi::FN_UNLOAD, &[Val::I64(other)]) != 0 {
            return Err(format!("unload: {}", guest.last_text()));
        }
        life.time(Call::Alloc, || alloc(&mut guest))?;
        let another = life.time(Call::Instantiate, start);
        let another = another.map_err(|error| format!("instantiate: {error:#}"))?;
        life.time(Call::Drop, || drop(another));
        let found = guest.read_memory(CANARY_AT, canary.len());
        if found != canary {
            return Err("its memory has changed".into());
        }
    }
    Ok(())
}

fn load(guest: &mut Harness, text: &str) -> Result<i64, String> {
    let kernel = guest.load(text, "triple");
    if kernel <= 0 {
        return Err(format!("load: {kernel}: {}", guest.last_text()));
    }
    Ok(kernel)
}

fn launch_once(guest: &mut Harness, kernel: i64, add: u32, secret: u64) -> Result<(), String> {
    let len = 4 * WORDS;
    let argv = encode(&[
        Arg::Ptr {
            offset: DATA_AT,
            len,
        },
        Arg::Ptr {
            offset: OUT_AT,
            len,
        },
        Arg::U32(add),
        Arg::U64(secret),
    ]);
    match guest.launch_bytes(kernel, Shape::line(BLOCKS, THREADS), &argv) {
        0 => Ok(()),
        code => Err(format!("launch: {code}: {}", guest.cuda().last_error())),
    }
}

/// The kernel's results are right.
fn look(guest: &Harness, add: u32) -> Result<(), String> {
    let bytes = usize::try_from(4 * WORDS).unwrap();
    let want: Vec<u8> = (0..WORDS)
        .flat_map(|word| word.wrapping_mul(3).wrapping_add(add).to_le_bytes())
        .collect();
    if guest.read_memory(OUT_AT, bytes) != want {
        return Err("a result is wrong".into());
    }
    Ok(())
}

fn check(guest: &mut Harness, kernel: i64, add: u32, secret: u64) -> Result<(), String> {
    launch_once(guest, kernel, add, secret)?;
    look(guest, add)
}

fn alloc(guest: &mut Harness) -> Result<(), String> {
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(BUFFER_BYTES)]);
    if buffer <= 0 || guest.call(abi::FN_FREE, &[Val::I64(buffer)]) != 0 {
        return Err(format!("alloc: {}", guest.last_text()));
    }
    Ok(())
}
