//! The binary, its files and how it ended, for the tests of this folder. No test belongs here.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");

/// A file below `fixtures`.
pub(crate) fn fixture(path: &str) -> String {
    format!("{FIXTURES}/{path}")
}

/// A file of this test's own.
pub(crate) fn file(name: &str, contents: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, contents).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A command of the binary, without a stdin that could keep a guest waiting.
pub(crate) fn wasi_cuda(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wasi-cuda"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        let Self { stdout, stderr, .. } = &self;
        assert_eq!(self.code, Some(code), "stdout: {stdout}\nstderr: {stderr}");
        self
    }

    #[track_caller]
    pub(crate) fn saying(self, text: &str) -> Self {
        assert!(
            self.stderr.contains(text),
            "no `{text}` in: {}",
            self.stderr
        );
        self
    }

    #[track_caller]
    pub(crate) fn printing(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text),
            "no `{text}` in: {}",
            self.stdout
        );
        self
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub(crate) fn run(arguments: &[&str]) -> Ended {
    wasi_cuda(arguments).output().unwrap().into()
}
