//! A plug-in host, complete: two tenants on one device, each with a store, limits and a deadline of its own, what they did on
//! record, and one of them hostile. `cargo run -p wasi-cuda --example plugin_host` prints how it went; `cargo test`
//! checks that the honest tenant noticed nothing.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wasi_cuda::{
    AbiError, Audit, Device, Event, HasWasiCuda, InstanceId, Limits, Metrics, Selector,
    WasiCudaContext, add_to_linker, check_engine, engine_config,
};
use wasmtime::{Engine, InstancePre, Linker, Module, Store, StoreLimits, StoreLimitsBuilder, Trap};

/// How often guest code is looked at, and for how many looks in a row it may run.
const TICK: Duration = Duration::from_millis(5);
const TICKS: u64 = 100;
/// How long a kernel may run, and a call of a plug-in with all its kernels.
const KERNEL_DEADLINE: Duration = Duration::from_millis(50);
const CALL_DEADLINE: Duration = Duration::from_secs(5);
const MEMORY_BYTES: usize = 4 << 20;

/// What a tenant may have. Whatever is not said here is the default.
fn limits() -> Limits {
    Limits {
        kernels: 4,
        buffers: 8,
        buffer_bytes: 1 << 20,
        buffer_bytes_total: 2 << 20,
        deadline: Some(KERNEL_DEADLINE),
        ..Limits::default()
    }
}

/// What a tenant's store holds.
struct Tenant {
    cuda: WasiCudaContext,
    limits: StoreLimits,
}

impl HasWasiCuda for Tenant {
    fn wasi_cuda(&self) -> &WasiCudaContext {
        &self.cuda
    }
}

/// A record of what all tenants did that somebody should look at.
#[derive(Debug, Default)]
struct Record(Mutex<Vec<(InstanceId, String)>>);

impl Audit for Record {
    fn record(&self, instance: InstanceId, event: &Event<'_>) {
        let note = match event {
            Event::Refuse { code, text } => format!("{}: {text}", code.name()),
            Event::Stop { reason } => format!("kernel stopped: {reason}"),
            Event::Trap { trap } => format!("kernel trapped: {}, line {}", trap.kind, trap.line),
            _ => return,
        };
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push((instance, note));
    }
}

/// How a call of a plug-in ended.
#[derive(Debug, PartialEq)]
enum Ended {
    Well,
    /// The plug-in gave this code back, most likely one that it was told.
    Code(AbiError),
    /// The plug-in's own code was ended: it ran too long, or did what WebAssembly forbids.
    Trapped(String),
    /// The call took too long.
    TimedOut,
}

/// All tenants' host: one device and the engine that serves it.
struct Host {
    engine: Engine,
    device: Arc<dyn Device>,
    linker: Linker<Tenant>,
    record: Arc<Record>,
}

impl Host {
    fn new(selector: Selector) -> wasmtime::Result<Self> {
        let device = wasi_cuda::device::open(selector)?;
        let mut config = engine_config(&device)?;
        config.epoch_interruption(true);
        let engine = Engine::new(&config)?;
        check_engine(&engine, &device)?;
        let mut linker = Linker::new(&engine);
        add_to_linker(&mut linker)?;
        let record = Arc::default();
        Ok(Self {
            engine,
            device,
            linker,
            record,
        })
    }

    /// Moves the engine's clock, by which endless guest code is found, as long as the host is there.
    fn start_clock(&self) {
        let engine = self.engine.weak();
        std::thread::spawn(move || {
            while let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
                drop(engine);
                std::thread::sleep(TICK);
            }
        });
    }

    fn plugin(&self, text: &str) -> wasmtime::Result<InstancePre<Tenant>> {
        let module = Module::new(&self.engine, text)?;
        self.linker.instantiate_pre(&module)
    }

    /// A store with the rights and limits of a tenant.
    fn store(&self, instance: InstanceId) -> Store<Tenant> {
        let mut cuda = WasiCudaContext::builder(instance)
            .device(Arc::clone(&self.device))
            .limits(limits())
            .audit(Arc::clone(&self.record) as _)
            .build();
        cuda.enable_wasi_cuda();
        let memory = StoreLimitsBuilder::new().memory_size(MEMORY_BYTES);
        let limits = memory.instances(1).memories(1).build();
        let mut store = Store::new(&self.engine, Tenant { cuda, limits });
        store.limiter(|tenant| &mut tenant.limits);
        store
    }
}

/// Calls an export of a fresh instance; its kernels, buffers and memory go with it.
async fn call(
    host: &Host,
    instance: InstanceId,
    plugin: &InstancePre<Tenant>,
    export: &str,
) -> wasmtime::Result<(Ended, Metrics)> {
    let mut store = host.store(instance);
    store.set_epoch_deadline(TICKS);
    let run = async {
        let plugin = plugin.instantiate_async(&mut store).await?;
        let export = plugin.get_typed_func::<(), i32>(&mut store, export)?;
        export.call_async(&mut store, ()).await
    };
    // Dropping the call stops the kernel that it waits for.
    let ended = match tokio::time::timeout(CALL_DEADLINE, run).await {
        Err(_) => Ended::TimedOut,
        Ok(Ok(0)) => Ended::Well,
        Ok(Ok(code)) => match AbiError::from_code(code) {
            Some(code) => Ended::Code(code),
            None => wasmtime::bail!("the plug-in answered {code}"),
        },
        Ok(Err(error)) => match error.downcast_ref::<Trap>() {
            Some(trap) => Ended::Trapped(trap.to_string()),
            None => return Err(error),
        },
    };
    Ok((ended, store.data().cuda.metrics()))
}

/// Doubles 64 numbers; goes on for ever; writes far outside any guest's memory.
const PTX: &str = "\
.version 7.8
.target sm_80
.address_size 64
.visible .entry double(.param .u64 p) {
    .reg .b32 %i, %v;
    .reg .b64 %p, %at;
    ld.param.u64 %p, [p];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %at, %i, 4;
    add.u64 %p, %p, %at;
    ld.global.u32 %v, [%p];
    shl.b32 %v, %v, 1;
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry endless(.param .u64 p) {
L:  bra L;
}
.visible .entry stray(.param .u64 p) {
    .reg .b64 %p;
    mov.u64 %p, 0x7fff00000000;
    st.global.u32 [%p], 1;
    ret;
}
";

/// The plug-in of both tenants; which exports are called is what makes one hostile.
fn plugin_text() -> String {
    let ptx = PTX.replace('\n', "\\n");
    let len = PTX.len();
    format!(
        r#"(module
  (import "wasi_cuda" "wasi_cuda_load_ptx" (func $load (param i32 i32 i32 i32) (result i64)))
  (import "wasi_cuda" "wasi_cuda_launch"
    (func $launch (param i64 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_cuda" "wasi_cuda_alloc" (func $alloc (param i64) (result i64)))
  (memory (export "memory") 2)
  (data (i32.const 16) "double")
  (data (i32.const 32) "endless")
  (data (i32.const 48) "stray")
  ;; argv: one pointer, 256 bytes from 0x4000 on
  (data (i32.const 64) "\07\00\40\00\00\00\01\00\00")
  (data (i32.const 1024) "{ptx}")

  (func $run (param $name i32) (param $len i32) (result i32)
    (local $kernel i64)
    (local.set $kernel
      (call $load (i32.const 1024) (i32.const {len}) (local.get $name) (local.get $len)))
    (if (i64.lt_s (local.get $kernel) (i64.const 0))
      (then (return (i32.wrap_i64 (local.get $kernel)))))
    (call $launch (local.get $kernel)
      (i32.const 1) (i32.const 1) (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 1)
      (i32.const 0) (i32.const 64) (i32.const 9)))

  ;; 21 twice is 42, or the plug-in traps.
  (func (export "double") (result i32)
    (local $code i32)
    (i32.store (i32.const 0x4004) (i32.const 21))
    (local.set $code (call $run (i32.const 16) (i32.const 6)))
    (if (local.get $code) (then (return (local.get $code))))
    (if (i32.ne (i32.load (i32.const 0x4004)) (i32.const 42)) (then unreachable))
    (i32.const 0))

  (func (export "endless-kernel") (result i32) (call $run (i32.const 32) (i32.const 7)))
  (func (export "stray-kernel") (result i32) (call $run (i32.const 48) (i32.const 5)))
  (func (export "endless-code") (result i32) (loop $again (br $again)) unreachable)
  (func (export "many-buffers") (result i32)
    (local $buffer i64)
    (loop $again
      (br_if $again (i64.gt_s (local.tee $buffer (call $alloc (i64.const 1048576))) (i64.const 0))))
    (i32.wrap_i64 (local.get $buffer)))
  (func (export "much-memory") (result i32)
    (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
    (i32.const 0))
)"#
    )
}

const HONEST: InstanceId = InstanceId::new(1);
const HOSTILE: InstanceId = InstanceId::new(2);

/// Each in its turn, while the honest tenant works.
const ATTACKS: [&str; 5] = [
    "endless-kernel",
    "stray-kernel",
    "many-buffers",
    "endless-code",
    "much-memory",
];

/// What became of both.
struct Outcome {
    honest: Vec<(Ended, Metrics)>,
    hostile: Vec<(&'static str, Ended, Metrics)>,
    notes: Vec<(InstanceId, String)>,
}

fn run(selector: Selector, honest_calls: usize) -> wasmtime::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()?;
    let host = Arc::new(Host::new(selector)?);
    host.start_clock();
    let plugin = host.plugin(&plugin_text())?;

    let honest = runtime.spawn({
        let (host, plugin) = (Arc::clone(&host), plugin.clone());
        async move {
            let mut ended = Vec::new();
            for _ in 0..honest_calls {
                ended.push(call(&host, HONEST, &plugin, "double").await?);
            }
            Ok::<_, wasmtime::Error>(ended)
        }
    });
    let hostile = runtime.spawn({
        let host = Arc::clone(&host);
        async move {
            let mut ended = Vec::new();
            for attack in ATTACKS {
                let (end, metrics) = call(&host, HOSTILE, &plugin, attack).await?;
                ended.push((attack, end, metrics));
            }
            Ok::<_, wasmtime::Error>(ended)
        }
    });
    let (honest, hostile) = (runtime.block_on(honest)??, runtime.block_on(hostile)??);
    let notes = host.record.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Outcome {
        honest,
        hostile,
        notes: notes.clone(),
    })
}

fn main() -> wasmtime::Result<()> {
    let outcome = run(Selector::Cpu, 100)?;
    let well = outcome
        .honest
        .iter()
        .filter(|(ended, _)| *ended == Ended::Well);
    let mut text = format!(
        "honest: {} of {} calls ended well\n",
        well.count(),
        outcome.honest.len()
    );
    for (attack, ended, metrics) in &outcome.hostile {
        let Metrics {
            launches,
            traps,
            stopped,
            failures,
            ..
        } = metrics;
        writeln!(
            text,
            "hostile: {attack}: {ended:?}; {launches} launches, {traps} traps, {stopped} stopped, {failures} failures"
        )?;
    }
    for (instance, note) in &outcome.notes {
        writeln!(text, "on record: {instance:?}: {note}")?;
    }
    print!("{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_honest_tenant_notices_nothing_of_a_hostile_one() {
        let outcome = run(Selector::Cpu, 50).unwrap();
        for (ended, metrics) in &outcome.honest {
            assert_eq!(*ended, Ended::Well);
            assert_eq!((metrics.launches, metrics.failures), (1, 0));
        }
        let ended: Vec<_> = outcome
            .hostile
            .iter()
            .map(|(attack, ended, _)| (*attack, ended))
            .collect();
        let interrupted = Ended::Trapped(Trap::Interrupt.to_string());
        assert_eq!(
            ended,
            [
                ("endless-kernel", &Ended::Code(AbiError::DeadlineExceeded)),
                ("stray-kernel", &Ended::Code(AbiError::KernelTrap)),
                ("many-buffers", &Ended::Code(AbiError::QuotaExceeded)),
                ("endless-code", &interrupted),
                ("much-memory", &Ended::Well),
            ]
        );
        assert!(
            outcome
                .notes
                .iter()
                .all(|(instance, _)| *instance == HOSTILE)
        );
        let notes: Vec<_> = outcome
            .notes
            .iter()
            .map(|(_, note)| note.as_str())
            .collect();
        assert_eq!(
            notes,
            [
                "kernel stopped: its deadline has passed",
                "kernel trapped: access out of bounds, line 22",
                "QuotaExceeded: bytes of device buffers and module variables: 3145728 given, the limit is 2097152",
            ]
        );
    }
}
