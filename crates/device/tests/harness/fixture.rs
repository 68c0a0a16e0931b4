//! PTX from `fixtures/`, and lines in it.

use std::path::{Path, PathBuf};

/// A file of `fixtures/`, which lies elsewhere where `WASI_CUDA_FIXTURES` says so: a test binary can be taken to a
/// machine that has no checkout.
fn fixture(path: &str) -> PathBuf {
    let checkout = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    std::env::var_os("WASI_CUDA_FIXTURES")
        .map_or_else(checkout, PathBuf::from)
        .join(path)
}

fn read(path: &str) -> String {
    let path = fixture(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file that a compiler emitted, by its folder and name: `cuda/vecadd.sm_75`.
pub(crate) fn corpus(name: &str) -> String {
    read(&format!("corpus/{name}.ptx"))
}

/// The names of the PTX files in some folders, without what `root` they are in.
fn names(root: &str, folders: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for folder in folders {
        let path = fixture(root).join(folder);
        let files = path
            .read_dir()
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for file in files {
            let file = file.expect("a file of a folder").file_name();
            let name = file.to_str().expect("a name of ASCII");
            if let Some(name) = name.strip_suffix(".ptx") {
                names.push(
                    format!("{folder}/{name}")
                        .trim_start_matches('/')
                        .to_owned(),
                );
            }
        }
    }
    names.sort_unstable();
    names
}

/// The names, as [`corpus`] takes them, of all files that compilers emitted.
pub(crate) fn corpus_names() -> Vec<String> {
    names("corpus", &["clang", "cuda", "rust", "triton"])
}

/// The names, as [`kernels`] takes them, of all files of kernels for the tests.
pub(crate) fn kernels_names() -> Vec<String> {
    names("kernels", &["", "nvcc"])
}

/// A file of kernels written for the tests.
pub(crate) fn kernels(name: &str) -> String {
    read(&format!("kernels/{name}.ptx"))
}

/// The number, from 1, of the line that holds `instruction`, at or after the line that holds `entry`.
pub(crate) fn line_of(text: &str, entry: &str, instruction: &str) -> u32 {
    let declaration = format!(" {entry}(");
    let found = (1..)
        .zip(text.lines())
        .skip_while(|(_, line)| !line.contains(&declaration))
        .find(|(_, line)| line.contains(instruction));
    found
        .unwrap_or_else(|| panic!("`{instruction}` is not in `{entry}`"))
        .0
}
