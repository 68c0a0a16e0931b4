//! Whole guests, several of them, and the kernels that they bring.

use std::sync::{Arc, Mutex};

use abi::AbiError;
use abi::argv::Arg;
use device::Health;
use host::{InstanceId, KernelEntry, KernelRegistry, Trust, engine_config};
use wasmtime::{Caller, Engine, Extern, Linker, Module, Store};

use crate::harness::{
    DATA_AT, Data, Harness, KIT, LinearMemory, Setup, Shape, block_on, linker, name,
};
use crate::rig::{
    WORD, assert_fails, assert_sound, count, cuda, guest, guest_text, open, ptr, trusted,
    trusted_on,
};
use crate::runner::{Case, either, gpu, memories, scripted, two_gpus};

pub(crate) const CASES: &[Case] = &[
    gpu(
        "the_vector_add_guest_prints_its_sums",
        the_vector_add_guest_prints_its_sums,
    ),
    scripted(
        "a_guests_own_kernel_needs_a_window",
        "attribute.89=0",
        a_guests_own_kernel_needs_a_window,
    ),
    gpu(
        "a_guests_kernel_is_confined_unless_the_embedder_registers_it",
        a_guests_kernel_is_confined_unless_the_embedder_registers_it,
    ),
    memories(
        "instances_work_side_by_side_on_memories_of_their_own",
        instances_work_side_by_side_on_memories_of_their_own,
    ),
    either(
        "instances_of_one_text_have_variables_of_their_own",
        instances_of_one_text_have_variables_of_their_own,
    ),
    either(
        "pointers_into_plain_host_memory_are_refused",
        pointers_into_plain_host_memory_are_refused,
    ),
    either(
        "a_kernel_that_is_removed_while_it_runs_ends_well",
        a_kernel_that_is_removed_while_it_runs_ends_well,
    ),
    gpu(
        "a_thousand_instances_come_and_go",
        a_thousand_instances_come_and_go,
    ),
    two_gpus(
        "memory_of_another_gpu_is_refused",
        memory_of_another_device_is_refused,
    ),
    two_gpus(
        "a_kernel_of_another_gpu_is_refused",
        a_kernel_of_another_device_is_refused,
    ),
];

const VECTOR_ADD: &str = include_str!("../../fixtures/guests/vector_add.wat");

/// What a guest prints to its standard output, by the two imports of WASI that it uses.
fn run_printing(setup: &Setup, text: &str) -> (String, wasmtime::Result<()>) {
    let engine = setup.engine();
    let printed = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&printed);
    let mut linker: Linker<Data> = linker(&engine);
    let write = move |mut caller: Caller<'_, Data>, _fd: i32, vectors: i32, _count: i32, _: i32| {
        let Some(Extern::Memory(memory)) = caller.get_export(abi::MEMORY_EXPORT) else {
            return 1;
        };
        let data = memory.data(&caller);
        let word = |at: i32| {
            let bytes = data[usize::try_from(at).unwrap()..].first_chunk().unwrap();
            u32::from_le_bytes(*bytes) as usize
        };
        let bytes = &data[word(vectors)..][..word(vectors + 4)];
        into.lock().unwrap().extend_from_slice(bytes);
        0
    };
    let wasi = "wasi_snapshot_preview1";
    linker.func_wrap(wasi, "fd_write", write).unwrap();
    let exit = |code: i32| -> wasmtime::Result<()> { wasmtime::bail!("exit {code}") };
    linker.func_wrap(wasi, "proc_exit", exit).unwrap();

    let module = Module::new(&engine, text).unwrap();
    let mut store = setup.store(&engine);
    let ended = block_on(async {
        let instance = linker.instantiate_async(&mut store, &module).await?;
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
        start.call_async(&mut store, ()).await
    });
    let bytes = printed.lock().unwrap().clone();
    (String::from_utf8(bytes).unwrap(), ended)
}

fn the_vector_add_guest_prints_its_sums() {
    let (printed, ended) = run_printing(&Setup::on(cuda()), VECTOR_ADD);
    ended.unwrap_or_else(|error| panic!("{error}: {printed}"));
    let device = format!("device: {}\n", cuda().info().name);
    assert!(printed.starts_with(&device), "{printed}");
    let sums = "vector_add on 64 elements: c[0]=100 c[1]=102 ... c[63]=226\nok\n";
    assert!(printed.ends_with(sums), "{printed}");
}

/// What a kernel is given for a pointer: an offset in the window if it is confined, an address if it runs as it is.
fn a_guests_kernel_is_confined_unless_the_embedder_registers_it() {
    const TELL: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
        .visible .entry tell(.param .u64 to)\n{\n.reg .b64 %to;\n\
        ld.param.u64 %to, [to];\nst.global.u64 [%to], %to;\nret;\n}\n";
    let told = |setup: &Setup| {
        let mut guest = Harness::new(setup);
        let kernel = guest.kernel(TELL, "tell");
        guest.run(kernel, &[ptr(DATA_AT, 8)]);
        u64::from(guest.read_u32(DATA_AT)) | u64::from(guest.read_u32(DATA_AT + 4)) << 32
    };
    assert_eq!(told(&Setup::on(cuda())), DATA_AT.into());
    assert!(told(&trusted()) > 1 << 32);
    assert_sound(&mut guest());
}

/// Memory of exactly the guest's size has no window around it that a kernel could be confined to.
fn a_guests_own_kernel_needs_a_window() {
    let mut guest = Harness::new(&Setup {
        word: None,
        ..trusted()
    });
    let kernel = guest.kernel(KIT, "k_store");
    let answer = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    assert_fails(
        &mut guest,
        answer,
        AbiError::NotAvailable,
        &["confined", "window"],
    );
    assert_sound(&mut self::guest());
}

fn instances_work_side_by_side_on_memories_of_their_own() {
    let mut guests: Vec<_> = (0..8).map(|_| guest()).collect();
    for (number, guest) in (1_u32..).zip(&mut guests) {
        let kernel = guest.kernel(KIT, "k_store");
        guest.run(kernel, &[ptr(DATA_AT, 4), Arg::U32(number)]);
    }
    for (number, guest) in (1..).zip(&mut guests) {
        assert_eq!(guest.read_u32(DATA_AT), number);
    }
    let last = guests.pop();
    drop(guests);
    assert_sound(&mut last.unwrap());
}

fn instances_of_one_text_have_variables_of_their_own() {
    let (mut one, mut other) = (guest(), guest());
    let (in_one, in_other) = (one.kernel(KIT, "k_count"), other.kernel(KIT, "k_count"));
    for expected in 0..2 {
        assert_eq!(count(&mut one, in_one), expected);
        assert_eq!(count(&mut other, in_other), expected);
    }
}

fn pointers_into_plain_host_memory_are_refused() {
    let mut plain = Harness::new(&Setup {
        memory: LinearMemory::PlainHost,
        ..trusted()
    });
    let kernel = plain.kernel(KIT, "k_store");
    plain.write_memory(DATA_AT, &[0; 4]);
    let answer = plain.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    assert_fails(&mut plain, answer, AbiError::LaunchFailed, &["host memory"]);
    assert_eq!(plain.read_u32(DATA_AT), 0);
    let empty = plain.kernel(KIT, "k_empty");
    assert_eq!(plain.launch(empty, Shape::ONE, &[]), 0);
    assert_eq!(cuda().health(), Health::Good);
    assert_sound(&mut guest());
}

fn a_kernel_that_is_removed_while_it_runs_ends_well() {
    let instance = InstanceId::random().unwrap();
    let registry = KernelRegistry::default();
    let trust = Trust::Embedder(WORD);
    let entry = KernelEntry::from_ptx(&cuda(), instance, "k_spin", KIT.as_bytes(), trust);
    let id = registry.register(entry.unwrap()).unwrap();
    let mut guest = Harness::new(&Setup {
        instance: Some(instance),
        registry: registry.clone(),
        ..trusted()
    });
    let remover = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(registry.remove(id, instance).is_some());
    });
    guest.run(id.handle(), &[Arg::U64(200_000_000)]);
    remover.join().unwrap();
    let answer = guest.launch(id.handle(), Shape::ONE, &[Arg::U64(0)]);
    assert_eq!(name(answer), AbiError::InvalidKernel.name());
    assert_sound(&mut guest);
}

fn a_thousand_instances_come_and_go() {
    const MODULE: &str = r#"(module (memory (export "memory") 1)
        (data (i32.const 0) "data")
        (func (export "poke") (i32.store (i32.const 0) (i32.const 7))))"#;
    let device = cuda();
    let engine = Engine::new(&engine_config(&device).unwrap()).unwrap();
    let module = Module::new(&engine, MODULE).unwrap();
    for _ in 0..1_000 {
        let mut store = Store::new(&engine, ());
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        assert_eq!(&memory.data(&store)[..8], b"data\0\0\0\0");
        let poke = instance
            .get_typed_func::<(), ()>(&mut store, "poke")
            .unwrap();
        poke.call(&mut store, ()).unwrap();
    }
    assert_sound(&mut guest());
}

/// A guest whose memory is of one device runs on another.
pub(crate) fn memory_of_another_device_is_refused() {
    let [first, second] = [0, 1].map(open);
    let on_second = trusted_on(Arc::clone(&second));
    let engine = trusted_on(Arc::clone(&first)).engine();
    let text = guest_text(16);
    let mut guest = Harness::with_text(&on_second, &engine, &text).unwrap();
    let kernel = guest.kernel(KIT, "k_store");
    let answer = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    assert_fails(&mut guest, answer, AbiError::LaunchFailed, &["memory"]);
    assert_eq!(guest.read_u32(DATA_AT), 0);
    for device in [first, second] {
        assert_eq!(device.health(), Health::Good);
        Harness::new(&trusted_on(device)).assert_usable();
    }
}

/// A kernel that was loaded on one device is launched by a guest on another.
pub(crate) fn a_kernel_of_another_device_is_refused() {
    let [first, second] = [0, 1].map(open);
    let instance = InstanceId::random().unwrap();
    let registry = KernelRegistry::default();
    let entry = KernelEntry::from_ptx(
        &second,
        instance,
        "k_store",
        KIT.as_bytes(),
        Trust::Embedder(WORD),
    );
    let kernel = registry.register(entry.unwrap()).unwrap().handle();
    let mut guest = Harness::new(&Setup {
        instance: Some(instance),
        registry,
        ..trusted_on(Arc::clone(&first))
    });
    let answer = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    let parts = ["the memory is of another device"];
    assert_fails(&mut guest, answer, AbiError::LaunchFailed, &parts);
    assert_eq!(guest.read_u32(DATA_AT), 0);
    let own = guest.kernel(KIT, "k_store");
    guest.run(own, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    for device in [first, second] {
        Harness::new(&trusted_on(device)).assert_usable();
    }
}
