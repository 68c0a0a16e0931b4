//! Lowering: a validated program's tree to the code of one entry. Total: what it does not know it refuses with the line and
//! the instruction; whatever it lets through, the interpreter runs.

mod access;
mod alias;
mod bits;
mod call;
mod compare;
mod control;
mod convert;
mod float;
mod function;
mod integer;
mod layout;
mod matrix;
mod movement;
mod operand;
mod phase;
mod scope;
mod slots;
mod types;

use std::collections::{HashMap, HashSet};

use ptx::Validated;

use crate::error::Error;

use super::code::{FunctionCode, Guard, Image, Preset};
use super::heap::{HEAP_ALIGN, HEAP_BYTES};
use function::{Interface, Lowering, Program};
use layout::{Layout, Reach};

/// Most instructions of an entry with all that it calls: 32 MiB of code, which a text of the longest length can just reach.
const MAX_CODE: usize = 1 << 20;
/// Most registers of a kind that a function uses. Each takes 128 or 256 bytes of a warp; compilers' largest kernels, before
/// register allocation, have a few thousand.
const MAX_SLOTS: u16 = 1 << 13;
/// Most blocks of a cluster: what a GPU of compute capability 9.0 can be asked for.
const MAX_CLUSTER_BLOCKS: u64 = 16;
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
    /// Bytes of the arena that kernels may allocate from, which follows them.
    pub(super) heap_bytes: u64,
    /// What they hold at first where that is not zero, by offset.
    pub(super) values: Vec<(u64, Vec<u8>)>,
}

/// Lays out a module's `.global` variables.
///
/// # Errors
/// [`Error::Unsupported`] for an initial value that has no meaning here.
pub(super) fn variables(program: &Validated) -> Result<Variables, Error> {
    let layout = Layout::of(program.module())?;
    let module = program.module();
    let uses_heap = module
        .functions()
        .any(|function| module.text(function.name) == "malloc" && function.body.is_none());
    let (align, heap_bytes) = if uses_heap {
        (HEAP_ALIGN, HEAP_BYTES)
    } else {
        (1, 0)
    };
    Ok(Variables {
        bytes: layout.global_bytes.next_multiple_of(align),
        heap_bytes,
        values: layout.global_values,
    })
}

/// That there is no entry of a name, and some of those that there are.
pub(super) fn missing<'a>(
    name: &str,
    entries: impl IntoIterator<Item = &'a ptx::Signature>,
) -> Error {
    let entries: Vec<_> = entries
        .into_iter()
        .take(MAX_SHOWN_ENTRIES)
        .map(|entry| ptx::Excerpt::new(&entry.entry).to_string())
        .collect();
    Error::EntryMissing {
        name: name.into(),
        entries: entries.join(", "),
    }
}

/// Lowers an entry and all that it calls.
///
/// # Errors
/// [`Error::EntryMissing`], or [`Error::Unsupported`] with the first thing that has no meaning here.
pub(super) fn lower(program: &Validated, entry: &str) -> Result<Image, Error> {
    let missing = || missing(entry, program.entries());
    let signature = program.entry(entry).ok_or_else(missing)?;
    let root = program.function(entry).ok_or_else(missing)?;
    let module = program.module();
    let mut layout = Layout::of(module)?;
    let Reach { functions, taken } = Reach::of(program, root);
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
    // Where only the launch would say how large a cluster is, it is one block.
    let cluster = signature
        .cluster
        .unwrap_or_default()
        .map(|blocks| blocks.max(1));
    let blocks = cluster
        .iter()
        .map(|&blocks| u64::from(blocks))
        .product::<u64>();
    if blocks > MAX_CLUSTER_BLOCKS {
        let what = format!("a cluster of {blocks} blocks");
        return Err(unsupported(signature.line, what));
    }
    let mut image = Image::default();
    let mut callees = HashMap::new();
    for (number, (function, interface)) in (0..).zip(functions.iter().zip(&interfaces)) {
        let address = layout.functions.get(&function.name);
        if let Some(&address) = address.filter(|_| taken.contains(&function.name)) {
            let list: usize = *callees.entry(interface.clone()).or_insert_with(|| {
                image.callees.push(Vec::new());
                image.callees.len() - 1
            });
            image.callees[list].push((address, number));
        }
    }
    image
        .callees
        .iter_mut()
        .for_each(|list| list.sort_unstable());
    let whole = Program {
        module,
        layout: &layout,
        numbers: &numbers,
        interfaces: &interfaces,
        program,
        cluster,
        callees: &callees,
        parameter_bytes: signature.size,
    };
    for (number, function) in functions.iter().enumerate() {
        let code = Lowering::run(&whole, &mut image, number, function)?;
        image.functions.push(code);
    }
    complete_entry(&mut image.functions)?;
    image.static_shared_bytes = layout.shared_bytes;
    image.cluster = cluster;
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
