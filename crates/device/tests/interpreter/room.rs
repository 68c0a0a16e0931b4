//! Memory for blocks: launches share what the device has for them, wait for each other, and are refused where it can never
//! be enough.

use std::sync::Arc;
use std::time::Duration;

use device::cpu::{Config, CpuDevice};
use device::{Error, LaunchControl, Mode, Program, StopReason, Value};

use crate::bench::{Bench, MEMORY, Shape, entry};

/// Room for one block of the kernels below, whose threads have 4 KiB each, but not for two.
const ROOM: u64 = 6 << 20;
const THREADS: u32 = 1024;

/// A device of two workers with that much room.
fn bench(block_bytes: u64) -> Bench {
    let mut bench = Bench::new(1);
    bench.device = CpuDevice::new(Config {
        threads: 2,
        block_bytes,
        ..Config::default()
    })
    .unwrap();
    bench.region = device::Device::new_region(
        &*bench.device,
        device::RegionSpec {
            window_bytes: MEMORY,
            initial_bytes: MEMORY,
            maximum_bytes: MEMORY,
            reserved_bytes: MEMORY,
            guard_bytes: 0,
        },
    )
    .unwrap();
    bench
}

/// A kernel whose threads have 4 KiB of local memory.
fn kernel(bench: &Bench, body: &str) -> Arc<dyn Program> {
    let local = ".local .align 4 .b8 l[4096]; st.local.u32 [l+4092], %t;";
    bench.load(&entry(&format!("{local} {body} ret;"))).unwrap()
}

const ADD: &str = "atom.global.add.u32 %r1, [%base], 1;";
const FOREVER: &str = "LOOP: bra LOOP;";

fn count(bench: &Bench) -> u32 {
    let mut words = [0];
    bench.region.window().load_run(0, &mut words).unwrap();
    words[0]
}

#[test]
fn launches_that_do_not_fit_together_run_one_after_the_other() {
    let bench = bench(ROOM);
    let program = kernel(&bench, ADD);
    let launches: Vec<_> = (0..6)
        .map(|_| {
            let shape = Shape(5, THREADS, Mode::Plain);
            bench.start(&program, shape, &[Value::U64(0)], LaunchControl::default())
        })
        .collect();
    for launch in launches {
        assert_eq!(launch.wait(), Ok(()));
    }
    assert_eq!(count(&bench), 6 * 5 * THREADS);
}

#[test]
fn a_cooperative_launch_waits_until_all_its_blocks_have_room() {
    let bench = bench(3 * ROOM);
    let program = kernel(&bench, ADD);
    let launches: Vec<_> = [Mode::Plain, Mode::Cooperative]
        .repeat(4)
        .into_iter()
        .map(|mode| {
            let shape = Shape(3, THREADS, mode);
            bench.start(&program, shape, &[Value::U64(0)], LaunchControl::default())
        })
        .collect();
    for launch in launches {
        assert_eq!(launch.wait(), Ok(()));
    }
    assert_eq!(count(&bench), 8 * 3 * THREADS);
}

#[test]
fn what_never_fits_is_refused_with_the_bytes() {
    let bench = bench(ROOM);
    let program = kernel(&bench, ADD);
    for (blocks, threads, mode, fits) in [
        (1, THREADS, Mode::Plain, true),
        (2, THREADS, Mode::Cooperative, false),
        (1, THREADS, Mode::Cooperative, true),
        (64, THREADS, Mode::Plain, true),
    ] {
        let shape = Shape(blocks, threads, mode);
        let launch = bench.start(&program, shape, &[Value::U64(0)], LaunchControl::default());
        match launch.wait() {
            Ok(()) if fits => {}
            Err(Error::OutOfMemory {
                requested,
                available,
                ..
            }) if !fits => assert!(requested > available && available == ROOM),
            other => panic!("{blocks} of {threads}: {other:?}"),
        }
    }
    let small = self::bench(ROOM / 2);
    let program = kernel(&small, ADD);
    let shape = Shape(1, THREADS, Mode::Plain);
    let refused = small.start(&program, shape, &[Value::U64(0)], LaunchControl::default());
    let text = refused.wait().unwrap_err().to_string();
    assert!(text.contains("a block of the kernel needs"), "{text}");
}

#[test]
fn a_launch_that_waits_for_room_ends_at_its_deadline() {
    let bench = bench(ROOM);
    let (forever, add) = (kernel(&bench, FOREVER), kernel(&bench, ADD));
    let shape = Shape(1, THREADS, Mode::Plain);
    let holder = bench.start(&forever, shape, &[Value::U64(0)], LaunchControl::default());
    std::thread::sleep(Duration::from_millis(20));
    let control = LaunchControl {
        time: Some(Duration::from_millis(50)),
        ..LaunchControl::default()
    };
    let waiting = bench.start(&add, shape, &[Value::U64(0)], control);
    assert_eq!(waiting.wait(), Err(Error::Stopped(StopReason::Deadline)));
    assert_eq!(count(&bench), 0);
    // What nobody waits for makes room.
    drop(holder);
    let launch = bench.start(&add, shape, &[Value::U64(0)], LaunchControl::default());
    assert_eq!(launch.wait(), Ok(()));
    assert_eq!(count(&bench), THREADS);
}

#[test]
fn recursion_is_charged_for_as_deep_as_it_may_go() {
    let bench = bench(32 << 20);
    let function =
        ".func f(.reg .u32 n) { .reg .pred %p; .reg .u32 %m; setp.eq.u32 %p, n, 0; @%p ret;
sub.u32 %m, n, 1; call f, (%m); ret; }\n";
    let text = entry("call f, (%t); st.u32 [%o], %t; ret;");
    let recursive = text.replacen(".visible", &format!("{function}.visible"), 1);
    let straight = recursive.replacen("call f, (%m);", "", 1);
    let control = LaunchControl::default;
    let shape = Shape(1, 64, Mode::Plain);
    let launch = bench.start(
        &bench.load(&straight).unwrap(),
        shape,
        &[Value::U64(0)],
        control(),
    );
    assert_eq!(launch.wait(), Ok(()));
    let launch = bench.start(
        &bench.load(&recursive).unwrap(),
        shape,
        &[Value::U64(0)],
        control(),
    );
    assert!(matches!(launch.wait(), Err(Error::OutOfMemory { .. })));
}
