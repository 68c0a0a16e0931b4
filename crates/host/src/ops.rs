//! What the imports do, once: load, launch, copy, query. How they are called is for `core_abi`.

use std::sync::Arc;
use std::time::Instant;

use abi::info::{self, DeviceInfo, KernelInfo, ParamClass, ParamInfo, TrapInfo, TrapKind};
use device::{Device, Region, Side};
use tokio::sync::oneshot;

use crate::buffers::Buffer;
use crate::context::{LaunchPermit, Shared};
use crate::error::Error;
use crate::event::Event;
use crate::guest_mem::{GuestMemory, GuestSlice};
use crate::isolation::Isolation;
use crate::lower::{LaunchCall, Lowered, lower};
use crate::modules::Loaded;
use crate::policy::Permit;
use crate::registry::{Code, KernelEntry};
use crate::telemetry::count;

/// Checks and starts a launch. Dropping what is given stops the kernel.
pub(crate) fn launch<'a>(
    shared: &'a Shared,
    memory: &mut GuestMemory<'_>,
    call: &LaunchCall,
) -> Result<LaunchPermit<'a>, Error> {
    let Lowered {
        program,
        launch,
        mut permit,
    } = lower(shared, memory, call)?;
    permit.start(launch, program);
    Ok(permit)
}

/// The arguments of a load import.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadCall {
    pub(crate) ptx: GuestSlice,
    pub(crate) entry: GuestSlice,
}

/// A load that a device works on.
pub(crate) struct Loading(oneshot::Receiver<Result<i64, Error>>);

/// Checks a load of what is in `memory`, for kernels that run on `region`, and hands it to the device's loader.
pub(crate) fn load(
    shared: &Arc<Shared>,
    memory: &GuestMemory<'_>,
    region: Option<Arc<Region>>,
    call: LoadCall,
) -> Result<Loading, Error> {
    let device = Arc::clone(shared.device()?);
    let caps = [
        ("bytes of PTX", call.ptx, shared.limits.ptx_bytes),
        (
            "bytes of an entry name",
            call.entry,
            abi::MAX_ENTRY_NAME_BYTES as u64,
        ),
    ];
    for (what, slice, limit) in caps {
        let given = u64::from(slice.len);
        if given > limit {
            return Err(Error::Quota { what, given, limit });
        }
    }
    let text: Arc<[u8]> = memory.read(call.ptx)?.into();
    let entry: Box<str> = memory.text(call.entry)?.into();
    let charge = [
        shared.quotas.kernels.take(1)?,
        shared.quotas.ptx_bytes.take(text.len() as u64)?,
    ];
    let under_way = shared.quotas.loads.take(1)?;

    let (sender, receiver) = oneshot::channel();
    let loader = Arc::clone(shared);
    let on_loader = Arc::clone(&device);
    device.defer(Box::new(move || {
        let loaded = load_now(&loader, &on_loader, region.as_ref(), &text, &entry, charge);
        let (registry, instance) = (loader.registry.clone(), loader.instance);
        // The caller may drop its instance as soon as it has the answer, and expect the memory to be free then.
        drop((loader, region, under_way));
        // A caller that has gone takes no answer; the kernel is unloaded with the entry that comes back.
        if let Err(Ok(handle)) = sender.send(loaded) {
            registry.unload(handle, instance).unwrap_or_default();
        }
    }))?;
    Ok(Loading(receiver))
}

fn load_now(
    shared: &Shared,
    device: &Arc<dyn Device>,
    region: Option<&Arc<Region>>,
    text: &Arc<[u8]>,
    entry: &str,
    charge: [Permit; 2],
) -> Result<i64, Error> {
    let begun = Instant::now();
    let span = tracing::info_span!("load", instance = ?shared.instance, kernel = entry);
    let _inside = span.entered();
    let isolation = shared.isolation_on(&**device);
    let memory = &shared.quotas.buffer_bytes;
    let (module, loaded) = shared
        .modules
        .load(device, text, isolation, region, memory)?;
    let code = Code::new(module, entry)?;
    count(&shared.counters.loads);
    if loaded == Loaded::Shared {
        count(&shared.counters.loads_shared);
    }
    let kernel = KernelEntry::loaded(shared.instance, entry, text.len(), code, charge);
    let limit = Error::Internal {
        what: "registering a kernel",
    };
    let id = shared.registry.register(kernel).map_err(|_| limit)?;
    shared.tell(&Event::Load {
        kernel: entry,
        ptx_bytes: text.len(),
        took: begun.elapsed(),
    });
    Ok(id.handle())
}

impl Loading {
    /// Waits for the kernel's handle.
    pub(crate) async fn finish(self) -> Result<i64, Error> {
        self.0
            .await
            .unwrap_or(Err(Error::Internal { what: "loading" }))
    }
}

/// The handle of a kernel that the embedder registered.
pub(crate) fn find_kernel(
    shared: &Shared,
    memory: &GuestMemory<'_>,
    name: GuestSlice,
) -> Result<i64, Error> {
    shared.device()?;
    let name = short_name(memory, name)?;
    let found = shared.registry.find(name, shared.instance);
    let none = || Error::NoSuchName { name: name.into() };
    found.map(|id| id.handle()).ok_or_else(none)
}

/// A name of a kernel or a variable, which is within the cap on names.
fn short_name<'a>(memory: &'a GuestMemory<'_>, name: GuestSlice) -> Result<&'a str, Error> {
    let (given, limit) = (u64::from(name.len), abi::MAX_ENTRY_NAME_BYTES as u64);
    if given > limit {
        let what = "bytes of a name";
        return Err(Error::Quota { what, given, limit });
    }
    memory.text(name)
}

/// A buffer over a variable of a kernel's module. It counts as a buffer; its bytes are the module's.
pub(crate) fn symbol(
    shared: &Shared,
    memory: &GuestMemory<'_>,
    kernel: i64,
    name: GuestSlice,
) -> Result<i64, Error> {
    let device = shared.device()?;
    let name = short_name(memory, name)?;
    let kernel = shared.registry.get(kernel, shared.instance)?;
    let module = &kernel.code()?.module;
    if shared.isolation_on(&**device).is_checked_by(&**device) {
        return Err(Error::SymbolUnsupported);
    }
    let none = || Error::NoSuchVariable { name: name.into() };
    let (Some(globals), Some(memory)) = (module.module.globals(), &module.variables) else {
        return Err(none());
    };
    let variables = &globals.variables;
    let variable = variables.iter().find(|variable| variable.name == name);
    let variable = variable.ok_or_else(none)?;
    let charge = shared.quotas.buffers.take(1)?;
    let (at, bytes) = (variable.offset.into(), variable.bytes.into());
    shared.add_buffer(Buffer::variable(Arc::clone(memory), at, bytes, charge))
}

/// Gives a kernel back.
pub(crate) fn unload(shared: &Shared, kernel: i64) -> Result<(), Error> {
    shared.device()?;
    shared.registry.unload(kernel, shared.instance)
}

/// `device_info`: writes what fits, answers the full size.
pub(crate) fn device_info(
    shared: &Shared,
    memory: &mut GuestMemory<'_>,
    into: GuestSlice,
) -> Result<u32, Error> {
    let info = match shared.device() {
        Err(Error::NoDevice { .. }) => DeviceInfo::from_bytes(&[]),
        Err(error) => return Err(error),
        Ok(device) => {
            let told = device.info();
            let limits = told.limits;
            let (compute_major, compute_minor) = told.compute_capability;
            let window = memory
                .region(device.regions())
                .map_or(0, |region| region.spec().window_bytes);
            let kind = match told.kind {
                device::DeviceKind::Cpu => info::DeviceKind::Cpu,
                device::DeviceKind::Cuda => info::DeviceKind::Cuda,
            };
            let features = features_of(&**device, shared.isolation_on(&**device));
            DeviceInfo {
                kind: kind.number(),
                compute_major,
                compute_minor,
                multiprocessors: told.multiprocessors,
                max_threads_per_block: limits.threads_per_block,
                max_block: limits.block,
                max_grid: limits.grid,
                warp_size: 32,
                max_shared_bytes: limits.shared_bytes,
                max_shared_default_bytes: limits.shared_bytes.min(48 << 10),
                max_threads_per_multiprocessor: 0,
                features,
                window_bytes: window,
                name: DeviceInfo::name_bytes(&told.name),
            }
        }
    };
    memory.write_prefix(into, &info.to_bytes())?;
    Ok(info.full_size())
}

fn features_of(device: &dyn Device, isolation: Isolation) -> u64 {
    let abilities = device.abilities();
    let feature = |is_there: bool, bit: u64| if is_there { bit } else { 0 };
    let is_checked = isolation.is_checked_by(device);
    let isolation = match isolation {
        Isolation::Confined => info::FEATURE_CONFINED,
        Isolation::Trapping => info::FEATURE_CONFINED | info::FEATURE_TRAPPING,
    };
    isolation
        | feature(!is_checked, info::FEATURE_SYMBOL)
        | feature(abilities.cooperative, info::FEATURE_COOPERATIVE)
        | feature(abilities.prefetch, info::FEATURE_PREFETCH)
}

/// `kernel_info`: writes what fits, answers the full size.
pub(crate) fn kernel_info(
    shared: &Shared,
    memory: &mut GuestMemory<'_>,
    kernel: i64,
    into: GuestSlice,
) -> Result<u32, Error> {
    shared.device()?;
    let kernel = shared.registry.get(kernel, shared.instance)?;
    let attributes = kernel.code()?.program.attributes();
    let signature = &attributes.signature;
    let stride = ParamInfo::SIZE;
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let info = KernelInfo {
        max_threads: attributes.max_threads_per_block,
        static_shared_bytes: signature.static_shared_bytes,
        registers: attributes.registers,
        local_bytes: attributes.local_bytes,
        param_count: number(signature.parameters.len()),
        param_stride: number(stride),
    };
    let mut bytes = info.to_bytes().to_vec();
    for parameter in &signature.parameters {
        let class = match parameter.class {
            ptx::Class::Bits => ParamClass::Bits,
            ptx::Class::Bytes => ParamClass::Bytes,
            ptx::Class::Float => ParamClass::Float,
            ptx::Class::Integer => ParamClass::Integer,
        };
        let param = ParamInfo {
            offset: parameter.offset,
            size: parameter.size,
            align: parameter.align,
            class: class.number(),
            flags: if parameter.pointer.is_some() {
                info::PARAM_FLAG_PTR
            } else {
                0
            },
        };
        bytes.extend(param.to_bytes());
    }
    memory.write_prefix(into, &bytes)?;
    Ok(info.full_size())
}

/// `trap_info`: writes what fits, answers the full size.
pub(crate) fn trap_info(
    shared: &Shared,
    memory: &mut GuestMemory<'_>,
    into: GuestSlice,
) -> Result<u32, Error> {
    shared.device()?;
    let info = shared
        .report()
        .trap
        .map_or(TrapInfo::NONE, |trap| TrapInfo {
            kind: trap_kind(trap.kind).number(),
            line: trap.line,
            block: trap.block,
            thread: trap.thread,
            access_bytes: trap.access.map_or(0, |access| access.bytes),
            address: trap.access.map_or(0, |access| access.address),
        });
    memory.write_prefix(into, &info.to_bytes())?;
    Ok(info.full_size())
}

fn trap_kind(kind: device::TrapKind) -> TrapKind {
    match kind {
        device::TrapKind::BarrierDeadlock => TrapKind::BarrierDeadlock,
        device::TrapKind::CallDepth => TrapKind::CallDepth,
        device::TrapKind::Misaligned => TrapKind::Misaligned,
        device::TrapKind::OutOfBounds => TrapKind::OutOfBounds,
        device::TrapKind::TrapInstruction => TrapKind::TrapInstruction,
    }
}

/// Memory on its way to where it will be used next.
pub(crate) struct Moving(Option<oneshot::Receiver<Result<(), device::Error>>>);

/// Checks a hint and has the device follow it. Memory that is not a region of the device stays where it is.
pub(crate) fn prefetch(
    shared: &Shared,
    memory: &mut GuestMemory<'_>,
    range: GuestSlice,
    destination: i32,
) -> Result<Moving, Error> {
    let device = shared.device()?;
    memory.read(range)?;
    let side = match destination {
        abi::PREFETCH_DEVICE => Side::Device,
        abi::PREFETCH_HOST => Side::Host,
        given => {
            return Err(Error::Value {
                what: "the destination of a prefetch",
                given: given.into(),
                expected: "0 or 1",
            });
        }
    };
    let Some(region) = memory.region(device.regions()) else {
        return Ok(Moving(None));
    };
    let (sender, receiver) = oneshot::channel();
    let start = u64::from(range.at);
    // A caller that has gone needs no answer.
    let done = Box::new(move |moved| drop(sender.send(moved)));
    device.prefetch(region, start..start + u64::from(range.len), side, done);
    Ok(Moving(Some(receiver)))
}

impl Moving {
    /// Waits until the memory is there, or is left where it is.
    pub(crate) async fn finish(self) -> Result<(), Error> {
        match self.0 {
            Some(receiver) => Ok(receiver.await.unwrap_or(Ok(()))?),
            None => Ok(()),
        }
    }
}

/// Bytes of the text of the last failure.
pub(crate) fn last_error_len(shared: &Shared) -> u32 {
    u32::try_from(shared.report().text.len()).unwrap_or(u32::MAX)
}

/// Copies the text of the last failure, answers the bytes copied.
pub(crate) fn last_error_copy(
    shared: &Shared,
    memory: &mut GuestMemory<'_>,
    into: GuestSlice,
) -> Result<u32, Error> {
    let text = shared.report().text.clone();
    let copied = memory.write_prefix(into, text.as_bytes())?;
    Ok(u32::try_from(copied).unwrap_or(u32::MAX))
}
