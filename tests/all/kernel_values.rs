//! What kernels do with what they are given: values arrive whole whatever their size and place, and shared, local and module memory
//! is what the PTX declares.

use abi::AbiError;
use abi::argv::Arg;
use abi::info::TrapKind;

use crate::harness::{DATA_AT, Harness, KIT, Setup, Shape, assert_all_usable, cpu, name};

const OUT: Arg<'_> = Arg::Ptr {
    offset: DATA_AT,
    len: 256,
};

/// Parameters of the kinds that `kit.ptx` has not; each entry writes what it was given to `out`.
const ECHO: &str = ".version 7.8
.target sm_80
.address_size 64
.visible .entry array(.param .align 4 .b8 a[12], .param .u64 out) {
  .reg .b64 %o; .reg .b32 %x;
  ld.param.u64 %o, [out];
  ld.param.u32 %x, [a]; st.u32 [%o], %x;
  ld.param.u32 %x, [a+4]; st.u32 [%o+4], %x;
  ld.param.u32 %x, [a+8]; st.u32 [%o+8], %x; ret; }
.visible .entry vector(.param .u32 n, .param .align 16 .b8 v[16], .param .u32 m, .param .u64 out) {
  .reg .b64 %o; .reg .b32 %x<5>;
  ld.param.u64 %o, [out];
  ld.param.u32 %x0, [n]; st.u32 [%o], %x0;
  ld.param.v4.u32 {%x1, %x2, %x3, %x4}, [v]; st.v4.u32 [%o+16], {%x1, %x2, %x3, %x4};
  ld.param.u32 %x0, [m]; st.u32 [%o+4], %x0; ret; }
.visible .entry bytes(.param .u64 out, .param .u8 a, .param .u16 b) {
  .reg .b64 %o; .reg .b16 %h;
  ld.param.u64 %o, [out];
  ld.param.u8 %h, [a]; st.u16 [%o], %h;
  ld.param.u16 %h, [b]; st.u16 [%o+2], %h; ret; }
.visible .entry alone(.param .u8 a) { ret; }
.global .align 4 .b8 zeros[1048576];
.visible .entry sum(.param .u64 out) {
  .reg .b64 %o, %z; .reg .b32 %i, %x, %s; .reg .pred %q;
  ld.param.u64 %o, [out]; mov.u64 %z, zeros; mov.u32 %i, 0; mov.u32 %s, 0;
L: ld.global.u32 %x, [%z]; add.u32 %s, %s, %x; add.u64 %z, %z, 4;
  add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 262144; @%q bra L;
  st.u32 [%o], %s; ret; }
";

/// Runs one thread with `OUT` cleared and gives what it wrote there.
fn run(guest: &mut Harness, ptx: &str, entry: &str, args: &[Arg<'_>]) -> Vec<u8> {
    let kernel = guest.kernel(ptx, entry);
    guest.write_memory(DATA_AT, &[0; 256]);
    guest.run(kernel, args);
    guest.read_memory(DATA_AT, 256)
}

#[test]
fn scalars_of_every_width_arrive() {
    let mut guest = Harness::cpu();
    let args = [
        OUT,
        Arg::Bytes(&[0xAB]),
        Arg::Bytes(&[0xCD, 0xEF]),
        Arg::U32(0x0123_4567),
        Arg::I64(i64::MIN + 5),
        Arg::F32(f32::from_bits(0x7FC0_1234)),
        Arg::F64(-0.0),
    ];
    run(&mut guest, KIT, "k_echo", &args);
    let slots = [0, 8, 16, 24, 32, 40].map(|at| guest.read_u64(DATA_AT + at));
    let expected = [
        0xAB,
        0xEFCD,
        0x0123_4567,
        (i64::MIN + 5).cast_unsigned(),
        0x7FC0_1234,
        (-0.0_f64).to_bits(),
    ];
    assert_eq!(slots, expected);
}

#[test]
fn padding_between_and_after_parameters_changes_nothing() {
    let mut guest = Harness::cpu();
    let gap = run(&mut guest, KIT, "k_gap", &[Arg::U32(7), OUT, Arg::U32(9)]);
    assert_eq!(gap[..12], [7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    let tail = run(&mut guest, KIT, "k_tail", &[OUT, Arg::Bytes(&[0x34, 0x12])]);
    assert_eq!(tail[..4], [0x34, 0x12, 0, 0]);
    let bytes = run(
        &mut guest,
        ECHO,
        "bytes",
        &[OUT, Arg::Bytes(&[0xFE]), Arg::Bytes(&[0xDC, 0xBA])],
    );
    assert_eq!(bytes[..4], [0xFE, 0x00, 0xDC, 0xBA]);
    let alone = guest.kernel(ECHO, "alone");
    guest.run(alone, &[Arg::Bytes(&[1])]);
}

#[test]
fn aggregates_arrive_whole_and_leave_their_neighbours_alone() {
    let mut guest = Harness::cpu();
    let given: Vec<u8> = (1..=32).collect();
    let args = [
        OUT,
        Arg::U32(0x55),
        Arg::Bytes(&given),
        Arg::Bytes(&[0x77]),
        Arg::Bytes(&[0x88]),
    ];
    let found = run(&mut guest, KIT, "k_struct", &args);
    assert_eq!(found[..4], [0x55, 0, 0, 0]);
    assert_eq!(found[8..40], given);
    assert_eq!(found[40..43], [0x77, 0x88, 0]);

    let array = run(&mut guest, ECHO, "array", &[Arg::Bytes(&given[..12]), OUT]);
    assert_eq!(array[..12], given[..12]);
    let args = [
        Arg::U32(0x11),
        Arg::Bytes(&given[..16]),
        Arg::U32(0x22),
        OUT,
    ];
    let vector = run(&mut guest, ECHO, "vector", &args);
    assert_eq!(vector[..8], [0x11, 0, 0, 0, 0x22, 0, 0, 0]);
    assert_eq!(vector[16..32], given[..16]);
}

#[test]
fn constants_vectors_and_local_arrays_are_read_where_they_are() {
    let mut guest = Harness::cpu();
    assert_eq!(run(&mut guest, KIT, "k_const", &[OUT])[..4], [33, 0, 0, 0]);
    let kernel = guest.kernel(KIT, "k_vec4");
    guest.write_memory(DATA_AT, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
    guest.run(
        kernel,
        &[
            OUT,
            Arg::Ptr {
                offset: DATA_AT + 32,
                len: 4,
            },
        ],
    );
    assert_eq!(guest.read_u32(DATA_AT + 32), 4);
    for index in [0, 1, 4095] {
        run(&mut guest, KIT, "k_local", &[OUT, Arg::U32(index)]);
        assert_eq!(guest.read_u32(DATA_AT), index);
    }
}

#[test]
fn a_vector_that_is_not_aligned_traps() {
    let mut guest = Harness::cpu();
    let kernel = guest.kernel(KIT, "k_vec4");
    let odd = Arg::Ptr {
        offset: DATA_AT + 4,
        len: 16,
    };
    assert_eq!(
        name(guest.launch(kernel, Shape::ONE, &[odd, OUT])),
        "KernelTrap"
    );
    let trap = guest.trap_info();
    assert_eq!(
        trap.kind,
        TrapKind::Misaligned.number(),
        "{}",
        guest.last_text()
    );
    assert_eq!(
        (trap.address, trap.access_bytes),
        (u64::from(DATA_AT + 4), 16)
    );
    assert_all_usable(&mut guest);
}

#[test]
fn uninitialised_module_variables_are_zero_at_each_load() {
    let mut guest = Harness::cpu();
    for _ in 0..2 {
        let kernel = guest.kernel(ECHO, "sum");
        guest.write_memory(DATA_AT, &[0xFF; 4]);
        guest.run(kernel, &[OUT]);
        assert_eq!(guest.read_u32(DATA_AT), 0);
        assert_eq!(guest.call(abi::FN_UNLOAD, &[wasmtime::Val::I64(kernel)]), 0);
    }
}

#[test]
fn dynamic_shared_memory_reaches_to_the_devices_limit() {
    let mut guest = Harness::cpu();
    let limit = cpu().info().limits.shared_bytes;
    let kernel = guest.kernel(KIT, "k_dynsmem");
    let launch = |guest: &mut Harness, touched, shared_bytes| {
        let shape = Shape::new([1; 3], [1; 3], shared_bytes);
        guest.launch(kernel, shape, &[OUT, Arg::U32(touched)])
    };
    for bytes in [4, 49_152, 49_156, 102_400, limit] {
        guest.write_memory(DATA_AT, &[0; 4]);
        assert_eq!(launch(&mut guest, bytes, bytes), 0, "{}", guest.last_text());
        assert_eq!(guest.read_u32(DATA_AT), 77);
    }
    for bytes in [limit + 1, u32::MAX] {
        let answer = launch(&mut guest, 4, bytes);
        let text = format!(
            "{bytes} bytes of dynamic and 0 of static shared memory are over the limit of {limit}"
        );
        guest.assert_refused(answer, AbiError::InvalidDimensions, &text);
    }
    run_both(&mut guest);
    assert_all_usable(&mut guest);
}

fn run_both(guest: &mut Harness) {
    let kernel = guest.kernel(KIT, "k_bothsmem");
    let shape = Shape::new([1; 3], [1; 3], 64);
    assert_eq!(
        guest.launch(kernel, shape, &[OUT]),
        0,
        "{}",
        guest.last_text()
    );
    assert_eq!(guest.read_u32(DATA_AT), 5);
}

#[test]
fn dynamic_shared_memory_that_was_not_asked_for_is_not_there() {
    let mut guest = Harness::cpu();
    let kernel = guest.kernel(KIT, "k_dynsmem");
    let answer = guest.launch(kernel, Shape::ONE, &[OUT, Arg::U32(4096)]);
    assert_eq!(name(answer), "KernelTrap", "{}", guest.last_text());
    let trap = guest.trap_info();
    assert_eq!(
        (trap.kind, trap.access_bytes),
        (TrapKind::OutOfBounds.number(), 4)
    );
    assert!(
        guest.last_text().contains("shared address"),
        "{}",
        guest.last_text()
    );
    assert_all_usable(&mut guest);
}

#[test]
fn shared_memory_holds_nothing_of_other_instances() {
    let mut other = Harness::cpu();
    let fill = ".version 7.8 .target sm_80 .address_size 64
        .visible .entry fill() {
          .shared .align 16 .b8 all[49152]; .reg .b32 %b, %i; .reg .pred %q;
          mov.u32 %b, all; mov.u32 %i, 0;
        L: st.shared.u32 [%b], 0x5ec4e75e; add.u32 %b, %b, 4; add.u32 %i, %i, 1;
          setp.lt.u32 %q, %i, 12288; @%q bra L; ret; }";
    let kernel = other.kernel(fill, "fill");
    assert_eq!(
        other.launch(kernel, Shape::line(64, 1), &[]),
        0,
        "{}",
        other.last_text()
    );
    let mut guest = Harness::cpu();
    let kernel = guest.kernel(KIT, "k_residue");
    for _ in 0..32 {
        guest.run(kernel, &[OUT]);
        assert_eq!(guest.read_memory(DATA_AT, 256), [0; 256]);
    }
}

#[test]
fn instances_that_come_and_go_leave_nothing_on_the_device() {
    let device = device::open(device::Selector::Cpu).unwrap();
    let setup = Setup::on(device);
    let device = setup.device().unwrap();
    for round in 0..8 {
        let mut guest = Harness::new(&setup);
        let kernel = guest.kernel(KIT, if round % 2 == 0 { "k_trap" } else { "k_empty" });
        let answer = guest.launch(kernel, Shape::ONE, &[]);
        assert_eq!(answer == 0, round % 2 == 1);
        assert!(guest.call(abi::FN_ALLOC, &[wasmtime::Val::I64(1 << 20)]) > 0);
        assert!(device.regions().reserved_bytes() > 0);
        drop(guest);
        assert_eq!(device.regions().reserved_bytes(), 0);
    }
}
