//! What can be wrong with a text, and how it is said to a person. Guest text appears in messages only as
//! an [`Excerpt`].

use std::fmt;

use crate::ast::{Position, ScalarType, Space, Vector};
use crate::limits::{MAX_EXCERPT_BYTES, MAX_LINE_BYTES};

/// A mistake and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {kind}")]
pub struct Error {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
}

/// A piece of guest text within a message: clipped, printable ASCII only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Excerpt(String);

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the message above each variant says what its fields are"
)]
pub enum ErrorKind {
    #[error("addresses have 64 bits here, not {bits}")]
    AddressSize { bits: u64 },
    #[error("an alignment is a power of two up to {limit}, not {align}")]
    Alignment { align: u32, limit: u32 },
    #[error("byte {byte:#04x} is not text")]
    ByteNotText { byte: u8 },
    #[error(
        "the constant expression with `{operator}` is not computed, only numbers and `name+offset` are"
    )]
    ConstantExpression { operator: char },
    #[error("`.{directive}` takes {expected}, not ({found})")]
    DirectiveValues {
        directive: Excerpt,
        expected: &'static str,
        found: Excerpt,
    },
    #[error("`{name}` is declared twice in one scope")]
    Duplicate { name: Excerpt },
    #[error("no PTX text")]
    Empty,
    #[error("expected {expected}, found {found}")]
    Expected {
        expected: &'static str,
        found: Excerpt,
    },
    #[error("`{name}` is not a legal name")]
    IllegalName { name: Excerpt },
    #[error("the array of `{name}` has no size")]
    IncompleteArray { name: Excerpt },
    #[error("the element `{name}[…]` of an array is not computed, only `[name+offset]` is")]
    IndexedArray { name: Excerpt },
    #[error("the initial value of `{name}` does not fit its dimensions")]
    InitializerShape { name: Excerpt },
    #[error("`{name}` cannot have an initial value, being in .{} space", space.name())]
    InitializerSpace { name: Excerpt, space: Space },
    #[error("more than {limit} {what}")]
    Limit { what: &'static str, limit: u64 },
    #[error("`{text}` is not a number")]
    Number { text: Excerpt },
    #[error("the number `{text}` does not fit {bits} bits")]
    NumberRange { text: Excerpt, bits: u32 },
    #[error("the fields of a sampler or texture, such as `{field}`, are not set here")]
    OpaqueInitializer { field: Excerpt },
    #[error("a variable in .{} space cannot be outside a function", space.name())]
    OutsideFunction { space: Space },
    #[error("the parameters of `{entry}` take {bytes} bytes, {limit} are the most")]
    ParameterBytes {
        entry: Excerpt,
        bytes: u64,
        limit: u64,
    },
    #[error("`{name}` is not a predicate register")]
    PredicateExpected { name: Excerpt },
    #[error(
        "`{name}<…>` ends in a digit before the range, so that its names could not be told apart"
    )]
    RangeOfNumbers { name: Excerpt },
    #[error("`{name}<…>` is for registers only")]
    RangeOfVariables { name: Excerpt },
    #[error("`{name}` is an array of registers, which have no addresses")]
    RegisterArray { name: Excerpt },
    #[error("`.{word}` is written twice")]
    Repeated { word: &'static str },
    #[error("`{name}` is predefined and cannot be declared")]
    ReservedName { name: Excerpt },
    #[error("`{name}` is declared again with another kind or other parameters")]
    Redeclared { name: Excerpt },
    #[error("variables in .{} space take {bytes} bytes with `{name}`, {limit} are the most", space.name())]
    SpaceBytes {
        name: Excerpt,
        space: Space,
        bytes: u64,
        limit: u64,
    },
    #[error("no variable of type .{} can be in .{} space here", ty.name(), space.name())]
    SpaceType { space: Space, ty: ScalarType },
    #[error("the text has {bytes} bytes, {limit} are the most")]
    TooLong { bytes: usize, limit: usize },
    #[error("`.{directive}` is not a directive known here")]
    UnknownDirective { directive: Excerpt },
    #[error("`{what}` cannot be confined: {reason}")]
    Unconfined { what: Excerpt, reason: &'static str },
    #[error("label `{name}` is not in this block or one around it")]
    UnknownLabel { name: Excerpt },
    #[error("name `{name}` is not declared before its use")]
    UnknownName { name: Excerpt },
    #[error("register `{name}` is not declared")]
    UnknownRegister { name: Excerpt },
    #[error("the comment does not end")]
    UnterminatedComment,
    #[error("the string does not end")]
    UnterminatedString,
    #[error("the text is not UTF-8")]
    Utf8,
    #[error("there is no vector .{} of .{}", vector.name(), ty.name())]
    VectorType { vector: Vector, ty: ScalarType },
}

/// Why a confined text is not what `docs/confinement.md` says it is, and where. Guests do not write such texts, so it is a mistake of ours,
/// unless [`is_limit`](Self::is_limit).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the confined text: {kind}")]
pub struct VerifyError {
    /// What is wrong.
    pub kind: VerifyErrorKind,
    /// Line of the confined text, from 1; 0 where it is about no line.
    pub line: u32,
}

/// What is wrong with a confined text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the message above each variant says what its fields are"
)]
pub enum VerifyErrorKind {
    #[error("an access of {bytes} bytes is not aligned by a multiple of {align} and {offset}")]
    Alignment { bytes: u32, align: u32, offset: i64 },
    #[error("an access of {bytes} bytes at {offset} leaves what it is in")]
    Bounds { bytes: u32, offset: i64 },
    #[error("the call passes or checks {what} in another way")]
    Call { what: &'static str },
    #[error("`{name}` is not declared as it has to be")]
    Declaration { name: Excerpt },
    #[error("entry `{name}` does not take the guest's parameters and the hidden ones")]
    Entry { name: Excerpt },
    #[error("the function does not end in `ret` or `exit`")]
    FallsOff,
    #[error("{what} is not behind METER as it has to be")]
    Fuel { what: &'static str },
    #[error("`{instruction}` is not accepted")]
    Instruction { instruction: Excerpt },
    #[error("more than {limit} {what}")]
    Limit { what: &'static str, limit: u64 },
    #[error("there is a block in function `{name}`")]
    Nested { name: Excerpt },
    #[error("reserved register `{name}` is written in another way")]
    Reserved { name: Excerpt },
    #[error("label `{name}` is not for a branch")]
    Target { name: Excerpt },
    #[error("it does not read back: {error}")]
    Unreadable { error: Error },
    #[error("`{name}` may be read before it is written")]
    Unwritten { name: Excerpt },
}

impl VerifyErrorKind {
    /// The refusal of this kind in a line.
    pub(crate) fn at(self, line: u32) -> VerifyError {
        VerifyError { kind: self, line }
    }
}

impl VerifyError {
    /// Whether the text is only larger or deeper than what is taken, for which its guest is to blame.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        match &self.kind {
            VerifyErrorKind::Limit { .. } => true,
            VerifyErrorKind::Unreadable { error } => {
                matches!(
                    error.kind,
                    ErrorKind::Limit { .. } | ErrorKind::TooLong { .. }
                )
            }
            _ => false,
        }
    }
}

impl ErrorKind {
    /// The error of this kind at a place.
    pub(crate) fn at(self, at: Position) -> Error {
        Error {
            kind: self,
            line: at.line,
            column: at.column,
        }
    }
}

impl Error {
    /// Whether the text was understood but is more than this front end takes; otherwise it is malformed.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::AddressSize { .. }
                | ErrorKind::ConstantExpression { .. }
                | ErrorKind::IndexedArray { .. }
                | ErrorKind::Limit { .. }
                | ErrorKind::OpaqueInitializer { .. }
                | ErrorKind::OutsideFunction { .. }
                | ErrorKind::ParameterBytes { .. }
                | ErrorKind::RangeOfNumbers { .. }
                | ErrorKind::RangeOfVariables { .. }
                | ErrorKind::ReservedName { .. }
                | ErrorKind::SpaceBytes { .. }
                | ErrorKind::SpaceType {
                    ty: ScalarType::Samplerref | ScalarType::Surfref | ScalarType::Texref,
                    ..
                }
                | ErrorKind::TooLong { .. }
                | ErrorKind::Unconfined { .. }
                | ErrorKind::UnknownDirective { .. }
        )
    }

    /// The message, the line that it is about and a caret under the column, for a person to read. Long
    /// lines are clipped around the column; what is not printable ASCII is escaped.
    #[must_use]
    pub fn render(&self, source: &[u8]) -> String {
        let index = usize::try_from(self.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let line = source
            .split(|&byte| byte == b'\n')
            .nth(index)
            .unwrap_or_default();
        let line = line.trim_ascii_end();
        let column = usize::try_from(self.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let column = column.min(line.len());
        let centred = column.saturating_sub(MAX_LINE_BYTES / 2);
        let from = centred.min(line.len().saturating_sub(MAX_LINE_BYTES));
        let to = line.len().min(from + MAX_LINE_BYTES);

        let before = cut_mark(from > 0).to_owned() + &printable(&line[from..column]);
        let after = printable(&line[column..to]) + cut_mark(to < line.len());
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let indent = " ".repeat(before.len());
        let shown = format!("{number} | {before}{after}");
        format!("{self}\n{}\n{margin} | {indent}^\n", shown.trim_end())
    }
}

fn cut_mark(cut: bool) -> &'static str {
    if cut { "..." } else { "" }
}

/// Bytes as printable ASCII; a tab is four columns wide.
fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\t' => text.push_str("    "),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.extend(byte.escape_ascii().map(char::from)),
        }
    }
    text
}

impl Excerpt {
    /// Takes the start of a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let kept = &bytes[..bytes.len().min(MAX_EXCERPT_BYTES)];
        Self(printable(kept) + cut_mark(kept.len() < bytes.len()))
    }
}

impl From<&str> for Excerpt {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
