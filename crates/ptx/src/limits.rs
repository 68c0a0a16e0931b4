//! Every limit of the front end, each with its reason. A text within all of them is read in time and
//! memory proportional to its length.

use crate::ast::Space;

/// Longest text, in bytes. The largest kernels that compilers emit (fully unrolled tensor-core loops)
/// stay under 2 MiB; positions and counts within 8 MiB fit 32 bits with room to spare.
pub const MAX_SOURCE_BYTES: usize = 8 << 20;

/// Longest identifier, in bytes. Mangled template names reach a few thousand bytes, and the PTX ISA
/// asks readers for at least 1024; a name is held twice, so it may not be most of the text.
pub const MAX_IDENTIFIER_BYTES: usize = 8 << 10;

/// Most distinct names. A compiler's statement takes about 30 bytes and names at most one new register,
/// so that a text of the longest length has half as many.
pub const MAX_NAMES: usize = 1 << 19;

/// Most statements, variables and functions in all. A text of the longest length has about half as many
/// (see [`MAX_NAMES`]), one of `a;a;a;` eight times as many, each a hundred bytes of tree.
pub const MAX_STATEMENTS: usize = 1 << 19;

/// Most operands, modifiers, numbers of directives and elements of initial values in all. The densest
/// honest text is a table of bytes: 2 Mi of them are 6 MiB of text and 64 MiB of tree.
pub const MAX_NODES: usize = 1 << 21;

/// Deepest nesting of `{ … }` blocks. The tree is flat and would bear any depth, but what is printed goes
/// to an assembler that runs out of memory near 3000.
pub const MAX_BLOCK_DEPTH: usize = 256;

/// Deepest nesting within an operand or an initial value. PTX needs two levels for operands and one
/// for each dimension of an array; the parser recurses, so the stack is at stake.
pub const MAX_VALUE_DEPTH: usize = 8;

/// Most dimensions of an array: one level of an initial value for each.
pub const MAX_DIMENSIONS: usize = MAX_VALUE_DEPTH;

/// Most registers that a function may declare, ranges counted in full. Devices size register files from
/// the declaration, while a text of the longest length can use at most [`MAX_NAMES`] of them.
pub const MAX_REGISTERS: u64 = 1 << 20;

/// Largest alignment, in bytes: the granularity at which memory of a device is mapped. No layout
/// can be asked to pad more.
pub const MAX_ALIGN: u32 = 2 << 20;

/// Most bytes of guest text in a message: enough to find it again, short enough for a log line.
pub const MAX_EXCERPT_BYTES: usize = 64;

/// Most bytes of a source line in a rendered message, for the same reason.
pub const MAX_LINE_BYTES: usize = 80;

/// Most bytes of parameters of an entry, for PTX before 8.1 or devices before sm_70 (PTX ISA, "Kernel
/// Function Parameters"; the assembler of CUDA 13.0 has the same two numbers).
pub const MAX_PARAMETER_BYTES_BEFORE_8_1: u64 = 4352;

/// Most bytes of parameters of an entry, from PTX 8.1 and sm_70 on.
pub const MAX_PARAMETER_BYTES: u64 = 32764;

/// Most functions and entries of a confined text. The driver compiles each by itself and all while a launch waits; libraries of
/// kernels hold some dozens.
pub const MAX_CONFINED_FUNCTIONS: usize = 512;

/// Most statements of a function of a confined text. The driver's compiler takes more than proportional time to a function, cannot be stopped
/// and is shared; fully unrolled tensor-core loops have some ten thousand.
pub const MAX_CONFINED_STATEMENTS: usize = 1 << 17;

/// Most statements of a confined text, for the same reason.
pub const MAX_CONFINED_PROGRAM: usize = 1 << 18;

/// Most registers of a function of a confined text: compilers name one for each value, so that there are at most about as many as
/// statements, and the driver's allocator is the part that takes longest.
pub const MAX_CONFINED_REGISTERS: usize = 1 << 17;

/// Most labels of a function of a confined text: the driver's analyses go round loops of blocks.
pub const MAX_CONFINED_LABELS: usize = 1 << 14;
/// Most targets of all branches by number of a function together, of a text that is confined: each branch has as many ways on as its list is long, and
/// a short text may name a long list often.
pub const MAX_CONFINED_TARGETS: usize = 1 << 16;

/// Most registers times blocks that are gone through to see that registers are written first: 32 MiB of bits.
pub const MAX_FLOW_BITS: usize = 1 << 28;

/// Most words that are looked at in doing so: about a second's work. A function whose loops are entered from the top needs a few for each
/// of its bits.
pub const MAX_FLOW_STEPS: usize = 1 << 30;

/// Most bytes of the variables that a function of a confined text passes to others: they are in its stack frame, which is local memory.
pub const MAX_CALL_BYTES: usize = 64 << 10;

/// Deepest nesting of calls in a confined text; the stack of all threads of a device is reserved for it.
pub const MAX_CALL_DEPTH: u32 = 1024;

/// Most bytes of the variables that one program or function declares in a space.
#[must_use]
pub const fn max_space_bytes(space: Space) -> u64 {
    match space {
        // A memory window spans at most 4 GiB.
        Space::Global | Space::Tex => 4 << 30,
        // One constant bank.
        Space::Const => 64 << 10,
        // Local memory of one thread, on every device.
        Space::Local => 512 << 10,
        // No device has more shared memory in a block; those that have less refuse the launch.
        Space::Shared => 256 << 10,
        Space::Param => MAX_PARAMETER_BYTES,
        // Registers are counted, not measured.
        Space::Reg | Space::Sreg => 0,
    }
}
