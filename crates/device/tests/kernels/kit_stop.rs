//! Kernels that run too long: ended by deadline, by budget, by whoever waited, or by a flag.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Completion, DRAIN, Error, Launch, LaunchControl, StopReason, Value};

use crate::harness::{Buffer, Case, Memory, Rig, Shape, assert_same, every, isolating, kernels};

pub(crate) const CASES: &[Case] = &[
    isolating("kit::k_forever_until_its_deadline", until_its_deadline),
    isolating("kit::k_forever_past_its_deadline", past_its_deadline),
    isolating(
        "kit::k_forever_until_its_budget_is_used",
        until_its_budget_is_used,
    ),
    isolating("kit::k_forever_until_nobody_waits", until_nobody_waits),
    isolating(
        "kit::k_forever_until_its_flag_is_set",
        until_its_flag_is_set,
    ),
    every("kit::k_spin", k_spin),
    isolating("kit::a_budget_that_suffices", a_budget_that_suffices),
];

/// Longer than a machine is ever too busy for.
const PATIENCE: Duration = Duration::from_secs(30);

struct Running {
    memory: Memory,
    flag: Buffer<u32>,
    launch: Arc<Launch>,
    completion: Completion,
}

/// Starts `k_forever` on a flag that is not set, in every thread of several blocks.
fn forever(rig: &Rig, control: LaunchControl) -> Running {
    let program = rig.load(&kernels("kit"), "k_forever");
    let mut memory = rig.memory();
    let flag = memory.place(&[0_u32]);
    let shape = Shape::line(3, 48);
    let (launch, completion) = rig
        .start(&program, shape, &[flag.pointer()], Some(&memory), control)
        .expect("a launch in order");
    Running {
        memory,
        flag,
        launch,
        completion,
    }
}

/// That the device still works.
fn check_alive(rig: &Rig) {
    let program = rig.load(&kernels("kit"), "k_store");
    let mut memory = rig.memory();
    let output = memory.room::<u32>(1);
    let values = [output.pointer(), Value::U32(1)];
    rig.launch(&program, Shape::line(1, 1), &values, &memory);
    assert_same(&memory.read(output), &[1], "after a stopped kernel");
}

fn until_its_deadline(rig: &Rig) {
    let started = Instant::now();
    let allowed = Duration::from_millis(50);
    let control = LaunchControl {
        time: Some(allowed),
        budget: None,
        ..LaunchControl::default()
    };
    let running = forever(rig, control);
    let outcome = running.completion.wait();
    assert_eq!(outcome, Err(Error::Stopped(StopReason::Deadline)));
    let took = started.elapsed();
    assert!(allowed <= took && took < PATIENCE, "took {took:?}");
    running.memory.check_canaries();
    check_alive(rig);
}

fn past_its_deadline(rig: &Rig) {
    let control = LaunchControl {
        time: Some(Duration::ZERO),
        budget: None,
        ..LaunchControl::default()
    };
    let outcome = forever(rig, control).completion.wait();
    assert_eq!(outcome, Err(Error::Stopped(StopReason::Deadline)));
    check_alive(rig);
}

fn until_its_budget_is_used(rig: &Rig) {
    for budget in [0, 1, 1000, 1_000_000] {
        let control = LaunchControl {
            time: Some(PATIENCE),
            budget: Some(budget),
            ..LaunchControl::default()
        };
        let outcome = forever(rig, control).completion.wait();
        assert_eq!(outcome, Err(Error::Stopped(StopReason::Budget)), "{budget}");
    }
    check_alive(rig);
}

/// A busy machine may keep a worker from noticing in time, so one of several attempts must succeed; each
/// must end soon after.
fn until_nobody_waits(rig: &Rig) {
    let mut in_time = 0;
    for _ in 0..5 {
        let running = forever(rig, LaunchControl::default());
        std::thread::sleep(Duration::from_millis(5));
        assert!(!running.launch.signal().is_done());
        let dropped = Instant::now();
        drop(running.completion);
        let took = dropped.elapsed();
        assert!(took < DRAIN + PATIENCE, "dropping took {took:?}");
        let signal = running.launch.signal();
        in_time += u32::from(signal.is_done() && !signal.is_stuck());
        while !signal.is_done() {
            assert!(dropped.elapsed() < PATIENCE, "the kernel goes on");
            std::thread::yield_now();
        }
        assert!(!signal.is_stuck());
        running.memory.check_canaries();
    }
    assert!(in_time > 0, "no kernel ended within {DRAIN:?}");
    check_alive(rig);
}

fn until_its_flag_is_set(rig: &Rig) {
    let control = LaunchControl {
        time: Some(PATIENCE),
        budget: None,
        ..LaunchControl::default()
    };
    let running = forever(rig, control);
    std::thread::sleep(Duration::from_millis(5));
    assert!(!running.launch.signal().is_done());
    running.memory.fill(running.flag, &[1]);
    assert_eq!(running.completion.wait(), Ok(()));
}

fn k_spin(rig: &Rig) {
    let program = rig.load(&kernels("kit"), "k_spin");
    let memory = rig.memory();
    for wanted in [Duration::ZERO, Duration::from_millis(3)] {
        let nanoseconds = u64::try_from(wanted.as_nanos()).expect("a short time");
        let started = Instant::now();
        let values = [Value::U64(nanoseconds)];
        rig.launch(&program, Shape::line(2, 33), &values, &memory);
        let took = started.elapsed();
        assert!(
            wanted <= took && took < PATIENCE,
            "{wanted:?} took {took:?}"
        );
    }
}

fn a_budget_that_suffices(rig: &Rig) {
    let program = rig.load(&kernels("kit"), "k_copy");
    let words: Vec<u32> = (0..100).collect();
    let mut memory = rig.memory();
    let input = memory.place(&words);
    let output = memory.room::<u32>(words.len());
    let values = [input.pointer(), output.pointer(), Value::U32(100)];
    // Eight instructions a word and some around them, executed by one warp.
    let control = |budget| LaunchControl {
        time: None,
        budget: Some(budget),
        ..LaunchControl::default()
    };
    let run = |budget| {
        let shape = Shape::line(1, 1);
        rig.start(&program, shape, &values, Some(&memory), control(budget))
            .expect("a launch in order")
            .1
            .wait()
    };
    assert_eq!(run(300), Err(Error::Stopped(StopReason::Budget)));
    assert_eq!(run(10_000), Ok(()));
    assert_same(&memory.read(output), &words, "within its budget");
}
