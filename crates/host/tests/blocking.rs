//! A component whose imports block, called on the only thread of an async runtime. That a thread may not block tokio tells by a
//! panic, so this is a process of its own: where guests are tested, no panic of the host's is in order.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use wasi_cuda::component::add_to_linker_sync;
use wasi_cuda::{HasWasiCuda, InstanceId, Selector, WasiCudaContext};
use wasmtime::component::{Component, Instance, Linker, Val};
use wasmtime::{Engine, Store};

const FORWARDER: &[u8] = include_bytes!("../../../fixtures/components/forwarder.wasm");
const PTX: &str =
    ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";

struct Tenant(WasiCudaContext);

impl HasWasiCuda for Tenant {
    fn wasi_cuda(&self) -> &WasiCudaContext {
        &self.0
    }
}

/// A component that exports what it imports.
struct Forwarder {
    store: Store<Tenant>,
    instance: Instance,
}

impl Forwarder {
    fn new() -> Self {
        let engine = Engine::default();
        let component = Component::new(&engine, FORWARDER).unwrap();
        let mut linker = Linker::new(&engine);
        add_to_linker_sync(&mut linker).unwrap();
        let device = wasi_cuda::device::open(Selector::Cpu).unwrap();
        let builder = WasiCudaContext::builder(InstanceId::new(1)).device(device);
        let mut cuda = builder.build();
        cuda.enable_wasi_cuda();
        let mut store = Store::new(&engine, Tenant(cuda));
        let instance = linker.instantiate(&mut store, &component).unwrap();
        Self { store, instance }
    }

    /// What an operation answers that does not fail, or why it traps.
    fn call(&mut self, name: &str, args: &[Val]) -> wasmtime::Result<Val> {
        let (store, operations) = (&mut self.store, "wasi-cuda:forwarder/operations");
        let operations = self
            .instance
            .get_export_index(&mut *store, None, operations);
        let export = self
            .instance
            .get_export_index(&mut *store, operations.as_ref(), name);
        let export = self.instance.get_func(&mut *store, export.unwrap());
        let mut answer = [Val::Bool(false)];
        export.unwrap().call(store, args, &mut answer)?;
        let [Val::Result(Ok(Some(answer)))] = answer else {
            panic!("{name} answers {answer:?}");
        };
        Ok(*answer)
    }

    fn load(&mut self) -> wasmtime::Result<Val> {
        let device = self.call("open", &[])?;
        let ptx = Val::List(PTX.bytes().map(Val::U8).collect());
        self.call("load", &[device, ptx, Val::String("nothing".into())])
    }
}

#[test]
fn the_only_thread_of_a_runtime_is_not_blocked_by_a_component() {
    let mut forwarder = Forwarder::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let trap = runtime.block_on(async { forwarder.load().unwrap_err() });
    let said = trap.root_cause().to_string();
    assert!(
        said.contains("a thread that an async runtime needs"),
        "{said}"
    );
    drop(runtime);
    // The same component on the same thread, which is nobody's any more.
    assert!(matches!(Forwarder::new().load(), Ok(Val::U32(_))));
}
