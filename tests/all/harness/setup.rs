//! What an instance is made of, and the text of the guest that runs in it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use device::{Device, MAX_WINDOW_BYTES, Selector};
use host::{
    Audit, EngineOptions, HasWasiCuda, InstanceId, Isolation, KernelRegistry, Limits,
    TrustedByEmbedder, WasiCudaContext, add_to_linker,
};
use wasmtime::{Config, Engine, Linker, Module, Store};

use super::{PAGE_BYTES, PTX_AT};

/// What runs kernels.
#[derive(Clone, Debug)]
pub(crate) enum Backing {
    /// The CPU device; all instances of the process share one, as tenants do.
    Cpu,
    /// A device that the test brings.
    Given(Arc<dyn Device>),
    /// No device.
    None,
}

/// Whose memory linear memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LinearMemory {
    /// The device's, in a window of this many bytes.
    Device { window_bytes: u64 },
    /// wasmtime's own: `Config::new()`.
    PlainHost,
}

/// Whether the guest has the right to the imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    Off,
    On,
}

/// What an instance is made of. `..Setup::default()` is an instance of its own on the CPU device, with the right to use it.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) backing: Backing,
    pub(crate) memory: LinearMemory,
    /// Pages of linear memory at first.
    pub(crate) pages: u32,
    /// Most pages of linear memory.
    pub(crate) max_pages: Option<u32>,
    pub(crate) limits: Limits,
    pub(crate) capability: Capability,
    /// What becomes of stray accesses; the device's default if `None`.
    pub(crate) isolation: Option<Isolation>,
    /// The embedder's word for what the guest loads.
    pub(crate) word: Option<TrustedByEmbedder>,
    /// Random if `None`.
    pub(crate) instance: Option<InstanceId>,
    pub(crate) registry: KernelRegistry,
    pub(crate) audit: Option<Arc<dyn Audit>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            backing: Backing::Cpu,
            memory: LinearMemory::Device {
                window_bytes: MAX_WINDOW_BYTES,
            },
            pages: 16,
            max_pages: None,
            limits: Limits::default(),
            capability: Capability::On,
            isolation: None,
            word: None,
            instance: None,
            registry: KernelRegistry::default(),
            audit: None,
        }
    }
}

impl Setup {
    /// An instance without a device.
    pub(crate) fn no_device() -> Self {
        Self {
            backing: Backing::None,
            ..Self::default()
        }
    }

    /// An instance on a device that the test brings.
    pub(crate) fn on(device: Arc<dyn Device>) -> Self {
        Self {
            backing: Backing::Given(device),
            ..Self::default()
        }
    }

    /// The device, if there is one.
    pub(crate) fn device(&self) -> Option<Arc<dyn Device>> {
        match &self.backing {
            Backing::Cpu => Some(cpu()),
            Backing::Given(device) => Some(Arc::clone(device)),
            Backing::None => None,
        }
    }

    /// The engine and the generic guest compiled on it.
    pub(super) fn guest(&self) -> (Engine, Module) {
        // Engines of the shared device are kept: compiling the guest takes longer than most tests.
        let key = (self.memory, self.pages, self.max_pages);
        match &self.backing {
            Backing::Given(_) => self.compile_guest(),
            Backing::Cpu | Backing::None => {
                static GUESTS: LazyLock<Guests> = LazyLock::new(Guests::default);
                let mut guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
                guests
                    .entry(key)
                    .or_insert_with(|| self.compile_guest())
                    .clone()
            }
        }
    }

    fn compile_guest(&self) -> (Engine, Module) {
        let engine = self.engine();
        let module = Module::new(&engine, guest_text(self.pages, self.max_pages)).unwrap();
        (engine, module)
    }

    /// An engine with this setup's kind of memory.
    pub(crate) fn engine(&self) -> Engine {
        let config = match self.memory {
            LinearMemory::PlainHost => Config::new(),
            LinearMemory::Device { window_bytes } => {
                // Without a device of its own, a guest still runs on the engine of the one that others use.
                let device = self.device().unwrap_or_else(cpu);
                EngineOptions::default()
                    .window_bytes(window_bytes)
                    .config(&device)
                    .unwrap()
            }
        };
        Engine::new(&config).unwrap()
    }

    /// A store with the context of this setup.
    pub(crate) fn store(&self, engine: &Engine) -> Store<Data> {
        let cuda = self.context();
        Store::new(engine, Data { cuda })
    }

    /// The context of this setup.
    pub(crate) fn context(&self) -> WasiCudaContext {
        let instance = self
            .instance
            .unwrap_or_else(|| InstanceId::random().unwrap());
        let mut builder = WasiCudaContext::builder(instance)
            .limits(self.limits)
            .registry(self.registry.clone());
        if let Some(device) = self.device() {
            builder = builder.device(device);
        }
        if let Some(audit) = &self.audit {
            builder = builder.audit(Arc::clone(audit));
        }
        if let Some(isolation) = self.isolation {
            builder = builder.isolation(isolation);
        }
        let mut context = builder.build();
        if self.capability == Capability::On {
            context.enable_wasi_cuda();
        }
        context
    }
}

type Guests = Mutex<HashMap<(LinearMemory, u32, Option<u32>), (Engine, Module)>>;

/// The CPU device that the tests of this process share.
pub(crate) fn cpu() -> Arc<dyn Device> {
    static DEVICE: OnceLock<Arc<dyn Device>> = OnceLock::new();
    let open = || device::open(Selector::Cpu).unwrap();
    Arc::clone(DEVICE.get_or_init(open))
}

/// Bytes of a text as guests hold them: of 64 KiB pages, as many as `len` bytes from `PTX_AT` take.
pub(crate) fn pages_for_text(len: usize) -> u32 {
    u32::try_from(len).unwrap().div_ceil(PAGE_BYTES) + PTX_AT / PAGE_BYTES
}

/// The name under which the generic guest exports its wrapper of an import.
pub(crate) fn wrapper(module: &str, name: &str) -> String {
    format!("{module} {name}")
}

/// The text of a guest that imports everything in [`abi::IMPORTS`] and exports a wrapper of each, its memory and `grow`.
pub(crate) fn guest_text(pages: u32, max_pages: Option<u32>) -> String {
    let max = max_pages.map_or(String::new(), |max| max.to_string());
    guest_text_with(&format!(
        "(memory (export \"memory\") {pages} {max}) {GROW}"
    ))
}

/// Exports `grow` of the first memory.
pub(crate) const GROW: &str =
    "(func (export \"grow\") (param i32) (result i32) (memory.grow (local.get 0)))";

/// The same with definitions of the test's own in place of `memory` and `grow`.
pub(crate) fn guest_text_with(definitions: &str) -> String {
    let mut imports = String::new();
    let mut wrappers = String::new();
    for (index, import) in abi::IMPORTS.iter().enumerate() {
        let abi::Import {
            module,
            name,
            params,
            result,
            ..
        } = import;
        let types: Vec<_> = params.iter().map(|ty| ty.name()).collect();
        let ty = format!("(param {}) (result {})", types.join(" "), result.name());
        let args: String = (0..params.len())
            .map(|n| format!("(local.get {n}) "))
            .collect();
        writeln!(
            imports,
            "(import \"{module}\" \"{name}\" (func $f{index} {ty}))"
        )
        .unwrap();
        let export = wrapper(module, name);
        writeln!(
            wrappers,
            "(func (export \"{export}\") {ty} (call $f{index} {args}))"
        )
        .unwrap();
    }
    format!("(module {imports} {definitions} {wrappers})")
}

/// What a test's store holds.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) cuda: WasiCudaContext,
}

impl HasWasiCuda for Data {
    fn wasi_cuda(&self) -> &WasiCudaContext {
        &self.cuda
    }
}

/// A linker with the imports of both modules.
pub(crate) fn linker(engine: &Engine) -> Linker<Data> {
    let mut linker = Linker::new(engine);
    add_to_linker(&mut linker).unwrap();
    linker
}
