//! Whether a confined text is what `docs/confinement.md` says: the part of confinement that is trusted. It shares the parser and
//! the printer with the rewriter, nothing else; what it printed it reads again.
//!
//! Default deny: what no table or idiom in these files names is refused. `text.rs` looks at the module, `body.rs` goes through a function once,
//! with `table.rs` (instructions), `idiom.rs` (what may be written to reserved registers, which makes a `fact.rs`), `access.rs` (memory),
//! `control.rs` (branches) and `time.rs` beside it; `flow.rs` then asks for unwritten registers and `calls.rs` for the depth of calls.

mod access;
mod body;
mod calls;
mod control;
mod fact;
mod flow;
mod idiom;
mod table;
mod text;
mod time;

use std::collections::HashSet;

use crate::ast::{Function, FunctionKind, Item, Module, Position, Statement};
use crate::confined::{Confined, ConfinedMap, LaunchNeeds, Verified, WindowForm};
use crate::error::{Error, Excerpt, VerifyError, VerifyErrorKind};
use crate::parser::parse;
use crate::print::print;
use crate::signature::{Parameter, Signature};
use crate::validate::{Validated, read};

use body::{Body, Summary};
use text::Text;

/// The parameters that every entry ends in: name, bytes and register.
pub(crate) const HIDDEN: [(&str, u32, &str); 9] = [
    ("wc_base", 8, "%wbase"),
    ("wc_control", 8, "%wctl"),
    ("wc_stop", 8, "%wstop"),
    ("wc_until", 8, "%wuntil"),
    ("wc_globals", 4, "%wglob"),
    ("wc_mask", 4, "%wmask"),
    ("wc_first", 4, "%wfirst"),
    ("wc_span", 4, "%wspan"),
    ("wc_token", 4, "%wtok"),
];

/// Reads a confined text again, prints its tree and accepts what was printed only where each of its statements is of a kind that cannot leave
/// the guest's memory or go on for ever. What is printed is what a device loads, and the map's lines are its lines: of the text nothing is
/// left that is not in the tree.
///
/// # Errors
/// The first statement that is not.
pub fn verify(confined: Confined) -> Result<Verified, VerifyError> {
    let Confined { text, mut map } = confined;
    let written = parse(text.as_bytes()).map_err(unreadable)?;
    let printed = print(&written);
    let program = read(printed.as_bytes()).map_err(unreadable)?;
    let origins = origins(&written, program.module());
    let (needs, window) = check(&program, &printed, &map).map_err(|error| {
        let index = usize::try_from(error.line)
            .unwrap_or(usize::MAX)
            .wrapping_sub(1);
        let line = origins.get(index).copied().unwrap_or(error.line);
        VerifyError { line, ..error }
    })?;
    map.lines = origins
        .iter()
        .map(|&line| {
            let index = usize::try_from(line).unwrap_or(usize::MAX).wrapping_sub(1);
            map.lines.get(index).copied().unwrap_or(0)
        })
        .collect();
    Ok(Verified::new(program, map, needs, window))
}

fn unreadable(error: Error) -> VerifyError {
    VerifyError {
        line: error.line,
        kind: VerifyErrorKind::Unreadable { error },
    }
}

/// By line of what was printed, the line that it was printed for; 0 where there is none. Only for messages.
fn origins(written: &Module, printed: &Module) -> Vec<u32> {
    let mut origins = Vec::new();
    let mut pair = |from: Position, to: Position| {
        let Some(index) = usize::try_from(to.line)
            .ok()
            .and_then(|line| line.checked_sub(1))
        else {
            return;
        };
        if origins.len() <= index {
            origins.resize(index + 1, 0);
        }
        origins[index] = from.line;
    };
    for (from, to) in written.items.iter().zip(&printed.items) {
        match (from, to) {
            (Item::Variable(from), Item::Variable(to)) => pair(from.at, to.at),
            (Item::Function(from), Item::Function(to)) => {
                pair(from.at, to.at);
                for (from, to) in from.params.iter().zip(&to.params) {
                    pair(from.at, to.at);
                }
                let statements = |function: &Function| {
                    let body = function.body.as_ref();
                    body.map_or(Vec::new(), |body| {
                        body.statements.iter().map(Statement::at).collect()
                    })
                };
                for (from, to) in statements(from).into_iter().zip(statements(to)) {
                    if let (Some(from), Some(to)) = (from, to) {
                        pair(from, to);
                    }
                }
            }
            _ => {}
        }
    }
    origins
}

/// What the entries need and which windows they run on, if all is as it has to be.
fn check(
    program: &Validated,
    printed: &str,
    map: &ConfinedMap,
) -> Result<(Vec<LaunchNeeds>, WindowForm), VerifyError> {
    let text = Text::new(program.module(), printed)?;
    let functions = text
        .functions
        .iter()
        .map(|function| Body::new(&text, function)?.check())
        .collect::<Result<Vec<Summary>, _>>()?;
    let nesting = calls::nesting(&text, &functions)?;
    let window = match functions.iter().any(|function| function.is_whole) {
        true => WindowForm::Whole,
        false => WindowForm::Masked,
    };
    Ok((entries(program, map, &text, &nesting)?, window))
}

/// What each entry of the map needs, which has to be an entry of the text with the same parameters.
fn entries(
    program: &Validated,
    map: &ConfinedMap,
    text: &Text<'_>,
    nesting: &[LaunchNeeds],
) -> Result<Vec<LaunchNeeds>, VerifyError> {
    let mut seen = HashSet::new();
    let mut needs = Vec::with_capacity(map.entries.len());
    for entry in &map.entries {
        let wrong = |line| {
            let name = Excerpt::new(&entry.printed);
            VerifyErrorKind::Entry { name }.at(line)
        };
        let printed = program.entry(&entry.printed).ok_or_else(|| wrong(0))?;
        if !seen.insert(&entry.printed) || !takes(printed, &entry.signature) {
            return Err(wrong(printed.line));
        }
        let index = text
            .functions
            .iter()
            .position(|function| text.module.text(function.name) == entry.printed);
        needs.push(index.map_or_else(LaunchNeeds::default, |index| nesting[index]));
    }
    let entries = text.functions.iter();
    match entries
        .filter(|function| function.kind == FunctionKind::Entry)
        .find(|function| !seen.contains(&text.module.text(function.name).to_owned()))
    {
        Some(function) => {
            let name = Excerpt::new(text.module.text(function.name));
            Err(VerifyErrorKind::Entry { name }.at(function.at.line))
        }
        None => Ok(needs),
    }
}

/// Whether a printed entry takes the guest's parameters where the guest's entry does, and the hidden ones behind them.
fn takes(printed: &Signature, guest: &Signature) -> bool {
    let Some(count) = printed.parameters.len().checked_sub(HIDDEN.len()) else {
        return false;
    };
    let (own, hidden) = printed.parameters.split_at(count);
    let place = |parameter: &Parameter| (parameter.offset, parameter.size, parameter.align);
    own.iter().map(place).eq(guest.parameters.iter().map(place))
        && hidden
            .iter()
            .zip(HIDDEN)
            .all(|(parameter, (name, bytes, _))| {
                let declared = format!(".u{}", bytes * 8);
                parameter.name == name
                    && parameter.size == bytes
                    && parameter.align == bytes
                    && parameter.declared == declared
            })
}
