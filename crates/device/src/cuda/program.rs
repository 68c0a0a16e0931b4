//! From an admitted text to entries that are ready to launch: everything that can be asked, checked or put onto the device is, once,
//! when the text is loaded.

use std::borrow::Cow;
use std::ffi::CString;
use std::fmt::Write;
use std::sync::Arc;

use cust::sys::CUfunction_attribute as Attribute;
use ptx::ast::{Item, Space, Statement};
use ptx::{Admitted, Signature, Trust, Validated, Verified};

use super::compiler::{Compilers, Uncompiled};
use super::core::Core;
use super::jit::{self, Logs};
use super::module::{Binary, Code, Extent, Function, Image};
use super::occupancy::Occupancy;
use super::stack::{self, stack_bytes};
use crate::confinement::Confinement;
use crate::device::{Attributes, Module, Program};
use crate::error::Error;
use crate::launch::Launch;

/// A loaded text: all its entries, in the order in which it has them. Two guests whose confined texts are the same share it, whatever they
/// called what is in it.
#[derive(Debug)]
pub(super) struct Loaded {
    entries: Vec<Arc<Entry>>,
}

/// One entry.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) function: Function,
    /// As the text has it; that of a confined one ends in the hidden parameters.
    pub(super) attributes: Attributes,
    pub(super) occupancy: Occupancy,
}

/// The text of a program that may go to the driver as it is.
///
/// This is the one place that decides. The device checks no access: either the text was verified to stay in its guest's memory, and then it is
/// that text to the byte, or the embedder answers for it.
pub(super) fn text_of(program: &Admitted) -> Result<Cow<'_, str>, Error> {
    let refuse = |reason: &str| {
        Err(Error::NotAvailable {
            reason: reason.into(),
        })
    };
    let validated = program.program();
    match (program.trust(), validated.source()) {
        (Trust::Trusted | Trust::Confined, Some(text)) => Ok(text.into()),
        (Trust::Trusted, None) => Ok(ptx::print(validated.module()).into()),
        (Trust::Confined, None) => refuse("the text that was verified is not there"),
        (Trust::Checked, _) => refuse(
            "the CUDA device does not check what a kernel accesses; it runs kernels that are confined or that the embedder vouches for",
        ),
    }
}

/// Whether kernels can leave something behind in the module: then every load needs its own.
pub(super) fn has_state(program: &Validated) -> bool {
    let is_state = |space: Space| space == Space::Global;
    program.module().items.iter().any(|item| match item {
        Item::Variable(variable) => is_state(variable.space),
        Item::Function(function) => function.body.iter().flat_map(|body| &body.statements).any(|statement| {
            matches!(statement, Statement::Variable(variable) if is_state(variable.space))
        }),
        Item::Alias { .. } => false,
    })
}

impl Loaded {
    /// Compiles a text, by `compilers` where there are any, and makes its entries ready. `lines` are those of the guest's text that the
    /// lines of a confined one were made from.
    pub(super) fn load(
        core: &Core,
        compilers: Option<&Compilers>,
        text: &str,
        program: &Validated,
        lines: Option<&[u32]>,
    ) -> Result<Self, Error> {
        core.context.enter()?;
        let refusal = |failure, log: String| {
            let log = lines.map_or(log.clone(), |lines| jit::in_guest_lines(&log, lines));
            jit::refusal(failure, &log)
        };
        let mut logs = Logs::new();
        let loading;
        let binary = match compilers {
            None => {
                let text = CString::new(text).map_err(|_| Error::Compile {
                    log: "the text holds a NUL".into(),
                })?;
                loading = core.gate.close();
                Binary::load(&core.context, Code::Text(&text), &mut logs)
            }
            Some(compilers) => {
                let compiled = if has_state(program) {
                    compilers.compile_and_keep(text)
                } else {
                    // What is shared is the module.
                    compilers.compile(text).map(Arc::new)
                };
                let compiled = compiled.map_err(|uncompiled| match uncompiled {
                    Uncompiled::Failed(error) => error,
                    // Whatever the code: it is about another process.
                    Uncompiled::Refused { failure, log } => {
                        refusal(failure, log).unwrap_or_else(|| failure.into())
                    }
                })?;
                loading = core.gate.close();
                Binary::load(&core.context, Code::Cubin(&compiled), &mut logs)
            }
        };
        let binary = binary.map_err(|failure| {
            let refusal = refusal(failure, logs.error());
            refusal.unwrap_or_else(|| core.context.error(failure))
        })?;
        tracing::debug!(log = logs.info(), "a module was loaded");
        let image = Image::new(binary, &core.reaper);
        let entries = program.entries().iter();
        let entries =
            entries.map(|signature| Entry::ready(core, &image, signature, lines).map(Arc::new));
        let entries = entries.collect::<Result<_, _>>();
        drop(loading);
        entries.map(|entries| Self { entries })
    }
}

impl Entry {
    fn ready(
        core: &Core,
        image: &Arc<Image>,
        declared: &Signature,
        lines: Option<&[u32]>,
    ) -> Result<Self, Error> {
        let missing = |_| Error::EntryMissing {
            name: declared.entry.clone(),
            entries: "a NUL in a name".into(),
        };
        let name = CString::new(declared.entry.as_str()).map_err(missing)?;
        let function = image.function(&name)?;
        let local_bytes = function.attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
        if let Some(lines) = lines {
            // Before anything is set aside for it, which the device does for all threads that it can run, and for good.
            let index = usize::try_from(declared.line).unwrap_or(0).wrapping_sub(1);
            let line = lines.get(index).copied().unwrap_or(0);
            stack::checked_frame(local_bytes, line)?;
        }
        function.load_eagerly()?;
        let parameters = &declared.parameters;
        if let Some(found) = function.parameters(parameters.len() + 1)? {
            let wanted: Vec<_> = parameters
                .iter()
                .map(|it| (it.offset as usize, it.size as usize))
                .collect();
            same_parameters(declared, &wanted, &found)?;
        }
        let mut signature = declared.clone();
        // What the driver's compiler left of it is what counts against the limit.
        signature.static_shared_bytes =
            function.attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let dynamic = core
            .info
            .limits
            .shared_bytes
            .saturating_sub(signature.static_shared_bytes);
        function.allow_dynamic_shared(dynamic)?;
        if local_bytes > 0 {
            core.context.reserve_local(local_bytes)?;
        }
        let occupancy = Occupancy::new(core.runs_cooperative, core.info.multiprocessors);
        let attributes = Attributes {
            max_threads_per_block: function
                .attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            registers: function.attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes,
            max_cooperative_blocks: occupancy.bound(1, 0, |threads, shared| {
                function.resident_blocks(threads, shared)
            }),
            confinement: None,
            signature,
        };
        Ok(Self {
            function,
            attributes,
            occupancy,
        })
    }
}

/// Refuses an entry whose parameters the driver reads elsewhere than they will be put: it reads them unchecked.
fn same_parameters(
    signature: &Signature,
    declared: &[Extent],
    found: &[Extent],
) -> Result<(), Error> {
    if declared == found {
        return Ok(());
    }
    let at = declared
        .iter()
        .zip(found)
        .position(|(ours, theirs)| ours != theirs);
    let at = at.unwrap_or(declared.len().min(found.len()));
    let say = |extent: Option<&Extent>| match extent {
        Some((offset, size)) => format!("{size} bytes at {offset}"),
        None => "nothing".into(),
    };
    Err(Error::Unsupported {
        device: "cuda",
        line: signature.line,
        what: format!(
            "the parameter layout of `{}` (parameter {at} is {}, to the driver {})",
            signature.entry,
            say(declared.get(at)),
            say(found.get(at)),
        ),
    })
}

/// A loaded text as the device's users see it: under the names of its author.
#[derive(Debug)]
pub(super) struct CudaModule {
    core: Arc<Core>,
    entries: Vec<Named>,
    confined: Option<Verified>,
}

/// An entry, and what its author calls it and knows of it.
#[derive(Debug)]
struct Named {
    attributes: Attributes,
    entry: Arc<Entry>,
}

impl CudaModule {
    /// Enter the context first.
    pub(super) fn new(
        core: &Arc<Core>,
        loaded: Arc<Loaded>,
        confined: Option<&Verified>,
    ) -> Result<Self, Error> {
        let entries = match confined {
            None => loaded.entries.iter().map(Named::as_written).collect(),
            Some(verified) => {
                let entries = verified.map().entries.iter().enumerate();
                let named = entries.map(|(at, of)| {
                    let entries = &loaded.entries;
                    let is_it =
                        |entry: &&Arc<Entry>| entry.attributes.signature.entry == of.printed;
                    let entry = entries
                        .iter()
                        .find(is_it)
                        .ok_or_else(|| missing(&of.printed, entries))?;
                    Named::confined(core, verified, at, entry)
                });
                named.collect::<Result<_, _>>()?
            }
        };
        Ok(Self {
            core: Arc::clone(core),
            entries,
            confined: confined.cloned(),
        })
    }
}

fn missing(name: &str, entries: &[Arc<Entry>]) -> Error {
    Error::EntryMissing {
        name: name.into(),
        entries: list(
            entries
                .iter()
                .map(|entry| entry.attributes.signature.entry.as_str()),
        ),
    }
}

impl Named {
    fn as_written(entry: &Arc<Entry>) -> Self {
        Self {
            attributes: entry.attributes.clone(),
            entry: Arc::clone(entry),
        }
    }

    /// The entry at a position of a confined program. The verifier has seen that it takes what its guest declared and the hidden parameters
    /// behind that; the stack is made large enough here.
    fn confined(
        core: &Core,
        verified: &Verified,
        at: usize,
        entry: &Arc<Entry>,
    ) -> Result<Self, Error> {
        let (of, text) = (&verified.map().entries[at], &entry.attributes);
        let depth = verified.needs(at).call_depth;
        let bytes = stack_bytes(verified.program().module(), depth, text.local_bytes);
        let (name, line) = (&of.signature.entry, of.signature.line);
        let bytes = stack::checked(bytes, name, line, depth)?;
        if bytes > text.local_bytes {
            let _loading = core.gate.close();
            core.context.reserve_local(bytes)?;
        }
        Ok(Self {
            attributes: Attributes {
                confinement: Some(Confinement::of(verified, at)),
                signature: Signature {
                    static_shared_bytes: text.signature.static_shared_bytes,
                    ..of.signature.clone()
                },
                ..text.clone()
            },
            entry: Arc::clone(entry),
        })
    }
}

impl Module for CudaModule {
    fn entry(&self, name: &str) -> Result<Arc<dyn Program>, Error> {
        let entries = &self.entries;
        let is_it = |named: &&Named| named.attributes.signature.entry == name;
        match entries.iter().find(is_it) {
            Some(named) => Ok(Arc::new(CudaProgram {
                core: Arc::clone(&self.core),
                entry: Arc::clone(&named.entry),
                attributes: named.attributes.clone(),
                confined: self.confined.clone(),
            })),
            None => {
                let names = entries
                    .iter()
                    .map(|named| named.attributes.signature.entry.as_str());
                Err(Error::EntryMissing {
                    name: name.into(),
                    entries: list(names),
                })
            }
        }
    }

    fn globals(&self) -> Option<&ptx::Globals> {
        self.confined
            .as_ref()
            .map(|verified| &verified.map().globals)
    }
}

/// Names for a text, the first few.
fn list<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const MOST: usize = 16;
    let count = names.len();
    let mut text = String::new();
    for name in names.take(MOST) {
        let separator = if text.is_empty() { "" } else { ", " };
        // Writing to a string does not fail.
        write!(text, "{separator}`{name}`").unwrap_or_default();
    }
    match count {
        0 => "none".into(),
        1..=MOST => text,
        _ => format!("{text} and {} more", count - MOST),
    }
}

/// An entry as the device's users see it.
#[derive(Debug)]
pub(super) struct CudaProgram {
    pub(super) core: Arc<Core>,
    pub(super) entry: Arc<Entry>,
    /// As its author declared it.
    pub(super) attributes: Attributes,
    pub(super) confined: Option<Verified>,
}

impl Program for CudaProgram {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn launch(self: Arc<Self>, launch: Arc<Launch>) {
        super::flight::start(self, launch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Validated {
        ptx::read(text.as_bytes()).unwrap()
    }

    const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

    #[test]
    fn only_writable_variables_make_a_module_stateful() {
        let kernel = ".visible .entry k()\n{\n.shared .b8 s[16];\nret;\n}\n";
        for (variables, want) in [
            ("", false),
            (".const .u32 c = 1;\n", false),
            (".shared .b8 t[8];\n", false),
            (".global .u32 g;\n", true),
        ] {
            assert_eq!(
                has_state(&read(&format!("{HEAD}{variables}{kernel}"))),
                want,
                "{variables}"
            );
        }
    }

    #[test]
    fn a_kernel_that_nobody_vouches_for_is_refused() {
        let program = read(&format!("{HEAD}.visible .entry k()\n{{\nret;\n}}\n"));
        let refused = text_of(&Admitted::checked(program.clone())).unwrap_err();
        assert!(matches!(refused, Error::NotAvailable { .. }), "{refused}");
        let trusted = Admitted::trusted(
            program.clone(),
            ptx::TrustedByEmbedder::i_vouch_for_this_kernel(),
        );
        assert_eq!(Some(&*text_of(&trusted).unwrap()), program.source());
    }

    #[test]
    fn a_layout_that_the_driver_sees_otherwise_is_refused_with_the_first_difference() {
        let program = read(&format!(
            "{HEAD}.visible .entry k(.param .u64 a, .param .u32 b)\n{{\nret;\n}}\n"
        ));
        let signature = program.entry("k").unwrap();
        let declared = [(0, 8), (8, 4)];
        assert_eq!(same_parameters(signature, &declared, &declared), Ok(()));
        for (found, says) in [
            (
                &[(0, 8), (8, 8)][..],
                "parameter 1 is 4 bytes at 8, to the driver 8 bytes at 8",
            ),
            (
                &[(0, 8)],
                "parameter 1 is 4 bytes at 8, to the driver nothing",
            ),
            (
                &[(0, 8), (8, 4), (12, 4)],
                "parameter 2 is nothing, to the driver 4 bytes at 12",
            ),
        ] {
            let text = same_parameters(signature, &declared, found)
                .unwrap_err()
                .to_string();
            assert!(text.contains(says), "{text}");
            assert!(text.contains("line 4"), "{text}");
        }
    }

    #[test]
    fn entries_are_listed_up_to_a_point() {
        assert_eq!(list([].into_iter()), "none");
        assert_eq!(list(["a", "b"].into_iter()), "`a`, `b`");
        let many = ["x"; 18];
        assert!(list(many.into_iter()).ends_with("`x` and 2 more"));
    }
}
