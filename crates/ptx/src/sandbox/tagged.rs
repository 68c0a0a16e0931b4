//! Generic addresses of shared and local memory, which carry a tag in their high word: how they are made, told apart and used.

use super::access::{Access, Group, Origin, Where, spelled};
use super::address::prefix;
use super::emit::{Caching, Emitter, low, with_space};
use super::names::{Base, Instruction, Value, refuse};
use super::text::put_in;
use crate::ast::{ScalarType, Space};
use crate::confined::SiteKind;
use crate::error::Error;

impl<'m> Emitter<'_, 'm> {
    /// An access that goes to one of three spaces by the tag of its address.
    pub(super) fn tagged(
        &mut self,
        instruction: &Instruction<'m>,
        access: Access,
    ) -> Result<(), Error> {
        let refused = |reason| refuse(&spelled(instruction), reason, instruction.at);
        let Some(Value::Address {
            base: Base::Register(register),
            offset,
            ..
        }) = instruction.operands.get(access.operand)
        else {
            return Err(refused("its address is none"));
        };
        if !matches!(
            self.code.registers[*register].ty,
            ScalarType::B64 | ScalarType::U64 | ScalarType::S64
        ) {
            return Err(refused("a generic address has 64 bits"));
        }
        let mut whole = self.register(*register);
        if *offset != 0 {
            let double = self.used.double();
            put_in!(self.body, "add.s64 %wxd{double}, {whole}, {offset};");
            whole = format!("%wxd{double}");
        }
        let (low, tag) = (self.used.word(), self.used.word());
        put_in!(self.body, "mov.b64 {{%wx{low}, %wx{tag}}}, {whole};");
        let (word, width) = (format!("%wx{low}"), access.width);
        let is_atomic = matches!(instruction.opcode, "atom" | "red");
        let mut ways = vec![(Where::Global, None), (Where::Shared, Some(SHARED_TAG))];
        if !is_atomic {
            ways.push((Where::Local, Some(LOCAL_TAG)));
        }
        let (and, also) = self.also(instruction.guard);
        let mut prepared = Vec::new();
        for (space, tagged) in ways {
            let number = self.idiom(instruction, space, &word, width, width)?;
            let flag = self.used.flag();
            match tagged {
                Some(tagged) => put_in!(
                    self.body,
                    "setp.eq{and}.u32 %wxp{flag}, %wx{tag}, {tagged}{also};"
                ),
                None => {
                    put_in!(
                        self.body,
                        "setp.ne{and}.u32 %wxp{flag}, %wx{tag}, {SHARED_TAG}{also};"
                    );
                    put_in!(
                        self.body,
                        "setp.ne.and.u32 %wxp{flag}, %wx{tag}, {LOCAL_TAG}, %wxp{flag};"
                    );
                }
            }
            prepared.push((space, number, flag));
        }
        if self.is_trapping() {
            for &(space, _, flag) in &prepared {
                let group = Group {
                    space,
                    origin: Origin::Register(*register),
                    guard: None,
                    anchor: *offset,
                    align: width,
                    end: width,
                    stretch: 0,
                };
                self.check_tagged(instruction, &group, flag, low);
            }
        }
        let mut before = String::new();
        let mut after = String::new();
        for (position, operand) in instruction.operands.iter().enumerate() {
            if position != access.operand {
                let text = self.value(instruction, operand)?;
                match position < access.operand {
                    true => before = before + &text + ", ",
                    false => after = after + ", " + &text,
                }
            }
        }
        for (space, number, flag) in prepared {
            let opcode = with_space(instruction, space, Caching::Drop);
            let prefix = prefix(space);
            put_in!(
                self.body,
                "@%wxp{flag} {opcode} {before}[%w{prefix}{number}]{after};"
            );
        }
        Ok(())
    }

    /// In shared and local memory the high word is the tag.
    fn check_tagged(&mut self, instruction: &Instruction<'m>, group: &Group, flag: u32, word: u32) {
        let kind = match group.space {
            Where::Shared => SiteKind::SharedAccess,
            Where::Local => SiteKind::LocalAccess,
            _ => SiteKind::GlobalAccess,
        };
        let also = (".and", format!(", %wxp{flag}"));
        self.check_alone(instruction, kind, group, word, also);
    }

    /// `cvta` and `isspacep`, on offsets and tags.
    pub(super) fn convert_address(&mut self, instruction: &Instruction<'m>) -> Result<(), Error> {
        let refused = |reason| refuse(&spelled(instruction), reason, instruction.at);
        let [into, from] = &instruction.operands[..] else {
            return Err(refused("it takes two operands"));
        };
        let has = |word| instruction.modifiers.contains(&word);
        let tag = match (
            has("shared") || has("shared::cta"),
            has("local"),
            has("global"),
        ) {
            (true, false, false) => Some(SHARED_TAG),
            (false, true, false) => Some(LOCAL_TAG),
            (false, false, true) => None,
            _ => return Err(refused("it names no space")),
        };
        let target = self.value(instruction, into)?;
        let constant = match from {
            Value::Variable(id, _) => self.plan.program.variables[*id].space != Space::Global,
            _ => false,
        };
        let source = self.value(instruction, from)?;
        let guard = self.guard(instruction.guard);
        if instruction.opcode == "isspacep" {
            let double = self.used.double();
            put_in!(self.body, "shr.u64 %wxd{double}, {source}, 32;");
            match tag {
                Some(tag) => put_in!(
                    self.body,
                    "{guard}setp.eq.u64 {target}, %wxd{double}, {tag};"
                ),
                None => {
                    let flag = self.used.flag();
                    put_in!(
                        self.body,
                        "setp.ne.u64 %wxp{flag}, %wxd{double}, {SHARED_TAG};"
                    );
                    put_in!(
                        self.body,
                        "{guard}setp.ne.and.u64 {target}, %wxd{double}, {LOCAL_TAG}, %wxp{flag};"
                    );
                }
            }
            return Ok(());
        }
        if has("u32") {
            return Err(refused("addresses have 64 bits"));
        }
        match (tag, has("to")) {
            (None, _) => put_in!(self.body, "{guard}mov.b64 {target}, {source};"),
            (Some(_), true) => put_in!(self.body, "{guard}and.b64 {target}, {source}, {LOW_WORD};"),
            (Some(tag), false) if constant && !source.starts_with('%') => {
                let offset = source.parse::<i64>().unwrap_or(0);
                put_in!(
                    self.body,
                    "{guard}mov.b64 {target}, {};",
                    u64::from(low(offset)) | tag << 32
                );
            }
            (Some(tag), false) => {
                let double = self.used.double();
                put_in!(self.body, "and.b64 %wxd{double}, {source}, {LOW_WORD};");
                put_in!(
                    self.body,
                    "{guard}or.b64 {target}, %wxd{double}, {};",
                    tag << 32
                );
            }
        }
        Ok(())
    }
}

/// The tag of a generic address in shared memory.
const SHARED_TAG: u64 = 1;
/// The tag of a generic address in local memory.
const LOCAL_TAG: u64 = 2;
const LOW_WORD: u64 = 0xffff_ffff;
