//! Kernels of a hostile guest beside a neighbour on the CPU device, which checks their accesses, and confined: each comes to what its
//! file says, and the neighbour notices nothing. `tests/gpu/hostile.rs` does the same on a GPU, against the clock.

use std::time::Duration;

use crate::harness::cpu;
use crate::harness::tenants::{
    Column, Judge, Pace, class, classes, each_hostile_file, run_class, table,
};

#[track_caller]
fn check(name: &str, column: Column) {
    // Short: all tests of this binary share the machine.
    let pace = Pace {
        deadline: Duration::from_millis(100),
        alone: Duration::from_millis(20),
        beside: Duration::from_millis(50),
        judges: Judge::Results,
        column,
    };
    let row = run_class(&cpu(), &class(name), pace);
    let told = table(Some(&row));
    println!("{told}");
    assert!(row.problems.is_empty(), "{told}");
}

macro_rules! checked {
    ($($name:ident,)*) => {$(
        #[test]
        fn $name() {
            super::check(stringify!($name), super::Column::Checked);
        }
    )*};
}
mod checked {
    super::each_hostile_file!(checked);

    #[test]
    fn jit_bomb() {
        super::check("jit_bomb", super::Column::Checked);
    }
}

macro_rules! confined {
    ($($name:ident,)*) => {$(
        #[test]
        fn $name() {
            super::check(stringify!($name), super::Column::confined_on(&*super::cpu()));
        }
    )*};
}
mod confined {
    super::each_hostile_file!(confined);

    #[test]
    fn jit_bomb() {
        super::check("jit_bomb", super::Column::confined_on(&*super::cpu()));
    }
}

#[test]
fn every_file_is_a_class() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/hostile");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".ptx") {
            assert!(classes().iter().any(|class| class.name == name), "{name}");
        }
    }
}
