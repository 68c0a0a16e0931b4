//! What came of a class, as a row of a table.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::neighbour::{Call, Seen};
use super::{Judge, MOST_RATIO, Pace, SLACK};

/// Problems of one class that are told; the others are counted.
const MOST_PROBLEMS: usize = 6;

/// What came of a class.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// What the hostile guest was answered.
    pub(crate) answers: BTreeSet<String>,
    pub(crate) launches: u32,
    /// Longest load and launch of the hostile guest; how long dropping a call in mid-kernel and dropping the guest took.
    pub(crate) loaded: Duration,
    pub(crate) launched: Duration,
    pub(crate) abandoned: Duration,
    pub(crate) dropped: Duration,
    /// Whether an attempt had to be stopped.
    pub(crate) stopped: bool,
    /// Longest of each of the neighbour's calls beside the hostile guest, in the order of [`Call::ALL`].
    worst: [Duration; 5],
    /// How often the neighbour launched beside it.
    neighbour_launches: usize,
    /// One launch in a hundred of the neighbour takes so many times as long as alone.
    ratio: f64,
    pub(crate) problems: Vec<String>,
    untold: usize,
}

impl Row {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            answers: BTreeSet::new(),
            launches: 0,
            loaded: Duration::ZERO,
            launched: Duration::ZERO,
            abandoned: Duration::ZERO,
            dropped: Duration::ZERO,
            stopped: false,
            worst: [Duration::ZERO; 5],
            neighbour_launches: 0,
            ratio: 0.0,
            problems: Vec::new(),
            untold: 0,
        }
    }

    pub(crate) fn problem(&mut self, problem: String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.untold += 1;
        }
    }

    /// Takes over what the neighbour has seen and compares it with what was promised.
    pub(super) fn judge(&mut self, mut seen: Seen, pace: Pace) {
        if let Some(problem) = seen.problem.take() {
            self.problem(format!("neighbour: {problem}"));
        }
        for (worst, call) in self.worst.iter_mut().zip(Call::ALL) {
            let times = seen.beside.get(&call);
            *worst = times
                .and_then(|times| times.iter().max().copied())
                .unwrap_or_default();
        }
        let beside = seen.beside.entry(Call::Launch).or_default();
        self.neighbour_launches = beside.len();
        let slow = one_in_a_hundred(beside);
        let alone = one_in_a_hundred(seen.alone.entry(Call::Launch).or_default());
        self.ratio = slow.as_secs_f64() / alone.as_secs_f64().max(f64::MIN_POSITIVE);
        if pace.judges == Judge::Results {
            return;
        }
        let limit = pace.deadline + SLACK;
        for (worst, call) in self.worst.into_iter().zip(Call::ALL) {
            if worst > limit {
                self.problem(format!("neighbour: {call:?} took {worst:?}"));
            }
        }
        if !self.stopped && self.ratio > MOST_RATIO {
            self.problem(format!(
                "neighbour: launches are {:.2} times slower",
                self.ratio
            ));
        }
    }
}

/// The time that one in a hundred takes longer than.
fn one_in_a_hundred(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    let at = (times.len() * 99 / 100).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

/// The head of the table, or a row of it with what is wrong below.
pub(crate) fn table(row: Option<&Row>) -> String {
    let Some(row) = row else {
        return "| class | the hostile guest's answers | launches | longest load, launch, ms | call dropped, guest dropped, ms | \
            neighbour's longest launch, load, alloc, instantiate, drop, ms | launches | p99 against alone | verdict |\n\
            | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
            .into();
    };
    let join = |times: &[Duration]| {
        let times: Vec<_> = times.iter().map(|&time| milliseconds(time)).collect();
        times.join(", ")
    };
    let answers: Vec<_> = row.answers.iter().map(String::as_str).collect();
    let verdict = if row.problems.is_empty() {
        "holds"
    } else {
        "BROKEN"
    };
    let mut text = format!(
        "| {} | {} | {} | {} | {} | {} | {} | {:.2} | {verdict} |",
        row.name,
        answers.join(", "),
        row.launches,
        join(&[row.loaded, row.launched]),
        join(&[row.abandoned, row.dropped]),
        join(&row.worst),
        row.neighbour_launches,
        row.ratio,
    );
    for problem in &row.problems {
        write!(text, "\n!! {}: {problem}", row.name).unwrap();
    }
    if row.untold > 0 {
        write!(text, "\n!! {}: and {} more", row.name, row.untold).unwrap();
    }
    text
}
