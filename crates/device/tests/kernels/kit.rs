//! The small kernels of `fixtures/kernels/kit.ptx`: parameters of every size, every state space, and
//! the simplest ways to end badly.

use std::sync::Arc;

use device::{Access, AccessSpace, Error, LaunchControl, Program, Trap, TrapKind, Value};

use crate::harness::{
    Buffer, Case, Memory, Rig, Shape, as_it_is, assert_same, every, isolating, kernels, line_of,
};

pub(crate) const CASES: &[Case] = &[
    every("kit::k_empty", k_empty),
    every("kit::k_store", k_store),
    every("kit::k_copy", k_copy),
    every("kit::k_echo", k_echo),
    every("kit::k_gap", k_gap),
    every("kit::k_tail", k_tail),
    every("kit::k_struct", k_struct),
    every("kit::k_ptrattr", k_ptrattr),
    every("kit::k_vec4", k_vec4),
    as_it_is("kit::k_count", k_count),
    every("kit::k_const", k_const),
    every("kit::k_dynsmem", k_dynsmem),
    as_it_is("kit::k_dynsmem_up_to_its_limit", k_dynsmem_up_to_its_limit),
    isolating("kit::k_dynsmem_past_its_size", k_dynsmem_past_its_size),
    every("kit::k_bothsmem", k_bothsmem),
    isolating("kit::k_residue", k_residue),
    every("kit::k_local", k_local),
    isolating("kit::k_trap", k_trap),
    isolating("kit::k_wild", k_wild),
    isolating("kit::k_past", k_past),
];

fn load(rig: &Rig, entry: &str) -> Arc<dyn Program> {
    rig.load(&kernels("kit"), entry)
}

/// Runs one thread.
fn once(rig: &Rig, entry: &str, values: &[Value<'_>], memory: &Memory) {
    rig.launch(&load(rig, entry), Shape::line(1, 1), values, memory);
}

fn k_empty(rig: &Rig) {
    let program = load(rig, "k_empty");
    for (blocks, threads) in [(1, 1), (3, 33), (1000, 1024)] {
        rig.launch(&program, Shape::line(blocks, threads), &[], &rig.memory());
    }
}

fn k_store(rig: &Rig) {
    for entry in ["k_store", "k_store_generic"] {
        let mut memory = rig.memory();
        let output = memory.room::<u32>(2);
        let values = [output.pointer(), Value::U32(0xFEED_F00D)];
        let untouched = memory.read(output)[1];
        once(rig, entry, &values, &memory);
        assert_same(&memory.read(output), &[0xFEED_F00D, untouched], entry);
    }
}

fn k_copy(rig: &Rig) {
    for n in [0, 1, 7, 300] {
        let words: Vec<u32> = (0..n).map(|i: u32| i.wrapping_mul(0x0101_0101)).collect();
        let mut memory = rig.memory();
        let input = memory.place(&words);
        let output = memory.room::<u32>(words.len());
        let values = [input.pointer(), output.pointer(), Value::U32(n)];
        once(rig, "k_copy", &values, &memory);
        assert_same(&memory.read(output), &words, n);
    }
}

fn k_echo(rig: &Rig) {
    let mut memory = rig.memory();
    let output = memory.place(&[0_u64; 6]);
    let single = -1.5_f32;
    let double = f64::MIN_POSITIVE / 4.0;
    let values = [
        output.pointer(),
        Value::Bytes(&[0xF1]),
        Value::Bytes(&[0x02, 0xF3]),
        Value::U32(0xF405_0607),
        Value::U64(0xF809_0A0B_0C0D_0E0F),
        Value::F32(single),
        Value::F64(double),
    ];
    once(rig, "k_echo", &values, &memory);
    let want = [
        0xF1,
        0xF302,
        0xF405_0607,
        0xF809_0A0B_0C0D_0E0F,
        u64::from(single.to_bits()),
        double.to_bits(),
    ];
    assert_same(&memory.read(output), &want, "scalars");
}

fn k_gap(rig: &Rig) {
    let mut memory = rig.memory();
    let output = memory.room::<u32>(2);
    let values = [Value::U32(3), output.pointer(), Value::I32(-4)];
    once(rig, "k_gap", &values, &memory);
    let want = [3, (-4_i32).cast_unsigned()];
    assert_same(&memory.read(output), &want, "around a gap");
}

fn k_tail(rig: &Rig) {
    let program = load(rig, "k_tail");
    assert_eq!(program.attributes().signature.size, 10);
    let mut memory = rig.memory();
    let output = memory.place(&[0_u16; 2]);
    let values = [output.pointer(), Value::Bytes(&[0xCD, 0xAB])];
    rig.launch(&program, Shape::line(1, 1), &values, &memory);
    assert_same(&memory.read(output), &[0xABCD, 0], "tail");
}

fn k_struct(rig: &Rig) {
    let aggregate: Vec<u8> = (100..132).collect();
    let mut memory = rig.memory();
    let output = memory.place(&[0_u8; 48]);
    let values = [
        output.pointer(),
        Value::U32(0x0403_0201),
        Value::Bytes(&aggregate),
        Value::Bytes(&[0xAA]),
        Value::Bytes(&[0xBB]),
    ];
    once(rig, "k_struct", &values, &memory);
    let mut want = vec![1, 2, 3, 4, 0, 0, 0, 0];
    want.extend(&aggregate);
    want.extend([0xAA, 0xBB, 0, 0, 0, 0, 0, 0]);
    assert_same(&memory.read(output), &want, "structure");
}

fn k_ptrattr(rig: &Rig) {
    let mut memory = rig.memory();
    let input = memory.place(&[9_u8, 200]);
    let output = memory.room::<u32>(1);
    let second = Value::Pointer {
        offset: input.offset() + 1,
        len: 1,
    };
    once(rig, "k_ptrattr", &[output.pointer(), second], &memory);
    assert_same(&memory.read(output), &[200], "byte");

    let program = load(rig, "k_ptrattr");
    let integer = [Value::U64(output.offset()), second];
    let refused = rig.try_launch(&program, Shape::line(1, 1), &integer, &memory);
    assert!(
        matches!(refused, Err(Error::ArgumentType { index: 0, .. })),
        "{refused:?}"
    );
}

fn k_vec4(rig: &Rig) {
    let mut memory = rig.memory();
    let input = memory.place(&[1_u32, 2, 3, 0x8000_0004]);
    let output = memory.room::<u32>(1);
    let values = [input.pointer(), output.pointer()];
    once(rig, "k_vec4", &values, &memory);
    assert_same(&memory.read(output), &[0x8000_0004], "fourth word");
}

/// Module variables last as long as the module: across launches and entries, not across loads.
fn k_count(rig: &Rig) {
    let counter = |program: &Arc<dyn Program>| {
        let mut memory = rig.memory();
        let output = memory.room::<u32>(1);
        rig.launch(program, Shape::line(1, 1), &[output.pointer()], &memory);
        memory.read(output)[0]
    };
    let module = rig.module(&kernels("kit")).expect("the kit loads");
    let program = module.entry("k_count").expect("it is there");
    let counts: Vec<u32> = (0..10).map(|_| counter(&program)).collect();
    assert_eq!(counts, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let again = load(rig, "k_count");
    assert_eq!(counter(&again), 0);
    let same = module.entry("k_count").expect("it is there");
    assert_eq!(counter(&same), 10);
    drop((module, program));
    assert_eq!(counter(&same), 11);
    assert_eq!(counter(&again), 1);
}

fn k_const(rig: &Rig) {
    let mut memory = rig.memory();
    let output = memory.room::<u32>(1);
    once(rig, "k_const", &[output.pointer()], &memory);
    assert_same(&memory.read(output), &[33], "third constant");
}

fn dynamic(rig: &Rig, given: u32, used: u32) -> (Result<(), Error>, Memory, Buffer<u32>) {
    let mut memory = rig.memory();
    let output = memory.room::<u32>(1);
    let values = [output.pointer(), Value::U32(used)];
    let shape = Shape::line(1, 1).shared(given);
    let outcome = rig.try_launch(&load(rig, "k_dynsmem"), shape, &values, &memory);
    (outcome, memory, output)
}

fn check_dynamic(rig: &Rig, bytes: u32) {
    let (outcome, memory, output) = dynamic(rig, bytes, bytes);
    assert_eq!(outcome, Ok(()), "{bytes} bytes");
    assert_same(&memory.read(output), &[77], bytes);
}

fn k_dynsmem(rig: &Rig) {
    for bytes in [4, 4096, 49_152, 49_156] {
        check_dynamic(rig, bytes);
    }
}

fn k_dynsmem_up_to_its_limit(rig: &Rig) {
    let limit = rig.device().info().limits.shared_bytes;
    check_dynamic(rig, limit);
    for bytes in [limit + 1, u32::MAX] {
        let (outcome, memory, output) = dynamic(rig, bytes, 4);
        let want = Error::SharedBytes {
            dynamic: bytes,
            fixed: 0,
            limit,
        };
        assert_eq!(outcome, Err(want));
        assert!(memory.is_unwritten(output));
    }
}

fn k_dynsmem_past_its_size(rig: &Rig) {
    let line = line_of(&kernels("kit"), "k_dynsmem", "st.shared.u32");
    for (given, used) in [(0, 4096), (4, 8), (4096, 4100)] {
        let (outcome, memory, output) = dynamic(rig, given, used);
        let trap = trap_of(outcome);
        let access = trap.access.expect("an access");
        assert_eq!((trap.kind, trap.line), (TrapKind::OutOfBounds, line));
        assert_eq!((access.space, access.bytes), (AccessSpace::Shared, 4));
        assert!(memory.is_unwritten(output));
    }
}

fn k_bothsmem(rig: &Rig) {
    let program = load(rig, "k_bothsmem");
    if rig.takes_texts_as_they_are() {
        assert_eq!(program.attributes().signature.static_shared_bytes, 1024);
    }
    assert!(program.attributes().signature.uses_dynamic_shared);
    let mut memory = rig.memory();
    let output = memory.room::<u32>(1);
    let shape = Shape::line(1, 1).shared(16);
    rig.launch(&program, shape, &[output.pointer()], &memory);
    assert_same(&memory.read(output), &[5], "static beside dynamic");
}

/// Shared memory holds nothing of another kernel or block.
fn k_residue(rig: &Rig) {
    let dirt = load(rig, "k_bothsmem");
    let program = load(rig, "k_residue");
    for _ in 0..3 {
        let mut memory = rig.memory();
        let output = memory.room::<u32>(64);
        let values = [output.pointer()];
        rig.launch(&dirt, Shape::line(50, 64).shared(4096), &values, &memory);
        rig.launch(&program, Shape::line(1, 1), &values, &memory);
        assert_same(&memory.read(output), &[0; 64], "residue");
    }
}

fn k_local(rig: &Rig) {
    for index in [0, 1, 4095, 4096 + 17] {
        let mut memory = rig.memory();
        let output = memory.room::<u32>(1);
        let values = [output.pointer(), Value::U32(index)];
        once(rig, "k_local", &values, &memory);
        assert_same(&memory.read(output), &[index % 4096], index);
    }
}

/// The trap that an outcome reports.
fn trap_of(outcome: Result<(), Error>) -> Trap {
    match outcome {
        Err(Error::Trap(trap)) => trap,
        other => panic!("{other:?} instead of a trap"),
    }
}

fn k_trap(rig: &Rig) {
    let line = line_of(&kernels("kit"), "k_trap", "trap;");
    let program = load(rig, "k_trap");
    let outcome = rig.try_launch(&program, Shape::line(1, 1), &[], &rig.memory());
    let want = Trap {
        kind: TrapKind::TrapInstruction,
        line,
        block: [0; 3],
        thread: [0; 3],
        access: None,
    };
    assert_eq!(trap_of(outcome), want);
}

/// A launch without memory has nothing that a kernel may touch.
fn k_wild(rig: &Rig) {
    let line = line_of(&kernels("kit"), "k_wild", "st.global.u32");
    let program = load(rig, "k_wild");
    let control = LaunchControl::default();
    let (_launch, completion) = rig
        .start(&program, Shape::line(1, 1), &[], None, control)
        .expect("a launch in order");
    let want = Trap {
        kind: TrapKind::OutOfBounds,
        line,
        block: [0; 3],
        thread: [0; 3],
        access: Some(Access {
            address: 16,
            bytes: 4,
            space: AccessSpace::Global,
        }),
    };
    assert_eq!(trap_of(completion.wait()), want);
}

fn k_past(rig: &Rig) {
    let line = line_of(&kernels("kit"), "k_past", "st.u32");
    let program = load(rig, "k_past");
    let mut memory = rig.memory();
    let buffer = memory.room::<u32>(1);
    let size = memory.size();
    for address in [size, size + 4, 64 << 20, 1 << 32, (1 << 32) + 64, 1 << 63] {
        let distance = address - buffer.offset();
        let values = [buffer.pointer(), Value::U64(distance)];
        let outcome = rig.try_launch(&program, Shape::line(1, 1), &values, &memory);
        let want = Trap {
            kind: TrapKind::OutOfBounds,
            line,
            block: [0; 3],
            thread: [0; 3],
            access: Some(Access {
                address,
                bytes: 4,
                space: AccessSpace::Generic,
            }),
        };
        assert_eq!(trap_of(outcome), want, "{address:#x}");
        assert!(memory.is_unwritten(buffer));
    }
}
