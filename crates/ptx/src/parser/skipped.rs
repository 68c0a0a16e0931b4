//! Directives that are passed over: what they tell debuggers and optimisers is not in the tree.

use super::{Parser, Result};
use crate::lexer::Token;

impl Parser<'_> {
    /// Passes a directive that is not in the tree, if one stands here.
    pub(super) fn skip_directive(&mut self, word: &str) -> Result<bool> {
        match word {
            "file" => self.skip_file()?,
            "loc" => self.skip_location()?,
            "pragma" => self.skip_pragma()?,
            "section" => self.skip_section()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `.file 1 "name"`, perhaps with time stamp and size.
    fn skip_file(&mut self) -> Result<()> {
        self.advance()?;
        self.integer()?;
        self.skip_string()?;
        while self.eat(b',')? {
            self.integer()?;
        }
        Ok(())
    }

    /// `.loc 1 2 3`, perhaps with the function that was inlined here and the place where it was.
    fn skip_location(&mut self) -> Result<()> {
        self.advance()?;
        let place = |parser: &mut Self| (0..3).try_for_each(|_| parser.integer().map(drop));
        place(self)?;
        while self.eat(b',')? {
            match self.token {
                Token::Identifier("function_name") => {
                    self.advance()?;
                    let Token::Identifier(_) = self.token else {
                        return self.expected("a label");
                    };
                    self.advance()?;
                    self.offset()?;
                }
                Token::Identifier("inlined_at") => {
                    self.advance()?;
                    place(self)?;
                }
                _ => return self.expected("`function_name` or `inlined_at`"),
            }
        }
        Ok(())
    }

    /// `.pragma "one", "another";`
    fn skip_pragma(&mut self) -> Result<()> {
        self.advance()?;
        self.skip_string()?;
        while self.comma_or(b';', "`,` or `;`")? {
            self.skip_string()?;
        }
        Ok(())
    }

    /// `.section .name { … }`, whatever is in it.
    fn skip_section(&mut self) -> Result<()> {
        self.advance()?;
        let (Token::Dotted(_) | Token::Identifier(_)) = self.token else {
            return self.expected("the name of a section");
        };
        self.advance()?;
        self.expect(b'{', "`{`")?;
        let mut depth = 1_usize;
        while depth > 0 {
            match self.token {
                Token::End => return self.expected("the `}` of a section"),
                Token::Punctuation(b'{') => depth += 1,
                Token::Punctuation(b'}') => depth -= 1,
                _ => {}
            }
            self.advance()?;
        }
        Ok(())
    }

    fn skip_string(&mut self) -> Result<()> {
        let Token::String(_) = self.token else {
            return self.expected("a string");
        };
        self.advance()
    }
}
