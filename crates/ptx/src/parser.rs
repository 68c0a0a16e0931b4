//! Tokens to a tree: header, top level and the tools that the parts share. What names refer to is none
//! of its business (`validate.rs`).

mod declaration;
mod skipped;
mod statement;

use crate::ast::{Immediate, Item, Linkage, Module, Names, Operand, Position, Symbol};
use crate::error::{Error, ErrorKind, Excerpt};
use crate::lexer::{self, Lexer, Token};
use crate::limits::{MAX_NAMES, MAX_NODES, MAX_STATEMENTS};
use crate::number;

type Result<T, E = Error> = std::result::Result<T, E>;

/// Reads a text into a tree. NULs at its end are no part of it.
///
/// # Errors
/// The first mistake in the text: see [`ErrorKind`](crate::ErrorKind).
pub fn parse(source: &[u8]) -> Result<Module> {
    parse_text(lexer::text(source)?)
}

/// [`parse`] for what [`lexer::text`] let through.
pub(crate) fn parse_text(text: &str) -> Result<Module> {
    let mut parser = Parser::new(text)?;
    let mut module = parser.header()?;
    while parser.token != Token::End {
        parser.item(&mut module.items)?;
    }
    module.names = parser.names;
    Ok(module)
}

/// One token of lookahead over a text, the names met so far, and what may still be built.
#[derive(Debug)]
struct Parser<'s> {
    lexer: Lexer<'s>,
    token: Token<'s>,
    /// Where `token` begins.
    at: Position,
    names: Names,
    /// Modifiers and operands of the instruction at hand, those of inner operands last: a vector that
    /// grows would be allocated several times, one that is taken from here once.
    modifiers: Vec<Symbol>,
    operands: Vec<Operand>,
    nodes_left: usize,
    statements_left: usize,
}

impl<'s> Parser<'s> {
    fn new(text: &'s str) -> Result<Self> {
        let mut lexer = Lexer::new(text);
        let (token, at) = lexer.next()?;
        Ok(Self {
            lexer,
            token,
            at,
            names: Names::default(),
            modifiers: Vec::new(),
            operands: Vec::new(),
            nodes_left: MAX_NODES,
            statements_left: MAX_STATEMENTS,
        })
    }

    /// Moves to the next token.
    fn advance(&mut self) -> Result<()> {
        (self.token, self.at) = self.lexer.next()?;
        Ok(())
    }

    fn error<T>(&self, kind: ErrorKind) -> Result<T> {
        Err(kind.at(self.at))
    }

    /// The error that something else should stand here.
    fn expected<T>(&self, expected: &'static str) -> Result<T> {
        let found = match self.token {
            Token::Dotted(word) => Excerpt::new(&format!("`.{word}`")),
            Token::End => Excerpt::new("the end of the text"),
            Token::Identifier(word) | Token::Number(word) => Excerpt::new(&format!("`{word}`")),
            Token::Punctuation(byte) => Excerpt::new(&format!("`{}`", char::from(byte))),
            Token::String(_) => Excerpt::new("a string"),
        };
        self.error(ErrorKind::Expected { expected, found })
    }

    fn is(&self, mark: u8) -> bool {
        self.token == Token::Punctuation(mark)
    }

    /// Passes a mark if it stands here.
    fn eat(&mut self, mark: u8) -> Result<bool> {
        let found = self.is(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Passes a mark that must stand here; `expected` is the mark in words.
    fn expect(&mut self, mark: u8, expected: &'static str) -> Result<()> {
        if self.eat(mark)? {
            Ok(())
        } else {
            self.expected(expected)
        }
    }

    /// Passes the comma between two things, or the mark that ends them; says whether a thing follows.
    fn comma_or(&mut self, close: u8, expected: &'static str) -> Result<bool> {
        if self.eat(b',')? {
            return Ok(true);
        }
        self.expect(close, expected)?;
        Ok(false)
    }

    fn intern(&mut self, word: &str) -> Result<Symbol> {
        let symbol = self.names.intern(word);
        if self.names.len() > MAX_NAMES {
            return self.error(ErrorKind::Limit {
                what: "names",
                limit: MAX_NAMES as u64,
            });
        }
        Ok(symbol)
    }

    /// Takes one statement, variable or function from what may be built.
    fn charge_statement(&mut self) -> Result<()> {
        let what = "statements";
        match self.statements_left.checked_sub(1) {
            Some(left) => self.statements_left = left,
            None => {
                return self.error(ErrorKind::Limit {
                    what,
                    limit: MAX_STATEMENTS as u64,
                });
            }
        }
        Ok(())
    }

    /// Takes one operand, modifier or element of an initial value from what may be built.
    fn charge_node(&mut self) -> Result<()> {
        let what = "operands and elements";
        match self.nodes_left.checked_sub(1) {
            Some(left) => self.nodes_left = left,
            None => {
                return self.error(ErrorKind::Limit {
                    what,
                    limit: MAX_NODES as u64,
                });
            }
        }
        Ok(())
    }

    /// An identifier that refers to something.
    fn name(&mut self, expected: &'static str) -> Result<Symbol> {
        let Token::Identifier(word) = self.token else {
            return self.expected(expected);
        };
        let symbol = self.intern(word)?;
        self.advance()?;
        Ok(symbol)
    }

    /// An identifier that declares something; a name that PTX cannot have is quoted whole.
    fn declared_name(&mut self, expected: &'static str) -> Result<(Symbol, Position)> {
        let at = self.at;
        let Token::Identifier(word) = self.token else {
            return self.expected(expected);
        };
        let run = self.lexer.run_from(self.lexer.index() - word.len());
        if run.len() > word.len() && !run[word.len()..].starts_with('/') {
            return self.error(ErrorKind::IllegalName {
                name: Excerpt::new(run),
            });
        }
        Ok((self.name(expected)?, at))
    }

    /// A literal without a sign, as it stands.
    fn literal(&mut self, text: &str) -> Result<Immediate> {
        let value = number::immediate(text).map_err(|kind| kind.at(self.at))?;
        self.advance()?;
        Ok(value)
    }

    /// An integer without a sign.
    fn integer(&mut self) -> Result<u64> {
        let expected = "an integer";
        let Token::Number(text) = self.token else {
            return self.expected(expected);
        };
        match number::immediate(text).map_err(|kind| kind.at(self.at))? {
            Immediate::Integer(value) => {
                self.advance()?;
                Ok(value)
            }
            _ => self.expected(expected),
        }
    }

    /// An integer without a sign that fits 32 bits.
    fn small_integer(&mut self) -> Result<u32> {
        let at = self.at;
        let text = if let Token::Number(text) = self.token {
            text
        } else {
            ""
        };
        let value = self.integer()?;
        let kind = || ErrorKind::NumberRange {
            text: Excerpt::new(text),
            bits: 32,
        };
        u32::try_from(value).map_err(|_| kind().at(at))
    }

    /// The bytes that are added to a name: `+4`, `+-4` or nothing.
    fn offset(&mut self) -> Result<Option<i64>> {
        if !self.eat(b'+')? {
            return Ok(None);
        }
        let negative = self.eat(b'-')?;
        let value = self.integer()?;
        self.no_operator()?;
        let value = if negative {
            value.wrapping_neg()
        } else {
            value
        };
        Ok(Some(value.cast_signed()))
    }

    /// Refuses an operator where a value has just ended: the value would be a constant expression.
    fn no_operator(&self) -> Result<()> {
        match self.token {
            Token::Punctuation(byte) if b"+-*/%<>=!~&^?".contains(&byte) => {
                self.error(ErrorKind::ConstantExpression {
                    operator: char::from(byte),
                })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a parenthesis around or after a number: a group, or a mask of an address.
    fn no_parenthesis(&self) -> Result<()> {
        if self.is(b'(') {
            return self.error(ErrorKind::ConstantExpression { operator: '(' });
        }
        Ok(())
    }

    /// `.version`, `.target` and, perhaps, `.address_size`.
    fn header(&mut self) -> Result<Module> {
        self.header_word("version", "`.version`")?;
        let Token::Number(text) = self.token else {
            return self.expected("a version");
        };
        let parts = text.split_once('.').and_then(|(major, minor)| {
            let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
            let part = |part: &str| part.parse().ok().filter(|_| digits(part));
            Some((part(major)?, part(minor)?))
        });
        let Some(version) = parts else {
            return self.expected("a version such as `8.0`");
        };
        self.advance()?;

        self.header_word("target", "`.target`")?;
        let mut target = vec![self.name("an architecture")?];
        while self.eat(b',')? {
            self.charge_node()?;
            // Without debug sections, which are not in the tree, an assembler refuses it.
            if self.token == Token::Identifier("debug") {
                self.advance()?;
                continue;
            }
            target.push(self.name("an option of the target")?);
        }

        let mut address_size = 64;
        if self.token == Token::Dotted("address_size") {
            self.advance()?;
            address_size = self.small_integer()?;
        }
        Ok(Module {
            names: Names::default(),
            version,
            target,
            address_size,
            items: Vec::new(),
        })
    }

    fn header_word(&mut self, word: &str, expected: &'static str) -> Result<()> {
        while let Token::Dotted(directive) = self.token
            && directive != word
            && self.skip_directive(directive)?
        {}
        if self.token != Token::Dotted(word) {
            return self.expected(expected);
        }
        self.advance()
    }

    /// One directive at the top level.
    fn item(&mut self, items: &mut Vec<Item>) -> Result<()> {
        let mut linkage = Linkage::Internal;
        loop {
            let Token::Dotted(word) = self.token else {
                return self.expected("a directive");
            };
            if let Some(found) = Linkage::from_name(word) {
                if linkage != Linkage::Internal {
                    return self.expected("one linkage directive");
                }
                linkage = found;
                self.advance()?;
                continue;
            }
            if linkage == Linkage::Internal {
                if self.skip_directive(word)? {
                    return Ok(());
                }
                if word == "alias" {
                    return self.alias(items);
                }
            }
            return self.declaration(word, linkage, items);
        }
    }

    /// `.alias name, target;`
    fn alias(&mut self, items: &mut Vec<Item>) -> Result<()> {
        self.charge_statement()?;
        self.advance()?;
        let (name, at) = self.declared_name("the name of an alias")?;
        self.expect(b',', "`,`")?;
        let target = self.name("the function that the alias stands for")?;
        self.expect(b';', "`;`")?;
        items.push(Item::Alias { name, target, at });
        Ok(())
    }
}
