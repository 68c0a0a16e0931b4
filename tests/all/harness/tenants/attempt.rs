//! What a file of `fixtures/hostile` asks for, read from its head. `fixtures/hostile/README.md` says how it is written.

use abi::argv::Arg;

use super::super::{DATA_AT, Shape};
use super::DATA_BYTES;

/// One file: what a tenant would try, in so many ways.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) attempts: Vec<Attempt>,
}

/// One way.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) entry: String,
    pub(crate) what: What,
    /// The line that asks for it.
    pub(crate) said: String,
    /// What it must come to where it is confined, and where every access is checked.
    pub(crate) answers: [String; 2],
}

/// What is done with an entry.
#[derive(Debug)]
pub(crate) enum What {
    Launch {
        shape: Shape,
        arguments: Vec<Argument>,
    },
    Load,
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    Data,
    Neighbour,
    U32(u32),
    U64(u64),
}

impl Argument {
    /// With the address of the neighbour's memory.
    pub(crate) fn value(self, neighbour: u64) -> Arg<'static> {
        match self {
            Self::Data => Arg::Ptr {
                offset: DATA_AT,
                len: DATA_BYTES,
            },
            Self::Neighbour => Arg::U64(neighbour),
            Self::U32(value) => Arg::U32(value),
            Self::U64(value) => Arg::U64(value),
        }
    }
}

impl Class {
    /// Panics if the head asks for nothing, or for something that is not understood.
    pub(crate) fn read(name: &str, text: &str) -> Self {
        let lines = text.lines().take_while(|line| line.starts_with("//"));
        let attempts: Vec<Attempt> = lines
            .filter_map(|line| {
                let said = line.trim_start_matches('/').trim();
                let attempt = match said.split_once(':')? {
                    ("launch", asked) => launch(asked),
                    ("load", asked) => load(asked),
                    _ => return None,
                };
                Some(attempt.unwrap_or_else(|| panic!("{name}: {line}")))
            })
            .collect();
        assert!(!attempts.is_empty(), "{name} asks for nothing");
        Self {
            name: name.into(),
            text: text.into(),
            attempts,
        }
    }
}

fn answers(text: &str) -> Option<[String; 2]> {
    let (confined, checked) = text.split_once('|')?;
    Some([confined, checked].map(|answer| answer.trim().to_owned()))
}

fn load(asked: &str) -> Option<Attempt> {
    let (entry, comes_to) = asked.split_once('=')?;
    Some(Attempt {
        entry: entry.trim().into(),
        what: What::Load,
        said: asked.trim().into(),
        answers: answers(comes_to)?,
    })
}

fn launch(asked: &str) -> Option<Attempt> {
    let (call, comes_to) = asked.split_once('=')?;
    let (shape, arguments) = call.trim().strip_suffix(')')?.split_once('(')?;
    let words: Vec<&str> = shape.split_whitespace().collect();
    let [entry, grid, block, shared] = words[..] else {
        return None;
    };
    let arguments = arguments
        .split(',')
        .map(|argument| match argument.trim() {
            "data" => Some(Argument::Data),
            "u64 neighbour" => Some(Argument::Neighbour),
            number => match number.split_once(' ')? {
                ("u32", digits) => Some(Argument::U32(u32::try_from(parse(digits)?).ok()?)),
                ("u64", digits) => Some(Argument::U64(parse(digits)?)),
                _ => None,
            },
        })
        .collect::<Option<_>>()?;
    Some(Attempt {
        entry: entry.into(),
        what: What::Launch {
            shape: Shape::new(axes(grid)?, axes(block)?, shared.parse().ok()?),
            arguments,
        },
        said: call.trim().into(),
        answers: answers(comes_to)?,
    })
}

/// `4`, `4x2` or `4x2x1`.
fn axes(text: &str) -> Option<[u32; 3]> {
    let mut axes = [1; 3];
    for (axis, digits) in text.split('x').enumerate() {
        *axes.get_mut(axis)? = digits.parse().ok()?;
    }
    Some(axes)
}

fn parse(digits: &str) -> Option<u64> {
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}
