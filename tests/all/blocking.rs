//! Guests that are called without `async`: imports that block do what those do that suspend.

use std::time::{Duration, Instant};

use abi::AbiError;
use abi::argv::Arg;
use host::{Limits, add_to_linker_sync};
use wasmtime::{Engine, Instance, Linker, Module, Store, Val};

use crate::harness::{
    ARGV_AT, DATA_AT, Data, GROW, KIT, NAME_AT, PTX_AT, Setup, encode, guest_text_with, u32_val,
    wrapper,
};

const FAULTS: &str = include_str!("../../fixtures/kernels/faults.ptx");

/// The generic guest, called as a synchronous embedder does.
struct Guest {
    store: Store<Data>,
    instance: Instance,
}

impl Guest {
    fn new(limits: Limits) -> Self {
        let setup = Setup {
            limits,
            ..Setup::default()
        };
        let engine = setup.engine();
        let mut linker = Linker::new(&engine);
        add_to_linker_sync(&mut linker).unwrap();
        Self::with(setup.store(&engine), &engine, &linker)
    }

    fn with(mut store: Store<Data>, engine: &Engine, linker: &Linker<Data>) -> Self {
        let text = guest_text_with(&format!("(memory (export \"memory\") 16) {GROW}"));
        let module = Module::new(engine, text).unwrap();
        let instance = linker.instantiate(&mut store, &module).unwrap();
        Self { store, instance }
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> [Val; 2] {
        let memory = self.instance.get_memory(&mut self.store, "memory").unwrap();
        memory.write(&mut self.store, at as usize, bytes).unwrap();
        [at, u32::try_from(bytes.len()).unwrap()].map(u32_val)
    }

    fn call(&mut self, name: &str, args: &[Val]) -> wasmtime::Result<i64> {
        let name = wrapper(abi::MODULE, name);
        let import = self.instance.get_func(&mut self.store, &name).unwrap();
        let mut result = [Val::I32(0)];
        import.call(&mut self.store, args, &mut result)?;
        Ok(match result[0] {
            Val::I64(value) => value,
            ref value => value.unwrap_i32().into(),
        })
    }

    fn load(&mut self, ptx: &str, entry: &str) -> wasmtime::Result<i64> {
        let (ptx, entry) = (
            self.put(PTX_AT, ptx.as_bytes()),
            self.put(NAME_AT, entry.as_bytes()),
        );
        self.call(abi::FN_LOAD_PTX, &[ptx, entry].concat())
    }

    /// Launches one thread.
    fn launch(&mut self, kernel: i64, args: &[Arg<'_>]) -> wasmtime::Result<i64> {
        let argv = self.put(ARGV_AT, &encode(args));
        let one = [1, 1, 1, 1, 1, 1, 0].map(u32_val);
        self.call(
            abi::FN_LAUNCH,
            &[&[Val::I64(kernel)], &one[..], &argv].concat(),
        )
    }

    fn text(&self) -> String {
        self.store.data().cuda.last_error()
    }
}

#[test]
fn a_kernel_has_ended_when_its_launch_returns() {
    let mut guest = Guest::new(Limits::default());
    let kernel = guest.load(KIT, "k_store").unwrap();
    let pointer = Arg::Ptr {
        offset: DATA_AT,
        len: 4,
    };
    assert_eq!(
        guest.launch(kernel, &[pointer, Arg::U32(7)]).unwrap(),
        0,
        "{}",
        guest.text()
    );
    let memory = guest
        .instance
        .get_memory(&mut guest.store, "memory")
        .unwrap();
    assert_eq!(memory.data(&guest.store)[DATA_AT as usize], 7);
    assert_eq!(guest.call(abi::FN_SYNC, &[]).unwrap(), 0);
    let range = [u32_val(DATA_AT), u32_val(4), u32_val(1)];
    assert_eq!(guest.call(abi::FN_PREFETCH, &range).unwrap(), 0);
}

#[test]
fn mistakes_are_codes_with_texts() {
    let mut guest = Guest::new(Limits::default());
    let kernel = guest.load(KIT, "k_trap").unwrap();
    let code = |code: AbiError| i64::from(code.code());
    assert_eq!(
        guest.launch(kernel, &[]).unwrap(),
        code(AbiError::KernelTrap)
    );
    assert!(
        guest.text().starts_with("kernel trap: "),
        "{}",
        guest.text()
    );
    assert_eq!(
        guest.load("no PTX", "k").unwrap(),
        code(AbiError::MalformedPtx)
    );
}

#[test]
fn the_deadline_ends_the_wait() {
    let mut guest = Guest::new(Limits {
        deadline: Some(Duration::from_millis(50)),
        ..Limits::default()
    });
    let kernel = guest.load(FAULTS, "endless").unwrap();
    let begun = Instant::now();
    let answer = guest.launch(kernel, &[]).unwrap();
    assert_eq!(answer, i64::from(AbiError::DeadlineExceeded.code()));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn without_a_deadline_nothing_waits() {
    let mut guest = Guest::new(Limits {
        deadline: None,
        ..Limits::default()
    });
    let error = guest.load(KIT, "k_empty").unwrap_err();
    let said = error.root_cause().to_string();
    assert!(said.contains("must have a deadline"), "{said}");
}

#[test]
fn buffers_need_no_async_either() {
    let mut guest = Guest::new(Limits::default());
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(8)]).unwrap();
    let kernel = guest.load(KIT, "k_store").unwrap();
    let place = Arg::Buffer {
        handle: buffer,
        offset: 4,
    };
    assert_eq!(
        guest.launch(kernel, &[place, Arg::U32(9)]).unwrap(),
        0,
        "{}",
        guest.text()
    );
    let read = [Val::I64(buffer), Val::I64(4), u32_val(DATA_AT), u32_val(4)];
    assert_eq!(guest.call(abi::FN_READ, &read).unwrap(), 0);
    let memory = guest
        .instance
        .get_memory(&mut guest.store, "memory")
        .unwrap();
    assert_eq!(memory.data(&guest.store)[DATA_AT as usize], 9);
}
