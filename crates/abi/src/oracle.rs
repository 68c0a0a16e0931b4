//! What must hold for any argv bytes, as functions that panic when it does not. The fuzz target
//! and the tests call them; a host or a guest has no use for them.

use crate::argv::{Arg, Dialect, decode, encode};
use crate::limits::{MAX_ARGV_BYTES, MAX_ARGV_RECORDS};

/// Decodes `bytes` in both dialects.
///
/// # Panics
///
/// When decoding gives more than one error, goes on after it, or gives records that do not encode
/// to the bytes that they were read from.
pub fn check_decode(bytes: &[u8]) {
    for dialect in [Dialect::Current, Dialect::V0_2] {
        check_dialect(bytes, dialect);
    }
}

fn check_dialect(bytes: &[u8], dialect: Dialect) {
    let mut args = [Arg::U32(0); MAX_ARGV_RECORDS];
    let mut count = 0;
    let mut error = None;
    let mut decoder = decode(bytes, dialect);
    for record in decoder.by_ref() {
        assert_eq!(error, None, "a record after the error");
        match record {
            Ok(arg) => {
                args[count] = arg;
                count += 1;
            }
            Err(why) => error = Some(why),
        }
    }
    assert!(decoder.next().is_none(), "the iterator began again");

    let read = decoder.offset();
    match error {
        None => assert_eq!(read, bytes.len(), "bytes were left unread"),
        Some(_) => assert!(read < bytes.len(), "an error without a byte to blame"),
    }
    let mut again = [0; MAX_ARGV_BYTES];
    let len = encode(&args[..count], &mut again);
    assert_eq!(
        len,
        Ok(read),
        "records do not have the length that was read"
    );
    assert_eq!(&again[..read], &bytes[..read], "records encode differently");
}
