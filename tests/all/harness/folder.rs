//! A folder for a test's files. What is in it is the test's.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of a test's own, gone after it.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), FOLDERS.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("wasi-cuda-guests-{process}-{number}"));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is in the folder for temporary files.
        fs::remove_dir_all(&self.0).ok();
    }
}
