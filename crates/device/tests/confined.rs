//! Confined texts on the CPU device: where their accesses land, how they end and what they report. The texts are written by hand.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it must be"
)]

extern crate wasi_cuda_device as device;

#[path = "confined/text.rs"]
mod text;

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::cpu::{Config, CpuDevice, Inset};
use device::{
    Access, AccessSpace, Arguments, Carved, Completion, Device, Error, Geometry, IntegerPointers,
    Launch, LaunchControl, Mode, Module, Region, RegionSpec, StopReason, Trap, TrapKind, Value,
};
use ptx::{Admitted, ConfineOptions, Globals, Level, WindowForm};

use text::{ENTRY_LINE, Text, address, endless, reporting, store};

const PAGE: u64 = 64 << 10;

/// Bytes of a window.
fn bytes(form: WindowForm) -> u64 {
    match form {
        WindowForm::Masked => 1 << 20,
        WindowForm::Whole => 1 << 32,
    }
}

/// A device, and memory of one guest on it.
struct Bench {
    device: Arc<CpuDevice>,
    region: Arc<Region>,
}

impl Bench {
    fn new(window_bytes: u64, initial_bytes: u64, inset: Option<Inset>) -> Self {
        let config = Config {
            threads: 2,
            inset,
            ..Config::default()
        };
        let device = CpuDevice::new(config).unwrap();
        let spec = RegionSpec {
            window_bytes,
            initial_bytes,
            maximum_bytes: window_bytes,
            reserved_bytes: 0,
            guard_bytes: 0,
        };
        let region = device.new_region(spec).unwrap();
        Self { device, region }
    }

    /// A window of a form, all of which is memory.
    fn of(form: WindowForm) -> Self {
        Self::new(bytes(form), bytes(form), None)
    }

    fn start(
        &self,
        text: &Text<'_>,
        values: &[Value<'_>],
        control: LaunchControl,
    ) -> Result<Completion, Error> {
        let module = self.device.load(&text.admitted())?;
        let [name, _] = text.names;
        self.launch(&module, name, [[3, 2, 1], [32, 2, 1]], values, control)
    }

    fn launch(
        &self,
        module: &Arc<dyn Module>,
        name: &str,
        [grid, block]: [[u32; 3]; 2],
        values: &[Value<'_>],
        control: LaunchControl,
    ) -> Result<Completion, Error> {
        let program = module.entry(name)?;
        let (limits, attributes) = (&self.device.info().limits, program.attributes());
        let geometry = Geometry::new(grid, block, 0, Mode::Plain, limits, Some(attributes))?;
        let arguments = Arguments::new(values, attributes, IntegerPointers::Accept)?;
        let mut launch = Arc::default();
        let region = Some(&self.region);
        Launch::prepare(&mut launch, geometry, arguments, region, control)?;
        Ok(launch.start(program))
    }

    fn run(&self, text: &Text<'_>, values: &[Value<'_>]) -> Result<(), Error> {
        let control = LaunchControl::default();
        self.start(text, values, control)?.wait()
    }

    fn word(&self, at: u64) -> u32 {
        self.region.window().load(at).unwrap()
    }
}

const FORMS: [WindowForm; 2] = [WindowForm::Masked, WindowForm::Whole];

#[test]
fn pointers_are_offsets_and_their_high_half_does_not_count() {
    for form in FORMS {
        let bench = Bench::of(form);
        let pointer = Value::Pointer { offset: 64, len: 4 };
        let forged = Value::U64(0xdead_beef_0000_0047);
        for (value, number) in [(pointer, 7), (forged, 8)] {
            bench
                .run(&store(form), &[value, Value::U32(number)])
                .unwrap();
        }
        assert_eq!((bench.word(64), bench.word(68)), (7, 8), "{form:?}");
    }
}

#[test]
fn a_wild_store_leaves_what_is_around_its_window() {
    let inset = Inset {
        at: 1 << 20,
        bytes: 1 << 20,
    };
    let bench = Bench::new(1 << 22, 1 << 22, Some(inset));
    for wild in [
        0,
        inset.bytes - 4,
        inset.bytes,
        1 << 21,
        u64::from(u32::MAX),
        u64::MAX,
        0x7fff_ffff_8000_0000,
    ] {
        let values = [Value::U64(wild), Value::U32(0x1234_5678)];
        bench.run(&store(WindowForm::Masked), &values).unwrap();
        let landed = inset.at + (wild & (inset.bytes - 1) & !3);
        assert_eq!(bench.word(landed), 0x1234_5678, "{wild:#x}");
        bench.region.window().store(landed, 0_u32).unwrap();
    }
    let mut all = vec![0_u64; 1 << 19];
    bench.region.window().load_run(0, &mut all).unwrap();
    assert!(all.iter().all(|&word| word == 0));
}

#[test]
fn programs_run_on_windows_of_their_form_only() {
    let small = Bench::of(WindowForm::Masked);
    let values = [Value::U64(0), Value::U32(1)];
    let refused = small.run(&store(WindowForm::Whole), &values).unwrap_err();
    assert!(matches!(refused, Error::NotAvailable { .. }), "{refused}");
    let whole = Bench::of(WindowForm::Whole);
    whole.run(&store(WindowForm::Masked), &values).unwrap();
    assert_eq!(whole.word(0), 1);
}

#[test]
fn variables_of_a_module_lie_where_the_launch_says() {
    let bench = Bench::new(1 << 20, PAGE, None);
    let mut image = vec![0; 8];
    image[4..].copy_from_slice(&41_u32.to_le_bytes());
    let at = address(WindowForm::Masked, 1, "%g2");
    let text = Text {
        registers: ".reg .b32 %g2, %g3;",
        body: format!(
            "add.u32 %g2, %wglob, 4; {at} ld.global.u32 %g3, [%wa1]; add.u32 %g3, %g3, 1; st.global.u32 [%wa1+-4], %g3; ret;"
        ),
        globals: Globals {
            image,
            ..Globals::default()
        },
        ..Text::default()
    };
    let module = bench.device.load(&text.admitted()).unwrap();
    let globals = module.globals().unwrap();
    let carved = Carved::for_globals(&bench.region, globals)
        .unwrap()
        .unwrap();
    let control = LaunchControl {
        globals: u32::try_from(carved.start()).unwrap(),
        ..LaunchControl::default()
    };
    bench.start(&text, &[], control).unwrap().wait().unwrap();
    let mut found = [0; 8];
    carved.read(0, &mut found).unwrap();
    assert_eq!(found, [42, 0, 0, 0, 41, 0, 0, 0]);
}

#[test]
fn a_kernel_sees_its_deadline_and_runs_on_to_its_end() {
    let bench = Bench::of(WindowForm::Masked);
    let time = Duration::from_millis(60);
    let control = LaunchControl {
        time: Some(time),
        ..LaunchControl::default()
    };
    let begin = Instant::now();
    let ended = bench.start(&endless(), &[], control).unwrap().wait();
    assert_eq!(ended, Err(Error::Stopped(StopReason::Deadline)));
    assert!(begin.elapsed() >= time);
    assert_eq!(bench.word(64), 64);
}

#[test]
fn a_kernel_that_nobody_waits_for_ends() {
    let bench = Bench::of(WindowForm::Masked);
    let started = bench.start(&endless(), &[], LaunchControl::default());
    let launch = started.unwrap().into_launch().unwrap();
    // Soon; how soon is for machines that are not busy.
    let begin = Instant::now();
    while !launch.signal().is_done() {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
}

fn trap(outcome: Result<(), Error>) -> Trap {
    match outcome {
        Err(Error::Trap(trap)) => trap,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_report_becomes_a_trap_in_the_guests_terms() {
    let bench = Bench::of(WindowForm::Masked);
    let mut want = Trap {
        kind: TrapKind::OutOfBounds,
        line: 31,
        block: [1, 1, 0],
        thread: [31, 1, 0],
        access: Some(Access {
            address: 0x20_0000,
            bytes: 8,
            space: AccessSpace::Global,
        }),
    };
    let run = |site, address| trap(bench.run(&reporting(site), &[Value::U64(address)]));
    assert_eq!(run(0, 0x20_0000), want);
    assert_eq!(run(0, 0x20_0004).kind, TrapKind::Misaligned);
    want = Trap {
        kind: TrapKind::TrapInstruction,
        line: 32,
        access: None,
        ..want
    };
    assert_eq!(run(1, 0), want);
    // A site that is not there.
    assert_eq!(
        run(7, 0),
        Trap {
            line: ENTRY_LINE,
            ..want
        }
    );
}

#[test]
fn what_the_interpreter_sees_is_told_in_the_guests_lines_and_offsets() {
    let bench = Bench::new(1 << 32, PAGE, None);
    let mut text = store(WindowForm::Whole);
    text.lines = &[("st.global.u32 [%wa1]", 77)];
    let found = trap(bench.run(&text, &[Value::U64(0x20_0002), Value::U32(0)]));
    assert_eq!((found.kind, found.line), (TrapKind::OutOfBounds, 77));
    assert_eq!(found.access.unwrap().address, 0x20_0000);
}

#[test]
fn entries_have_the_names_and_parameters_that_their_guest_gave_them() {
    let bench = Bench::of(WindowForm::Masked);
    let module = bench
        .device
        .load(&store(WindowForm::Masked).admitted())
        .unwrap();
    let program = module.entry("store").unwrap();
    let signature = &program.attributes().signature;
    assert_eq!((signature.parameters.len(), signature.size), (2, 12));
    let refused = module.entry("g91").unwrap_err();
    assert!(matches!(refused, Error::EntryMissing { .. }), "{refused}");
}

/// A guest's text whose entry adds what a variable holds to each word, in shared memory, and traps where it is asked to.
const GUEST: &str = "
.version 8.0
.target sm_80
.address_size 64
.global .u32 many = 3;
.visible .entry add(.param .u64 words, .param .u32 bad)
{
.reg .b64 %a, %m; .reg .b32 %t, %v, %w, %s, %b; .reg .pred %p;
.shared .align 4 .b8 room[256];
ld.param.u64 %a, [words];
ld.param.u32 %b, [bad];
mov.u32 %t, %tid.x;
mul.wide.u32 %m, %t, 4;
add.u64 %a, %a, %m;
ld.global.u32 %v, [%a];
mov.u64 %m, many;
ld.global.u32 %w, [%m];
add.u32 %v, %v, %w;
shl.b32 %s, %t, 2;
mov.u32 %w, room;
add.u32 %s, %s, %w;
st.shared.u32 [%s], %v;
bar.sync 0;
ld.shared.u32 %v, [%s];
st.global.u32 [%a], %v;
setp.ne.u32 %p, %t, %b;
@%p ret;
trap;
}
";

#[test]
fn what_is_rewritten_is_verified_and_runs() {
    for (form, level) in [
        (WindowForm::Masked, Level::Confined),
        (WindowForm::Masked, Level::Trapping),
        (WindowForm::Whole, Level::Confined),
        (WindowForm::Whole, Level::Trapping),
    ] {
        let options = ConfineOptions {
            level,
            window: form,
            clear_shared: true,
        };
        let guest = ptx::read(GUEST.as_bytes()).unwrap();
        let confined = ptx::confine(&guest, options).unwrap();
        let verified = ptx::verify(confined).unwrap();
        let bench = Bench::new(bytes(form), PAGE, None);
        let module = bench.device.load(&Admitted::confined(verified)).unwrap();
        let globals = module.globals().unwrap();
        let carved = Carved::for_globals(&bench.region, globals)
            .unwrap()
            .unwrap();
        let control = LaunchControl {
            globals: u32::try_from(carved.start()).unwrap(),
            ..LaunchControl::default()
        };
        let pointer = Value::Pointer {
            offset: 256,
            len: 128,
        };
        let window = bench.region.window();
        for (bad, ends_well) in [(99, true), (7, false)] {
            window.store_run(256, &[5_u32; 32]).unwrap();
            let values = [pointer, Value::U32(bad)];
            let shape = [[1, 1, 1], [32, 1, 1]];
            let started = bench.launch(&module, "add", shape, &values, control);
            let ended = started.unwrap().wait();
            let mut words = [0_u32; 32];
            window.load_run(256, &mut words).unwrap();
            assert_eq!(words, [8; 32], "{form:?} {level:?}");
            match ended {
                Ok(()) if ends_well => {}
                Err(Error::Trap(trap)) if !ends_well => {
                    assert_eq!((trap.kind, trap.line), (TrapKind::TrapInstruction, 28));
                    assert_eq!(trap.thread, [7, 0, 0]);
                }
                other => panic!("{form:?} {level:?}: {other:?}"),
            }
        }
    }
}

/// A guest's text that loads a word from one address, and one in a loop, where checks are joined.
const REACHING: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry once(.param .u64 at)
{
.reg .b64 %a; .reg .b32 %v;
ld.param.u64 %a, [at];
ld.global.u32 %v, [%a];
ret;
}
.visible .entry again(.param .u64 at)
{
.reg .b64 %a; .reg .b32 %v, %i; .reg .pred %p;
ld.param.u64 %a, [at];
mov.u32 %i, 0;
LOOP:
ld.global.v2.u32 {%v, _}, [%a+8];
add.u64 %a, %a, 16;
add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, 4;
@%p bra LOOP;
ret;
}
.visible .entry guarded(.param .u64 at)
{
.reg .b64 %a, %b; .reg .b32 %v, %t, %i; .reg .pred %p, %q;
ld.param.u64 %a, [at];
mov.u32 %t, %tid.x;
setp.ne.u32 %p, %t, 0;
mul.wide.u32 %b, %t, 4;
add.u64 %b, %b, %a;
@%p ld.global.u32 %v, [%b];
mov.u32 %i, 0;
LOOP:
@%p ld.global.u32 %v, [%b+8];
@%p ld.global.u32 %v, [%b+16];
add.u32 %i, %i, 1;
setp.lt.u32 %q, %i, 4;
@%q bra LOOP;
@!%p bra END;
ld.global.u32 %v, [%b+64];
END:
ret;
}
.visible .entry generic(.param .u64 at)
{
.reg .b64 %a, %s; .reg .b32 %v;
.shared .align 8 .b8 room[64];
mov.u64 %s, room;
cvta.shared.u64 %s, %s;
st.u32 [%s+4], 7;
ld.param.u64 %a, [at];
ld.u32 %v, [%a];
ret;
}
";

/// What a trapping kernel says of an access: its kind, and the address where one access has a line to itself.
fn stray(bench: &Bench, entry: &str, at: u64) -> Option<(TrapKind, Option<u64>)> {
    let options = ConfineOptions {
        level: Level::Trapping,
        window: bench.region.form().unwrap(),
        clear_shared: true,
    };
    let guest = ptx::read(REACHING.as_bytes()).unwrap();
    let verified = ptx::verify(ptx::confine(&guest, options).unwrap()).unwrap();
    let module = bench.device.load(&Admitted::confined(verified)).unwrap();
    let (shape, control) = ([[1, 1, 1], [1, 1, 1]], LaunchControl::default());
    let started = bench.launch(&module, entry, shape, &[Value::U64(at)], control);
    match started.unwrap().wait() {
        Ok(()) => None,
        Err(Error::Trap(trap)) => Some((trap.kind, trap.access.map(|access| access.address))),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_the_guests_of_its_window_is_reported() {
    let outside = |address| Some((TrapKind::OutOfBounds, Some(address)));
    for form in FORMS {
        let bench = Bench::new(bytes(form), 2 * PAGE, None);
        let end = 2 * PAGE;
        let top = bytes(form) - 4;
        for (at, want) in [
            (0, None),
            (end - 4, None),
            (end, outside(end)),
            (top, outside(top)),
            (64 + 2, Some((TrapKind::Misaligned, Some(66)))),
            // The low word counts.
            (64 | 1 << 40, None),
        ] {
            assert_eq!(stray(&bench, "once", at), want, "{form:?} {at:#x}");
            // There the high word has a meaning.
            if at >> 32 == 0 {
                assert_eq!(stray(&bench, "generic", at), want, "{form:?} {at:#x}");
            }
        }
        // What is askew or outside is not reported where nothing reaches it.
        for at in [0, 2, end, end + 2] {
            assert_eq!(stray(&bench, "guarded", at), None, "{form:?} {at:#x}");
        }
        for (at, is_inside) in [(0, true), (end - 64, true), (end - 48, false), (4, false)] {
            let found = stray(&bench, "again", at);
            assert_eq!(found.is_none(), is_inside, "{form:?} {at:#x}: {found:?}");
        }
    }
}

#[test]
fn buffers_at_the_top_of_a_window_are_the_guests() {
    let bench = Bench::new(1 << 32, 2 * PAGE, None);
    let end = 2 * PAGE;
    let buffer = bench.region.carve(PAGE).unwrap();
    let start = buffer.start();
    for (at, is_inside) in [
        (start, true),
        (start + PAGE - 4, true),
        (start - 4, false),
        (0, true),
        (end - 4, true),
        (end, false),
    ] {
        let found = stray(&bench, "once", at);
        assert_eq!(found.is_none(), is_inside, "{at:#x}: {found:?}");
    }
    drop(buffer);
    assert!(stray(&bench, "once", start).is_some());
}
