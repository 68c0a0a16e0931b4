//! One guest for every test: it exports a wrapper of every import, so that tests call imports through real WebAssembly
//! frames. No test belongs here.

mod folder;
mod setup;
pub(crate) mod tenants;
mod text;
mod wasi;

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use abi::AbiError;
use abi::argv::{self, Arg};
use abi::info::{DeviceInfo, KernelInfo, ParamInfo, TrapInfo};
use host::{KernelEntry, KernelId, Trust, TrustedByEmbedder, WasiCudaContext};
use tokio::runtime::Runtime;
use wasmtime::{Engine, Instance, Linker, Memory, Module, Store, Val};

pub(crate) use folder::Folder;
pub(crate) use setup::{
    Backing, Capability, Data, GROW, LinearMemory, Setup, cpu, guest_text_with, linker,
    pages_for_text, wrapper,
};
pub(crate) use text::{assert_text_is_clean, host_panics, name};
pub(crate) use wasi::{Program, run_program};

use text::watch_panics;

/// Kernels of one behaviour each.
pub(crate) const KIT: &str = include_str!("../../fixtures/kernels/kit.ptx");
/// `vector_add(a, b, c, n)` as nvcc compiles it.
pub(crate) const VECADD: &str = include_str!("../../fixtures/corpus/cuda/vecadd.sm_75.ptx");

/// Bytes of a page of linear memory.
pub(crate) const PAGE_BYTES: u32 = 65_536;

// Where helpers put things in guest memory; tests have `DATA_AT..PTX_AT` for themselves.
pub(crate) const NAME_AT: u32 = 0x10;
pub(crate) const INFO_AT: u32 = 0x400;
pub(crate) const ARGV_AT: u32 = 0x1000;
pub(crate) const DATA_AT: u32 = 0x4000;
pub(crate) const PTX_AT: u32 = PAGE_BYTES;

/// How long a launch is waited for that is to be given up.
const GIVE_UP: Duration = Duration::from_millis(20);

/// The size and shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

impl Shape {
    /// One block of one thread.
    pub(crate) const ONE: Self = Self::new([1; 3], [1; 3], 0);

    pub(crate) const fn new(grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> Self {
        Self {
            grid,
            block,
            shared_bytes,
        }
    }

    /// Blocks and threads along x only.
    pub(crate) const fn line(blocks: u32, threads: u32) -> Self {
        Self::new([blocks, 1, 1], [threads, 1, 1], 0)
    }
}

/// One of the ways to launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    Cooperative,
    V0_2,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Cooperative, Self::V0_2];

    pub(crate) fn import(self) -> (&'static str, &'static str) {
        match self {
            Self::Plain => (abi::MODULE, abi::FN_LAUNCH),
            Self::Cooperative => (abi::MODULE, abi::FN_LAUNCH_COOPERATIVE),
            Self::V0_2 => (abi::MODULE_V0_2, abi::FN_LAUNCH),
        }
    }
}

/// A running instance of the generic guest, for tests that are asynchronous themselves.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) store: Store<Data>,
    pub(crate) instance: Instance,
    pub(crate) memory: Memory,
    /// Numbers that the guest itself gave or was given, which texts may hold whatever they look like.
    known: HashSet<u64>,
    /// The embedder's word: then it registers what the guest would load.
    word: Option<TrustedByEmbedder>,
    /// The kernels that the embedder registered, by handle.
    registered: HashMap<i64, KernelId>,
    /// Why the embedder could not register the last kernel.
    refusal: Option<String>,
}

impl Guest {
    pub(crate) async fn start(setup: &Setup) -> Self {
        let (engine, module) = setup.guest();
        let linker = linker(&engine);
        let started = Self::start_in(setup.store(&engine), setup.word, &linker, &module);
        started.await.unwrap()
    }

    /// Instantiates a module that exports `memory`.
    pub(crate) async fn start_in(
        mut store: Store<Data>,
        word: Option<TrustedByEmbedder>,
        linker: &Linker<Data>,
        module: &Module,
    ) -> wasmtime::Result<Self> {
        watch_panics();
        let instance = linker.instantiate_async(&mut store, module).await?;
        let memory = instance.get_memory(&mut store, abi::MEMORY_EXPORT).unwrap();
        Ok(Self {
            store,
            instance,
            memory,
            known: HashSet::new(),
            word,
            registered: HashMap::new(),
            refusal: None,
        })
    }

    /// Calls an import of either module through the guest.
    pub(crate) async fn call_import(&mut self, module: &str, name: &str, args: &[Val]) -> i64 {
        let numbers: Vec<i64> = args
            .iter()
            .map(|arg| match arg {
                Val::I32(value) => i64::from(*value),
                Val::I64(value) => *value,
                other => panic!("no import takes {other:?}"),
            })
            .collect();
        for number in &numbers {
            self.knows(&[number.cast_unsigned(), number.unsigned_abs()]);
        }
        // The earlier module's imports take 64-bit numbers in two halves.
        for halves in numbers.windows(2) {
            let low = halves[0].cast_unsigned() & u64::from(u32::MAX);
            let joined = low | halves[1].cast_unsigned() << 32;
            self.knows(&[joined, joined.cast_signed().unsigned_abs()]);
        }
        let result = self.call_export(&wrapper(module, name), args).await;
        self.knows(&[result.cast_unsigned()]);
        result
    }

    /// Calls an export that answers a number.
    pub(crate) async fn call_export(&mut self, name: &str, args: &[Val]) -> i64 {
        self.try_export(name, args).await.unwrap()
    }

    /// Calls an export that answers a number or traps.
    pub(crate) async fn try_export(&mut self, name: &str, args: &[Val]) -> wasmtime::Result<i64> {
        let export = self.instance.get_func(&mut self.store, name);
        let export = export.unwrap_or_else(|| panic!("the guest exports no `{name}`"));
        let mut result = [Val::I32(0)];
        export
            .call_async(&mut self.store, args, &mut result)
            .await?;
        match result[0] {
            Val::I32(value) => Ok(value.into()),
            Val::I64(value) => Ok(value),
            ref other => panic!("`{name}` answered {other:?}"),
        }
    }

    /// A load of text that lies in guest memory already.
    pub(crate) async fn load_at(
        &mut self,
        module: &str,
        ptx: (u32, u32),
        entry: (u32, u32),
    ) -> i64 {
        let args = [ptx.0, ptx.1, entry.0, entry.1].map(u32_val);
        self.call_import(module, abi::FN_LOAD_PTX, &args).await
    }

    /// Writes a text and an entry name to guest memory and loads them. A kernel that the embedder answers for is registered instead.
    pub(crate) async fn load_bytes(&mut self, ptx: &[u8], entry: &[u8]) -> i64 {
        if let Some(word) = self.word {
            return self.register(ptx, entry, Trust::Embedder(word));
        }
        let ptx = self.put(PTX_AT, ptx);
        let entry = self.put(NAME_AT, entry);
        self.load_at(abi::MODULE, ptx, entry).await
    }

    /// Registers a kernel; its handle or a code.
    fn register(&mut self, ptx: &[u8], entry: &[u8], trust: Trust) -> i64 {
        let context = &self.store.data().cuda;
        let device = context.device().expect("there is a device");
        let entry = str::from_utf8(entry).expect("entries have names");
        let kernel = KernelEntry::from_ptx(device, context.instance(), entry, ptx, trust);
        self.refusal = kernel.as_ref().err().map(ToString::to_string);
        match kernel {
            Ok(kernel) => {
                let id = context.registry.register(kernel).unwrap();
                self.registered.insert(id.handle(), id);
                id.handle()
            }
            Err(error) => i64::from(error.abi().code()),
        }
    }

    /// A launch whose argv lies in guest memory already.
    pub(crate) async fn launch_at(
        &mut self,
        way: Way,
        kernel: i64,
        shape: Shape,
        argv: (u32, u32),
    ) -> i64 {
        let Shape {
            grid: [gx, gy, gz],
            block: [bx, by, bz],
            shared_bytes,
        } = shape;
        let numbers = [gx, gy, gz, bx, by, bz, shared_bytes, argv.0, argv.1];
        let mut args = vec![Val::I64(kernel)];
        args.extend(numbers.map(u32_val));
        let (module, name) = way.import();
        self.call_import(module, name, &args).await
    }

    /// Writes argv to guest memory and launches.
    pub(crate) async fn launch_bytes(
        &mut self,
        way: Way,
        kernel: i64,
        shape: Shape,
        argv: &[u8],
    ) -> i64 {
        let argv = self.put(ARGV_AT, argv);
        self.launch_at(way, kernel, shape, argv).await
    }

    /// Writes bytes to guest memory and gives their range.
    pub(crate) fn put(&mut self, at: u32, bytes: &[u8]) -> (u32, u32) {
        self.write_memory(at, bytes);
        (at, u32::try_from(bytes.len()).unwrap())
    }

    pub(crate) fn write_memory(&mut self, at: u32, bytes: &[u8]) {
        self.memory
            .write(&mut self.store, at as usize, bytes)
            .unwrap();
    }

    pub(crate) fn read_memory(&self, at: u32, len: usize) -> Vec<u8> {
        self.memory.data(&self.store)[at as usize..][..len].to_vec()
    }

    pub(crate) fn read_u32(&self, at: u32) -> u32 {
        u32::from_le_bytes(*self.read_memory(at, 4).first_chunk().unwrap())
    }

    pub(crate) fn read_u64(&self, at: u32) -> u64 {
        u64::from_le_bytes(*self.read_memory(at, 8).first_chunk().unwrap())
    }

    pub(crate) fn memory_bytes(&self) -> u32 {
        u32::try_from(self.memory.data_size(&self.store)).unwrap()
    }

    pub(crate) fn cuda(&self) -> &WasiCudaContext {
        &self.store.data().cuda
    }

    pub(crate) fn cuda_mut(&mut self) -> &mut WasiCudaContext {
        &mut self.store.data_mut().cuda
    }

    /// Numbers that the guest knows from elsewhere than a call's integers: argv, its kernel's code.
    pub(crate) fn knows(&mut self, numbers: &[u64]) {
        self.known.extend(numbers);
    }

    /// The text of the last failure as an embedder sees it, which must not tell the guest anything that it should not know.
    pub(crate) fn last_text(&self) -> String {
        let text = self.cuda().last_error();
        assert_text_is_clean(&text, &self.known);
        text
    }
}

/// An `i32` argument from an offset, a length or a count.
pub(crate) fn u32_val(value: u32) -> Val {
    Val::I32(value.cast_signed())
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
}

/// Runs a future to its end, on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

/// A guest and the runtime that it runs in, for tests that do one thing after another.
#[derive(Debug)]
pub(crate) struct Harness {
    guest: Guest,
    runtime: Runtime,
}

impl Deref for Harness {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.guest
    }
}

impl DerefMut for Harness {
    fn deref_mut(&mut self) -> &mut Guest {
        &mut self.guest
    }
}

impl Harness {
    pub(crate) fn new(setup: &Setup) -> Self {
        let runtime = runtime();
        let guest = runtime.block_on(Guest::start(setup));
        Self { guest, runtime }
    }

    /// An instance that runs already.
    pub(crate) fn of(guest: Guest) -> Self {
        let runtime = runtime();
        Self { guest, runtime }
    }

    /// An instance of a text of the test's own, on an engine of the test's own.
    pub(crate) fn with_text(setup: &Setup, engine: &Engine, text: &str) -> wasmtime::Result<Self> {
        let module = Module::new(engine, text)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let linker = linker(engine);
        let guest = Guest::start_in(setup.store(engine), setup.word, &linker, &module);
        let guest = runtime.block_on(guest)?;
        Ok(Self { guest, runtime })
    }

    /// Calls an export that answers a number or traps.
    pub(crate) fn export(&mut self, name: &str, args: &[Val]) -> wasmtime::Result<i64> {
        self.runtime.block_on(self.guest.try_export(name, args))
    }

    /// An instance on the CPU device.
    pub(crate) fn cpu() -> Self {
        Self::new(&Setup::default())
    }

    /// Calls an import of module `wasi_cuda`.
    pub(crate) fn call(&mut self, name: &str, args: &[Val]) -> i64 {
        self.call_in(abi::MODULE, name, args)
    }

    /// Calls an import of either module.
    pub(crate) fn call_in(&mut self, module: &str, name: &str, args: &[Val]) -> i64 {
        self.runtime
            .block_on(self.guest.call_import(module, name, args))
    }

    /// Grows memory as the guest does; the old size in pages or -1.
    pub(crate) fn grow(&mut self, pages: u32) -> i64 {
        self.runtime
            .block_on(self.guest.call_export("grow", &[u32_val(pages)]))
    }

    /// Loads an entry; a handle or a negative code.
    pub(crate) fn load(&mut self, ptx: &str, entry: &str) -> i64 {
        self.load_bytes(ptx.as_bytes(), entry.as_bytes())
    }

    pub(crate) fn load_bytes(&mut self, ptx: &[u8], entry: &[u8]) -> i64 {
        self.runtime.block_on(self.guest.load_bytes(ptx, entry))
    }

    pub(crate) fn load_at(&mut self, module: &str, ptx: (u32, u32), entry: (u32, u32)) -> i64 {
        self.runtime
            .block_on(self.guest.load_at(module, ptx, entry))
    }

    /// Loads an entry that must be there.
    pub(crate) fn kernel(&mut self, ptx: &str, entry: &str) -> i64 {
        let kernel = self.load(ptx, entry);
        assert!(kernel > 0, "{entry}: {kernel}: {}", self.last_text());
        kernel
    }

    pub(crate) fn launch(&mut self, kernel: i64, shape: Shape, args: &[Arg<'_>]) -> i64 {
        self.launch_bytes(kernel, shape, &encode(args))
    }

    pub(crate) fn launch_bytes(&mut self, kernel: i64, shape: Shape, argv: &[u8]) -> i64 {
        self.launch_as(Way::Plain, kernel, shape, argv)
    }

    pub(crate) fn launch_as(&mut self, way: Way, kernel: i64, shape: Shape, argv: &[u8]) -> i64 {
        self.runtime
            .block_on(self.guest.launch_bytes(way, kernel, shape, argv))
    }

    pub(crate) fn launch_at(
        &mut self,
        way: Way,
        kernel: i64,
        shape: Shape,
        argv: (u32, u32),
    ) -> i64 {
        self.runtime
            .block_on(self.guest.launch_at(way, kernel, shape, argv))
    }

    /// Launches one thread and stops waiting for it.
    pub(crate) fn give_up_launch(&mut self, kernel: i64) {
        let launch = self.guest.launch_at(Way::Plain, kernel, Shape::ONE, (0, 0));
        let given_up = self
            .runtime
            .block_on(async { tokio::time::timeout(GIVE_UP, launch).await });
        assert!(given_up.is_err(), "the launch ended by itself");
    }

    /// Launches one thread that must end well.
    pub(crate) fn run(&mut self, kernel: i64, args: &[Arg<'_>]) {
        let code = self.launch(kernel, Shape::ONE, args);
        assert_eq!(code, 0, "{}", self.last_text());
    }

    /// The text of the last failure, asked for as a guest does.
    pub(crate) fn last_error(&mut self) -> String {
        if let Some(refusal) = self.guest.refusal.take() {
            return refusal;
        }
        let len = self.call(abi::FN_LAST_ERROR_LEN, &[]);
        let len = u32::try_from(len).expect("the capability is on");
        let copied = self.call(abi::FN_LAST_ERROR_COPY, &[u32_val(INFO_AT), u32_val(len)]);
        assert_eq!(copied, i64::from(len));
        let text =
            String::from_utf8(self.read_memory(INFO_AT, len as usize)).expect("texts are UTF-8");
        assert_eq!(text, self.last_text(), "guest and embedder see one text");
        text
    }

    /// Checks the code that a call answered and the text that goes with it.
    #[track_caller]
    pub(crate) fn assert_refused(&mut self, answer: i64, code: AbiError, text: &str) {
        let found = self.last_error();
        assert_eq!((name(answer).as_str(), found.as_str()), (code.name(), text));
    }

    pub(crate) fn device_info(&mut self) -> DeviceInfo {
        DeviceInfo::from_bytes(&self.info(abi::FN_DEVICE_INFO, &[]))
    }

    pub(crate) fn trap_info(&mut self) -> TrapInfo {
        TrapInfo::from_bytes(&self.info(abi::FN_TRAP_INFO, &[]))
    }

    pub(crate) fn kernel_info(&mut self, kernel: i64) -> (KernelInfo, Vec<ParamInfo>) {
        let bytes = self.info(abi::FN_KERNEL_INFO, &[Val::I64(kernel)]);
        (
            KernelInfo::from_bytes(&bytes),
            KernelInfo::params(&bytes).collect(),
        )
    }

    /// What an import of the `*_info` kind writes.
    fn info(&mut self, name: &str, before: &[Val]) -> Vec<u8> {
        let room = ARGV_AT - INFO_AT;
        let args = [before, &[u32_val(INFO_AT), u32_val(room)]].concat();
        let size = self.call(name, &args);
        assert!((4..=i64::from(room)).contains(&size), "{name}: {size}");
        self.read_memory(INFO_AT, usize::try_from(size).unwrap())
    }

    /// A correct load and launch in this instance.
    #[track_caller]
    pub(crate) fn assert_usable(&mut self) {
        let kernel = self.kernel(KIT, "k_store");
        self.write_memory(DATA_AT, &[0; 4]);
        self.run(
            kernel,
            &[
                Arg::Ptr {
                    offset: DATA_AT,
                    len: 4,
                },
                Arg::U32(0x5eed),
            ],
        );
        assert_eq!(self.read_u32(DATA_AT), 0x5eed);
        self.unload(kernel);
    }

    /// Unloads a kernel, or takes back what the embedder registered.
    #[track_caller]
    pub(crate) fn unload(&mut self, kernel: i64) {
        match self.guest.registered.remove(&kernel) {
            Some(id) => {
                let context = self.cuda();
                let removed = context.registry.remove(id, context.instance());
                assert!(removed.is_some());
            }
            None => assert_eq!(self.call(abi::FN_UNLOAD, &[Val::I64(kernel)]), 0),
        }
    }
}

/// This instance and a new one both work, and nothing panicked outside of tests.
#[track_caller]
pub(crate) fn assert_all_usable(harness: &mut Harness) {
    harness.assert_usable();
    Harness::cpu().assert_usable();
    assert_eq!(host_panics(), 0);
}

/// Arguments as argv bytes.
pub(crate) fn encode(args: &[Arg<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; args.iter().map(Arg::encoded_len).sum()];
    argv::encode(args, &mut bytes).expect("argv within the caps");
    bytes
}
