//! A component in a store: the forwarder of `fixtures/components`, which exports what it imports. No test belongs here.

use std::collections::HashSet;
use std::sync::LazyLock;

use host::WasiCudaContext;
use tokio::runtime::Runtime;
use wasmtime::component::{Component, Linker};
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

use bindings::Forwarder;

const FORWARDER: &[u8] = include_bytes!("../../../fixtures/components/forwarder.wasm");

/// A running component and the device that it opened.
pub(crate) struct Rig {
    runtime: Runtime,
    store: Store<Data>,
    forwarder: Forwarder,
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
        // Compiling the component takes longer than most tests.
        static COMPONENT: LazyLock<Component> = LazyLock::new(|| {
            let engine = Engine::new(&Config::new()).unwrap();
            Component::new(&engine, FORWARDER).unwrap()
        });
        let (component, engine) = (&*COMPONENT, COMPONENT.engine());
        let mut linker = Linker::new(engine);
        host::component::add_to_linker(&mut linker).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let mut store = setup.store(engine);
        let forwarder = Forwarder::instantiate_async(&mut store, component, &linker);
        let forwarder = runtime.block_on(forwarder).unwrap();
        let mut rig = Self {
            runtime,
            store,
            forwarder,
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

/// Calls an export, which must not trap, and looks at what it says.
macro_rules! call {
    ($rig:ident.$export:ident($($arg:expr),*)) => {{
        let operations = $rig.forwarder.wasi_cuda_forwarder_operations();
        let called = operations.$export(&mut $rig.store, $($arg),*);
        $rig.runtime.block_on(called).expect("no operation traps")
    }};
}

impl Rig {
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
        let answer = call!(self.call_open());
        self.clean(answer)
    }

    pub(crate) fn device_info(&mut self) -> Answer<api::DeviceInfo> {
        let answer = call!(self.call_info_of_device(self.device));
        self.clean(answer)
    }

    pub(crate) fn load(&mut self, ptx: &[u8], entry: &str) -> Answer<u32> {
        let answer = call!(self.call_load(self.device, ptx, entry));
        self.clean(answer)
    }

    /// Loads an entry that must be there.
    pub(crate) fn kernel(&mut self, ptx: &str, entry: &str) -> u32 {
        self.load(ptx.as_bytes(), entry).unwrap()
    }

    pub(crate) fn find_kernel(&mut self, name: &str) -> Answer<u32> {
        let answer = call!(self.call_find_kernel(self.device, name));
        self.clean(answer)
    }

    pub(crate) fn kernel_info(&mut self, kernel: u32) -> Answer<api::KernelInfo> {
        let answer = call!(self.call_info_of_kernel(kernel));
        self.clean(answer)
    }

    pub(crate) fn launch(
        &mut self,
        kernel: u32,
        shape: Shape,
        args: &[Arg],
    ) -> Answer<Vec<Vec<u8>>> {
        let answer = call!(self.call_launch(kernel, in_wit(shape), args));
        self.clean(answer)
    }

    pub(crate) fn launch_cooperative(
        &mut self,
        kernel: u32,
        shape: Shape,
        args: &[Arg],
    ) -> Answer<Vec<Vec<u8>>> {
        let answer = call!(self.call_launch_cooperative(kernel, in_wit(shape), args));
        self.clean(answer)
    }

    pub(crate) fn symbol(&mut self, kernel: u32, name: &str) -> Answer<u32> {
        let answer = call!(self.call_symbol(kernel, name));
        self.clean(answer)
    }

    pub(crate) fn alloc(&mut self, bytes: u64) -> Answer<u32> {
        let answer = call!(self.call_alloc(self.device, bytes));
        self.clean(answer)
    }

    pub(crate) fn write(&mut self, buffer: u32, offset: u64, data: &[u8]) -> Answer<()> {
        self.known.insert(offset);
        let answer = call!(self.call_write(buffer, offset, data));
        self.clean(answer)
    }

    pub(crate) fn read(&mut self, buffer: u32, offset: u64, len: u32) -> Answer<Vec<u8>> {
        self.known.insert(offset);
        let answer = call!(self.call_read(buffer, offset, len));
        self.clean(answer)
    }

    pub(crate) fn size(&mut self, buffer: u32) -> u64 {
        call!(self.call_size(buffer))
    }

    pub(crate) fn drop_device(&mut self) {
        call!(self.call_drop_device(self.device));
    }

    pub(crate) fn drop_kernel(&mut self, kernel: u32) {
        call!(self.call_drop_kernel(kernel));
    }

    pub(crate) fn drop_buffer(&mut self, buffer: u32) {
        call!(self.call_drop_buffer(buffer));
    }

    /// Drops a handle that the component may not have, which the engine itself refuses.
    pub(crate) fn try_drop_kernel(&mut self, kernel: u32) -> wasmtime::Result<()> {
        let operations = self.forwarder.wasi_cuda_forwarder_operations();
        let dropped = operations.call_drop_kernel(&mut self.store, kernel);
        self.runtime.block_on(dropped)
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
