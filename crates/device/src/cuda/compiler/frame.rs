//! What a process says to the one that compiles for it, and what it hears. Numbers are 32 bits, the lowest byte first; each length comes
//! before what it counts and is held to a limit. Whoever reads makes room only for what is there.
//!
//! The child sends [`GREETING`] once. Then, for every request: the device's number, the text's length, the text; and back: [`TAKEN`] before it
//! does anything with the text, and then the step, the driver's code, three lengths, the two logs, the cubin.

use std::io::{self, ErrorKind, Read, Write};

use crate::cuda::jit::LOG_BYTES;

/// What the child says first. It ends with the version of all that follows.
pub(super) const GREETING: [u8; 8] = *b"wcjit\0\0\x01";

/// What it says when it has a text: from then on its end may be the text's doing.
pub(super) const TAKEN: [u8; 4] = *b"took";

/// Bytes of a text. Confined, one of the largest that is read takes less.
pub(super) const MOST_TEXT_BYTES: usize = 256 << 20;
/// Bytes of what is made of it.
pub(super) const MOST_CUBIN_BYTES: usize = 256 << 20;

/// What the child was doing when the driver answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Compile,
    Prepare,
}

/// A text to be compiled for a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) ordinal: u32,
    pub(super) text: Vec<u8>,
}

/// What became of it: a cubin, which may be anything, or the driver's code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) step: Step,
    /// 0 is success.
    pub(super) code: u32,
    pub(super) error_log: Vec<u8>,
    pub(super) info_log: Vec<u8>,
    pub(super) cubin: Vec<u8>,
}

/// A request as it is sent; `None` if the text is over the limit.
pub(super) fn request(ordinal: u32, text: &str) -> Option<Vec<u8>> {
    if text.len() > MOST_TEXT_BYTES {
        return None;
    }
    let mut bytes = Vec::with_capacity(8 + text.len());
    put(&mut bytes, ordinal);
    put(&mut bytes, u32::try_from(text.len()).ok()?);
    bytes.extend_from_slice(text.as_bytes());
    Some(bytes)
}

/// Reads a request; `None` if there is none left.
pub(super) fn read_request(from: &mut impl Read) -> io::Result<Option<Request>> {
    let mut first = [0; 1];
    if from.read(&mut first)? == 0 {
        return Ok(None);
    }
    let mut rest = [0; 3];
    from.read_exact(&mut rest)?;
    let [b, c, d] = rest;
    let ordinal = u32::from_le_bytes([first[0], b, c, d]);
    let len = length(from, "text", MOST_TEXT_BYTES)?;
    let text = bytes(from, len)?;
    Ok(Some(Request { ordinal, text }))
}

impl Answer {
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let step = match self.step {
            Step::Compile => 0,
            Step::Prepare => 1,
        };
        let mut head = Vec::with_capacity(20 + self.error_log.len() + self.info_log.len());
        put(&mut head, step);
        put(&mut head, self.code);
        for part in [&self.error_log, &self.info_log, &self.cubin] {
            let len = u32::try_from(part.len()).map_err(io::Error::other)?;
            put(&mut head, len);
        }
        head.extend_from_slice(&self.error_log);
        head.extend_from_slice(&self.info_log);
        to.write_all(&head)?;
        to.write_all(&self.cubin)?;
        to.flush()
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let step = match number(from)? {
            0 => Step::Compile,
            1 => Step::Prepare,
            other => return Err(nonsense(format!("step {other}"))),
        };
        let code = number(from)?;
        let error_len = length(from, "error log", LOG_BYTES)?;
        let info_len = length(from, "info log", LOG_BYTES)?;
        let cubin_len = length(from, "cubin", MOST_CUBIN_BYTES)?;
        Ok(Self {
            step,
            code,
            error_log: bytes(from, error_len)?,
            info_log: bytes(from, info_len)?,
            cubin: bytes(from, cubin_len)?,
        })
    }
}

/// Reads [`GREETING`] or [`TAKEN`].
pub(super) fn read_word<const LEN: usize>(from: &mut impl Read, word: [u8; LEN]) -> io::Result<()> {
    let mut said = [0; LEN];
    from.read_exact(&mut said)?;
    if said == word {
        Ok(())
    } else {
        Err(nonsense(format!("not `{}`", word.escape_ascii())))
    }
}

fn put(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn number(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn length(from: &mut impl Read, what: &str, limit: usize) -> io::Result<usize> {
    let given = number(from)?;
    match usize::try_from(given) {
        Ok(len) if len <= limit => Ok(len),
        _ => Err(nonsense(format!(
            "a length of {given} bytes for the {what}, the limit is {limit}"
        ))),
    }
}

/// So many bytes. Room is made as they come.
fn bytes(from: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

fn nonsense(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        Answer {
            step: Step::Compile,
            code: 0,
            error_log: b"error".to_vec(),
            info_log: b"info".to_vec(),
            cubin: vec![7; 100],
        }
    }

    fn written(answer: &Answer) -> Vec<u8> {
        let mut bytes = Vec::new();
        answer.write(&mut bytes).unwrap();
        bytes
    }

    fn refused(bytes: &[u8]) -> (ErrorKind, String) {
        let error = Answer::read(&mut &bytes[..]).unwrap_err();
        (error.kind(), error.to_string())
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        for answer in [
            answer(),
            Answer {
                step: Step::Prepare,
                code: u32::MAX,
                error_log: vec![b'x'; LOG_BYTES],
                info_log: Vec::new(),
                cubin: Vec::new(),
            },
        ] {
            let bytes = written(&answer);
            assert_eq!(Answer::read(&mut &bytes[..]).unwrap(), answer);
        }
        let sent = request(3, ".version 8.0").unwrap();
        let mut from = &sent[..];
        let read = read_request(&mut from).unwrap().unwrap();
        assert_eq!((read.ordinal, &read.text[..]), (3, &b".version 8.0"[..]));
        assert!(read_request(&mut from).unwrap().is_none());
    }

    #[test]
    fn an_answer_that_ends_anywhere_is_refused() {
        let bytes = written(&answer());
        for end in 0..bytes.len() {
            assert_eq!(refused(&bytes[..end]).0, ErrorKind::UnexpectedEof, "{end}");
        }
        let sent = request(0, "text").unwrap();
        for end in 1..sent.len() {
            let error = read_request(&mut &sent[..end]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{end}");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_there_is_room_for_it() {
        let limits = [
            ("error log", LOG_BYTES),
            ("info log", LOG_BYTES),
            ("cubin", MOST_CUBIN_BYTES),
        ];
        for (at, (what, limit)) in limits.into_iter().enumerate() {
            for given in [u32::try_from(limit).unwrap() + 1, u32::MAX] {
                let mut bytes = written(&answer());
                bytes[8 + 4 * at..][..4].copy_from_slice(&given.to_le_bytes());
                let (kind, text) = refused(&bytes);
                assert_eq!(kind, ErrorKind::InvalidData);
                assert!(
                    text.contains(what) && text.contains(&given.to_string()),
                    "{text}"
                );
            }
        }
        let mut sent = request(0, "text").unwrap();
        sent[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = read_request(&mut &sent[..]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_length_within_the_limit_makes_no_room_for_what_does_not_come() {
        let mut bytes = written(&answer());
        let most = u32::try_from(MOST_CUBIN_BYTES).unwrap();
        bytes[16..20].copy_from_slice(&most.to_le_bytes());
        assert_eq!(refused(&bytes).0, ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        assert_eq!(refused(&[0xff; 64]).0, ErrorKind::InvalidData);
        assert_eq!(
            refused(b"Segmentation fault\n\n\n").0,
            ErrorKind::InvalidData
        );
        read_word(&mut &GREETING[..], GREETING).unwrap();
        let mut newer = GREETING;
        newer[7] += 1;
        for other in [newer, *b"Hello, w"] {
            let error = read_word(&mut &other[..], GREETING).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
    }
}
