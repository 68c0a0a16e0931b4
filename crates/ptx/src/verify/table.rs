//! Which instructions are accepted. What has no row is refused. The spaces, types and vectors of memory operations are read in
//! `access.rs`, and the rest of a row's modifiers cannot move an access.

/// Instructions that compute: the first operand, a pair or a vector perhaps, is all that they write and they touch no memory.
pub(super) const COMPUTE: [&str; 74] = [
    "abs",
    "activemask",
    "add",
    "addc",
    "and",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "brev",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cvt",
    "div",
    "dp2a",
    "dp4a",
    "elect",
    "ex2",
    "fma",
    "fns",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "match",
    "max",
    "min",
    "mma",
    "mov",
    "movmatrix",
    "mul",
    "mul24",
    "neg",
    "not",
    "or",
    "popc",
    "prmt",
    "rcp",
    "redux",
    "rem",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "sub",
    "subc",
    "szext",
    "tanh",
    "testp",
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vmax4",
    "vmin4",
    "vote",
    "vset4",
    "vsub",
    "vsub2",
    "vsub4",
    "xor",
];

/// Those of [`COMPUTE`] that work on a warp: without `sync` they are other instructions.
pub(super) const WARP: [&str; 7] = [
    "elect",
    "match",
    "mma",
    "movmatrix",
    "redux",
    "shfl",
    "vote",
];

/// The beginning of a matrix multiplication in registers; `wmma` itself is no such instruction.
pub(super) const COMPUTE_MATRIX: &str = "wmma.mma.sync.aligned.";

/// Those of [`COMPUTE`] that read the carry flag.
pub(super) const READS_CARRY: [&str; 3] = ["addc", "madc", "subc"];

/// Special registers that may be read: none holds an address or what another kernel left.
pub(super) const SPECIAL_REGISTERS: [&str; 26] = [
    "%clock",
    "%clock64",
    "%clock_hi",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%ctaid",
    "%dynamic_smem_size",
    "%globaltimer",
    "%globaltimer_hi",
    "%globaltimer_lo",
    "%gridid",
    "%laneid",
    "%lanemask_eq",
    "%lanemask_ge",
    "%lanemask_gt",
    "%lanemask_le",
    "%lanemask_lt",
    "%nctaid",
    "%nsmid",
    "%ntid",
    "%nwarpid",
    "%smid",
    "%tid",
    "%total_smem_size",
    "%warpid",
    "WARP_SZ",
];

/// Waits for all threads of a block at barrier 0, without a count: threads that exited count as arrived.
pub(super) const BARRIERS: [&str; 6] = [
    "bar.sync",
    "bar.cta.sync",
    "barrier.sync",
    "barrier.sync.aligned",
    "barrier.cta.sync",
    "barrier.cta.sync.aligned",
];

/// Such waits that also compute something of all threads: `d, 0, p`.
pub(super) const REDUCING_BARRIERS: [&str; 12] = [
    "bar.red.popc.u32",
    "bar.red.and.pred",
    "bar.red.or.pred",
    "bar.cta.red.popc.u32",
    "bar.cta.red.and.pred",
    "bar.cta.red.or.pred",
    "barrier.red.popc.u32",
    "barrier.red.and.pred",
    "barrier.red.or.pred",
    "barrier.red.popc.aligned.u32",
    "barrier.red.and.aligned.pred",
    "barrier.red.or.aligned.pred",
];

/// Opcodes that reach memory, order it or wait: none of them, but for loads of parameters, stands in the head of an entry.
pub(super) const MEMORY: [&str; 13] = [
    "atom",
    "bar",
    "barrier",
    "cp",
    "fence",
    "ld",
    "ldmatrix",
    "membar",
    "nanosleep",
    "prefetch",
    "red",
    "st",
    "stmatrix",
];

/// Instructions that only order memory.
pub(super) const FENCES: [&str; 14] = [
    "membar.cta",
    "membar.gl",
    "membar.sys",
    "fence.acq_rel.cta",
    "fence.acq_rel.gpu",
    "fence.acq_rel.sys",
    "fence.sc.cta",
    "fence.sc.gpu",
    "fence.sc.sys",
    "fence.cta",
    "fence.gpu",
    "fence.sys",
    "cp.async.commit_group",
    "cp.async.wait_all",
];

/// Modifiers of `ld` beside space, vector and type.
pub(super) const LOAD: [&str; 20] = [
    "weak",
    "volatile",
    "relaxed",
    "acquire",
    "cta",
    "gpu",
    "sys",
    "ca",
    "cg",
    "cs",
    "cv",
    "nc",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
    "L2::256B",
];

/// Modifiers of `st` beside space, vector and type.
pub(super) const STORE: [&str; 16] = [
    "weak",
    "volatile",
    "relaxed",
    "release",
    "cta",
    "gpu",
    "sys",
    "wb",
    "cg",
    "cs",
    "wt",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
];

/// Modifiers of `atom` and `red` beside space, vector and type.
pub(super) const ATOMIC: [&str; 18] = [
    "relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys", "noftz", "and", "or", "xor",
    "cas", "exch", "add", "inc", "dec", "min", "max",
];

/// `ldmatrix` and `stmatrix` of 8x8 matrices: each thread names a row of 16 bytes.
pub(super) const MATRIX: [&str; 6] = ["sync", "aligned", "m8n8", "x1", "x2", "x4"];

/// Another modifier of those.
pub(super) const TRANSPOSED: &str = "trans";

/// `cp.async` of a few bytes: window to shared memory.
pub(super) const COPIES: [&str; 4] = [
    "cp.async.ca.shared.global",
    "cp.async.cg.shared.global",
    "cp.async.ca.shared::cta.global",
    "cp.async.cg.shared::cta.global",
];

/// What may follow one of [`COPIES`].
pub(super) const COPY_HINTS: [&str; 4] = ["", ".L2::64B", ".L2::128B", ".L2::256B"];

/// Prefetches, of a byte.
pub(super) const PREFETCHES: [&str; 2] = ["prefetch.global.L1", "prefetch.global.L2"];
