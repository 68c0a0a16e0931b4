//! Votes, matches and reductions of a warp, and compaction with a ballot.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[
    every("warp_vote::warp_vote", warp_vote),
    every("warp_vote::compact", compact),
];

const LANES: usize = 32;

/// The mask of the lanes that a condition holds for.
fn lanes_where(warp: &[i32], condition: impl Fn(i32) -> bool) -> u32 {
    let lanes = warp.iter().enumerate();
    lanes
        .filter(|&(_, &value)| condition(value))
        .fold(0, |mask, (lane, _)| mask | 1 << lane)
}

/// What each lane of a whole warp computes.
fn votes(warp: &[i32]) -> Vec<u32> {
    let ballot = lanes_where(warp, |v| v > 0);
    let all = u32::from(warp.iter().all(|&v| v >= 0));
    let any = u32::from(warp.contains(&7));
    let alike = u32::from(warp.iter().all(|&v| v == warp[0]));
    let unsigned = warp.iter().map(|v| v.cast_unsigned());
    let most = unsigned.clone().max().unwrap_or(0);
    let union = unsigned.fold(0, |a, b| a | b);
    let odd = lanes_where(warp, |v| v & 1 == 1).count_ones();
    warp.iter()
        .map(|&v| {
            let same = lanes_where(warp, |other| other & 3 == v & 3);
            let divergent = if v & 1 == 1 { odd } else { 0 };
            let first_active = 1;
            ballot
                ^ same
                ^ (all << 1)
                ^ (any << 2)
                ^ (alike << 3)
                ^ (alike * u32::MAX)
                ^ (most ^ union)
                ^ divergent
                ^ first_active
                ^ ballot.leading_zeros()
        })
        .collect()
}

/// Values that make every vote come out both ways in some warp.
fn data(n: usize) -> Vec<i32> {
    let mut random = Random::new(21);
    (0..n)
        .map(|i| match i / LANES % 4 {
            0 => random.word().cast_signed(),
            1 => i32::from(random.bytes(1)[0] % 9),
            2 => 7,
            _ => -1,
        })
        .collect()
}

fn warp_vote(rig: &Rig) {
    let program = rig.load(&corpus("cuda/warp_vote.sm_80"), "warp_vote");
    for (n, threads) in [(32, 32), (1, 32), (250, 64), (1000, 96)] {
        let x = data(n);
        let mut padded = x.clone();
        padded.resize(n.next_multiple_of(LANES), 0);
        let mut want: Vec<u32> = padded.chunks(LANES).flat_map(votes).collect();
        want.truncate(n);
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<u32>(n);
        let values = [input.pointer(), output.pointer(), Value::I32(int(n))];
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);
        assert_same(&memory.read(output), &want, (n, threads));
    }
}

/// Warps take their places in any order, so sorted numbers are compared.
fn compact(rig: &Rig) {
    let program = rig.load(&corpus("cuda/warp_vote.sm_80"), "compact");
    for (n, threads) in [(1, 32), (77, 32), (1000, 128)] {
        let x = data(n);
        let mut want: Vec<i32> = x.iter().copied().filter(|&x| x > 0).collect();
        let mut memory = rig.memory();
        let input = memory.place(&x);
        let output = memory.room::<i32>(want.len());
        let kept = memory.place(&[0_i32]);
        let values = [
            input.pointer(),
            output.pointer(),
            kept.pointer(),
            Value::I32(int(n)),
        ];
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);
        assert_same(&memory.read(kept), &[int(want.len())], (n, threads));
        let mut found = memory.read(output);
        found.sort_unstable();
        want.sort_unstable();
        assert_same(&found, &want, (n, threads));
    }
}
