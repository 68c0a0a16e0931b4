//! Kernels that trap on purpose, never end, call too deep or wait for what never comes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Error, LaunchControl, Program, StopReason, Trap, TrapKind, Value};

use crate::harness::{Case, Rig, Shape, as_it_is, isolating, kernels, line_of};
use crate::{check_alive, trap_of};

pub(crate) const CASES: &[Case] = &[
    isolating(
        "control::one_thread_of_one_block_traps",
        one_thread_of_one_block_traps,
    ),
    isolating(
        "control::mismatched_barriers_deadlock",
        mismatched_barriers_deadlock,
    ),
    isolating(
        "control::a_barrier_of_more_threads_than_there_are_deadlocks",
        a_barrier_too_large,
    ),
    as_it_is(
        "control::threads_that_left_count_as_arrived",
        threads_that_left_count_as_arrived,
    ),
    isolating(
        "control::an_endless_loop_ends_with_its_budget",
        an_endless_loop_ends_with_its_budget,
    ),
    isolating(
        "control::an_endless_loop_ends_at_its_deadline",
        an_endless_loop_ends_at_its_deadline,
    ),
    as_it_is(
        "control::recursion_within_the_limit",
        recursion_within_the_limit,
    ),
    isolating("control::recursion_without_end", recursion_without_end),
    isolating(
        "control::faults_at_the_same_time_stay_apart",
        faults_at_the_same_time_stay_apart,
    ),
];

fn load(rig: &Rig, entry: &str) -> Arc<dyn Program> {
    rig.load(&kernels("faults"), entry)
}

fn one_thread_of_one_block_traps(rig: &Rig) {
    let line = line_of(&kernels("faults"), "trap_in", "@%q trap");
    let program = load(rig, "trap_in");
    let grid = [5, 3, 2];
    let block = [8, 5, 2];
    for (in_block, in_thread, at_block, at_thread) in [
        (0, 0, [0, 0, 0], [0, 0, 0]),
        (29, 79, [4, 2, 1], [7, 4, 1]),
        (17, 33, [2, 0, 1], [1, 4, 0]),
        (7, 40, [2, 1, 0], [0, 0, 1]),
    ] {
        let mut memory = rig.memory();
        let done = memory.place(&[0_u32; 30]);
        let values = [done.pointer(), Value::U32(in_block), Value::U32(in_thread)];
        let shape = Shape {
            grid,
            block,
            ..Shape::line(1, 1)
        };
        let outcome = rig.try_launch(&program, shape, &values, &memory);
        let want = Trap {
            kind: TrapKind::TrapInstruction,
            line,
            block: at_block,
            thread: at_thread,
            access: None,
        };
        assert_eq!(trap_of(outcome), want);
        let done = memory.read(done);
        assert_eq!(done[in_block as usize], 1, "the block ran until its trap");
        assert!(done.iter().all(|&word| word < 2));
    }
    check_alive(rig);
}

/// Runs a kernel that waits for ever at a barrier, and checks that the report names one of those barriers.
fn expect_deadlock(rig: &Rig, entry: &str, threads: u32) {
    let text = kernels("faults");
    let program = load(rig, entry);
    let shape = Shape::line(2, threads);
    let trap = trap_of(rig.try_launch(&program, shape, &[], &rig.memory()));
    assert_eq!(trap.kind, TrapKind::BarrierDeadlock, "{trap}");
    assert_eq!(trap.access, None);
    let source = (1..).zip(text.lines()).find(|&(line, _)| line == trap.line);
    let (_, source) = source.expect("a line of the text");
    assert!(source.contains("bar.sync"), "{trap}: {source}");
    assert!(trap.line > line_of(&text, entry, "{"), "{trap}");
    check_alive(rig);
}

fn mismatched_barriers_deadlock(rig: &Rig) {
    for threads in [64, 96, 256] {
        expect_deadlock(rig, "barrier_mismatch", threads);
    }
}

fn a_barrier_too_large(rig: &Rig) {
    expect_deadlock(rig, "barrier_of_96", 64);
    let program = load(rig, "barrier_of_96");
    rig.launch(&program, Shape::line(2, 96), &[], &rig.memory());
}

fn threads_that_left_count_as_arrived(rig: &Rig) {
    let program = load(rig, "barrier_after_exit");
    for threads in [32, 64, 100, 1024] {
        let mut memory = rig.memory();
        let output = memory.room::<u32>(1);
        rig.launch(
            &program,
            Shape::line(1, threads),
            &[output.pointer()],
            &memory,
        );
        assert_eq!(memory.read(output), [1], "{threads}");
    }
}

fn stopped(rig: &Rig, entry: &str, control: LaunchControl) -> StopReason {
    let memory = rig.memory();
    let shape = Shape::line(4, 64);
    let started = rig.start(&load(rig, entry), shape, &[], Some(&memory), control);
    let (_launch, completion) = started.expect("a launch in order");
    let outcome = completion.wait();
    memory.check_canaries();
    check_alive(rig);
    match outcome {
        Err(Error::Stopped(reason)) => reason,
        other => panic!("`{entry}` ended with {other:?}"),
    }
}

fn an_endless_loop_ends_with_its_budget(rig: &Rig) {
    for entry in ["endless", "endless_barriers"] {
        for budget in [0, 1, 10_000, 1_000_000] {
            let control = LaunchControl {
                time: None,
                budget: Some(budget),
                ..LaunchControl::default()
            };
            assert_eq!(stopped(rig, entry, control), StopReason::Budget, "{budget}");
        }
    }
}

fn an_endless_loop_ends_at_its_deadline(rig: &Rig) {
    for entry in ["endless", "endless_barriers"] {
        let begun = Instant::now();
        let time = Duration::from_millis(20);
        let control = LaunchControl {
            time: Some(time),
            budget: None,
            ..LaunchControl::default()
        };
        assert_eq!(stopped(rig, entry, control), StopReason::Deadline);
        assert!(begun.elapsed() >= time);
    }
}

fn recursion_within_the_limit(rig: &Rig) {
    let program = load(rig, "recurse");
    for depth in [0, 1, 20] {
        let mut memory = rig.memory();
        let output = memory.room::<u32>(48);
        let values = [output.pointer(), Value::U32(depth)];
        rig.launch(&program, Shape::line(1, 48), &values, &memory);
        assert_eq!(memory.read(output), [depth; 48]);
    }
}

fn recursion_without_end(rig: &Rig) {
    let line = line_of(&kernels("faults"), "descend", "call.uni");
    let program = load(rig, "recurse");
    let mut memory = rig.memory();
    let output = memory.room::<u32>(48);
    let values = [output.pointer(), Value::U32(u32::MAX)];
    let outcome = rig.try_launch(&program, Shape::line(1, 48), &values, &memory);
    let want = Trap {
        kind: TrapKind::CallDepth,
        line,
        block: [0; 3],
        thread: [0; 3],
        access: None,
    };
    assert_eq!(trap_of(outcome), want);
    assert!(memory.is_unwritten(output));
    check_alive(rig);
}

/// Launches in flight together do not see each other's faults.
fn faults_at_the_same_time_stay_apart(rig: &Rig) {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..5 {
                    one_thread_of_one_block_traps(rig);
                }
            });
            scope.spawn(|| {
                for _ in 0..20 {
                    check_alive(rig);
                }
            });
        }
    });
}
