//! Bytes to tokens. It knows characters, comments and strings, but not what a token is for.

use crate::ast::Position;
use crate::error::{Error, ErrorKind, Excerpt};
use crate::limits::{MAX_IDENTIFIER_BYTES, MAX_SOURCE_BYTES};

/// A piece of the text that has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'s> {
    /// `.word` or `.word::word`, without the first dot.
    Dotted(&'s str),
    /// The end of the text.
    End,
    /// A name or an opcode: `ld`, `%r1`, `$L__BB0_1`, `_`.
    Identifier(&'s str),
    /// A literal as written; `number.rs` reads it.
    Number(&'s str),
    /// Any other character.
    Punctuation(u8),
    /// What stands between two quotation marks.
    String(&'s str),
}

/// What a byte can begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Digit,
    Dot,
    Illegal,
    Name,
    Newline,
    Punctuation,
    Quote,
    Slash,
    Space,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Illegal; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        classes[byte as usize] = match byte {
            b'0'..=b'9' => Class::Digit,
            b'.' => Class::Dot,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' | b'%' => Class::Name,
            b'\n' => Class::Newline,
            b'"' => Class::Quote,
            b'/' => Class::Slash,
            b' ' | b'\t' | b'\r' => Class::Space,
            b'#' | b'\'' | b'\\' | b'`' => Class::Illegal,
            b'!'..=b'~' => Class::Punctuation,
            _ => Class::Illegal,
        };
        byte += 1;
    }
    classes
};

/// Whether a byte can go on a name.
const fn goes_on(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

/// The text within `source`: trailing NULs are dropped, and what is left is text throughout.
pub(crate) fn text(source: &[u8]) -> Result<&str, Error> {
    let length = source
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    let source = &source[..length];
    if source.is_empty() {
        return Err(ErrorKind::Empty.at(Position { line: 1, column: 1 }));
    }
    if length > MAX_SOURCE_BYTES {
        let kind = ErrorKind::TooLong {
            bytes: length,
            limit: MAX_SOURCE_BYTES,
        };
        return Err(kind.at(Position { line: 1, column: 1 }));
    }
    let is_text =
        |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r') || (byte >= b' ' && byte != 0x7f);
    if let Some(index) = source.iter().position(|&byte| !is_text(byte)) {
        let kind = ErrorKind::ByteNotText {
            byte: source[index],
        };
        return Err(kind.at(position(source, index)));
    }
    std::str::from_utf8(source)
        .map_err(|error| ErrorKind::Utf8.at(position(source, error.valid_up_to())))
}

/// Line and column of a byte.
fn position(source: &[u8], index: usize) -> Position {
    let before = &source[..index];
    let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
    let start = before
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |newline| newline + 1);
    Position {
        line: small(line),
        column: small(index - start + 1),
    }
}

/// Counts within a text are below 2^32, as the text is at most [`MAX_SOURCE_BYTES`] long.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Reads a text from front to back.
#[derive(Debug)]
pub(crate) struct Lexer<'s> {
    text: &'s str,
    index: usize,
    line: usize,
    line_start: usize,
}

impl<'s> Lexer<'s> {
    /// A lexer for what [`text`] let through.
    pub(crate) fn new(text: &'s str) -> Self {
        Self {
            text,
            index: 0,
            line: 1,
            line_start: 0,
        }
    }

    /// The next token and where it begins.
    pub(crate) fn next(&mut self) -> Result<(Token<'s>, Position), Error> {
        loop {
            let at = self.position();
            let Some(byte) = self.byte(0) else {
                return Ok((Token::End, at));
            };
            let token = match CLASSES[usize::from(byte)] {
                Class::Digit => Token::Number(self.number()),
                Class::Dot => self.dotted().map_err(|kind| kind.at(at))?,
                Class::Illegal => return Err(self.illegal().at(at)),
                Class::Name => self.name().map_err(|kind| kind.at(at))?,
                Class::Newline => {
                    self.newline();
                    continue;
                }
                Class::Punctuation => {
                    self.index += 1;
                    Token::Punctuation(byte)
                }
                Class::Quote => self.string().map_err(|kind| kind.at(at))?,
                Class::Slash => {
                    if self.comment().map_err(|kind| kind.at(at))? {
                        continue;
                    }
                    self.index += 1;
                    Token::Punctuation(byte)
                }
                Class::Space => {
                    self.index += 1;
                    continue;
                }
            };
            return Ok((token, at));
        }
    }

    /// The run of characters that begins at `start`, up to a space or a mark that ends a name.
    pub(crate) fn run_from(&self, start: usize) -> &'s str {
        let rest = &self.text[start..];
        let end = rest.find(|c: char| c.is_ascii_whitespace() || "()[]<>{},;:=".contains(c));
        &rest[..end.unwrap_or(rest.len())]
    }

    /// Where the token that was read last ends.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    fn position(&self) -> Position {
        Position {
            line: small(self.line),
            column: small(self.index - self.line_start + 1),
        }
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.index + ahead).copied()
    }

    /// Moves over bytes of a kind and returns what was passed since `start`.
    fn take_while(&mut self, start: usize, keep: impl Fn(u8) -> bool) -> &'s str {
        let rest = &self.text.as_bytes()[self.index..];
        self.index += rest
            .iter()
            .position(|&byte| !keep(byte))
            .unwrap_or(rest.len());
        &self.text[start..self.index]
    }

    fn newline(&mut self) {
        self.index += 1;
        self.line += 1;
        self.line_start = self.index;
    }

    fn illegal(&self) -> ErrorKind {
        let rest = &self.text[self.index..];
        let end = rest
            .char_indices()
            .nth(1)
            .map_or(rest.len(), |(index, _)| index);
        ErrorKind::Expected {
            expected: "PTX",
            found: Excerpt::new(&rest[..end]),
        }
    }

    /// `[a-zA-Z][a-zA-Z0-9_$]*`, `[_$%][a-zA-Z0-9_$]+` or `_`.
    fn name(&mut self) -> Result<Token<'s>, ErrorKind> {
        let start = self.index;
        self.index += 1;
        match self.take_while(start, goes_on) {
            "%" => Ok(Token::Punctuation(b'%')),
            "$" => Err(ErrorKind::IllegalName {
                name: Excerpt::new("$"),
            }),
            name => short(name).map(Token::Identifier),
        }
    }

    fn dotted(&mut self) -> Result<Token<'s>, ErrorKind> {
        self.index += 1;
        let start = self.index;
        let mut word = self.take_while(start, goes_on);
        while !word.is_empty() && self.text[self.index..].starts_with("::") {
            self.index += 2;
            word = self.take_while(start, goes_on);
        }
        if word.is_empty() {
            return Ok(Token::Punctuation(b'.'));
        }
        short(word).map(Token::Dotted)
    }

    /// A literal with all letters and digits that touch it, so that a wrong one is quoted whole.
    fn number(&mut self) -> &'s str {
        let start = self.index;
        let is_digit = |byte: u8| byte.is_ascii_digit();
        let digit_at = |lexer: &Self, ahead| lexer.byte(ahead).is_some_and(is_digit);
        self.take_while(start, is_digit);
        if self.byte(0) == Some(b'.') && digit_at(self, 1) {
            self.index += 1;
            self.take_while(start, is_digit);
        }
        if matches!(self.byte(0), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.byte(1), Some(b'+' | b'-')));
            if digit_at(self, 1 + sign) {
                self.index += 1 + sign;
            }
        }
        self.take_while(start, goes_on)
    }

    /// Strings have no escapes: a quotation mark always ends one.
    fn string(&mut self) -> Result<Token<'s>, ErrorKind> {
        self.index += 1;
        let text = self.take_while(self.index, |byte| !matches!(byte, b'"' | b'\n'));
        if self.byte(0) != Some(b'"') {
            return Err(ErrorKind::UnterminatedString);
        }
        self.index += 1;
        Ok(Token::String(text))
    }

    /// Passes a comment, if one begins here.
    fn comment(&mut self) -> Result<bool, ErrorKind> {
        match self.byte(1) {
            Some(b'/') => {
                self.take_while(self.index, |byte| byte != b'\n');
                Ok(true)
            }
            Some(b'*') => {
                self.index += 2;
                loop {
                    self.take_while(self.index, |byte| !matches!(byte, b'*' | b'\n'));
                    match (self.byte(0), self.byte(1)) {
                        (None, _) => return Err(ErrorKind::UnterminatedComment),
                        (Some(b'\n'), _) => self.newline(),
                        (_, Some(b'/')) => {
                            self.index += 2;
                            return Ok(true);
                        }
                        _ => self.index += 1,
                    }
                }
            }
            _ => Ok(false),
        }
    }
}

fn short(word: &str) -> Result<&str, ErrorKind> {
    if word.len() <= MAX_IDENTIFIER_BYTES {
        return Ok(word);
    }
    Err(ErrorKind::Limit {
        what: "bytes in a name",
        limit: MAX_IDENTIFIER_BYTES as u64,
    })
}
