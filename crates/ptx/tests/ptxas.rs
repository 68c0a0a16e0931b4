//! Every file of the corpus and of `filetests/parse`, printed from its tree, through NVIDIA's assembler: accepted, and the same
//! machine code as of the file itself. Where there is no assembler (`.ci/install-ptxas.sh` gets one),
//! each test is reported as ignored.

mod fixtures;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use wasi_cuda_ptx as ptx;

/// Names another assembler than the one that `.ci/install-ptxas.sh` installs.
const PTXAS_VARIABLE: &str = "WASI_CUDA_PTXAS";

fn main() -> ExitCode {
    let assembler = assembler();
    let is_absent = assembler.is_none();
    let assembler = assembler.unwrap_or_default();
    let trials = files().into_iter().map(|(path, source)| {
        let name = format!("printed {} is the same program", fixtures::name(&path));
        let assembler = assembler.clone();
        Trial::test(name, move || compare(&assembler, &path, &source))
            .with_kind("ptxas")
            .with_ignored_flag(is_absent)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// The corpus and the texts in `filetests/parse`.
fn files() -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = fixtures::corpus();
    files.extend(fixtures::parse_filetests());
    files.retain(|(path, _)| fixtures::name(path) != UNKNOWN_INSTRUCTIONS);
    files
}

fn assembler() -> Option<PathBuf> {
    let installed = fixtures::repository("target/ptxas/nvidia/cu13/bin/ptxas");
    env::var_os(PTXAS_VARIABLE)
        .map(PathBuf::from)
        .or_else(|| installed.exists().then_some(installed))
}

/// The file that no assembler takes.
const UNKNOWN_INSTRUCTIONS: &str = "parse/unknown_instructions.ptx";

/// Files whose machine code holds line numbers.
const WITH_LINES: [&str; 5] = [
    "triton/add.sm_80.ptx",
    "parse/constant_in_function.ptx",
    "parse/nvcc_debug.ptx",
    "parse/nvcc_lineinfo.ptx",
    "parse/skipped.ptx",
];

/// Files that call functions which are not linked.
const UNLINKED: [&str; 3] = ["cuda/cdp.sm_90.ptx", "parse/linkage.ptx", "parse/calls.ptx"];

/// Assembles a file and what is printed for it: the machine code must be the same.
fn compare(assembler: &Path, path: &Path, source: &[u8]) -> Result<(), Failed> {
    let name = fixtures::name(path);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("printed")
        .join(&name);
    fs::create_dir_all(&folder)?;
    let printed = folder.join("printed.ptx");
    fs::write(&printed, ptx::print(&ptx::parse(source)?))?;

    let of_printed = assemble(assembler, &name, &printed, &folder.join("printed.cubin"))?;
    if !WITH_LINES.contains(&name.as_str()) {
        let original = folder.join("original.ptx");
        fs::write(&original, without_pragmas(str::from_utf8(source)?))?;
        let of_original = assemble(assembler, &name, &original, &folder.join("original.cubin"))?;
        if of_original != of_printed {
            return Err(format!("{} means something else", printed.display()).into());
        }
    }
    Ok(())
}

/// A text without advice to the optimiser, which is not in the tree either.
fn without_pragmas(source: &str) -> String {
    let lines = source
        .lines()
        .filter(|line| !line.trim_start().starts_with(".pragma"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Assembles a text for the target in the name of its file.
fn assemble(assembler: &Path, name: &str, text: &Path, object: &Path) -> Result<Vec<u8>, Failed> {
    // A file of the corpus is `kernels.sm_80.ptx`, the others are for sm_90.
    let target = name
        .split('.')
        .find(|part| part.starts_with("sm_"))
        .unwrap_or("sm_90");
    let mut command = Command::new(assembler);
    command
        .arg(format!("-arch={target}"))
        .arg("-o")
        .arg(object)
        .arg(text);
    if UNLINKED.contains(&name) {
        command.arg("-c");
    }
    let output = command.output()?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{}\n{messages}", text.display()).into());
    }
    Ok(fs::read(object)?)
}
