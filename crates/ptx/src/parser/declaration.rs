//! Variables, parameters and functions.

use super::{Parser, Result};
use crate::ast::{
    Directive, Function, FunctionKind, Initializer, Item, Linkage, Pointer, ScalarType, Space,
    Symbol, Variable, Vector,
};
use crate::error::{ErrorKind, Excerpt};
use crate::lexer::Token;
use crate::limits::{MAX_DIMENSIONS, MAX_VALUE_DEPTH};
use crate::number;

/// What stands before the name of a variable.
#[derive(Clone, Copy, Debug)]
struct Shape {
    linkage: Linkage,
    space: Space,
    align: Option<u32>,
    vector: Option<Vector>,
    ty: ScalarType,
    pointer: Option<Pointer>,
}

impl Parser<'_> {
    /// A function or variables, at the top level; `word` stands after the linkage.
    pub(super) fn declaration(
        &mut self,
        word: &str,
        linkage: Linkage,
        items: &mut Vec<Item>,
    ) -> Result<()> {
        if let Some(kind) = FunctionKind::from_name(word) {
            self.charge_statement()?;
            items.push(Item::Function(self.function(kind, linkage)?));
            return Ok(());
        }
        match Space::from_name(word) {
            Some(space) => self.variables(space, linkage, |variable| {
                items.push(Item::Variable(variable))
            }),
            None => self.unknown_directive(word),
        }
    }

    pub(super) fn unknown_directive<T>(&self, word: &str) -> Result<T> {
        self.error(ErrorKind::UnknownDirective {
            directive: Excerpt::new(word),
        })
    }

    fn function(&mut self, kind: FunctionKind, linkage: Linkage) -> Result<Function> {
        self.advance()?;
        let is_device = kind == FunctionKind::Device;
        let returns = if is_device {
            self.parameters()?
        } else {
            Vec::new()
        };
        let (name, at) = self.declared_name("the name of a function")?;
        let params = self.parameters()?;
        let directives = self.directives()?;
        let body = if self.eat(b';')? {
            None
        } else {
            self.expect(b'{', "`{` or `;`")?;
            Some(self.body()?)
        };
        Ok(Function {
            linkage,
            kind,
            returns,
            name,
            params,
            directives,
            body,
            at,
        })
    }

    /// `(…, …)`, or nothing.
    pub(super) fn parameters(&mut self) -> Result<Vec<Variable>> {
        let mut parameters = Vec::new();
        if !self.eat(b'(')? || self.eat(b')')? {
            return Ok(parameters);
        }
        loop {
            self.charge_node()?;
            let space = match self.token {
                Token::Dotted("param") => Space::Param,
                Token::Dotted("reg") => Space::Reg,
                _ => return self.expected("`.param` or `.reg`"),
            };
            let shape = self.shape(space, Linkage::Internal)?;
            parameters.push(self.declarator(shape)?);
            if !self.comma_or(b')', "`,` or `)`")? {
                return Ok(parameters);
            }
        }
    }

    /// `.name 1, 2, 3` and so on.
    pub(super) fn directives(&mut self) -> Result<Vec<Directive>> {
        let mut directives = Vec::new();
        while let Token::Dotted(word) = self.token {
            if self.skip_directive(word)? {
                continue;
            }
            self.charge_node()?;
            let at = self.at;
            let name = self.intern(word)?;
            self.advance()?;
            let mut values = Vec::new();
            if let Token::Number(_) = self.token {
                values.push(self.integer()?);
                while self.eat(b',')? {
                    self.charge_node()?;
                    values.push(self.integer()?);
                }
            }
            directives.push(Directive { name, values, at });
        }
        Ok(directives)
    }

    /// `.space … name, name = value;`
    pub(super) fn variables(
        &mut self,
        space: Space,
        linkage: Linkage,
        mut found: impl FnMut(Variable),
    ) -> Result<()> {
        let shape = self.shape(space, linkage)?;
        loop {
            self.charge_statement()?;
            let mut variable = self.declarator(shape)?;
            if self.eat(b'=')? {
                variable.initializer = Some(self.initializer(0)?);
            }
            found(variable);
            if !self.comma_or(b';', "`,` or `;`")? {
                return Ok(());
            }
        }
    }

    /// The words from the space, which stands here, to the name.
    fn shape(&mut self, space: Space, linkage: Linkage) -> Result<Shape> {
        let (mut align, mut vector, mut ty, mut pointer) = (None, None, None, None);
        self.advance()?;
        while let Token::Dotted(word) = self.token {
            if word == "attribute" {
                return self.unknown_directive(word);
            } else if word == "align" {
                self.once("align", &align)?;
                self.advance()?;
                align = Some(self.small_integer()?);
            } else if word == "ptr" {
                self.once("ptr", &pointer)?;
                pointer = Some(self.pointer()?);
            } else if let Some(found) = Vector::from_name(word) {
                self.once(found.name(), &vector)?;
                self.advance()?;
                vector = Some(found);
            } else if let Some(found) = ScalarType::from_name(word) {
                self.once(found.name(), &ty)?;
                self.advance()?;
                ty = Some(found);
            } else {
                return self.expected("a type, `.align` or a name");
            }
        }
        let Some(ty) = ty else {
            return self.expected("a type");
        };
        Ok(Shape {
            linkage,
            space,
            align,
            vector,
            ty,
            pointer,
        })
    }

    fn once<T>(&self, word: &'static str, earlier: &Option<T>) -> Result<()> {
        if earlier.is_some() {
            self.error(ErrorKind::Repeated { word })
        } else {
            Ok(())
        }
    }

    /// `.ptr .space .align 16`, both of which may lack.
    fn pointer(&mut self) -> Result<Pointer> {
        self.advance()?;
        let mut space = None;
        if let Token::Dotted(word) = self.token {
            space = Space::from_name(word);
        }
        if space.is_some() {
            self.advance()?;
        }
        let mut align = None;
        if self.token == Token::Dotted("align") {
            self.advance()?;
            align = Some(self.small_integer()?);
        }
        Ok(Pointer { space, align })
    }

    /// `name`, `name<5>` or `name[4][]`.
    fn declarator(&mut self, shape: Shape) -> Result<Variable> {
        let Shape {
            linkage,
            space,
            align,
            vector,
            ty,
            pointer,
        } = shape;
        let (name, at) = self.declared_name("the name of a variable")?;
        let mut count = None;
        if self.eat(b'<')? {
            count = Some(self.small_integer()?);
            self.expect(b'>', "`>`")?;
        }
        let mut dimensions = Vec::new();
        while self.eat(b'[')? {
            if dimensions.len() == MAX_DIMENSIONS {
                let limit = MAX_DIMENSIONS as u64;
                return self.error(ErrorKind::Limit {
                    what: "dimensions",
                    limit,
                });
            }
            dimensions.push(if self.is(b']') {
                None
            } else {
                Some(self.integer()?)
            });
            self.no_operator()?;
            self.expect(b']', "`]`")?;
        }
        let initializer = None;
        Ok(Variable {
            linkage,
            space,
            align,
            vector,
            ty,
            pointer,
            name,
            count,
            dimensions,
            initializer,
            at,
        })
    }

    /// An initial value, `depth` lists deep.
    fn initializer(&mut self, depth: usize) -> Result<Initializer> {
        self.charge_node()?;
        match self.token {
            Token::Punctuation(b'{') => self.initializer_list(depth),
            Token::Identifier("generic") => {
                self.advance()?;
                self.expect(b'(', "`(`")?;
                let name = self.name("a variable")?;
                self.expect(b')', "`)`")?;
                let offset = self.offset()?.unwrap_or(0);
                self.no_operator()?;
                Ok(Initializer::Address {
                    name,
                    generic: true,
                    offset,
                })
            }
            Token::Identifier(word) => {
                let symbol = self.intern(word)?;
                self.advance()?;
                self.initializer_address(word, symbol)
            }
            Token::Number(text) => {
                let value = self.literal(text)?;
                self.no_operator()?;
                self.no_parenthesis()?;
                Ok(Initializer::Immediate(value))
            }
            Token::Punctuation(b'-') => {
                self.advance()?;
                let Token::Number(text) = self.token else {
                    return self.expected("a number");
                };
                let value = self.literal(text)?;
                self.no_operator()?;
                Ok(Initializer::Immediate(number::negate(value)))
            }
            _ => {
                self.no_operator()?;
                self.no_parenthesis()?;
                self.expected("an initial value")
            }
        }
    }

    fn initializer_address(&mut self, word: &str, name: Symbol) -> Result<Initializer> {
        if self.is(b'=') {
            return self.error(ErrorKind::OpaqueInitializer {
                field: Excerpt::new(word),
            });
        }
        let offset = self.offset()?.unwrap_or(0);
        self.no_operator()?;
        Ok(Initializer::Address {
            name,
            generic: false,
            offset,
        })
    }

    fn initializer_list(&mut self, depth: usize) -> Result<Initializer> {
        if depth == MAX_VALUE_DEPTH {
            let what = "levels of nested values";
            return self.error(ErrorKind::Limit {
                what,
                limit: MAX_VALUE_DEPTH as u64,
            });
        }
        self.advance()?;
        let mut elements = Vec::new();
        if self.eat(b'}')? {
            return Ok(Initializer::List(elements));
        }
        loop {
            elements.push(self.initializer(depth + 1)?);
            if !self.comma_or(b'}', "`,` or `}`")? {
                return Ok(Initializer::List(elements));
            }
        }
    }
}
