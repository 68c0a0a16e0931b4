//! The imports of components: the interface of `wit/wasi-cuda.wit` over the operations that core modules use. Takes values
//! apart and puts answers together, and decides nothing.

mod answer;
mod blocking;
mod copies;
mod launch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::{MAX_WINDOW_BYTES, Mode, Region, RegionSpec};
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};

use crate::buffers;
use crate::context::{HasWasiCuda, Shared, WasiCudaContext};
use crate::core_abi::contained;
use crate::error::Error;
use crate::guest_mem::{GuestMemory, GuestSlice};
use crate::ops::{self, LoadCall};

pub use blocking::add_to_linker_sync;

use answer::failure;
use bindings::wasi_cuda::cuda::api;

/// Generated from `wit/wasi-cuda.wit`, which documents it.
mod bindings {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "guest",
        imports: {
            "wasi-cuda:cuda/api.[method]buffer.read": async,
            "wasi-cuda:cuda/api.[method]buffer.write": async,
            "wasi-cuda:cuda/api.[method]device.alloc": async,
            "wasi-cuda:cuda/api.[method]device.load": async,
            "wasi-cuda:cuda/api.[method]kernel.launch": async,
            "wasi-cuda:cuda/api.[method]kernel.launch-cooperative": async,
        },
        with: {
            "wasi-cuda:cuda/api.buffer": super::BufferHandle,
            "wasi-cuda:cuda/api.device": super::DeviceHandle,
            "wasi-cuda:cuda/api.kernel": super::KernelHandle,
        },
    });
}

/// Adds the imports of package `wasi-cuda:cuda` to a linker for components.
///
/// Launches, loads and copies suspend the component, so components that import them must be instantiated and called with the `async`
/// methods of wasmtime, or linked with [`add_to_linker_sync`]. Any engine will do: kernels run on device buffers, never on a component's linear memory.
///
/// # Errors
/// If the linker already has the interface.
pub fn add_to_linker<T: HasWasiCuda + Send + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    api::add_to_linker::<T, Context>(linker, |data| Host(data.wasi_cuda()))
}

/// How the generated code names [`Host`].
struct Context;

impl HasData for Context {
    type Data<'a> = Host<'a>;
}

/// The imports of one context.
struct Host<'a>(&'a WasiCudaContext);

/// The device: a context has one at most.
#[derive(Debug)]
pub struct DeviceHandle(());

/// A kernel, by the handle that a core module would have.
#[derive(Debug)]
pub struct KernelHandle(i64);

/// A buffer, by the handle that a core module would have.
#[derive(Debug)]
pub struct BufferHandle(i64);

/// What a context holds for components beside what it holds for core modules.
#[derive(Debug, Default)]
pub(crate) struct Held {
    resources: Mutex<ResourceTable>,
    /// Where buffers are carved from, once there are any.
    window: Mutex<Option<Arc<Region>>>,
}

impl Held {
    fn resources(&self) -> MutexGuard<'_, ResourceTable> {
        self.resources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory that a component's kernels run on: nothing but buffers.
fn window(shared: &Shared) -> Result<Arc<Region>, Error> {
    let device = shared.device()?;
    let mut window = shared
        .components
        .window
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(window) = &*window {
        return Ok(Arc::clone(window));
    }
    let bytes = shared.limits.buffer_bytes_total;
    let bytes = bytes.clamp(SMALLEST_WINDOW_BYTES, MAX_WINDOW_BYTES);
    let made = device.new_region(RegionSpec {
        window_bytes: bytes.next_power_of_two(),
        initial_bytes: 0,
        maximum_bytes: 0,
        reserved_bytes: 0,
        guard_bytes: 0,
    })?;
    Ok(Arc::clone(window.insert(made)))
}

/// Room for a few small buffers, each of which takes whole pages.
const SMALLEST_WINDOW_BYTES: u64 = 1 << 20;

/// A resource that does not exist although the engine vouches for it.
fn lost(_: wasmtime::component::ResourceTableError) -> Error {
    Error::Internal { what: "a resource" }
}

fn push<R: Send + 'static>(shared: &Shared, resource: R) -> Result<Resource<R>, Error> {
    let mut resources = shared.components.resources();
    resources.push(resource).map_err(|_| Error::Quota {
        what: "resources",
        given: resources.iter_mut().count() as u64,
        limit: resources.max_capacity() as u64,
    })
}

fn kernel_of(shared: &Shared, kernel: &Resource<KernelHandle>) -> Result<i64, Error> {
    let resources = shared.components.resources();
    resources.get(kernel).map(|kernel| kernel.0).map_err(lost)
}

fn buffer_of(shared: &Shared, buffer: &Resource<BufferHandle>) -> Result<i64, Error> {
    let resources = shared.components.resources();
    resources.get(buffer).map(|buffer| buffer.0).map_err(lost)
}

/// A kernel for the component, or for nobody where it cannot be given.
fn give_kernel(shared: &Shared, kernel: i64) -> Result<Resource<KernelHandle>, Error> {
    push(shared, KernelHandle(kernel))
        .inspect_err(|_| ops::unload(shared, kernel).unwrap_or_default())
}

fn give_buffer(shared: &Shared, buffer: i64) -> Result<Resource<BufferHandle>, Error> {
    push(shared, BufferHandle(buffer))
        .inspect_err(|_| buffers::free(shared, buffer).unwrap_or_default())
}

impl<'a> Host<'a> {
    /// An import, from the first check to the answer.
    fn call<R>(
        &self,
        operation: impl FnOnce(&'a Arc<Shared>) -> Result<R, Error>,
    ) -> Result<R, api::Error> {
        let shared = self.0.shared();
        let result = contained(|| {
            shared.enter()?;
            operation(shared)
        });
        result.map_err(|error| failure(shared, &error))
    }
}

impl api::Host for Host<'_> {}

impl api::HostDevice for Host<'_> {
    fn open(&mut self) -> Result<Resource<DeviceHandle>, api::Error> {
        self.call(|shared| {
            shared.device()?;
            push(shared, DeviceHandle(()))
        })
    }

    fn info(&mut self, _: Resource<DeviceHandle>) -> Result<api::DeviceInfo, api::Error> {
        self.call(|shared| {
            let written = written(|memory, into| ops::device_info(shared, memory, into))?;
            answer::device_info(&written)
        })
    }

    async fn load(
        &mut self,
        _: Resource<DeviceHandle>,
        ptx: Vec<u8>,
        entry: String,
    ) -> Result<Resource<KernelHandle>, api::Error> {
        tokio::task::consume_budget().await;
        let loading = self.call(|shared| {
            let mut bytes = ptx;
            let ptx = GuestMemory::new(&mut bytes).whole("PTX");
            bytes.extend_from_slice(entry.as_bytes());
            let memory = GuestMemory::new(&mut bytes);
            let entry = GuestSlice {
                at: ptx.len,
                len: memory.whole("").len - ptx.len,
                what: "an entry name",
            };
            let region = Some(window(shared)?);
            ops::load(shared, &memory, region, LoadCall { ptx, entry })
        })?;
        let shared = self.0.shared();
        let loaded = loading.finish().await;
        loaded
            .and_then(|kernel| give_kernel(shared, kernel))
            .map_err(|error| failure(shared, &error))
    }

    fn find_kernel(
        &mut self,
        _: Resource<DeviceHandle>,
        name: String,
    ) -> Result<Resource<KernelHandle>, api::Error> {
        self.call(|shared| {
            let kernel = named(name, "a kernel name", |memory, name| {
                ops::find_kernel(shared, memory, name)
            })?;
            push(shared, KernelHandle(kernel))
        })
    }

    async fn alloc(
        &mut self,
        _: Resource<DeviceHandle>,
        bytes: u64,
    ) -> Result<Resource<BufferHandle>, api::Error> {
        tokio::task::consume_budget().await;
        let shared = self.0.shared();
        let buffer = copies::alloc(shared, bytes).await;
        buffer
            .and_then(|buffer| give_buffer(shared, buffer))
            .map_err(|error| failure(shared, &error))
    }

    fn drop(&mut self, device: Resource<DeviceHandle>) -> wasmtime::Result<()> {
        self.0.shared().components.resources().delete(device)?;
        Ok(())
    }
}

impl api::HostKernel for Host<'_> {
    fn info(&mut self, kernel: Resource<KernelHandle>) -> Result<api::KernelInfo, api::Error> {
        self.call(|shared| {
            let kernel = kernel_of(shared, &kernel)?;
            let written = written(|memory, into| ops::kernel_info(shared, memory, kernel, into))?;
            Ok(answer::kernel_info(&written))
        })
    }

    async fn launch(
        &mut self,
        kernel: Resource<KernelHandle>,
        shape: api::Shape,
        args: Vec<api::KernelArg>,
    ) -> Result<Vec<Vec<u8>>, api::Error> {
        launch::launch(self, kernel, shape, args, Mode::Plain).await
    }

    async fn launch_cooperative(
        &mut self,
        kernel: Resource<KernelHandle>,
        shape: api::Shape,
        args: Vec<api::KernelArg>,
    ) -> Result<Vec<Vec<u8>>, api::Error> {
        launch::launch(self, kernel, shape, args, Mode::Cooperative).await
    }

    fn symbol(
        &mut self,
        kernel: Resource<KernelHandle>,
        name: String,
    ) -> Result<Resource<BufferHandle>, api::Error> {
        self.call(|shared| {
            let kernel = kernel_of(shared, &kernel)?;
            let buffer = named(name, "a variable name", |memory, name| {
                ops::symbol(shared, memory, kernel, name)
            })?;
            give_buffer(shared, buffer)
        })
    }

    fn drop(&mut self, kernel: Resource<KernelHandle>) -> wasmtime::Result<()> {
        let shared = self.0.shared();
        let KernelHandle(kernel) = shared.components.resources().delete(kernel)?;
        // What the embedder registered stays, and where the device is lost there is nothing to give back.
        ops::unload(shared, kernel).unwrap_or_default();
        Ok(())
    }
}

impl api::HostBuffer for Host<'_> {
    fn size(&mut self, buffer: Resource<BufferHandle>) -> u64 {
        let shared = self.0.shared();
        let buffer = buffer_of(shared, &buffer).and_then(|buffer| shared.buffer(buffer));
        buffer.map_or(0, |buffer| buffer.bytes())
    }

    async fn write(
        &mut self,
        buffer: Resource<BufferHandle>,
        at: u64,
        mut data: Vec<u8>,
    ) -> Result<(), api::Error> {
        tokio::task::consume_budget().await;
        let buffer = self.call(|shared| buffer_of(shared, &buffer))?;
        let shared = self.0.shared();
        let written = copies::write(shared, buffer, at, &mut data).await;
        written.map_err(|error| failure(shared, &error))
    }

    async fn read(
        &mut self,
        buffer: Resource<BufferHandle>,
        at: u64,
        len: u32,
    ) -> Result<Vec<u8>, api::Error> {
        tokio::task::consume_budget().await;
        let buffer = self.call(|shared| buffer_of(shared, &buffer))?;
        let shared = self.0.shared();
        let read = copies::read(shared, buffer, at, len).await;
        read.map_err(|error| failure(shared, &error))
    }

    fn drop(&mut self, buffer: Resource<BufferHandle>) -> wasmtime::Result<()> {
        let shared = self.0.shared();
        let BufferHandle(buffer) = shared.components.resources().delete(buffer)?;
        // Where the device is lost there is nothing to give back.
        buffers::free(shared, buffer).unwrap_or_default();
        Ok(())
    }
}

/// All that an operation of the `_info` kind writes: it answers the size, and then that much.
fn written(
    mut operation: impl FnMut(&mut GuestMemory<'_>, GuestSlice) -> Result<u32, Error>,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    loop {
        let mut memory = GuestMemory::new(&mut bytes);
        let whole = memory.whole("an answer");
        let size = operation(&mut memory, whole)? as usize;
        if size <= bytes.len() {
            bytes.truncate(size);
            return Ok(bytes);
        }
        bytes.resize(size, 0);
    }
}

/// An operation that takes a name.
fn named<R>(
    name: String,
    what: &'static str,
    operation: impl FnOnce(&GuestMemory<'_>, GuestSlice) -> Result<R, Error>,
) -> Result<R, Error> {
    let mut name = name.into_bytes();
    let memory = GuestMemory::new(&mut name);
    let whole = memory.whole(what);
    operation(&memory, whole)
}
