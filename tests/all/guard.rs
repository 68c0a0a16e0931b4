//! The guard: a pointer reaches a kernel only if the device can address what it points to. Plain host memory is the case that must
//! never get through.

use abi::AbiError;
use abi::argv::Arg;
use host::{InstanceId, KernelEntry, Trust};
use wasmtime::Val;

use crate::fake_device::FakeDevice;
use crate::harness::{
    DATA_AT, GROW, Guest, Harness, KIT, LinearMemory, Setup, Shape, Way, block_on, cpu, encode,
    guest_text_with, linker,
};

const PLAIN: &str =
    "the guest's memory is plain host memory that the device cannot address (see `engine_config`)";

/// An instance whose memory is wasmtime's own.
fn plain() -> Harness {
    Harness::new(&Setup {
        memory: LinearMemory::PlainHost,
        ..Setup::default()
    })
}

fn ptr(offset: u32, len: u32) -> Arg<'static> {
    Arg::Ptr { offset, len }
}

#[test]
fn a_pointer_into_plain_host_memory_is_refused_by_name() {
    let mut guest = plain();
    let kernel = guest.kernel(KIT, "k_store");
    guest.write_memory(DATA_AT, b"host");
    let refused = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    guest.assert_refused(
        refused,
        AbiError::LaunchFailed,
        &format!("argument 0: {PLAIN}"),
    );
    assert_eq!(guest.read_memory(DATA_AT, 4), b"host");
}

#[test]
fn the_first_pointer_of_several_arguments_is_named() {
    let mut guest = plain();
    let kernel = guest.kernel(KIT, "k_gap");
    let args = [Arg::U32(1), ptr(DATA_AT, 8), Arg::U32(2)];
    let refused = guest.launch(kernel, Shape::ONE, &args);
    guest.assert_refused(
        refused,
        AbiError::LaunchFailed,
        &format!("argument 1: {PLAIN}"),
    );
}

#[test]
fn pointers_of_no_bytes_into_plain_host_memory_are_refused_too() {
    let mut guest = plain();
    let kernel = guest.kernel(KIT, "k_store");
    for at in [0, DATA_AT, guest.memory_bytes()] {
        let refused = guest.launch(kernel, Shape::ONE, &[ptr(at, 0), Arg::U32(1)]);
        guest.assert_refused(
            refused,
            AbiError::LaunchFailed,
            &format!("argument 0: {PLAIN}"),
        );
    }
}

#[test]
fn every_way_to_launch_has_the_guard() {
    let mut guest = plain();
    let kernel = guest.kernel(KIT, "k_store");
    for way in Way::ALL {
        let argv = encode(&[ptr(DATA_AT, 4), Arg::U32(1)]);
        let refused = guest.launch_as(way, kernel, Shape::ONE, &argv);
        guest.assert_refused(
            refused,
            AbiError::LaunchFailed,
            &format!("argument 0: {PLAIN}"),
        );
    }
}

#[test]
fn a_device_is_not_asked_to_run_what_the_guard_refuses() {
    let (device, runs) = FakeDevice::open();
    let mut guest = Harness::new(&Setup {
        memory: LinearMemory::PlainHost,
        ..Setup::on(device)
    });
    let kernel = guest.kernel(KIT, "k_store");
    let refused = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    guest.assert_refused(
        refused,
        AbiError::LaunchFailed,
        &format!("argument 0: {PLAIN}"),
    );
    assert_eq!(runs.launches(), 0);
}

#[test]
fn memory_of_another_device_is_plain_to_this_one() {
    let (device, _) = FakeDevice::open();
    let engine = Setup::default().engine();
    let text = guest_text_with(&format!("(memory (export \"memory\") 16) {GROW}"));
    let mut guest = Harness::with_text(&Setup::on(device), &engine, &text).unwrap();
    let kernel = guest.kernel(KIT, "k_store");
    let refused = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    guest.assert_refused(
        refused,
        AbiError::LaunchFailed,
        &format!("argument 0: {PLAIN}"),
    );
}

#[test]
fn kernels_of_scalars_run_on_plain_host_memory() {
    let mut guest = plain();
    let empty = guest.kernel(KIT, "k_empty");
    guest.run(empty, &[]);
    let spin = guest.kernel(KIT, "k_spin");
    guest.run(spin, &[Arg::U64(1000)]);
    assert_eq!(guest.last_error(), "");
}

#[test]
fn a_pointer_past_plain_host_memory_is_an_invalid_pointer() {
    let mut guest = plain();
    let kernel = guest.kernel(KIT, "k_store");
    let size = guest.memory_bytes();
    let refused = guest.launch(kernel, Shape::ONE, &[ptr(size, 1), Arg::U32(1)]);
    let text =
        format!("argument 0 is 1 bytes from {size}, which ends past the {size} bytes of memory");
    guest.assert_refused(refused, AbiError::InvalidPointer, &text);
}

#[test]
fn plain_host_memory_has_no_room_for_device_buffers() {
    let mut guest = plain();
    let refused = guest.call(abi::FN_ALLOC, &[Val::I64(64)]);
    guest.assert_refused(refused, AbiError::LaunchFailed, PLAIN);
}

#[test]
fn a_buffer_is_refused_beside_another_memory_than_its_own() {
    block_on(async {
        let mut guest = Guest::start(&Setup::default()).await;
        let module = guest.instance.module(&guest.store).clone();
        let kernel = guest.load_bytes(KIT.as_bytes(), b"k_store").await;
        let args = [Val::I64(64)];
        let buffer = guest.call_import(abi::MODULE, abi::FN_ALLOC, &args).await;
        assert!(buffer > 0, "{}", guest.last_text());
        let argv = encode(&[
            Arg::Buffer {
                handle: buffer,
                offset: 0,
            },
            Arg::U32(1),
        ]);
        let own = guest
            .launch_bytes(Way::Plain, kernel, Shape::ONE, &argv)
            .await;
        assert_eq!(own, 0, "{}", guest.last_text());

        let linker = linker(module.engine());
        let second = linker
            .instantiate_async(&mut guest.store, &module)
            .await
            .unwrap();
        guest.memory = second
            .get_memory(&mut guest.store, abi::MEMORY_EXPORT)
            .unwrap();
        guest.instance = second;
        let refused = guest
            .launch_bytes(Way::Plain, kernel, Shape::ONE, &argv)
            .await;
        assert_eq!(refused, AbiError::InvalidHandle.code().into());
        let text =
            "argument 0: the buffer was carved from another memory than the one the kernel runs on";
        assert_eq!(guest.last_text(), text);
    });
}

#[test]
fn a_buffer_of_another_instance_does_not_exist() {
    let mut owner = Harness::cpu();
    let mut other = Harness::cpu();
    let buffer = owner.call(abi::FN_ALLOC, &[Val::I64(64)]);
    assert!(buffer > 0, "{}", owner.last_text());
    let kernel = other.kernel(KIT, "k_store");
    let args = [
        Arg::Buffer {
            handle: buffer,
            offset: 0,
        },
        Arg::U32(1),
    ];
    let refused = other.launch(kernel, Shape::ONE, &args);
    other.knows(&[buffer.cast_unsigned()]);
    let text = format!("no buffer {buffer} of this instance");
    other.assert_refused(refused, AbiError::InvalidHandle, &text);
}

#[test]
fn no_bytes_at_the_exact_end_are_in_order() {
    let mut guest = Harness::cpu();
    let end = guest.memory_bytes();
    let copy = guest.kernel(KIT, "k_copy");
    guest.run(copy, &[ptr(end, 0), ptr(0, 0), Arg::U32(0)]);
    let refused = guest.launch(copy, Shape::ONE, &[ptr(end + 1, 0), ptr(0, 0), Arg::U32(0)]);
    let text = format!(
        "argument 0 is 0 bytes from {}, which ends past the {end} bytes of memory",
        end + 1
    );
    guest.assert_refused(refused, AbiError::InvalidPointer, &text);

    let store = guest.kernel(KIT, "k_store");
    let trapped = guest.launch(store, Shape::ONE, &[ptr(end, 0), Arg::U32(1)]);
    assert_eq!(trapped, AbiError::KernelTrap.code().into());
}

#[test]
fn no_bytes_at_the_end_of_a_buffer_are_in_order() {
    let mut guest = Harness::cpu();
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(64)]);
    let copy = guest.kernel(KIT, "k_copy");
    let at = |offset| Arg::Buffer {
        handle: buffer,
        offset,
    };
    guest.run(copy, &[at(64), at(0), Arg::U32(0)]);
    let refused = guest.launch(copy, Shape::ONE, &[at(65), at(0), Arg::U32(0)]);
    let text = "argument 0 is at byte 65 of a buffer of 64 bytes";
    guest.assert_refused(refused, AbiError::InvalidPointer, text);
}

#[test]
fn the_guard_holds_for_kernels_of_the_embedder() {
    let owner = InstanceId::random().unwrap();
    let setup = Setup {
        memory: LinearMemory::PlainHost,
        instance: Some(owner),
        ..Setup::default()
    };
    let entry = KernelEntry::from_ptx(
        &cpu(),
        owner,
        "k_store",
        KIT.as_bytes(),
        Trust::Isolated(host::Isolation::Trapping),
    );
    let kernel = setup.registry.register(entry.unwrap()).unwrap().handle();
    let mut guest = Harness::new(&setup);
    let refused = guest.launch(kernel, Shape::ONE, &[ptr(DATA_AT, 4), Arg::U32(1)]);
    guest.assert_refused(
        refused,
        AbiError::LaunchFailed,
        &format!("argument 0: {PLAIN}"),
    );
}
