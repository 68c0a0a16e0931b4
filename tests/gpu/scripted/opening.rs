//! Opening devices of a driver that fails or lacks something, and what a driver that works is asked.

use std::sync::Arc;

use abi::AbiError;
use abi::argv::Arg;
use device::{DeviceKind, Error, Health, HostAddr, Selector};

use super::{
    assert_all_given_back, everything_works_and_is_given_back, guest, instance_failure, number,
    open, use_everything,
};
use crate::fake::{Form, Library, calls, calls_of};
use crate::guests::{a_kernel_of_another_device_is_refused, memory_of_another_device_is_refused};
use crate::harness::{KIT, Shape, VECADD, Way, encode};
use crate::rig::{assert_fails, assert_nothing_is_reserved, ptr};
use crate::runner::{Case, scripted, with_library};

/// A driver without some functions.
const fn without(absent: &'static [&'static str]) -> Library {
    Library {
        absent,
        ..Library::ORDINARY
    }
}

const NO_LIBRARY: Library = Library {
    form: Form::Text,
    ..Library::ORDINARY
};

pub(crate) const CASES: &[Case] = &[
    // Opening.
    with_library(
        "what_is_no_library_is_no_driver",
        NO_LIBRARY,
        what_is_no_library_is_no_driver,
    ),
    scripted("no_device_at_init", "cuInit=100", no_device),
    scripted("no_device_counted", "devices=0", no_device),
    scripted("init_fails", "cuInit=802", opening_fails),
    scripted(
        "init_answers_a_code_that_cust_does_not_know",
        "cuInit=46",
        opening_fails,
    ),
    scripted("counting_fails", "cuDeviceGetCount=3", opening_fails),
    scripted("finding_fails", "cuDeviceGet=101", opening_fails),
    scripted("the_name_fails", "cuDeviceGetName=1", opening_fails),
    scripted(
        "an_attribute_fails",
        "cuDeviceGetAttribute@7=1",
        opening_fails,
    ),
    scripted(
        "the_context_fails",
        "cuDevicePrimaryCtxRetain=2",
        opening_fails,
    ),
    scripted("entering_fails", "cuCtxSetCurrent=201", entering_fails),
    scripted(
        "the_first_allocation_fails",
        "cuMemAllocManaged=1",
        opening_fails,
    ),
    scripted(
        "a_stream_fails",
        "cuStreamCreateWithPriority@100=2",
        opening_fails,
    ),
    with_library(
        "without_cuInit",
        without(&["cuInit"]),
        a_function_is_missing,
    ),
    with_library(
        "without_cuMemAllocManaged",
        without(&["cuMemAllocManaged"]),
        a_function_is_missing,
    ),
    with_library(
        "without_cuDeviceGetName",
        without(&["cuDeviceGetName"]),
        a_function_is_missing,
    ),
    with_library(
        "without_what_older_drivers_lack",
        without(&["cuFuncGetParamInfo", "cuFuncLoad"]),
        everything_works_and_is_given_back,
    ),
    // What a working driver is asked.
    scripted(
        "everything_works_and_is_given_back",
        "",
        everything_works_and_is_given_back,
    ),
    scripted(
        "new_memory_that_is_not_zero",
        "dirty=1",
        everything_works_and_is_given_back,
    ),
    scripted("launches_end_in_marks", "marks=1", launches_end_in_marks),
    scripted(
        "no_word_for_marks",
        "cuMemHostAlloc=2;marks=1",
        everything_works_and_is_given_back,
    ),
    scripted("options_and_flags", "", options_and_flags),
    scripted("a_device_is_opened_once", "", a_device_is_opened_once),
    scripted(
        "texts_without_variables_are_loaded_once",
        "",
        texts_without_variables_are_loaded_once,
    ),
    scripted(
        "memory_of_another_device",
        "",
        memory_of_another_device_is_refused,
    ),
    scripted(
        "a_kernel_of_another_device",
        "",
        a_kernel_of_another_device_is_refused,
    ),
    scripted("a_device_that_is_not_there", "", a_device_that_is_not_there),
    scripted(
        "no_concurrent_access",
        "attribute.89=0",
        guest_memory_is_exact,
    ),
    scripted(
        "pages_of_managed_memory_that_cannot_be_opened",
        "sealed=1",
        guest_memory_is_exact,
    ),
    scripted(
        "memory_is_registered_apart",
        "apart=2;attribute.89=0",
        growth_apart_from_the_rest_fails,
    ),
    scripted(
        "registering_memory_fails",
        "cuMemHostRegister_v2=2;attribute.89=0",
        no_instance_without_registered_memory,
    ),
    scripted(
        "no_cooperative_launches",
        "attribute.95=0",
        no_cooperative_launches,
    ),
];

fn what_is_no_library_is_no_driver() {
    match device::open(Selector::Cuda(0)) {
        Err(Error::NotAvailable { reason }) => {
            assert!(reason.contains("libcuda.so.1"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let kind = device::open(Selector::Auto).unwrap().info().kind;
    assert_eq!(kind, DeviceKind::Cpu);
}

fn no_device() {
    match device::open(Selector::Cuda(0)) {
        Err(Error::NotAvailable { reason }) => {
            assert_eq!(reason, "the CUDA driver has no device");
        }
        other => panic!("{other:?}"),
    }
    let kind = device::open(Selector::Auto).unwrap().info().kind;
    assert_eq!(kind, DeviceKind::Cpu);
}

fn opening_fails() {
    for selector in [Selector::Cuda(0), Selector::Auto, Selector::Cuda(0)] {
        let error = device::open(selector).unwrap_err();
        assert!(!matches!(error, Error::NotAvailable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&number()), "{text}");
        assert!(text.contains("(CUDA_ERROR_"), "{text}");
        assert!(text.contains(" failed: "), "{text}");
        if std::env::var("FAKE_CUDA").unwrap().contains('@') {
            // Only that call of all fails.
            break;
        }
    }
    assert_all_given_back();
}

/// Each launch is followed by a mark on its stream, which the driver writes after all that it shows to the host.
fn launches_end_in_marks() {
    everything_works_and_is_given_back();
    let calls = calls();
    let is_launch = |call: &&String| {
        call.starts_with("cuLaunchKernel") || call.starts_with("cuLaunchCooperativeKernel")
    };
    let mut of_streams = calls
        .iter()
        .filter(|call| is_launch(call) || call.starts_with("cuStreamWriteValue32_v2"));
    let mut launches = 0;
    while let Some(call) = of_streams.next() {
        if is_launch(&call) {
            launches += 1;
            let next = of_streams.next().map(String::as_str);
            assert_eq!(next, Some("cuStreamWriteValue32_v2 0"));
        }
    }
    assert!(launches > 0, "{calls:?}");
}

/// What runs on a device whose context cannot be entered is not known, and so is what may be given back.
fn entering_fails() {
    let error = device::open(Selector::Cuda(0)).unwrap_err();
    assert!(matches!(error, Error::DeviceLost { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("CUDA_ERROR_INVALID_CONTEXT, 201)"), "{text}");
}

fn a_function_is_missing() {
    let error = device::open(Selector::Cuda(0)).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Driver { code: 801, .. }), "{text}");
    assert!(text.contains("801"), "{text}");
    assert_all_given_back();
}

fn options_and_flags() {
    use_everything(&mut guest());
    let calls = calls();
    let of = |function: &str| {
        let is_it = |call: &&String| call.split(' ').next() == Some(function);
        calls.iter().filter(is_it).cloned().collect::<Vec<_>>()
    };
    let (loads, streams) = (of("cuModuleLoadDataEx"), of("cuStreamCreateWithPriority"));
    assert!(!loads.is_empty() && !streams.is_empty());
    // Sizes and buffers of the two logs.
    assert!(
        loads
            .iter()
            .all(|call| call == "cuModuleLoadDataEx 4 6 5 4 3"),
        "{loads:?}"
    );
    // Not for the null stream to wait for.
    assert!(
        streams
            .iter()
            .all(|call| call.starts_with("cuStreamCreateWithPriority 1 ")),
        "{streams:?}"
    );
    // All there is to have without the static part.
    let allowed = of("cuFuncSetAttribute");
    assert!(
        allowed.contains(&"cuFuncSetAttribute 8 232448".to_owned()),
        "{allowed:?}"
    );
    assert!(
        allowed.contains(&"cuFuncSetAttribute 8 231424".to_owned()),
        "{allowed:?}"
    );
    // Linear memory lies with the host, in pages that the guest has; the device is told to reach it there.
    let advice = of("cuMemAdvise");
    for wanted in ["cuMemAdvise 1048576 3 -1", "cuMemAdvise 1048576 5 0"] {
        assert!(advice.iter().any(|call| call == wanted), "{advice:?}");
    }
}

fn a_device_is_opened_once() {
    {
        let (one, other) = (open(), open());
        assert!(Arc::ptr_eq(one.regions(), other.regions()));
        assert_eq!(calls_of("cuDevicePrimaryCtxRetain"), 1);
        assert_eq!(one.info().name, "Pretended GPU 0");
    }
    assert_all_given_back();
    drop(open());
    assert_eq!(calls_of("cuInit"), 1);
    assert_eq!(calls_of("cuDevicePrimaryCtxRetain"), 2);
}

fn texts_without_variables_are_loaded_once() {
    let (mut one, mut other) = (guest(), guest());
    for guest in [&mut one, &mut other] {
        for _ in 0..3 {
            guest.kernel(VECADD, "vecadd");
        }
    }
    assert_eq!(calls_of("cuModuleLoadDataEx"), 1);
    one.kernel(KIT, "k_count");
    other.kernel(KIT, "k_count");
    assert_eq!(calls_of("cuModuleLoadDataEx"), 3);
}

fn a_device_that_is_not_there() {
    for (ordinal, is_there) in [(0, true), (1, true), (2, false), (u32::MAX, false)] {
        let opened = device::open(Selector::Cuda(ordinal));
        let absent = matches!(opened, Err(Error::NotAvailable { .. }));
        assert_eq!((opened.is_ok(), absent), (is_there, !is_there), "{ordinal}");
    }
}

/// Guest memory that cannot be guarded is registered with the driver, and that is said.
fn guest_memory_is_exact() {
    {
        let device = open();
        let remarks = device.remarks();
        let want = "guests on registered host memory, for trusted kernels only (";
        assert!(remarks[0].starts_with(want), "{remarks:?}");
        assert!(!device.abilities().prefetch);
        let mut guest = guest();
        let kernel = guest.kernel(KIT, "k_store");
        for more in [0, 1, 30] {
            guest.grow(more);
            let last = guest.memory_bytes() - 4;
            guest.run(kernel, &[ptr(last, 4), Arg::U32(last)]);
            assert_eq!(guest.read_u32(last), last);
        }
        let base = HostAddr::from_ptr(guest.memory.data_ptr(&guest.store)).unwrap();
        let region = device.regions().find(base).unwrap();
        assert!(!region.serves_confined());
        guest.assert_usable();
    }
    assert_all_given_back();
    let registered = calls_of("cuMemHostRegister_v2");
    assert!(registered >= 3);
    assert_eq!(registered, calls_of("cuMemHostUnregister"));
}

/// A range that the device finds elsewhere is no part of a window.
fn growth_apart_from_the_rest_fails() {
    let mut guest = guest();
    let pages = i64::from(guest.memory_bytes() >> 16);
    assert_eq!(guest.grow(1), -1);
    guest.assert_usable();
    assert_eq!(guest.grow(1), pages);
    guest.assert_usable();
}

fn no_instance_without_registered_memory() {
    let device = open();
    let text = instance_failure(&device);
    assert!(text.contains(&number()), "{text}");
    assert_eq!(device.health(), Health::Good);
    assert_nothing_is_reserved(&device);
}

fn no_cooperative_launches() {
    let mut guest = guest();
    let kernel = guest.kernel(KIT, "k_empty");
    let argv = encode(&[]);
    let answer = guest.launch_as(Way::Cooperative, kernel, Shape::ONE, &argv);
    let parts = ["cooperative grid has 1 blocks, 0 of this kernel"];
    assert_fails(&mut guest, answer, AbiError::InvalidDimensions, &parts);
    assert_eq!(calls_of("cuLaunchCooperativeKernel"), 0);
    guest.assert_usable();
}
