//! Components that are called without async: what their imports do while they block, and where they refuse to. What is answered is in
//! `parity`; that the only thread of a runtime is not blocked is tested in `crates/host`, as tokio tells it by a panic.

use std::thread;
use std::time::{Duration, Instant};

use host::Limits;
use host::component::{add_to_linker, add_to_linker_sync};
use wasmtime::component::Linker;
use wasmtime::{Config, Engine};

use super::rig::{Arg, Rig, api};
use crate::harness::{Data, KIT, Setup, Shape, VECADD};

const FAULTS: &str = include_str!("../../../fixtures/kernels/faults.ptx");

fn with_deadline(deadline: Option<Duration>) -> Setup {
    let limits = Limits {
        deadline,
        ..Limits::default()
    };
    Setup {
        limits,
        ..Setup::default()
    }
}

fn floats(values: [f32; 3]) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn a_kernel_has_ended_when_its_launch_returns() {
    let mut rig = Rig::blocking(&Setup::default());
    let kernel = rig.kernel(VECADD, "vecadd");
    let x = rig.alloc(12).unwrap();
    rig.write(x, 0, &floats([1.0, 2.0, 3.0])).unwrap();
    let sum = rig.alloc(12).unwrap();
    let args = [
        Arg::Buffer((x, 0)),
        Arg::Input(floats([10.0, 20.0, 30.0])),
        Arg::Buffer((sum, 0)),
        Arg::U32(3),
    ];
    rig.launch(kernel, Shape::line(1, 32), &args).unwrap();
    assert_eq!(rig.read(sum, 0, 12).unwrap(), floats([11.0, 22.0, 33.0]));
}

#[test]
fn the_deadline_ends_the_wait() {
    let mut rig = Rig::blocking(&with_deadline(Some(Duration::from_millis(50))));
    let kernel = rig.kernel(FAULTS, "endless");
    let begun = Instant::now();
    let error = rig.launch(kernel, Shape::ONE, &[]).unwrap_err();
    assert_eq!(error.code, api::ErrorCode::DeadlineExceeded);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn without_a_deadline_nothing_waits() {
    let mut rig = Rig::blocking(&with_deadline(None));
    let trap = rig.try_load(KIT, "k_empty").unwrap_err();
    let said = trap.root_cause().to_string();
    assert!(said.contains("must have a deadline"), "{said}");
}

#[test]
fn a_thread_for_blocking_work_may_wait() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let work = runtime.spawn_blocking(|| {
        let mut rig = Rig::blocking(&Setup::default());
        let kernel = rig.kernel(KIT, "k_empty");
        rig.launch(kernel, Shape::ONE, &[]).unwrap()
    });
    assert_eq!(runtime.block_on(work).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn components_on_threads_of_their_own_wait_side_by_side() {
    let kernels: Vec<_> = (1_u32..=4)
        .map(|number| {
            thread::spawn(move || {
                let mut rig = Rig::blocking(&Setup::default());
                let kernel = rig.kernel(KIT, "k_store");
                let args = [Arg::Output(4), Arg::U32(number)];
                rig.launch(kernel, Shape::ONE, &args).unwrap()
            })
        })
        .collect();
    for (number, kernel) in (1_u32..).zip(kernels) {
        assert_eq!(kernel.join().unwrap(), [number.to_le_bytes()]);
    }
}

#[test]
fn a_linker_takes_the_interface_once() {
    let engine = Engine::new(&Config::new()).unwrap();
    let mut linker = Linker::<Data>::new(&engine);
    add_to_linker_sync(&mut linker).unwrap();
    for again in [add_to_linker::<Data>, add_to_linker_sync::<Data>] {
        let error = again(&mut linker).unwrap_err().to_string();
        assert!(error.contains("defined twice"), "{error}");
    }
}
