//! Functions that CUDA brings along and functions that are called by address, from four files of the corpus.

use device::{Error, LaunchControl, TrapKind, Value};

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, as_it_is, assert_same, corpus, every, isolating};

pub(crate) const CASES: &[Case] = &[
    every("assert_trap::assertion_that_holds", assertion_that_holds),
    isolating("assert_trap::assertion_that_fails", assertion_that_fails),
    as_it_is("dev_malloc::dev_malloc", dev_malloc),
    isolating("dev_malloc::more_than_there_is", more_than_there_is),
    as_it_is("func_ptr::apply", apply),
    isolating("func_ptr::address_of_no_function", address_of_no_function),
    isolating("printf_k::hello", hello),
    isolating("printf_k::more_than_a_log_holds", more_than_a_log_holds),
];

/// A thread whose number is 54321 writes nothing.
fn assertion_that_holds(rig: &Rig) {
    let program = rig.load(&corpus("cuda/assert_trap.sm_75"), "assert_trap");
    let mut x: Vec<i32> = (0..70).map(|i| i * 31 - 900).collect();
    x[13] = 54_321;
    x[64] = 54_321;
    let mut memory = rig.memory();
    let input = memory.place(&x);
    let output = memory.place(&vec![-1_i32; x.len()]);
    let values = [input.pointer(), output.pointer(), Value::I32(1)];
    rig.launch(&program, Shape::line(1, 70), &values, &memory);
    let want: Vec<i32> = x
        .iter()
        .map(|&x| if x == 54_321 { -1 } else { x + 1 })
        .collect();
    assert_same(&memory.read(output), &want, "exit");
}

fn assertion_that_fails(rig: &Rig) {
    let program = rig.load(&corpus("cuda/assert_trap.sm_75"), "assert_trap");
    let mut x = [0_i32; 40];
    x[37] = 12_345;
    let mut memory = rig.memory();
    let input = memory.place(&x);
    let output = memory.room::<i32>(x.len());
    for (n, thread) in [(0, 0), (-5, 0), (1, 37)] {
        let values = [input.pointer(), output.pointer(), Value::I32(n)];
        match rig.try_launch(&program, Shape::line(1, 40), &values, &memory) {
            Err(Error::Trap(trap)) => {
                assert_eq!(trap.kind, TrapKind::TrapInstruction);
                assert_eq!(trap.thread, [thread, 0, 0], "{n}");
            }
            other => panic!("{n}: {other:?}"),
        }
    }
}

fn dev_malloc(rig: &Rig) {
    let program = rig.load(&corpus("cuda/dev_malloc.sm_75"), "dev_malloc");
    for (n, threads) in [(1, 1), (33, 70), (250, 256)] {
        let mut memory = rig.memory();
        let output = memory.room::<i32>(threads);
        let values = [output.pointer(), Value::I32(n)];
        // What was given back serves the next launch.
        for _ in 0..3 {
            rig.launch(&program, Shape::line(1, count(threads)), &values, &memory);
        }
        let want: Vec<i32> = (0..threads).map(|t| n * (n - 1) / 2 * int(t)).collect();
        assert_same(&memory.read(output), &want, (n, threads));
    }
}

/// Threads that find nothing left write -1.
fn more_than_there_is(rig: &Rig) {
    let program = rig.load(&corpus("cuda/dev_malloc.sm_75"), "dev_malloc");
    let mut memory = rig.memory();
    let output = memory.room::<i32>(4);
    let words = (3 << 20) / 4;
    let values = [output.pointer(), Value::I32(words)];
    rig.launch(&program, Shape::line(1, 4), &values, &memory);
    let sums = (0..4).map(|t| (0..words).fold(0_i32, |sum, i| sum.wrapping_add(i.wrapping_mul(t))));
    let want: Vec<i32> = sums
        .enumerate()
        .map(|(t, sum)| if t < 2 { sum } else { -1 })
        .collect();
    assert_same(&memory.read(output), &want, "two pieces of 3 MiB fit in 8");
    let values = [output.pointer(), Value::I32(-1)];
    rig.launch(&program, Shape::line(1, 4), &values, &memory);
    assert_same(&memory.read(output), &[-1; 4], "a size that is negative");
}

fn apply(rig: &Rig) {
    let program = rig.load(&corpus("cuda/func_ptr.sm_75"), "apply");
    let mut random = Random::new(40);
    for (n, threads) in [(1, 32), (100, 64), (1000, 96)] {
        let (a, b) = (random.floats(n, -9.0, 9.0), random.floats(n, -9.0, 9.0));
        let op: Vec<i32> = (0..n).map(|_| (random.word() >> 8).cast_signed()).collect();
        let mut memory = rig.memory();
        let (first, second) = (memory.place(&a), memory.place(&b));
        let output = memory.room::<f32>(n);
        let which = memory.place(&op);
        let values = [
            first.pointer(),
            second.pointer(),
            output.pointer(),
            which.pointer(),
            Value::I32(int(n)),
        ];
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);
        let want: Vec<f32> = a
            .iter()
            .zip(&b)
            .zip(&op)
            .map(|((a, b), op)| match op % 3 {
                0 => a + b,
                1 => a * b,
                _ => a.max(*b),
            })
            .collect();
        assert_same(&memory.read(output), &want, (n, threads));
    }
}

fn address_of_no_function(rig: &Rig) {
    let text = corpus("cuda/func_ptr.sm_75");
    let wild = text.replacen("{_Z5f_addff, _Z5f_mulff,", "{_Z5f_addff, 8,", 1);
    assert_ne!(wild, text);
    let program = rig.load(&wild, "apply");
    let mut memory = rig.memory();
    let numbers = memory.place(&[2.0_f32; 64]);
    let output = memory.room::<f32>(64);
    for (bad, wanted) in [(64, None), (41, Some(41))] {
        let op: Vec<i32> = (0..64).map(|i| i32::from(i == bad)).collect();
        let which = memory.place(&op);
        let values = [
            numbers.pointer(),
            numbers.pointer(),
            output.pointer(),
            which.pointer(),
            Value::I32(64),
        ];
        let outcome = rig.try_launch(&program, Shape::line(1, 64), &values, &memory);
        match (outcome, wanted) {
            (Ok(()), None) => {}
            (Err(Error::Trap(trap)), Some(thread)) => {
                assert_eq!(trap.kind, TrapKind::OutOfBounds);
                assert_eq!(trap.thread, [thread, 0, 0]);
            }
            (outcome, _) => panic!("{outcome:?}"),
        }
    }
}

/// What a launch of `hello` prints.
fn printed(rig: &Rig, x: &[f32], threads: u32) -> Vec<String> {
    let program = rig.load(&corpus("cuda/printf_k.sm_75"), "hello");
    let mut memory = rig.memory();
    let input = memory.place(x);
    let values = [input.pointer(), Value::I32(int(x.len()))];
    let shape = Shape::line(count(x.len()).div_ceil(threads), threads);
    let control = LaunchControl::default();
    let started = rig.start(&program, shape, &values, Some(&memory), control);
    let (launch, completion) = started.expect("a launch in order");
    completion.wait().expect("a kernel that prints");
    let log = String::from_utf8(launch.take_log()).expect("ASCII");
    assert!(launch.take_log().is_empty());
    log.lines().map(str::to_owned).collect()
}

fn line(i: usize, threads: usize, x: f32) -> String {
    let (block, thread) = (i / threads, i % threads);
    format!("block {block} thread {thread}: x[{i}] = {x:.6} (negative)")
}

fn hello(rig: &Rig) {
    let x = Random::new(41).floats(300, -100.0, 100.0);
    let mut found = printed(rig, &x, 64);
    let negative = x.iter().enumerate().filter(|(_, x)| **x < 0.0);
    let mut want: Vec<_> = negative.map(|(i, &x)| line(i, 64, x)).collect();
    // Blocks come in any order.
    found.sort_unstable();
    want.sort_unstable();
    assert_eq!(found, want);
    assert!(printed(rig, &[1.0, 0.0], 64).is_empty());
}

/// What does not fit is left out, whole lines at a time.
fn more_than_a_log_holds(rig: &Rig) {
    let x = vec![-0.5_f32; 4000];
    let found = printed(rig, &x, 1000);
    let bytes: usize = found.iter().map(|line| line.len() + 1).sum();
    assert!(
        bytes <= device::LOG_BYTES && bytes > device::LOG_BYTES - 100,
        "{bytes}"
    );
    for found in &found {
        let (_, index) = found.split_once("x[").expect("an index");
        let (index, _) = index.split_once(']').expect("an index");
        assert_eq!(*found, line(index.parse().expect("a number"), 1000, -0.5));
    }
}
