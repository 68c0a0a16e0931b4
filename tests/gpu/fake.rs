//! The driver of `fake_libcuda.c`: built by the C compiler of the machine, found by a child process before any other, and
//! read from by the log of its calls. What it is told to do is in the cases.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

const SOURCE: &str = include_str!("fake_libcuda.c");
const SCRIPT: &str = "FAKE_CUDA";
const LOG: &str = "FAKE_CUDA_LOG";

/// A driver library for a child process.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    /// What calls answer: see `fake_libcuda.c`.
    pub(crate) script: &'static str,
    /// Functions that it does not have.
    pub(crate) absent: &'static [&'static str],
    pub(crate) form: Form,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Form {
    Driver,
    /// A file that is no library.
    Text,
}

impl Library {
    pub(crate) const ORDINARY: Self = Self {
        script: "",
        absent: &[],
        form: Form::Driver,
    };

    /// Has `process` find this library.
    pub(crate) fn prepare(&self, process: &mut Command) -> Result<(), String> {
        static LOGS: AtomicU32 = AtomicU32::new(0);

        let folder = self.folder()?;
        let number = LOGS.fetch_add(1, Ordering::Relaxed);
        let mut path = folder.clone().into_os_string();
        if let Some(before) = env::var_os("LD_LIBRARY_PATH") {
            path.push(":");
            path.push(before);
        }
        process
            .env("LD_LIBRARY_PATH", path)
            .env(SCRIPT, self.script)
            .env(LOG, folder.join(format!("log-{number}")));
        Ok(())
    }

    /// The folder with this library; builds it where it is not there yet.
    fn folder(&self) -> Result<PathBuf, String> {
        static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());

        let key = match self.form {
            Form::Driver => self.absent.join(" "),
            Form::Text => "text".into(),
        };
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = built.get(&key) {
            return Ok(folder.clone());
        }
        let folder = root().join(built.len().to_string());
        self.build(&folder)?;
        built.insert(key, folder.clone());
        Ok(folder)
    }

    fn build(&self, folder: &Path) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        fs::create_dir_all(folder).map_err(text)?;
        let library = folder.join("libcuda.so.1");
        if self.form == Form::Text {
            return fs::write(library, "no library\n".repeat(100)).map_err(text);
        }
        let source = folder.join("fake_libcuda.c");
        fs::write(&source, SOURCE).map_err(text)?;
        let mut compiler = Command::new("cc");
        compiler.args([
            "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o",
        ]);
        compiler.arg(library).arg(source);
        // Under another name, a function is not found under its own.
        compiler.args(
            self.absent
                .iter()
                .map(|name| format!("-D{name}=absent_{name}")),
        );
        let ended = compiler.output().map_err(text)?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        if ended.status.success() {
            Ok(())
        } else {
            Err(said)
        }
    }
}

/// What this process builds goes there.
fn root() -> PathBuf {
    env::temp_dir().join(format!("wasi-cuda-fake-driver-{}", std::process::id()))
}

/// Takes away what was built.
pub(crate) fn remove_built() {
    // Nothing is there if nothing was built.
    fs::remove_dir_all(root()).unwrap_or_default();
}

/// Whether there is a C compiler.
pub(crate) fn compiler() -> Result<(), String> {
    match Command::new("cc").arg("--version").output() {
        Ok(ended) if ended.status.success() => Ok(()),
        Ok(ended) => Err(format!("cc: {}", ended.status)),
        Err(error) => Err(format!("cc: {error}")),
    }
}

/// In a child process: the calls of the driver so far, each with its numbers.
pub(crate) fn calls() -> Vec<String> {
    let log = env::var_os(LOG).expect("a process with a fake driver");
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// How many calls of a function there were.
pub(crate) fn calls_of(function: &str) -> usize {
    let is_it = |call: &&String| call.split(' ').next() == Some(function);
    calls().iter().filter(is_it).count()
}
