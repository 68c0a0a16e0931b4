//! Properties of the argv format over arbitrary arguments and arbitrary bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use wasi_cuda_abi::argv::{Arg, Dialect, EncodeError, decode, encode};
use wasi_cuda_abi::oracle::check_decode;
use wasi_cuda_abi::{MAX_ARGV_BYTES, MAX_ARGV_RECORDS};

/// An argument with data of its own.
#[derive(Clone, Debug)]
enum Owned {
    Plain(Arg<'static>),
    Bytes(Vec<u8>),
}

impl Owned {
    fn arg(&self) -> Arg<'_> {
        match self {
            Owned::Plain(arg) => *arg,
            Owned::Bytes(data) => Arg::Bytes(data),
        }
    }
}

fn argument() -> impl Strategy<Value = Owned> {
    prop_oneof![
        any::<i32>().prop_map(|v| Owned::Plain(Arg::I32(v))),
        any::<i64>().prop_map(|v| Owned::Plain(Arg::I64(v))),
        any::<u32>().prop_map(|v| Owned::Plain(Arg::F32(f32::from_bits(v)))),
        any::<u64>().prop_map(|v| Owned::Plain(Arg::F64(f64::from_bits(v)))),
        any::<u32>().prop_map(|v| Owned::Plain(Arg::U32(v))),
        any::<u64>().prop_map(|v| Owned::Plain(Arg::U64(v))),
        any::<(u32, u32)>().prop_map(|(offset, len)| Owned::Plain(Arg::Ptr { offset, len })),
        any::<(i64, u64)>()
            .prop_map(|(handle, offset)| Owned::Plain(Arg::Buffer { handle, offset })),
        vec(any::<u8>(), 0..80).prop_map(Owned::Bytes),
    ]
}

/// Bytes that look like records more often than noise does.
fn record_like_bytes() -> impl Strategy<Value = Vec<u8>> {
    let record = (0_u8..=0x0a, vec(any::<u8>(), 0..17)).prop_map(|(tag, value)| {
        let mut record = vec![tag];
        record.extend(value);
        record
    });
    vec(record, 0..200).prop_map(|records| records.concat())
}

proptest! {
    #[test]
    fn decoding_gives_what_was_encoded(owned in vec(argument(), 0..150)) {
        let args: Vec<Arg<'_>> = owned.iter().map(Owned::arg).collect();
        let wanted: usize = args.iter().map(Arg::encoded_len).sum();
        let mut bytes = [0; MAX_ARGV_BYTES];
        match encode(&args, &mut bytes) {
            Ok(len) => {
                prop_assert_eq!(len, wanted);
                let decoded: Result<Vec<Arg<'_>>, _> =
                    decode(&bytes[..len], Dialect::Current).collect();
                prop_assert_eq!(decoded.as_deref(), Ok(&args[..]));
            }
            Err(EncodeError::TooMany { given }) => {
                prop_assert_eq!(given, args.len());
                prop_assert!(given > MAX_ARGV_RECORDS);
            }
            Err(error) => {
                prop_assert_eq!(error, EncodeError::TooLong { needed: wanted });
                prop_assert!(wanted > MAX_ARGV_BYTES);
            }
        }
    }

    #[test]
    fn any_bytes_are_records_or_one_error(bytes in vec(any::<u8>(), 0..5000)) {
        check_decode(&bytes);
    }

    #[test]
    fn bytes_like_records_are_records_or_one_error(bytes in record_like_bytes()) {
        check_decode(&bytes);
    }
}
