//! Lists whose cells hold the address of the next.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("linked_list::list_sum", list_sum)];

/// `struct Cell { Cell* next; float v; }`
const CELL_WORDS: usize = 2;

fn list_sum(rig: &Rig) {
    let program = rig.load(&corpus("cuda/linked_list.sm_75"), "list_sum");
    let mut random = Random::new(23);
    let lists = 70;
    let most = 9;
    let lengths: Vec<usize> = (0..lists).map(|list| list % 12).collect();
    let total = lengths.iter().sum::<usize>();
    let numbers = random.floats(total, -1.0, 1.0);

    let mut memory = rig.memory();
    let cells = memory.room::<u64>(total * CELL_WORDS);
    // Cells of one list lie apart: number `k` of a list is the one after the last of all before it, reversed.
    let address =
        |cell: usize| memory.address(cells) + ((total - 1 - cell) * CELL_WORDS * 8) as u64;
    let mut words = vec![0; total * CELL_WORDS];
    let mut heads = Vec::new();
    let mut want = Vec::new();
    let mut first = 0;
    for &length in &lengths {
        heads.push(if length == 0 { 0 } else { address(first) });
        let own = numbers.iter().enumerate().skip(first).take(length);
        for (cell, number) in own {
            let at = (total - 1 - cell) * CELL_WORDS;
            let is_last = cell + 1 == first + length;
            words[at] = if is_last { 0 } else { address(cell + 1) };
            words[at + 1] = u64::from(number.to_bits());
        }
        let counted = &numbers[first..first + length.min(most)];
        want.push(counted.iter().fold(0_f32, |sum, number| sum + number));
        first += length;
    }
    memory.fill(cells, &words);
    let heads = memory.place(&heads);
    let output = memory.room::<f32>(lists);
    let values = [
        heads.pointer(),
        output.pointer(),
        Value::I32(int(lists)),
        Value::I32(int(most)),
    ];
    rig.launch(
        &program,
        Shape::line(count(lists).div_ceil(32), 32),
        &values,
        &memory,
    );
    assert_same(&memory.read(output), &want, "lists");
}
