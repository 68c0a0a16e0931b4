//! Question: how many nanoseconds does a launch cost beyond an async import that does nothing, by number of arguments?
//!
//! Guests loop over one import inside Wasm. The device ends each launch at once on the calling thread, so what is measured is
//! this library: reading and checking argv, the kernel's lookup, the guard, the parameter buffer, and waiting for an end that is
//! there already. Both imports are measured in turn in every sample, and the table at the end gives their difference.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use device::{
    Abilities, Attributes, DeviceInfo, DeviceKind, DeviceLimits, Error, Health, Launch, Module,
    Program,
};
use device::{Region, RegionSpec, RegionTable};
use wasi_cuda::kernel_args::{LoweredArg, encode_argv};
use wasi_cuda::{
    Device, HasWasiCuda, InstanceId, KernelEntry, Trust, WasiCudaContext, add_to_linker,
    engine_config,
};
use wasmtime::{Caller, Engine, Linker, Store, TypedFunc};

const ARGUMENT_COUNTS: [usize; 6] = [0, 1, 4, 8, 16, 64];

/// Where the guest's argv lies.
const ARGV: u32 = 1024;

const GUEST: &str = r#"
(module
  (type $launch (func (param i64 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_cuda" "wasi_cuda_launch" (func $launch (type $launch)))
  (import "bench" "empty" (func $empty (type $launch)))
  (memory (export "memory") 1)
  (func (export "launch") (param $n i64) (param $kernel i64) (param $argv i32) (param $len i32) (result i32)
    (local $failed i32)
    (loop $again
      (local.set $failed (i32.or (local.get $failed)
        (call $launch (local.get $kernel) (i32.const 1) (i32.const 1) (i32.const 1)
          (i32.const 1) (i32.const 1) (i32.const 1) (i32.const 0) (local.get $argv) (local.get $len))))
      (br_if $again (i64.ne (i64.const 0) (local.tee $n (i64.sub (local.get $n) (i64.const 1))))))
    (local.get $failed))
  (func (export "empty") (param $n i64) (param $kernel i64) (param $argv i32) (param $len i32) (result i32)
    (local $failed i32)
    (loop $again
      (local.set $failed (i32.or (local.get $failed)
        (call $empty (local.get $kernel) (i32.const 1) (i32.const 1) (i32.const 1)
          (i32.const 1) (i32.const 1) (i32.const 1) (i32.const 0) (local.get $argv) (local.get $len))))
      (br_if $again (i64.ne (i64.const 0) (local.tee $n (i64.sub (local.get $n) (i64.const 1))))))
    (local.get $failed)))
"#;

/// Runs nothing: every launch ends at once.
#[derive(Debug)]
struct NullDevice {
    info: DeviceInfo,
    regions: Arc<RegionTable>,
}

impl NullDevice {
    fn new() -> Self {
        let info = DeviceInfo {
            kind: DeviceKind::Cpu,
            name: "null".into(),
            compute_capability: (9, 0),
            multiprocessors: 1,
            limits: DeviceLimits::ARCHITECTURAL,
        };
        Self {
            info,
            regions: RegionTable::new(u64::MAX),
        }
    }
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn health(&self) -> Health {
        Health::Good
    }

    fn regions(&self) -> &Arc<RegionTable> {
        &self.regions
    }

    fn new_region(&self, spec: RegionSpec) -> Result<Arc<Region>, Error> {
        Region::anonymous(&self.regions, spec)
    }

    fn load(&self, program: &ptx::Admitted) -> Result<Arc<dyn Module>, Error> {
        Ok(Arc::new(NullModule(program.program().entries().to_vec())))
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            checks_accesses: true,
            cooperative: true,
            prefetch: false,
        }
    }
}

#[derive(Debug)]
struct NullModule(Vec<ptx::Signature>);

impl Module for NullModule {
    fn entry(&self, name: &str) -> Result<Arc<dyn Program>, Error> {
        let found = self.0.iter().find(|signature| signature.entry == name);
        let signature = found.ok_or_else(|| Error::EntryMissing {
            name: name.into(),
            entries: String::new(),
        })?;
        Ok(Arc::new(NullProgram(Attributes {
            signature: signature.clone(),
            confinement: None,
            max_threads_per_block: 1024,
            registers: 0,
            local_bytes: 0,
            max_cooperative_blocks: 1,
        })))
    }
}

#[derive(Debug)]
struct NullProgram(Attributes);

impl Program for NullProgram {
    fn attributes(&self) -> &Attributes {
        &self.0
    }

    fn launch(self: Arc<Self>, launch: Arc<Launch>) {
        let signal = Arc::clone(launch.signal());
        drop(launch);
        signal.complete(Ok(()));
    }
}

struct State(WasiCudaContext);

impl HasWasiCuda for State {
    fn wasi_cuda(&self) -> &WasiCudaContext {
        &self.0
    }
}

/// What a guest's loop is called with: rounds, kernel, argv and its length.
type Loop = TypedFunc<(i64, i64, i32, i32), i32>;

/// A guest with a kernel and its arguments.
struct Rig {
    runtime: tokio::runtime::Runtime,
    store: Store<State>,
    launch: Loop,
    empty: Loop,
    kernel: i64,
    argv_len: i32,
}

impl Rig {
    fn new(arguments: usize) -> wasmtime::Result<Self> {
        let device: Arc<dyn Device> = Arc::new(NullDevice::new());
        let engine = Engine::new(&engine_config(&device)?)?;
        let owner = InstanceId::new(1);
        let mut context = WasiCudaContext::builder(owner)
            .device(Arc::clone(&device))
            .build();
        context.enable_wasi_cuda();
        let entry = KernelEntry::from_ptx(
            &device,
            owner,
            "k",
            kernel(arguments).as_bytes(),
            Trust::Isolated(wasi_cuda::Isolation::Trapping),
        )?;
        let kernel = context.registry.register(entry)?.handle();

        let mut linker = Linker::new(&engine);
        add_to_linker::<State>(&mut linker)?;
        type Args = (i64, i32, i32, i32, i32, i32, i32, i32, i32, i32);
        linker.func_wrap_async("bench", "empty", |_: Caller<'_, State>, _: Args| {
            Box::new(async { 0 })
        })?;

        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let mut store = Store::new(&engine, State(context));
        let module = wasmtime::Module::new(&engine, GUEST)?;
        let instance = runtime.block_on(linker.instantiate_async(&mut store, &module))?;
        let argv = encode_argv(&(0..arguments).map(argument).collect::<Vec<_>>())?;
        let Some(memory) = instance.get_memory(&mut store, "memory") else {
            wasmtime::bail!("the guest has no memory");
        };
        memory.write(&mut store, ARGV as usize, &argv)?;
        Ok(Self {
            launch: instance.get_typed_func(&mut store, "launch")?,
            empty: instance.get_typed_func(&mut store, "empty")?,
            runtime,
            store,
            kernel,
            argv_len: i32::try_from(argv.len())?,
        })
    }

    /// How long `rounds` calls of both imports take, first the launch.
    fn time(&mut self, rounds: u64) -> (Duration, Duration) {
        let (launch, empty) = (self.launch.clone(), self.empty.clone());
        (self.call(&launch, rounds), self.call(&empty, rounds))
    }

    fn call(&mut self, import: &Loop, rounds: u64) -> Duration {
        let args = (
            rounds.cast_signed(),
            self.kernel,
            ARGV.cast_signed(),
            self.argv_len,
        );
        let started = Instant::now();
        let failed = self
            .runtime
            .block_on(import.call_async(&mut self.store, args));
        let took = started.elapsed();
        assert_eq!(failed.ok(), Some(0), "every call succeeds");
        took
    }
}

/// Argument number `index`: two pointers and two scalars in turn.
fn argument(index: usize) -> LoweredArg {
    match index % 4 {
        0 | 1 => LoweredArg::ptr_for_encoding(4096, 4096),
        2 => LoweredArg::U32(7),
        _ => LoweredArg::F32(0.5),
    }
}

/// A kernel that takes so many arguments.
fn kernel(arguments: usize) -> String {
    let types = [".u64", ".u64", ".u32", ".f32"];
    let parameters: Vec<_> = (0..arguments)
        .map(|i| format!(".param {} p{i}", types[i % 4]))
        .collect();
    let parameters = parameters.join(", ");
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k({parameters}) {{ ret; }}\n"
    )
}

fn nanoseconds(took: Duration, rounds: u64) -> f64 {
    took.as_secs_f64() * 1e9 / rounds as f64
}

/// Times of one number of arguments, in nanoseconds a call: of the launch, the empty import, and their difference in one sample.
#[derive(Default)]
struct Samples([Vec<f64>; 3]);

impl Samples {
    fn add(&mut self, launch: f64, empty: f64) {
        for (samples, value) in self.0.iter_mut().zip([launch, empty, launch - empty]) {
            samples.push(value);
        }
    }

    /// The medians, and the least difference: other work of the machine adds to all others.
    fn summary(&mut self) -> [f64; 4] {
        let [launch, empty, difference] = &mut self.0;
        let medians = [launch, empty, difference].map(|samples| {
            samples.sort_by(f64::total_cmp);
            samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
        });
        let least = self.0[2].first().copied().unwrap_or(f64::NAN);
        [medians[0], medians[1], medians[2], least]
    }
}

fn main() -> wasmtime::Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    let mut table = Vec::new();
    let mut group = criterion.benchmark_group("launch");
    for arguments in ARGUMENT_COUNTS {
        let mut rig = Rig::new(arguments)?;
        let mut samples = Samples::default();
        group.bench_function(BenchmarkId::from_parameter(arguments), |bencher| {
            bencher.iter_custom(|rounds| {
                let (launch, empty) = rig.time(rounds);
                samples.add(nanoseconds(launch, rounds), nanoseconds(empty, rounds));
                launch
            });
        });
        table.push((arguments, samples));
    }
    group.finish();
    criterion.final_summary();

    println!("ns a call, medians: arguments | launch | empty async import | difference (least)");
    for (arguments, mut samples) in table {
        let [launch, empty, difference, least] = samples.summary();
        println!("{arguments:>9} | {launch:>6.0} | {empty:>6.0} | {difference:>6.0} ({least:.0})");
    }
    Ok(())
}
