//! Two tenants of one device: a hostile guest that tries what a file of `fixtures/hostile` says, and a neighbour that keeps calling
//! everything it may and looks at each result. No test belongs here.

mod attempt;
pub(crate) mod classes;
mod neighbour;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, Health};
use host::{Isolation, Limits};
use tokio::time::timeout;

use super::{
    DATA_AT, Guest, Harness, Setup, Shape, Way, encode, host_panics, name, pages_for_text, runtime,
};

pub(crate) use attempt::{Attempt, Class};
pub(crate) use classes::{class, classes, each_hostile_file};
pub(crate) use report::{Row, table};

use attempt::What;
use neighbour::{Neighbour, Phase};

/// Bytes of a guest's own memory that attempts are given.
pub(crate) const DATA_BYTES: u32 = 0xC000;
/// A kernel that was stopped has left the device by then, however many blocks it has.
const DRAIN: Duration = Duration::from_secs(1);
/// How much longer than the deadline of the other tenant's kernels a call may take.
const SLACK: Duration = Duration::from_millis(5);
/// How much slower a launch in a hundred may be beside a kernel that ends by itself.
const MOST_RATIO: f64 = 2.0;

/// How long things go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The deadline of the hostile guest's kernels.
    pub(crate) deadline: Duration,
    /// How long the neighbour is alone, to compare with.
    pub(crate) alone: Duration,
    /// How long attempts that end by themselves are repeated, in all.
    pub(crate) beside: Duration,
    /// Whether the neighbour's times are held against what was promised.
    pub(crate) judges: Judge,
    /// What the answers must be.
    pub(crate) column: Column,
}

/// How kernels run, which decides what attempts come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Each access is checked, as the CPU device does.
    Checked,
    /// Confined, on a GPU.
    Confined,
    /// Confined, on the CPU device, which still looks at what is memory.
    ConfinedAndChecked,
}

impl Column {
    /// For confined kernels on a device.
    pub(crate) fn confined_on(device: &dyn Device) -> Self {
        if device.abilities().checks_accesses {
            Self::ConfinedAndChecked
        } else {
            Self::Confined
        }
    }

    fn of(self, [confined, checked]: &[String; 2]) -> Vec<String> {
        match self {
            Self::Checked => vec![checked.clone()],
            Self::Confined => vec![confined.clone()],
            Self::ConfinedAndChecked => vec![confined.clone(), checked.clone()],
        }
    }

    fn isolation(self) -> Isolation {
        match self {
            Self::Checked => Isolation::Trapping,
            Self::Confined | Self::ConfinedAndChecked => Isolation::Confined,
        }
    }
}

fn setup(device: &Arc<dyn Device>, pace: Pace) -> Setup {
    Setup {
        isolation: Some(pace.column.isolation()),
        ..Setup::on(Arc::clone(device))
    }
}

/// What of a class is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judge {
    /// Codes and results: where the machine is too busy to say more.
    Results,
    /// How long the neighbour had to wait too.
    ResultsAndTimes,
}

/// Runs a class beside a neighbour and says what came of it. It never panics for what the hostile guest does.
pub(crate) fn run_class(device: &Arc<dyn Device>, class: &Class, pace: Pace) -> Row {
    let mut row = Row::new(&class.name);
    let neighbour = Neighbour::start(setup(device, pace));
    neighbour.stay(Phase::Alone, pace.alone);
    neighbour.enter(Phase::Beside);
    let mut hostile = Hostile::new(device, class, &neighbour, pace);
    for attempt in &class.attempts {
        hostile.make(class, attempt, &mut row);
        if device.health() != Health::Good {
            break;
        }
    }
    hostile.abandon(&mut row);
    let begin = Instant::now();
    drop(hostile);
    row.dropped = begin.elapsed();
    neighbour.stay(Phase::Beside, pace.alone / 4);
    row.judge(neighbour.stop(), pace);
    if let Health::Lost { reason } = device.health() {
        row.problem(format!("the device is lost: {reason}"));
    }
    if host_panics() > 0 {
        row.problem("the host panicked".into());
    }
    row
}

/// The hostile guest.
struct Hostile<'a> {
    guest: Harness,
    neighbour: &'a Neighbour,
    pace: Pace,
    /// A kernel that had to be stopped, with how it was launched.
    endless: Option<(i64, Shape, Vec<u8>)>,
}

impl<'a> Hostile<'a> {
    fn new(device: &Arc<dyn Device>, class: &Class, neighbour: &'a Neighbour, pace: Pace) -> Self {
        let guest = Harness::new(&Setup {
            pages: pages_for_text(class.text.len()).max(Setup::default().pages),
            limits: Limits {
                deadline: Some(pace.deadline),
                ..Limits::default()
            },
            ..setup(device, pace)
        });
        Self {
            guest,
            neighbour,
            pace,
            endless: None,
        }
    }

    /// Loads what the attempt is about and launches it until it has had its time.
    fn make(&mut self, class: &Class, attempt: &Attempt, row: &mut Row) {
        let begin = Instant::now();
        let kernel = self.guest.load(&class.text, &attempt.entry);
        row.loaded = row.loaded.max(begin.elapsed());
        let What::Launch { shape, arguments } = &attempt.what else {
            self.expect(attempt, kernel.min(0), row);
            self.unload(kernel);
            return;
        };
        if kernel <= 0 {
            self.expect(attempt, kernel, row);
            return;
        }
        let address = self.neighbour.address();
        let args: Vec<_> = arguments.iter().map(|it| it.value(address)).collect();
        let argv = encode(&args);
        // What it was given may stand in a report.
        self.guest.knows(&[address, u64::from(DATA_AT)]);
        let share = self.pace.beside / u32::try_from(class.attempts.len()).unwrap();
        let until = Instant::now() + share;
        loop {
            let begin = Instant::now();
            let answer = self.guest.launch_bytes(kernel, *shape, &argv);
            let took = begin.elapsed();
            row.launched = row.launched.max(took);
            row.launches += 1;
            self.expect(attempt, answer, row);
            let limit = self.pace.deadline + DRAIN;
            if took > limit && self.pace.judges == Judge::ResultsAndTimes {
                row.problem(format!("{}: its code came after {took:?}", attempt.entry));
            }
            self.look_for_secrets(attempt, row);
            let stopped = name(answer) == "DeadlineExceeded";
            if stopped {
                row.stopped = true;
                self.endless.get_or_insert((kernel, *shape, argv.clone()));
            }
            if stopped || Instant::now() > until || !row.problems.is_empty() {
                break;
            }
        }
        if self.endless.as_ref().is_none_or(|&(it, ..)| it != kernel) {
            self.unload(kernel);
        }
    }

    fn unload(&mut self, kernel: i64) {
        if kernel > 0 {
            self.guest
                .call(abi::FN_UNLOAD, &[wasmtime::Val::I64(kernel)]);
        }
    }

    fn expect(&self, attempt: &Attempt, answer: i64, row: &mut Row) {
        let found = if answer == 0 {
            "ok".into()
        } else {
            name(answer)
        };
        let wanted = self.pace.column.of(&attempt.answers);
        if !wanted.contains(&found) {
            let want = wanted.join(" or ");
            let text = self.guest.cuda().last_error();
            row.problem(format!(
                "{} {}: {found} instead of {want}: {text}",
                attempt.entry, attempt.said
            ));
        }
        row.answers.insert(found);
    }

    /// Nothing that the neighbour keeps to itself may be in the guest's own memory.
    fn look_for_secrets(&mut self, attempt: &Attempt, row: &mut Row) {
        let bytes = usize::try_from(DATA_BYTES).unwrap();
        let found = self.guest.read_memory(DATA_AT, bytes);
        let secret = self.neighbour.secret().to_le_bytes();
        if found.windows(secret.len()).any(|bytes| bytes == secret) {
            row.problem(format!(
                "{}: the neighbour's secret was read",
                attempt.entry
            ));
        }
        self.guest.write_memory(DATA_AT, &vec![0; bytes]);
    }

    /// Launches what does not end once more and drops the call after a moment.
    fn abandon(&mut self, row: &mut Row) {
        let Some((kernel, shape, argv)) = self.endless.take() else {
            return;
        };
        let runtime = runtime();
        let guest: &mut Guest = &mut self.guest;
        let begin = Instant::now();
        let moment = self.pace.deadline / 10;
        let ended = runtime.block_on(async {
            let launch = guest.launch_bytes(Way::Plain, kernel, shape, &argv);
            timeout(moment, launch).await.ok()
        });
        row.abandoned = begin.elapsed().saturating_sub(moment);
        if let Some(answer) = ended {
            let text = self.guest.cuda().last_error();
            row.problem(format!(
                "what did not end before ended at once with {answer}: {text}"
            ));
        }
    }
}
