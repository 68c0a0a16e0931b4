//! What the lanes of a warp do together: shuffles, votes, matches, reductions.

use super::code::{LANES, NO_SLOT, ReduceOp, ShuffleMode, VoteMode};
use super::lanes::{Regs, Words, bit, blend, blend_bits, lanes};

/// Slots of a shuffle.
#[derive(Clone, Copy)]
pub(super) struct Shuffle {
    pub(super) d: u16,
    pub(super) p: u16,
    pub(super) a: u16,
    pub(super) b: u16,
    pub(super) c: u16,
}

/// `shfl.sync`. A source lane that does not take part gives zero, as the H200 does for one that has exited.
#[inline(never)]
pub(super) fn shuffle(regs: &mut Regs<'_>, mode: ShuffleMode, at: Shuffle, mask: u32) {
    let (a, b, c) = (
        &regs.w[usize::from(at.a)],
        &regs.w[usize::from(at.b)],
        &regs.w[usize::from(at.c)],
    );
    let mut result: Words = [0; LANES];
    let mut valid = 0;
    for lane in 0..32_u32 {
        let index = lane as usize;
        let (by, clamp, segment) = (b[index] & 31, c[index] & 31, c[index] >> 8 & 31);
        let first = lane & segment;
        let last = first | clamp & !segment;
        let (source, inside) = match mode {
            ShuffleMode::Up => (lane.wrapping_sub(by), lane >= by && lane - by >= last),
            ShuffleMode::Down => (lane + by, lane + by <= last),
            ShuffleMode::Butterfly => (lane ^ by, lane ^ by <= last),
            ShuffleMode::Index => (first | by & !segment, (first | by & !segment) <= last),
        };
        let source = if inside { source & 31 } else { lane };
        let value = a[source as usize];
        result[index] = if mask >> source & 1 == 1 { value } else { 0 };
        valid |= u32::from(inside) << lane;
    }
    blend(&mut regs.w[usize::from(at.d)], mask, &result);
    if at.p != NO_SLOT {
        blend_bits(&mut regs.p[usize::from(at.p)], mask, valid);
    }
}

/// `vote.sync`: `predicate` holds the lanes for which it is true, `voters` those that take part, `mask` those that are told.
#[inline(never)]
pub(super) fn vote(
    regs: &mut Regs<'_>,
    mode: VoteMode,
    d: u16,
    predicate: u32,
    voters: u32,
    mask: u32,
) {
    let yes = predicate & voters;
    let outcome = match mode {
        VoteMode::Ballot => {
            blend(&mut regs.w[usize::from(d)], mask, &[yes; LANES]);
            return;
        }
        VoteMode::All => yes == voters,
        VoteMode::Any => yes != 0,
        VoteMode::Uniform => yes == voters || yes == 0,
    };
    blend_bits(
        &mut regs.p[usize::from(d)],
        mask,
        if outcome { u32::MAX } else { 0 },
    );
}

/// `match.any` and `match.all` over values that `value` reads.
#[inline(never)]
pub(super) fn match_lanes(value: impl Fn(usize) -> u64, all: bool, voters: u32) -> (Words, bool) {
    let mut result: Words = [0; LANES];
    let first = value(voters.trailing_zeros() as usize % LANES);
    let equal = lanes(voters).all(|lane| value(lane) == first);
    if all {
        return ([if equal { voters } else { 0 }; LANES], equal);
    }
    for lane in lanes(voters) {
        let mine = value(lane);
        result[lane] = lanes(voters)
            .filter(|&other| value(other) == mine)
            .fold(0, |mask, other| mask | bit(other));
    }
    (result, equal)
}

/// `redux.sync`.
#[inline(never)]
pub(super) fn reduce(op: ReduceOp, values: &Words, voters: u32) -> u32 {
    let values = lanes(voters).map(|lane| values[lane]);
    let signed = |x: u32, y: u32, pick: fn(i32, i32) -> i32| {
        pick(x.cast_signed(), y.cast_signed()).cast_unsigned()
    };
    values
        .reduce(|x, y| match op {
            ReduceOp::Add => x.wrapping_add(y),
            ReduceOp::And => x & y,
            ReduceOp::Or => x | y,
            ReduceOp::Xor => x ^ y,
            ReduceOp::MinUnsigned => x.min(y),
            ReduceOp::MaxUnsigned => x.max(y),
            ReduceOp::MinSigned => signed(x, y, i32::min),
            ReduceOp::MaxSigned => signed(x, y, i32::max),
        })
        .unwrap_or(0)
}

/// Lanes with the same set of members, each with those of it that take part: tiles of a warp come to an instruction together.
pub(super) fn parties(members: Words, mut mask: u32) -> impl Iterator<Item = (u32, u32)> {
    let all = mask;
    std::iter::from_fn(move || {
        let first = members[lanes(mask).next()?];
        let party = lanes(mask)
            .filter(|&lane| members[lane] == first)
            .fold(0, |party, lane| party | bit(lane));
        mask &= !party;
        Some((party, first & all))
    })
}
