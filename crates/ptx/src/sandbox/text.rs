//! The confined text as it grows, in the form that the printer of trees gives, and which line of the guest's each of its lines was made from.

use std::fmt::{self, Write};

/// Lines of text.
#[derive(Debug, Default)]
pub(super) struct Text {
    text: String,
    lines: Vec<u32>,
    /// The guest's line that the next lines are made from; 0 for none.
    pub(super) line: u32,
}

impl Text {
    /// Adds one line outside of functions' bodies, or a label.
    pub(super) fn put(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.text.write_fmt(line);
        self.text.push('\n');
        self.lines.push(self.line);
    }

    /// Adds one line of a body.
    pub(super) fn put_in(&mut self, line: fmt::Arguments<'_>) {
        self.text.push_str("    ");
        self.put(line);
    }

    /// Adds the lines of another text.
    pub(super) fn append(&mut self, other: Self) {
        self.text.push_str(&other.text);
        self.lines.extend(other.lines);
    }

    /// How many lines there are.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// The text, and the guest's lines.
    pub(super) fn finish(self) -> (String, Vec<u32>) {
        (self.text, self.lines)
    }
}

/// Adds a formatted line to a text, outside of bodies or a label.
macro_rules! put {
    ($text:expr, $($format:tt)*) => { $text.put(format_args!($($format)*)) };
}
/// Adds a formatted statement to the text of a body.
macro_rules! put_in {
    ($text:expr, $($format:tt)*) => { $text.put_in(format_args!($($format)*)) };
}
pub(super) use {put, put_in};
