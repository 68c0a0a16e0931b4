//! A stack machine in a kernel: an indexed branch that lanes leave in different directions.

use device::Value;

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, assert_same, corpus, every};

pub(crate) const CASES: &[Case] = &[every("switch_vm::programs", programs)];

const INPUT: u8 = 0;
const PUSH: u8 = 1;
const ADD: u8 = 2;
const SUBTRACT: u8 = 3;
const MULTIPLY: u8 = 4;
const DIVIDE: u8 = 5;
const DUPLICATE: u8 = 6;
const JUMP: u8 = 7;
const NEGATE: u8 = 8;
const END: u8 = 99;

/// Runs a program that keeps within its stack.
fn run(code: &[u8], input: i32) -> i32 {
    let mut stack = Vec::new();
    let mut at = 0;
    let next = |at: &mut usize| {
        *at += 1;
        code[*at - 1]
    };
    while at < code.len() {
        let operation = next(&mut at);
        let mut two = |operate: fn(i32, i32) -> i32| {
            let b = stack.pop().expect("two values");
            let a = stack.pop().expect("two values");
            stack.push(operate(a, b));
        };
        match operation {
            INPUT => stack.push(input),
            PUSH => stack.push(i32::from(next(&mut at))),
            ADD => two(i32::wrapping_add),
            SUBTRACT => two(i32::wrapping_sub),
            MULTIPLY => two(i32::wrapping_mul),
            DIVIDE => two(|a, b| a.wrapping_div(if b == 0 { 1 } else { b })),
            DUPLICATE => stack.push(*stack.last().expect("a value")),
            JUMP => {
                let distance = isize::from(code[at].cast_signed());
                at = if stack.pop().expect("a value") == 0 {
                    at + 1
                } else {
                    at.checked_add_signed(distance).expect("a jump inside")
                };
            }
            NEGATE => negate_top(&mut stack),
            _ => break,
        }
    }
    stack.pop().expect("a result")
}

fn negate_top(stack: &mut Vec<i32>) {
    let value = stack.pop().expect("a value");
    stack.push(value.wrapping_neg());
}

fn programs(rig: &Rig) {
    let program = rig.load(&corpus("cuda/switch_vm.sm_80"), "vm");
    let mut random = Random::new(28);
    // Five times the input minus 3, negated; divided by the input.
    let straight = [
        INPUT, PUSH, 5, MULTIPLY, PUSH, 3, SUBTRACT, NEGATE, INPUT, DIVIDE, PUSH, 200, ADD,
    ];
    // Counts the input down to 0, then gives 42: each lane leaves the loop after as many rounds.
    let countdown = [
        INPUT,
        PUSH,
        1,
        SUBTRACT,
        DUPLICATE,
        JUMP,
        0_u8.wrapping_sub(5),
        PUSH,
        42,
        MULTIPLY,
        PUSH,
        42,
        ADD,
        END,
    ];
    // Skips the first constant for inputs that are not 0.
    let branch = [INPUT, JUMP, 4, PUSH, 1, END, PUSH, 2];
    let rounds: Vec<i32> = (0..100).map(|i| 1 + i * 7 % 23).collect();
    let mixed: Vec<i32> = (0..100).map(|i| i % 3).collect();
    let wild = random.integers(100);
    for (name, code, inputs) in [
        ("straight", &straight[..], &wild),
        ("straight", &straight[..], &mixed),
        ("countdown", &countdown[..], &rounds),
        ("branch", &branch[..], &mixed),
    ] {
        let n = inputs.len();
        let want: Vec<i32> = inputs.iter().map(|&input| run(code, input)).collect();
        let mut memory = rig.memory();
        let text = memory.place(code);
        let input = memory.place(inputs);
        let output = memory.room::<i32>(n);
        let values = [
            text.pointer(),
            Value::I32(int(code.len())),
            input.pointer(),
            output.pointer(),
            Value::I32(int(n)),
        ];
        let shape = Shape::line(count(n).div_ceil(64), 64);
        rig.launch(&program, shape, &values, &memory);
        assert_same(&memory.read(output), &want, name);
    }
}
