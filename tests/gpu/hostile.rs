//! Kernels of a hostile guest beside a neighbour, on a GPU and against the clock: all classes in one process, as tenants are, and
//! each in a process of its own, so that one that breaks something is told from those that it broke.

use std::time::Duration;

use crate::harness::tenants::{
    Class, Column, Judge, Pace, Row, class, classes, each_hostile_file, run_class, table,
};
use crate::rig::cuda;
use crate::runner::{Case, gpu};

fn row_of(class: &Class) -> Row {
    let device = cuda();
    let pace = Pace {
        deadline: Duration::from_millis(100),
        alone: Duration::from_millis(250),
        beside: Duration::from_millis(250),
        judges: Judge::ResultsAndTimes,
        column: Column::confined_on(&*device),
    };
    run_class(&device, class, pace)
}

fn check(name: &str) {
    let row = row_of(&class(name));
    assert!(row.problems.is_empty(), "{}", table(Some(&row)));
}

macro_rules! cases {
    ($($name:ident,)*) => {
        pub(crate) const CASES: &[Case] = &[
            gpu("hostile_all_in_one_process", all_in_one_process).shown(Duration::from_secs(150)),
            gpu("hostile_jit_bomb", || check("jit_bomb")),
            $(gpu(concat!("hostile_", stringify!($name)), || check(stringify!($name))),)*
        ];
    };
}
each_hostile_file!(cases);

/// Prints a row as soon as it is known: what is printed is kept if the process has to be killed.
fn all_in_one_process() {
    println!("{}", table(None));
    let mut broken = 0;
    for class in classes() {
        let row = row_of(&class);
        println!("{}", table(Some(&row)));
        broken += usize::from(!row.problems.is_empty());
    }
    let held = classes().len() - broken;
    println!("{held} classes hold, {broken} are broken");
    println!("device health: {:?}", cuda().health());
    assert_eq!(broken, 0);
}
