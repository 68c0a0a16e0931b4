//! The confined address of an access: the idioms of `docs/confinement.md`, section 3.

use super::access::{Group, Origin, Where, spelled};
use super::blocks::{Block, Shared};
use super::emit::{Emitter, low};
use super::head::at_offset;
use super::names::{Instruction, VariableId, refuse};
use super::strays::is_checked;
use super::text::put_in;
use crate::ast::ScalarType;
use crate::confined::WindowForm;
use crate::error::Error;

impl<'m> Emitter<'_, 'm> {
    /// `[%wa1+imm]`: an access so many bytes behind the address of a group.
    pub(super) fn group_address(
        &mut self,
        instruction: &Instruction<'m>,
        index: usize,
        delta: u32,
    ) -> Result<String, Error> {
        let group = self.ways.groups[index];
        let number = match self.address_of[index] {
            Some(number) => number,
            None => {
                let number = self.confine(instruction, &group)?;
                self.address_of[index] = Some(number);
                number
            }
        };
        Ok(at_offset(
            &format!("%w{}{number}", prefix(group.space)),
            delta,
        ))
    }

    /// Writes the idiom of a group; gives the number of its address register.
    fn confine(&mut self, instruction: &Instruction<'m>, group: &Group) -> Result<u32, Error> {
        let word = self.computed(instruction, group)?;
        if self.is_trapping() && is_checked(group.space) && self.can_stray(group) {
            self.check(instruction, group, word);
        }
        let word = format!("%wx{word}");
        self.idiom(instruction, group.space, &word, group.align, group.end)
    }

    /// Writes the idiom of a space over an address; gives the number of the address register.
    pub(super) fn idiom(
        &mut self,
        instruction: &Instruction<'m>,
        space: Where,
        word: &str,
        align: u32,
        end: u32,
    ) -> Result<u32, Error> {
        match space {
            Where::Generic | Where::Global => Ok(self.window(word, align)),
            Where::Shared => match self.plan.blocks.shared_of[self.place] {
                Some(Shared::Static { block, .. }) => {
                    Ok(self.in_block("s", "%wsb", block, word, align, end))
                }
                Some(Shared::Dynamic { .. }) => {
                    self.used.shared = true;
                    self.used.dynamic_masks |= align;
                    let (low, number) = (self.used.low(), self.used.address("s"));
                    put_in!(self.body, "and.b32 %wl{low}, {word}, %wsm{align};");
                    put_in!(self.body, "add.u32 %ws{number}, %wl{low}, %wsb;");
                    Ok(number)
                }
                None => Err(refuse(
                    &spelled(instruction),
                    "there is no shared memory",
                    instruction.at,
                )),
            },
            Where::Const => {
                Ok(self.in_block("c", "%wcb", self.plan.blocks.constant, word, align, end))
            }
            Where::Local => {
                Ok(self.in_block("o", "%wlb", self.plan.blocks.local, word, align, end))
            }
            Where::Param => {
                let refused = |reason| refuse(&spelled(instruction), reason, instruction.at);
                let id = self
                    .param_base
                    .ok_or_else(|| refused("it is not known which parameter it reaches"))?;
                let bytes = self.plan.program.variables[id]
                    .bytes()
                    .and_then(|bytes| u32::try_from(bytes).ok());
                let limit = bytes
                    .and_then(|bytes| bytes.checked_sub(end))
                    .ok_or_else(|| refused("it is wider than the parameter"))?;
                if instruction.opcode != "ld" {
                    return Err(refused("it stores to a parameter by a register"));
                }
                let (first, second) = (self.used.low(), self.used.low());
                let (zero, number) = (self.used.wide(), self.used.address("p"));
                put_in!(self.body, "min.u32 %wl{first}, {word}, {limit};");
                put_in!(self.body, "and.b32 %wl{second}, %wl{first}, -{align};");
                put_in!(self.body, "cvt.u64.u32 %wz{zero}, %wl{second};");
                put_in!(self.body, "add.u64 %wp{number}, %wpb, %wz{zero};");
                Ok(number)
            }
        }
    }

    /// Into the window.
    fn window(&mut self, word: &str, align: u32) -> u32 {
        let (low, number) = (self.used.low(), self.used.address("a"));
        match self.plan.options.window {
            WindowForm::Whole => {
                self.used.high = true;
                put_in!(self.body, "and.b32 %wl{low}, {word}, -{align};");
                put_in!(self.body, "mov.b64 %wa{number}, {{%wl{low}, %whi}};");
            }
            WindowForm::Masked => {
                self.used.masks |= align;
                self.used.base = true;
                let wide = self.used.wide();
                put_in!(self.body, "and.b32 %wl{low}, {word}, %wm{align};");
                put_in!(self.body, "cvt.u64.u32 %wz{wide}, %wl{low};");
                put_in!(self.body, "add.u64 %wa{number}, %wbase, %wz{wide};");
            }
        }
        number
    }

    /// Into a block of fixed size.
    pub(super) fn in_block(
        &mut self,
        prefix: &str,
        base: &str,
        block: Block,
        word: &str,
        align: u32,
        end: u32,
    ) -> u32 {
        match prefix {
            "s" => self.used.shared = true,
            "c" => self.used.constant = true,
            _ => self.used.local = true,
        }
        let (mut low, number) = (self.used.low(), self.used.address(prefix));
        match block.power {
            Some(power) => put_in!(self.body, "and.b32 %wl{low}, {word}, {};", power - align),
            None => {
                let first = low;
                low = self.used.low();
                put_in!(
                    self.body,
                    "min.u32 %wl{first}, {word}, {};",
                    block.size - end
                );
                put_in!(self.body, "and.b32 %wl{low}, %wl{first}, -{align};");
            }
        }
        put_in!(self.body, "add.u32 %w{prefix}{number}, %wl{low}, {base};");
        number
    }

    /// Computes the low word of the address that a group starts from: what counts of it.
    fn computed(&mut self, instruction: &Instruction<'m>, group: &Group) -> Result<u32, Error> {
        let anchor = group.anchor;
        match group.origin {
            Origin::Register(register) => {
                let name = self.register(register);
                match self.code.registers[register].ty {
                    ScalarType::B64 | ScalarType::U64 | ScalarType::S64 => {
                        let word = self.used.word();
                        put_in!(self.body, "cvt.u32.u64 %wx{word}, {name};");
                        self.add(word, anchor);
                        Ok(word)
                    }
                    ScalarType::B32 | ScalarType::U32 | ScalarType::S32 => {
                        let word = self.used.word();
                        match low(anchor) {
                            0 => put_in!(self.body, "mov.b32 %wx{word}, {name};"),
                            anchor => put_in!(self.body, "add.u32 %wx{word}, {name}, {anchor};"),
                        }
                        Ok(word)
                    }
                    _ => Err(refuse(
                        &spelled(instruction),
                        "an address has 32 or 64 bits",
                        instruction.at,
                    )),
                }
            }
            Origin::Globals => {
                self.used.globals = true;
                let word = self.used.word();
                put_in!(self.body, "add.u32 %wx{word}, %wglob, {};", low(anchor));
                Ok(word)
            }
            Origin::Absolute => {
                let word = self.used.word();
                put_in!(self.body, "mov.u32 %wx{word}, {};", low(anchor));
                Ok(word)
            }
            Origin::Dynamic => {
                let before = match self.plan.blocks.shared_of[self.place] {
                    Some(Shared::Dynamic { before, .. }) => before,
                    _ => 0,
                };
                let word = self.used.word();
                put_in!(
                    self.body,
                    "mov.u32 %wx{word}, {};",
                    low(anchor.wrapping_add(i64::from(before)))
                );
                Ok(word)
            }
            Origin::Frame => {
                let (start, level) = self.plan.blocks.frames[self.place];
                let word = self.used.word();
                let offset = low(anchor.wrapping_add(i64::from(start)));
                if level == 0 {
                    put_in!(self.body, "mov.u32 %wx{word}, {offset};");
                } else {
                    self.used.depth = true;
                    put_in!(
                        self.body,
                        "mad.lo.u32 %wx{word}, %wdepth, {level}, {offset};"
                    );
                }
                Ok(word)
            }
        }
    }

    fn add(&mut self, word: u32, offset: i64) {
        if low(offset) != 0 {
            put_in!(self.body, "add.u32 %wx{word}, %wx{word}, {};", low(offset));
        }
    }

    /// `[wc_shared0+imm]`: an access within a variable, whose place is known now.
    pub(super) fn direct_address(
        &mut self,
        instruction: &Instruction<'m>,
        space: Where,
        id: VariableId,
        offset: i64,
        width: u32,
    ) -> Result<String, Error> {
        let elsewhere = || {
            refuse(
                &spelled(instruction),
                "the variable is defined elsewhere",
                instruction.at,
            )
        };
        let (name, place, bytes) = match (space, self.plan.blocks.shared_of[self.place]) {
            (Where::Shared, Some(Shared::Dynamic { .. })) => {
                // Only the launch knows how much there is: the variable's offset goes by a register.
                let place = self.plan.blocks.shared_offset(self.place, id);
                let place = low(offset.wrapping_add(i64::from(place.ok_or_else(elsewhere)?)));
                let word = self.used.word();
                put_in!(self.body, "mov.u32 %wx{word}, {place};");
                let number = self.idiom(instruction, space, &format!("%wx{word}"), width, width)?;
                return Ok(format!("[%ws{number}]"));
            }
            (Where::Shared, Some(Shared::Static { number, block })) => (
                format!("wc_shared{number}"),
                self.plan.blocks.shared_offset(self.place, id),
                block.size,
            ),
            (Where::Const, _) => (
                "wc_const".to_owned(),
                self.plan.images.offsets[id],
                self.plan.blocks.constant.size,
            ),
            (Where::Local, _) => {
                self.used.has_frame = true;
                (
                    "wc_local".to_owned(),
                    self.plan.locals[id],
                    self.plan.blocks.local.size,
                )
            }
            _ => {
                let bytes = self.plan.program.variables[id]
                    .bytes()
                    .and_then(|bytes| u32::try_from(bytes).ok());
                (self.parameter(id), Some(0), bytes.unwrap_or(0))
            }
        };
        let place = offset.wrapping_add(i64::from(place.ok_or_else(elsewhere)?));
        let is_inside = place >= 0
            && place + i64::from(width) <= i64::from(bytes)
            && place % i64::from(width) == 0;
        if !is_inside {
            return Err(refuse(
                &spelled(instruction),
                "it reaches outside its variable",
                instruction.at,
            ));
        }
        Ok(at_offset(&name, low(place)))
    }
}

/// What the address registers of a space begin with, after `%w`.
pub(super) fn prefix(space: Where) -> &'static str {
    match space {
        Where::Generic | Where::Global => "a",
        Where::Const => "c",
        Where::Local => "o",
        Where::Param => "p",
        Where::Shared => "s",
    }
}
