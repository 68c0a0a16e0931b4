//! Memory of one kernel: arrays in buffers of the device, in one window.

use std::sync::Arc;

use device::{Carved, Device, MAX_WINDOW_BYTES, Region, RegionSpec, Value};

/// A whole window, in which a confined kernel's addresses take the fewest instructions.
const SPEC: RegionSpec = RegionSpec {
    window_bytes: MAX_WINDOW_BYTES,
    initial_bytes: 1 << 16,
    maximum_bytes: 1 << 16,
    reserved_bytes: MAX_WINDOW_BYTES,
    guard_bytes: 1 << 16,
};

/// One array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array(usize);

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    Array(Array),
    F32(f32),
    I32(i32),
}

#[derive(Debug)]
struct Placed {
    buffer: Carved,
    initial: Vec<u8>,
}

/// The arrays.
#[derive(Debug)]
pub(crate) struct Arena {
    region: Arc<Region>,
    arrays: Vec<Placed>,
}

impl Arena {
    pub(crate) fn new(device: &dyn Device) -> Self {
        Self {
            region: device.new_region(SPEC).expect("a window"),
            arrays: Vec::new(),
        }
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    fn carve(&self, bytes: usize) -> Carved {
        self.region.carve(bytes as u64).expect("room in the window")
    }

    /// An array of these bytes, which only kernels that read it change.
    pub(crate) fn input(&mut self, bytes: &[u8]) -> Array {
        let buffer = self.carve(bytes.len());
        buffer.write(0, bytes).expect("a buffer of that size");
        self.push(buffer, Vec::new())
    }

    /// An array that a kernel writes or changes.
    pub(crate) fn output(&mut self, initial: Vec<u8>) -> Array {
        let buffer = self.carve(initial.len());
        self.push(buffer, initial)
    }

    fn push(&mut self, buffer: Carved, initial: Vec<u8>) -> Array {
        self.arrays.push(Placed { buffer, initial });
        Array(self.arrays.len() - 1)
    }

    /// Makes an output what it was at first.
    pub(crate) fn reset(&self, Array(at): Array) {
        let placed = &self.arrays[at];
        placed
            .buffer
            .write(0, &placed.initial)
            .expect("a buffer of that size");
    }

    /// What an output was at first.
    pub(crate) fn initial(&self, Array(at): Array) -> &[u8] {
        &self.arrays[at].initial
    }

    pub(crate) fn read(&self, Array(at): Array) -> Vec<u8> {
        let placed = &self.arrays[at];
        let mut bytes = vec![0; placed.initial.len()];
        placed
            .buffer
            .read(0, &mut bytes)
            .expect("a buffer of that size");
        bytes
    }

    /// An argument as a launch takes it.
    pub(crate) fn value(&self, argument: Argument) -> Value<'static> {
        match argument {
            Argument::Array(Array(at)) => {
                let buffer = &self.arrays[at].buffer;
                Value::Pointer {
                    offset: buffer.start(),
                    len: buffer.bytes(),
                }
            }
            Argument::F32(value) => Value::F32(value),
            Argument::I32(value) => Value::I32(value),
        }
    }
}

/// Random bytes that are the same in every run, made faster than a kernel's worth of them takes to copy.
#[derive(Debug)]
pub(crate) struct Noise(u32);

impl Noise {
    pub(crate) fn new(seed: u32) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u32 {
        // The generator of "Numerical Recipes"; its high bits are good enough for data.
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0
    }

    /// From -1 to 1.
    fn number(&mut self) -> f32 {
        let [_, low, mid, high] = self.word().to_le_bytes();
        let bits = i32::from_le_bytes([0, low, mid, high]) >> 8;
        // 24 bits are exact.
        bits as f32 / 8_388_608.0
    }

    pub(crate) fn floats(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .flat_map(|_| self.number().to_le_bytes())
            .collect()
    }

    /// Numbers of 16 bits: sign, 5 bits of exponent, 10 of fraction, from -1 to 1.
    pub(crate) fn halves(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .flat_map(|_| half(self.number()).to_le_bytes())
            .collect()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.word().to_le_bytes()[3]).collect()
    }

    /// Numbers below `end`.
    pub(crate) fn indices(&mut self, count: usize, end: u32) -> Vec<u8> {
        (0..count)
            .flat_map(|_| ((self.word() >> 8) % end).to_le_bytes())
            .collect()
    }
}

/// Rounds towards zero; numbers too small for a normal one are zero.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let [_, _, _, high] = bits.to_le_bytes();
    let sign = u16::from_le_bytes([0, high]) & 0x8000;
    let exponent = (bits >> 23 & 0xFF).saturating_sub(112);
    if exponent == 0 {
        return sign;
    }
    let magnitude = exponent << 10 | bits >> 13 & 0x3FF;
    sign | u16::try_from(magnitude).unwrap_or(0x7BFF)
}
