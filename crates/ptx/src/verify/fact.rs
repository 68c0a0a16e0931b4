//! What is known of a reserved register. A fact is made by one idiom (`idiom.rs`) and used by an access, branch or call; nothing else may
//! write the register.

use crate::ast::Space;

/// Where an address points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A variable of known size.
    Block {
        space: Space,
        bytes: u32,
        align: u32,
    },
    /// The array of shared memory whose size the launch says.
    Dynamic,
    /// The guest's window.
    Window,
}

/// What bounds a 32-bit number. It is a multiple of `align`, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// It is at most `most`.
    Below { most: u32, align: u32 },
    /// It lies so many bytes before the end of dynamic shared memory.
    Dynamic { padding: u32, align: u32 },
    /// It is an offset in the window.
    Window { align: u32 },
}

/// What a reserved register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// An address to which a bounded number was added.
    Address(Place, Bound),
    /// Address of the window.
    Base,
    /// High word of the window's address.
    BaseHigh,
    /// Low word of the window's address.
    BaseLow,
    /// Address of a place's first byte.
    Block(Place),
    /// Address of the control block.
    Control,
    /// Calls under way, at most the depth.
    Depth,
    /// Largest offset in dynamic shared memory that leaves `padding` bytes.
    DynamicMask { padding: u32, align: u32 },
    /// Bytes of dynamic shared memory.
    DynamicSize,
    /// Offset in the window where what is the guest's begins, for reports only.
    First,
    /// What may be done before the clock is looked at.
    Fuel,
    /// True only where fuel was left at the METER just before, and calls are fewer than `depth`.
    Fueled { depth: Option<u32> },
    /// Offset of the module's variables in the window.
    Globals,
    /// What the multiprocessor's clock showed when the clock was looked at last.
    Looked,
    /// One more than the depth, everywhere or up to the next label.
    NextDepth { lasts: bool },
    /// A bounded number.
    Offset(Bound),
    /// The number 1.
    One,
    /// How far what is the guest's reaches from there, for reports only.
    Span,
    /// What guarded a call or branch, and guards no other.
    Spent,
    /// Address of the word by which the host stops the kernel.
    Stop,
    /// What that word says where this kernel is to end.
    Token,
    /// When the kernel has to end.
    Until,
    /// A bounded number, as 64 bits.
    Wide(Bound),
    /// The largest offset in the window that is a multiple of `align`.
    WindowMask { align: u32 },
}

impl Bound {
    /// What the number is a multiple of.
    pub(super) fn align(self) -> u32 {
        match self {
            Self::Below { align, .. } | Self::Dynamic { align, .. } | Self::Window { align } => {
                align
            }
        }
    }
}

impl Fact {
    /// Whether it holds only up to the next label; others are made in a function's head, which comes before all labels.
    pub(super) fn ends_at_labels(self) -> bool {
        matches!(
            self,
            Self::Address(..)
                | Self::Fueled { .. }
                | Self::NextDepth { lasts: false }
                | Self::Offset(_)
                | Self::Spent
                | Self::Wide(_)
        )
    }

    /// Whether any instruction may read the register: no address can be learnt from it.
    pub(super) fn is_readable(self) -> bool {
        matches!(
            self,
            Self::Depth
                | Self::DynamicMask { .. }
                | Self::DynamicSize
                | Self::First
                | Self::Fuel
                | Self::Fueled { .. }
                | Self::Globals
                | Self::NextDepth { .. }
                | Self::Offset(_)
                | Self::One
                | Self::Span
                | Self::Spent
                | Self::WindowMask { .. }
        )
    }
}
