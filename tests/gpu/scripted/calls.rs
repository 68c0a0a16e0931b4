//! Calls of a driver that fail after its device was opened: the one who makes the call is told, the others go on.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use abi::AbiError;
use abi::argv::Arg;
use device::{Error, Health, Selector};
use wasmtime::Val;

use super::{
    assert_all_given_back, everything_works_and_is_given_back, guest, instance_failure, number,
    open, use_everything,
};
use crate::fake::calls;
use crate::harness::{DATA_AT, KIT, Shape, VECADD, u32_val};
use crate::rig::{assert_fails, ptr};
use crate::runner::{Case, scripted};

pub(crate) const CASES: &[Case] = &[
    // Memory.
    scripted(
        "no_memory_for_an_instance",
        "cuMemAllocManaged@3+=2",
        no_memory_for_an_instance,
    ),
    scripted(
        "advice_fails",
        "cuMemAdvise=1",
        everything_works_and_is_given_back,
    ),
    scripted(
        "clearing_a_buffer_fails",
        "cuMemsetD8Async=1",
        a_new_buffer_fails,
    ),
    scripted(
        "moving_a_buffer_fails",
        "cuMemPrefetchAsync@1=1",
        a_new_buffer_fails,
    ),
    scripted(
        "copying_in_fails",
        "cuMemcpyHtoDAsync_v2@1=1",
        copying_in_fails,
    ),
    scripted(
        "copying_out_fails",
        "cuMemcpyDtoHAsync_v2@1=1",
        copying_out_fails,
    ),
    // Loads.
    scripted(
        "a_module_does_not_load",
        "cuModuleLoadDataEx@1=2",
        a_load_fails,
    ),
    scripted(
        "an_entry_is_not_found",
        "cuModuleGetFunction@1=500",
        a_load_fails,
    ),
    scripted("an_entry_does_not_load", "cuFuncLoad@1=2", a_load_fails),
    scripted(
        "an_attribute_of_an_entry_fails",
        "cuFuncGetAttribute@1=1",
        a_load_fails,
    ),
    scripted(
        "shared_memory_is_not_allowed",
        "cuFuncSetAttribute@1=1",
        a_load_fails,
    ),
    scripted(
        "local_memory_is_reserved_before_a_launch",
        "local=2048",
        local_memory_is_reserved_before_a_launch,
    ),
    scripted(
        "local_memory_is_not_reserved",
        "cuCtxSetLimit@1=2;local=2048",
        a_load_fails,
    ),
    scripted(
        "no_code_for_this_gpu",
        "cuModuleLoadDataEx@1=209",
        no_code_for_this_gpu,
    ),
    scripted(
        "a_refusal_without_a_log",
        "cuModuleLoadDataEx@1=218",
        a_refusal_without_a_log,
    ),
    scripted(
        "another_parameter_layout",
        "params=8",
        another_parameter_layout,
    ),
    scripted(
        "occupancy_is_not_told",
        "cuOccupancyMaxActiveBlocksPerMultiprocessor=1",
        everything_works_and_is_given_back,
    ),
    // Launches.
    scripted(
        "a_launch_is_refused",
        "cuLaunchKernel@1=701",
        a_launch_fails,
    ),
    scripted(
        "a_launch_answers_an_unknown_code",
        "cuLaunchKernel@1=46",
        a_launch_fails,
    ),
    scripted(
        "a_launch_finds_the_device_lost",
        "cuLaunchKernel@1=719",
        the_device_is_lost,
    ),
    scripted(
        "a_query_finds_the_device_lost",
        "cuStreamQuery@1=700",
        the_device_is_lost,
    ),
    scripted(
        "a_query_before_the_mark_finds_the_device_lost",
        "cuStreamQuery@1=700;marks=1",
        the_device_is_lost,
    ),
    scripted(
        "a_later_query_times_out",
        "cuStreamQuery@40=702",
        the_device_is_lost,
    ),
    scripted(
        "entering_finds_the_device_gone",
        "cuLaunchKernel@1=709",
        the_device_is_lost,
    ),
    // Giving back.
    scripted(
        "memory_is_not_taken_back",
        "cuMemFree_v2=1",
        giving_back_fails,
    ),
    scripted(
        "a_module_is_not_taken_back",
        "cuModuleUnload=1",
        giving_back_fails,
    ),
    scripted(
        "a_stream_is_not_taken_back",
        "cuStreamDestroy_v2=1",
        giving_back_fails,
    ),
    scripted(
        "the_context_is_not_taken_back",
        "cuDevicePrimaryCtxRelease_v2=1",
        giving_back_fails,
    ),
];

fn no_memory_for_an_instance() {
    let device = open();
    let text = instance_failure(&device);
    assert!(
        text.contains("managed memory of the CUDA device needs"),
        "{text}"
    );
    assert_eq!(device.health(), Health::Good);
    assert_eq!(device.regions().reserved_bytes(), 0);
}

fn a_new_buffer_fails() {
    let mut guest = guest();
    let answer = guest.call(abi::FN_ALLOC, &[Val::I64(100)]);
    let number = number();
    assert_fails(
        &mut guest,
        answer,
        AbiError::LaunchFailed,
        &[&number, "CUDA_ERROR_INVALID_VALUE"],
    );
    assert_eq!(guest.cuda().metrics().buffer_bytes, 0);
    guest.assert_usable();
}

fn copying_in_fails() {
    copying_fails(abi::FN_WRITE);
}

fn copying_out_fails() {
    copying_fails(abi::FN_READ);
}

fn copying_fails(import: &str) {
    let mut guest = guest();
    let buffer = guest.call(abi::FN_ALLOC, &[Val::I64(100)]);
    let copy = [Val::I64(buffer), Val::I64(0), u32_val(DATA_AT), u32_val(4)];
    let answer = guest.call(import, &copy);
    let number = number();
    assert_fails(&mut guest, answer, AbiError::LaunchFailed, &[&number]);
    assert_eq!(guest.call(import, &copy), 0);
    use_everything(&mut guest);
}

fn a_load_fails() {
    {
        let mut guest = guest();
        let answer = guest.load(VECADD, "vecadd");
        let number = number();
        let parts = [" failed: ", "(CUDA_ERROR_", &number];
        assert_fails(&mut guest, answer, AbiError::LaunchFailed, &parts);
        assert_eq!(guest.cuda().metrics().kernels, 0);
        use_everything(&mut guest);
    }
    assert_all_given_back();
}

fn local_memory_is_reserved_before_a_launch() {
    use_everything(&mut guest());
    let limits: Vec<_> = calls()
        .into_iter()
        .filter(|call| call.starts_with("cuCtxSetLimit"))
        .collect();
    assert_eq!(limits, ["cuCtxSetLimit 0 2048"]);
    let position = |name: &str| calls().iter().position(|call| call.starts_with(name));
    assert!(position("cuCtxSetLimit") < position("cuLaunchKernel"));
}

fn no_code_for_this_gpu() {
    let mut guest = guest();
    let answer = guest.load(VECADD, "vecadd");
    let parts = [
        "the PTX version or target",
        "CUDA_ERROR_NO_BINARY_FOR_GPU, 209)",
    ];
    assert_fails(&mut guest, answer, AbiError::UnsupportedPtx, &parts);
    use_everything(&mut guest);
}

fn a_refusal_without_a_log() {
    let mut guest = guest();
    let answer = guest.load(VECADD, "vecadd");
    let parts = ["does not compile: ", "CUDA_ERROR_INVALID_PTX, 218)"];
    assert_fails(&mut guest, answer, AbiError::MalformedPtx, &parts);
    use_everything(&mut guest);
}

fn another_parameter_layout() {
    {
        let mut guest = guest();
        let answer = guest.load(VECADD, "vecadd");
        let parts = [
            "the parameter layout of `vecadd`",
            "8 bytes at 0, to the driver 16 bytes at 0",
        ];
        assert_fails(&mut guest, answer, AbiError::UnsupportedPtx, &parts);
    }
    assert_all_given_back();
}

fn a_launch_fails() {
    {
        let mut guest = guest();
        let kernel = guest.kernel(KIT, "k_store");
        let args = [ptr(DATA_AT, 4), Arg::U32(3)];
        let answer = guest.launch(kernel, Shape::ONE, &args);
        let number = number();
        let parts = [" failed: ", "(CUDA_ERROR_", &number];
        assert_fails(&mut guest, answer, AbiError::LaunchFailed, &parts);
        assert_eq!(guest.read_u32(DATA_AT), 0);
        guest.run(kernel, &args);
        assert_eq!(guest.read_u32(DATA_AT), 3);
        use_everything(&mut guest);
    }
    assert_all_given_back();
}

fn the_device_is_lost() {
    let device = open();
    let (mut guest, mut other) = (guest(), guest());
    let kernels = [&mut guest, &mut other].map(|guest| guest.kernel(KIT, "k_spin"));
    let spin = [Arg::U64(20_000_000)];
    let number = number();
    let parts = [
        "device lost: ",
        "(CUDA_ERROR_",
        &number,
        "must be restarted",
    ];
    let answer = guest.launch(kernels[0], Shape::ONE, &spin);
    assert_fails(&mut guest, answer, AbiError::DeviceLost, &parts);
    assert_ne!(device.health(), Health::Good);

    let before = calls().len();
    for (guest, kernel) in [&mut guest, &mut other].into_iter().zip(kernels) {
        let answer = guest.launch(kernel, Shape::ONE, &spin);
        assert_fails(guest, answer, AbiError::DeviceLost, &parts);
        let answer = guest.load(VECADD, "vecadd");
        assert_fails(guest, answer, AbiError::DeviceLost, &parts);
        let answer = guest.call(abi::FN_ALLOC, &[Val::I64(8)]);
        assert_fails(guest, answer, AbiError::DeviceLost, &parts);
        assert_eq!(guest.grow(1), -1);
    }
    drop((guest, other));
    assert!(instance_failure(&device).contains("device lost"));
    assert!(Arc::ptr_eq(open().regions(), device.regions()));
    drop(device);
    for selector in [Selector::Cuda(0), Selector::Auto] {
        let error = device::open(selector).unwrap_err();
        assert!(matches!(error, Error::DeviceLost { .. }), "{error:?}");
        assert!(error.to_string().contains(&number), "{error}");
    }
    thread::sleep(Duration::from_millis(50));
    assert_eq!(
        calls().len(),
        before,
        "a lost device asks the driver nothing"
    );
}

fn giving_back_fails() {
    {
        let mut guest = guest();
        use_everything(&mut guest);
    }
    // What the driver did not take back is in nobody's way.
    let mut guest = guest();
    use_everything(&mut guest);
    assert_eq!(open().health(), Health::Good);
}
