//! The imports of components for stores without async: where the others suspend, these block the calling thread. What they do is
//! theirs.

use std::pin::Pin;

use wasmtime::StoreContextMut;
use wasmtime::component::{
    ComponentNamedList, ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType,
};

use super::{BufferHandle, DeviceHandle, Host, KernelHandle, api};
use crate::context::HasWasiCuda;
use crate::wait::Wait;

/// The interface as linkers name it. One that `wit/` does not have links with no component.
const INTERFACE: &str = "wasi-cuda:cuda/api@1.0.0";

/// Adds the imports of package `wasi-cuda:cuda` for components that are called without `async`: what waits blocks the calling thread,
/// for as long as a kernel may run.
///
/// Nothing can give up such a call, so an instance whose [`Limits`](crate::Limits) have no deadline traps where it would wait. So
/// does one that is called on the only thread of an async runtime: see [`add_to_linker_sync`](crate::add_to_linker_sync) for core
/// modules.
///
/// # Errors
/// If the linker already has the interface.
pub fn add_to_linker_sync<T: HasWasiCuda + Send + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    let mut imports = Imports(linker.instance(INTERFACE)?);
    devices(&mut imports)?;
    kernels(&mut imports)?;
    buffers(&mut imports)
}

fn devices<T: HasWasiCuda + 'static>(imports: &mut Imports<'_, T>) -> wasmtime::Result<()> {
    use api::HostDevice as D;
    imports.resource::<DeviceHandle>("device", |host, device| D::drop(host, device))?;
    imports.at_once("[static]device.open", |host, ()| D::open(host))?;
    imports.at_once("[method]device.info", |host, (device,)| {
        D::info(host, device)
    })?;
    imports.at_once("[method]device.find-kernel", |host, (device, name)| {
        D::find_kernel(host, device, name)
    })?;
    imports.waiting("[method]device.load", |host, (device, ptx, entry)| {
        Box::pin(D::load(host, device, ptx, entry))
    })?;
    imports.waiting("[method]device.alloc", |host, (device, bytes)| {
        Box::pin(D::alloc(host, device, bytes))
    })
}

fn kernels<T: HasWasiCuda + 'static>(imports: &mut Imports<'_, T>) -> wasmtime::Result<()> {
    use api::HostKernel as K;
    imports.resource::<KernelHandle>("kernel", |host, kernel| K::drop(host, kernel))?;
    imports.at_once("[method]kernel.info", |host, (kernel,)| {
        K::info(host, kernel)
    })?;
    imports.at_once("[method]kernel.symbol", |host, (kernel, name)| {
        K::symbol(host, kernel, name)
    })?;
    imports.waiting("[method]kernel.launch", |host, (kernel, shape, args)| {
        Box::pin(K::launch(host, kernel, shape, args))
    })?;
    imports.waiting(
        "[method]kernel.launch-cooperative",
        |host, (kernel, shape, args)| Box::pin(K::launch_cooperative(host, kernel, shape, args)),
    )
}

fn buffers<T: HasWasiCuda + 'static>(imports: &mut Imports<'_, T>) -> wasmtime::Result<()> {
    use api::HostBuffer as B;
    imports.resource::<BufferHandle>("buffer", |host, buffer| B::drop(host, buffer))?;
    imports.at_once("[method]buffer.size", |host, (buffer,)| {
        B::size(host, buffer)
    })?;
    imports.waiting("[method]buffer.write", |host, (buffer, at, data)| {
        Box::pin(B::write(host, buffer, at, data))
    })?;
    imports.waiting("[method]buffer.read", |host, (buffer, at, len)| {
        Box::pin(B::read(host, buffer, at, len))
    })
}

/// What an import that waits answers, later.
type Later<'a, R> = Pin<Box<dyn Future<Output = Result<R, api::Error>> + Send + 'a>>;

/// The interface in a linker, while imports are added to it.
struct Imports<'a, T: 'static>(LinkerInstance<'a, T>);

impl<T: HasWasiCuda + 'static> Imports<'_, T> {
    fn resource<R: 'static>(
        &mut self,
        name: &str,
        drop: fn(&mut Host<'_>, Resource<R>) -> wasmtime::Result<()>,
    ) -> wasmtime::Result<()> {
        let drop = move |store: StoreContextMut<'_, T>, handle| {
            let mut host = Host(store.data().wasi_cuda());
            drop(&mut host, Resource::new_own(handle))
        };
        self.0.resource(name, ResourceType::host::<R>(), drop)
    }

    /// An import that does not wait.
    fn at_once<P, R>(
        &mut self,
        name: &str,
        import: impl Fn(&mut Host<'_>, P) -> R + Send + Sync + 'static,
    ) -> wasmtime::Result<()>
    where
        P: ComponentNamedList + Lift + 'static,
        R: ComponentType + Lower + 'static,
    {
        self.0
            .func_wrap(name, move |store: StoreContextMut<'_, T>, params: P| {
                let mut host = Host(store.data().wasi_cuda());
                Ok((import(&mut host, params),))
            })
    }

    /// An import that waits.
    fn waiting<P, R>(
        &mut self,
        name: &str,
        import: impl for<'a> Fn(&'a mut Host<'_>, P) -> Later<'a, R> + Send + Sync + 'static,
    ) -> wasmtime::Result<()>
    where
        P: ComponentNamedList + Lift + 'static,
        R: ComponentType + Lower + 'static,
    {
        self.0
            .func_wrap(name, move |store: StoreContextMut<'_, T>, params: P| {
                let mut host = Host(store.data().wasi_cuda());
                let wait = Wait::new(&host.0.shared().limits)?;
                Ok((wait.on(import(&mut host, params))?,))
            })
    }
}
