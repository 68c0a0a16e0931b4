//! Matrix fragments: `ldmatrix`, `stmatrix` and `mma.sync`, by the layouts that the PTX ISA documents. Products are exact and
//! summed in f32 in order of `k`.

use crate::error::TrapKind;

use super::code::{LANES, MatrixSite, Multiply, Space};
use super::convert::{from_bf16, from_f16, to_f16};
use super::float::{bits, to_half};
use super::lanes::{Longs, Regs, Words, blend, lanes};
use super::memory::{Fault, Local, Memory, fault};
use super::tile;

/// Rows and columns of the 8x8 matrices that `ldmatrix` moves.
const SIDE: usize = 8;
/// Bytes of a row of one.
const ROW_BYTES: u64 = 16;

/// Runs a matrix instruction.
#[inline(never)]
pub(super) fn run(
    regs: &mut Regs<'_>,
    memory: &mut Memory<'_>,
    local: &mut Local,
    site: &MatrixSite,
    mask: u32,
) -> Result<(), Fault> {
    match site {
        MatrixSite::Load {
            d,
            count,
            transposed,
            address,
            wide_address,
            offset,
        } => {
            let rows = row_addresses(regs, *address, *wide_address, *offset);
            for (matrix, &d) in d[..usize::from(*count)].iter().enumerate() {
                let mut tile = [[0_u16; SIDE]; SIDE];
                for (row, tile) in tile.iter_mut().enumerate() {
                    let lane = matrix * SIDE + row;
                    for (column, value) in tile.iter_mut().enumerate() {
                        let address = aligned(rows[lane], lane)?.wrapping_add(2 * column as u64);
                        let mut addresses: Longs = [0; LANES];
                        addresses[lane] = address;
                        let mut read = [[0; LANES]];
                        let only = 1 << lane;
                        memory.load::<u16, 1>(local, Space::Shared, &addresses, only, &mut read)?;
                        *value = read[0][lane];
                    }
                }
                let words = std::array::from_fn(|lane| {
                    let (row, column) = (lane / 4, lane % 4 * 2);
                    let (low, high) = if *transposed {
                        (tile[column][row], tile[column + 1][row])
                    } else {
                        (tile[row][column], tile[row][column + 1])
                    };
                    u32::from(low) | u32::from(high) << 16
                });
                blend(&mut regs.w[usize::from(d)], mask, &words);
            }
            Ok(())
        }
        MatrixSite::Store {
            a,
            count,
            transposed,
            address,
            wide_address,
            offset,
        } => {
            let rows = row_addresses(regs, *address, *wide_address, *offset);
            for (matrix, &a) in a[..usize::from(*count)].iter().enumerate() {
                for lane in lanes(mask) {
                    let value = regs.w[usize::from(a)][lane];
                    for (half, value) in [value & 0xffff, value >> 16].into_iter().enumerate() {
                        let (row, column) = (lane / 4, lane % 4 * 2 + half);
                        let (row, column) = if *transposed {
                            (column, row)
                        } else {
                            (row, column)
                        };
                        let owner = matrix * SIDE + row;
                        let mut addresses: Longs = [0; LANES];
                        addresses[owner] =
                            aligned(rows[owner], owner)?.wrapping_add(2 * column as u64);
                        let values = [[u16::try_from(value).unwrap_or(0); LANES]];
                        memory.store(local, Space::Shared, &addresses, 1 << owner, &values)?;
                    }
                }
            }
            Ok(())
        }
        MatrixSite::Multiply(multiply) => {
            accumulate(regs, multiply, mask);
            Ok(())
        }
        MatrixSite::TileLoad(access) => tile::load(regs, memory, local, access, mask),
        MatrixSite::TileMultiply { tiles, saturate } => {
            tile::multiply(regs, tiles, *saturate, mask);
            Ok(())
        }
        MatrixSite::TileStore(access) => tile::store(regs, memory, local, access, mask),
    }
}

fn row_addresses(regs: &Regs<'_>, slot: u16, wide: bool, offset: i32) -> Longs {
    super::access::addresses(
        regs,
        slot,
        wide,
        offset,
        Space::Shared,
        super::warp::Warp::outermost(),
    )
}

fn aligned(address: u64, lane: usize) -> Result<u64, Fault> {
    if address.is_multiple_of(ROW_BYTES) {
        Ok(address)
    } else {
        Err(fault(
            TrapKind::Misaligned,
            lane,
            address,
            ROW_BYTES,
            Space::Shared,
        ))
    }
}

/// `D = A * B + C` for a 16x8 tile.
fn accumulate(regs: &mut Regs<'_>, multiply: &Multiply, mask: u32) {
    const ROWS: usize = 16;
    const COLUMNS: usize = 8;
    const DEPTH: usize = 16;
    let half = |word: u32| {
        if multiply.bf16 {
            from_bf16(word & 0xffff)
        } else {
            from_f16(word & 0xffff)
        }
    };
    let depth = usize::from(multiply.k);
    let mut a = [[0.0_f32; DEPTH]; ROWS];
    let mut b = [[0.0_f32; COLUMNS]; DEPTH];
    let mut sum = [[0.0_f32; COLUMNS]; ROWS];
    for lane in 0..LANES {
        let (group, pair) = (lane / 4, lane % 4 * 2);
        let mut put = |slot: u16, row: usize, column: usize| {
            let word = regs.w[usize::from(slot)][lane];
            a[row][column] = half(word);
            a[row][column + 1] = half(word >> 16);
        };
        put(multiply.a[0], group, pair);
        put(multiply.a[1], group + 8, pair);
        if depth == DEPTH {
            put(multiply.a[2], group, pair + 8);
            put(multiply.a[3], group + 8, pair + 8);
        }
        for (index, &slot) in multiply.b[..depth / 8].iter().enumerate() {
            let word = regs.w[usize::from(slot)][lane];
            b[pair + 8 * index][group] = half(word);
            b[pair + 8 * index + 1][group] = half(word >> 16);
        }
        for (index, row) in [group, group + 8].into_iter().enumerate() {
            if multiply.wide {
                sum[row][pair] = f32::from_bits(regs.w[usize::from(multiply.c[2 * index])][lane]);
                sum[row][pair + 1] =
                    f32::from_bits(regs.w[usize::from(multiply.c[2 * index + 1])][lane]);
            } else {
                let word = regs.w[usize::from(multiply.c[index])][lane];
                sum[row][pair] = half(word);
                sum[row][pair + 1] = half(word >> 16);
            }
        }
    }
    for k in 0..depth {
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                sum[row][column] += a[row][k] * b[k][column];
            }
        }
    }
    let narrow = |x: f32| {
        if multiply.bf16 {
            to_half::<true>(f64::from(x))
        } else {
            to_f16(x)
        }
    };
    for (index, offset) in [0, 8].into_iter().enumerate() {
        let at = |lane: usize, column: usize| sum[lane / 4 + offset][lane % 4 * 2 + column];
        if multiply.wide {
            for column in 0..2 {
                let words: Words = std::array::from_fn(|lane| bits(at(lane, column)));
                blend(
                    &mut regs.w[usize::from(multiply.d[2 * index + column])],
                    mask,
                    &words,
                );
            }
        } else {
            let words: Words =
                std::array::from_fn(|lane| narrow(at(lane, 0)) | narrow(at(lane, 1)) << 16);
            blend(&mut regs.w[usize::from(multiply.d[index])], mask, &words);
        }
    }
}
