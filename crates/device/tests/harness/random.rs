//! Random data that is the same in every run.

/// The generator "SplitMix64" (Steele, Lea, Flood 2014): every seed gives a full period.
pub(crate) struct Random(u64);

impl Random {
    /// A generator that always gives the same numbers for a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 32 random bits.
    pub(crate) fn word(&mut self) -> u32 {
        let [_, _, _, _, high @ ..] = self.bits().to_le_bytes();
        u32::from_le_bytes(high)
    }

    /// A number from `low` to `high`, all multiples of 2^-53 of the way equally likely.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        // 53 bits are exact in an `f64`.
        let part = (self.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low) * part
    }

    /// `count` numbers from `low` to `high`, rounded to `f32`.
    pub(crate) fn floats(&mut self, count: usize, low: f64, high: f64) -> Vec<f32> {
        (0..count)
            .map(|_| narrowed(self.between(low, high)))
            .collect()
    }

    /// `count` numbers from `low` to `high`.
    pub(crate) fn doubles(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        (0..count).map(|_| self.between(low, high)).collect()
    }

    /// `count` words of random bits.
    pub(crate) fn words(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.word()).collect()
    }

    /// `count` integers of random bits.
    pub(crate) fn integers(&mut self, count: usize) -> Vec<i32> {
        (0..count).map(|_| self.word().cast_signed()).collect()
    }

    /// `count` random bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.word().to_le_bytes()[3]).collect()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to f32 is what is wanted"
)]
fn narrowed(value: f64) -> f32 {
    value as f32
}
