//! Guests that launch a kernel again and again, as many as wanted, on one device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasi_cuda::kernel_args::{LoweredArg, encode_argv};
use wasi_cuda::{
    Device, HasWasiCuda, InstanceId, KernelEntry, Trust, TrustedByEmbedder, WasiCudaContext,
    add_to_linker, engine_config,
};
use wasmtime::{Caller, Engine, Instance, Linker, Module, Store, TypedFunc};

/// `vecadd(a, b, c, n)` as nvcc compiles it.
pub(crate) const VECADD: &str = include_str!("../../../../fixtures/corpus/cuda/vecadd.sm_75.ptx");
pub(crate) const ELEMENTS: u32 = 64;
pub(crate) const BYTES: u32 = 4 * ELEMENTS;

const ARGV: u32 = 64;
const VECTORS: u32 = 4096;
/// Where the guest writes when each launch ended.
const TIMES: u32 = 65_536;
/// Launches of one guest call that is timed.
pub(crate) const CHUNK: usize = 200;

const GUEST: &str = r#"
(module
  (import "wasi_cuda" "wasi_cuda_launch" (func $launch
    (param i64 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "bench" "now" (func $now (result i64)))
  (memory (export "memory") 2)
  (func $once (param $kernel i64) (param $len i32) (result i32)
    (call $launch (local.get $kernel) (i32.const 2) (i32.const 1) (i32.const 1)
      (i32.const 32) (i32.const 1) (i32.const 1) (i32.const 0) (i32.const 64) (local.get $len)))
  ;; Launches `n` times and writes the time before the first and after each.
  (func (export "timed") (param $n i32) (param $kernel i64) (param $len i32) (result i32)
    (local $failed i32) (local $at i32)
    (local.set $at (i32.const 65536))
    (i64.store (local.get $at) (call $now))
    (loop $again
      (local.set $failed (i32.or (local.get $failed) (call $once (local.get $kernel) (local.get $len))))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (i64.store (local.get $at) (call $now))
      (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (local.get $failed))
  (func (export "untimed") (param $n i32) (param $kernel i64) (param $len i32) (result i32)
    (local $failed i32)
    (loop $again
      (local.set $failed (i32.or (local.get $failed) (call $once (local.get $kernel) (local.get $len))))
      (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (local.get $failed)))
"#;

pub(crate) struct State(pub(crate) WasiCudaContext);

impl HasWasiCuda for State {
    fn wasi_cuda(&self) -> &WasiCudaContext {
        &self.0
    }
}

pub(crate) type Loop = TypedFunc<(i32, i64, i32), i32>;

/// What guests of one device share.
pub(crate) struct Tenancy {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<State>,
    pub(crate) module: Module,
    /// What times are counted from.
    pub(crate) zero: Instant,
}

impl Tenancy {
    pub(crate) fn new(device: Arc<dyn Device>) -> wasmtime::Result<Self> {
        let engine = Engine::new(&engine_config(&device)?)?;
        let mut linker = Linker::new(&engine);
        add_to_linker::<State>(&mut linker)?;
        let zero = Instant::now();
        linker.func_wrap("bench", "now", move |_: Caller<'_, State>| {
            nanoseconds(zero.elapsed())
        })?;
        Ok(Self {
            module: Module::new(&engine, GUEST)?,
            device,
            engine,
            linker,
            zero,
        })
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A guest with its kernel.
pub(crate) struct Guest {
    pub(crate) store: Store<State>,
    pub(crate) instance: Instance,
    pub(crate) timed: Loop,
    pub(crate) untimed: Loop,
    pub(crate) kernel: i64,
    pub(crate) argv_len: i32,
}

/// A guest that is not instantiated.
pub(crate) struct Prepared {
    pub(crate) store: Store<State>,
    pub(crate) kernel: i64,
}

impl Prepared {
    pub(crate) fn enter(mut self, instance: Instance) -> wasmtime::Result<Guest> {
        let store = &mut self.store;

        let vector = |index: u32| LoweredArg::ptr_for_encoding(VECTORS + index * BYTES, BYTES);
        let argv = encode_argv(&[vector(0), vector(1), vector(2), LoweredArg::U32(ELEMENTS)])?;
        let memory = instance
            .get_memory(&mut *store, "memory")
            .expect("the guest's memory");
        memory.write(&mut *store, ARGV as usize, &argv)?;
        Ok(Guest {
            timed: instance.get_typed_func(&mut *store, "timed")?,
            untimed: instance.get_typed_func(&mut *store, "untimed")?,
            argv_len: i32::try_from(argv.len())?,
            store: self.store,
            instance,
            kernel: self.kernel,
        })
    }
}

impl Guest {
    pub(crate) async fn start(tenancy: &Tenancy) -> wasmtime::Result<Self> {
        let mut prepared = Self::prepare(tenancy, InstanceId::random()?)?;
        let instance = tenancy
            .linker
            .instantiate_async(&mut prepared.store, &tenancy.module)
            .await?;
        prepared.enter(instance)
    }

    pub(crate) fn prepare(tenancy: &Tenancy, owner: InstanceId) -> wasmtime::Result<Prepared> {
        let device = &tenancy.device;
        let mut context = WasiCudaContext::builder(owner)
            .device(Arc::clone(device))
            .build();
        context.enable_wasi_cuda();
        let trust = Trust::Embedder(TrustedByEmbedder::i_vouch_for_this_kernel());
        let entry = KernelEntry::from_ptx(device, owner, "vecadd", VECADD.as_bytes(), trust)?;
        let kernel = context.registry.register(entry)?.handle();
        let store = Store::new(&tenancy.engine, State(context));
        Ok(Prepared { store, kernel })
    }

    pub(crate) async fn call(&mut self, function: &Loop, rounds: usize) -> wasmtime::Result<()> {
        let args = (i32::try_from(rounds)?, self.kernel, self.argv_len);
        let failed = function.call_async(&mut self.store, args).await?;
        assert_eq!(failed, 0, "{}", self.store.data().0.last_error());
        Ok(())
    }

    /// What each of `CHUNK` launches took, in microseconds.
    pub(crate) async fn times(&mut self, into: &mut Vec<f64>) -> wasmtime::Result<()> {
        let timed = self.timed.clone();
        self.call(&timed, CHUNK).await?;
        let memory = self
            .instance
            .get_memory(&mut self.store, "memory")
            .expect("the guest's memory");
        let bytes = &memory.data(&self.store)[TIMES as usize..][..8 * (CHUNK + 1)];
        let times: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes")))
            .collect();
        into.extend(
            times
                .windows(2)
                .map(|pair| (pair[1] - pair[0]) as f64 / 1e3),
        );
        Ok(())
    }
}
