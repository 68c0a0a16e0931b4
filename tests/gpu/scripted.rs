//! Drivers that fail: at each call that the backend makes, what the guest and the embedder are told, what works still, and
//! that all that was made is given back.

mod calls;
mod opening;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use abi::argv::Arg;
use device::{Device, Health, Selector};
use host::check_engine;
use wasmtime::Val;

use crate::fake::{calls, calls_of};
use crate::harness::{DATA_AT, Harness, KIT, Shape, VECADD, u32_val};
use crate::rig::{guest_text, ptr, trusted_on};

pub(crate) use calls::CASES as CALLS;
pub(crate) use opening::CASES as OPENING;

fn open() -> Arc<dyn Device> {
    device::open(Selector::Cuda(0)).unwrap()
}

fn guest() -> Harness {
    Harness::new(&trusted_on(open()))
}

/// The function and the code of the script: `NAME@N=CODE`, before what else is set.
fn script() -> (String, String) {
    let script = std::env::var("FAKE_CUDA").unwrap();
    let script = script.split(';').next().unwrap();
    let (function, code) = script.split_once('=').unwrap();
    let function = function.split('@').next().unwrap();
    (function.into(), code.into())
}

/// The number of the code, as texts have it.
fn number() -> String {
    let (_, code) = script();
    format!(", {code})")
}

/// Waits until as many calls gave something back as made it.
#[track_caller]
fn assert_all_given_back() {
    let pairs: [(&[&str], &str); 6] = [
        (
            &["cuDevicePrimaryCtxRetain"],
            "cuDevicePrimaryCtxRelease_v2",
        ),
        (&["cuMemAlloc_v2", "cuMemAllocManaged"], "cuMemFree_v2"),
        (&["cuMemHostAlloc"], "cuMemFreeHost"),
        (&["cuMemHostRegister_v2"], "cuMemHostUnregister"),
        (&["cuModuleLoadDataEx"], "cuModuleUnload"),
        (&["cuStreamCreateWithPriority"], "cuStreamDestroy_v2"),
    ];
    // Calls that were told to fail made nothing.
    let (failing, nth) = match std::env::var("FAKE_CUDA").unwrap().split_once('=') {
        Some((function, _)) => match function.split_once('@') {
            Some((function, nth)) => (function.to_owned(), nth.parse().ok()),
            None => (function.to_owned(), None),
        },
        None => (String::new(), None),
    };
    let made_by = |make: &str| {
        let made = calls_of(make);
        match nth {
            _ if make != failing => made,
            Some(nth) if made >= nth => made - 1,
            Some(_) => made,
            None => 0,
        }
    };
    let begin = Instant::now();
    for (make, give_back) in pairs {
        loop {
            let made: usize = make.iter().map(|make| made_by(make)).sum();
            let given = calls_of(give_back);
            if made == given {
                break;
            }
            let waited = begin.elapsed() > Duration::from_secs(10);
            assert!(
                !waited,
                "{made} {make:?}, {given} {give_back}: {:#?}",
                calls()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Every import that the driver has a part in, in two instances.
fn use_everything(guest: &mut Harness) {
    for entry in ["k_store", "k_count", "k_empty"] {
        guest.kernel(KIT, entry);
    }
    let add = guest.kernel(VECADD, "vecadd");
    let numbers: Vec<u8> = (0_u8..64)
        .flat_map(|i| f32::from(i).to_le_bytes())
        .collect();
    guest.write_memory(DATA_AT, &numbers);
    let (a, c) = (ptr(DATA_AT, 256), ptr(DATA_AT + 256, 256));
    let answer = guest.launch(add, Shape::line(2, 32), &[a, a, c, Arg::U32(64)]);
    assert_eq!(answer, 0, "{}", guest.last_text());
    assert_eq!(
        guest.read_memory(DATA_AT + 256 + 40, 4),
        20_f32.to_le_bytes()
    );

    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(100)]);
    assert!(buffer > 0, "{}", guest.last_text());
    let copy = [
        Val::I64(buffer),
        Val::I64(0),
        u32_val(DATA_AT + 4),
        u32_val(4),
    ];
    assert_eq!(guest.call(abi::FN_WRITE, &copy), 0, "{}", guest.last_text());
    let copy = [
        Val::I64(buffer),
        Val::I64(0),
        u32_val(DATA_AT + 800),
        u32_val(4),
    ];
    assert_eq!(guest.call(abi::FN_READ, &copy), 0, "{}", guest.last_text());
    assert_eq!(guest.read_memory(DATA_AT + 800, 4), 1_f32.to_le_bytes());

    let past = guest.kernel(KIT, "k_past");
    let end = u64::from(guest.memory_bytes());
    guest.run(past, &[ptr(DATA_AT, 4), Arg::U64(end)]);
    let old = guest.memory_bytes();
    assert_eq!(guest.grow(3), i64::from(old >> 16));
    let gained = guest.read_memory(old, 3 << 16);
    assert!(gained.iter().all(|&byte| byte == 0));
    guest.assert_usable();
}

fn everything_works_and_is_given_back() {
    {
        let device = open();
        let engine = trusted_on(Arc::clone(&device)).engine();
        check_engine(&engine, &device).unwrap();
        for _ in 0..3 {
            let (mut one, mut other) = (guest(), guest());
            use_everything(&mut one);
            use_everything(&mut other);
        }
        assert_eq!(device.health(), Health::Good);
    }
    assert_all_given_back();
    assert!(calls_of("cuMemAllocManaged") > 6);
}

/// What making an instance fails with.
fn instance_failure(device: &Arc<dyn Device>) -> String {
    let setup = trusted_on(Arc::clone(device));
    let refused = Harness::with_text(&setup, &setup.engine(), &guest_text(1));
    let error = refused.expect_err("no instance can be made");
    error.root_cause().to_string()
}
