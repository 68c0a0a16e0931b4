//! Random calls: any import with any integers gives a value or a known code, and the host goes on.

use std::time::Duration;

use abi::argv::Arg;
use abi::{AbiError, Import, ValType};
use host::Limits;
use wasmtime::Val;

use crate::harness::{
    ARGV_AT, DATA_AT, Harness, INFO_AT, KIT, NAME_AT, PTX_AT, Setup, assert_all_usable, encode,
    host_panics,
};

/// Numbers that look random and are the same in each run (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    /// An index below `len`.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

/// Calls per run.
const CALLS: u32 = 20_000;

/// What a call has been seen to answer, for later calls to use.
struct Seen {
    kernels: Vec<i64>,
    buffers: Vec<i64>,
    argv_len: u32,
    end: u32,
}

impl Seen {
    fn i32(&self, random: &mut Random) -> i32 {
        let edges = [
            0,
            1,
            2,
            7,
            64,
            255,
            256,
            257,
            1024,
            4096,
            4097,
            NAME_AT,
            INFO_AT,
            ARGV_AT,
            DATA_AT,
            PTX_AT,
            self.end - 1,
            self.end,
            self.end + 1,
            1 << 31,
            (1 << 31) - 1,
            u32::MAX - 1,
            u32::MAX,
        ];
        let number = match random.below(10) {
            0 => u32::try_from(random.next() >> 32).unwrap(),
            1 => u32::try_from(random.below(self.end.into())).unwrap(),
            2 | 3 => u32::try_from(KIT.len()).unwrap(),
            4 | 5 => 1,
            _ => random.pick(&edges),
        };
        number.cast_signed()
    }

    fn i64(&self, parameter: &str, random: &mut Random) -> i64 {
        let edges = [
            0,
            1,
            -1,
            i64::MIN,
            i64::MAX,
            64,
            4096,
            1 << 32,
            (1 << 32) - 1,
            -(1 << 32),
        ];
        let (same, other) = match parameter {
            "kernel" => (&self.kernels, &self.buffers),
            _ => (&self.buffers, &self.kernels),
        };
        match random.below(8) {
            0 => random.next().cast_signed(),
            1 => random.pick(&edges),
            2 => random.pick(other),
            3 => random.pick(same),
            // Most of those seen long ago have been given back.
            _ => random.pick(&same[same.len().saturating_sub(4)..]),
        }
    }

    /// A kernel was given back; what is left are mostly kernels that can be launched.
    fn forget(&mut self, kernel: &Val) {
        self.kernels
            .retain(|seen| kernel.i64() != Some(*seen) || *seen == 1);
    }

    fn args(&self, import: &Import, random: &mut Random) -> Vec<Val> {
        let value = |(ty, name): (&ValType, &&str)| match ty {
            ValType::I32 => Val::I32(self.i32(random)),
            ValType::I64 => Val::I64(self.i64(name, random)),
        };
        let mut args: Vec<_> = import
            .params
            .iter()
            .zip(import.param_names)
            .map(value)
            .collect();
        // Half of the launches and loads are nearly correct, so that some get past the first checks.
        if random.below(2) == 0 {
            if import.name == abi::FN_LOAD_PTX {
                let len = u32::try_from(KIT.len()).unwrap();
                let correct =
                    [PTX_AT, len, NAME_AT, 7].map(|number| Val::I32(number.cast_signed()));
                args.clone_from_slice(&correct);
            } else if import.params.len() == 10 {
                args[1..8].fill(Val::I32(1));
                args[8] = Val::I32(ARGV_AT.cast_signed());
                args[9] = Val::I32(
                    random
                        .pick(&[self.argv_len, self.argv_len, 9, 0])
                        .cast_signed(),
                );
            }
        }
        args
    }
}

/// Puts something in memory that calls can make use of; gives the length of argv.
fn furnish(guest: &mut Harness, random: &mut Random, buffer: i64) -> u32 {
    let mut text = KIT.as_bytes().to_vec();
    let mut argv = match random.below(2) {
        0 => encode(&[
            Arg::Ptr {
                offset: DATA_AT,
                len: 4,
            },
            Arg::U32(1),
        ]),
        _ => encode(&[
            Arg::Buffer {
                handle: buffer,
                offset: 0,
            },
            Arg::U32(1),
        ]),
    };
    for bytes in [&mut text, &mut argv] {
        if random.below(3) == 0 {
            let at = random.index(bytes.len());
            bytes[at] = random.byte();
        }
    }
    guest.write_memory(PTX_AT, &text);
    let entries = [
        b"k_store", b"k_store", b"k_store", b"k_empty", b"k_const", b"k_count",
    ];
    guest.write_memory(NAME_AT, &random.pick(&entries)[..]);
    guest.put(ARGV_AT, &argv).1
}

/// Texts name the number of blocks, and the handles of buffers, whichever bytes of argv they are made of.
fn know_launch(guest: &mut Harness, args: &[Val]) {
    let &[
        Val::I64(_),
        Val::I32(x),
        Val::I32(y),
        Val::I32(z),
        ..,
        Val::I32(at),
        Val::I32(len),
    ] = args
    else {
        return;
    };
    let axes = [x, y, z].map(|axis| u64::from(axis.cast_unsigned()));
    guest.knows(&[axes.into_iter().fold(1, u64::wrapping_mul)]);
    let (at, len) = (at.cast_unsigned(), len.cast_unsigned());
    if len <= 4096
        && at
            .checked_add(len)
            .is_some_and(|end| end <= guest.memory_bytes())
    {
        for bytes in guest.read_memory(at, len as usize).windows(8) {
            let number = i64::from_le_bytes(*bytes.first_chunk().unwrap());
            guest.knows(&[number.cast_unsigned(), number.unsigned_abs()]);
        }
    }
}

#[test]
fn any_call_gives_a_value_or_a_known_code() {
    let limits = Limits {
        blocks: 64,
        deadline: Some(Duration::from_millis(20)),
        buffer_bytes_total: 1 << 20,
        ..Limits::default()
    };
    let mut guest = Harness::new(&Setup {
        limits,
        ..Setup::default()
    });
    let mut random = Random::new(0x5EED_CA11);
    let mut seen = Seen {
        kernels: vec![1],
        buffers: vec![1],
        argv_len: 0,
        end: guest.memory_bytes(),
    };
    let mut successes = 0;
    for call in 0..CALLS {
        if call % 16 == 0 {
            let buffer = *seen.buffers.last().unwrap();
            seen.argv_len = furnish(&mut guest, &mut random, buffer);
        }
        let import = &abi::IMPORTS[random.index(abi::IMPORTS.len())];
        let args = seen.args(import, &mut random);
        know_launch(&mut guest, &args);
        let answer = guest.call_in(import.module, import.name, &args);
        let error = i32::try_from(answer).ok().and_then(AbiError::from_code);
        match error {
            None => {
                assert!(
                    answer >= 0,
                    "call {call}: {}{args:?} answered {answer}",
                    import.name
                );
                successes += 1;
                match import.name {
                    abi::FN_LOAD_PTX => seen.kernels.push(answer),
                    abi::FN_ALLOC => seen.buffers.push(answer),
                    abi::FN_UNLOAD => seen.forget(&args[0]),
                    _ => {}
                }
            }
            Some(error) => {
                assert_ne!(
                    error,
                    AbiError::Internal,
                    "call {call}: {}{args:?}",
                    import.name
                );
                // Texts about names and PTX repeat what the guest wrote, and that can be any number.
                let text = match import.name {
                    abi::FN_FIND_KERNEL | abi::FN_LOAD_PTX => guest.cuda().last_error(),
                    _ => guest.last_text(),
                };
                assert_ne!(text, "", "call {call}: {}{args:?}", import.name);
            }
        }
    }
    assert!(
        successes > CALLS / 10,
        "{successes} calls succeeded: most of the host was not reached"
    );
    let launches = guest.cuda().metrics().launches;
    assert!(launches > 50, "{launches} launches");
    assert_eq!(host_panics(), 0);
    assert_all_usable(&mut guest);
}
