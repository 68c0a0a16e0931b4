//! What confinement makes of a program: [`Confined`] as the rewriter prints it, which nobody trusts yet, and [`Verified`], which the
//! verifier made of it. `docs/confinement.md` says what the text looks like.

use std::sync::Arc;

use crate::signature::Signature;
use crate::validate::Validated;

/// How a program is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConfineOptions {
    /// What becomes of a stray access.
    pub level: Level,
    /// The window that the program will run on.
    pub window: WindowForm,
    /// Whether each block clears its shared memory before the guest's code runs.
    pub clear_shared: bool,
}

/// What becomes of an access outside memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// It lands somewhere in the guest's own window.
    Confined,
    /// It does too, and is reported.
    Trapping,
}

/// Which windows a confined text runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowForm {
    /// Any power of two, at any base.
    Masked,
    /// 4 GiB, at a base that is a multiple of 4 GiB.
    Whole,
}

/// A rewritten program: a text that nobody has checked, and what it has to do with the guest's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined {
    /// The text.
    pub text: String,
    /// What belongs to it.
    pub map: ConfinedMap,
}

/// What a confined text has to do with the guest's. Nothing here is relied on for confinement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfinedMap {
    /// The entries, in the order of [`Validated::entries`] of the guest's program.
    pub entries: Vec<ConfinedEntry>,
    /// What the record's `site` stands for.
    pub sites: Vec<Site>,
    /// The guest's variables in global space.
    pub globals: Globals,
    /// The line of the guest's text that each line of the confined text was made from, both from 1; 0 where it was made from none.
    pub lines: Vec<u32>,
}

impl ConfinedMap {
    /// The line of the guest's text that a line of the confined one was made from; `None` where it was made from none.
    #[must_use]
    pub fn guest_line(&self, line: u32) -> Option<u32> {
        let at = usize::try_from(line.checked_sub(1)?).ok()?;
        self.lines.get(at).copied().filter(|&line| line > 0)
    }
}

/// An entry, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfinedEntry {
    /// What the guest declared.
    pub signature: Signature,
    /// Its name in the confined text.
    pub printed: String,
    /// Bytes of shared memory of fixed size that the guest's variables take beside an unsized array; 0 where there is none, for then they
    /// are in a block of fixed size.
    pub shared_before_dynamic: u32,
}

/// A place in the guest's text where a kernel can report something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// What it reports.
    pub kind: SiteKind,
    /// Line in the guest's text, from 1; of the first access, where it is about several.
    pub line: u32,
    /// Width of the access in bytes; 0 where it is about none or several.
    pub bytes: u32,
}

/// What a [`Site`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SiteKind {
    CallDepth,
    GlobalAccess,
    LocalAccess,
    SharedAccess,
    Trap,
}

/// The guest's variables in global space, which lie in its window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Globals {
    /// What they hold at first; as long as all of them.
    pub image: Vec<u8>,
    /// Offsets in the image of 64-bit addresses of variables: the variable's offset is there, and where the variables lie in the window
    /// is to be added.
    pub addresses: Vec<u32>,
    /// The variables that have a name for others.
    pub variables: Vec<GlobalVariable>,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalVariable {
    /// As the guest called it.
    pub name: String,
    /// Offset in the image.
    pub offset: u32,
    /// Its bytes.
    pub bytes: u32,
}

/// What an entry needs of the launch for its confinement to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchNeeds {
    /// `P` of the dynamic shared block: a launch passes at least as many bytes. `None` where it has no such block.
    pub dynamic_padding: Option<u32>,
    /// How deep calls nest at most, the entry itself not counted.
    pub call_depth: u32,
}

/// A confined text that was read again and found to be what it has to be. Only the verifier makes one.
#[derive(Clone, Debug)]
pub struct Verified(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: Validated,
    map: ConfinedMap,
    needs: Vec<LaunchNeeds>,
    window: WindowForm,
}

impl Verified {
    /// `needs` are in the order of the map's entries. For the verifier.
    pub(crate) fn new(
        program: Validated,
        map: ConfinedMap,
        needs: Vec<LaunchNeeds>,
        window: WindowForm,
    ) -> Self {
        Self(Arc::new(Inner {
            program,
            map,
            needs,
            window,
        }))
    }

    /// The confined program, with the text that was verified as its source.
    #[must_use]
    pub fn program(&self) -> &Validated {
        &self.0.program
    }

    /// What it has to do with the guest's.
    #[must_use]
    pub fn map(&self) -> &ConfinedMap {
        &self.0.map
    }

    /// What the entry at a position in the map's entries needs.
    #[must_use]
    pub fn needs(&self, entry: usize) -> LaunchNeeds {
        self.0.needs[entry]
    }

    /// Which windows it runs on.
    #[must_use]
    pub fn window(&self) -> WindowForm {
        self.0.window
    }
}
