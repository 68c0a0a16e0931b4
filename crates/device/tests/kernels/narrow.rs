//! Numbers narrower than those of Rust: their bits from values, rounded to nearest even, and back.

/// A format of 16 or 8 bits: how many are exponent and mantissa.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    exponent: i32,
    mantissa: i32,
    /// The bits of what is too large.
    largest: i32,
}

pub(crate) const BF16: Format = Format {
    exponent: 8,
    mantissa: 7,
    largest: 0x7F80,
};
pub(crate) const F16: Format = Format {
    exponent: 5,
    mantissa: 10,
    largest: 0x7C00,
};
/// FP8 with four bits of exponent, which has no infinity: what is too large becomes its largest number.
pub(crate) const E4M3: Format = Format {
    exponent: 4,
    mantissa: 3,
    largest: 0x7E,
};

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The bits of the number that is nearest to a value; infinity, or what has its bits, where none is as large.
    pub(crate) fn bits(self, value: f64) -> u16 {
        let size = value.abs();
        let sign = i32::from(value.is_sign_negative()) << (self.exponent + self.mantissa);
        let least = 1 - self.bias();
        let exponent = (0..=self.bias() + 1)
            .rev()
            .chain((least..0).rev())
            .find(|&exponent| size >= 2_f64.powi(exponent))
            .unwrap_or(least);
        let steps = (size / 2_f64.powi(exponent - self.mantissa)).round_ties_even();
        // Not more than one bit longer than the mantissa, or far beyond any number.
        let steps = (0..=2 << (self.mantissa + 1)).find(|&n| f64::from(n) >= steps);
        let bits = steps.map_or(self.largest, |n| ((exponent - least) << self.mantissa) + n);
        u16::try_from(sign | bits.min(self.largest)).expect("16 bits")
    }

    /// The value of a number that is finite.
    pub(crate) fn value(self, bits: u16) -> f64 {
        let bits = i32::from(bits);
        let mantissa = bits & ((1 << self.mantissa) - 1);
        let exponent = (bits >> self.mantissa) & ((1 << self.exponent) - 1);
        let (mantissa, exponent) = match exponent {
            0 => (mantissa, 1),
            _ => (mantissa | 1 << self.mantissa, exponent),
        };
        let size = f64::from(mantissa) * 2_f64.powi(exponent - self.bias() - self.mantissa);
        if bits >> (self.exponent + self.mantissa) == 0 {
            size
        } else {
            -size
        }
    }

    /// How far numbers around a value are from each other.
    pub(crate) fn step(self, value: f64) -> f64 {
        let least = 2_f64.powi(1 - self.bias());
        2_f64.powi(-self.mantissa) * value.abs().max(least)
    }
}
