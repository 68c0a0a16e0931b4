//! What holds with and without a GPU: whichever there is, it is told apart by what the loader says.

use std::sync::Arc;

use super::context::Context;
use super::stream::Lanes;
use super::*;
use crate::device::DeviceKind;
use crate::open::{Selector, open as open_selected};
use crate::region::{Region, RegionSpec, RegionTable};

#[test]
fn without_a_driver_a_gpu_is_refused_in_the_loaders_words_and_auto_takes_the_cpu() {
    match cuda_driver::available() {
        Err(why) => {
            let refused = device(0).unwrap_err();
            assert_eq!(refused, Error::NotAvailable { reason: why.into() });
            assert_eq!(devices(), Err(refused));
            assert_eq!(driver_status(), Err(why.into()));
            assert!(open_first(&Options::default()).unwrap().is_none());
            let device = open_selected(Selector::Auto).unwrap();
            assert_eq!(device.info().kind, DeviceKind::Cpu);
        }
        Ok(()) => {
            let names = devices().unwrap();
            let device = open_selected(Selector::Auto).unwrap();
            assert_eq!(device.info().kind, DeviceKind::Cuda);
            assert_eq!(device.info().name, names[0]);
            let beyond = super::device(u32::MAX).unwrap_err();
            assert!(matches!(beyond, Error::NotAvailable { .. }), "{beyond}");
        }
    }
}

#[test]
fn a_lost_device_answers_without_asking_the_driver() {
    let context = Context::detached("a kernel faulted");
    let want = Error::DeviceLost {
        reason: "a kernel faulted".into(),
    };
    assert_eq!(context.enter(), Err(want.clone()));
    assert_eq!(context.lost(), Some("a kernel faulted"));
    assert_eq!(Lanes::new(&context).unwrap_err(), want);
    let lanes = Lanes::detached(&context);
    assert_eq!(lanes.for_copy().unwrap_err(), want);
    let reaper = reaper::Reaper::start(&context).unwrap();
    let table = RegionTable::new(1 << 30);
    let spec = RegionSpec {
        window_bytes: 1 << 20,
        initial_bytes: 0,
        maximum_bytes: 1 << 20,
        reserved_bytes: 0,
        guard_bytes: 0,
    };
    let refused = Region::on(&table, spec, 0, |charge| {
        let backing =
            backing::ManagedBacking::reserve(&lanes, &reaper, backing::Fresh::Zero, charge, spec)?;
        Ok(Box::new(backing))
    });
    assert_eq!(refused.unwrap_err(), want);
    assert_eq!(table.reserved_bytes(), 0);
}

#[test]
fn the_first_fatal_code_makes_the_device_lost_and_is_what_all_are_told() {
    let context = Context::detached("first");
    let later = context.error(error::Failure {
        what: "running a kernel",
        code: 719,
    });
    assert_eq!(
        later,
        Error::DeviceLost {
            reason: "first".into()
        }
    );
    let refusal = context.error(error::Failure {
        what: "launching a kernel",
        code: 1,
    });
    assert!(
        matches!(refusal, Error::Driver { code: 1, .. }),
        "{refusal}"
    );
}

#[test]
fn no_text_of_an_owner_shows_an_address() {
    let context = Context::detached("gone");
    let lanes = Lanes::detached(&context);
    let shown = format!("{context:?} {lanes:?}");
    assert!(!shown.contains("0x"), "{shown}");
}

#[test]
fn what_a_device_is_made_of_can_be_shared() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<CudaDevice>();
    shared::<Arc<program::CudaProgram>>();
}
