//! What PTX is lowered to: instructions of fixed size over numbered register slots, and the tables they
//! refer to. Nothing here executes.

use super::access;
pub(super) use super::lane_fn::LaneFn;
use super::lane_fn::{AccessRun, Run};
use super::tile::{Tile, TileAccess};

/// Threads of a warp.
pub(super) const LANES: usize = 32;

/// Operands of a lane function: slots of the bank that each is in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slots {
    pub(super) d: u16,
    pub(super) a: u16,
    pub(super) b: u16,
    pub(super) c: u16,
    pub(super) e: u16,
}

/// The predicate that guards an instruction, packed: a slot and a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guard(u16);

impl Guard {
    pub(super) const ALWAYS: Self = Self(u16::MAX);
    const NEGATED: u16 = 1 << 15;
    /// Slots that fit beside the sign, with room for `ALWAYS`.
    pub(super) const MAX_SLOT: u16 = Self::NEGATED - 2;

    pub(super) fn new(slot: u16, negated: bool) -> Self {
        Self(slot | if negated { Self::NEGATED } else { 0 })
    }

    /// The lanes of `mask` for which the instruction runs.
    #[inline]
    pub(super) fn lanes(self, predicates: &[u32], mask: u32) -> u32 {
        if self == Self::ALWAYS {
            return mask;
        }
        let value = predicates[usize::from(self.0 & !Self::NEGATED)];
        mask & if self.0 & Self::NEGATED == 0 {
            value
        } else {
            !value
        }
    }

    pub(super) fn slot(self) -> Option<u16> {
        (self != Self::ALWAYS).then_some(self.0 & !Self::NEGATED)
    }
}

/// One instruction with its guard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    pub(super) op: Op,
    pub(super) guard: Guard,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    ActiveMask {
        d: u16,
    },
    Atomic(Atomic),
    Barrier {
        site: u32,
    },
    Branch {
        target: u32,
    },
    BranchTable {
        index: u16,
        table: u32,
    },
    Call {
        site: u32,
    },
    ClusterArrive,
    ClusterWait,
    Elect {
        d: u16,
        p: u16,
        members: u16,
    },
    Exit,
    Fence,
    Lane {
        run: Run,
        slots: Slots,
    },
    Load {
        run: AccessRun,
        access: Access,
    },
    /// The address of a local variable of the running frame; `generic` adds the base of the local window.
    LocalAddress {
        d: u16,
        offset: u32,
        wide: bool,
        generic: bool,
    },
    Match {
        all: bool,
        wide: bool,
        d: u16,
        p: u16,
        a: u16,
        members: u16,
    },
    Matrix {
        site: u32,
    },
    Nanosleep {
        a: u16,
    },
    Reduce {
        op: ReduceOp,
        d: u16,
        a: u16,
        members: u16,
    },
    Return,
    Shuffle {
        mode: ShuffleMode,
        d: u16,
        p: u16,
        a: u16,
        b: u16,
        c: u16,
        members: u16,
    },
    Store {
        run: AccessRun,
        access: Access,
    },
    SyncWarp {
        members: u16,
    },
    System {
        site: u32,
    },
    Timer {
        d: u16,
        timer: Timer,
    },
    Trap,
    Copy {
        site: u32,
    },
    /// `cp.async.bulk`.
    Bulk {
        site: u32,
    },
    /// `mbarrier`.
    Phase {
        site: u32,
    },
    Vote {
        mode: VoteMode,
        d: u16,
        p: Guard,
        members: u16,
    },
}

impl Op {
    /// A load, as this processor runs it best.
    pub(super) fn load(access: Access) -> Self {
        Self::Load {
            run: access::load(&access),
            access,
        }
    }

    /// A store.
    pub(super) fn store(access: Access) -> Self {
        Self::Store {
            run: access::store(&access),
            access,
        }
    }
}

/// No destination is wanted.
pub(super) const NO_SLOT: u16 = u16::MAX;

/// Where an access goes, as the instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Const,
    Generic,
    Global,
    Local,
    Param,
    Shared,
}

/// How wide the register of a value is, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Width {
    B8,
    B16,
    B32,
    B64,
}

impl Width {
    pub(super) fn bytes(self) -> u32 {
        match self {
            Self::B8 => 1,
            Self::B16 => 2,
            Self::B32 => 4,
            Self::B64 => 8,
        }
    }
}

/// A load or store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// The data's slot; for a vector the first of `count` entries of [`Image::vectors`].
    pub(super) data: u16,
    pub(super) address: u16,
    pub(super) offset: i32,
    pub(super) space: Space,
    /// Of an element in memory.
    pub(super) width: Width,
    /// Of the register.
    pub(super) register: Width,
    /// Whether a load extends the sign.
    pub(super) signed: bool,
    /// Whether the address is in a 64-bit slot.
    pub(super) wide_address: bool,
    /// Elements: 1, 2, 4 or 8.
    pub(super) count: u8,
    /// Whether an ordering stronger than relaxed was asked for.
    pub(super) fenced: bool,
}

/// A read-modify-write of one word a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Atomic {
    pub(super) op: AtomicOp,
    /// Destination, or [`NO_SLOT`].
    pub(super) d: u16,
    pub(super) address: u16,
    pub(super) b: u16,
    pub(super) c: u16,
    pub(super) offset: i32,
    pub(super) space: Space,
    pub(super) width: Width,
    pub(super) wide_address: bool,
}

/// What an atomic does to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtomicOp {
    Add,
    AddBf16,
    AddBf16x2,
    AddF16,
    AddF16x2,
    AddF32,
    AddF64,
    And,
    Cas,
    Dec,
    Exchange,
    Inc,
    MaxSigned,
    MaxUnsigned,
    MinSigned,
    MinUnsigned,
    Or,
    Xor,
}

/// Warp-wide reductions, and those of `bar.red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReduceOp {
    Add,
    And,
    MaxSigned,
    MaxUnsigned,
    MinSigned,
    MinUnsigned,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShuffleMode {
    Butterfly,
    Down,
    Index,
    Up,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VoteMode {
    All,
    Any,
    Ballot,
    Uniform,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    Clock32,
    Clock32High,
    Clock64,
    Global32,
    Global32High,
    Global64,
}

/// What a block barrier does when complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarrierKind {
    Arrive,
    And { d: u16, p: Guard },
    Or { d: u16, p: Guard },
    Popc { d: u16, p: Guard },
    Sync,
}

/// A `bar` instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct BarrierSite {
    /// Slot of the barrier's number.
    pub(super) id: u16,
    /// Slot of the number of threads, if given.
    pub(super) threads: Option<u16>,
    pub(super) kind: BarrierKind,
}

/// What a call calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callee {
    /// The function of this number.
    Direct(u32),
    /// The one whose address is in a 64-bit slot, of those in a list of [`Image::callees`].
    Indirect { slot: u16, list: u32 },
}

/// A call: parameters are bytes of local memory, copied from the caller's frame to the callee's and back.
#[derive(Clone, Debug)]
pub(super) struct CallSite {
    pub(super) caller: u32,
    pub(super) callee: Callee,
    pub(super) arguments: Vec<Copied>,
    pub(super) results: Vec<Copied>,
}

/// Words of local memory that a call copies; offsets in words from the frames' starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    pub(super) caller: u32,
    pub(super) callee: u32,
    pub(super) words: u32,
}

/// A function of CUDA's that has no body in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    Free,
    Malloc,
    Print,
}

/// A call of such a function: where its arguments and its result lie in the frame, in words.
#[derive(Clone, Debug)]
pub(super) struct SystemSite {
    pub(super) of: System,
    pub(super) arguments: Vec<u32>,
    pub(super) result: Option<u32>,
}

/// `cp.async`: bytes from global to shared memory, the rest of `bytes` zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopySite {
    pub(super) to: u16,
    pub(super) to_wide: bool,
    pub(super) to_offset: i32,
    pub(super) from: u16,
    pub(super) from_offset: i32,
    pub(super) bytes: u8,
    /// Slot of the number of bytes read, if given.
    pub(super) source_bytes: Option<u16>,
    /// Predicate that makes the source ignored, if given.
    pub(super) ignore: Option<Guard>,
}

/// An address as an instruction names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    pub(super) slot: u16,
    pub(super) wide: bool,
    pub(super) offset: i32,
    pub(super) space: Space,
}

/// `cp.async.bulk`: bytes from one memory to another, and the `mbarrier` that is told of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkSite {
    pub(super) to: Location,
    pub(super) from: Location,
    pub(super) bytes: u16,
    pub(super) barrier: Option<Location>,
}

/// What an `mbarrier` instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhaseOp {
    /// Threads come, after so many more bytes are expected where `expect` says so; with `drop` for the last time.
    Arrive {
        expect: bool,
        drop: bool,
    },
    CompleteBytes,
    ExpectBytes,
    Initialize,
    Invalidate,
    /// Whether the phase of a state is over.
    Test,
    /// Whether the phase of a parity is over.
    TestParity,
}

/// An `mbarrier` instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseSite {
    pub(super) op: PhaseOp,
    pub(super) barrier: Location,
    /// The state before in a 64-bit slot, or the outcome of a test in a predicate; or [`NO_SLOT`].
    pub(super) d: u16,
    /// A number of threads or bytes or a parity, or a state in a 64-bit slot.
    pub(super) a: u16,
}

/// `ldmatrix`, `stmatrix`, `mma` and `wmma`.
#[derive(Clone, Copy, Debug)]
pub(super) enum MatrixSite {
    Load {
        d: [u16; 4],
        count: u8,
        transposed: bool,
        address: u16,
        wide_address: bool,
        offset: i32,
    },
    Store {
        a: [u16; 4],
        count: u8,
        transposed: bool,
        address: u16,
        wide_address: bool,
        offset: i32,
    },
    /// `wmma.load`.
    TileLoad(TileAccess),
    /// `mma` and `wmma.mma`: a, b, c, d.
    TileMultiply {
        tiles: [Tile; 4],
        /// Whether integers saturate.
        saturate: bool,
    },
    /// `wmma.store`.
    TileStore(TileAccess),
}

/// Registers and memory of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameSize {
    pub(super) words: u32,
    pub(super) longs: u32,
    pub(super) predicates: u32,
    /// 32-bit words of local memory.
    pub(super) local: u32,
}

/// What a slot holds from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Preset {
    Value(u32),
    BlockIndex(usize),
    BlockCount(usize),
    ClusterBlockIndex(usize),
    ClusterCount(usize),
    ClusterIndex(usize),
    ClusterRank,
    DynamicSharedBytes,
    LaneId,
    LaneMask(LaneMask),
    Parameter(Parameter),
    ThreadCount(usize),
    ThreadIndex(usize),
    TotalSharedBytes,
    WarpCount,
    WarpId,
    Workers,
}

/// A parameter of the entry, as a load of it gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parameter {
    pub(super) offset: u32,
    pub(super) width: Width,
    pub(super) register: Width,
    pub(super) signed: bool,
}

/// What a 64-bit slot holds from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LongPreset {
    Value(u64),
    Parameter(Parameter),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LaneMask {
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// A lowered function.
#[derive(Clone, Debug, Default)]
pub(super) struct FunctionCode {
    pub(super) start: u32,
    pub(super) size: FrameSize,
    /// Slots that hold something from the start.
    pub(super) words: Vec<(u16, Preset)>,
    pub(super) longs: Vec<(u16, LongPreset)>,
    pub(super) predicates: Vec<(u16, bool)>,
}

/// A lowered entry with all that it calls.
#[derive(Debug, Default)]
pub(super) struct Image {
    pub(super) code: Vec<Instruction>,
    /// Source line of each instruction.
    pub(super) lines: Vec<u32>,
    /// The entry is the first.
    pub(super) functions: Vec<FunctionCode>,
    pub(super) barriers: Vec<BarrierSite>,
    pub(super) bulks: Vec<BulkSite>,
    pub(super) calls: Vec<CallSite>,
    /// Functions that may be called by address, by what they take and give; sorted by address.
    pub(super) callees: Vec<Vec<(u64, u32)>>,
    pub(super) copies: Vec<CopySite>,
    pub(super) matrices: Vec<MatrixSite>,
    pub(super) phases: Vec<PhaseSite>,
    pub(super) systems: Vec<SystemSite>,
    pub(super) tables: Vec<Vec<u32>>,
    pub(super) vectors: Vec<u16>,
    pub(super) const_bytes: Vec<u8>,
    pub(super) static_shared_bytes: u32,
    /// Blocks of a cluster along x, y, z.
    pub(super) cluster: [u32; 3],
}
