//! Runs a whole program of a guest with WASI, as the command line does: arguments, a folder, standard input, and what came out.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use host::{HasWasiCuda, WasiCudaContext};
use wasmtime::{Engine, Linker, Module, Store};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtxBuilder};

use super::{Backing, LinearMemory, Setup, block_on};

/// More than any of these programs prints.
const OUTPUT_BYTES: usize = 1 << 20;

/// A program and what it is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program<'a> {
    /// WebAssembly, as binary or text.
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

/// Runs a program on the device of `setup`. A trap of the program fails the test.
pub(crate) fn run_program(setup: &Setup, program: &Program<'_>) -> Ended {
    let (engine, module) = compiled(setup, program.code);
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
    let code = block_on(start(&engine, &module, Store::new(&engine, state)));
    let text = |pipe: MemoryOutputPipe| String::from_utf8(pipe.contents().to_vec()).unwrap();
    Ended {
        code,
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

/// A program compiled for a setup; for the device that tests share, once in a process.
fn compiled(setup: &Setup, code: &[u8]) -> (Engine, Module) {
    type Compiled = HashMap<(LinearMemory, Vec<u8>), (Engine, Module)>;
    static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);

    let compile = || {
        let engine = setup.engine();
        let module = Module::new(&engine, code).unwrap();
        (engine, module)
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

/// The program's exit code.
async fn start(engine: &Engine, module: &Module, mut store: Store<State>) -> i32 {
    let mut linker = Linker::new(engine);
    p1::add_to_linker_async(&mut linker, |state: &mut State| &mut state.wasi).unwrap();
    host::add_to_linker(&mut linker).unwrap();
    let instance = linker.instantiate_async(&mut store, module).await.unwrap();
    let start = instance
        .get_typed_func::<(), ()>(&mut store, "_start")
        .unwrap();
    match start.call_async(&mut store, ()).await {
        Ok(()) => 0,
        Err(error) => match error.downcast_ref() {
            Some(&I32Exit(code)) => code,
            None => panic!("{error:?}"),
        },
    }
}
