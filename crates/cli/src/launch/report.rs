//! What is said about a launch: results for people and for machines, times, and why it went wrong. Nothing is launched here.

use std::fmt::{Display, Write};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use device::{DeviceInfo, Error, Geometry, Mode, Trap};

use super::element::Element;
use super::{Memory, Text};
use crate::device_choice::kind;
use crate::json::Json;

/// Columns that a line of elements may take.
const LINE_COLUMNS: usize = 100;

/// A launch that ended well.
pub(super) struct Report {
    pub(super) kernel: String,
    pub(super) device: DeviceInfo,
    pub(super) geometry: Geometry,
    pub(super) outputs: Vec<Output>,
    pub(super) first: Duration,
    /// Of each repeat.
    pub(super) times: Vec<Duration>,
}

/// What an argument's memory holds afterwards.
pub(super) struct Output {
    pub(super) index: usize,
    pub(super) element: Element,
    pub(super) bytes: Vec<u8>,
    pub(super) to: Option<PathBuf>,
}

impl Output {
    /// Each element as it is shown.
    fn elements(&self) -> impl ExactSizeIterator<Item = String> {
        let chunks = self.bytes.chunks_exact(self.element.bytes());
        chunks.map(|bytes| self.element.show(bytes))
    }

    /// Lines of elements, the first of each line with its number before it.
    fn lines(&self, most: usize, text: &mut String) -> std::fmt::Result {
        let shown: Vec<_> = self.elements().take(most).collect();
        let width = shown.iter().map(String::len).max().unwrap_or(0) + 1;
        let number = self.elements().len().to_string().len().max(4);
        let per_line = ((LINE_COLUMNS - number) / width).clamp(1, 16);
        // A power of two, so that numbers of elements are round.
        let per_line = 1 << per_line.ilog2();
        for (line, elements) in shown.chunks(per_line).enumerate() {
            write!(text, "  {:>number$}:", line * per_line)?;
            for element in elements {
                write!(text, " {element:>width$}")?;
            }
            writeln!(text)?;
        }
        let hidden = self.elements().len() - shown.len();
        if hidden > 0 {
            writeln!(text, "  {:>number$}  and {hidden} more", "")?;
        }
        Ok(())
    }
}

fn axes([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

impl Report {
    pub(super) fn write_files(&self) -> anyhow::Result<()> {
        for output in &self.outputs {
            if let Some(path) = &output.to {
                fs::write(path, &output.bytes).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }

    pub(super) fn text(&self, most: usize) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        self.write(most, &mut text).unwrap_or_default();
        text
    }

    fn write(&self, most: usize, text: &mut String) -> std::fmt::Result {
        let (grid, block) = (axes(self.geometry.grid()), axes(self.geometry.block()));
        writeln!(text, "{}: {grid} blocks of {block} threads", self.kernel)?;
        for output in &self.outputs {
            let (count, name) = (output.elements().len(), output.element.name());
            write!(text, "argument {}, {count} {name}", output.index)?;
            match &output.to {
                Some(path) => writeln!(text, ", written to {}", path.display())?,
                None => writeln!(text)?,
            }
            output.lines(most, text)?;
        }
        if let Some(times) = Times::of(&self.times) {
            let Times { min, median, max } = times;
            writeln!(
                text,
                "time: {} launches, min {}, median {}, max {}; the first took {}",
                self.times.len(),
                Micros(min),
                Micros(median),
                Micros(max),
                Micros(self.first),
            )?;
        }
        Ok(())
    }

    pub(super) fn json(&self) -> String {
        let axes = |axes: [u32; 3]| Json::list(axes.map(Json::number));
        let outputs = self.outputs.iter().map(|output| {
            // What is no number in JSON (NaN, inf) has letters.
            let values = output.elements().map(|shown| {
                if shown.contains(|c: char| c.is_ascii_alphabetic()) {
                    Json::Text(shown)
                } else {
                    Json::Number(shown)
                }
            });
            Json::Object(vec![
                ("argument", Json::count(output.index)),
                ("type", Json::text(output.element.name())),
                ("values", Json::list(values)),
            ])
        });
        let micros = |time: Duration| Json::float(time.as_secs_f64() * 1e6);
        let times = Times::of(&self.times).map_or(Json::Null, |times| {
            Json::Object(vec![
                ("launches", Json::count(self.times.len())),
                ("min_us", micros(times.min)),
                ("median_us", micros(times.median)),
                ("max_us", micros(times.max)),
                ("first_us", micros(self.first)),
            ])
        });
        let device = Json::Object(vec![
            ("kind", Json::text(kind(self.device.kind))),
            ("name", Json::text(&self.device.name)),
        ]);
        let cooperative = self.geometry.mode() == Mode::Cooperative;
        let result = Json::Object(vec![
            ("kernel", Json::text(&self.kernel)),
            ("device", device),
            ("grid", axes(self.geometry.grid())),
            ("block", axes(self.geometry.block())),
            ("shared_bytes", Json::number(self.geometry.shared_bytes())),
            (
                "mode",
                Json::text(if cooperative { "cooperative" } else { "plain" }),
            ),
            ("outputs", Json::list(outputs)),
            ("time", times),
        ]);
        format!("{result}\n")
    }
}

struct Times {
    min: Duration,
    median: Duration,
    max: Duration,
}

impl Times {
    fn of(times: &[Duration]) -> Option<Self> {
        let mut times = times.to_vec();
        times.sort();
        Some(Self {
            min: *times.first()?,
            median: *times.get(times.len() / 2)?,
            max: *times.last()?,
        })
    }
}

/// A time in the unit that suits it.
struct Micros(Duration);

impl Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = self.0.as_secs_f64() * 1e6;
        match micros {
            ..1e3 => write!(f, "{micros:.1} us"),
            ..1e6 => write!(f, "{:.2} ms", micros / 1e3),
            _ => write!(f, "{:.2} s", micros / 1e6),
        }
    }
}

/// Why there is no result.
pub(super) enum Failure {
    /// The text, the kernel, its arguments or its run.
    Device {
        error: Error,
        /// Where an access went, in words.
        place: Option<String>,
    },
    /// Which kernel is meant is not clear, or something broke here.
    NoEntry(String),
}

impl From<host::Error> for Failure {
    fn from(error: host::Error) -> Self {
        match error {
            host::Error::Device(error) => error.into(),
            other => Self::NoEntry(other.to_string()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Device { error, place: None }
    }
}

impl Failure {
    /// How a launch on this memory went wrong.
    pub(super) fn of(error: Error, memory: &Memory) -> Self {
        let place = match &error {
            Error::Trap(trap) => trap.access.and_then(|access| memory.place(access.address)),
            _ => None,
        };
        Self::Device { error, place }
    }

    /// The failure with the line that it is about.
    pub(super) fn text(&self, text: &Text) -> String {
        let name = &text.name;
        let (error, place) = match self {
            Self::NoEntry(reason) => return format!("{name}: {reason}"),
            Self::Device { error, place } => (error, place),
        };
        let line = match error {
            Error::Ptx(error) => {
                return format!("{name}: {}", error.render(&text.source).trim_end());
            }
            Error::Trap(trap) => trap.line,
            Error::Unsupported { line, .. } => *line,
            error => return format!("{name}: {error}"),
        };
        let mut said = format!("{name}: {error}");
        if let Some(place) = place {
            said += &format!("\nthe address is {place}");
        }
        match statement(&text.source, line) {
            Some(statement) => {
                let (margin, marks) = (
                    " ".repeat(line.to_string().len()),
                    "^".repeat(statement.chars().count()),
                );
                said + &format!("\n{line} | {statement}\n{margin} | {marks}")
            }
            None => said,
        }
    }

    pub(super) fn json(&self) -> String {
        let (text, trap, place) = match self {
            Self::NoEntry(reason) => (reason.clone(), None, None),
            Self::Device { error, place } => {
                let trap = match error {
                    Error::Trap(trap) => Some(trap),
                    _ => None,
                };
                (error.to_string(), trap, place.clone())
            }
        };
        let error = Json::Object(vec![
            ("text", Json::Text(text)),
            (
                "trap",
                trap.map_or(Json::Null, |trap| trap_json(trap, place)),
            ),
        ]);
        format!("{}\n", Json::Object(vec![("error", error)]))
    }
}

fn trap_json(trap: &Trap, place: Option<String>) -> Json {
    let axes = |axes: [u32; 3]| Json::list(axes.map(Json::number));
    let access = trap.access.map_or(Json::Null, |access| {
        Json::Object(vec![
            ("bytes", Json::number(access.bytes)),
            ("space", Json::text(access.space.to_string())),
            ("address", Json::number(access.address)),
            ("place", place.map_or(Json::Null, Json::Text)),
        ])
    });
    Json::Object(vec![
        ("kind", Json::text(trap.kind.to_string())),
        ("line", Json::number(trap.line)),
        ("block", axes(trap.block)),
        ("thread", axes(trap.thread)),
        ("access", access),
    ])
}

/// A line of the text without what surrounds it, as printable characters.
fn statement(source: &[u8], line: u32) -> Option<String> {
    let index = usize::try_from(line.checked_sub(1)?).ok()?;
    let found = source.split(|&byte| byte == b'\n').nth(index)?;
    let shown = String::from_utf8_lossy(found.trim_ascii());
    let shown: String = shown
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    Some(shown)
}
