//! Runs each case in a process of its own: a fault of a kernel ends CUDA for its process, and an endless one never lets
//! it go. No case belongs here.

use std::env;
use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use device::{Error, Selector};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::fake::{self, Library};

/// Names the case that a process runs.
const CASE: &str = "WASI_CUDA_GPU_CASE";
/// The process that looks for devices.
const PROBE: &str = "which devices are there";
/// Whether the process takes guest memory of exactly the guest's size: see [`takes_exact_memory`].
const EXACT: &str = "WASI_CUDA_GPU_CASE_EXACT";
/// A driver on whose device guest memory cannot be guarded: it has no concurrent managed access.
const UNGUARDED: Library = Library {
    script: "attribute.89=0",
    ..Library::ORDINARY
};
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A test: its name and its body, which panics where it fails.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    name: &'static str,
    body: fn(),
    on: On,
    limit: Duration,
    output: Output,
}

impl Case {
    const fn new(name: &'static str, body: fn(), on: On) -> Self {
        Self {
            name,
            body,
            on,
            limit: TIME_LIMIT,
            output: Output::OfFailures,
        }
    }

    /// The same with a time limit of its own, and what it prints is shown though it passes.
    pub(crate) const fn shown(self, limit: Duration) -> Self {
        Self {
            limit,
            output: Output::Always,
            ..self
        }
    }
}

/// When what a case prints is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Always,
    OfFailures,
}

/// What a case runs on.
#[derive(Clone, Copy)]
enum On {
    /// The driver of `fake_libcuda.c`.
    Fake(Library),
    /// So many GPUs.
    Gpus(u32),
    /// A GPU, and the fake driver too.
    Either,
    /// The same, each with guarded guest memory and with memory of exactly the guest's size.
    Memories,
}

/// A case for a GPU.
pub(crate) const fn gpu(name: &'static str, body: fn()) -> Case {
    Case::new(name, body, On::Gpus(1))
}

/// A case for two GPUs.
pub(crate) const fn two_gpus(name: &'static str, body: fn()) -> Case {
    Case::new(name, body, On::Gpus(2))
}

/// A case for a GPU that the fake driver can play too.
pub(crate) const fn either(name: &'static str, body: fn()) -> Case {
    Case::new(name, body, On::Either)
}

/// A case of [`either`] for both kinds of guest memory.
pub(crate) const fn memories(name: &'static str, body: fn()) -> Case {
    Case::new(name, body, On::Memories)
}

/// A case for a driver that does what `script` says.
pub(crate) const fn scripted(name: &'static str, script: &'static str, body: fn()) -> Case {
    let library = Library {
        script,
        ..Library::ORDINARY
    };
    Case::new(name, body, On::Fake(library))
}

/// A case for a given driver.
pub(crate) const fn with_library(name: &'static str, library: Library, body: fn()) -> Case {
    Case::new(name, body, On::Fake(library))
}

/// What the machine has.
#[derive(Clone)]
enum Machine {
    /// None, and why.
    Absent(String),
    /// A driver that does not work, and what it says.
    Broken(String),
    Devices(u32),
}

/// Runs the cases, or, in a process that was started for it, one of them.
pub(crate) fn run(cases: &[Case]) -> ExitCode {
    if let Ok(name) = env::var(CASE) {
        if name == PROBE {
            return probe();
        }
        let Some(case) = cases.iter().find(|case| case.name == name) else {
            eprintln!("there is no case `{name}`");
            return ExitCode::FAILURE;
        };
        (case.body)();
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    let machine = find_machine();
    match &machine {
        Machine::Absent(reason) => eprintln!("no GPU: {reason}"),
        Machine::Broken(reason) => eprintln!("the driver does not work: {reason}"),
        // Cases would wait for each other's kernels.
        Machine::Devices(_) => arguments.test_threads = arguments.test_threads.or(Some(1)),
    }
    let compiler = fake::compiler();
    if let Err(reason) = &compiler {
        eprintln!("no fake driver: {reason}");
    }
    let mut trials = Vec::new();
    for &case in cases {
        let gpus = |kind, count| on_gpus(case, kind, count, &machine);
        let fake = |kind, library| on_fake(case, kind, library, compiler.is_ok());
        match case.on {
            On::Gpus(count) => trials.push(gpus(Memory::Usual, count)),
            On::Fake(library) => trials.push(fake(Memory::Usual, library)),
            On::Either => {
                trials.push(gpus(Memory::Usual, 1));
                trials.push(fake(Memory::Usual, Library::ORDINARY));
            }
            On::Memories => {
                trials.push(gpus(Memory::Usual, 1));
                trials.push(gpus(Memory::Exact, 1));
                trials.push(fake(Memory::Usual, Library::ORDINARY));
                trials.push(fake(Memory::Exact, UNGUARDED));
            }
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    fake::remove_built();
    conclusion.exit_code()
}

/// What guest memory a case runs on.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Exact,
    /// What the device takes by itself.
    Usual,
}

impl Memory {
    fn folder(self) -> &'static str {
        match self {
            Self::Exact => "exact::",
            Self::Usual => "",
        }
    }
}

/// In a child process: whether guest memory of exactly the guest's size is wanted where guarded memory is to be had.
pub(crate) fn takes_exact_memory() -> bool {
    env::var_os(EXACT).is_some()
}

fn on_gpus(case: Case, memory: Memory, count: u32, machine: &Machine) -> Trial {
    let name = format!("gpu::{}{}", memory.folder(), case.name);
    let required = env::var_os("WASI_CUDA_REQUIRE_GPU").is_some_and(|it| it == "1");
    let absent = |kind: &str, reason: String, must_be: bool| {
        Trial::test(name.clone(), move || Err(reason.into()))
            .with_kind(kind)
            .with_ignored_flag(!must_be)
    };
    match machine {
        Machine::Absent(reason) => absent("no GPU", reason.clone(), required),
        Machine::Broken(reason) => absent("broken driver", reason.clone(), true),
        Machine::Devices(found) if *found < count => {
            let reason = format!("{count} GPUs are needed, {found} found");
            absent("too few GPUs", reason, false)
        }
        Machine::Devices(_) => Trial::test(name, move || {
            let mut process = process(case.name);
            if memory == Memory::Exact {
                process.env(EXACT, "1");
            }
            run_child(case, process)
        }),
    }
}

fn on_fake(case: Case, memory: Memory, library: Library, can_build: bool) -> Trial {
    let name = format!("fake::{}{}", memory.folder(), case.name);
    if !can_build {
        let unbuilt = || Err("there is no C compiler".into());
        return Trial::test(name, unbuilt)
            .with_kind("no cc")
            .with_ignored_flag(true);
    }
    Trial::test(name, move || {
        let mut process = process(case.name);
        library.prepare(&mut process)?;
        run_child(case, process)
    })
}

fn process(case: &str) -> Command {
    let this = env::current_exe().unwrap();
    let mut process = Command::new(this);
    process
        .env(CASE, case)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    process
}

/// What a process printed and how it ended.
struct Ended {
    output: String,
    failure: Option<String>,
}

/// Runs a process to its end or to the time limit.
fn finish(mut process: Command, limit: Duration) -> Ended {
    let mut child = process.spawn().unwrap();
    let stdout = read_all(child.stdout.take().unwrap());
    let stderr = read_all(child.stderr.take().unwrap());
    let failure = wait(&mut child, limit);
    let output = stdout.join().unwrap() + &stderr.join().unwrap();
    Ended { output, failure }
}

fn wait(child: &mut Child, limit: Duration) -> Option<String> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (!status.success()).then(|| status.to_string());
        }
        if begin.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some(format!("killed after {} s", limit.as_secs()));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A process that was killed leaves a pipe that ends where it ends.
        pipe.read_to_end(&mut bytes).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn run_child(case: Case, process: Command) -> Result<(), Failed> {
    let Ended { output, failure } = finish(process, case.limit);
    if case.output == Output::Always && failure.is_none() {
        println!("\n{}:\n{output}", case.name);
    }
    match failure {
        None => Ok(()),
        Some(failure) => Err(format!("{failure}\n{output}").into()),
    }
}

fn find_machine() -> Machine {
    let Ended { output, failure } = finish(process(PROBE), TIME_LIMIT);
    let last = output.lines().last().unwrap_or_default().to_owned();
    match (last.split_once(' '), failure) {
        (Some(("devices", count)), None) => Machine::Devices(count.parse().unwrap()),
        (Some(("absent", reason)), None) => Machine::Absent(reason.into()),
        (_, Some(failure)) => Machine::Broken(format!("{failure}: {output}")),
        (_, None) => Machine::Broken(output),
    }
}

/// Prints what [`find_machine`] reads.
fn probe() -> ExitCode {
    let mut count = 0;
    loop {
        match device::open(Selector::Cuda(count)) {
            Ok(_) => count += 1,
            Err(Error::NotAvailable { reason }) if count == 0 => {
                println!("absent {reason}");
                return ExitCode::SUCCESS;
            }
            Err(Error::NotAvailable { .. }) => {
                println!("devices {count}");
                return ExitCode::SUCCESS;
            }
            Err(error) => {
                println!("broken {error}");
                return ExitCode::SUCCESS;
            }
        }
    }
}
