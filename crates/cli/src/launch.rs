//! `wasi-cuda launch`: one kernel by itself, on arguments from the command line. What is said about it is in `report`.

mod argument;
mod element;
mod report;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use device::{
    Arguments, Carved, Device, DeviceKind, Error, Geometry, IntegerPointers, Launch, LaunchControl,
    MAX_WINDOW_BYTES, Mode, Program, Region, RegionSpec, Value,
};
use host::{Isolation, Trust, TrustedByEmbedder};
use ptx::{Validated, WindowForm};

use crate::check;
use crate::device_choice::{CompilerChoice, DeviceChoice, announce, choose};
use crate::parse::{self, IsolationChoice};
use crate::progress::Progress;
use crate::{KERNEL_IS_WRONG, print, say};

use argument::{Argument, Source, argument, extent};
use element::Element;
use report::{Failure, Output, Report};

const HELP: &str = "\
Arguments of the kernel, in the order of its parameters (`wasi-cuda check` shows them):
  in:FILE                 memory with the bytes of a file
  in:f32=1,2.5,3          memory with these values; in:u32=0..64 counts
  out:1024f32[:FILE]      memory of 1024 zeroes, shown afterwards, and written to a file
  inout:FILE:f32[:FILE]   memory with the bytes of a file, shown afterwards, and written to a file
  inout:f32=1,2[:FILE]    the same with these values
  u32:64                  a value
  bytes:0a0b0c0d          a struct, or any value, by its bytes
Types are f32 f64 i8 i16 i32 i64 u8 u16 u32 u64, or as PTX names them.

Examples:
  wasi-cuda launch vecadd.ptx --block 64 --arg in:f32=0..64 --arg in:f32=0..64 --arg out:64f32 --arg u32:64
  wasi-cuda launch kernel.ptx blur --grid 32,32 --block 16,16 --arg in:image.bin --arg out:1048576u8:blurred.bin
  wasi-cuda launch kernel.ptx --device cuda --as-it-is --time=100 --arg out:4096f32

Exit codes:
  0          the kernel ended well
  1          it is not in order, its arguments do not match, or it trapped or was stopped
  126        a file could not be read, or the command line is wrong";

/// Launch a kernel by itself, without a guest.
///
/// Loads one kernel of a PTX file, gives it the arguments, runs it and shows what it wrote. A kernel that traps is shown with the
/// line where it did. A kernel reaches the memory of its arguments and nothing else.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The PTX file; `-` reads it from stdin.
    ptx: PathBuf,

    /// The kernel; needed where the file has several.
    entry: Option<String>,

    /// Blocks along x, y and z.
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = extent)]
    grid: [u32; 3],

    /// Threads of a block along x, y and z.
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = extent)]
    block: [u32; 3],

    /// Bytes of dynamic shared memory of each block.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    shared: u32,

    /// All blocks are to be resident at once, so that they may wait for each other.
    #[arg(long)]
    cooperative: bool,

    /// An argument, see below. Given once for each parameter.
    #[arg(long = "arg", value_name = "ARG", value_parser = argument)]
    args: Vec<Argument>,

    /// The device that runs the kernel: `cpu` interprets it, `cuda` is the first GPU, `auto` is the GPU where there is one, and
    /// else the CPU.
    #[arg(long, default_value = "auto", value_parser = kernel_device())]
    device: DeviceChoice,

    /// Where a GPU's driver compiles kernels.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t)]
    compiler: CompilerChoice,

    /// What becomes of an access outside the memory of the arguments; by default the CPU device reports it and a GPU confines it.
    #[arg(long, value_enum, value_name = "LEVEL")]
    isolation: Option<IsolationChoice>,

    /// Hand the kernel to the GPU as it is: your own, for all that it may do to this process and its GPU.
    #[arg(long, conflicts_with = "isolation")]
    as_it_is: bool,

    /// Most time for each launch, such as 500ms, 5s or 2m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::duration)]
    timeout: Duration,

    /// Launch again so many times, 20 if no number is given, and say how long that took. What is shown was written by the
    /// first launch.
    #[arg(long, value_name = "REPEATS", num_args = 0..=1, require_equals = true, default_missing_value = "20")]
    time: Option<u32>,

    /// Most elements of a buffer that are shown; all are written to files, and to JSON.
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    show: usize,

    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,

    /// Do not say which device is used.
    #[arg(short, long)]
    quiet: bool,
}

/// The choices that there are for a kernel, which needs a device.
fn kernel_device() -> impl TypedValueParser<Value = DeviceChoice> {
    PossibleValuesParser::new(["auto", "cpu", "cuda"])
        .try_map(|name| DeviceChoice::from_str(&name, false))
}

/// A file's text, and what to call it.
pub(crate) struct Text {
    name: String,
    source: Vec<u8>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let (name, source) = check::read(&args.ptx)?;
    let text = Text { name, source };
    match launch(args, &text)? {
        Ok(report) => {
            report.write_files()?;
            print(&if args.json {
                report.json()
            } else {
                report.text(args.show)
            })?;
            Ok(0)
        }
        Err(failure) => {
            say(failure.text(&text));
            if args.json {
                print(&failure.json())?;
            }
            Ok(KERNEL_IS_WRONG)
        }
    }
}

/// All but the last step, which may fail for reasons that are not the kernel's.
fn launch(args: &Args, text: &Text) -> anyhow::Result<Result<Report, Failure>> {
    let validated = match ptx::read(&text.source) {
        Ok(validated) => validated,
        Err(error) => return Ok(Err(Error::from(error).into())),
    };
    let entry = match entry(&validated, args.entry.as_deref()) {
        Ok(entry) => entry,
        Err(failure) => return Ok(Err(failure)),
    };
    let Some(device) = choose(args.device, args.compiler)? else {
        bail!("a kernel needs a device");
    };
    if !args.quiet {
        announce(Some(&device));
    }
    let memory = Memory::new(&device, &args.args)?;
    Ok(on_device(args, &device, &validated, entry, &memory))
}

/// The kernel that is meant.
fn entry<'a>(validated: &'a Validated, named: Option<&'a str>) -> Result<&'a str, Failure> {
    let entries = validated.entries();
    match (named, entries) {
        (Some(name), _) if validated.entry(name).is_some() => Ok(name),
        (Some(name), _) => Err(Failure::NoEntry(format!(
            "no kernel `{name}`; there {}",
            check::listed(validated)
        ))),
        (None, [only]) => Ok(&only.entry),
        (None, _) => Err(Failure::NoEntry(format!(
            "which kernel? There {}",
            check::listed(validated)
        ))),
    }
}

/// Loads, launches, reads back, and launches again.
fn on_device(
    args: &Args,
    device: &Arc<dyn Device>,
    validated: &Validated,
    entry: &str,
    memory: &Memory,
) -> Result<Report, Failure> {
    let isolation = args.isolation.map(IsolationChoice::isolation);
    let isolation = isolation.unwrap_or_else(|| Isolation::default_on(&**device));
    // On the CPU device there is no way but to look at each access.
    let trust = match args.as_it_is && device.info().kind == DeviceKind::Cuda {
        true => Trust::Embedder(TrustedByEmbedder::i_vouch_for_this_kernel()),
        false => Trust::Isolated(isolation),
    };
    let form = memory.region.form().unwrap_or(WindowForm::Masked);
    let admitted = trust.admit(&**device, validated.clone(), form)?;
    let loading = Progress::note(format!("loading {entry}"));
    let module = device.load(&admitted)?;
    let program = module.entry(entry)?;
    let variables = match module.globals() {
        Some(globals) => Carved::for_globals(&memory.region, globals)?,
        None => None,
    };
    drop(loading);

    let mode = if args.cooperative {
        Mode::Cooperative
    } else {
        Mode::Plain
    };
    let (limits, attributes) = (&device.info().limits, program.attributes());
    let geometry = Geometry::new(
        args.grid,
        args.block,
        args.shared,
        mode,
        limits,
        Some(attributes),
    )?;
    let values = memory.values(&args.args);
    let run = Run {
        program,
        geometry,
        values,
        region: Arc::clone(&memory.region),
        variables,
        timeout: args.timeout,
    };
    let running = Progress::note(format!("running {entry}"));
    let first = run.once().map_err(|error| Failure::of(error, memory))?;
    let outputs = memory.outputs(&args.args)?;
    let repeats = args.time.unwrap_or(0);
    let times = (0..repeats)
        .map(|_| run.once())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::of(error, memory))?;
    drop(running);
    Ok(Report {
        kernel: entry.into(),
        device: device.info().clone(),
        geometry,
        outputs,
        first,
        times,
    })
}

/// A launch that can be had again and again.
struct Run<'a> {
    program: Arc<dyn Program>,
    geometry: Geometry,
    values: Vec<Value<'a>>,
    region: Arc<Region>,
    /// The module's variables, where they lie beside the arguments.
    variables: Option<Carved>,
    timeout: Duration,
}

impl Run<'_> {
    /// From the start to the end that the device tells.
    fn once(&self) -> Result<Duration, Error> {
        let attributes = self.program.attributes();
        let arguments = Arguments::new(&self.values, attributes, IntegerPointers::Refuse)?;
        let control = LaunchControl {
            time: Some(self.timeout),
            globals: self.variables.as_ref().map_or(0, Carved::start_u32),
            ..LaunchControl::default()
        };
        let mut launch = Arc::<Launch>::default();
        let region = Some(&self.region);
        Launch::prepare(&mut launch, self.geometry, arguments, region, control)?;
        let begun = Instant::now();
        launch.start(Arc::clone(&self.program)).wait()?;
        Ok(begun.elapsed())
    }
}

/// The memory of all arguments: a buffer for each that is memory.
pub(crate) struct Memory {
    region: Arc<Region>,
    buffers: Vec<Option<Carved>>,
}

impl Memory {
    fn new(device: &Arc<dyn Device>, args: &[Argument]) -> anyhow::Result<Self> {
        let contents = args
            .iter()
            .map(contents)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let bytes: u64 = contents
            .iter()
            .flatten()
            .map(|bytes| (bytes.len() as u64).next_multiple_of(BUFFER_GRAIN) + BUFFER_GRAIN)
            .sum();
        if bytes > MAX_WINDOW_BYTES {
            bail!("the arguments take {bytes} bytes, the most is {MAX_WINDOW_BYTES}");
        }
        let region = device.new_region(RegionSpec {
            window_bytes: bytes.max(BUFFER_GRAIN).next_power_of_two(),
            initial_bytes: 0,
            maximum_bytes: 0,
            reserved_bytes: 0,
            guard_bytes: 0,
        })?;
        let carve = |bytes: Option<Vec<u8>>| -> Result<Option<Carved>, Error> {
            let Some(bytes) = bytes else { return Ok(None) };
            let carved = region.carve(bytes.len() as u64)?;
            carved.write(0, &bytes)?;
            Ok(Some(carved))
        };
        let buffers = contents.into_iter().map(carve).collect::<Result<_, _>>()?;
        Ok(Self { region, buffers })
    }

    /// The arguments as a launch takes them.
    fn values<'a>(&self, args: &'a [Argument]) -> Vec<Value<'a>> {
        let values = args.iter().zip(&self.buffers);
        values
            .map(|(argument, buffer)| match (argument, buffer) {
                (_, Some(buffer)) => Value::Pointer {
                    offset: buffer.start(),
                    len: buffer.bytes(),
                },
                (Argument::Scalar { element, bytes }, None) => scalar(*element, bytes),
                (Argument::Struct(bytes), None) => Value::Bytes(bytes),
                // What is memory has a buffer.
                (_, None) => Value::Bytes(&[]),
            })
            .collect()
    }

    /// What is shown of the arguments.
    fn outputs(&self, args: &[Argument]) -> Result<Vec<Output>, Error> {
        let mut outputs = Vec::new();
        for (index, (argument, buffer)) in args.iter().zip(&self.buffers).enumerate() {
            let (Argument::Out { element, to, .. } | Argument::InOut { element, to, .. }) =
                argument
            else {
                continue;
            };
            let Some(buffer) = buffer else { continue };
            let mut bytes = vec![0; usize::try_from(buffer.bytes()).unwrap_or(0)];
            buffer.read(0, &mut bytes)?;
            outputs.push(Output {
                index,
                element: *element,
                bytes,
                to: to.clone(),
            });
        }
        Ok(outputs)
    }

    /// Which argument an address is closest to, and how it lies to it.
    fn place(&self, address: u64) -> Option<String> {
        let buffers = self.buffers.iter().enumerate();
        let spans = buffers.filter_map(|(index, buffer)| {
            let buffer = buffer.as_ref()?;
            Some((index, buffer.start(), buffer.start() + buffer.bytes()))
        });
        let distance = |&(_, start, end): &(usize, u64, u64)| {
            start.saturating_sub(address) + (address + 1).saturating_sub(end)
        };
        let (index, start, end) = spans.min_by_key(distance)?;
        Some(match address {
            at if at < start => format!("{} bytes before argument {index}", start - at),
            at if at >= end => format!("{} bytes past the end of argument {index}", at - end),
            at => format!("byte {} of argument {index}", at - start),
        })
    }
}

/// What buffers are rounded up to at least, and as much again to spare.
const BUFFER_GRAIN: u64 = 64 << 10;

/// The bytes that an argument's memory begins with, if it is memory.
fn contents(argument: &Argument) -> anyhow::Result<Option<Vec<u8>>> {
    Ok(match argument {
        Argument::In(source) | Argument::InOut { source, .. } => Some(match source {
            Source::File(path) => fs::read(path).with_context(|| path.display().to_string())?,
            Source::Values(bytes) => bytes.clone(),
        }),
        Argument::Out { element, count, .. } => {
            let bytes = (*count as u64).saturating_mul(element.bytes() as u64);
            if bytes > MAX_WINDOW_BYTES {
                bail!("an output of {bytes} bytes, the most is {MAX_WINDOW_BYTES}");
            }
            Some(vec![0; count * element.bytes()])
        }
        Argument::Scalar { .. } | Argument::Struct(_) => None,
    })
}

/// A value as a launch takes it: those of one or two bytes have no kind of their own.
fn scalar(element: Element, bytes: &[u8]) -> Value<'_> {
    let four = || bytes.try_into().unwrap_or([0; 4]);
    let eight = || bytes.try_into().unwrap_or([0; 8]);
    match element {
        Element::F32 => Value::F32(f32::from_le_bytes(four())),
        Element::F64 => Value::F64(f64::from_le_bytes(eight())),
        Element::I32 => Value::I32(i32::from_le_bytes(four())),
        Element::I64 => Value::I64(i64::from_le_bytes(eight())),
        Element::U32 => Value::U32(u32::from_le_bytes(four())),
        Element::U64 => Value::U64(u64::from_le_bytes(eight())),
        Element::I8 | Element::I16 | Element::U8 | Element::U16 => Value::Bytes(bytes),
    }
}
