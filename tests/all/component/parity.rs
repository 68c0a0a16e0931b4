//! One table of cases, told to a core module, to a component and to one whose imports block: all get the same code and the same text.

use std::time::Duration;

use abi::AbiError;
use abi::argv;
use host::{KernelEntry, Limits};
use wasmtime::Val;

use super::rig::{Answer, Arg, Rig, api};
use crate::harness::{
    Capability, DATA_AT, Harness, KIT, LinearMemory, NAME_AT, Setup, Shape, Way, encode,
    pages_for_text, u32_val,
};

/// How an operation ended: the code's name and the text, or nothing to complain about.
type Ended = Result<(), (String, String)>;

/// A guest of either kind. Kernels and buffers are numbers as the guest has them.
trait Side {
    fn open(&mut self) -> Ended;
    fn load(&mut self, ptx: &[u8], entry: &str) -> Result<i64, (String, String)>;
    fn find(&mut self, name: &str) -> Ended;
    fn symbol(&mut self, kernel: i64, name: &str) -> Ended;
    fn launch(&mut self, way: Way, kernel: i64, shape: Shape, args: &[Given<'_>]) -> Ended;
    fn alloc(&mut self, bytes: u64) -> Result<i64, (String, String)>;
    fn write(&mut self, buffer: i64, at: u64, bytes: &[u8]) -> Ended;
    fn read(&mut self, buffer: i64, at: u64, len: u32) -> Ended;
}

/// An argument that both kinds of guest can give.
#[derive(Clone, Copy)]
enum Given<'a> {
    Buffer(i64, u64),
    Bytes(&'a [u8]),
    F32(f32),
    F64(f64),
    I32(i32),
    I64(i64),
    U32(u32),
    U64(u64),
}

struct Core(Harness);

impl Core {
    fn ended(&mut self, answer: i64) -> Result<i64, (String, String)> {
        let code = i32::try_from(answer).ok().and_then(AbiError::from_code);
        match code {
            None => Ok(answer),
            Some(code) => Err((code.name().into(), self.0.cuda().last_error())),
        }
    }

    fn done(&mut self, answer: i64) -> Ended {
        self.ended(answer).map(drop)
    }
}

impl Side for Core {
    /// A core module has nothing to open: the first import that needs a device tells whether there is one.
    fn open(&mut self) -> Ended {
        let answer = self.0.call(abi::FN_SYNC, &[]);
        self.done(answer)
    }

    fn load(&mut self, ptx: &[u8], entry: &str) -> Result<i64, (String, String)> {
        let answer = self.0.load_bytes(ptx, entry.as_bytes());
        self.ended(answer)
    }

    fn find(&mut self, name: &str) -> Ended {
        let (at, len) = self.0.put(NAME_AT, name.as_bytes());
        let answer = self.0.call(abi::FN_FIND_KERNEL, &[at, len].map(u32_val));
        self.done(answer)
    }

    fn symbol(&mut self, kernel: i64, name: &str) -> Ended {
        let (at, len) = self.0.put(NAME_AT, name.as_bytes());
        let args = [Val::I64(kernel), u32_val(at), u32_val(len)];
        let answer = self.0.call(abi::FN_SYMBOL, &args);
        self.done(answer)
    }

    fn launch(&mut self, way: Way, kernel: i64, shape: Shape, args: &[Given<'_>]) -> Ended {
        let args: Vec<_> = args
            .iter()
            .map(|&arg| match arg {
                Given::Buffer(handle, offset) => argv::Arg::Buffer { handle, offset },
                Given::Bytes(bytes) => argv::Arg::Bytes(bytes),
                Given::F32(value) => argv::Arg::F32(value),
                Given::F64(value) => argv::Arg::F64(value),
                Given::I32(value) => argv::Arg::I32(value),
                Given::I64(value) => argv::Arg::I64(value),
                Given::U32(value) => argv::Arg::U32(value),
                Given::U64(value) => argv::Arg::U64(value),
            })
            .collect();
        // What is over the caps is encoded record by record, as a guest could do it.
        let argv: Vec<u8> = args.iter().flat_map(|arg| encode(&[*arg])).collect();
        let answer = self.0.launch_as(way, kernel, shape, &argv);
        self.done(answer)
    }

    fn alloc(&mut self, bytes: u64) -> Result<i64, (String, String)> {
        let answer = self.0.call(abi::FN_ALLOC, &[Val::I64(bytes.cast_signed())]);
        self.ended(answer)
    }

    fn write(&mut self, buffer: i64, at: u64, bytes: &[u8]) -> Ended {
        let (ptr, len) = self.0.put(DATA_AT, bytes);
        let args = [
            Val::I64(buffer),
            Val::I64(at.cast_signed()),
            u32_val(ptr),
            u32_val(len),
        ];
        let answer = self.0.call(abi::FN_WRITE, &args);
        self.done(answer)
    }

    fn read(&mut self, buffer: i64, at: u64, len: u32) -> Ended {
        let args = [
            Val::I64(buffer),
            Val::I64(at.cast_signed()),
            u32_val(DATA_AT),
            u32_val(len),
        ];
        let answer = self.0.call(abi::FN_READ, &args);
        self.done(answer)
    }
}

fn failure(error: api::Error) -> (String, String) {
    let code = format!("{:?}", error.code);
    (code.replace("ErrorCode::", ""), error.message)
}

fn number(answer: Answer<u32>) -> Result<i64, (String, String)> {
    answer.map(i64::from).map_err(failure)
}

fn done<T>(answer: Answer<T>) -> Ended {
    answer.map(drop).map_err(failure)
}

fn index(handle: i64) -> u32 {
    u32::try_from(handle).unwrap()
}

impl Side for Rig {
    fn open(&mut self) -> Ended {
        done(Rig::open(self))
    }

    fn load(&mut self, ptx: &[u8], entry: &str) -> Result<i64, (String, String)> {
        number(Rig::load(self, ptx, entry))
    }

    fn find(&mut self, name: &str) -> Ended {
        done(self.find_kernel(name))
    }

    fn symbol(&mut self, kernel: i64, name: &str) -> Ended {
        done(Rig::symbol(self, index(kernel), name))
    }

    fn launch(&mut self, way: Way, kernel: i64, shape: Shape, args: &[Given<'_>]) -> Ended {
        let args: Vec<_> = args
            .iter()
            .map(|&arg| match arg {
                Given::Buffer(buffer, offset) => Arg::Buffer((index(buffer), offset)),
                Given::Bytes(bytes) => Arg::Bytes(bytes.into()),
                Given::F32(value) => Arg::F32(value),
                Given::F64(value) => Arg::F64(value),
                Given::I32(value) => Arg::S32(value),
                Given::I64(value) => Arg::S64(value),
                Given::U32(value) => Arg::U32(value),
                Given::U64(value) => Arg::U64(value),
            })
            .collect();
        let kernel = index(kernel);
        done(match way {
            Way::Cooperative => self.launch_cooperative(kernel, shape, &args),
            Way::Plain | Way::V0_2 => Rig::launch(self, kernel, shape, &args),
        })
    }

    fn alloc(&mut self, bytes: u64) -> Result<i64, (String, String)> {
        number(Rig::alloc(self, bytes))
    }

    fn write(&mut self, buffer: i64, at: u64, bytes: &[u8]) -> Ended {
        done(Rig::write(self, index(buffer), at, bytes))
    }

    fn read(&mut self, buffer: i64, at: u64, len: u32) -> Ended {
        done(Rig::read(self, index(buffer), at, len))
    }
}

const FAULTS: &str = include_str!("../../../fixtures/kernels/faults.ptx");
const COOPERATIVE: &str = include_str!("../../../fixtures/corpus/cuda/coop_grid.sm_80.ptx");
const ONE: Shape = Shape::ONE;

/// What a case does, and the name of the code that it ends with.
type Case = (&'static str, &'static str, fn(&mut dyn Side) -> Ended);

fn loaded(side: &mut dyn Side, ptx: &str, entry: &str) -> i64 {
    side.load(ptx.as_bytes(), entry).unwrap()
}

fn run(side: &mut dyn Side, entry: &str, shape: Shape, args: &[Given<'_>]) -> Ended {
    let kernel = loaded(side, KIT, entry);
    side.launch(Way::Plain, kernel, shape, args)
}

/// With a device, and the limits of [`limited`].
const CASES: &[Case] = &[
    ("a launch", "", |side| run(side, "k_empty", ONE, &[])),
    ("a launch with a buffer", "", |side| {
        let buffer = side.alloc(8)?;
        run(
            side,
            "k_store",
            ONE,
            &[Given::Buffer(buffer, 4), Given::U32(7)],
        )
    }),
    ("each kind of scalar", "", |side| {
        let buffer = side.alloc(64)?;
        let kernel = loaded(side, KIT, "k_echo");
        let args = [
            Given::Buffer(buffer, 0),
            Given::Bytes(&[1]),
            Given::Bytes(&[1, 2]),
            Given::I32(-3),
            Given::I64(-4),
            Given::F32(0.5),
            Given::F64(-0.25),
        ];
        side.launch(Way::Plain, kernel, ONE, &args)
    }),
    ("text that is no PTX", "MalformedPtx", |side| {
        side.load(b"int main() {}", "k").map(drop)
    }),
    ("bytes that are no text", "MalformedPtx", |side| {
        side.load(&[0xff, 0xfe], "k").map(drop)
    }),
    ("no text", "MalformedPtx", |side| {
        side.load(b"", "").map(drop)
    }),
    ("an entry that is not there", "MalformedPtx", |side| {
        side.load(KIT.as_bytes(), "k_none").map(drop)
    }),
    ("a name that is too long", "QuotaExceeded", |side| {
        side.load(KIT.as_bytes(), &"k".repeat(5000)).map(drop)
    }),
    (
        "an instruction that guests cannot have",
        "UnsupportedPtx",
        |side| {
            let ptx = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() {\n bra.frob L; L: ret; }\n";
            side.load(ptx.as_bytes(), "k").map(drop)
        },
    ),
    ("too much PTX", "QuotaExceeded", |side| {
        side.load(&vec![b' '; PTX_BYTES + 1], "k").map(drop)
    }),
    ("too many kernels", "QuotaExceeded", |side| {
        (0..5).try_for_each(|_| side.load(KIT.as_bytes(), "k_empty").map(drop))
    }),
    ("a kernel that nobody registered", "InvalidKernel", |side| {
        side.find("none")
    }),
    (
        "a registered name that is too long",
        "QuotaExceeded",
        |side| side.find(&"n".repeat(5000)),
    ),
    ("a registered kernel", "", |side| side.find("registered")),
    ("a variable", "UnsupportedPtx", |side| {
        let kernel = loaded(side, KIT, "k_count");
        side.symbol(kernel, "counter")
    }),
    ("no blocks", "InvalidDimensions", |side| {
        run(side, "k_empty", Shape::line(0, 1), &[])
    }),
    ("too many threads", "InvalidDimensions", |side| {
        run(side, "k_empty", Shape::line(1, 1025), &[])
    }),
    ("too many threads along z", "InvalidDimensions", |side| {
        run(side, "k_empty", Shape::new([1; 3], [1, 1, 65], 0), &[])
    }),
    ("too much shared memory", "InvalidDimensions", |side| {
        run(side, "k_empty", Shape::new([1; 3], [1; 3], u32::MAX), &[])
    }),
    (
        "a cooperative grid that does not fit",
        "InvalidDimensions",
        |side| {
            let entry = ptx::read(COOPERATIVE.as_bytes()).unwrap().entries()[0]
                .entry
                .clone();
            let kernel = loaded(side, COOPERATIVE, &entry);
            side.launch(Way::Cooperative, kernel, Shape::line(1 << 24, 1024), &[])
        },
    ),
    ("too few arguments", "InvalidArgs", |side| {
        run(side, "k_store", ONE, &[])
    }),
    ("too many arguments", "InvalidArgs", |side| {
        run(side, "k_empty", ONE, &[Given::U32(0)])
    }),
    ("a float for an integer", "InvalidArgs", |side| {
        let buffer = side.alloc(8)?;
        run(
            side,
            "k_store",
            ONE,
            &[Given::Buffer(buffer, 0), Given::F32(1.0)],
        )
    }),
    ("an integer for a pointer", "InvalidArgs", |side| {
        let kernel = loaded(side, KIT, "k_ptrattr");
        side.launch(Way::Plain, kernel, ONE, &[Given::U64(8), Given::U64(8)])
    }),
    ("bytes of the wrong number", "InvalidArgs", |side| {
        let buffer = side.alloc(8)?;
        run(
            side,
            "k_store",
            ONE,
            &[Given::Buffer(buffer, 0), Given::Bytes(&[0; 5])],
        )
    }),
    ("129 arguments", "KernelArgsUnsupported", |side| {
        run(side, "k_empty", ONE, &[Given::U32(0); 129])
    }),
    (
        "more bytes than argv may have",
        "KernelArgsUnsupported",
        |side| {
            run(
                side,
                "k_empty",
                ONE,
                &[Given::Bytes(&[0; 3000]), Given::Bytes(&[0; 3000])],
            )
        },
    ),
    ("a place past a buffer", "InvalidPointer", |side| {
        let buffer = side.alloc(8)?;
        run(
            side,
            "k_store",
            ONE,
            &[Given::Buffer(buffer, 9), Given::U32(7)],
        )
    }),
    ("a buffer of nothing", "InvalidArgs", |side| {
        side.alloc(0).map(drop)
    }),
    ("a buffer over the limit", "QuotaExceeded", |side| {
        side.alloc(BUFFER_BYTES + 1).map(drop)
    }),
    ("buffers over the limit together", "QuotaExceeded", |side| {
        side.alloc(BUFFER_BYTES)?;
        side.alloc(BUFFER_BYTES).map(drop)
    }),
    ("too many buffers", "QuotaExceeded", |side| {
        (0..3).try_for_each(|_| side.alloc(8).map(drop))
    }),
    ("a write past the end", "InvalidArgs", |side| {
        let buffer = side.alloc(8)?;
        side.write(buffer, 5, &[0; 4])
    }),
    ("a write that wraps", "InvalidArgs", |side| {
        let buffer = side.alloc(8)?;
        side.write(buffer, u64::MAX, &[0; 4])
    }),
    ("a write and a read", "", |side| {
        let buffer = side.alloc(8)?;
        side.write(buffer, 4, &[1, 2, 3, 4])?;
        side.read(buffer, 0, 8)
    }),
    ("a read past the end", "InvalidArgs", |side| {
        let buffer = side.alloc(8)?;
        side.read(buffer, 0, 9)
    }),
    ("a trap", "KernelTrap", |side| run(side, "k_trap", ONE, &[])),
    ("a misaligned access", "KernelTrap", |side| {
        let buffer = side.alloc(8)?;
        run(
            side,
            "k_store",
            ONE,
            &[Given::Buffer(buffer, 1), Given::U32(7)],
        )
    }),
    ("a barrier that is never complete", "KernelTrap", |side| {
        let kernel = loaded(side, FAULTS, "barrier_mismatch");
        side.launch(Way::Plain, kernel, Shape::line(1, 64), &[])
    }),
    ("a kernel without an end", "DeadlineExceeded", |side| {
        let kernel = loaded(side, FAULTS, "endless");
        side.launch(Way::Plain, kernel, ONE, &[])
    }),
];

const PTX_BYTES: usize = 256 << 10;
const BUFFER_BYTES: u64 = 3 << 19;

fn limited() -> Setup {
    // As large as a component's, so that kernels find buffers at the same addresses.
    let window_bytes = (BUFFER_BYTES + BUFFER_BYTES / 2).next_power_of_two();
    let setup = Setup {
        limits: Limits {
            kernels: 4,
            ptx_bytes: PTX_BYTES as u64,
            buffers: 2,
            buffer_bytes: BUFFER_BYTES,
            buffer_bytes_total: BUFFER_BYTES + BUFFER_BYTES / 2,
            deadline: Some(Duration::from_millis(100)),
            ..Limits::default()
        },
        // The text that is too long must be in memory.
        pages: pages_for_text(PTX_BYTES + 1),
        memory: LinearMemory::Device { window_bytes },
        ..Setup::default()
    };
    with_registered(setup)
}

/// A kernel that the embedder registered, for an instance of its own.
fn with_registered(setup: Setup) -> Setup {
    let owner = host::InstanceId::random().unwrap();
    let kernel = KernelEntry::stub(owner, "registered", 0);
    setup.registry.register(kernel).unwrap();
    let instance = Some(owner);
    Setup { instance, ..setup }
}

#[test]
fn a_component_is_told_what_a_core_module_is_told() {
    for &(what, code, case) in CASES {
        let core = case(&mut Core(Harness::new(&limited())));
        let component = case(&mut Rig::new(&limited()));
        assert_eq!(core, component, "{what}");
        let blocking = case(&mut Rig::blocking(&limited()));
        assert_eq!(core, blocking, "{what}, by a component that blocks");
        let ended = core.err().map_or(String::new(), |(code, _)| code);
        assert_eq!(ended, code, "{what}");
    }
}

#[test]
fn a_component_without_a_device_or_the_right_to_one_is_told_what_a_core_module_is_told() {
    let off = Setup {
        capability: Capability::Off,
        ..Setup::default()
    };
    for setup in [Setup::no_device(), off] {
        let core = Core(Harness::new(&setup)).open();
        for started in [Rig::try_new, Rig::try_blocking] {
            assert_eq!(core, started(&setup).map(drop).map_err(failure));
        }
        assert_eq!(core.unwrap_err().0, "NotAvailable");
    }
}
