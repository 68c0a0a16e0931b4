//! What only components have: arguments by value, traps in errors, resources.

use super::rig::{Answer, Arg, Rig, api};
use crate::harness::{Harness, KIT, Setup, Shape, VECADD, host_panics};

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn code<T: std::fmt::Debug>(answer: Answer<T>) -> api::ErrorCode {
    answer.unwrap_err().code
}

#[test]
fn lists_go_in_and_come_out() {
    let mut rig = Rig::cpu();
    let kernel = rig.kernel(VECADD, "vecadd");
    let args = [
        Arg::Input(floats([1.0, 2.0, 3.0])),
        Arg::Input(floats([10.0, 20.0, 30.0])),
        Arg::Output(12),
        Arg::U32(3),
    ];
    let answers = rig.launch(kernel, Shape::line(1, 32), &args).unwrap();
    assert_eq!(answers, [floats([11.0, 22.0, 33.0])]);
}

#[test]
fn a_list_that_goes_both_ways_keeps_what_the_kernel_leaves_alone() {
    let mut rig = Rig::cpu();
    let kernel = rig.kernel(KIT, "k_store");
    let args = [Arg::InOut(vec![1; 8]), Arg::U32(0x0203_0405)];
    let answers = rig.launch(kernel, Shape::ONE, &args).unwrap();
    assert_eq!(answers, [[5, 4, 3, 2, 1, 1, 1, 1]]);
}

#[test]
fn answers_come_in_the_order_of_their_arguments() {
    let mut rig = Rig::cpu();
    let kernel = rig.kernel(KIT, "k_copy");
    let args = [Arg::InOut(vec![7; 4]), Arg::Output(8), Arg::U32(1)];
    let answers = rig.launch(kernel, Shape::ONE, &args).unwrap();
    assert_eq!(answers, [vec![7; 4], vec![7, 7, 7, 7, 0, 0, 0, 0]]);
}

#[test]
fn empty_lists_have_a_place_as_well() {
    let mut rig = Rig::cpu();
    let kernel = rig.kernel(KIT, "k_copy");
    let args = [Arg::Input(vec![]), Arg::Output(0), Arg::U32(0)];
    let answers = rig.launch(kernel, Shape::ONE, &args).unwrap();
    assert_eq!(answers, [[]]);
}

#[test]
fn memory_of_a_launch_is_given_back_however_it_ends() {
    let mut rig = Rig::cpu();
    let (store, trap) = (rig.kernel(KIT, "k_store"), rig.kernel(KIT, "k_trap"));
    let variables = rig.cuda().metrics().buffer_bytes;
    let args = [Arg::Output(4), Arg::U32(1)];
    rig.launch(store, Shape::ONE, &args).unwrap();
    assert_eq!(
        code(rig.launch(store, Shape::line(0, 1), &args)),
        api::ErrorCode::InvalidDimensions
    );
    assert_eq!(
        code(rig.launch(trap, Shape::ONE, &args)),
        api::ErrorCode::InvalidArgs
    );
    assert_eq!(
        code(rig.launch(trap, Shape::ONE, &[])),
        api::ErrorCode::KernelTrap
    );
    assert_eq!(rig.cuda().metrics().buffer_bytes, variables);
}

#[test]
fn a_trap_says_where_the_kernel_was() {
    let mut rig = Rig::cpu();
    let kernel = rig.kernel(KIT, "k_wild");
    let error = rig.launch(kernel, Shape::ONE, &[]).unwrap_err();
    assert_eq!(error.code, api::ErrorCode::KernelTrap);
    let trap = error.trap.unwrap();
    assert_eq!(trap.kind, api::TrapKind::OutOfBounds);
    let line = KIT.lines().position(|line| line.contains("entry k_wild"));
    assert_eq!(Some(trap.line as usize), line.map(|line| line + 1));
    let access = trap.access.unwrap();
    assert_eq!((access.bytes, access.address), (4, 16));
}

#[test]
fn buffers_live_as_long_as_their_resources() {
    let mut rig = Rig::cpu();
    let kernel = rig.kernel(KIT, "k_store");
    let variables = rig.cuda().metrics().buffer_bytes;
    let buffer = rig.alloc(16).unwrap();
    assert_eq!(rig.size(buffer), 16);
    let args = [Arg::Buffer((buffer, 8)), Arg::U32(0x0102_0304)];
    assert_eq!(
        rig.launch(kernel, Shape::ONE, &args).unwrap(),
        Vec::<Vec<u8>>::new()
    );
    assert_eq!(rig.read(buffer, 8, 4).unwrap(), [4, 3, 2, 1]);
    assert_eq!(rig.cuda().metrics().buffer_bytes, variables + 16);
    rig.drop_buffer(buffer);
    assert_eq!(rig.cuda().metrics().buffer_bytes, variables);
}

#[test]
fn kernels_are_unloaded_with_their_resources() {
    let mut rig = Rig::cpu();
    let kernel = rig.kernel(KIT, "k_empty");
    assert_eq!(rig.cuda().metrics().kernels, 1);
    rig.drop_device();
    rig.launch(kernel, Shape::ONE, &[]).unwrap();
    rig.drop_kernel(kernel);
    assert_eq!(rig.cuda().metrics().kernels, 0);
}

#[test]
fn resources_can_be_dropped_when_the_right_to_use_them_is_gone() {
    let mut rig = Rig::cpu();
    let (kernel, buffer) = (rig.kernel(KIT, "k_empty"), rig.alloc(8).unwrap());
    rig.cuda_mut().disable_wasi_cuda();
    let error = rig.launch(kernel, Shape::ONE, &[]).unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (api::ErrorCode::NotAvailable, "")
    );
    rig.drop_kernel(kernel);
    rig.drop_buffer(buffer);
    let metrics = rig.cuda().metrics();
    assert_eq!((metrics.kernels, metrics.buffer_bytes), (0, 0));
}

#[test]
fn handles_cannot_be_made_up() {
    let mut rig = Rig::cpu();
    let buffer = rig.alloc(8).unwrap();
    assert!(
        rig.try_drop_kernel(buffer).is_err(),
        "a buffer is no kernel"
    );
}

#[test]
fn a_large_read_that_does_not_fit_makes_no_room_for_it() {
    let mut rig = Rig::cpu();
    let buffer = rig.alloc(8).unwrap();
    assert_eq!(
        code(rig.read(buffer, 0, u32::MAX)),
        api::ErrorCode::InvalidArgs
    );
}

#[test]
fn infos_are_those_of_core_modules() {
    let mut core = Harness::cpu();
    let mut rig = Rig::new(&Setup::default());
    let (told, info) = (core.device_info(), rig.device_info().unwrap());
    assert_eq!(info.kind, api::DeviceKind::Cpu);
    assert_eq!(info.name, told.name_str());
    assert_eq!(
        info.compute_capability,
        (told.compute_major, told.compute_minor)
    );
    assert_eq!(info.max_threads_per_block, told.max_threads_per_block);
    assert!(
        info.features
            .contains(api::Features::CONFINED | api::Features::TRAPPING)
    );

    let kernel = core.kernel(KIT, "k_struct");
    let (told, params) = core.kernel_info(kernel);
    let kernel = rig.kernel(KIT, "k_struct");
    let info = rig.kernel_info(kernel).unwrap();
    assert_eq!(
        (info.max_threads, info.local_bytes),
        (told.max_threads, told.local_bytes)
    );
    let given = |offset, size, align| (offset, size, align);
    assert_eq!(
        info.params
            .iter()
            .map(|p| given(p.offset, p.size, p.align))
            .collect::<Vec<_>>(),
        params
            .iter()
            .map(|p| given(p.offset, p.size, p.align))
            .collect::<Vec<_>>(),
    );
    assert_eq!(host_panics(), 0);
}
