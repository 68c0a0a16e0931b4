//! How launches share the workers, and how they end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, Error, LaunchControl, Mode, StopReason, TrapKind, Value};

use crate::bench::{Bench, HEADER, Shape, block, entry};

const ENDLESS: &str =
    "L: ld.volatile.u32 %r1, [%base]; setp.eq.u32 %p1, %r1, 12345; @!%p1 bra L; ret;";

fn pointer(offset: u64) -> Value<'static> {
    Value::Pointer { offset, len: 4 }
}

#[test]
fn endless_kernels_on_every_worker_leave_room_for_others() {
    let bench = Bench::new(2);
    let endless = bench.load(&entry(ENDLESS)).unwrap();
    let running: Vec<_> = (0..3)
        .map(|_| {
            bench.start(
                &endless,
                block(32),
                &[pointer(64)],
                LaunchControl::default(),
            )
        })
        .collect();
    for round in 1..20 {
        let text = entry(&format!("st.u32 [%o], {round}; ret;"));
        assert_eq!(bench.words(&text, block(8), 8).unwrap(), [round; 8]);
    }
    bench.region.window().store(64, 12345_u32).unwrap();
    for completion in running {
        completion.wait().unwrap();
    }
}

#[test]
fn cooperative_blocks_wait_for_each_other_on_fewer_workers() {
    let text = entry(
        "mov.u32 %r5, %nctaid.x; bar.sync 0; setp.ne.u32 %p1, %t, 0; @%p1 bra E;
atom.add.u32 %r1, [%base], 1;
L: ld.acquire.gpu.u32 %r2, [%base]; setp.lt.u32 %p2, %r2, %r5; @%p2 bra L;
mov.u32 %r3, %ctaid.x; mad.wide.u32 %x1, %r3, 4, %base; st.u32 [%x1+4], %r2;
E: bar.sync 0; ret;",
    );
    let found = Bench::new(2)
        .words(&text, Shape(40, 64, Mode::Cooperative), 41)
        .unwrap();
    assert_eq!(found, [40; 41]);
}

#[test]
fn a_launch_is_stopped_in_time_among_many_others() {
    let bench = Bench::new(1);
    let endless = bench.load(&entry(ENDLESS)).unwrap();
    let start = || {
        let values = [pointer(64)];
        bench.start(
            &endless,
            Shape(100, 32, Mode::Plain),
            &values,
            LaunchControl::default(),
        )
    };
    let others: Vec<_> = (0..64).map(|_| start()).collect();
    // In turn it would come after 64 slices of 2 ms.
    let fastest = (0..5).map(|_| {
        let stopped = start();
        let begun = Instant::now();
        drop(stopped);
        begun.elapsed()
    });
    assert!(fastest.min().unwrap() < device::DRAIN);
    bench.region.window().store(64, 12345_u32).unwrap();
    for completion in others {
        completion.wait().unwrap();
    }
}

#[test]
fn a_call_costs_what_it_copies() {
    let text = entry(
        ".param .b8 x[16000]; .param .b8 y[16000]; call (y), large, (x); call (y), large, (x); ret;",
    );
    let function = ".func (.param .b8 to[16000]) large(.param .b8 from[16000]) { ret; }";
    let text = text.replacen(HEADER, &format!("{HEADER}{function}\n"), 1);
    let bench = Bench::new(1);
    let program = bench.load(&text).unwrap();
    let run = |instructions| {
        let control = LaunchControl {
            time: None,
            budget: Some(instructions),
            ..LaunchControl::default()
        };
        bench
            .start(&program, block(32), &[pointer(0)], control)
            .wait()
    };
    assert_eq!(run(1000), Err(Error::Stopped(StopReason::Budget)));
    assert_eq!(run(10_000), Ok(()));
}

#[test]
fn calls_of_blocks_that_are_resident_together_are_bounded_even_without_registers() {
    let mut functions = String::from(".func f0() { ret; }\n");
    for number in 1..=100 {
        let called = number - 1;
        functions += &format!(".func f{number}() {{ call f{called}; ret; }}\n");
    }
    let text = entry("call f100; ret;").replacen(HEADER, &format!("{HEADER}{functions}"), 1);
    let bench = Bench::new(2);
    let program = bench.load(&text).unwrap();
    let run = |blocks| {
        let shape = Shape(blocks, 1024, Mode::Cooperative);
        let control = LaunchControl::default();
        bench.start(&program, shape, &[pointer(0)], control).wait()
    };
    assert_eq!(run(4), Ok(()));
    match run(500) {
        Err(Error::Trap(trap)) => assert_eq!(trap.kind, TrapKind::CallDepth),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_number_of_cooperative_blocks_is_bounded() {
    let bench = Bench::new(1);
    let program = bench.load(&entry("ret;")).unwrap();
    let limit = program.attributes().max_cooperative_blocks;
    assert!((100..1_000_000).contains(&limit), "{limit}");
    let huge = entry(".local .align 4 .b8 l[65536]; st.local.u32 [l], %t; ret;");
    let program = bench.load(&huge).unwrap();
    let blocks = u32::try_from(program.attributes().max_cooperative_blocks).unwrap();
    let shape = Shape(blocks, 512, Mode::Cooperative);
    let outcome = bench
        .start(&program, shape, &[pointer(0)], LaunchControl::default())
        .wait();
    assert!(
        matches!(outcome, Err(Error::GridCooperative { .. })),
        "{outcome:?}"
    );
}

#[test]
fn sleeping_kernels_stop_at_their_deadline() {
    let bench = Bench::new(1);
    let program = bench
        .load(&entry("L: nanosleep.u32 1000000; bra L;"))
        .unwrap();
    let begun = Instant::now();
    let control = LaunchControl {
        time: Some(Duration::from_millis(20)),
        budget: None,
        ..LaunchControl::default()
    };
    let outcome = bench
        .start(&program, block(64), &[pointer(0)], control)
        .wait();
    assert_eq!(outcome, Err(Error::Stopped(StopReason::Deadline)));
    assert!(
        begun.elapsed() < Duration::from_millis(500),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_budget_that_suffices_suffices_on_many_workers() {
    let bench = Bench::new(8);
    let program = bench.load(&entry("ret;")).unwrap();
    let control = LaunchControl {
        time: None,
        budget: Some(1000),
        ..LaunchControl::default()
    };
    for _ in 0..300 {
        let shape = Shape(64, 32, Mode::Plain);
        let outcome = bench.start(&program, shape, &[pointer(0)], control).wait();
        assert_eq!(outcome, Ok(()));
    }
}

#[test]
fn a_budget_is_that_of_the_whole_grid() {
    let bench = Bench::new(2);
    let program = bench
        .load(&entry(
            "mov.u32 %r1, 0;\nL: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100; @%p1 bra L; ret;",
        ))
        .unwrap();
    let run = |budget| {
        let control = LaunchControl {
            time: None,
            budget: Some(budget),
            ..LaunchControl::default()
        };
        bench
            .start(&program, Shape(50, 32, Mode::Plain), &[pointer(0)], control)
            .wait()
    };
    assert_eq!(run(50 * 400), Ok(()));
    assert_eq!(run(50 * 250), Err(Error::Stopped(StopReason::Budget)));
}

#[test]
fn a_program_outlives_its_device() {
    let bench = Bench::new(1);
    let program = bench.load(&entry("st.u32 [%o], 3; ret;")).unwrap();
    let Bench { device, region } = bench;
    let limits = device.info().limits;
    drop(device);
    let attributes = program.attributes();
    let geometry =
        device::Geometry::new([1; 3], [4, 1, 1], 0, Mode::Plain, &limits, Some(attributes))
            .unwrap();
    let values = [pointer(0)];
    let arguments =
        device::Arguments::new(&values, attributes, device::IntegerPointers::Accept).unwrap();
    let mut launch = Arc::default();
    device::Launch::prepare(
        &mut launch,
        geometry,
        arguments,
        Some(&region),
        LaunchControl::default(),
    )
    .unwrap();
    // The worker may be the last to hold the program and with it the pool.
    let completion = launch.start(program);
    completion.wait().unwrap();
    assert_eq!(region.window().load::<u32>(12), Ok(3));
}

#[test]
fn deferred_work_runs_on_another_thread() {
    let bench = Bench::new(1);
    let (sender, receiver) = std::sync::mpsc::channel();
    let own = std::thread::current().id();
    let work = Box::new(move || {
        sender.send(std::thread::current().id()).unwrap();
    });
    bench.device.defer(work).unwrap();
    assert_ne!(receiver.recv().unwrap(), own);
}

#[test]
fn warps_of_a_block_wait_for_each_other_without_a_barrier() {
    let text = format!(
        "{HEADER}.visible .entry k(.param .u64 out) {{
.shared .align 4 .u32 flag; .reg .b64 %o; .reg .b32 %t, %v; .reg .pred %p;
ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; setp.ge.u32 %p, %t, 32; @%p bra S;
L: ld.volatile.shared.u32 %v, [flag]; setp.eq.u32 %p, %v, 0; @%p bra L; st.u32 [%o], %v; ret;
S: st.volatile.shared.u32 [flag], 6; ret; }}"
    );
    assert_eq!(Bench::new(1).words(&text, block(64), 1).unwrap(), [6]);
}
