//! Question: what do a component's copies cost, beside a core module's launch on memory in place?
//!
//! All sides launch one thread of a kernel of two pointers that does nothing, on the CPU device, so that what differs is what
//! is copied: a core module gives two ranges of its memory; a component gives two buffers that it has, or so many bytes by value
//! and as many out, or it writes one buffer before and reads another after. Guests loop in their own code. All sides are
//! measured in turn in every sample, and the table at the end gives medians.
#![expect(clippy::expect_used, reason = "a bench that cannot go on has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use wasi_cuda::kernel_args::{LoweredArg, encode_argv};
use wasi_cuda::{
    Device, HasWasiCuda, InstanceId, Selector, WasiCudaContext, add_to_linker, component,
    engine_config,
};
use wasmtime::component::{Component, Linker as ComponentLinker, TypedFunc as ComponentFunc};
use wasmtime::{Config, Engine, Linker, Memory, Module, Store, TypedFunc};

const SIZES: [u32; 4] = [1 << 10, 64 << 10, 1 << 20, 16 << 20];

const PTX: &str = ".version 7.8\n.target sm_80\n.address_size 64\n\
    .visible .entry k(.param .u64 a, .param .u64 b) { ret; }\n";

const COMPONENT: &[u8] = include_bytes!("../../../fixtures/components/copies.wasm");

/// The same loop as a core module: argv lies at 1024, the text at 2048.
const MODULE: &str = r#"
(module
  (import "wasi_cuda" "wasi_cuda_load_ptx" (func $load (param i32 i32 i32 i32) (result i64)))
  (import "wasi_cuda" "wasi_cuda_launch"
    (func $launch (param i64 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 514)
  (data (i32.const 16) "k")
  (func (export "prepare") (param $len i32) (result i64)
    (call $load (i32.const 2048) (local.get $len) (i32.const 16) (i32.const 1)))
  (func (export "in-place") (param $kernel i64) (param $argv_len i32) (param $rounds i32) (result i32)
    (loop $again
      (if (call $launch (local.get $kernel) (i32.const 1) (i32.const 1) (i32.const 1)
          (i32.const 1) (i32.const 1) (i32.const 1) (i32.const 0) (i32.const 1024) (local.get $argv_len))
        (then (return (i32.const 0))))
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
    (i32.const 1)))
"#;

struct State(WasiCudaContext);

impl HasWasiCuda for State {
    fn wasi_cuda(&self) -> &WasiCudaContext {
        &self.0
    }
}

fn state(device: &Arc<dyn Device>) -> wasmtime::Result<State> {
    let context = WasiCudaContext::builder(InstanceId::random()?);
    let mut context = context.device(Arc::clone(device)).build();
    context.enable_wasi_cuda();
    Ok(State(context))
}

/// What is timed, in the order of the table.
const WAYS: [&str; 4] = ["module in place", "by reference", "by value", "by buffer"];

/// A core module's loop, and what it is called with beside the rounds.
struct InPlace {
    store: Store<State>,
    memory: Memory,
    launch: TypedFunc<(i64, i32, i32), i32>,
    kernel: i64,
}

/// A component's loop: bytes and rounds, and whether all went well.
type Copies = ComponentFunc<(u32, u32), (bool,)>;

struct Rig {
    runtime: tokio::runtime::Runtime,
    module: InPlace,
    component: (Store<State>, [Copies; 3]),
}

impl Rig {
    fn new() -> wasmtime::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let device = wasi_cuda::device::open(Selector::Cpu)?;

        let engine = Engine::new(&engine_config(&device)?)?;
        let mut linker = Linker::new(&engine);
        add_to_linker::<State>(&mut linker)?;
        let mut store = Store::new(&engine, state(&device)?);
        let module = Module::new(&engine, MODULE)?;
        let instance = runtime.block_on(linker.instantiate_async(&mut store, &module))?;
        let Some(memory) = instance.get_memory(&mut store, "memory") else {
            wasmtime::bail!("the guest has no memory");
        };
        memory.write(&mut store, 2048, PTX.as_bytes())?;
        let prepare = instance.get_typed_func::<i32, i64>(&mut store, "prepare")?;
        let len = i32::try_from(PTX.len())?;
        let kernel = runtime.block_on(prepare.call_async(&mut store, len))?;
        let launch = instance.get_typed_func(&mut store, "in-place")?;
        let module = InPlace {
            store,
            memory,
            launch,
            kernel,
        };

        let engine = Engine::new(&Config::new())?;
        let mut linker = ComponentLinker::new(&engine);
        component::add_to_linker::<State>(&mut linker)?;
        let mut store = Store::new(&engine, state(&device)?);
        let component = Component::new(&engine, COMPONENT)?;
        let instance = runtime.block_on(linker.instantiate_async(&mut store, &component))?;
        let prepare = instance.get_typed_func::<(&[u8], &str), (bool,)>(&mut store, "prepare")?;
        let prepared = prepare.call_async(&mut store, (PTX.as_bytes(), "k"));
        if !runtime.block_on(prepared)?.0 {
            wasmtime::bail!("the component has no kernel");
        }
        let mut way = |name| instance.get_typed_func(&mut store, name);
        let ways = [way("by-reference")?, way("by-value")?, way("by-buffer")?];
        Ok(Self {
            runtime,
            module,
            component: (store, ways),
        })
    }

    /// Microseconds a launch of each way.
    fn time(&mut self, bytes: u32, rounds: u32) -> wasmtime::Result<[f64; 4]> {
        let micros = |begun: Instant| begun.elapsed().as_secs_f64() * 1e6 / f64::from(rounds);
        let InPlace {
            store,
            memory,
            launch,
            kernel,
        } = &mut self.module;
        let range = |offset| LoweredArg::ptr_for_encoding(offset, bytes);
        let argv = encode_argv(&[range(65_536), range(65_536 + (16 << 20))])?;
        memory.write(&mut *store, 1024, &argv)?;
        let args = (*kernel, i32::try_from(argv.len())?, rounds.cast_signed());
        let begun = Instant::now();
        let is_well = self.runtime.block_on(launch.call_async(store, args))?;
        let mut times = [micros(begun), 0.0, 0.0, 0.0];
        assert_eq!(is_well, 1, "every launch succeeds");

        let (store, ways) = &mut self.component;
        for (way, time) in ways.iter().zip(&mut times[1..]) {
            let begun = Instant::now();
            let called = way.call_async(&mut *store, (bytes, rounds));
            let (is_well,) = self.runtime.block_on(called)?;
            *time = micros(begun);
            assert!(is_well, "every launch succeeds");
        }
        Ok(times)
    }
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> wasmtime::Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    let mut rig = Rig::new()?;
    let mut table = Vec::new();
    let mut group = criterion.benchmark_group("component");
    for bytes in SIZES {
        let mut samples: [Vec<f64>; 4] = Default::default();
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            bencher.iter_custom(|rounds| {
                let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
                let times = rig.time(bytes, rounds).expect("every launch succeeds");
                for (samples, time) in samples.iter_mut().zip(times) {
                    samples.push(time);
                }
                Duration::from_secs_f64(times[2] * f64::from(rounds) / 1e6)
            });
        });
        table.push((bytes, samples));
    }
    group.finish();
    criterion.final_summary();

    println!(
        "us a launch, medians: bytes in and out | {}",
        WAYS.join(" | ")
    );
    for (bytes, mut samples) in table {
        let medians = samples.each_mut().map(|samples| median(samples));
        let cells = medians.map(|median| format!("{median:>10.1}"));
        println!("{bytes:>9} | {}", cells.join(" | "));
    }
    Ok(())
}
