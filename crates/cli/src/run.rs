//! `wasi-cuda run`: a guest in a store with WASI, a device and limits, and what became of it as an exit code.

mod guest;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use device::Device;
use host::{EngineOptions, HasWasiCuda, InstanceId, Isolation, WasiCudaContext};
use wasmtime::{Engine, Store, Trap, WasmBacktrace};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::device_choice::{CompilerChoice, DeviceChoice, announce, choose};
use crate::memory_limit::MemoryLimit;
use crate::metrics;
use crate::parse::{self, IsolationChoice, Preopen, Variable};
use crate::{FAILED, TIMED_OUT, say};

use guest::{Kind, Text};

/// What a kernel may run longer than the whole guest may: the limit on the guest is the one that fires and is reported.
const KERNEL_GRACE: Duration = Duration::from_secs(1);

const HELP: &str = "\
Examples:
  wasi-cuda run vector_add.wat
  wasi-cuda run --device cpu --timeout 5s --max-memory 256M guest.wasm
  wasi-cuda run --dir ./data::/data --env LEVEL=3 guest.wasm --input /data/in.bin

Exit codes:
  0 to 125   the guest's own
  124        --timeout ended it
  126        it trapped, or it could not be run, or the command line is wrong";

/// Run a guest: a WASI program that may launch CUDA kernels.
///
/// A guest is a module (WASI preview 1, imports of `wasi_cuda`) or a component (WASI preview 2, imports of `wasi-cuda:cuda`).
/// The guest sees the arguments after its file name, this process's stdin, stdout and stderr, and of files and
/// environment only what --dir and --env give it. Which device runs its kernels is said on stderr.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, override_usage = "wasi-cuda run [OPTIONS] GUEST [ARGS]...")]
pub(crate) struct Args {
    /// The device that runs the guest's kernels.
    #[arg(long, value_enum, default_value_t)]
    device: DeviceChoice,

    /// Where a GPU's driver compiles kernels.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t)]
    compiler: CompilerChoice,

    /// Let the guest use a folder, as GUEST or under the name it has here. May be given again.
    #[arg(long = "dir", value_name = "HOST[::GUEST]", value_parser = parse::preopen)]
    dirs: Vec<Preopen>,

    /// Set an environment variable for the guest; it gets no others. May be given again.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::variable)]
    env: Vec<Variable>,

    /// Most memory of the guest, from 64K to 4G; `memory.grow` past it answers -1. A module's device buffers share the same
    /// room, rounded up to a power of two; a component's have room of their own.
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse::memory_bytes)]
    max_memory: u64,

    /// Most time for the guest and its kernels, such as 500ms, 5s or 2m. Without it, the guest may run
    /// for ever and each kernel for 10 seconds.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    timeout: Option<Duration>,

    /// What becomes of a kernel's access outside the guest's memory; by default the CPU device reports it and a GPU confines it.
    #[arg(long, value_enum, value_name = "LEVEL")]
    isolation: Option<IsolationChoice>,

    /// Let Prometheus read what is counted, at http://ADDRESS:PORT/metrics. A port alone is open to this machine only; 0 takes
    /// any that is free. The address is said on stderr.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,

    /// Do not say which device is used.
    #[arg(short, long)]
    quiet: bool,

    /// The guest, a WebAssembly module or component in binary or text form, and all that is to be its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "GUEST [ARGS]")]
    guest_and_args: Vec<String>,
}

/// What to run, with what: all that the flags stand for, looked up once.
struct Config {
    guest: PathBuf,
    device: Option<Arc<dyn Device>>,
    isolation: Option<Isolation>,
    memory_bytes: u64,
    timeout: Option<Duration>,
    quiet: bool,
    metrics: Option<SocketAddr>,
    wasi: WasiP1Ctx,
}

impl Config {
    fn resolve(args: &Args) -> anyhow::Result<Self> {
        let guest = args.guest_and_args.first().context("no guest")?;
        let device = choose(args.device, args.compiler)?;
        let isolation = args.isolation.map(IsolationChoice::isolation);
        let mut wasi = WasiCtxBuilder::new();
        wasi.inherit_stdio().args(&args.guest_and_args);
        for Variable { name, value } in &args.env {
            wasi.env(name, value);
        }
        for Preopen { host, guest: name } in &args.dirs {
            let opened = wasi.preopened_dir(host, name, FsPerms::ReadWrite);
            opened
                .map_err(anyhow::Error::from)
                .with_context(|| format!("--dir {}", host.display()))?;
        }
        Ok(Self {
            guest: guest.into(),
            device,
            isolation,
            memory_bytes: args.max_memory,
            timeout: args.timeout,
            quiet: args.quiet,
            metrics: args.metrics,
            wasi: wasi.build_p1(),
        })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let config = Config::resolve(args)?;
    // The guest runs on this thread; the other one keeps the time, whatever the guest does.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(execute(config));
    // A read that the guest waited for may never end.
    runtime.shutdown_background();
    outcome
}

/// What the store holds.
pub(crate) struct State {
    wasi: WasiP1Ctx,
    cuda: WasiCudaContext,
    limit: MemoryLimit,
}

impl HasWasiCuda for State {
    fn wasi_cuda(&self) -> &WasiCudaContext {
        &self.cuda
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

async fn execute(config: Config) -> anyhow::Result<u8> {
    if let Some(address) = config.metrics {
        metrics::serve(address).await?;
    }
    let name = config.guest.display().to_string();
    let text = Text::read(&config.guest)?;
    let engine = engine(&config, text.kind)?;
    let linked = text
        .link(&engine)
        .map_err(anyhow::Error::from)
        .with_context(|| name.clone())?;

    if !config.quiet {
        announce(config.device.as_ref());
    }
    let timeout = config.timeout;
    let mut store = Store::new(&engine, state(config)?);
    store.limiter(|state| &mut state.limit);
    if let Some(timeout) = timeout {
        // Traps guest code at the first tick of the epoch, of which there is one.
        store.set_epoch_deadline(1);
        tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            engine.increment_epoch();
        });
    }
    let guest = linked.run(&mut store);
    // Epochs end guest code, this ends what guest code waits for.
    let ended = match timeout {
        None => guest.await,
        Some(timeout) => match tokio::time::timeout(timeout, guest).await {
            Ok(ended) => ended,
            Err(_) => Err(Trap::Interrupt.into()),
        },
    };
    Ok(exit_code(&name, timeout, ended, &store.data().cuda))
}

/// Memory of a module is the device's. Kernels of a component run on buffers, so that its memory can be any.
fn engine(config: &Config, kind: Kind) -> anyhow::Result<Engine> {
    let device = config.device.as_ref().filter(|_| kind == Kind::Module);
    let mut options = match device {
        None => wasmtime::Config::new(),
        Some(device) => {
            let window = config.memory_bytes.next_power_of_two();
            EngineOptions::default()
                .window_bytes(window)
                .config(device)?
        }
    };
    // Compiled code pays for it, so it is on only where it is needed.
    options.epoch_interruption(config.timeout.is_some());
    let engine = Engine::new(&options)?;
    if let Some(device) = device {
        host::check_engine(&engine, device)?;
    }
    Ok(engine)
}

fn state(config: Config) -> anyhow::Result<State> {
    let mut cuda = WasiCudaContext::builder(InstanceId::random()?);
    if let Some(device) = config.device {
        cuda = cuda.device(device);
    }
    if let Some(isolation) = config.isolation {
        cuda = cuda.isolation(isolation);
    }
    if let Some(timeout) = config.timeout {
        cuda = cuda.deadline(timeout.saturating_add(KERNEL_GRACE));
    }
    let mut cuda = cuda.build();
    cuda.enable_wasi_cuda();
    Ok(State {
        wasi: config.wasi,
        cuda,
        limit: MemoryLimit::new(config.memory_bytes),
    })
}

/// Says how a guest ended, unless it ended well, and gives the code for it.
fn exit_code(
    name: &str,
    timeout: Option<Duration>,
    ended: wasmtime::Result<()>,
    cuda: &WasiCudaContext,
) -> u8 {
    let Err(error) = ended else { return 0 };
    if let Some(&I32Exit(code)) = error.downcast_ref() {
        if code != 0 {
            note_kernel_trap(cuda);
        }
        return u8::try_from(code).unwrap_or(FAILED);
    }
    if let (Some(timeout), Some(Trap::Interrupt)) = (timeout, error.downcast_ref()) {
        say(format_args!("{name}: timed out after {timeout:?}"));
        return TIMED_OUT;
    }
    match error.downcast_ref::<WasmBacktrace>() {
        None => say(format_args!("{name}: {error:#}")),
        Some(backtrace) => say(format_args!("{name}: {}\n{backtrace}", error.root_cause())),
    }
    note_kernel_trap(cuda);
    FAILED
}

/// Says where a kernel trapped: a guest may end because of it and not say so.
fn note_kernel_trap(cuda: &WasiCudaContext) {
    if let Some(trap) = cuda.last_trap() {
        say(format_args!("note: the last kernel trap: {trap}"));
        if let Some(source) = cuda.last_trap_source() {
            say(format_args!("{:>6} | {source}", trap.line));
        }
    }
}
