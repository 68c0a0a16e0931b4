//! The process that computes rows, and the one that reads them. What a row says is for `row.rs`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use device::Selector;

use crate::harness::{Recorder, Rig, corpus, corpus_names, kernels, kernels_names};
use crate::peer::Peer;
use crate::row::{Entry, Outcome, Row, head};
use crate::rule::LEFT_OUT;

/// Tells a process which rows to compute: a peer's name and how many rows are done.
const JOB: &str = "WASI_CUDA_AGREEMENT_JOB";
/// What a process prints before the number of a row that it begins.
const BEGIN: &str = "begin ";
/// And before a row that is in order, or is not.
const HOLDS: &str = "holds ";
const BROKEN: &str = "broken ";
/// How long a row may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Files of kernels for tests that ask nothing of devices' agreement.
const OTHER_QUESTIONS: [&str; 2] = ["faults", "kit"];

/// The rows that a process computes.
pub(crate) struct Job {
    peer: Peer,
    done: usize,
}

/// A text without its constants, which a body gives values to where the file has none.
fn without_constants(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with(".const"));
    lines.collect()
}

/// Every file and what the bodies launch of it, by entry.
fn entries() -> (Rig, Vec<(String, Vec<Entry>)>) {
    let recorder = Arc::new(Recorder::default());
    let open = || Rig::new(device::open(Selector::Cpu).expect("the CPU device"));
    let rig = open().recorded(Arc::clone(&recorder));
    std::panic::set_hook(Box::new(|_| {}));
    for case in crate::kernels::cases() {
        if !OTHER_QUESTIONS
            .iter()
            .any(|name| case.name().starts_with(name))
        {
            // A body that fails has launched what it has, and fails in the test of the bodies.
            drop(catch_unwind(AssertUnwindSafe(|| case.run(&rig))));
        }
    }
    drop(std::panic::take_hook());
    let mut launches: BTreeMap<(String, String), Vec<_>> = BTreeMap::new();
    for call in recorder.take() {
        let key = (without_constants(&call.text), call.entry.clone());
        launches.entry(key).or_default().push(call);
    }
    let own = kernels_names();
    let own = own
        .iter()
        .filter(|name| !OTHER_QUESTIONS.contains(&name.as_str()))
        .map(|name| (name.clone(), kernels(name)));
    let names = corpus_names();
    let files = names
        .iter()
        .map(|name| (name.clone(), corpus(name)))
        .chain(own);
    let files = files.map(|(file, text)| {
        let is_left_out = LEFT_OUT.iter().any(|(name, _)| *name == file);
        let text = without_constants(&text);
        let of_file = launches
            .iter()
            .filter(|((other, _), _)| !is_left_out && *other == text);
        let entries = of_file.map(|((_, name), launches)| Entry {
            file: file.clone(),
            name: name.clone(),
            launches: launches.clone(),
        });
        let entries = entries.collect();
        (file, entries)
    });
    let files = files.collect();
    (open(), files)
}

impl Job {
    /// The job of this process, where it has one.
    pub(crate) fn of_this_process() -> Option<Self> {
        let job = std::env::var(JOB).ok()?;
        let (name, done) = job.split_once(' ').expect("a peer and a number");
        let peer = Peer::ALL.into_iter().find(|peer| peer.name() == name);
        Some(Self {
            peer: peer.expect("a peer"),
            done: done.parse().expect("a number"),
        })
    }

    /// Computes rows until all are done or one makes the peer useless.
    pub(crate) fn run(self) -> ExitCode {
        let (reference, files) = entries();
        let Ok(other) = self.peer.open() else {
            return ExitCode::FAILURE;
        };
        let mut at = 0;
        let mut out = std::io::stdout();
        let mut tell = |line: String| {
            writeln!(out, "{line}")
                .and_then(|()| out.flush())
                .expect("whoever started this process reads");
        };
        for (file, entries) in &files {
            for entry in 0..entries.len().max(1) {
                at += 1;
                if at <= self.done {
                    continue;
                }
                let entry = entries.get(entry);
                let name = entry.map_or("-", |entry| &entry.name);
                tell(format!("{BEGIN}{file} {name}"));
                let row = match entry {
                    Some(entry) => Row::of(entry, &reference, self.peer, &other),
                    None => Row::without_launches(file),
                };
                let is_broken = matches!(row.outcome, Outcome::Differ(_) | Outcome::Failed(_));
                tell(format!("{}{row}", if is_broken { BROKEN } else { HOLDS }));
                if matches!(row.outcome, Outcome::Failed(_)) && self.peer == Peer::Cuda {
                    // A GPU that faulted is of no more use to this process.
                    std::process::exit(1);
                }
            }
        }
        ExitCode::SUCCESS
    }
}

/// Lines of a process as they come.
fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let output = child.stdout.take().expect("a pipe");
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Has processes compute all rows for a peer and prints them as they come; tells how many do not hold.
pub(crate) fn supervise(peer: Peer) -> Result<(), String> {
    println!(
        "\n{}: the CPU device against {}",
        peer.name(),
        match peer {
            Peer::Confined => "itself, with texts confined",
            Peer::Cuda => "a GPU",
        }
    );
    println!("{}", head());
    let (mut done, mut broken) = (0, 0);
    loop {
        let before = done;
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(this)
            .env(JOB, format!("{} {done}", peer.name()))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let lines = lines_of(&mut child);
        let mut begun: Option<String> = None;
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    if let Some(row) = line.strip_prefix(BEGIN) {
                        begun = Some(row.to_owned());
                        continue;
                    }
                    let (row, holds) = match (line.strip_prefix(HOLDS), line.strip_prefix(BROKEN)) {
                        (Some(row), _) => (row, true),
                        (_, Some(row)) => (row, false),
                        // What a kernel printed.
                        _ => continue,
                    };
                    println!("{row}");
                    begun = None;
                    done += 1;
                    broken += usize::from(!holds);
                }
                Err(reason) => {
                    if let Some(row) = begun.take() {
                        let how = match reason {
                            RecvTimeoutError::Timeout => "hung",
                            RecvTimeoutError::Disconnected => "ended",
                        };
                        println!("{row} -- FAILED: the process that computed it {how}");
                        done += 1;
                        broken += 1;
                    }
                    break;
                }
            }
        }
        // One that hangs is not asked; what has ended is not there to be killed.
        drop(child.kill());
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() {
            break;
        }
        if done == before {
            return Err(format!("no row in a process that ended with {status}"));
        }
    }
    println!("{done} rows, {broken} broken");
    if broken == 0 {
        Ok(())
    } else {
        Err(format!("{broken} of {done} rows do not hold"))
    }
}
