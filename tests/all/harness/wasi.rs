//! Runs a whole program of a guest with WASI, as the command line does: arguments, a folder, standard input, and what came out.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use host::{HasWasiCuda, WasiCudaContext};
use wasmtime::component::{self, Component};
use wasmtime::{Config, Engine, Linker, Module, Store};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::p2;
use wasmtime_wasi::p2::bindings::Command;
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtxBuilder, WasiCtxView, WasiView};

use super::{Backing, LinearMemory, Setup, block_on};

/// More than any of these programs prints.
const OUTPUT_BYTES: usize = 1 << 20;

/// A program and what it is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program<'a> {
    /// A module as binary or text, or a component as binary.
    pub(crate) code: &'a [u8],
    pub(crate) args: &'a [&'a str],
    pub(crate) stdin: &'a str,
    /// A folder that it may use, as the current one.
    pub(crate) folder: Option<&'a Path>,
}

impl<'a> Program<'a> {
    pub(crate) const fn new(code: &'a [u8], args: &'a [&'a str]) -> Self {
        Self {
            code,
            args,
            stdin: "",
            folder: None,
        }
    }
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// What it printed, of a program that ended well.
    #[track_caller]
    pub(crate) fn well(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self.stdout
    }
}

struct State {
    wasi: WasiP1Ctx,
    cuda: WasiCudaContext,
}

impl HasWasiCuda for State {
    fn wasi_cuda(&self) -> &WasiCudaContext {
        &self.cuda
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

/// Runs a program on the device of `setup`. A trap of the program fails the test.
pub(crate) fn run_program(setup: &Setup, program: &Program<'_>) -> Ended {
    let (engine, code) = compiled(setup, program.code);
    let (stdout, stderr) = (
        MemoryOutputPipe::new(OUTPUT_BYTES),
        MemoryOutputPipe::new(OUTPUT_BYTES),
    );
    let mut wasi = WasiCtxBuilder::new();
    wasi.arg("guest").args(program.args);
    wasi.stdin(MemoryInputPipe::new(program.stdin.to_owned()));
    wasi.stdout(stdout.clone()).stderr(stderr.clone());
    if let Some(folder) = program.folder {
        wasi.preopened_dir(folder, ".", FsPerms::ReadWrite).unwrap();
    }
    let state = State {
        wasi: wasi.build_p1(),
        cuda: setup.context(),
    };
    let store = Store::new(&engine, state);
    let ended = block_on(async {
        match &code {
            Code::Component(component) => start_component(component, store).await,
            Code::Module(module) => start(module, store).await,
        }
    });
    let code = exit_code(ended);
    let text = |pipe: MemoryOutputPipe| String::from_utf8(pipe.contents().to_vec()).unwrap();
    Ended {
        code,
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

/// A program in the form that an engine runs.
#[derive(Clone)]
enum Code {
    Component(Component),
    Module(Module),
}

/// A program compiled for a setup; for the device that tests share, once in a process.
fn compiled(setup: &Setup, code: &[u8]) -> (Engine, Code) {
    type Compiled = HashMap<(LinearMemory, Vec<u8>), (Engine, Code)>;
    static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);

    let compile = || {
        if code.starts_with(b"\0asm\x0d\0\x01\0") {
            // Kernels of components run on buffers, so that their memory is any engine's.
            let engine = Engine::new(&Config::new()).unwrap();
            let component = Component::new(&engine, code).unwrap();
            return (engine, Code::Component(component));
        }
        let engine = setup.engine();
        let module = Module::new(&engine, code).unwrap();
        (engine, Code::Module(module))
    };
    match setup.backing {
        Backing::Given(_) => compile(),
        Backing::Cpu | Backing::None => {
            let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (setup.memory, code.to_vec());
            compiled.entry(key).or_insert_with(compile).clone()
        }
    }
}

async fn start(module: &Module, mut store: Store<State>) -> wasmtime::Result<()> {
    let mut linker = Linker::new(store.engine());
    p1::add_to_linker_async(&mut linker, |state: &mut State| &mut state.wasi).unwrap();
    host::add_to_linker(&mut linker).unwrap();
    let instance = linker.instantiate_async(&mut store, module).await.unwrap();
    let start = instance
        .get_typed_func::<(), ()>(&mut store, "_start")
        .unwrap();
    start.call_async(&mut store, ()).await
}

async fn start_component(component: &Component, mut store: Store<State>) -> wasmtime::Result<()> {
    let mut linker = component::Linker::new(store.engine());
    p2::add_to_linker_async(&mut linker).unwrap();
    host::component::add_to_linker(&mut linker).unwrap();
    let command = Command::instantiate_async(&mut store, component, &linker);
    let command = command.await.unwrap();
    let ended = command.wasi_cli_run().call_run(&mut store).await?;
    ended.map_err(|()| I32Exit(1).into())
}

fn exit_code(ended: wasmtime::Result<()>) -> i32 {
    match ended {
        Ok(()) => 0,
        Err(error) => match error.downcast_ref() {
            Some(&I32Exit(code)) => code,
            None => panic!("{error:?}"),
        },
    }
}
