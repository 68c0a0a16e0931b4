//! Lowering: a validated program's tree to the code of one entry. Total: what it does not know it refuses with the line and
//! the instruction; whatever it lets through, the interpreter runs.

mod access;
mod alias;
mod bits;
mod compare;
mod control;
mod convert;
mod float;
mod function;
mod integer;
mod layout;
mod movement;
mod operand;
mod scope;
mod slots;
mod types;

use std::collections::{HashMap, HashSet};

use ptx::Validated;

use crate::error::Error;

use super::code::{FunctionCode, Guard, Image, Preset};
use function::{Interface, Lowering, Program};
use layout::{Layout, reachable};

/// Most instructions of an entry with all that it calls: 32 MiB of code, which a text of the longest length can just reach.
const MAX_CODE: usize = 1 << 20;
/// Most registers of a kind that a function uses. Each takes 128 or 256 bytes of a warp; compilers' largest kernels, before
/// register allocation, have a few thousand.
const MAX_SLOTS: u16 = 1 << 13;
const _: () = assert!(MAX_SLOTS <= Guard::MAX_SLOT);

/// Most entries that a message lists.
const MAX_SHOWN_ENTRIES: usize = 64;

fn unsupported(line: u32, what: String) -> Error {
    Error::Unsupported {
        device: "cpu",
        line,
        what,
    }
}

/// The `.global` variables of a module.
#[derive(Debug)]
pub(super) struct Variables {
    pub(super) bytes: u64,
    /// What they hold at first where that is not zero, by offset.
    pub(super) values: Vec<(u64, Vec<u8>)>,
}

/// Lays out a module's `.global` variables.
///
/// # Errors
/// [`Error::Unsupported`] for an initial value that has no meaning here.
pub(super) fn variables(program: &Validated) -> Result<Variables, Error> {
    let layout = Layout::of(program.module())?;
    Ok(Variables {
        bytes: layout.global_bytes,
        values: layout.global_values,
    })
}

/// Lowers an entry and all that it calls.
///
/// # Errors
/// [`Error::EntryMissing`], or [`Error::Unsupported`] with the first thing that has no meaning here.
pub(super) fn lower(program: &Validated, entry: &str) -> Result<Image, Error> {
    let missing = || {
        let entries: Vec<_> = program
            .entries()
            .iter()
            .take(MAX_SHOWN_ENTRIES)
            .map(|entry| ptx::Excerpt::new(&entry.entry).to_string())
            .collect();
        Error::EntryMissing {
            name: entry.into(),
            entries: entries.join(", "),
        }
    };
    let signature = program.entry(entry).ok_or_else(missing)?;
    let root = program.function(entry).ok_or_else(missing)?;
    let module = program.module();
    let mut layout = Layout::of(module)?;
    let functions = reachable(program, root);
    for (number, function) in functions.iter().enumerate() {
        let statements = function
            .body
            .as_ref()
            .map_or(&[][..], |body| &body.statements);
        layout.shared_of(module, number, statements)?;
    }
    layout.close_shared();
    let numbers: HashMap<_, _> = functions
        .iter()
        .enumerate()
        .map(|(number, function)| (function.name, number))
        .collect();
    let mut interfaces = Vec::new();
    for function in &functions {
        let refuse = || {
            unsupported(
                function.at.line,
                format!("the parameters of `{}`", module.text(function.name)),
            )
        };
        interfaces.push(Interface::of(function).ok_or_else(refuse)?);
    }
    let clustered = signature
        .cluster
        .is_some_and(|cluster| cluster.iter().any(|&blocks| blocks > 1));
    let whole = Program {
        module,
        layout: &layout,
        numbers: &numbers,
        interfaces: &interfaces,
        program,
        clustered,
        parameter_bytes: signature.size,
    };
    let mut image = Image::default();
    for (number, function) in functions.iter().enumerate() {
        let code = Lowering::run(&whole, &mut image, number, function)?;
        image.functions.push(code);
    }
    complete_entry(&mut image.functions)?;
    image.static_shared_bytes = layout.shared_bytes;
    image.const_bytes = layout.const_bytes;
    Ok(image)
}

/// Callees copy the values of special registers from the entry's frame, so it has all that they use.
fn complete_entry(functions: &mut [FunctionCode]) -> Result<(), Error> {
    let Some((entry, others)) = functions.split_first_mut() else {
        return Ok(());
    };
    let mut known: HashSet<_> = entry.words.iter().map(|&(_, preset)| preset).collect();
    for &(_, preset) in others.iter().flat_map(|function| &function.words) {
        if matches!(preset, Preset::Value(_) | Preset::Parameter(_)) || !known.insert(preset) {
            continue;
        }
        let slot = u16::try_from(entry.size.words)
            .ok()
            .filter(|&slot| slot < MAX_SLOTS);
        let refuse = || {
            unsupported(
                0,
                format!("a function that uses more than {MAX_SLOTS} registers of a kind"),
            )
        };
        entry.words.push((slot.ok_or_else(refuse)?, preset));
        entry.size.words += 1;
    }
    Ok(())
}
