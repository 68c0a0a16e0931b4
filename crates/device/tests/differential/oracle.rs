//! What must hold for any kernel and any arguments, as a function that panics where it does not: the oracle of the tests here and of the
//! fuzz target `confined`.
//!
//! - The verifier accepts whatever the rewriter prints.
//! - A confined kernel never makes an access that the interpreter, which looks at each of them, has to refuse; it never waits for ever.
//! - Where the original ends well, so does the confined kernel, and every byte of memory is the same, unless that depends on which
//!   thread comes first or on where in shared or local memory a variable lies.
//! - Where the original stops at a `trap`, so does the confined one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use device::cpu::{Config, CpuDevice, Inset};
use device::{
    Access, AccessSpace, Arguments, Device, Error, Geometry, IntegerPointers, Launch,
    LaunchControl, MAX_WINDOW_BYTES, Mode, Module, Region, RegionSpec, StopReason, TrapKind, Value,
};
use ptx::{Admitted, ConfineOptions, Globals, Level, Validated, WindowForm};

use crate::grammar::{Choices, DYNAMIC, Manner, kernel};

/// Bytes of linear memory.
pub(crate) const MEMORY: u64 = 256 << 10;
/// Bytes of the window, where it is not a whole one.
const MASKED_WINDOW: u64 = 1 << 20;
/// A window in the midst of other memory.
const INSET: Inset = Inset {
    at: 128 << 10,
    bytes: MEMORY,
};
/// Bytes of that memory.
const AROUND: u64 = 512 << 10;
/// What is on either side of a window and belongs to the same guest.
const GUARD: u64 = 4 << 10;
const CANARY: u8 = 0xC5;
/// Where variables of confined modules lie: behind what calls are given.
const GLOBALS_AT: u64 = MEMORY - (16 << 10);
/// How long a kernel may run.
const TIME: Duration = Duration::from_millis(40);
/// How long a confined kernel may run whose original ended in that time.
const MORE_TIME: Duration = Duration::from_secs(20);

/// All ways to confine.
pub(crate) const WAYS: [ConfineOptions; 4] = {
    const fn way(level: Level, window: WindowForm) -> ConfineOptions {
        ConfineOptions {
            level,
            window,
            clear_shared: true,
        }
    }
    [
        way(Level::Confined, WindowForm::Whole),
        way(Level::Confined, WindowForm::Masked),
        way(Level::Trapping, WindowForm::Whole),
        way(Level::Trapping, WindowForm::Masked),
    ]
};

/// One launch: the entry and everything that it is given.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) entry: &'a str,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) values: Vec<Value<'a>>,
    /// What linear memory holds first; zero behind it.
    pub(crate) memory: &'a [u8],
    pub(crate) order: Order,
    /// Of the kernel and its arguments together.
    pub(crate) manner: Manner,
}

/// Whether what the kernel writes depends on which thread comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Matters,
    DoesNotMatter,
}

/// How a kernel ended, and what is in memory.
#[derive(Debug)]
struct Ended {
    outcome: Result<(), Error>,
    memory: Vec<u8>,
    /// Memory that is not its own and was changed.
    strayed: Option<Range<usize>>,
}

/// What came of a call in all ways, for tests that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The rewriter refuses the text.
    Refused,
    /// The device cannot run the original, or not with such arguments.
    NotRun,
    /// The original ended well, and all others did the same.
    Equal,
    /// The original was stopped, strayed or trapped, and the others kept to what they may do.
    Kept,
}

/// Where a kernel's window lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// There is only linear memory.
    Linear,
    /// It is a region, all of which is memory: whatever the device refuses there was not confined.
    Alone(WindowForm),
    /// [`INSET`].
    Amidst,
}

/// Devices of one thread, so that runs are alike.
#[derive(Debug)]
pub(crate) struct World {
    device: Arc<CpuDevice>,
    /// One whose confined kernels run on [`INSET`].
    inset: Arc<CpuDevice>,
    /// Why texts were refused, and how often.
    pub(crate) refusals: BTreeMap<String, u32>,
}

impl World {
    pub(crate) fn new() -> Self {
        let device = |inset| {
            let config = Config {
                threads: 1,
                inset,
                ..Config::default()
            };
            CpuDevice::new(config).expect("the CPU device")
        };
        Self {
            device: device(None),
            inset: device(Some(INSET)),
            refusals: BTreeMap::new(),
        }
    }

    /// A region, and where in it the window's memory is.
    fn region(&self, place: Place) -> (Arc<Region>, u64) {
        let spec = |window_bytes, initial_bytes| RegionSpec {
            window_bytes,
            initial_bytes,
            maximum_bytes: initial_bytes,
            reserved_bytes: window_bytes,
            guard_bytes: 1 << 16,
        };
        let (device, spec, at) = match place {
            Place::Linear => (&self.device, spec(MASKED_WINDOW, MEMORY), 0),
            Place::Alone(form) => {
                let bytes = match form {
                    WindowForm::Masked => MASKED_WINDOW,
                    WindowForm::Whole => MAX_WINDOW_BYTES,
                };
                (&self.device, spec(bytes, bytes), 0)
            }
            Place::Amidst => (&self.inset, spec(AROUND, AROUND), INSET.at),
        };
        (device.new_region(spec).expect("a region"), at)
    }

    /// What a call comes to; an error where the device refuses the program or the launch.
    fn run(
        &self,
        admitted: &Admitted,
        call: &Call<'_>,
        place: Place,
        time: Duration,
    ) -> Result<Ended, Error> {
        let (region, at) = self.region(place);
        let size = |bytes: u64| usize::try_from(bytes).expect("a small memory");
        if place == Place::Amidst {
            let mut around = vec![CANARY; size(AROUND)];
            around[size(INSET.at)..size(INSET.at + INSET.bytes)].fill(0);
            region
                .window()
                .store_run(0, &around)
                .expect("linear memory");
        }
        region
            .window()
            .store_run(at, call.memory)
            .expect("linear memory");
        let device: &CpuDevice = if place == Place::Amidst {
            &self.inset
        } else {
            &self.device
        };
        let module: Arc<dyn Module> = device.load(admitted)?;
        let mut globals_at = 0;
        match (module.globals(), place) {
            (None, _) | (_, Place::Linear) => {}
            // No room is left to carve, all of it being memory.
            (Some(globals), _) => {
                globals_at = GLOBALS_AT;
                let image = image(globals, GLOBALS_AT);
                let window = region.window();
                window
                    .store_run(at + GLOBALS_AT, &image[..])
                    .expect("room for variables");
            }
        }
        let program = module.entry(call.entry)?;
        let attributes = program.attributes();
        let limits = &device.info().limits;
        let geometry = Geometry::new(
            call.grid,
            call.block,
            call.shared_bytes,
            Mode::Plain,
            limits,
            Some(attributes),
        )?;
        let arguments = Arguments::new(&call.values, attributes, IntegerPointers::Accept)?;
        let control = LaunchControl {
            time: Some(time),
            globals: u32::try_from(globals_at).expect("a place in a window"),
            ..LaunchControl::default()
        };
        let mut launch = Arc::default();
        Launch::prepare(&mut launch, geometry, arguments, Some(&region), control)?;
        let outcome = launch.start(Arc::clone(&program)).wait();
        let mut memory = vec![0; size(MEMORY)];
        region
            .window()
            .load_run(at, &mut memory)
            .expect("linear memory");
        memory.truncate(size(GLOBALS_AT));
        let mut strayed = None;
        if place == Place::Amidst {
            let mut around = vec![0; size(AROUND)];
            region
                .window()
                .load_run(0, &mut around)
                .expect("linear memory");
            let own = size(INSET.at - GUARD)..size(INSET.at + INSET.bytes + GUARD);
            let untouched = vec![CANARY; around.len()];
            let sides = [0..own.start, own.end..around.len()];
            strayed = sides
                .into_iter()
                .find(|side| around[side.clone()] != untouched[side.clone()]);
        }
        Ok(Ended {
            outcome,
            memory,
            strayed,
        })
    }

    /// Runs a call in all ways.
    ///
    /// # Panics
    /// Where something does not hold.
    pub(crate) fn check(&mut self, program: &Validated, call: &Call<'_>) -> Verdict {
        let checked = Admitted::checked(program.clone());
        let Ok(original) = self.run(&checked, call, Place::Linear, TIME) else {
            return Verdict::NotRun;
        };
        for way in WAYS {
            let confined = match ptx::confine(program, way) {
                Ok(confined) => confined,
                Err(error) => {
                    *self.refusals.entry(error.kind.to_string()).or_default() += 1;
                    return Verdict::Refused;
                }
            };
            let text = confined.text.clone();
            let failed = |what: &str| -> ! {
                panic!(
                    "{what}\n{call:?}\n{way:?}\n== original\n{}\n== confined\n{text}",
                    ptx::print(program.module())
                )
            };
            let verified = match ptx::verify(confined) {
                Ok(verified) => verified,
                Err(error) => failed(&format!("the verifier refuses it: {error}")),
            };
            let ends = match &original.outcome {
                Ok(()) => true,
                Err(Error::Trap(trap)) => trap.kind == TrapKind::TrapInstruction,
                Err(_) => false,
            };
            let time = if ends { MORE_TIME } else { TIME };
            let admitted = Admitted::confined(verified);
            let mut places = vec![Place::Alone(way.window)];
            if way.window == WindowForm::Masked {
                places.push(Place::Amidst);
            }
            for place in places {
                match self.run(&admitted, call, place, time) {
                    Ok(ended) => {
                        if let Err(what) = compare(&original, &ended, way.level, call) {
                            failed(&format!("{place:?}: {what}"));
                        }
                    }
                    // Confined text needs more shared memory than the device may have.
                    Err(Error::SharedBytes { .. } | Error::SharedBytesConfined { .. }) => {
                        return Verdict::NotRun;
                    }
                    Err(error) => failed(&format!("it does not run: {error}")),
                }
            }
        }
        if original.outcome.is_ok() {
            Verdict::Equal
        } else {
            Verdict::Kept
        }
    }
}

/// What variables hold at first, when they begin at a place in the window.
fn image(globals: &Globals, at: u64) -> Vec<u8> {
    let mut image = globals.image.clone();
    for &address in &globals.addresses {
        let word: &mut [u8; 8] = image[address as usize..]
            .first_chunk_mut()
            .expect("an address");
        *word = (u64::from_le_bytes(*word) + at).to_le_bytes();
    }
    image
}

/// What a way did that it may not do.
fn compare(original: &Ended, ended: &Ended, level: Level, call: &Call<'_>) -> Result<(), String> {
    let order = call.order;
    if let Some(side) = &ended.strayed {
        return Err(format!("memory around the window was changed in {side:x?}"));
    }
    let strays = [
        TrapKind::OutOfBounds,
        TrapKind::Misaligned,
        TrapKind::BarrierDeadlock,
    ];
    match (&ended.outcome, level) {
        // What the text itself reports.
        (Ok(()) | Err(Error::Stopped(StopReason::Deadline)), _) => {}
        (Err(error @ Error::Trap(trap)), Level::Confined) => {
            if strays.contains(&trap.kind) && !is_beside(trap.access) {
                return Err(format!(
                    "an access or a wait that confined text must not make: {error}"
                ));
            }
        }
        (Err(Error::Trap(trap)), Level::Trapping) => {
            if trap.kind == TrapKind::BarrierDeadlock {
                return Err("an endless wait".into());
            }
        }
        (Err(error), _) => return Err(format!("it ended in a way of its own: {error}")),
    }
    match (&original.outcome, &ended.outcome) {
        (Ok(()), Ok(())) if order == Order::DoesNotMatter => {
            if let Some(at) = differing(&original.memory, &ended.memory) {
                return Err(format!(
                    "memory differs at {at:#x}: {:#x} and {:#x}",
                    original.memory[at], ended.memory[at]
                ));
            }
            Ok(())
        }
        (Ok(()), Ok(())) => Ok(()),
        // An address that was never taken of a variable may lead to another one, or to none.
        (Ok(()), Err(Error::Trap(_)))
            if call.manner == Manner::Wild && level == Level::Trapping =>
        {
            Ok(())
        }
        (Ok(()), Err(error)) => Err(format!("the original ended well, and this one: {error}")),
        (Err(Error::Trap(trap)), outcome)
            if trap.kind == TrapKind::TrapInstruction && order == Order::DoesNotMatter =>
        {
            match outcome {
                Err(Error::Trap(found)) if found.kind == TrapKind::TrapInstruction => Ok(()),
                other => Err(format!("the original trapped, and this one: {other:?}")),
            }
        }
        _ => Ok(()),
    }
}

/// Whether an access was to the guards of a window, which belong to it and are no memory here.
fn is_beside(access: Option<Access>) -> bool {
    access.is_some_and(|access| {
        let address = access.address.wrapping_add(GUARD);
        access.space == AccessSpace::Global
            && [0, MASKED_WINDOW, MAX_WINDOW_BYTES]
                .map(|end| address.wrapping_sub(end))
                .iter()
                .any(|&at| at < 2 * GUARD)
    })
}

fn differing(one: &[u8], other: &[u8]) -> Option<usize> {
    // Most are equal, which is told fast.
    if one == other {
        return None;
    }
    one.iter().zip(other).position(|(one, other)| one != other)
}

impl World {
    /// Runs a kernel in all ways, with arguments made of bytes.
    ///
    /// # Panics
    /// Where something does not hold.
    pub(crate) fn check_with(
        &mut self,
        bytes: &[u8],
        manner: Manner,
        program: &Validated,
    ) -> Verdict {
        let mut choices = Choices::new(&bytes[..bytes.len().min(HEAD)]);
        let threads = choices.pick(&[1, 1, 1, 32, 33, 64]);
        let blocks = choices.pick(&[1, 1, 1, 2, 3]);
        let [n, m] = std::array::from_fn(|_| choices.word());
        let x = choices.long();
        let pointers = match manner {
            Manner::Tame => [0x1000, 0x8000],
            Manner::Wild => std::array::from_fn(|_| match choices.below(4) {
                0 | 1 => 0x2000,
                2 => u64::from(choices.word()),
                _ => choices.long(),
            }),
        };
        let memory: Vec<u8> = (0..0x1_0000_u32)
            .map(|at| (at * 31 % 251).to_le_bytes()[0])
            .collect();
        let structure: Vec<u8> = (100..124).collect();
        let call = Call {
            entry: "k",
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: DYNAMIC,
            values: vec![
                Value::U64(pointers[0]),
                Value::U64(pointers[1]),
                Value::U32(n),
                Value::U32(m),
                Value::U64(x),
                Value::Bytes(&structure),
            ],
            memory: &memory,
            manner,
            order: if threads * blocks == 1 && manner == Manner::Tame {
                Order::DoesNotMatter
            } else {
                Order::Matters
            },
        };
        self.check(program, &call)
    }
}

/// Bytes that arguments are made of; the kernel is made of those behind.
const HEAD: usize = 40;

/// The kernel that bytes are.
pub(crate) fn text_of(bytes: &[u8], manner: Manner) -> String {
    kernel(Choices::new(&bytes[bytes.len().min(HEAD)..]), manner)
}
