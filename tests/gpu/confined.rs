//! Confined kernels on CUDA devices: where their accesses land, how they end and what they report. The texts are written by hand and
//! verified; the fake driver plays those entries that it knows by their printed names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::cuda::{GuestMemory, Options, device_with};
use device::{
    Arguments, Completion, Device, Error, Geometry, Health, IntegerPointers, Launch, LaunchControl,
    Mode, Region, RegionSpec, StopReason, TrapKind, Value,
};
use ptx::WindowForm;

use crate::fake::calls_of;
use crate::rig::cuda;
use crate::runner::{Case, either, scripted};

#[path = "../../crates/device/tests/confined/text.rs"]
#[allow(dead_code, reason = "each test binary uses its part of the texts")]
mod text;

use text::{Text, endless, reporting, store};

pub(crate) const CASES: &[Case] = &[
    either(
        "confined_stores_land_in_the_window",
        confined_stores_land_in_the_window,
    ),
    either(
        "a_confined_kernel_ends_at_its_deadline",
        a_confined_kernel_ends_at_its_deadline,
    ),
    either(
        "a_confined_kernel_that_nobody_waits_for_ends",
        a_confined_kernel_that_nobody_waits_for_ends,
    ),
    either(
        "what_a_confined_kernel_reports_is_told_in_its_guests_terms",
        what_a_confined_kernel_reports_is_told_in_its_guests_terms,
    ),
    either(
        "confined_kernels_need_a_window_of_their_form",
        confined_kernels_need_a_window_of_their_form,
    ),
    scripted(
        "a_confined_kernel_that_hears_nothing_is_given_up",
        "deaf=1",
        a_confined_kernel_that_hears_nothing_is_given_up,
    ),
    scripted(
        "a_confined_kernel_ends_though_the_clock_was_not_read",
        "cuLaunchKernel@1=1",
        a_confined_kernel_ends_at_its_deadline,
    ),
    scripted(
        "a_confined_kernel_ends_in_a_mark",
        "marks=1",
        a_confined_kernel_ends_at_its_deadline,
    ),
    scripted(
        "no_memory_for_control_blocks",
        "cuMemHostAlloc=2",
        no_memory_for_control_blocks,
    ),
    scripted(
        "guests_share_what_is_the_same_once_confined",
        "",
        guests_share_what_is_the_same_once_confined,
    ),
    scripted(
        "another_layout_of_the_hidden_parameters",
        "params=8",
        another_layout_of_the_hidden_parameters,
    ),
];

fn region(device: &Arc<dyn Device>, form: WindowForm) -> Arc<Region> {
    let spec = RegionSpec {
        window_bytes: match form {
            WindowForm::Masked => 1 << 24,
            WindowForm::Whole => 1 << 32,
        },
        initial_bytes: 1 << 20,
        maximum_bytes: 1 << 20,
        reserved_bytes: 0,
        guard_bytes: 0,
    };
    device.new_region(spec).unwrap()
}

fn start(
    device: &Arc<dyn Device>,
    region: &Arc<Region>,
    text: &Text<'_>,
    values: &[Value<'_>],
    time: Option<Duration>,
) -> Result<Completion, Error> {
    let [name, _] = text.names;
    let program = device.load(&text.admitted())?.entry(name)?;
    let (limits, attributes) = (&device.info().limits, program.attributes());
    let (grid, block) = ([3, 2, 1], [32, 2, 1]);
    let geometry = Geometry::new(grid, block, 0, Mode::Plain, limits, Some(attributes))?;
    let arguments = Arguments::new(values, attributes, IntegerPointers::Accept)?;
    let control = LaunchControl {
        time,
        ..LaunchControl::default()
    };
    let mut launch = Arc::default();
    Launch::prepare(&mut launch, geometry, arguments, Some(region), control)?;
    Ok(launch.start(program))
}

fn word(region: &Region, at: u64) -> u32 {
    region.window().load(at).unwrap()
}

const FORMS: [WindowForm; 2] = [WindowForm::Masked, WindowForm::Whole];

fn confined_stores_land_in_the_window() {
    let device = cuda();
    for form in FORMS {
        let region = region(&device, form);
        assert_eq!(region.form(), Some(form));
        let pointer = Value::Pointer { offset: 64, len: 4 };
        let forged = Value::U64(0xdead_beef_0000_0047);
        // Past what the guest has, but its own.
        let beyond = Value::U64(0x0080_0000);
        for (value, number) in [(pointer, 7), (forged, 8), (beyond, 9)] {
            let values = [value, Value::U32(number)];
            let started = start(&device, &region, &store(form), &values, None);
            started.unwrap().wait().unwrap();
        }
        assert_eq!((word(&region, 64), word(&region, 68)), (7, 8), "{form:?}");
    }
    assert_eq!(device.health(), Health::Good);
}

fn a_confined_kernel_ends_at_its_deadline() {
    let device = cuda();
    let region = region(&device, WindowForm::Masked);
    let time = Duration::from_millis(80);
    for _ in 0..3 {
        let begin = Instant::now();
        let completion = start(&device, &region, &endless(), &[], Some(time)).unwrap();
        assert_eq!(completion.wait(), Err(Error::Stopped(StopReason::Deadline)));
        let took = begin.elapsed();
        assert!(took >= time && took < Duration::from_secs(5), "{took:?}");
        // It ran on to its end.
        assert_eq!(word(&region, 64), 64);
        region.window().store(64, 0_u32).unwrap();
    }
    // The block that it was stopped by is as new to the next one.
    let values = [Value::U64(64), Value::U32(5)];
    let started = start(
        &device,
        &region,
        &store(WindowForm::Masked),
        &values,
        Some(time),
    );
    started.unwrap().wait().unwrap();
    assert_eq!(word(&region, 64), 5);
    assert_eq!(device.health(), Health::Good);
}

fn a_confined_kernel_that_nobody_waits_for_ends() {
    let device = cuda();
    let region = region(&device, WindowForm::Masked);
    let completion = start(&device, &region, &endless(), &[], None).unwrap();
    let launch = completion.into_launch().unwrap();
    assert!(launch.signal().is_done());
    assert!(!launch.signal().is_stuck());
}

fn what_a_confined_kernel_reports_is_told_in_its_guests_terms() {
    let device = cuda();
    let region = region(&device, WindowForm::Masked);
    let run = |site, address| {
        let values = [Value::U64(address)];
        let started = start(&device, &region, &reporting(site), &values, None);
        match started.unwrap().wait() {
            Err(Error::Trap(trap)) => trap,
            other => panic!("{other:?}"),
        }
    };
    let trap = run(0, 0x0200_0000);
    assert_eq!((trap.kind, trap.line), (TrapKind::OutOfBounds, 31));
    assert_eq!((trap.block, trap.thread), ([1, 1, 0], [31, 1, 0]));
    let access = trap.access.unwrap();
    assert_eq!((access.address, access.bytes), (0x0200_0000, 8));
    let trap = run(1, 0);
    assert_eq!((trap.kind, trap.line), (TrapKind::TrapInstruction, 32));
    assert_eq!(device.health(), Health::Good);
}

fn confined_kernels_need_a_window_of_their_form() {
    let device = cuda();
    let small = region(&device, WindowForm::Masked);
    let exact: Arc<dyn Device> = {
        let options = Options {
            memory: GuestMemory::Exact,
            ..Options::default()
        };
        device_with(0, &options).unwrap()
    };
    let unguarded = region(&exact, WindowForm::Whole);
    assert_eq!(unguarded.form(), None);
    let values = [Value::U64(0), Value::U32(1)];
    for (device, region, says) in [
        (&device, &small, "a window of 4 GiB"),
        (&exact, &unguarded, "a whole window of this device"),
    ] {
        let refused = start(device, region, &store(WindowForm::Whole), &values, None).unwrap_err();
        assert!(matches!(refused, Error::NotAvailable { .. }), "{refused}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

fn a_confined_kernel_that_hears_nothing_is_given_up() {
    let device = cuda();
    let region = region(&device, WindowForm::Masked);
    let time = Some(Duration::from_millis(20));
    let completion = start(&device, &region, &endless(), &[], time).unwrap();
    let begin = Instant::now();
    assert_eq!(completion.wait(), Err(Error::Stopped(StopReason::Deadline)));
    assert!(begin.elapsed() < Duration::from_secs(5));
    let other = start(&device, &region, &endless(), &[], None).unwrap();
    let launch = other.into_launch().unwrap();
    assert!(launch.signal().is_stuck());
    // Both end once they may, and only then is what they use let go of.
    region.window().store(128, 1_u32).unwrap();
    let begin = Instant::now();
    while !launch.signal().is_done() {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
    assert!(!launch.signal().is_stuck());
}

fn no_memory_for_control_blocks() {
    let device = cuda();
    let region = region(&device, WindowForm::Masked);
    let refused = start(&device, &region, &endless(), &[], None).unwrap();
    let refused = refused.wait().unwrap_err();
    assert!(matches!(refused, Error::NotAvailable { .. }), "{refused}");
    assert_eq!(device.health(), Health::Good);
}

fn guests_share_what_is_the_same_once_confined() {
    let device = cuda();
    let region = region(&device, WindowForm::Masked);
    let names = ["mine", "yours"].map(|name| Text {
        names: [name, "g91"],
        ..store(WindowForm::Masked)
    });
    for (number, text) in (1..).zip(&names) {
        let values = [Value::U64(64), Value::U32(number)];
        let started = start(&device, &region, text, &values, None);
        started.unwrap().wait().unwrap();
        assert_eq!(word(&region, 64), number);
    }
    // One for the clock.
    assert_eq!(calls_of("cuModuleLoadDataEx"), 1 + 1);
    let module = device.load(&names[0].admitted()).unwrap();
    for name in ["yours", "g91"] {
        let refused = module.entry(name).unwrap_err();
        assert!(matches!(refused, Error::EntryMissing { .. }), "{refused}");
    }
}

fn another_layout_of_the_hidden_parameters() {
    let device = cuda();
    let refused = device.load(&endless().admitted()).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("parameter 0 is 8 bytes at 0, to the driver 16 bytes at 0"),
        "{text}"
    );
}
