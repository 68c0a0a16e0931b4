//! The instructions that can be confined: one row an opcode, and no row, no instruction. What is done to an instruction is named here
//! and done in `sandbox/`. The file is long because it is one table.

/// What becomes of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Its address is confined.
    Access,
    /// It waits for the whole block: barrier 0 for all threads.
    Barrier,
    /// It is taken only while there is fuel, where it goes back.
    Branch,
    /// It copies from global to shared memory: both addresses are confined.
    CopyAsync,
    /// It is made to compute with offsets and tags.
    ConvertAddress,
    /// It is taken only while there is fuel, and not too deep.
    Call,
    /// Nothing is printed for it.
    Drop,
    /// It ends the function or thread.
    End,
    /// It stays as it is: it touches registers only.
    Keep,
    /// Its duration is bounded and paid for.
    Sleep,
    /// It becomes a recorded end of the thread.
    Trap,
}

impl Action {
    /// What the action is, for the rendered table.
    #[cfg(test)]
    const fn words(self) -> &'static str {
        match self {
            Self::Access => "address confined",
            Self::Barrier => "barrier 0 for all threads only",
            Self::Branch => "backwards only with fuel",
            Self::CopyAsync => "both addresses confined",
            Self::ConvertAddress => "computes with offsets and tags",
            Self::Call => "named functions only, with fuel, to a depth",
            Self::Drop => "left out",
            Self::End => "ends the function or thread",
            Self::Keep => "kept",
            Self::Sleep => "at most 1,000 ns, paid for",
            Self::Trap => "recorded end of the thread",
        }
    }
}

/// What is known of an opcode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The first word.
    pub(crate) opcode: &'static str,
    /// The words that may follow it.
    modifiers: &'static [&'static [&'static str]],
    /// How many operands, counted from the first, it writes; it reads the others.
    pub(crate) written: usize,
    /// What is done to it.
    pub(crate) action: Action,
    /// What it weighs where time is counted.
    pub(crate) weight: u32,
}

impl Row {
    /// The first of some modifiers that it may not have.
    pub(crate) fn foreign_modifier<'w>(&self, words: &[&'w str]) -> Option<&'w str> {
        let is_known = |word: &str| self.modifiers.iter().any(|group| group.contains(&word));
        words.iter().copied().find(|word| !is_known(word))
    }
}

/// The row of an opcode.
pub(crate) fn row(opcode: &str) -> Option<&'static Row> {
    let index = ROWS.binary_search_by(|row| row.opcode.cmp(opcode)).ok()?;
    Some(&ROWS[index])
}

/// Why an opcode without a row has none.
pub(crate) fn reason(opcode: &str) -> &'static str {
    REFUSED
        .iter()
        .find(|(opcodes, _)| opcodes.contains(&opcode))
        .map_or("it is not in the table of instructions", |(_, reason)| {
            reason
        })
}

/// Whether a special register may be read.
pub(crate) fn is_special(name: &str) -> bool {
    SPECIAL.contains(&name)
}

const SPECIAL: [&str; 22] = [
    "%clock",
    "%clock64",
    "%clock_hi",
    "%ctaid",
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
    "%warpid",
    "WARP_SZ",
];

const BITS: &[&str] = &["b8", "b16", "b32", "b64"];
const INTEGERS: &[&str] = &["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"];
const FLOATS: &[&str] = &[
    "f16", "f16x2", "f32", "f32x2", "f64", "bf16", "bf16x2", "tf32",
];
const NARROW: &[&str] = &[
    "e4m3", "e5m2", "e4m3x2", "e5m2x2", "e2m1", "e2m3", "e3m2", "e2m1x2", "e2m3x2", "e3m2x2",
    "ue8m0x2", "s4", "u4", "b1",
];
const PACKED: &[&str] = &["u16x2", "s16x2"];
const PREDICATE: &[&str] = &["pred"];
const WIDE: &[&str] = &["b128"];
const ROUNDING: &[&str] = &[
    "rn",
    "rz",
    "rm",
    "rp",
    "rna",
    "rni",
    "rzi",
    "rmi",
    "rpi",
    "ftz",
    "sat",
    "satfinite",
    "relu",
    "approx",
    "full",
    "noftz",
    "oob",
    "NaN",
    "xorsign",
    "abs",
];
const COMPARISON: &[&str] = &[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
];
const LOGIC: &[&str] = &["and", "or", "xor"];
const PARTS: &[&str] = &["lo", "hi", "wide", "cc"];
const SEMANTICS: &[&str] = &[
    "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc",
];
const SCOPES: &[&str] = &["cta", "gpu", "sys"];
const SPACES: &[&str] = &["global", "shared", "shared::cta", "local"];
const ATOMIC_SPACES: &[&str] = &["global", "shared", "shared::cta"];
const READ_ONLY_SPACES: &[&str] = &["const", "param", "param::entry", "param::func"];
const PARAM_SPACES: &[&str] = &["param", "param::func"];
const CACHING: &[&str] = &[
    "ca",
    "cg",
    "cs",
    "cv",
    "nc",
    "wb",
    "wt",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
    "L2::256B",
];
const VECTORS: &[&str] = &["v2", "v4", "v8"];
const ATOMIC: &[&str] = &[
    "and", "or", "xor", "cas", "exch", "add", "inc", "dec", "min", "max",
];
const WARP: &[&str] = &["sync", "aligned"];
const SHAPES: &[&str] = &[
    "m8n8",
    "m16n16",
    "m8n16",
    "m8n8k4",
    "m8n8k16",
    "m8n8k32",
    "m8n8k128",
    "m16n8k4",
    "m16n8k8",
    "m16n8k16",
    "m16n8k32",
    "m16n8k64",
    "m16n8k128",
    "m16n8k256",
    "m16n16k16",
    "m16n16k8",
    "m8n32k16",
    "m32n8k16",
    "x1",
    "x2",
    "x4",
    "trans",
    "row",
    "col",
    "popc",
    "xor",
    "and",
];

const fn row_of(
    opcode: &'static str,
    modifiers: &'static [&'static [&'static str]],
    written: usize,
    action: Action,
    weight: u32,
) -> Row {
    Row {
        opcode,
        modifiers,
        written,
        action,
        weight,
    }
}

const fn keep(opcode: &'static str, modifiers: &'static [&'static [&'static str]]) -> Row {
    row_of(opcode, modifiers, 1, Action::Keep, 1)
}

const fn slow(opcode: &'static str, modifiers: &'static [&'static [&'static str]]) -> Row {
    row_of(opcode, modifiers, 1, Action::Keep, 8)
}

const ARITHMETIC: &[&[&str]] = &[INTEGERS, FLOATS, PACKED, ROUNDING, PARTS];
const BITWISE: &[&[&str]] = &[BITS, PREDICATE];
const ORDER: &[&[&str]] = &[INTEGERS, FLOATS, PACKED, ROUNDING, PARTS];
const VIDEO: &[&[&str]] = &[
    INTEGERS,
    ROUNDING,
    COMPARISON,
    &[
        "add", "min", "max", "mrg_16l", "shr7", "shr15", "po", "clamp", "wrap",
    ],
];
const FENCES: &[&[&str]] = &[SEMANTICS, SCOPES, &["gl"]];
const WARP_VALUES: &[&[&str]] = &[
    WARP,
    BITS,
    INTEGERS,
    PREDICATE,
    LOGIC,
    &[
        "all", "any", "uni", "ballot", "up", "down", "bfly", "idx", "add", "min", "max",
    ],
];
const MATRIX: &[&[&str]] = &[
    WARP,
    SHAPES,
    BITS,
    INTEGERS,
    FLOATS,
    NARROW,
    ROUNDING,
    &["mma", "sp", "sp::ordered_metadata"],
];
const FRAGMENTS: &[&[&str]] = &[WARP, SHAPES, BITS, &["shared", "shared::cta"]];

use Action::{
    Access, Barrier, Branch, Call, ConvertAddress, CopyAsync, Drop, End, Keep, Sleep, Trap,
};

/// In order of opcodes.
const ROWS: &[Row] = &[
    keep("abs", ORDER),
    row_of("activemask", &[BITS], 1, Keep, 1),
    keep("add", ARITHMETIC),
    keep("addc", ARITHMETIC),
    keep("and", BITWISE),
    row_of(
        "atom",
        &[
            SEMANTICS,
            SCOPES,
            ATOMIC_SPACES,
            ATOMIC,
            VECTORS,
            BITS,
            INTEGERS,
            FLOATS,
            WIDE,
            &["noftz"],
        ],
        1,
        Access,
        16,
    ),
    row_of(
        "bar",
        &[
            &["sync", "red", "cta", "warp", "popc"],
            &["and", "or"],
            PREDICATE,
            &["u32"],
        ],
        0,
        Barrier,
        16,
    ),
    row_of(
        "barrier",
        &[
            &["sync", "red", "cta", "aligned", "popc"],
            &["and", "or"],
            PREDICATE,
            &["u32"],
        ],
        0,
        Barrier,
        16,
    ),
    keep("bfe", &[INTEGERS]),
    keep("bfi", &[BITS]),
    keep("bfind", &[INTEGERS, &["shiftamt"]]),
    keep("bmsk", &[BITS, &["clamp", "wrap"]]),
    row_of("bra", &[&["uni"]], 0, Branch, 1),
    keep("brev", &[BITS]),
    row_of("brkpt", &[], 0, Trap, 1),
    row_of("brx", &[&["idx", "uni"]], 0, Branch, 4),
    row_of("call", &[&["uni"]], 0, Call, 16),
    keep("clz", &[BITS]),
    keep("cnot", &[BITS]),
    keep("copysign", &[FLOATS]),
    slow("cos", &[FLOATS, ROUNDING]),
    row_of(
        "cp",
        &[
            &[
                "async",
                "ca",
                "cg",
                "shared",
                "shared::cta",
                "global",
                "commit_group",
                "wait_group",
                "wait_all",
            ],
            CACHING,
        ],
        0,
        CopyAsync,
        8,
    ),
    keep(
        "cvt",
        &[INTEGERS, FLOATS, NARROW, ROUNDING, &["rs", "pack", "b32"]],
    ),
    row_of(
        "cvta",
        &[&[
            "to",
            "global",
            "shared",
            "shared::cta",
            "local",
            "u32",
            "u64",
        ]],
        1,
        ConvertAddress,
        2,
    ),
    slow("div", ARITHMETIC),
    keep("dp2a", &[INTEGERS, PARTS]),
    keep("dp4a", &[INTEGERS]),
    keep("elect", &[WARP]),
    slow("ex2", &[FLOATS, ROUNDING]),
    row_of("exit", &[], 0, End, 1),
    row_of("fence", FENCES, 0, Keep, 32),
    keep("fma", ARITHMETIC),
    keep("fns", &[BITS]),
    row_of("isspacep", &[SPACES], 1, ConvertAddress, 2),
    row_of(
        "ld",
        &[
            SEMANTICS,
            SCOPES,
            SPACES,
            READ_ONLY_SPACES,
            CACHING,
            VECTORS,
            BITS,
            INTEGERS,
            FLOATS,
            WIDE,
        ],
        1,
        Access,
        4,
    ),
    row_of("ldmatrix", FRAGMENTS, 1, Access, 8),
    slow("lg2", &[FLOATS, ROUNDING]),
    keep("lop3", &[BITS, &["and", "or"]]),
    keep("mad", ARITHMETIC),
    keep("mad24", &[INTEGERS, PARTS]),
    keep("madc", ARITHMETIC),
    slow("match", &[WARP, BITS, &["any", "all"]]),
    keep("max", ORDER),
    row_of("membar", FENCES, 0, Keep, 32),
    keep("min", ORDER),
    slow("mma", MATRIX),
    keep("mov", &[BITS, INTEGERS, FLOATS, PREDICATE, WIDE]),
    slow("movmatrix", &[WARP, SHAPES, BITS]),
    keep("mul", ARITHMETIC),
    keep("mul24", &[INTEGERS, PARTS]),
    row_of("nanosleep", &[INTEGERS], 0, Sleep, 1),
    keep("neg", &[INTEGERS, FLOATS, ROUNDING]),
    keep("not", BITWISE),
    keep("or", BITWISE),
    row_of("pmevent", &[&["mask"]], 0, Drop, 0),
    keep("popc", &[BITS]),
    row_of(
        "prefetch",
        &[&["global", "L1", "L2", "L2::evict_last", "L2::evict_normal"]],
        0,
        Drop,
        0,
    ),
    row_of("prefetchu", &[&["L1"]], 0, Drop, 0),
    keep(
        "prmt",
        &[BITS, &["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]],
    ),
    slow("rcp", &[FLOATS, ROUNDING]),
    row_of(
        "red",
        &[
            SEMANTICS,
            SCOPES,
            ATOMIC_SPACES,
            ATOMIC,
            VECTORS,
            BITS,
            INTEGERS,
            FLOATS,
            &["noftz"],
        ],
        0,
        Access,
        16,
    ),
    slow(
        "redux",
        &[
            WARP,
            BITS,
            INTEGERS,
            FLOATS,
            LOGIC,
            ROUNDING,
            &["add", "min", "max"],
        ],
    ),
    slow("rem", &[INTEGERS]),
    row_of("ret", &[&["uni"]], 0, End, 1),
    slow("rsqrt", &[FLOATS, ROUNDING]),
    keep("sad", &[INTEGERS]),
    keep("selp", &[BITS, INTEGERS, FLOATS]),
    keep(
        "set",
        &[COMPARISON, LOGIC, INTEGERS, FLOATS, BITS, ROUNDING],
    ),
    keep(
        "setp",
        &[COMPARISON, LOGIC, INTEGERS, FLOATS, BITS, ROUNDING],
    ),
    keep("shf", &[BITS, &["l", "r", "wrap", "clamp"]]),
    keep("shfl", WARP_VALUES),
    keep("shl", &[BITS]),
    keep("shr", &[BITS, INTEGERS]),
    slow("sin", &[FLOATS, ROUNDING]),
    keep("slct", &[BITS, INTEGERS, FLOATS, ROUNDING]),
    slow("sqrt", &[FLOATS, ROUNDING]),
    row_of(
        "st",
        &[
            SEMANTICS,
            SCOPES,
            SPACES,
            PARAM_SPACES,
            CACHING,
            VECTORS,
            BITS,
            INTEGERS,
            FLOATS,
            WIDE,
        ],
        0,
        Access,
        4,
    ),
    row_of("stmatrix", FRAGMENTS, 0, Access, 8),
    keep("sub", ARITHMETIC),
    keep("subc", ARITHMETIC),
    keep("szext", &[INTEGERS, &["clamp", "wrap"]]),
    slow("tanh", &[FLOATS, ROUNDING]),
    keep(
        "testp",
        &[
            FLOATS,
            &[
                "finite",
                "infinite",
                "number",
                "notanumber",
                "normal",
                "subnormal",
            ],
        ],
    ),
    row_of("trap", &[], 0, Trap, 1),
    keep("vabsdiff", VIDEO),
    keep("vabsdiff2", VIDEO),
    keep("vabsdiff4", VIDEO),
    keep("vadd", VIDEO),
    keep("vadd2", VIDEO),
    keep("vadd4", VIDEO),
    keep("vavrg2", VIDEO),
    keep("vavrg4", VIDEO),
    keep("vmad", VIDEO),
    keep("vmax", VIDEO),
    keep("vmax2", VIDEO),
    keep("vmax4", VIDEO),
    keep("vmin", VIDEO),
    keep("vmin2", VIDEO),
    keep("vmin4", VIDEO),
    slow("vote", WARP_VALUES),
    keep("vset", VIDEO),
    keep("vset2", VIDEO),
    keep("vset4", VIDEO),
    keep("vshl", VIDEO),
    keep("vshr", VIDEO),
    keep("vsub", VIDEO),
    keep("vsub2", VIDEO),
    keep("vsub4", VIDEO),
    // Its loads and stores have rows of their own nowhere: `wmma.load` is refused by its modifier.
    slow("wmma", MATRIX),
    keep("xor", BITWISE),
];

/// Opcodes that are known and refused, with the reason.
const REFUSED: &[(&[&str], &str)] = &[
    (
        &["alloca", "stacksave", "stackrestore"],
        "it moves the stack pointer",
    ),
    (
        &["applypriority", "createpolicy", "discard"],
        "it acts on cache lines, which can be wider than the guest's memory",
    ),
    (
        &["clusterlaunchcontrol", "griddepcontrol", "setmaxnreg"],
        "it acts on other grids or on the block's resources",
    ),
    (
        &["getctarank", "mapa"],
        "it reaches other blocks' shared memory",
    ),
    (
        &[
            "istypep", "suld", "suq", "sured", "sust", "tex", "tld4", "txq",
        ],
        "textures and surfaces are opaque handles",
    ),
    (
        &["mbarrier"],
        "a thread that waits on a barrier in memory cannot be stopped",
    ),
    (&["multimem"], "it reaches memory of several devices"),
    (
        &["tcgen05", "wgmma"],
        "a descriptor in a register says which shared memory it reads",
    ),
    (&["tensormap"], "it makes descriptors of memory"),
];

/// Modifiers that are known and refused: opcodes that have them (none for all), the modifiers, the reason.
const REFUSED_MODIFIERS: &[(&str, &[&str], &str)] = &[
    (
        "",
        &["L2::cache_hint"],
        "cache policies act beyond the guest's memory",
    ),
    (
        "",
        &["cluster", "shared::cluster"],
        "it reaches other blocks",
    ),
    (
        "",
        &["bulk", "tensor"],
        "its extent or descriptor decides what it reaches",
    ),
    (
        "",
        &["mbarrier", "mbarrier::complete_tx::bytes"],
        "a thread that waits on a barrier in memory cannot be stopped",
    ),
    (
        "",
        &["arrive"],
        "only barrier 0 for all threads of the block is waited for",
    ),
    (
        "fence",
        &["proxy"],
        "it orders copies that are refused themselves",
    ),
    (
        "wmma",
        &["load", "store"],
        "its stride decides what it reaches",
    ),
];

/// Why a modifier that its opcode's row does not have is refused.
pub(crate) fn modifier_reason(opcode: &str, modifier: &str) -> &'static str {
    REFUSED_MODIFIERS
        .iter()
        .find(|(of, modifiers, _)| {
            (of.is_empty() || *of == opcode) && modifiers.contains(&modifier)
        })
        .map_or(
            "it has a modifier that is not in the table of instructions",
            |row| row.2,
        )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write;
    use std::path::Path;

    use super::*;

    #[test]
    fn rows_are_in_order_for_the_search() {
        assert!(ROWS.is_sorted_by(|one, next| one.opcode < next.opcode));
    }

    #[test]
    fn what_is_refused_has_no_row() {
        let refused = REFUSED.iter().flat_map(|(opcodes, _)| *opcodes);
        assert_eq!(refused.filter(|opcode| row(opcode).is_some()).count(), 0);
    }

    /// `BLESS=1` writes the page.
    #[test]
    fn the_page_is_rendered_from_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ptx-subset.md");
        let page = page();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap() == page,
            "docs/ptx-subset.md is not what the table says: BLESS=1"
        );
    }

    fn page() -> String {
        let mut page = HEADING.to_owned();
        for row in ROWS {
            let words: Vec<_> = row
                .modifiers
                .concat()
                .iter()
                .map(|word| format!("`{word}`"))
                .collect();
            let _ = writeln!(
                page,
                "| `{}` | {} | {} |",
                row.opcode,
                row.action.words(),
                words.join(" ")
            );
        }
        page += "\n## Refused\nWhat has no row is refused, with its name and line. For these it is also said why.\n\n| what | why |\n| --- | --- |\n";
        let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (opcodes, reason) in REFUSED {
            reasons
                .entry(reason)
                .or_default()
                .extend(opcodes.iter().map(|opcode| format!("`{opcode}`")));
        }
        for (opcode, modifiers, reason) in REFUSED_MODIFIERS {
            let words = modifiers.iter().map(|word| match *opcode {
                "" => format!("`.{word}`"),
                opcode => format!("`{opcode}` with `.{word}`"),
            });
            reasons.entry(reason).or_default().extend(words);
        }
        for (reason, what) in reasons {
            let _ = writeln!(page, "| {} | {reason} |", what.join(" "));
        }
        page += "\n## Special registers\n";
        let names: Vec<_> = SPECIAL.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "{}. No other is read.", names.join(" "));
        page
    }

    const HEADING: &str = "# PTX that can be confined

Rendered from `crates/ptx/src/isa.rs` (`BLESS=1 cargo test -p wasi-cuda-ptx --lib` writes it). A program with anything else is refused by devices that confine kernels; the CPU
device also runs programs as they are and knows instructions of its own. [Confined text](confinement.md) says what the actions mean.

## Instructions
| opcode | what is done | modifiers |
| --- | --- | --- |
";
}
