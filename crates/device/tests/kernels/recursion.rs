//! Functions that call themselves: Ackermann's, and the depth of a tree.

use super::int;
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("recursion::recurse", recurse)];

fn ackermann(m: i32, n: i32) -> i32 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

fn recurse(rig: &Rig) {
    let program = rig.load(&corpus("cuda/recursion.sm_75"), "recurse");
    let mut random = Random::new(27);
    for nodes in [1, 2, 10, 40] {
        // Each node hangs on a free branch of one before it.
        let mut children = vec![[-1_i32; 2]; nodes];
        let mut depths = vec![1; nodes];
        for node in 1..nodes {
            let mut parent = random.word() as usize % node;
            let mut branch = random.word() as usize % 2;
            while let Ok(below) = usize::try_from(children[parent][branch]) {
                parent = below;
                branch = random.word() as usize % 2;
            }
            children[parent][branch] = int(node);
            depths[node] = depths[parent] + 1;
        }
        // `struct Node { int key; int left, right; }`
        let tree: Vec<i32> = children
            .iter()
            .flat_map(|&[left, right]| [0x7777, left, right])
            .collect();
        let depth = depths.iter().copied().max().unwrap_or(0);
        for threads in [1, 33, 64] {
            let mut memory = rig.memory();
            let input = memory.place(&tree);
            let output = memory.room::<i32>(threads);
            let values = [input.pointer(), output.pointer()];
            let shape = Shape::line(1, super::count(threads));
            rig.launch(&program, shape, &values, &memory);
            let want: Vec<i32> = (0..threads)
                .map(|thread| ackermann(2, int(thread % 4)) + depth)
                .collect();
            assert_same(&memory.read(output), &want, (nodes, threads));
        }
    }
}
