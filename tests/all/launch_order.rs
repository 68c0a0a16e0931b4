//! The order in which a launch is checked: a call that is wrong in every respect is put right one respect at a time, and
//! each time the next check answers.

use abi::AbiError;
use abi::AbiError::{
    InvalidArgs, InvalidDimensions, InvalidKernel, InvalidPointer, KernelArgsUnsupported,
    LaunchFailed, NotAvailable, QuotaExceeded,
};
use abi::argv::Arg;
use host::kernel_args::LoweredArg;
use host::{InstanceId, KernelEntry, KernelRegistry, Limits, Trust};

use crate::fake_device::FakeDevice;
use crate::harness::{
    ARGV_AT, Backing, Capability, DATA_AT, Harness, KIT, LinearMemory, Setup, Shape, Way, encode,
    name,
};

/// A launch, as far as it has been put right.
#[derive(Clone, Copy)]
struct Call<'a> {
    kernel: i64,
    shape: Shape,
    argv_at: u32,
    argv: &'a [u8],
}

impl Call<'_> {
    /// Wrong in whatever a call can be wrong.
    const WRONG: Self = Self {
        kernel: -1,
        shape: Shape::new([0; 3], [0; 3], u32::MAX),
        argv_at: u32::MAX - 1,
        argv: &[0xEE; 3],
    };

    fn make(&self, guest: &mut Harness, way: Way) -> i64 {
        let len = u32::try_from(self.argv.len()).unwrap();
        if self.argv_at == ARGV_AT {
            guest.write_memory(ARGV_AT, self.argv);
        }
        guest.launch_at(way, self.kernel, self.shape, (self.argv_at, len))
    }
}

/// What is put right before a call is made once more.
type Repair = for<'a> fn(&mut Call<'a>, &'a Correct);

/// What a correct call has.
struct Correct {
    kernel: i64,
    too_long: Vec<u8>,
    past_end: Vec<u8>,
    mismatch: Vec<u8>,
    argv: Vec<u8>,
}

impl Correct {
    fn new(kernel: i64) -> Self {
        let number = Arg::U32(5);
        Self {
            kernel,
            too_long: vec![0; abi::MAX_ARGV_BYTES + 1],
            past_end: encode(&[Arg::Ptr {
                offset: u32::MAX,
                len: 2,
            }]),
            mismatch: encode(&[number]),
            argv: encode(&[
                Arg::Ptr {
                    offset: DATA_AT,
                    len: 4,
                },
                number,
            ]),
        }
    }
}

/// The checks that every instance makes, whatever it lacks.
const COMMON: &[(Repair, AbiError)] = &[
    (|_, _| {}, InvalidPointer),
    (|call, _| call.argv_at = ARGV_AT, InvalidKernel),
    (
        |call, correct| call.kernel = correct.kernel,
        InvalidDimensions,
    ),
    (|call, _| call.shape.block = [1; 3], InvalidDimensions),
    (|call, _| call.shape.grid = [1; 3], InvalidDimensions),
    (|call, _| call.shape.shared_bytes = 0, InvalidArgs),
    (
        |call, correct| call.argv = &correct.too_long,
        KernelArgsUnsupported,
    ),
    (
        |call, correct| call.argv = &correct.past_end,
        InvalidPointer,
    ),
];

/// Makes the calls of [`COMMON`], checks that none was recorded, and gives the call as it is then.
fn put_right<'a>(guest: &mut Harness, way: Way, correct: &'a Correct) -> Call<'a> {
    let mut call = Call::WRONG;
    assert_eq!(
        name(call.make(guest, way)),
        NotAvailable.name(),
        "capability"
    );
    assert_eq!(guest.last_text(), "");
    guest.cuda_mut().enable_wasi_cuda();
    for (step, (repair, code)) in COMMON.iter().enumerate() {
        repair(&mut call, correct);
        assert_eq!(
            name(call.make(guest, way)),
            code.name(),
            "{way:?}, step {step}: {}",
            guest.last_text()
        );
        assert_eq!(guest.cuda().last_lowered_args(), [], "{way:?}, step {step}");
    }
    call
}

/// Makes a call whose argv decodes, and checks that it was recorded whatever came of it.
fn recorded(guest: &mut Harness, way: Way, call: Call<'_>, code: AbiError, args: &[LoweredArg]) {
    assert_eq!(
        name(call.make(guest, way)),
        code.name(),
        "{way:?}: {}",
        guest.last_text()
    );
    assert_eq!(guest.cuda().last_lowered_args(), args, "{way:?}");
}

const MISMATCH: [LoweredArg; 1] = [LoweredArg::U32(5)];
const RIGHT: [LoweredArg; 2] = [
    LoweredArg::Ptr {
        offset: DATA_AT,
        len: 4,
    },
    LoweredArg::U32(5),
];

/// A setup with a kernel, `k_store` or a stub of its name, and the capability still off.
fn setup(base: &Setup, kernel: fn(&Setup, InstanceId) -> KernelEntry) -> (Setup, Correct) {
    let instance = InstanceId::random().unwrap();
    let registry = KernelRegistry::default();
    let id = registry.register(kernel(base, instance)).unwrap();
    let base = base.clone();
    let setup = Setup {
        instance: Some(instance),
        registry,
        capability: Capability::Off,
        ..base
    };
    (setup, Correct::new(id.handle()))
}

fn stub(_: &Setup, owner: InstanceId) -> KernelEntry {
    KernelEntry::stub(owner, "k_store", 0)
}

fn k_store(setup: &Setup, owner: InstanceId) -> KernelEntry {
    let device = setup.device().unwrap();
    KernelEntry::from_ptx(
        &device,
        owner,
        "k_store",
        KIT.as_bytes(),
        Trust::Isolated(host::Isolation::Trapping),
    )
    .unwrap()
}

#[test]
fn no_device_is_noticed_once_the_arguments_are_recorded() {
    for memory in [Setup::default().memory, LinearMemory::PlainHost] {
        let limits = Limits {
            launches: 0,
            ..Limits::default()
        };
        let base = Setup {
            memory,
            limits,
            backing: Backing::None,
            ..Setup::default()
        };
        for way in Way::ALL {
            let (setup, correct) = setup(&base, stub);
            let mut guest = Harness::new(&setup);
            let mut call = put_right(&mut guest, way, &correct);
            call.argv = &correct.mismatch;
            recorded(&mut guest, way, call, NotAvailable, &MISMATCH);
            call.argv = &correct.argv;
            recorded(&mut guest, way, call, NotAvailable, &RIGHT);
        }
    }
}

#[test]
fn a_stub_is_noticed_once_the_arguments_are_recorded() {
    let limits = Limits {
        launches: 0,
        ..Limits::default()
    };
    let base = Setup {
        limits,
        ..Setup::default()
    };
    for way in Way::ALL {
        let (setup, correct) = setup(&base, stub);
        let mut guest = Harness::new(&setup);
        let mut call = put_right(&mut guest, way, &correct);
        call.argv = &correct.mismatch;
        recorded(&mut guest, way, call, InvalidKernel, &MISMATCH);
    }
}

#[test]
fn signature_quota_and_guard_come_last_in_this_order() {
    let none_in_flight = Limits {
        launches: 0,
        ..Limits::default()
    };
    let lacks_both = Setup {
        memory: LinearMemory::PlainHost,
        limits: none_in_flight,
        ..Setup::default()
    };
    let lacks_memory = Setup {
        memory: LinearMemory::PlainHost,
        ..Setup::default()
    };
    for (base, code) in [(lacks_both, QuotaExceeded), (lacks_memory, LaunchFailed)] {
        for way in Way::ALL {
            let (setup, correct) = setup(&base, k_store);
            let mut guest = Harness::new(&setup);
            let mut call = put_right(&mut guest, way, &correct);
            call.argv = &correct.mismatch;
            recorded(&mut guest, way, call, InvalidArgs, &MISMATCH);
            call.argv = &correct.argv;
            recorded(&mut guest, way, call, code, &RIGHT);
        }
    }
}

#[test]
fn a_call_that_is_right_in_every_respect_runs() {
    for way in Way::ALL {
        let (setup, correct) = setup(&Setup::default(), k_store);
        let mut guest = Harness::new(&setup);
        let mut call = put_right(&mut guest, way, &correct);
        call.argv = &correct.argv;
        assert_eq!(call.make(&mut guest, way), 0, "{}", guest.last_text());
        assert_eq!(guest.read_u32(DATA_AT), 5);
        assert_eq!(guest.cuda().last_lowered_args(), RIGHT);
    }
}

#[test]
fn the_kernels_own_limits_are_part_of_the_geometry() {
    let text = ".version 7.8 .target sm_80 .address_size 64
        .visible .entry at_most() .maxntid 64, 1, 1 { ret; }
        .visible .entry exactly() .reqntid 32, 2, 1 { ret; }";
    let mut guest = Harness::cpu();
    let (at_most, exactly) = (guest.kernel(text, "at_most"), guest.kernel(text, "exactly"));
    let answer = guest.launch(at_most, Shape::line(1, 65), &[]);
    guest.assert_refused(
        answer,
        InvalidDimensions,
        "block has 65 threads, the limit is 64",
    );
    assert_eq!(guest.launch(at_most, Shape::line(1, 64), &[]), 0);
    let answer = guest.launch(exactly, Shape::line(1, 64), &[]);
    let text = "block is [64, 1, 1] threads, kernel `exactly` requires [32, 2, 1]";
    guest.assert_refused(answer, InvalidDimensions, text);
    assert_eq!(
        guest.launch(exactly, Shape::new([1; 3], [32, 2, 1], 0), &[]),
        0
    );
}

#[test]
fn every_axis_and_product_is_limited_by_name() {
    const MAX: u32 = i32::MAX.cast_unsigned();
    let (device, runs) = FakeDevice::open();
    let limits = Limits {
        blocks: u64::MAX,
        ..Limits::default()
    };
    let mut guest = Harness::new(&Setup {
        limits,
        ..Setup::on(device)
    });
    let kernel = guest.kernel(KIT, "k_empty");
    let refused = [
        (
            [1, 1, 1],
            [1025, 1, 1],
            "block is 1025 threads along x, the limit is 1024",
        ),
        (
            [1, 1, 1],
            [1, 1025, 1],
            "block is 1025 threads along y, the limit is 1024",
        ),
        (
            [1, 1, 1],
            [1, 1, 65],
            "block is 65 threads along z, the limit is 64",
        ),
        (
            [1, 1, 1],
            [0, 1, 1],
            "block is 0 threads along x, the limit is 1024",
        ),
        (
            [1, 1, 1],
            [1, 1, u32::MAX],
            "block is 4294967295 threads along z, the limit is 64",
        ),
        (
            [1, 1, 1],
            [32, 33, 1],
            "block has 1056 threads, the limit is 1024",
        ),
        (
            [1, 1, 1],
            [1024, 1024, 64],
            "block has 67108864 threads, the limit is 1024",
        ),
        (
            [1, 1, 1],
            [65_536, 65_536, 1],
            "block is 65536 threads along x, the limit is 1024",
        ),
        (
            [MAX + 1, 1, 1],
            [1, 1, 1],
            "grid is 2147483648 blocks along x, the limit is 2147483647",
        ),
        (
            [1, 65_536, 1],
            [1, 1, 1],
            "grid is 65536 blocks along y, the limit is 65535",
        ),
        (
            [1, 1, 65_536],
            [1, 1, 1],
            "grid is 65536 blocks along z, the limit is 65535",
        ),
        (
            [1, 0, 1],
            [1, 1, 1],
            "grid is 0 blocks along y, the limit is 65535",
        ),
        (
            [MAX, 2, 1],
            [1, 1, 1],
            "grid has 4294967294 blocks, the limit is 2147483647",
        ),
        (
            [65_536, 65_535, 1],
            [1, 1, 1],
            "grid has 4294901760 blocks, the limit is 2147483647",
        ),
    ];
    for (grid, block, text) in refused {
        let answer = guest.launch(kernel, Shape::new(grid, block, 0), &[]);
        guest.assert_refused(answer, InvalidDimensions, text);
    }
    for (grid, block) in [
        ([MAX, 1, 1], [1024, 1, 1]),
        ([1, 65_535, 1], [1, 1024, 1]),
        ([1, 1, 65_535], [16, 1, 64]),
    ] {
        assert_eq!(guest.launch(kernel, Shape::new(grid, block, 0), &[]), 0);
    }
    assert_eq!(
        runs.launches(),
        3,
        "what is refused does not reach the device"
    );
}

#[test]
fn blocks_of_a_grid_are_limited_by_the_embedder_too() {
    let limits = Limits {
        blocks: 1000,
        ..Limits::default()
    };
    let mut guest = Harness::new(&Setup {
        limits,
        ..Setup::default()
    });
    let kernel = guest.kernel(KIT, "k_empty");
    let answer = guest.launch(kernel, Shape::new([7, 11, 13], [1; 3], 0), &[]);
    guest.assert_refused(
        answer,
        InvalidDimensions,
        "grid has 1001 blocks, the limit is 1000",
    );
    assert_eq!(guest.launch(kernel, Shape::new([10; 3], [1; 3], 0), &[]), 0);
}

#[test]
fn shared_memory_is_limited_with_what_the_kernel_declares() {
    let (device, runs) = FakeDevice::open();
    let limit = device.info().limits.shared_bytes;
    let mut guest = Harness::new(&Setup::on(device));
    let (none, kib) = (
        guest.kernel(KIT, "k_dynsmem"),
        guest.kernel(KIT, "k_bothsmem"),
    );
    let argv = encode(&[
        Arg::Ptr {
            offset: DATA_AT,
            len: 4,
        },
        Arg::U32(4),
    ]);
    let launch = |guest: &mut Harness, kernel, shared_bytes| {
        let argv = if kernel == none {
            argv.as_slice()
        } else {
            &argv[..9]
        };
        guest.launch_bytes(kernel, Shape::new([1; 3], [1; 3], shared_bytes), argv)
    };
    for (kernel, fixed) in [(none, 0), (kib, 1024)] {
        for dynamic in [limit - fixed + 1, u32::MAX] {
            let answer = launch(&mut guest, kernel, dynamic);
            let text = format!(
                "{dynamic} bytes of dynamic and {fixed} of static shared memory are over the limit of {limit}"
            );
            guest.assert_refused(answer, InvalidDimensions, &text);
        }
        for dynamic in [0, 49_153, 102_400, limit - fixed] {
            assert_eq!(
                launch(&mut guest, kernel, dynamic),
                0,
                "{}",
                guest.last_text()
            );
        }
    }
    assert_eq!(runs.launches(), 8);
}

#[test]
fn a_cooperative_grid_must_be_resident_at_once() {
    let (device, runs) = FakeDevice::open();
    let mut guest = Harness::new(&Setup::on(device));
    let kernel = guest.kernel(KIT, "k_empty");
    let answer = guest.launch_as(Way::Cooperative, kernel, Shape::line(1_000_000, 1), &[]);
    let text = "cooperative grid has 1000000 blocks, 2112 of this kernel fit on the device at once";
    guest.assert_refused(answer, InvalidDimensions, text);
    assert_eq!(
        guest.launch_as(Way::Cooperative, kernel, Shape::line(2112, 1), &[]),
        0
    );
    assert_eq!(guest.launch(kernel, Shape::line(1_000_000, 1), &[]), 0);
    assert_eq!(runs.launches(), 2);
}
