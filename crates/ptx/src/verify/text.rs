//! The module around the functions: header, blocks and names.

use std::collections::{HashMap, HashSet};

use super::fact::Place;
use crate::ast::{
    Function, FunctionKind, Immediate, Initializer, Item, Linkage, Module, ScalarType, Space,
    Statement, Symbol, Variable,
};
use crate::error::{Excerpt, VerifyError, VerifyErrorKind};
use crate::limits::{MAX_CONFINED_FUNCTIONS, MAX_CONFINED_PROGRAM, MAX_CONFINED_STATEMENTS};

/// The block of local memory of an entry.
pub(super) const LOCAL: &str = "wc_local";

/// Alignment of blocks, and of the one of constants.
const BLOCK_ALIGN: u32 = 128;
const CONST_ALIGN: u32 = 64;

/// Directives of an entry: none lets the assembler assume what a launch need not keep.
const DIRECTIVES: [&str; 4] = ["maxnreg", "maxntid", "minnctapersm", "reqntid"];

/// A module whose top level is as it has to be.
#[derive(Debug)]
pub(super) struct Text<'t> {
    pub(super) module: &'t Module,
    lines: Vec<&'t str>,
    /// Every name of the top level; those of blocks with the block.
    pub(super) names: HashMap<Symbol, Option<Place>>,
    /// The functions that have a body, in order.
    pub(super) functions: Vec<&'t Function>,
    /// Their positions.
    pub(super) definitions: HashMap<Symbol, usize>,
    /// Bytes of each entry's local block.
    pub(super) local_bytes: u32,
}

impl<'t> Text<'t> {
    pub(super) fn new(module: &'t Module, text: &'t str) -> Result<Self, VerifyError> {
        let mut this = Self {
            module,
            lines: text.lines().collect(),
            names: HashMap::new(),
            functions: Vec::new(),
            definitions: HashMap::new(),
            local_bytes: 0,
        };
        let is_target = |name: &str| {
            let digits = name.strip_prefix("sm_").unwrap_or_default();
            let digits = digits.strip_suffix(['a', 'f']).unwrap_or(digits);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        match module.target.as_slice() {
            [target] if is_target(module.text(*target)) => {}
            _ => {
                return Err(VerifyErrorKind::Declaration {
                    name: Excerpt::new(".target"),
                }
                .at(2));
            }
        }
        let mut rank = 0;
        for item in &module.items {
            rank = this.item(item, rank)?;
        }
        for function in module.functions() {
            if !this.definitions.contains_key(&function.name) {
                return Err(this.declaration(function.name, function.at.line));
            }
        }
        this.local_bytes = this.local_bytes()?;
        Ok(this)
    }

    /// What a line says.
    pub(super) fn line(&self, line: u32) -> &'t str {
        let index = usize::try_from(line).unwrap_or(usize::MAX).wrapping_sub(1);
        self.lines.get(index).map_or("", |line| line.trim_start())
    }

    /// The refusal of a declaration.
    pub(super) fn declaration(&self, name: Symbol, line: u32) -> VerifyError {
        let name = Excerpt::new(self.module.text(name));
        VerifyErrorKind::Declaration { name }.at(line)
    }

    /// One item, which is of no lower rank than the ones before; returns its rank.
    fn item(&mut self, item: &'t Item, before: u32) -> Result<u32, VerifyError> {
        let (rank, name, line) = match item {
            Item::Alias { name, at, .. } => return Err(self.declaration(*name, at.line)),
            Item::Function(function) => (self.function(function)?, function.name, function.at.line),
            Item::Variable(variable) => {
                let (rank, place) = self
                    .block(variable)
                    .ok_or_else(|| self.declaration(variable.name, variable.at.line))?;
                self.names.insert(variable.name, Some(place));
                (rank, variable.name, variable.at.line)
            }
        };
        match rank >= before {
            true => Ok(rank),
            false => Err(self.declaration(name, line)),
        }
    }

    /// The rank and place of a block that may be at the top level.
    fn block(&self, variable: &Variable) -> Option<(u32, Place)> {
        let name = self.module.text(variable.name);
        let is_bytes = variable.ty == ScalarType::B8
            && variable.vector.is_none()
            && variable.pointer.is_none()
            && variable.dimensions.len() == 1;
        if !is_bytes || self.names.contains_key(&variable.name) {
            return None;
        }
        let rank = match (variable.space, variable.linkage) {
            (Space::Const, Linkage::Internal) if name == "wc_const" => 1,
            (Space::Shared, Linkage::Internal) => {
                let number = name.strip_prefix("wc_shared")?;
                if !is_number(number) || variable.initializer.is_some() {
                    return None;
                }
                2
            }
            (Space::Shared, Linkage::Extern) if name == "wc_dynamic" => 3,
            _ => return None,
        };
        let align = if rank == 1 { CONST_ALIGN } else { BLOCK_ALIGN };
        if variable.align != Some(align) {
            return None;
        }
        let is_byte = |value: &Initializer| {
            matches!(value, Initializer::Immediate(Immediate::Integer(0..=255)))
        };
        match &variable.initializer {
            None => {}
            Some(Initializer::List(values)) if values.iter().all(is_byte) => {}
            Some(_) => return None,
        }
        let place = match (rank, variable.dimensions.as_slice()) {
            (3, [None]) => Place::Dynamic,
            (1 | 2, [Some(bytes)]) => Place::Block {
                space: variable.space,
                bytes: u32::try_from(*bytes).ok()?,
                align,
            },
            _ => return None,
        };
        Some((rank, place))
    }

    /// The interface of a function; returns its rank.
    fn function(&mut self, function: &'t Function) -> Result<u32, VerifyError> {
        let line = function.at.line;
        let wrong = self.declaration(function.name, line);
        let is_entry = function.kind == FunctionKind::Entry;
        let has_linkage = match function.linkage {
            Linkage::Internal => true,
            Linkage::Visible => is_entry,
            _ => false,
        };
        let allowed = if is_entry { &DIRECTIVES[..] } else { &[] };
        let has_directives = function
            .directives
            .iter()
            .all(|directive| allowed.contains(&self.module.text(directive.name)));
        if !has_linkage || !has_directives || !is_guests(self.module.text(function.name)) {
            return Err(wrong);
        }
        let declared = self.names.insert(function.name, None);
        let Some(body) = &function.body else {
            return match is_entry || declared.is_some() {
                true => Err(wrong),
                false => Ok(4),
            };
        };
        self.definitions.insert(function.name, self.functions.len());
        self.functions.push(function);
        check_limit(
            "functions",
            self.functions.len(),
            MAX_CONFINED_FUNCTIONS,
            line,
        )?;
        check_limit(
            "statements of a function",
            body.statements.len(),
            MAX_CONFINED_STATEMENTS,
            line,
        )?;
        let all = self
            .functions
            .iter()
            .filter_map(|function| function.body.as_ref())
            .map(|body| body.statements.len());
        check_limit("statements", all.sum(), MAX_CONFINED_PROGRAM, line)?;
        Ok(5)
    }

    /// The bytes of the entries' local blocks, which are one to functions that are called.
    fn local_bytes(&self) -> Result<u32, VerifyError> {
        let mut all = HashSet::new();
        for function in &self.functions {
            for statement in function.body.iter().flat_map(|body| &body.statements) {
                let Statement::Variable(variable) = statement else {
                    continue;
                };
                if variable.space != Space::Local {
                    continue;
                }
                let is_block = function.kind == FunctionKind::Entry
                    && self.module.text(variable.name) == LOCAL
                    && variable.ty == ScalarType::B8
                    && variable.vector.is_none()
                    && variable.align == Some(BLOCK_ALIGN)
                    && variable.dimensions.len() == 1
                    && variable.initializer.is_none();
                let bytes = variable.bytes().and_then(|bytes| u32::try_from(bytes).ok());
                match bytes {
                    Some(bytes) if is_block => drop(all.insert(bytes)),
                    _ => return Err(self.declaration(variable.name, variable.at.line)),
                }
                if all.len() > 1 {
                    return Err(self.declaration(variable.name, variable.at.line));
                }
            }
        }
        Ok(all.into_iter().next().unwrap_or(0))
    }

    /// The local block.
    pub(super) fn local(&self) -> Place {
        Place::Block {
            space: Space::Local,
            bytes: self.local_bytes,
            align: BLOCK_ALIGN,
        }
    }
}

/// Whether something is `g` and a number.
pub(super) fn is_guests(name: &str) -> bool {
    name.strip_prefix('g').is_some_and(is_number)
}

/// Whether something is digits only.
pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Refuses more of something than is taken.
pub(super) fn check_limit(
    what: &'static str,
    count: usize,
    limit: usize,
    line: u32,
) -> Result<(), VerifyError> {
    match count > limit {
        true => Err(VerifyErrorKind::Limit {
            what,
            limit: limit as u64,
        }
        .at(line)),
        false => Ok(()),
    }
}
