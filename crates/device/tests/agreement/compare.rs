//! How far two results are from each other. Nothing here knows a kernel.

/// A format of floating-point numbers: bits of exponent and mantissa.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    exponent: u32,
    mantissa: u32,
}

pub(crate) const BF16: Format = Format {
    exponent: 8,
    mantissa: 7,
};
pub(crate) const F16: Format = Format {
    exponent: 5,
    mantissa: 10,
};
pub(crate) const F32: Format = Format {
    exponent: 8,
    mantissa: 23,
};
pub(crate) const F64: Format = Format {
    exponent: 11,
    mantissa: 52,
};

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn lengths(self) -> [i32; 2] {
        [self.exponent, self.mantissa].map(|bits| i32::try_from(bits).expect("a few bits"))
    }

    /// The number that some bits stand for. Infinity is the power of two that would come next, so that it is one unit from the
    /// largest number.
    pub(crate) fn value(self, bits: u64) -> f64 {
        let [_, mantissa_bits] = self.lengths();
        let most = (1_u64 << self.exponent) - 1;
        let exponent = bits >> self.mantissa & most;
        let mantissa = bits & ((1 << self.mantissa) - 1);
        let is_negative = bits >> (self.mantissa + self.exponent) & 1 == 1;
        let power = |exponent: i32| f64::from(exponent).exp2();
        let biased = i32::try_from(exponent).expect("a few bits");
        let size = match (exponent, mantissa) {
            (0, _) => mantissa as f64 * power(1 - self.bias() - mantissa_bits),
            (_, 0) if exponent == most => power(self.bias() + 1),
            _ if exponent == most => f64::NAN,
            _ => (1.0 + mantissa as f64 * power(-mantissa_bits)) * power(biased - self.bias()),
        };
        if is_negative { -size } else { size }
    }

    /// The distance of numbers as large as this one from the next.
    pub(crate) fn unit(self, value: f64) -> f64 {
        let [_, mantissa_bits] = self.lengths();
        let biased = value.to_bits() >> 52 & 0x7FF;
        let exponent = i32::try_from(biased).expect("11 bits") - 1023;
        let exponent = exponent.clamp(1 - self.bias(), self.bias());
        f64::from(exponent - mantissa_bits).exp2()
    }

    /// Whether a number is zero, subnormal or the least that is not: an instruction may have flushed it.
    pub(crate) fn is_small(self, value: f64) -> bool {
        value.abs() <= f64::from(1 - self.bias()).exp2()
    }
}

/// What units of the last place are counted in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unit {
    /// That of the larger result.
    Result,
    /// The same, but at least that of a number: near zero an error is absolute.
    AtLeast(f64),
    /// That of the largest number of the buffer: results are sums that may cancel.
    Largest,
}

/// Results of one buffer that are not the same bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Apart {
    /// The largest distance in units of the last place; infinite for a NaN against a number.
    pub(crate) ulps: f64,
    /// NaN against another NaN.
    pub(crate) payloads: usize,
}

/// Compares numbers of a format.
pub(crate) fn floats(pairs: &[[u64; 2]], format: Format, unit: Unit) -> Apart {
    let values = || pairs.iter().flatten().map(|&bits| format.value(bits).abs());
    let infinite = f64::from(format.bias() + 1).exp2();
    let largest = values().filter(|&size| size < infinite).fold(0.0, f64::max);
    let mut apart = Apart::default();
    for &[first, second] in pairs.iter().filter(|[first, second]| first != second) {
        let [a, b] = [first, second].map(|bits| format.value(bits));
        if a.is_nan() && b.is_nan() {
            apart.payloads += 1;
            continue;
        }
        let size = a.abs().max(b.abs());
        let of = match unit {
            Unit::Result => size,
            Unit::AtLeast(least) => size.max(least),
            Unit::Largest => size.max(largest),
        };
        let ulps = if a.is_nan() || b.is_nan() || a.is_infinite() || b.is_infinite() {
            f64::INFINITY
        } else if unit != Unit::Result && format.is_small(a) && format.is_small(b) {
            0.0
        } else if format.is_small(a) && format.is_small(b) {
            1.0
        } else {
            (a - b).abs() / format.unit(of)
        };
        apart.ulps = apart.ulps.max(ulps);
    }
    apart
}

/// Compares integers of some bytes.
pub(crate) fn integers(pairs: &[[u64; 2]], bytes: usize) -> Apart {
    let unused = 64 - 8 * u32::try_from(bytes).expect("a few bytes");
    let signed = |bits: u64| bits.wrapping_shl(unused).cast_signed() >> unused;
    let distance = |&[a, b]: &[u64; 2]| signed(a).abs_diff(signed(b));
    let ulps = pairs.iter().map(distance).max().unwrap_or(0) as f64;
    Apart { ulps, payloads: 0 }
}
