//! Fragments of matrices that warps multiply: `mma`, whose layouts the PTX ISA documents, and `wmma`, of which it leaves open
//! which lane holds which element: here each lane has elements that follow each other in the order of rows, from its first
//! register on, and again where there are more registers than elements. Products are exact; those of floats are summed in f32
//! in order of `k`.
#![expect(
    clippy::cast_possible_truncation,
    reason = "elements narrower than a register are kept in its low bits"
)]

use super::code::{LANES, Space};
use super::convert::{E4M3, E5M2, from_bf16, from_f16, from_small, to_f16};
use super::float::bits;
use super::lanes::{Regs, lanes};
use super::memory::{Fault, Local, Memory, fault};

/// What the elements of a fragment are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Bf16,
    E4m3,
    E5m2,
    F16,
    F32,
    F64,
    S32,
    S8,
    Tf32,
    U8,
}

impl Element {
    pub(super) fn bytes(self) -> u32 {
        match self {
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 1,
            Self::Bf16 | Self::F16 => 2,
            Self::F32 | Self::S32 | Self::Tf32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Which lane holds which elements of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Those of `wmma`.
    Dense,
    /// A of `mma`: four lanes have a row, two registers rows that are eight apart.
    Left,
    /// B of `mma`: four lanes have a column.
    Right,
    /// C and D of `mma`: pairs of a row, which follow each other.
    Sum,
}

/// A fragment: a tile of a matrix in registers of a warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) slots: [u16; 8],
    /// How many slots there are.
    pub(super) count: u8,
    pub(super) element: Element,
    pub(super) layout: Layout,
    pub(super) rows: u8,
    pub(super) columns: u8,
}

/// A `wmma` fragment and where it lies in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileAccess {
    pub(super) tile: Tile,
    pub(super) address: u16,
    pub(super) wide_address: bool,
    pub(super) offset: i32,
    pub(super) space: Space,
    /// Slot of the elements from a row, or column, to the next; none where they are dense.
    pub(super) stride: Option<u16>,
    /// Whether columns lie behind each other.
    pub(super) by_column: bool,
}

/// Elements of the largest tile.
const MOST_ELEMENTS: usize = 32 * 16;
/// Bits of the mantissa of an f32 that a tf32 has not.
const TF32_SPARE: u32 = (1 << 13) - 1;

/// The elements of a tile, as bits.
type Elements = [u64; MOST_ELEMENTS];

impl Tile {
    fn size(&self) -> usize {
        usize::from(self.rows) * usize::from(self.columns)
    }

    fn of_lane(&self) -> usize {
        self.size() / LANES
    }

    /// Elements of a register.
    fn of_register(&self) -> usize {
        match self.element.bytes() {
            8 => 1,
            bytes => 4 / bytes as usize,
        }
    }

    /// Which element, in the order of rows, is a part of a register of a lane.
    fn place(&self, lane: usize, register: usize, part: usize) -> usize {
        let parts = self.of_register();
        let (group, thread) = (lane / 4, lane % 4);
        let (row, column) = match self.layout {
            Layout::Dense => {
                let of_lane = self.of_lane();
                return lane * of_lane + (register * parts + part) % of_lane;
            }
            Layout::Left => (
                group + 8 * (register % 2),
                (thread + 4 * (register / 2)) * parts + part,
            ),
            Layout::Right => ((thread + 4 * register) * parts + part, group),
            Layout::Sum => {
                let pair = register * parts + part;
                (group + 8 * (pair / 2), 2 * thread + pair % 2)
            }
        };
        row * usize::from(self.columns) + column
    }

    fn read(&self, regs: &Regs<'_>) -> Elements {
        let mut elements = [0; MOST_ELEMENTS];
        let width = 8 * self.element.bytes();
        for (register, &slot) in self.slots[..usize::from(self.count)].iter().enumerate() {
            for lane in 0..LANES {
                let word = if self.element == Element::F64 {
                    regs.d[usize::from(slot)][lane]
                } else {
                    u64::from(regs.w[usize::from(slot)][lane])
                };
                for part in 0..self.of_register() {
                    let bits = (word >> (part as u32 * width)) & (u64::MAX >> (64 - width));
                    elements[self.place(lane, register, part)] = bits;
                }
            }
        }
        elements
    }

    fn write(&self, regs: &mut Regs<'_>, elements: &Elements, mask: u32) {
        let width = 8 * self.element.bytes();
        for (register, &slot) in self.slots[..usize::from(self.count)].iter().enumerate() {
            for lane in lanes(mask) {
                let parts = (0..self.of_register()).map(|part| {
                    elements[self.place(lane, register, part)] << (part as u32 * width)
                });
                let word = parts.fold(0, |word, part| word | part);
                if self.element == Element::F64 {
                    regs.d[usize::from(slot)][lane] = word;
                } else {
                    regs.w[usize::from(slot)][lane] = word as u32;
                }
            }
        }
    }
}

impl TileAccess {
    /// The address of an element that a lane accesses.
    fn address(&self, regs: &Regs<'_>, lane: usize, element: usize) -> u64 {
        let slot = usize::from(self.address);
        let base = if self.wide_address {
            regs.d[slot][lane]
        } else {
            u64::from(regs.w[slot][lane])
        };
        let base = base.wrapping_add(i64::from(self.offset).cast_unsigned());
        let columns = usize::from(self.tile.columns);
        let (row, column) = (element / columns, element % columns);
        let (outer, inner, dense) = if self.by_column {
            (column, row, self.tile.rows)
        } else {
            (row, column, self.tile.columns)
        };
        let stride = self.stride.map_or(u64::from(dense), |slot| {
            regs.w[usize::from(slot)][lane].into()
        });
        let at = (outer as u64).wrapping_mul(stride) + inner as u64;
        base.wrapping_add(at.wrapping_mul(self.tile.element.bytes().into()))
    }
}

/// `wmma.load`.
pub(super) fn load(
    regs: &mut Regs<'_>,
    memory: &Memory<'_>,
    local: &Local,
    access: &TileAccess,
    mask: u32,
) -> Result<(), Fault> {
    let (space, of_lane) = (access.space, access.tile.of_lane());
    let mut elements = [0; MOST_ELEMENTS];
    for lane in lanes(mask) {
        for (index, element) in elements
            .iter_mut()
            .enumerate()
            .skip(lane * of_lane)
            .take(of_lane)
        {
            let address = access.address(regs, lane, index);
            let bytes = access.tile.element.bytes();
            let loaded = match bytes {
                1 => memory
                    .load_one::<u8>(local, space, address, lane)
                    .map(u64::from),
                2 => memory
                    .load_one::<u16>(local, space, address, lane)
                    .map(u64::from),
                4 => memory
                    .load_one::<u32>(local, space, address, lane)
                    .map(u64::from),
                _ => memory.load_one::<u64>(local, space, address, lane),
            };
            *element = loaded.map_err(|kind| fault(kind, lane, address, bytes.into(), space))?;
        }
    }
    access.tile.write(regs, &elements, mask);
    Ok(())
}

/// `wmma.store`.
pub(super) fn store(
    regs: &Regs<'_>,
    memory: &mut Memory<'_>,
    local: &mut Local,
    access: &TileAccess,
    mask: u32,
) -> Result<(), Fault> {
    let (space, of_lane) = (access.space, access.tile.of_lane());
    let elements = access.tile.read(regs);
    for lane in lanes(mask) {
        for (index, &value) in elements
            .iter()
            .enumerate()
            .skip(lane * of_lane)
            .take(of_lane)
        {
            let address = access.address(regs, lane, index);
            let bytes = access.tile.element.bytes();
            let stored = match bytes {
                1 => memory.store_one(local, space, address, lane, value as u8),
                2 => memory.store_one(local, space, address, lane, value as u16),
                4 => memory.store_one(local, space, address, lane, value as u32),
                _ => memory.store_one(local, space, address, lane, value),
            };
            stored.map_err(|kind| fault(kind, lane, address, bytes.into(), space))?;
        }
    }
    Ok(())
}

fn float(element: Element, word: u64) -> f32 {
    let word = word as u32;
    match element {
        Element::Bf16 => from_bf16(word),
        Element::E4m3 => from_small(word, E4M3),
        Element::E5m2 => from_small(word, E5M2),
        Element::F16 => from_f16(word),
        Element::Tf32 => f32::from_bits(word & !TF32_SPARE),
        _ => f32::from_bits(word),
    }
}

fn integer(element: Element, word: u64) -> i64 {
    match element {
        Element::S8 => i64::from((word as u8).cast_signed()),
        Element::S32 => i64::from((word as u32).cast_signed()),
        _ => word.cast_signed(),
    }
}

/// A sum for each row of `left` and column of `right`, in order of what they have in common.
#[inline(always)]
fn sums<T: Copy>(
    [left, right]: [&[T]; 2],
    sum: &mut [T],
    [depth, columns]: [usize; 2],
    add: impl Fn(T, T, T) -> T,
) {
    for (row, sum) in left.chunks_exact(depth).zip(sum.chunks_exact_mut(columns)) {
        for (&x, right) in row.iter().zip(right.chunks_exact(columns)) {
            for (sum, &y) in sum.iter_mut().zip(right) {
                *sum = add(*sum, x, y);
            }
        }
    }
}

/// `mma` and `wmma.mma`: D = A * B + C.
pub(super) fn multiply(regs: &mut Regs<'_>, tiles: &[Tile; 4], saturate: bool, mask: u32) {
    let [a, b, c, d] = tiles;
    let words = [a, b, c].map(|tile| tile.read(regs));
    let sides = [usize::from(a.columns), usize::from(d.columns)];
    let mut out = [0; MOST_ELEMENTS];
    // Decodes the elements, adds up, and encodes the sums.
    macro_rules! multiply {
        ($of:expr, $add:expr, $back:expr) => {{
            let of = $of;
            let [left, right, sum] = &mut [
                [of(c.element, 0); MOST_ELEMENTS],
                [of(c.element, 0); MOST_ELEMENTS],
                [of(c.element, 0); MOST_ELEMENTS],
            ];
            for ((values, words), tile) in [&mut *left, &mut *right, &mut *sum]
                .into_iter()
                .zip(&words)
                .zip([a, b, c])
            {
                for (value, &word) in values.iter_mut().zip(words).take(tile.size()) {
                    *value = of(tile.element, word);
                }
            }
            let both = [&left[..a.size()], &right[..b.size()]];
            sums(both, &mut sum[..d.size()], sides, $add);
            for (word, &value) in out.iter_mut().zip(&sum[..d.size()]) {
                *word = $back(value);
            }
        }};
    }
    match d.element {
        Element::F64 => multiply!(
            |_, word| f64::from_bits(word),
            |sum, x: f64, y| x.mul_add(y, sum),
            |sum: f64| sum.to_bits()
        ),
        Element::S32 => multiply!(
            integer,
            |sum: i64, x: i64, y: i64| sum + x * y,
            |sum: i64| {
                let least = i64::from(i32::MIN);
                let sum = if saturate {
                    sum.clamp(least, i32::MAX.into())
                } else {
                    sum
                };
                u64::from(sum.cast_unsigned() as u32)
            }
        ),
        _ => multiply!(float, |sum: f32, x: f32, y: f32| sum + x * y, |sum: f32| {
            u64::from(if d.element == Element::F16 {
                to_f16(sum)
            } else {
                bits(sum)
            })
        }),
    }
    d.write(regs, &out, mask);
}
