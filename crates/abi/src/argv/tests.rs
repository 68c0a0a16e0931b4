//! What every tag's bytes are, and what is no argv.

use super::*;

fn only_error(bytes: &[u8], dialect: Dialect) -> DecodeError {
    let mut errors = decode(bytes, dialect).filter_map(Result::err);
    let first = errors.next().expect("the bytes are wrong");
    assert_eq!(errors.next(), None);
    first
}

#[test]
fn the_bytes_of_every_tag_are_pinned() {
    let table: [(Arg<'_>, &[u8]); 9] = [
        (Arg::I32(-2), &[0x01, 0xfe, 0xff, 0xff, 0xff]),
        (
            Arg::I64(-2),
            &[0x02, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ),
        (Arg::F32(1.0), &[0x03, 0, 0, 0x80, 0x3f]),
        (Arg::F64(1.0), &[0x04, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]),
        (Arg::U32(0x0102_0304), &[0x05, 4, 3, 2, 1]),
        (
            Arg::U64(0x0102_0304_0506_0708),
            &[0x06, 8, 7, 6, 5, 4, 3, 2, 1],
        ),
        (
            Arg::Ptr {
                offset: 0x0a0b,
                len: 0x0c,
            },
            &[0x07, 0x0b, 0x0a, 0, 0, 0x0c, 0, 0, 0],
        ),
        (
            Arg::Buffer {
                handle: 0x0102,
                offset: 3,
            },
            &[0x08, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        ),
        (Arg::Bytes(&[7, 8, 9]), &[0x09, 3, 0, 7, 8, 9]),
    ];
    let tags = table.map(|(arg, _)| arg.tag());
    assert_eq!(tags, Tag::ALL);
    for (arg, bytes) in table {
        let mut out = [0; 32];
        assert_eq!(encode(&[arg], &mut out), Ok(bytes.len()));
        assert_eq!(&out[..bytes.len()], bytes);
        assert_eq!(arg.encoded_len(), bytes.len());
        let mut decoder = decode(bytes, Dialect::Current);
        assert_eq!(decoder.next(), Some(Ok(arg)));
        assert_eq!(decoder.next(), None);
    }
}

#[test]
fn vadd_is_thirty_two_bytes() {
    let vadd = [
        Arg::Ptr {
            offset: 1024,
            len: 4096,
        },
        Arg::Ptr {
            offset: 5120,
            len: 4096,
        },
        Arg::Ptr {
            offset: 9216,
            len: 4096,
        },
        Arg::U32(1024),
    ];
    let mut out = [0xff; 33];
    assert_eq!(encode(&vadd, &mut out), Ok(32));
    #[rustfmt::skip]
    assert_eq!(out, [
        0x07, 0x00, 0x04, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00,
        0x07, 0x00, 0x14, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00,
        0x07, 0x00, 0x24, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00,
        0x05, 0x00, 0x04, 0x00, 0x00,
        0xff,
    ]);
}

#[test]
fn an_unknown_tag_is_named_with_its_place() {
    for tag in (0..=u8::MAX).filter(|tag| !(0x01..=0x09).contains(tag)) {
        let bytes = [0x05, 0, 0, 0, 0, tag, 0, 0];
        let error = only_error(&bytes, Dialect::Current);
        assert_eq!(error, DecodeError::UnknownTag { offset: 5, tag });
        assert_eq!(error.abi(), AbiError::InvalidArgs);
    }
}

#[test]
fn the_earlier_module_does_not_know_buffers_and_bytes() {
    for tag in [0x08, 0x09] {
        let bytes = [tag; 32];
        let error = only_error(&bytes, Dialect::V0_2);
        assert_eq!(error, DecodeError::UnknownTag { offset: 0, tag });
    }
}

#[test]
fn a_record_cut_short_says_what_it_wanted() {
    let table: [(&[u8], usize, usize); 5] = [
        (&[0x01, 1, 2, 3], 5, 4),
        (&[0x07, 0, 0, 0, 0], 9, 5),
        (&[0x08], 17, 1),
        (&[0x09, 1], 3, 2),
        (&[0x09, 0xff, 0xff, 0], 65_538, 4),
    ];
    for (bytes, wanted, given) in table {
        let error = only_error(bytes, Dialect::Current);
        let offset = 0;
        assert_eq!(
            error,
            DecodeError::Truncated {
                offset,
                wanted,
                given
            }
        );
        assert_eq!(error.abi(), AbiError::InvalidArgs);
    }
}

#[test]
fn the_caps_are_exact_and_come_before_the_tags() {
    let mut records = [0; (MAX_ARGV_RECORDS + 1) * 5];
    records
        .chunks_exact_mut(5)
        .for_each(|record| record[0] = 0x05);
    let fits = &records[..MAX_ARGV_RECORDS * 5];
    assert_eq!(
        decode(fits, Dialect::V0_2).filter(Result::is_ok).count(),
        MAX_ARGV_RECORDS
    );

    let error = only_error(&records, Dialect::V0_2);
    assert_eq!(error, DecodeError::TooMany);
    assert_eq!(error.abi(), AbiError::KernelArgsUnsupported);

    let error = only_error(&[0xff; MAX_ARGV_BYTES + 1], Dialect::Current);
    assert_eq!(
        error,
        DecodeError::TooLong {
            given: MAX_ARGV_BYTES + 1
        }
    );
    assert_eq!(error.abi(), AbiError::KernelArgsUnsupported);
    let error = only_error(&[0xff; MAX_ARGV_BYTES], Dialect::Current);
    assert_eq!(
        error,
        DecodeError::UnknownTag {
            offset: 0,
            tag: 0xff
        }
    );
}

#[test]
fn what_does_not_fit_is_not_written() {
    let mut out = [0xee; 8];
    let args = [Arg::U32(1), Arg::U32(2)];
    assert_eq!(
        encode(&args, &mut out),
        Err(EncodeError::NoRoom {
            needed: 10,
            given: 8
        })
    );
    assert_eq!(out, [0xee; 8]);

    let mut out = [0xee; 8192];
    let many = [Arg::U32(1); MAX_ARGV_RECORDS + 1];
    assert_eq!(
        encode(&many, &mut out),
        Err(EncodeError::TooMany { given: 129 })
    );
    let data = [0; MAX_ARGV_BYTES - 3 + 1];
    assert_eq!(
        encode(&[Arg::Bytes(&data)], &mut out),
        Err(EncodeError::TooLong {
            needed: MAX_ARGV_BYTES + 1
        })
    );
    assert_eq!(out, [0xee; 8192]);
    assert_eq!(
        encode(&[Arg::Bytes(&data[1..])], &mut out),
        Ok(MAX_ARGV_BYTES)
    );
}

#[test]
fn the_bits_of_a_nan_survive() {
    for bits in [0x7f80_0001_u32, 0xffc0_1234, 0x8000_0000] {
        let mut out = [0; 5];
        assert_eq!(encode(&[Arg::F32(f32::from_bits(bits))], &mut out), Ok(5));
        let arg = decode(&out, Dialect::Current).next();
        let Some(Ok(Arg::F32(value))) = arg else {
            panic!("{arg:?} is not an f32");
        };
        assert_eq!(value.to_bits(), bits);
    }
    assert_ne!(Arg::F64(0.0), Arg::F64(-0.0));
}
