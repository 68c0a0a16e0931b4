//! What the driver's compiler is given besides the text, and what it says: option arrays with log buffers, and logs as errors.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr::without_provenance_mut;

use cust::sys::CUjit_option;

use super::error::{Failure, code};
use crate::error::Error;

/// Bytes of each log; the compiler cuts what is longer.
pub(super) const LOG_BYTES: usize = 8 << 10;
/// Bytes of a log in an error.
const SHOWN_BYTES: usize = 2 << 10;

/// What is done where a text is compiled, for errors.
pub(super) const LOADING: &str = "loading a module";

/// Options given: two buffers and their sizes.
pub(super) const OPTIONS: c_uint = 4;

/// Buffers for what the compiler says.
#[derive(Debug)]
pub(super) struct Logs {
    error: Box<[u8; LOG_BYTES]>,
    info: Box<[u8; LOG_BYTES]>,
}

impl Logs {
    pub(super) fn new() -> Self {
        Self {
            error: Box::new([0; LOG_BYTES]),
            info: Box::new([0; LOG_BYTES]),
        }
    }

    /// Options that have the compiler write here. Each key has a value: a buffer, or its size as a number.
    pub(super) fn options(&mut self) -> Options<'_> {
        Options {
            keys: [
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
                CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                CUjit_option::CU_JIT_INFO_LOG_BUFFER,
            ],
            values: [
                without_provenance_mut(LOG_BYTES),
                self.error.as_mut_ptr().cast(),
                without_provenance_mut(LOG_BYTES),
                self.info.as_mut_ptr().cast(),
            ],
            logs: std::marker::PhantomData,
        }
    }

    /// What the compiler objected to, as [`shown`].
    pub(super) fn error(&self) -> String {
        shown(&self.error[..])
    }

    /// What it remarked, as [`shown`].
    pub(super) fn info(&self) -> String {
        shown(&self.info[..])
    }

    /// What it objected to and what it remarked, as it wrote that.
    pub(super) fn written(&self) -> [&[u8]; 2] {
        [written(&self.error[..]), written(&self.info[..])]
    }
}

fn written(log: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(log).map_or(log, CStr::to_bytes)
}

/// The two arrays, [`OPTIONS`] long, of `cuModuleLoadDataEx`. The buffers in them are borrowed as long as it lives.
#[derive(Debug)]
pub(super) struct Options<'a> {
    keys: [CUjit_option; OPTIONS as usize],
    values: [*mut c_void; OPTIONS as usize],
    logs: std::marker::PhantomData<&'a mut Logs>,
}

impl Options<'_> {
    pub(super) fn keys(&mut self) -> *mut CUjit_option {
        self.keys.as_mut_ptr()
    }

    pub(super) fn values(&mut self) -> *mut *mut c_void {
        self.values.as_mut_ptr()
    }
}

/// A log, one line of it after the other, cut to what a caller can bear.
pub(super) fn shown(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(written(log));
    let lines: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let mut text = lines.join("; ");
    if text.len() > SHOWN_BYTES {
        text.truncate(text.floor_char_boundary(SHOWN_BYTES));
        text.push('…');
    }
    text
}

/// The line of the text that a log names first; 1 if it names none.
fn line(log: &str) -> u32 {
    let number = |rest: &str| {
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    log.split("line ").skip(1).find_map(number).unwrap_or(1)
}

/// A log of the compiler about a confined text, with the lines of the guest's text in place of those that were made from them.
pub(super) fn in_guest_lines(log: &str, lines: &[u32]) -> String {
    const MARK: &str = "line ";
    let mut parts = log.split(MARK);
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        told += MARK;
        let digits = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        let (number, rest) = part.split_at(digits);
        let guest = number
            .parse::<usize>()
            .ok()
            .and_then(|line| lines.get(line.checked_sub(1)?));
        match guest {
            Some(&line) if line > 0 => told += &format!("{line}{rest}"),
            Some(_) => told += &format!("{number} of the confined text{rest}"),
            None => told += part,
        }
    }
    told
}

/// Why the driver did not take a text: what its compiler says where that is known, else `None`.
pub(super) fn refusal(failure: Failure, log: &str) -> Option<Error> {
    let said = if log.is_empty() {
        failure.text()
    } else {
        log.to_owned()
    };
    match failure.code {
        code::INVALID_PTX => Some(Error::Compile { log: said }),
        code::NO_BINARY_FOR_GPU | code::UNSUPPORTED_PTX_VERSION => Some(Error::Unsupported {
            device: "cuda",
            line: line(log),
            what: format!("the PTX version or target (the driver says: {said})"),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &[u8]) -> Logs {
        let mut logs = Logs::new();
        logs.error[..text.len()].copy_from_slice(text);
        logs
    }

    #[test]
    fn every_option_has_its_value_and_every_buffer_its_size() {
        use CUjit_option as O;
        let mut logs = Logs::new();
        let buffers = [logs.error.as_ptr().addr(), logs.info.as_ptr().addr()];
        let options = logs.options();
        let pairs: Vec<_> = options
            .keys
            .iter()
            .copied()
            .zip(options.values.map(|value| value.addr()))
            .collect();
        let want = [
            (O::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, LOG_BYTES),
            (O::CU_JIT_ERROR_LOG_BUFFER, buffers[0]),
            (O::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, LOG_BYTES),
            (O::CU_JIT_INFO_LOG_BUFFER, buffers[1]),
        ];
        assert_eq!(pairs, want);
    }

    #[test]
    fn lines_of_a_confined_text_become_those_that_they_were_made_from() {
        let told = |log| in_guest_lines(log, &[0, 7, 7, 12]);
        assert_eq!(
            told("ptxas, line 4; error: x; line 2, y"),
            "ptxas, line 12; error: x; line 7, y"
        );
        assert_eq!(told("line 1; error"), "line 1 of the confined text; error");
        for kept in [
            "",
            "no number of a line",
            "line 0",
            "line 5: past the end",
            "line 99999999999999999999",
        ] {
            assert_eq!(told(kept), kept);
        }
    }

    #[test]
    fn a_log_is_shown_on_one_line() {
        let logs = log(b"ptxas application ptx input, line 4; error   : Not a name\n\n  ptxas fatal   : aborted\n\0rest");
        let want =
            "ptxas application ptx input, line 4; error   : Not a name; ptxas fatal   : aborted";
        assert_eq!(logs.error(), want);
        assert_eq!(logs.info(), "");
    }

    #[test]
    fn a_long_log_without_an_end_is_cut_at_a_character() {
        let mut logs = Logs::new();
        for pair in logs.error.chunks_exact_mut(2) {
            pair.copy_from_slice("ä".as_bytes());
        }
        let text = logs.error();
        assert!(text.ends_with("ä…"), "{text}");
        assert!(text.len() <= SHOWN_BYTES + "…".len());
    }

    #[test]
    fn bad_ptx_is_an_error_of_the_compiler_with_its_words() {
        let failure = Failure {
            what: "loading a module",
            code: 218,
        };
        let words = "ptxas application ptx input, line 4; error   : Not a name of any known instruction: 'bogus'";
        let want = Error::Compile { log: words.into() };
        assert_eq!(refusal(failure, words), Some(want));
    }

    #[test]
    fn a_version_that_the_driver_does_not_know_is_unsupported_and_says_where() {
        let failure = Failure {
            what: "loading a module",
            code: 222,
        };
        match refusal(
            failure,
            "ptxas input, line 3; fatal : Unsupported .version 99.0",
        ) {
            Some(Error::Unsupported { line: 3, what, .. }) => {
                assert!(what.contains(".version 99.0"), "{what}")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_log_the_code_speaks() {
        for code in [209, 218, 222] {
            let text = refusal(
                Failure {
                    what: "loading a module",
                    code,
                },
                "",
            )
            .unwrap()
            .to_string();
            assert!(text.contains(&code.to_string()), "{text}");
        }
        assert_eq!(
            refusal(
                Failure {
                    what: "loading a module",
                    code: 2
                },
                "log"
            ),
            None
        );
    }

    #[test]
    fn the_first_line_number_of_a_log_counts() {
        for (log, want) in [
            ("line 12; x line 4", 12),
            ("on line; line 7", 7),
            ("", 1),
            ("line 99999999999", 1),
        ] {
            assert_eq!(line(log), want, "{log}");
        }
    }
}
