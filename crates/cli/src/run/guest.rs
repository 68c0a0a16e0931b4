//! A guest before it runs: read, compiled and linked, be it a module or a component. What it may use is decided elsewhere.

use std::path::Path;

use anyhow::bail;
use wasmtime::component::{self, Component};
use wasmtime::{Engine, InstancePre, Linker, Module, Store};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p1;
use wasmtime_wasi::p2::{self, bindings::CommandPre};

use super::State;
use crate::progress::Progress;

/// The export that a module starts at.
const START: &str = "_start";

/// What a component answers that did not succeed: there is one failure only.
const COMPONENT_FAILED: i32 = 1;

/// What kind of guest a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A component of WASI preview 2.
    Component,
    /// A core module of WASI preview 1.
    Module,
}

/// A guest in binary form.
pub(super) struct Text {
    pub(super) kind: Kind,
    name: String,
    bytes: Vec<u8>,
}

/// A guest with all that it imports.
pub(super) enum Linked {
    Component(CommandPre<State>),
    Module(InstancePre<State>),
}

impl Text {
    /// A guest from a file in binary or text form.
    pub(super) fn read(guest: &Path) -> anyhow::Result<Self> {
        let name = guest.display().to_string();
        let bytes = wat::parse_file(guest).or_else(|error| match is_ptx(guest) {
            true => bail!(
                "{name}: is PTX and no guest; `wasi-cuda launch {name}` runs its kernels without one"
            ),
            false => Err(error.into()),
        })?;
        let kind = match bytes.get(4..8) {
            Some([1, 0, 0, 0]) => Kind::Module,
            Some([_, 0, 1, 0]) => Kind::Component,
            _ => bail!("{name}: is no WebAssembly module or component"),
        };
        Ok(Self { kind, name, bytes })
    }

    /// Compiles and links it.
    pub(super) fn link(self, engine: &Engine) -> wasmtime::Result<Linked> {
        let working = Progress::note(format!("compiling {}", self.name));
        match self.kind {
            Kind::Component => {
                let component = Component::new(engine, self.bytes)?;
                drop(working);
                let mut linker = component::Linker::new(engine);
                p2::add_to_linker_async(&mut linker)?;
                host::component::add_to_linker(&mut linker)?;
                let linked = linker.instantiate_pre(&component)?;
                Ok(Linked::Component(CommandPre::new(linked)?))
            }
            Kind::Module => {
                let module = Module::new(engine, self.bytes)?;
                drop(working);
                let mut linker = Linker::new(engine);
                p1::add_to_linker_async(&mut linker, |state: &mut State| &mut state.wasi)?;
                host::add_to_linker(&mut linker)?;
                Ok(Linked::Module(linker.instantiate_pre(&module)?))
            }
        }
    }
}

impl Linked {
    /// Runs it to its end. A failure that it tells by itself is an [`I32Exit`], as one by `exit` is.
    pub(super) async fn run(self, store: &mut Store<State>) -> wasmtime::Result<()> {
        match self {
            Self::Component(linked) => {
                let command = linked.instantiate_async(&mut *store).await?;
                let ended = command.wasi_cli_run().call_run(store).await?;
                ended.map_err(|()| I32Exit(COMPONENT_FAILED).into())
            }
            Self::Module(linked) => {
                let instance = linked.instantiate_async(&mut *store).await?;
                let start = instance.get_typed_func::<(), ()>(&mut *store, START)?;
                start.call_async(store, ()).await
            }
        }
    }
}

/// Whether a file that is no WebAssembly holds kernels.
fn is_ptx(guest: &Path) -> bool {
    std::fs::read(guest).is_ok_and(|bytes| ptx::parse(&bytes).is_ok())
}
