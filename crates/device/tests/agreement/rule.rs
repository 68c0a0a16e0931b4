//! What PTX fixes of each entry's results, and how far they may differ where it does not.

use crate::compare::{self, Format, Unit};
use crate::kernels::narrow;

/// How much results may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// PTX fixes every bit, but for those of a NaN.
    Fixed,
    /// Every bit, those of a NaN too: numbers are moved.
    Moved,
    /// At most so many units of the last place.
    Ulps(f64, Unit),
}

/// Why they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// They may not.
    None,
    /// Devices differ in what instructions compute.
    Instructions,
    /// Launches differ in what comes first, on one device too.
    Order,
}

/// Which data launches are made again with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    /// Only those that the bodies give.
    Given,
    /// Floats of all kinds.
    Any,
    /// Floats of a range, and a few of the edges among them.
    Within {
        low: f64,
        high: f64,
        edges: &'static [f32],
    },
    /// Integers of all kinds.
    Integers,
}

/// What words of 16 bits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Bf16,
    F16,
}

impl Half {
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Bf16 => compare::BF16,
            Self::F16 => compare::F16,
        }
    }

    /// The bits of the number that is nearest to a value.
    pub(crate) fn nearest(self, value: f64) -> u16 {
        match self {
            Self::Bf16 => narrow::BF16.bits(value),
            Self::F16 => narrow::F16.bits(value),
        }
    }
}

/// A part of the results that no order fixes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exempt {
    /// The numbers of a buffer from a place on.
    From(usize, usize),
    /// The sequence of the numbers of a buffer.
    Sequence(usize),
}

/// What holds for an entry of a file, or for all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    file: &'static str,
    entry: &'static str,
    pub(crate) bound: Bound,
    pub(crate) cause: Cause,
    pub(crate) data: Data,
    pub(crate) halves: Option<Half>,
    /// How much integers may differ.
    pub(crate) steps: f64,
    /// What depends on the order of threads.
    pub(crate) exempt: &'static [Exempt],
    pub(crate) why: &'static str,
}

/// The entry, or every one of the file where it is empty, has results that PTX fixes.
const fn fixed(file: &'static str, entry: &'static str) -> Rule {
    Rule {
        file,
        entry,
        bound: Bound::Fixed,
        cause: Cause::None,
        data: Data::Any,
        halves: None,
        steps: 0.0,
        exempt: &[],
        why: "",
    }
}

const fn about(
    file: &'static str,
    entry: &'static str,
    (ulps, unit): (f64, Unit),
    data: Data,
    why: &'static str,
) -> Rule {
    Rule {
        bound: Bound::Ulps(ulps, unit),
        cause: Cause::Instructions,
        data,
        why,
        ..fixed(file, entry)
    }
}

const fn in_any_order(
    file: &'static str,
    entry: &'static str,
    bound: Bound,
    data: Data,
    why: &'static str,
) -> Rule {
    Rule {
        bound,
        cause: Cause::Order,
        data,
        why,
        ..fixed(file, entry)
    }
}

const fn integers(file: &'static str, entry: &'static str) -> Rule {
    Rule {
        data: Data::Integers,
        ..fixed(file, entry)
    }
}

const fn of_halves(half: Half, rule: Rule) -> Rule {
    Rule {
        halves: Some(half),
        ..rule
    }
}

const HUGE: f32 = f32::from_bits((127 + 100) << 23);

/// Edges whose results do not hang on whether an error makes a sum overflow.
const EDGES: &[f32] = &[
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    0.0,
    -0.0,
    f32::from_bits(1),
    f32::from_bits(0x8060_0000),
    HUGE,
    -HUGE,
];

/// The same where infinity may meet an approximate zero.
const FINITE: &[f32] = &[
    f32::NAN,
    0.0,
    -0.0,
    f32::from_bits(1),
    f32::from_bits(0x8060_0000),
];

const fn data(low: f64, high: f64, edges: &'static [f32]) -> Data {
    Data::Within { low, high, edges }
}

const AROUND_ZERO: Data = data(-2.0, 2.0, EDGES);

const RULES: &[Rule] = &[
    // One instruction an entry: what the PTX manual gives, and half a unit for the rounding of the CPU device.
    about(
        "approximate",
        "ex2",
        (2.5, Unit::Result),
        data(-150.0, 130.0, EDGES),
        "ex2.approx: 2 ulp",
    ),
    about(
        "approximate",
        "ex2_flushing",
        (2.5, Unit::Result),
        data(-150.0, 130.0, EDGES),
        "ex2.approx.ftz: 2 ulp",
    ),
    about(
        "approximate",
        "lg2",
        (4.5, Unit::AtLeast(0.5)),
        data(1e-3, 1e3, EDGES),
        "lg2.approx: 2^-22, absolute from 1/2 to 2, else relative",
    ),
    about(
        "approximate",
        "sin",
        (6.2, Unit::AtLeast(1.0)),
        data(-6.2, 6.2, FINITE),
        "sin.approx: 2^-20.5 absolute within a turn",
    ),
    about(
        "approximate",
        "cos",
        (6.2, Unit::AtLeast(1.0)),
        data(-6.2, 6.2, FINITE),
        "cos.approx: 2^-20.5 absolute within a turn",
    ),
    about(
        "approximate",
        "rsqrt",
        (2.7, Unit::Result),
        data(1e-3, 1e3, EDGES),
        "rsqrt.approx: 2^-22.9 relative",
    ),
    about(
        "approximate",
        "rcp",
        (1.5, Unit::Result),
        data(-1e3, 1e3, EDGES),
        "rcp.approx: 1 ulp",
    ),
    about(
        "approximate",
        "sqrt",
        (2.5, Unit::Result),
        data(1e-3, 1e3, EDGES),
        "sqrt.approx: 2^-23 relative",
    ),
    about(
        "approximate",
        "tanh",
        (8193.0, Unit::Result),
        data(-9.0, 9.0, EDGES),
        "tanh.approx: 2^-11 relative",
    ),
    about(
        "approximate",
        "div",
        (2.5, Unit::Result),
        data(-9.0, 9.0, EDGES),
        "div.approx: 2 ulp",
    ),
    about(
        "approximate",
        "div_full",
        (2.5, Unit::Result),
        data(-9.0, 9.0, EDGES),
        "div.full: 2 ulp",
    ),
    about(
        "cuda/attention.sm_80",
        "",
        (64.0, Unit::Largest),
        AROUND_ZERO,
        "ex2.approx (2 ulp) in weights and their sum; means are smaller than their terms",
    ),
    about(
        "cuda/blackscholes.sm_75",
        "",
        (64.0, Unit::Largest),
        data(0.1, 50.0, EDGES),
        "ex2.approx.ftz (2 ulp), rcp.approx.ftz (1 ulp) in sums that cancel",
    ),
    about(
        "cuda/fft_radix2.sm_75",
        "",
        (256.0, Unit::Largest),
        data(-1.0, 1.0, FINITE),
        "sin.approx, cos.approx: 2^-20.5 a stage, nine stages",
    ),
    of_halves(
        Half::F16,
        about(
            "cuda/half_bf16.sm_80",
            "hfma2_gelu",
            (2.0, Unit::AtLeast(0.001)),
            data(-3.0, 3.0, EDGES),
            "ex2.approx.ftz, rcp.approx.ftz, rounded to f16: a step and one more where they cancel",
        ),
    ),
    Rule {
        halves: Some(Half::Bf16),
        data: AROUND_ZERO,
        ..fixed("cuda/half_bf16.sm_80", "bf16_axpby")
    },
    of_halves(
        Half::F16,
        about(
            "cuda/half_bf16.sm_80",
            "half_scalar",
            (2.0, Unit::Result),
            data(-2.0, 2.0, EDGES),
            "sqrt.approx.ftz, rcp.approx.ftz, rounded to f16",
        ),
    ),
    of_halves(
        Half::F16,
        about(
            "cuda/hgemm_mma.sm_80",
            "",
            (128.0, Unit::Largest),
            AROUND_ZERO,
            "mma: order and rounding of sums of 128 products",
        ),
    ),
    about(
        "cuda/layernorm.sm_80",
        "",
        (16.0, Unit::Largest),
        AROUND_ZERO,
        "rsqrt.approx: 2^-22.9 relative, then sums that cancel",
    ),
    about(
        "cuda/libm_f32.sm_75",
        "",
        (16.0, Unit::Result),
        data(-9.0, 9.0, EDGES),
        "ex2.approx.ftz, lg2.approx, rcp.approx.ftz, div.approx in functions that CUDA gives 4 ulp at most",
    ),
    about(
        "cuda/libm_f64.sm_75",
        "",
        (4.0, Unit::Largest),
        data(-9.0, 9.0, EDGES),
        "rcp.approx.ftz.f64 begins a quotient that is refined",
    ),
    about(
        "cuda/nbody.sm_80",
        "",
        (64.0, Unit::Largest),
        AROUND_ZERO,
        "rsqrt.approx: 2^-22.9 relative, cubed, in sums that cancel",
    ),
    about(
        "cuda/softmax.sm_80",
        "",
        (32.0, Unit::Result),
        AROUND_ZERO,
        "ex2.approx (2 ulp) in numerator and sum, whose roundings follow",
    ),
    of_halves(
        Half::F16,
        about(
            "cuda/wmma_gemm.sm_80",
            "",
            (128.0, Unit::Largest),
            AROUND_ZERO,
            "wmma: order and rounding of sums of 128 products",
        ),
    ),
    about(
        "triton/dropout.sm_80",
        "",
        (2.5, Unit::Result),
        AROUND_ZERO,
        "div.full: 2 ulp",
    ),
    of_halves(
        Half::F16,
        about(
            "triton/flash_fwd.sm_80",
            "",
            (4.0, Unit::Largest),
            data(-1.0, 1.0, &[0.0]),
            "ex2.approx, mma, div.full; weights and results are rounded to f16",
        ),
    ),
    about(
        "triton/gelu_erf.sm_80",
        "",
        (16.0, Unit::AtLeast(1.0)),
        data(-4.0, 4.0, EDGES),
        "ex2.approx.ftz: 2 ulp, in 1 + erf(x), which cancels",
    ),
    of_halves(
        Half::F16,
        about(
            "triton/layernorm.sm_80",
            "",
            (2.0, Unit::AtLeast(1.0)),
            data(-2.0, 2.0, FINITE),
            "div.full (2 ulp), sqrt.approx.ftz, rounded to f16",
        ),
    ),
    of_halves(
        Half::F16,
        about(
            "triton/matmul.sm_80",
            "",
            (2.0, Unit::Largest),
            AROUND_ZERO,
            "mma: order and rounding of sums, rounded to f16",
        ),
    ),
    Rule {
        steps: 1.0,
        ..about(
            "triton/quant_i8.sm_80",
            "",
            (2.5, Unit::Result),
            data(-9.0, 9.0, EDGES),
            "div.full, div.approx: 2 ulp; a quotient between two integers may go to either",
        )
    },
    about(
        "triton/softmax.sm_80",
        "",
        (32.0, Unit::Result),
        AROUND_ZERO,
        "ex2.approx, div.full: 2 ulp each, and the roundings of a sum",
    ),
    of_halves(
        Half::F16,
        about(
            "triton/softmax.sm_90a",
            "",
            (2.0, Unit::Result),
            AROUND_ZERO,
            "ex2.approx, div.full: 2 ulp each of f32, rounded to f16",
        ),
    ),
    about(
        "nvcc/paged_attention.sm_80",
        "",
        (64.0, Unit::Largest),
        AROUND_ZERO,
        "ex2.approx (2 ulp) in weights and their sum",
    ),
    about(
        "nvcc/paged_attention.sm_90",
        "",
        (64.0, Unit::Largest),
        AROUND_ZERO,
        "ex2.approx (2 ulp) in weights and their sum",
    ),
    of_halves(
        Half::Bf16,
        about(
            "nvcc/rmsnorm_rope.sm_80",
            "",
            (2.0, Unit::Largest),
            AROUND_ZERO,
            "rsqrt.approx: 2^-22.9 relative, rounded to bf16",
        ),
    ),
    of_halves(
        Half::Bf16,
        about(
            "nvcc/rmsnorm_rope.sm_90",
            "",
            (2.0, Unit::Largest),
            AROUND_ZERO,
            "rsqrt.approx: 2^-22.9 relative, rounded to bf16",
        ),
    ),
    // Atomics on floats: on data whose sums are exact the order does not show.
    Rule {
        exempt: &[Exempt::From(0, 8), Exempt::From(1, 2)],
        ..in_any_order(
            "cuda/atomics.sm_80",
            "atomics_mix",
            Bound::Fixed,
            Data::Given,
            "float atomics in any order: data whose sums are exact; words that say which thread came first are left out",
        )
    },
    in_any_order(
        "cuda/atomics.sm_80",
        "last_block_sum",
        Bound::Ulps(16.0, Unit::AtLeast(32.0)),
        data(-2.0, 2.0, &[]),
        "float atomics in any order: eight warps",
    ),
    in_any_order(
        "cuda/spinlock.sm_75",
        "fmax_cas",
        Bound::Fixed,
        data(-1e6, 1e6, &[]),
        "atomics in any order: zeros of both signs are left out",
    ),
    in_any_order(
        "cuda/struct_param.sm_80",
        "",
        Bound::Ulps(8.0, Unit::Largest),
        data(-2.0, 2.0, &[]),
        "four float atomics in any order",
    ),
    in_any_order(
        "cuda/vec_atomics.sm_90",
        "",
        Bound::Fixed,
        Data::Given,
        "float atomics in any order: data whose sums are exact",
    ),
    in_any_order(
        "nvcc/layernorm_bwd.sm_80",
        "",
        Bound::Ulps(32.0, Unit::Largest),
        data(-2.0, 2.0, &[]),
        "float atomics in any order: five rows",
    ),
    in_any_order(
        "nvcc/layernorm_bwd.sm_90",
        "",
        Bound::Ulps(32.0, Unit::Largest),
        data(-2.0, 2.0, &[]),
        "float atomics in any order: five rows",
    ),
    Rule {
        bound: Bound::Moved,
        ..fixed("cuda/transpose.sm_75", "")
    },
    Rule {
        bound: Bound::Moved,
        ..fixed("cuda/globals.sm_75", "")
    },
    Rule {
        exempt: &[Exempt::Sequence(1)],
        ..in_any_order(
            "cuda/warp_vote.sm_80",
            "compact",
            Bound::Fixed,
            Data::Given,
            "warps take their places in any order: sorted",
        )
    },
    integers("carries", ""),
    integers("clang/reduce.sm_75", ""),
    integers("cuda/bitonic.sm_75", ""),
    integers("cuda/bitops.sm_75", ""),
    integers("cuda/coop_grid.sm_80", "tile_reduce"),
    integers("cuda/histogram.sm_75", ""),
    integers("cuda/image_u8.sm_75", ""),
    integers("cuda/inline_asm.sm_80", ""),
    integers("cuda/quantize_i8.sm_80", "dot_i8"),
    integers("cuda/scan.sm_75", ""),
    integers("cuda/sha256.sm_75", ""),
    integers("cuda/tma_bulk.sm_90", ""),
    integers("cuda/warp_vote.sm_80", "warp_vote"),
    integers("triton/cumsum.sm_80", ""),
    integers("triton/hist_atomic.sm_80", ""),
    Rule {
        halves: Some(Half::F16),
        data: AROUND_ZERO,
        ..fixed("nvcc/int4_matmul.sm_80", "")
    },
    Rule {
        halves: Some(Half::F16),
        data: AROUND_ZERO,
        ..fixed("nvcc/int4_matmul.sm_90", "")
    },
];

/// Files whose results cannot be compared, and why.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
    (
        "cuda/cdp.sm_90",
        "launches kernels, which the CPU device refuses",
    ),
    ("cuda/printf_k.sm_75", "prints and writes nothing"),
    (
        "cuda/texture.sm_75",
        "textures, which the CPU device refuses",
    ),
    ("cuda/timers.sm_75", "writes what time it is"),
    (
        "triton/matmul.sm_90a",
        "wgmma, which the CPU device refuses",
    ),
];

/// What holds for an entry.
pub(crate) fn of(file: &str, entry: &str) -> Rule {
    let known = RULES
        .iter()
        .find(|rule| rule.file == file && (rule.entry.is_empty() || rule.entry == entry));
    known.copied().unwrap_or(fixed("", ""))
}
