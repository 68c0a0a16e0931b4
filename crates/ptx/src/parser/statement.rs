//! Bodies, instructions and operands.

use super::{Parser, Result};
use crate::ast::{
    AddressBase, Body, Guard, Immediate, Instruction, Linkage, Operand, Space, Statement, Symbol,
};
use crate::error::{ErrorKind, Excerpt};
use crate::lexer::Token;
use crate::limits::{MAX_BLOCK_DEPTH, MAX_VALUE_DEPTH};
use crate::number;

impl Parser<'_> {
    /// The statements up to the `}` of a body, whose `{` has been passed.
    pub(super) fn body(&mut self) -> Result<Body> {
        let mut statements = Vec::new();
        let mut depth = 0_usize;
        loop {
            match self.token {
                Token::Punctuation(b'}') if depth == 0 => {
                    self.advance()?;
                    return Ok(Body { statements });
                }
                Token::Punctuation(b'}') => {
                    depth -= 1;
                    self.push(&mut statements, Statement::BlockEnd)?;
                    self.advance()?;
                }
                Token::Punctuation(b'{') => {
                    depth += 1;
                    if depth > MAX_BLOCK_DEPTH {
                        let limit = MAX_BLOCK_DEPTH as u64;
                        return self.error(ErrorKind::Limit {
                            what: "levels of blocks",
                            limit,
                        });
                    }
                    self.push(&mut statements, Statement::BlockStart)?;
                    self.advance()?;
                }
                Token::Dotted(word) => self.body_directive(word, &mut statements)?,
                Token::Identifier(word) => {
                    let at = self.at;
                    let symbol = self.intern(word)?;
                    self.advance()?;
                    let statement = if self.eat(b':')? {
                        Statement::Label { name: symbol, at }
                    } else {
                        Statement::Instruction(self.instruction(None, symbol, at)?)
                    };
                    self.push(&mut statements, statement)?;
                }
                Token::Punctuation(b'@') => {
                    let guard = self.guard()?;
                    let at = self.at;
                    let opcode = self.name("an instruction")?;
                    let instruction = self.instruction(Some(guard), opcode, at)?;
                    self.push(&mut statements, Statement::Instruction(instruction))?;
                }
                _ => return self.expected("a statement or `}`"),
            }
        }
    }

    fn push(&mut self, statements: &mut Vec<Statement>, statement: Statement) -> Result<()> {
        self.charge_statement()?;
        statements.push(statement);
        Ok(())
    }

    /// A statement that begins with a directive.
    fn body_directive(&mut self, word: &str, statements: &mut Vec<Statement>) -> Result<()> {
        if self.skip_directive(word)? {
            return Ok(());
        }
        if let Some(space) = Space::from_name(word) {
            return self.variables(space, Linkage::Internal, |variable| {
                statements.push(Statement::Variable(variable));
            });
        }
        let at = self.at;
        let statement = match word {
            "branchtargets" | "calltargets" => {
                let directive = self.intern(word)?;
                self.advance()?;
                let mut names = vec![self.name("a label or function")?];
                while self.comma_or(b';', "`,` or `;`")? {
                    self.charge_node()?;
                    names.push(self.name("a label or function")?);
                }
                Statement::Targets {
                    directive,
                    names,
                    at,
                }
            }
            "callprototype" => {
                self.advance()?;
                let returns = self.parameters()?;
                if self.token != Token::Identifier("_") {
                    return self.expected("`_`");
                }
                self.advance()?;
                let params = self.parameters()?;
                let directives = self.directives()?;
                self.expect(b';', "`;`")?;
                Statement::Prototype {
                    returns,
                    params,
                    directives,
                    at,
                }
            }
            _ => return self.unknown_directive(word),
        };
        self.push(statements, statement)
    }

    /// `@%p` or `@!%p`.
    fn guard(&mut self) -> Result<Guard> {
        self.advance()?;
        let negated = self.eat(b'!')?;
        let register = self.name("a predicate register")?;
        Ok(Guard { register, negated })
    }

    /// What follows the opcode, `;` included.
    fn instruction(
        &mut self,
        guard: Option<Guard>,
        opcode: Symbol,
        at: crate::ast::Position,
    ) -> Result<Instruction> {
        while let Token::Dotted(word) = self.token {
            self.charge_node()?;
            let modifier = self.intern(word)?;
            self.modifiers.push(modifier);
            self.advance()?;
        }
        let modifiers = self.modifiers.drain(..).collect();
        let mut operands = Vec::new();
        if !self.eat(b';')? {
            operands = self.operands(b';', "`,` or `;`", 0)?;
        }
        Ok(Instruction {
            guard,
            opcode,
            modifiers,
            operands,
            at,
        })
    }

    /// One or more operands up to `close`.
    fn operands(
        &mut self,
        close: u8,
        expected: &'static str,
        depth: usize,
    ) -> Result<Vec<Operand>> {
        if depth > MAX_VALUE_DEPTH {
            let what = "levels of nested operands";
            return self.error(ErrorKind::Limit {
                what,
                limit: MAX_VALUE_DEPTH as u64,
            });
        }
        let start = self.operands.len();
        loop {
            let operand = self.operand(depth)?;
            self.operands.push(operand);
            if !self.comma_or(close, expected)? {
                return Ok(self.operands.drain(start..).collect());
            }
        }
    }

    fn operand(&mut self, depth: usize) -> Result<Operand> {
        let first = self.single_operand(depth)?;
        if !self.eat(b'|')? {
            return Ok(first);
        }
        let second = self.single_operand(depth)?;
        Ok(Operand::Pair(Box::new((first, second))))
    }

    /// An operand that is not a pair.
    fn single_operand(&mut self, depth: usize) -> Result<Operand> {
        self.charge_node()?;
        match self.token {
            Token::Identifier(word) => {
                let name = self.intern(word)?;
                self.advance()?;
                self.named_operand(word, name)
            }
            Token::Number(_) | Token::Punctuation(b'-') => self.signed().map(Operand::Immediate),
            Token::Punctuation(b'[') => {
                self.advance()?;
                self.address(depth)
            }
            Token::Punctuation(b'{') => {
                self.advance()?;
                self.operands(b'}', "`,` or `}`", depth + 1)
                    .map(Operand::Vector)
            }
            Token::Punctuation(b'(') => {
                self.advance()?;
                if self.eat(b')')? {
                    return Ok(Operand::List(Vec::new()));
                }
                self.operands(b')', "`,` or `)`", depth + 1)
                    .map(Operand::List)
            }
            Token::Punctuation(b'!') => {
                self.advance()?;
                self.name("a predicate register").map(Operand::Negated)
            }
            _ => {
                self.no_operator()?;
                self.expected("an operand")
            }
        }
    }

    /// What follows the name that an operand begins with.
    fn named_operand(&mut self, word: &str, name: Symbol) -> Result<Operand> {
        match self.token {
            Token::Dotted(part) => {
                let component = self.intern(part)?;
                self.advance()?;
                Ok(Operand::Component { name, component })
            }
            Token::Punctuation(b'+') => {
                let offset = self.offset()?.unwrap_or(0);
                Ok(Operand::Offset { name, offset })
            }
            Token::Punctuation(b'[') => self.error(ErrorKind::IndexedArray {
                name: Excerpt::new(word),
            }),
            _ => {
                self.no_operator()?;
                Ok(Operand::Name(name))
            }
        }
    }

    /// A literal, perhaps with a minus sign.
    fn signed(&mut self) -> Result<Immediate> {
        let negative = self.eat(b'-')?;
        let Token::Number(text) = self.token else {
            return self.error(ErrorKind::ConstantExpression { operator: '-' });
        };
        let value = self.literal(text)?;
        self.no_operator()?;
        Ok(if negative {
            number::negate(value)
        } else {
            value
        })
    }

    /// What follows the `[` of an address, `]` included.
    fn address(&mut self, depth: usize) -> Result<Operand> {
        let base = match self.token {
            Token::Identifier(_) => AddressBase::Name(self.name("an address")?),
            Token::Number(_) | Token::Punctuation(b'-') => match self.signed()? {
                Immediate::Integer(value) => AddressBase::Immediate(value),
                _ => return self.expected("an integer address"),
            },
            _ => return self.expected("an address"),
        };
        let offset = match base {
            AddressBase::Immediate(_) => 0,
            AddressBase::Name(_) => self.offset()?.unwrap_or(0),
        };
        let mut parts = Vec::new();
        if self.comma_or(b']', "`,` or `]`")? {
            parts = self.operands(b']', "`,` or `]`", depth + 1)?;
        }
        Ok(Operand::Address {
            base,
            offset,
            parts,
        })
    }
}
