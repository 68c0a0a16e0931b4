//! What does it cost to confine a kernel, and to have its stray accesses reported? Each kernel runs as it is, confined and trapping, in turns,
//! on the same data, and must give the same bytes; and what does rewriting and verifying take beside the driver's compiler?
//!
//! Without a GPU it runs small sizes on the CPU device, which shows that the bytes are equal and says nothing about cost. Names of kernels
//! as arguments choose some of them.
#![expect(
    clippy::expect_used,
    reason = "a bench ends where something is not as it must be"
)]

extern crate wasi_cuda_device as device;

#[path = "confinement/arena.rs"]
mod arena;
#[path = "../tests/harness/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the bench uses its part of the harness"
)]
mod harness;
#[path = "confinement/kernels.rs"]
mod kernels;
#[path = "confinement/table.rs"]
mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Carved, Completion, DeviceKind, LaunchControl, Program, Selector};
use ptx::{Admitted, ConfineOptions, Level, TrustedByEmbedder, WindowForm};

use arena::Arena;
use harness::{Rig, corpus};
use kernels::{KERNELS, Kernel, Plan};
use table::{Line, Measured};

/// A form of a kernel that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As it is.
    Original,
    /// The same again: what differs is the method's doing.
    Again,
    /// As guests' kernels run on a GPU.
    Confined,
    /// Without clearing shared memory first.
    Uncleared,
    Trapping,
}

impl Form {
    const ALL: [Self; 5] = [
        Self::Original,
        Self::Again,
        Self::Confined,
        Self::Uncleared,
        Self::Trapping,
    ];

    /// `None` where nothing is rewritten.
    fn options(self, window: WindowForm) -> Option<ConfineOptions> {
        let options = |level, clear_shared| {
            Some(ConfineOptions {
                level,
                window,
                clear_shared,
            })
        };
        match self {
            Self::Original | Self::Again => None,
            Self::Confined => options(Level::Confined, true),
            Self::Uncleared => options(Level::Confined, false),
            Self::Trapping => options(Level::Trapping, true),
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Rounds that count.
    rounds: usize,
    /// How long the launches of one round take together, at least.
    round: Duration,
    /// How often a text is rewritten.
    rewrites: usize,
}

const FULL: Effort = Effort {
    rounds: 25,
    round: Duration::from_millis(4),
    rewrites: 5,
};
const ONCE: Effort = Effort {
    rounds: 1,
    round: Duration::ZERO,
    rewrites: 1,
};

/// A loaded form of a kernel.
struct Loaded {
    program: Arc<dyn Program>,
    /// Room for the variables of the module, where the instance keeps them.
    globals: Option<Carved>,
    compiled: Duration,
    rewritten: Duration,
}

fn load(
    rig: &Rig,
    arena: &Arena,
    kernel: &Kernel,
    form: Form,
    effort: Effort,
) -> Result<Loaded, String> {
    let validated = ptx::read(corpus(kernel.file).as_bytes()).map_err(|error| error.to_string())?;
    let mut rewritten = Vec::new();
    let window = arena.region().form().unwrap_or(WindowForm::Masked);
    let admitted = match form.options(window) {
        None if rig.device().info().kind == DeviceKind::Cpu => Admitted::checked(validated),
        None => Admitted::trusted(validated, TrustedByEmbedder::i_vouch_for_this_kernel()),
        Some(options) => {
            let mut verified = None;
            for _ in 0..effort.rewrites {
                let begin = Instant::now();
                let confined =
                    ptx::confine(&validated, options).map_err(|error| error.to_string())?;
                verified = Some(ptx::verify(confined).map_err(|error| error.to_string())?);
                rewritten.push(begin.elapsed());
            }
            Admitted::confined(verified.ok_or("nothing was rewritten")?)
        }
    };
    let begin = Instant::now();
    let module = rig
        .device()
        .load(&admitted)
        .map_err(|error| error.to_string())?;
    let program = module
        .entry(kernel.entry)
        .map_err(|error| error.to_string())?;
    let compiled = begin.elapsed();
    let globals = match module.globals() {
        Some(globals) => {
            Carved::for_globals(arena.region(), globals).map_err(|error| error.to_string())?
        }
        None => None,
    };
    rewritten.sort_unstable();
    Ok(Loaded {
        program,
        globals,
        compiled,
        rewritten: rewritten
            .get(rewritten.len() / 2)
            .copied()
            .unwrap_or_default(),
    })
}

impl Loaded {
    fn start(&self, rig: &Rig, arena: &Arena, plan: &Plan) -> Result<Completion, String> {
        let values: Vec<_> = plan.arguments.iter().map(|it| arena.value(*it)).collect();
        let globals = self.globals.as_ref().map_or(0, Carved::start);
        let control = LaunchControl {
            globals: u32::try_from(globals).expect("a place in a window"),
            ..LaunchControl::default()
        };
        let region = Some(Arc::clone(arena.region()));
        rig.start_on(&self.program, plan.shape, &values, region, control)
            .map(|(_launch, completion)| completion)
            .map_err(|error| error.to_string())
    }

    /// How long so many launches take, one behind the other.
    fn run(
        &self,
        rig: &Rig,
        arena: &Arena,
        plan: &Plan,
        launches: u32,
    ) -> Result<Duration, String> {
        let begin = Instant::now();
        let started: Result<Vec<_>, _> = (0..launches)
            .map(|_| self.start(rig, arena, plan))
            .collect();
        for completion in started? {
            completion.wait().map_err(|error| error.to_string())?;
        }
        Ok(begin.elapsed())
    }
}

/// Runs one kernel in every form.
fn measure(rig: &Rig, kernel: &Kernel, effort: Effort, large: bool) -> Line {
    let mut arena = Arena::new(rig.device());
    let plan = (kernel.plan)(&mut arena, large);
    let mut line = Line::new(kernel.name);
    let forms: Vec<_> = Form::ALL
        .into_iter()
        .map(|form| (form, load(rig, &arena, kernel, form, effort)))
        .collect();
    let mut want = None;
    for (form, loaded) in &forms {
        let outcome = loaded.as_ref().map_err(Clone::clone).and_then(|loaded| {
            arena.reset(plan.output);
            loaded.run(rig, &arena, &plan, 1)?;
            let found = arena.read(plan.output);
            if found == arena.initial(plan.output) {
                return Err("it wrote nothing".into());
            }
            Ok((loaded, *want.get_or_insert_with(|| found.clone()) == found))
        });
        line.forms.push(match outcome {
            Ok((loaded, equal)) => Measured {
                equal,
                compiled: loaded.compiled,
                rewritten: loaded.rewritten,
                ..Measured::default()
            },
            Err(failed) => Measured {
                failed: Some(format!("{form:?}: {failed}")),
                ..Measured::default()
            },
        });
    }
    let Some((_, Ok(original))) = forms.first() else {
        return line;
    };
    let Ok(once) = original.run(rig, &arena, &plan, 1) else {
        return line;
    };
    let launches = effort.round.as_nanos() / once.as_nanos().max(1) + 1;
    let launches = u32::try_from(launches).unwrap_or(1).min(64);
    // Two rounds to warm up. Each begins with another form: clocks and caches favour none.
    for round in 0..effort.rounds + 2 {
        for turn in 0..forms.len() {
            let at = (turn + round) % forms.len();
            let (Ok(loaded), measured) = (&forms[at].1, &mut line.forms[at]) else {
                continue;
            };
            if measured.failed.is_some() {
                continue;
            }
            match loaded.run(rig, &arena, &plan, launches) {
                Ok(took) if round >= 2 || effort.rounds < 2 => measured.times.push(took / launches),
                Ok(_) => {}
                Err(failed) => measured.failed = Some(failed),
            }
        }
    }
    line
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    let full = given("--bench") && !given("--test");
    let device = if full {
        device::open(Selector::Cuda(0))
    } else {
        device::open(Selector::Cpu)
    };
    let device = match device {
        Ok(device) => device,
        Err(error) => {
            println!("not measured: {error}");
            return;
        }
    };
    let info = device.info();
    println!("{}, {} multiprocessors", info.name, info.multiprocessors);
    let rig = Rig::new(Arc::clone(&device));
    let is_wanted = |kernel: &&Kernel| {
        let mut names = arguments
            .iter()
            .filter(|argument| !argument.starts_with("--"))
            .peekable();
        names.peek().is_none() || names.any(|name| name == kernel.name)
    };
    let effort = if full { FULL } else { ONCE };
    println!("{}", table::head());
    let mut lines = Vec::new();
    for kernel in KERNELS.iter().filter(is_wanted) {
        let line = measure(&rig, kernel, effort, full);
        println!("{line}");
        lines.push(line);
    }
    println!("{}", table::summary(&lines));
    let broken = lines.iter().filter(|line| !line.holds()).count();
    assert_eq!(
        broken, 0,
        "kernels that did not run in every form, with the same bytes"
    );
}
