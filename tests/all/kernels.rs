//! Kernels of an instance: loading, finding, asking and unloading, and whose module variables they share.

use abi::AbiError;
use abi::argv::Arg;
use abi::info::{KernelInfo, PARAM_FLAG_PTR, ParamClass, ParamInfo};
use host::{InstanceId, KernelEntry, KernelId, KernelRegistry, Limits, Trust};
use wasmtime::Val;

use crate::harness::{
    DATA_AT, Harness, KIT, NAME_AT, Setup, Shape, VECADD, assert_all_usable, cpu, name, u32_val,
};

fn info_fails(guest: &mut Harness, kernel: i64) -> i64 {
    guest.call(
        abi::FN_KERNEL_INFO,
        &[Val::I64(kernel), u32_val(DATA_AT), u32_val(64)],
    )
}

fn unload(guest: &mut Harness, kernel: i64) -> i64 {
    guest.call(abi::FN_UNLOAD, &[Val::I64(kernel)])
}

fn find(guest: &mut Harness, kernel: &str) -> i64 {
    let (at, len) = guest.put(NAME_AT, kernel.as_bytes());
    guest.call(abi::FN_FIND_KERNEL, &[u32_val(at), u32_val(len)])
}

/// What the module's counter was before this launch added one.
fn count(guest: &mut Harness, kernel: i64) -> u32 {
    guest.run(
        kernel,
        &[Arg::Ptr {
            offset: DATA_AT,
            len: 4,
        }],
    );
    guest.read_u32(DATA_AT)
}

/// An instance for which the embedder registered what `kernels` makes.
fn with_registered(kernels: impl Fn(InstanceId) -> Vec<KernelEntry>) -> (Harness, Vec<KernelId>) {
    let instance = InstanceId::random().unwrap();
    let registry = KernelRegistry::default();
    let ids = kernels(instance)
        .into_iter()
        .map(|kernel| registry.register(kernel).unwrap());
    let ids = ids.collect();
    (
        Harness::new(&Setup {
            instance: Some(instance),
            registry,
            ..Setup::default()
        }),
        ids,
    )
}

#[test]
fn kernel_info_describes_every_entry_of_a_module() {
    let mut guest = Harness::cpu();
    let module = ptx::read(KIT.as_bytes()).unwrap();
    assert_eq!(
        module.entries().len(),
        KIT.matches("\n.visible .entry").count()
    );
    for entry in module.entries() {
        let kernel = guest.kernel(KIT, &entry.entry);
        let (info, params) = guest.kernel_info(kernel);
        assert_eq!(
            info.param_count as usize,
            entry.parameters.len(),
            "{}",
            entry.entry
        );
        assert_eq!(
            info.static_shared_bytes, entry.static_shared_bytes,
            "{}",
            entry.entry
        );
        assert_eq!(info.max_threads, 1024, "{}", entry.entry);
        for (told, declared) in params.iter().zip(&entry.parameters) {
            let place = (declared.offset, declared.size, declared.align);
            assert_eq!(
                (told.offset, told.size, told.align),
                place,
                "{}",
                entry.entry
            );
        }
        assert_eq!(unload(&mut guest, kernel), 0);
    }
}

#[test]
fn parameters_are_told_with_place_size_and_class() {
    let mut guest = Harness::cpu();
    let mut params = |entry| {
        let kernel = guest.kernel(KIT, entry);
        guest.kernel_info(kernel).1
    };
    let param = |offset, size, class: ParamClass| ParamInfo {
        offset,
        size,
        align: size,
        class: class.number(),
        flags: 0,
    };
    let integer = |offset, size| param(offset, size, ParamClass::Integer);
    assert_eq!(params("k_empty"), []);
    assert_eq!(
        params("k_gap"),
        [integer(0, 4), integer(8, 8), integer(16, 4)]
    );
    let (e, f) = (
        param(24, 4, ParamClass::Float),
        param(32, 8, ParamClass::Float),
    );
    assert_eq!(
        params("k_echo"),
        [
            integer(0, 8),
            integer(8, 1),
            integer(10, 2),
            integer(12, 4),
            integer(16, 8),
            e,
            f
        ]
    );
    let bytes = ParamInfo {
        offset: 16,
        size: 32,
        align: 16,
        class: ParamClass::Bytes.number(),
        flags: 0,
    };
    assert_eq!(
        params("k_struct"),
        [
            integer(0, 8),
            integer(8, 4),
            bytes,
            integer(48, 1),
            integer(49, 1)
        ]
    );
    let pointer = |offset| ParamInfo {
        flags: PARAM_FLAG_PTR,
        ..integer(offset, 8)
    };
    assert_eq!(params("k_ptrattr"), [pointer(0), pointer(8)]);
}

#[test]
fn kernel_info_tells_what_a_launch_must_fit() {
    let mut guest = Harness::cpu();
    let mut info = |ptx, entry| {
        let kernel = guest.kernel(ptx, entry);
        guest.kernel_info(kernel).0
    };
    assert_eq!(info(KIT, "k_bothsmem").static_shared_bytes, 1024);
    assert_eq!(info(KIT, "k_dynsmem").static_shared_bytes, 0);
    assert_eq!(info(KIT, "k_local").local_bytes, 16384);
    let bounded = ".version 7.8 .target sm_80 .address_size 64
        .visible .entry k() .maxntid 128, 2, 1 { ret; }";
    let told: KernelInfo = info(bounded, "k");
    assert_eq!((told.max_threads, told.param_count), (256, 0));
}

#[test]
fn an_entry_that_is_not_there_is_named_with_those_that_are() {
    let mut guest = Harness::cpu();
    let answer = guest.load(VECADD, "vecadd_typo");
    let text = "no entry `vecadd_typo`; the module has vecadd";
    guest.assert_refused(answer, AbiError::MalformedPtx, text);
    let answer = guest.load(VECADD, "");
    guest.assert_refused(
        answer,
        AbiError::MalformedPtx,
        "no entry ``; the module has vecadd",
    );
    assert_eq!(
        guest.cuda().metrics().kernels,
        0,
        "a load that failed holds nothing"
    );
    assert_all_usable(&mut guest);
}

#[test]
fn every_load_gives_a_handle_of_its_own() {
    let mut guest = Harness::cpu();
    let handles = [(); 16].map(|()| guest.kernel(KIT, "k_empty"));
    for (index, handle) in handles.iter().enumerate() {
        assert!(*handle > 0);
        assert!(!handles[..index].contains(handle));
        assert_eq!(guest.launch(*handle, Shape::ONE, &[]), 0);
    }
}

#[test]
fn a_kernel_of_the_embedder_is_found_by_its_owner_only() {
    let (mut owner, ids) = with_registered(|owner| {
        let real = KernelEntry::from_ptx(
            &cpu(),
            owner,
            "k_store",
            KIT.as_bytes(),
            Trust::Isolated(host::Isolation::Trapping),
        );
        vec![
            real.unwrap(),
            KernelEntry::stub(InstanceId::new(1), "theirs", 0),
        ]
    });
    assert_eq!(find(&mut owner, "k_store"), ids[0].handle());
    owner.run(
        ids[0].handle(),
        &[
            Arg::Ptr {
                offset: DATA_AT,
                len: 4,
            },
            Arg::U32(9),
        ],
    );
    assert_eq!(owner.read_u32(DATA_AT), 9);

    let answer = find(&mut owner, "theirs");
    owner.assert_refused(
        answer,
        AbiError::InvalidKernel,
        "no registered kernel `theirs` of this instance",
    );
    let answer = info_fails(&mut owner, ids[1].handle());
    let text = format!("no kernel {} of this instance", ids[1].handle());
    owner.assert_refused(answer, AbiError::InvalidKernel, &text);
    assert_all_usable(&mut owner);
}

#[test]
fn the_kernel_registered_last_under_a_name_is_found() {
    let stubs = |owner| (0..5).map(|_| KernelEntry::stub(owner, "k", 0)).collect();
    let (mut guest, ids) = with_registered(stubs);
    assert_eq!(find(&mut guest, "k"), ids[4].handle());
    let owner = guest.cuda().instance();
    guest.cuda().registry.remove(ids[4], owner).unwrap();
    assert_eq!(find(&mut guest, "k"), ids[3].handle());
}

#[test]
fn a_kernel_that_the_guest_loaded_is_not_found_by_name() {
    let mut guest = Harness::cpu();
    guest.kernel(KIT, "k_store");
    let answer = find(&mut guest, "k_store");
    guest.assert_refused(
        answer,
        AbiError::InvalidKernel,
        "no registered kernel `k_store` of this instance",
    );
}

#[test]
fn a_guest_does_not_unload_what_the_embedder_registered() {
    let (mut guest, ids) = with_registered(|owner| vec![KernelEntry::stub(owner, "k", 0)]);
    let handle = ids[0].handle();
    let answer = unload(&mut guest, handle);
    let text = format!("kernel {handle} was registered by the embedder and cannot be unloaded");
    guest.assert_refused(answer, AbiError::InvalidKernel, &text);
    assert_eq!(find(&mut guest, "k"), handle);
}

#[test]
fn an_unloaded_kernel_is_unknown_everywhere() {
    let mut guest = Harness::cpu();
    let kernel = guest.kernel(KIT, "k_empty");
    let (mut other, text) = (
        Harness::cpu(),
        format!("no kernel {kernel} of this instance"),
    );
    let answer = unload(&mut other, kernel);
    other.assert_refused(answer, AbiError::InvalidKernel, &text);

    assert_eq!(unload(&mut guest, kernel), 0);
    let name = guest.put(DATA_AT, b"x");
    let symbol = [Val::I64(kernel), u32_val(name.0), u32_val(name.1)];
    let answers = [
        guest.launch(kernel, Shape::ONE, &[]),
        info_fails(&mut guest, kernel),
        unload(&mut guest, kernel),
        guest.call(abi::FN_SYMBOL, &symbol),
    ];
    for answer in answers {
        guest.assert_refused(answer, AbiError::InvalidKernel, &text);
    }
    assert_all_usable(&mut guest);
}

#[test]
fn unloading_gives_quota_back() {
    let two_texts = 2 * KIT.len() as u64;
    for (limits, text) in [
        (
            Limits {
                kernels: 2,
                ..Limits::default()
            },
            "kernels: 3 given, the limit is 2".to_owned(),
        ),
        (
            Limits {
                ptx_bytes_total: two_texts,
                ..Limits::default()
            },
            format!(
                "bytes of PTX: {} given, the limit is {two_texts}",
                3 * KIT.len()
            ),
        ),
    ] {
        let mut guest = Harness::new(&Setup {
            limits,
            ..Setup::default()
        });
        let first = guest.kernel(KIT, "k_empty");
        guest.kernel(KIT, "k_empty");
        let answer = guest.load(KIT, "k_empty");
        guest.assert_refused(answer, AbiError::QuotaExceeded, &text);
        assert_eq!(unload(&mut guest, first), 0);
        assert_all_usable(&mut guest);
        guest.kernel(KIT, "k_empty");
        assert_eq!(guest.cuda().metrics().kernels, 2);
    }
}

#[test]
fn loads_of_one_text_share_variables_until_the_last_is_unloaded() {
    let mut guest = Harness::cpu();
    let first = guest.kernel(KIT, "k_count");
    let second = guest.kernel(KIT, "k_count");
    for expected in 0..4 {
        assert_eq!(count(&mut guest, first), 2 * expected);
        assert_eq!(count(&mut guest, second), 2 * expected + 1);
    }
    assert_eq!(unload(&mut guest, first), 0);
    let third = guest.kernel(KIT, "k_count");
    assert_eq!(count(&mut guest, third), 8);
    assert_eq!(unload(&mut guest, second), 0);
    assert_eq!(unload(&mut guest, third), 0);

    let afresh = guest.kernel(KIT, "k_count");
    assert_eq!(
        count(&mut guest, afresh),
        0,
        "variables are zero when a text is loaded"
    );
    assert_eq!(guest.cuda().metrics().loads_shared, 2);
}

#[test]
fn entries_of_one_text_share_its_variables() {
    let text = ".version 7.8 .target sm_80 .address_size 64
        .global .align 4 .u32 word;
        .visible .entry put(.param .u32 v) {
          .reg .b32 %v; ld.param.u32 %v, [v]; st.global.u32 [word], %v; ret; }
        .visible .entry get(.param .u64 p) {
          .reg .b64 %p; .reg .b32 %v;
          ld.param.u64 %p, [p]; ld.global.u32 %v, [word]; st.global.u32 [%p], %v; ret; }";
    let mut guest = Harness::cpu();
    let (put, get) = (guest.kernel(text, "put"), guest.kernel(text, "get"));
    guest.run(put, &[Arg::U32(77)]);
    guest.run(
        get,
        &[Arg::Ptr {
            offset: DATA_AT,
            len: 4,
        }],
    );
    assert_eq!(guest.read_u32(DATA_AT), 77);
}

#[test]
fn instances_do_not_share_variables() {
    let (mut one, mut other) = (Harness::cpu(), Harness::cpu());
    let (in_one, in_other) = (one.kernel(KIT, "k_count"), other.kernel(KIT, "k_count"));
    for expected in 0..3 {
        assert_eq!(count(&mut one, in_one), expected);
    }
    assert_eq!(count(&mut other, in_other), 0);
}

#[test]
fn kernels_and_quota_end_with_the_instance() {
    let registry = KernelRegistry::default();
    let instance = InstanceId::random().unwrap();
    let setup = Setup {
        instance: Some(instance),
        registry: registry.clone(),
        ..Setup::default()
    };
    let mut guest = Harness::new(&setup);
    let handle = guest.kernel(KIT, "k_empty");
    drop(guest);
    let mut next = Harness::new(&setup);
    assert_eq!(name(next.launch(handle, Shape::ONE, &[])), "InvalidKernel");
    assert_eq!(next.cuda().metrics().kernels, 0);
    assert_all_usable(&mut next);
}
