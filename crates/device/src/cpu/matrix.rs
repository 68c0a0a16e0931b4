//! Matrices of 8x8 between shared memory and registers: `ldmatrix` and `stmatrix`, by the layouts that the PTX ISA documents.

use crate::error::TrapKind;

use super::code::{LANES, MatrixSite, Space};
use super::lanes::{Longs, Regs, blend, lanes};
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
