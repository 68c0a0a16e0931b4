//! One row of the table: every launch of an entry, in every variation, on both sides.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use device::{Error, LaunchControl, Program};

use crate::compare::{self, Apart, Unit};
use crate::harness::{Argument, Image, Number, Recorded, Rig};
use crate::peer::Peer;
use crate::rule::{self, Bound, Cause, Exempt, Rule};
use crate::vary::{Variation, vary};

/// How long a launch may take on the CPU device; data with which one takes longer suit no kernel.
const PATIENCE: Duration = Duration::from_secs(2);
/// Launches of an entry that are made again, from the first.
const LAUNCHES: usize = 20;

/// An entry and the launches that are known of it.
pub(crate) struct Entry {
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) launches: Vec<Recorded>,
}

/// What a row came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Both sides agree.
    Agree,
    /// The peer does not take the text.
    Refused(Error),
    /// They do not.
    Differ(String),
    /// A side did not run it.
    Failed(String),
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    file: String,
    entry: String,
    cases: usize,
    equal: usize,
    /// Data that the CPU device refused to run with.
    unfit: usize,
    apart: Apart,
    bound: Bound,
    why: &'static str,
    pub(crate) outcome: Outcome,
}

/// The head of the table.
pub(crate) fn head() -> String {
    format!(
        "{:<27} {:<17} {:>5} {:>5} {:>5} {:>9} {:>4}  {:<22} why",
        "file", "entry", "cases", "equal", "unfit", "max ulp", "nan", "bound"
    )
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Bound::Fixed => "fixed".to_owned(),
            Bound::Moved => "fixed, nan too".to_owned(),
            Bound::Ulps(ulps, Unit::Result) => format!("{ulps} ulp"),
            Bound::Ulps(ulps, Unit::AtLeast(least)) => format!("{ulps} ulp, from {least}"),
            Bound::Ulps(ulps, Unit::Largest) => format!("{ulps} ulp of largest"),
        };
        let row = format!(
            "{:<27} {:<17} {:>5} {:>5} {:>5} {:>9.2} {:>4}  {:<22} {}",
            self.file,
            self.entry,
            self.cases,
            self.equal,
            self.unfit,
            self.apart.ulps,
            self.apart.payloads,
            bound,
            self.why
        );
        formatter.write_str(row.trim_end())?;
        match &self.outcome {
            Outcome::Agree => Ok(()),
            Outcome::Refused(error) => write!(formatter, " -- not here: {error}"),
            Outcome::Differ(how) => write!(formatter, " -- DIFFERS: {how}"),
            Outcome::Failed(how) => write!(formatter, " -- FAILED: {how}"),
        }
    }
}

/// A program of each side, loaded again where a launch leaves something in the module.
struct Sides<'a> {
    rigs: [&'a Rig; 2],
    /// Those of the text that was loaded last.
    loaded: Option<Loaded>,
    keeps_nothing: bool,
}

/// A text, and its program on each side.
struct Loaded {
    text: Arc<str>,
    programs: [Arc<dyn Program>; 2],
}

/// Which side does not load a text.
enum Unloaded {
    Reference(Error),
    Peer(Error),
}

impl Sides<'_> {
    fn programs(&mut self, call: &Recorded) -> Result<[Arc<dyn Program>; 2], Unloaded> {
        if let Some(loaded) = &self.loaded
            && self.keeps_nothing
            && loaded.text == call.text
        {
            return Ok(loaded.programs.clone());
        }
        let [reference, peer] = self.rigs.map(|rig| rig.try_load(&call.text, &call.entry));
        let programs = [
            reference.map_err(Unloaded::Reference)?,
            peer.map_err(Unloaded::Peer)?,
        ];
        self.loaded = Some(Loaded {
            text: Arc::clone(&call.text),
            programs: programs.clone(),
        });
        Ok(programs)
    }
}

/// Whether a text declares variables that a launch may change.
fn has_variables(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix(".visible ").unwrap_or(line);
        // Tables of the mathematical functions are only read.
        line.starts_with(".global ") && !line.contains("__cudart")
    })
}

/// What one launch came to.
enum Attempt {
    Unfit,
    Compared { equal: bool, apart: Apart },
    Differ(String),
    Failed(Error),
}

impl Row {
    /// The row of a file that has none.
    pub(crate) fn without_launches(file: &str) -> Self {
        let known = rule::LEFT_OUT.iter().find(|(name, _)| *name == file);
        let rule = rule::of(file, "");
        Self {
            file: file.into(),
            entry: "-".into(),
            cases: 0,
            equal: 0,
            unfit: 0,
            apart: Apart::default(),
            bound: rule.bound,
            why: known.map_or("", |(_, why)| why),
            outcome: match known {
                Some(_) => Outcome::Agree,
                None => Outcome::Failed("no body launches anything of it".into()),
            },
        }
    }

    /// Compares the sides.
    pub(crate) fn of(entry: &Entry, reference: &Rig, peer: Peer, other: &Rig) -> Self {
        let rule = rule::of(&entry.file, &entry.name);
        let is_one_device = peer == Peer::Confined && rule.cause != Cause::Order;
        let mut row = Self {
            file: entry.file.clone(),
            entry: entry.name.clone(),
            cases: 0,
            equal: 0,
            unfit: 0,
            apart: Apart::default(),
            bound: if is_one_device {
                Bound::Moved
            } else {
                rule.bound
            },
            why: if is_one_device { "" } else { rule.why },
            outcome: Outcome::Agree,
        };
        let text = entry.launches.first().map_or("", |call| &call.text);
        let mut sides = Sides {
            rigs: [reference, other],
            loaded: None,
            keeps_nothing: !has_variables(text),
        };
        for call in entry.launches.iter().take(LAUNCHES) {
            for variation in Variation::ALL {
                let Some((image, values)) = vary(call, &rule, variation) else {
                    continue;
                };
                let programs = match sides.programs(call) {
                    Ok(programs) => programs,
                    Err(Unloaded::Peer(error)) if peer == Peer::Confined => {
                        row.outcome = Outcome::Refused(error);
                        return row;
                    }
                    Err(Unloaded::Peer(error) | Unloaded::Reference(error)) => {
                        row.outcome = Outcome::Failed(format!("does not load: {error}"));
                        return row;
                    }
                };
                match row.attempt(&programs, &sides, call, (&image, &values), &rule) {
                    Attempt::Unfit if variation != Variation::Given => row.unfit += 1,
                    Attempt::Unfit => {
                        row.outcome = Outcome::Failed("the CPU device does not run it".into());
                        return row;
                    }
                    Attempt::Compared { equal, apart } => {
                        row.cases += 1;
                        row.equal += usize::from(equal);
                        row.apart.ulps = row.apart.ulps.max(apart.ulps);
                        row.apart.payloads += apart.payloads;
                    }
                    Attempt::Differ(how) => {
                        row.outcome = Outcome::Differ(format!("{variation:?}: {how}"));
                        return row;
                    }
                    Attempt::Failed(error) => {
                        row.outcome = Outcome::Failed(format!("{variation:?}: {error}"));
                        return row;
                    }
                }
            }
        }
        row
    }

    fn attempt(
        &self,
        programs: &[Arc<dyn Program>; 2],
        sides: &Sides<'_>,
        call: &Recorded,
        (image, values): (&Image, &[Argument]),
        rule: &Rule,
    ) -> Attempt {
        let control = LaunchControl {
            time: Some(PATIENCE),
            ..LaunchControl::default()
        };
        let run = |side: usize, control| {
            sides.rigs[side].replay(&programs[side], call.shape, values, image, control)
        };
        let Ok(want) = run(0, control) else {
            return Attempt::Unfit;
        };
        match run(1, LaunchControl::default()) {
            Ok(found) => self.compare(&want, &found, rule),
            Err(error) => Attempt::Failed(error),
        }
    }

    fn compare(&self, want: &Image, found: &Image, rule: &Rule) -> Attempt {
        let mut all = Apart::default();
        let mut rest = [want.bytes.clone(), found.bytes.clone()];
        for (at, placed) in want.placed.iter().enumerate() {
            for exempt in rule.exempt {
                match *exempt {
                    Exempt::From(buffer, place) if buffer == at => {
                        let begin = placed.range.start + place * placed.bytes;
                        for side in &mut rest {
                            side[begin..placed.range.end].fill(0);
                        }
                    }
                    Exempt::Sequence(buffer) if buffer == at => {
                        for side in &mut rest {
                            sort(&mut side[placed.range.clone()], placed.bytes);
                        }
                    }
                    Exempt::From(..) | Exempt::Sequence(_) => {}
                }
            }
            let numbers = |side: &[u8]| -> Vec<u64> {
                let word = |bytes: &[u8]| {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_le_bytes(word)
                };
                let chunks = side[placed.range.clone()].chunks_exact(placed.bytes);
                chunks.map(word).collect()
            };
            let [first, second] = rest.each_ref().map(|side| numbers(side));
            if first == second {
                continue;
            }
            let pairs: Vec<[u64; 2]> = first.into_iter().zip(second).map(Into::into).collect();
            let unit = match self.bound {
                Bound::Ulps(_, unit) => unit,
                Bound::Fixed | Bound::Moved => Unit::Result,
            };
            let format = match placed.number {
                Number::F32 => Some(compare::F32),
                Number::F64 => Some(compare::F64),
                Number::Integer if placed.bytes == 2 => rule.halves.map(rule::Half::format),
                Number::Integer => None,
            };
            let (apart, bound) = match (format, self.bound) {
                (Some(format), Bound::Ulps(ulps, _)) => {
                    (compare::floats(&pairs, format, unit), ulps)
                }
                (Some(format), _) => (compare::floats(&pairs, format, unit), 0.0),
                (None, Bound::Ulps(..)) => (compare::integers(&pairs, placed.bytes), rule.steps),
                (None, _) => (compare::integers(&pairs, placed.bytes), 0.0),
            };
            if apart.ulps > bound || self.bound == Bound::Moved && apart.payloads > 0 {
                return Attempt::Differ(difference(at, &pairs, apart));
            }
            all.ulps = all.ulps.max(apart.ulps);
            all.payloads += apart.payloads;
        }
        let equal = rest[0] == rest[1];
        for placed in &want.placed {
            for side in &mut rest {
                side[placed.range.clone()].fill(0);
            }
        }
        if rest[0] == rest[1] {
            Attempt::Compared { equal, apart: all }
        } else {
            Attempt::Differ("bytes between the buffers differ".into())
        }
    }
}

/// Sorts numbers by their bytes.
fn sort(bytes: &mut [u8], of: usize) {
    let mut numbers: Vec<Vec<u8>> = bytes.chunks(of).map(<[u8]>::to_vec).collect();
    numbers.sort_unstable();
    bytes.copy_from_slice(&numbers.concat());
}

/// The first place where a buffer differs.
fn difference(buffer: usize, pairs: &[[u64; 2]], apart: Apart) -> String {
    let count = pairs.iter().filter(|[want, found]| want != found).count();
    let first = pairs
        .iter()
        .enumerate()
        .find(|(_, [want, found])| want != found);
    let (at, [want, found]) = first.map_or((0, [0; 2]), |(at, pair)| (at, *pair));
    format!(
        "buffer {buffer}: {count} of {} differ, by {} ulp; number {at} is {found:#x}, not {want:#x}",
        pairs.len(),
        apart.ulps
    )
}
