//! A component in a store: the forwarder of `fixtures/components`, which exports what it imports. No test belongs here.

use std::collections::HashSet;
use std::sync::LazyLock;

use host::WasiCudaContext;
use host::component::{add_to_linker, add_to_linker_sync};
use tokio::runtime::Runtime;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, Instance, Lift, Linker, Lower,
};
use wasmtime::{Config, Engine, Store};

use crate::harness::{Data, Setup, Shape, assert_text_is_clean};

mod bindings {
    wasmtime::component::bindgen!({
        path: ["../wit", "../fixtures/components/forwarder.wit"],
        world: "wasi-cuda:forwarder/forwarder",
        imports: { default: async },
        exports: { default: async },
    });
}

pub(crate) use bindings::exports::wasi_cuda::forwarder::operations::Arg;
pub(crate) use bindings::wasi_cuda::cuda::api;

const FORWARDER: &[u8] = include_bytes!("../../../fixtures/components/forwarder.wasm");

/// The export of the component that holds its functions.
const OPERATIONS: &str = "wasi-cuda:forwarder/operations";

/// A running component and the device that it opened.
pub(crate) struct Rig {
    /// What the component suspends on; without one its imports block.
    runtime: Option<Runtime>,
    store: Store<Data>,
    instance: Instance,
    operations: ComponentExportIndex,
    device: u32,
    /// Numbers that the component gave, which texts may hold whatever they look like.
    known: HashSet<u64>,
}

/// What an operation of the component answered.
pub(crate) type Answer<T> = Result<T, api::Error>;

impl Rig {
    /// A component that has opened its device.
    pub(crate) fn new(setup: &Setup) -> Self {
        Self::try_new(setup).unwrap()
    }

    /// A component on the CPU device.
    pub(crate) fn cpu() -> Self {
        Self::new(&Setup::default())
    }

    /// The same, or why the component could not open its device.
    pub(crate) fn try_new(setup: &Setup) -> Answer<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        Self::started(setup, Some(runtime))
    }

    /// A component that is called without async, on imports that block.
    pub(crate) fn blocking(setup: &Setup) -> Self {
        Self::try_blocking(setup).unwrap()
    }

    pub(crate) fn try_blocking(setup: &Setup) -> Answer<Self> {
        Self::started(setup, None)
    }

    fn started(setup: &Setup, runtime: Option<Runtime>) -> Answer<Self> {
        // Compiling the component takes longer than most tests.
        static COMPONENT: LazyLock<Component> = LazyLock::new(|| {
            let engine = Engine::new(&Config::new()).unwrap();
            Component::new(&engine, FORWARDER).unwrap()
        });
        let (component, engine) = (&*COMPONENT, COMPONENT.engine());
        let mut linker = Linker::new(engine);
        let mut store = setup.store(engine);
        let instance = match &runtime {
            Some(runtime) => {
                add_to_linker(&mut linker).unwrap();
                runtime.block_on(linker.instantiate_async(&mut store, component))
            }
            None => {
                add_to_linker_sync(&mut linker).unwrap();
                linker.instantiate(&mut store, component)
            }
        };
        let instance = instance.unwrap();
        let operations = instance
            .get_export_index(&mut store, None, OPERATIONS)
            .unwrap();
        let mut rig = Self {
            runtime,
            store,
            instance,
            operations,
            device: 0,
            known: HashSet::new(),
        };
        rig.device = rig.open()?;
        Ok(rig)
    }

    pub(crate) fn cuda(&self) -> &WasiCudaContext {
        &self.store.data().cuda
    }

    pub(crate) fn cuda_mut(&mut self) -> &mut WasiCudaContext {
        &mut self.store.data_mut().cuda
    }
}

impl Rig {
    /// Calls an export.
    fn try_call<P, R>(&mut self, name: &str, params: P) -> wasmtime::Result<R>
    where
        P: ComponentNamedList + Lower + Send + Sync,
        R: ComponentNamedList + Lift + Send + Sync + 'static,
    {
        let operations = Some(&self.operations);
        let export = self
            .instance
            .get_export_index(&mut self.store, operations, name)
            .unwrap();
        let export = self
            .instance
            .get_typed_func::<P, R>(&mut self.store, export)?;
        match &self.runtime {
            Some(runtime) => runtime.block_on(export.call_async(&mut self.store, params)),
            None => export.call(&mut self.store, params),
        }
    }

    /// Calls an export that must not trap.
    fn call<P, R>(&mut self, name: &str, params: P) -> R
    where
        P: ComponentNamedList + Lower + Send + Sync,
        R: ComponentNamedList + Lift + Send + Sync + 'static,
    {
        self.try_call(name, params).expect("no operation traps")
    }

    /// An answer as it is, once its text is known to be fit for a component.
    fn clean<T>(&self, answer: Answer<T>) -> Answer<T> {
        if let Err(error) = &answer {
            // What a kernel computes for an address is its own affair.
            let access = error.trap.and_then(|trap| trap.access);
            let known = self.known.iter().copied();
            let known = known.chain(access.map(|access| access.address)).collect();
            assert_text_is_clean(&error.message, &known);
        }
        answer
    }

    pub(crate) fn open(&mut self) -> Answer<u32> {
        let (answer,) = self.call("open", ());
        self.clean(answer)
    }

    pub(crate) fn device_info(&mut self) -> Answer<api::DeviceInfo> {
        let (answer,) = self.call("info-of-device", (self.device,));
        self.clean(answer)
    }

    pub(crate) fn load(&mut self, ptx: &[u8], entry: &str) -> Answer<u32> {
        let (answer,) = self.call("load", (self.device, ptx, entry));
        self.clean(answer)
    }

    /// Loads an entry that must be there.
    pub(crate) fn kernel(&mut self, ptx: &str, entry: &str) -> u32 {
        self.load(ptx.as_bytes(), entry).unwrap()
    }

    pub(crate) fn find_kernel(&mut self, name: &str) -> Answer<u32> {
        let (answer,) = self.call("find-kernel", (self.device, name));
        self.clean(answer)
    }

    pub(crate) fn kernel_info(&mut self, kernel: u32) -> Answer<api::KernelInfo> {
        let (answer,) = self.call("info-of-kernel", (kernel,));
        self.clean(answer)
    }

    pub(crate) fn launch(
        &mut self,
        kernel: u32,
        shape: Shape,
        args: &[Arg],
    ) -> Answer<Vec<Vec<u8>>> {
        let (answer,) = self.call("launch", (kernel, in_wit(shape), args));
        self.clean(answer)
    }

    pub(crate) fn launch_cooperative(
        &mut self,
        kernel: u32,
        shape: Shape,
        args: &[Arg],
    ) -> Answer<Vec<Vec<u8>>> {
        let (answer,) = self.call("launch-cooperative", (kernel, in_wit(shape), args));
        self.clean(answer)
    }

    pub(crate) fn symbol(&mut self, kernel: u32, name: &str) -> Answer<u32> {
        let (answer,) = self.call("symbol", (kernel, name));
        self.clean(answer)
    }

    pub(crate) fn alloc(&mut self, bytes: u64) -> Answer<u32> {
        let (answer,) = self.call("alloc", (self.device, bytes));
        self.clean(answer)
    }

    pub(crate) fn write(&mut self, buffer: u32, offset: u64, data: &[u8]) -> Answer<()> {
        self.known.insert(offset);
        let (answer,) = self.call("write", (buffer, offset, data));
        self.clean(answer)
    }

    pub(crate) fn read(&mut self, buffer: u32, offset: u64, len: u32) -> Answer<Vec<u8>> {
        self.known.insert(offset);
        let (answer,) = self.call("read", (buffer, offset, len));
        self.clean(answer)
    }

    pub(crate) fn size(&mut self, buffer: u32) -> u64 {
        let (size,) = self.call("size", (buffer,));
        size
    }

    pub(crate) fn drop_device(&mut self) {
        self.call("drop-device", (self.device,))
    }

    pub(crate) fn drop_kernel(&mut self, kernel: u32) {
        self.call("drop-kernel", (kernel,))
    }

    pub(crate) fn drop_buffer(&mut self, buffer: u32) {
        self.call("drop-buffer", (buffer,))
    }

    /// Drops a handle that the component may not have, which the engine itself refuses.
    pub(crate) fn try_drop_kernel(&mut self, kernel: u32) -> wasmtime::Result<()> {
        self.try_call("drop-kernel", (kernel,))
    }

    /// A load whose import may not wait, which traps.
    pub(crate) fn try_load(&mut self, ptx: &str, entry: &str) -> wasmtime::Result<Answer<u32>> {
        let (answer,) = self.try_call("load", (self.device, ptx.as_bytes(), entry))?;
        Ok(answer)
    }
}

fn in_wit(shape: Shape) -> api::Shape {
    let extent = |[x, y, z]: [u32; 3]| api::Extent { x, y, z };
    api::Shape {
        grid: extent(shape.grid),
        block: extent(shape.block),
        shared_bytes: shape.shared_bytes,
    }
}
