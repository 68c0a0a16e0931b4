//! The rewriter: a guest's program to a text that reaches that guest's memory only and ends in time, as `docs/confinement.md` has it.
//! Nothing relies on it: what it prints is verified before any device loads it.
//!
//! `names` resolves the tree, `check` refuses, `fold` names variables that registers reach; the layouts (`globals`, `blocks`, `calls`) and analyses
//! (`access`, `leftover`, `registers`) look at whole functions; `aligned` knows which addresses need no check, `ahead` what may come early; `emit` writes statements with `control` and, for memory, `address`, `strays` and
//! `tagged`; `head`, `clear` and `tail` write what is around them.

mod access;
mod address;
mod ahead;
mod aligned;
mod blocks;
mod calls;
mod check;
mod clear;
mod control;
mod emit;
mod flow;
mod fold;
mod globals;
mod head;
mod leftover;
mod names;
mod registers;
mod strays;
mod tagged;
mod tail;
mod text;

use crate::ast::Module;
use crate::confined::{ConfineOptions, Confined, ConfinedEntry, ConfinedMap};
use crate::error::Error;
use crate::validate::Validated;

use access::{Places, Ways};
use blocks::{Blocks, Shared};
use emit::{Emitter, Plan, Shares};
use names::Program;
use text::{Text, put};

/// Rewrites a program so that it is confined.
///
/// # Errors
/// The first thing in the program that cannot be confined: see [`ErrorKind::Unconfined`](crate::ErrorKind::Unconfined).
pub fn confine(program: &Validated, options: ConfineOptions) -> Result<Confined, Error> {
    let module = program.module();
    check::check_parameters(program)?;
    let mut resolved = names::resolve(module)?;
    check::check(&resolved)?;
    fold::fold_addresses(&mut resolved)?;
    check::leave_out_unread(&mut resolved);
    let images = globals::lay_out(&resolved)?;
    let graph = calls::graph(&resolved)?;
    let (locals, frame_sizes) = blocks::frames(&resolved);
    let places = Places {
        images: &images,
        locals: &locals,
        has_tags: check::makes_tags(&resolved),
    };
    let mut calls = Vec::new();
    let mut ways = Vec::new();
    for code in &resolved.functions {
        let of_function = calls::calls(code, &graph)?;
        ways.push(access::ways(&resolved, &places, code, &of_function)?);
        calls.push(of_function);
    }
    let blocks = blocks::lay_out(
        &resolved,
        &graph,
        &frame_sizes,
        images.constants.len(),
        &ways,
    )?;
    let of_function = |code: &names::Code<'_>| flow::weights(&code.statements).last().copied();
    let weights: Vec<_> = resolved
        .functions
        .iter()
        .map(|code| of_function(code).unwrap_or(1))
        .collect();
    let plan = Plan {
        program: &resolved,
        options,
        images: &images,
        locals: &locals,
        graph: &graph,
        blocks: &blocks,
        weights: &weights,
    };
    let mut shares = Shares::default();
    let (mut declarations, mut functions) = (Text::default(), Text::default());
    let is_called = graph.reached(|place| resolved.functions[place].is_entry());
    let functions_to_print = resolved.functions.iter().enumerate();
    // What no entry calls has no room for its frame in an entry's.
    for (place, code) in functions_to_print.filter(|&(place, _)| is_called[place]) {
        let mut emitter = Emitter::new(&plan, place, &ways[place], &calls[place], &mut shares);
        emitter.statements()?;
        if !code.is_entry() {
            emitter.declaration(&mut declarations);
        }
        let unwritten = registers::unwritten(code, &ways[place]);
        let unstored = leftover::unstored(code, &ways[place], &blocks, &locals);
        emitter.assemble(&unwritten, &unstored, &mut functions);
    }
    let mut text = Text::default();
    header(&mut text, module, &images.constants, &blocks, &ways);
    text.append(declarations);
    text.append(functions);
    let (text, lines) = text.finish();
    let entries = entries(program, &resolved, &blocks);
    Ok(Confined {
        text,
        map: ConfinedMap {
            entries,
            sites: shares.sites,
            globals: images.globals,
            lines,
        },
    })
}

/// The newest version that is printed: everything in the table of instructions is of it or older, and so are the drivers' compilers.
const NEWEST_VERSION: (u32, u32) = (9, 0);

/// What stands before the functions.
fn header(text: &mut Text, module: &Module, constants: &[u8], blocks: &Blocks, ways: &[Ways]) {
    let (major, minor) = module.version;
    let (major, minor) = (major, minor).min(NEWEST_VERSION);
    put!(text, ".version {major}.{minor}");
    let target = module
        .target
        .first()
        .map_or("sm_75", |&name| module.text(name));
    put!(text, ".target {target}");
    put!(text, ".address_size 64");
    let uses_constants = ways.iter().any(|ways| {
        ways.groups
            .iter()
            .any(|group| group.space == access::Where::Const)
    });
    if !constants.is_empty() || uses_constants {
        let bytes: Vec<_> = constants.iter().map(u8::to_string).collect();
        let size = blocks.constant.size;
        put!(text, "");
        match bytes.is_empty() {
            true => put!(text, ".const .align 64 .b8 wc_const[{size}];"),
            false => put!(
                text,
                ".const .align 64 .b8 wc_const[{size}] = {{{}}};",
                bytes.join(", ")
            ),
        }
    }
    for (number, block) in blocks.declared.iter().enumerate() {
        put!(text, "");
        put!(
            text,
            ".shared .align 128 .b8 wc_shared{number}[{}];",
            block.size
        );
    }
    if blocks.has_dynamic {
        put!(text, "");
        put!(text, ".extern .shared .align 128 .b8 wc_dynamic[];");
    }
}

fn entries(program: &Validated, resolved: &Program<'_>, blocks: &Blocks) -> Vec<ConfinedEntry> {
    let of_entries = resolved
        .functions
        .iter()
        .enumerate()
        .filter(|(_, code)| code.is_entry());
    of_entries
        .zip(program.entries())
        .map(|((place, code), signature)| ConfinedEntry {
            signature: signature.clone(),
            printed: format!("g{}", code.number),
            shared_before_dynamic: match blocks.shared_of[place] {
                Some(Shared::Dynamic { before, .. }) => before,
                _ => 0,
            },
        })
        .collect()
}
