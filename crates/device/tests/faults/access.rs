//! Accesses that are not allowed: past the end, across it, wild, or misaligned, in every space.

use device::{Access, AccessSpace, Trap, TrapKind, Value};

use crate::harness::{Case, Memory, Rig, Shape, isolating, kernels, line_of};
use crate::{check_alive, trap_of};

pub(crate) const CASES: &[Case] = &[
    isolating(
        "access::the_last_bytes_are_in_bounds",
        the_last_bytes_are_in_bounds,
    ),
    isolating("access::past_the_end", past_the_end),
    isolating("access::wild_addresses", wild_addresses),
    isolating("access::misaligned", misaligned),
    isolating(
        "access::the_lowest_offending_thread_is_named",
        the_lowest_offending_thread_is_named,
    ),
    isolating("access::atomics_past_the_end", atomics_past_the_end),
    isolating("access::shared_memory", shared_memory),
    isolating("access::local_memory", local_memory),
    isolating("access::constants", constants),
    isolating("access::a_neighbour_stays_intact", a_neighbour_stays_intact),
];

/// A form of access: the end of its entries' names, its instruction's modifiers, its width.
const FORMS: [(&str, &str, u32); 7] = [
    ("u8", "u8", 1),
    ("u16", "u16", 2),
    ("u32", "u32", 4),
    ("u64", "u64", 8),
    ("v2_u32", "v2.u32", 8),
    ("v4_u32", "v4.u32", 16),
    ("v2_u64", "v2.u64", 16),
];

const DIRECTIONS: [(&str, &str); 2] = [("load", "ld"), ("store", "st")];

/// A trap of thread `thread` of block 0 on global memory.
fn global(kind: TrapKind, line: u32, thread: u32, address: u64, bytes: u32) -> Trap {
    Trap {
        kind,
        line,
        block: [0; 3],
        thread: [thread, 0, 0],
        access: Some(Access {
            address,
            bytes,
            space: AccessSpace::Global,
        }),
    }
}

/// Runs every entry in one thread on the addresses that `addresses` gives for a width, and expects a trap of
/// the kind that it says.
fn expect_traps(rig: &Rig, memory: &Memory, addresses: impl Fn(u64) -> Vec<(u64, TrapKind)>) {
    let text = kernels("faults");
    for (name, modifiers, width) in FORMS {
        for (direction, opcode) in DIRECTIONS {
            let entry = format!("{direction}_{name}");
            let line = line_of(&text, &entry, &format!("{opcode}.global.{modifiers}"));
            let program = rig.load(&text, &entry);
            for (address, kind) in addresses(u64::from(width)) {
                let values = [Value::U64(address), Value::U64(0)];
                let outcome = rig.try_launch(&program, Shape::line(1, 1), &values, memory);
                let want = global(kind, line, 0, address, width);
                assert_eq!(trap_of(outcome), want, "{entry} at {address:#x}");
            }
        }
    }
}

fn the_last_bytes_are_in_bounds(rig: &Rig) {
    let text = kernels("faults");
    for (name, _, width) in FORMS {
        for (direction, _) in DIRECTIONS {
            let program = rig.load(&text, &format!("{direction}_{name}"));
            let memory = rig.memory();
            let last = memory.size() - u64::from(width);
            let values = [Value::U64(last), Value::U64(0)];
            let shape = Shape::line(1, 1);
            let (_launch, completion) = rig
                .start(&program, shape, &values, Some(&memory), Default::default())
                .expect("a launch in order");
            assert_eq!(completion.wait(), Ok(()), "{direction} of {width} bytes");
            let want = if direction == "store" { 0xFF } else { 0 };
            let window = memory.region().window();
            for address in last..memory.size() {
                assert_eq!(window.load::<u8>(address), Ok(want));
            }
            assert_eq!(window.load::<u8>(last - 1), Ok(0));
        }
    }
}

fn past_the_end(rig: &Rig) {
    let memory = rig.memory();
    let size = memory.size();
    expect_traps(rig, &memory, |_| vec![(size, TrapKind::OutOfBounds)]);
    check_alive(rig);
}

fn wild_addresses(rig: &Rig) {
    let memory = rig.memory();
    let size = memory.size();
    let page = 64 << 10;
    let window = memory.region().spec().window_bytes;
    let addresses = [
        size + page,
        window - page,
        window,
        1 << 31,
        (1 << 32) - page,
        1 << 32,
        (1 << 32) + page,
        1 << 47,
        1 << 63,
        (1 << 63) + 64,
        u64::MAX - 4095,
    ];
    expect_traps(rig, &memory, |width| {
        // The last word of the address space ends where it wraps to 0.
        let wrapping = 0_u64.wrapping_sub(width);
        let wild = addresses.into_iter().chain([wrapping]);
        wild.map(|address| (address, TrapKind::OutOfBounds))
            .collect()
    });
    check_alive(rig);
}

/// An address that is both misaligned and outside is reported as misaligned: so is one that straddles the end.
fn misaligned(rig: &Rig) {
    let memory = rig.memory();
    let size = memory.size();
    expect_traps(rig, &memory, |width| {
        let steps = (1..width).filter(|step| [1, 2, 4, 8, width - 1].contains(step));
        let around = steps.flat_map(|step| [64 + step, size - width + step, size + step]);
        around
            .map(|address| (address, TrapKind::Misaligned))
            .collect()
    });
    check_alive(rig);
}

fn the_lowest_offending_thread_is_named(rig: &Rig) {
    let text = kernels("faults");
    let line = line_of(&text, "store_u32", "st.global.u32");
    let program = rig.load(&text, "store_u32");
    let memory = rig.memory();
    let size = memory.size();
    for (inside, threads) in [(0, 1), (0, 33), (1, 32), (31, 32), (32, 64), (45, 100)] {
        let start = size - inside * 4;
        let values = [Value::U64(start), Value::U64(4)];
        let (_launch, completion) = rig
            .start(
                &program,
                Shape::line(1, threads),
                &values,
                Some(&memory),
                Default::default(),
            )
            .expect("a launch in order");
        let thread = u32::try_from(inside).expect("a small number");
        let want = global(TrapKind::OutOfBounds, line, thread, size, 4);
        let found = trap_of(completion.wait());
        // Which of several offending warps is first is not fixed, which of its lanes is.
        if threads <= 64 {
            assert_eq!(found, want, "{inside} of {threads}");
        } else {
            let lane = found.thread[0];
            assert!(
                lane == thread || lane.is_multiple_of(32) && lane > thread,
                "{found}"
            );
        }
    }
    check_alive(rig);
}

fn atomics_past_the_end(rig: &Rig) {
    let text = kernels("faults");
    for (entry, instruction, width) in [
        ("atomic_u32", "atom.global.add.u32", 4_u32),
        ("reduce_u64", "red.global.add.u64", 8),
    ] {
        let line = line_of(&text, entry, instruction);
        let program = rig.load(&text, entry);
        let memory = rig.memory();
        let size = memory.size();
        for (address, kind) in [
            (size, TrapKind::OutOfBounds),
            (1 << 40, TrapKind::OutOfBounds),
            (size - 2, TrapKind::Misaligned),
            (65, TrapKind::Misaligned),
        ] {
            let values = [Value::U64(address)];
            let outcome = rig.try_launch(&program, Shape::line(1, 1), &values, &memory);
            let want = global(kind, line, 0, address, width);
            assert_eq!(trap_of(outcome), want, "{entry} at {address:#x}");
        }
    }
    check_alive(rig);
}

/// Checks an entry that stores 4 bytes at an offset in a variable of 64 bytes.
fn variable_of_64_bytes(rig: &Rig, entry: &str, instruction: &str, space: AccessSpace) {
    let text = kernels("faults");
    let line = line_of(&text, entry, instruction);
    let program = rig.load(&text, entry);
    let memory = rig.memory();
    let run = |at: u32| {
        let values = [Value::U32(at)];
        rig.try_launch(&program, Shape::line(1, 1), &values, &memory)
    };
    for at in [0, 60] {
        assert_eq!(run(at), Ok(()), "{at}");
    }
    for (at, kind) in [
        (1 << 28, TrapKind::OutOfBounds),
        (0_u32.wrapping_sub(1 << 28), TrapKind::OutOfBounds),
        (2, TrapKind::Misaligned),
    ] {
        let trap = trap_of(run(at));
        let access = trap.access.expect("an access");
        assert_eq!((trap.kind, trap.line), (kind, line), "{entry} at {at}");
        assert_eq!((access.space, access.bytes), (space, 4), "{entry} at {at}");
    }
    check_alive(rig);
}

fn shared_memory(rig: &Rig) {
    variable_of_64_bytes(rig, "store_shared", "st.shared.u32", AccessSpace::Shared);
    let program = rig.load(&kernels("faults"), "store_shared");
    let values = [Value::U32(64)];
    let outcome = rig.try_launch(&program, Shape::line(1, 1), &values, &rig.memory());
    assert_eq!(trap_of(outcome).kind, TrapKind::OutOfBounds);
}

fn local_memory(rig: &Rig) {
    variable_of_64_bytes(rig, "store_local", "st.local.u32", AccessSpace::Local);
}

fn constants(rig: &Rig) {
    let text = kernels("faults");
    let line = line_of(&text, "load_const", "ld.const.u32");
    let program = rig.load(&text, "load_const");
    let mut memory = rig.memory();
    let output = memory.room::<u32>(1);
    let run = |at: u64| {
        let values = [output.pointer(), Value::U64(at)];
        rig.try_launch(&program, Shape::line(1, 1), &values, &memory)
    };
    for at in [16, 1 << 20, 1 << 40, 0_u64.wrapping_sub(4)] {
        let trap = trap_of(run(at));
        assert_eq!(
            (trap.kind, trap.line),
            (TrapKind::OutOfBounds, line),
            "{at}"
        );
        assert!(memory.is_unwritten(output));
    }
    assert_eq!(run(12), Ok(()));
    assert_eq!(memory.read(output), [4]);
    check_alive(rig);
}

/// Another guest's memory does not change, even when a kernel knows where in the process it is.
fn a_neighbour_stays_intact(rig: &Rig) {
    let mut neighbour = rig.memory();
    let secret: Vec<u32> = (0..1000).collect();
    let kept = neighbour.place(&secret);
    let own = rig.memory();
    let bases = [own.region().base(), neighbour.region().base()];
    let [own_base, neighbour_base] = bases.map(|base| base.as_ptr().addr() as u64);
    let distance = neighbour_base.wrapping_sub(own_base);
    expect_traps(rig, &own, |width| {
        [neighbour_base, distance]
            .map(|start| start.wrapping_add(kept.offset()))
            .into_iter()
            .inspect(|address| assert_eq!(address % width, 0))
            .map(|address| (address, TrapKind::OutOfBounds))
            .collect()
    });
    assert_eq!(neighbour.read(kept), secret);
    neighbour.check_canaries();
    check_alive(rig);
}
