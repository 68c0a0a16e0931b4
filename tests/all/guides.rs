//! What the guides for guest authors tell their readers: commands run, programs compile and print what is said, and what is said
//! to be refused is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use abi::AbiError;
use abi::argv::Arg;

use host::Isolation;

use crate::harness::{DATA_AT, Folder, Harness, Program, Setup, Shape, name, run_program};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const GUEST_AUTHORS: &str = include_str!("../../docs/guide/guest-authors.md");
const FROM_CUDA_C: &str = include_str!("../../docs/guide/from-cuda-c.md");
const EXAMPLES: &str = include_str!("../../fixtures/guests/README.md");
const COMPONENTS: &str = include_str!("../../fixtures/components/README.md");
const SAXPY: &str = include_str!("../../fixtures/corpus/cuda/saxpy.sm_80.ptx");

/// The contents of the fenced blocks of one language, in their order.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let after = page.split(fence.as_str()).skip(1);
    after
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// A folder that looks like a clone of the project to commands that are typed there.
fn clone() -> Folder {
    let folder = Folder::new();
    for part in ["crates", "fixtures", "README.md", "LICENSE-MIT.md"] {
        let target = Path::new(ROOT).canonicalize().unwrap().join(part);
        match target.is_dir() {
            true => symlink(target, folder.path().join(part)).unwrap(),
            false => folder.write(part, &fs::read(target).unwrap()),
        }
    }
    folder
}

/// Does what a line of a guide says, and gives what it printed.
fn follow(line: &str, folder: &Folder) -> String {
    let Some(run) = line.strip_prefix("wasi-cuda run ") else {
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        return String::from_utf8(output.stdout).unwrap();
    };
    let (run, dir) = match run.strip_prefix("--dir . ") {
        Some(rest) => (rest, Some(folder.path())),
        None => (run, None),
    };
    let (run, stdin) = match run.split_once(" <") {
        Some((run, file)) => (run, fs::read_to_string(folder.path().join(file)).unwrap()),
        None => (run, String::new()),
    };
    let words: Vec<&str> = run.split(' ').collect();
    let (guest, args) = words.split_first().unwrap();
    let code = fs::read(folder.path().join(guest)).unwrap();
    let program = Program {
        stdin: &stdin,
        folder: dir,
        ..Program::new(&code, args)
    };
    run_program(&Setup::default(), &program).well()
}

#[test]
fn commands_for_the_examples_work() {
    let folder = clone();
    let lines: Vec<&str> = [EXAMPLES, COMPONENTS]
        .iter()
        .flat_map(|page| blocks(page, "sh"))
        .flat_map(str::lines)
        .collect();
    assert!(lines.len() > 11, "{lines:?}");
    for line in lines {
        follow(line, &folder);
    }
}

#[test]
fn guests_of_the_front_page_run() {
    let folder = clone();
    let page = include_str!("../../README.md");
    let lines = blocks(page, "sh").into_iter().flat_map(str::lines);
    // What comes before is where the command line is built, what comes after is a comment.
    let runs: Vec<String> = lines
        .filter_map(|line| line.strip_prefix("cargo run -- run "))
        .map(|line| format!("wasi-cuda run {}", line.split('#').next().unwrap().trim()))
        .collect();
    assert_eq!(runs.len(), 6, "{runs:?}");
    for run in runs {
        follow(&run, &folder);
    }
}

#[test]
fn the_program_of_the_guide_is_built_and_prints_what_it_says() {
    let folder = clone();
    folder.write("saxpy.ptx", SAXPY.as_bytes());
    folder.write("saxpy.c", blocks(GUEST_AUTHORS, "c")[0].as_bytes());
    let lines = blocks(GUEST_AUTHORS, "sh").into_iter().flat_map(str::lines);
    let printed: Vec<String> = lines.map(|line| follow(line, &folder)).collect();
    let said = blocks(GUEST_AUTHORS, "text")[0];
    assert_eq!(printed.last().map(String::as_str), Some(said));
}

#[test]
fn the_program_in_rust_is_the_one_that_is_compiled() {
    // The crate's own page is a doctest of the crate.
    let page = include_str!("../../crates/guest/README.md");
    assert_eq!(blocks(GUEST_AUTHORS, "rust"), blocks(page, "rust,no_run"));
}

#[test]
fn what_the_guide_shows_of_a_component_is_in_one_that_runs() {
    let program = include_str!("../../fixtures/components/saxpy/main.rs");
    let shown = blocks(GUEST_AUTHORS, "rust,component");
    assert_eq!(shown.len(), 3);
    for block in shown {
        assert!(program.contains(block), "{block}");
    }
}

/// Fails as the guide says, for these reasons in this order.
#[test]
fn texts_of_failures_are_those_of_the_guide() {
    let mut guest = Harness::new(&Setup {
        pages: 2,
        ..Setup::default()
    });
    let kernel = guest.kernel(SAXPY, "saxpy");
    let ptr = |len| Arg::Ptr {
        offset: DATA_AT,
        len,
    };
    let mut said = blocks(GUEST_AUTHORS, "text")[1].lines();
    let mut check = |guest: &mut Harness, answer: i64| {
        let text = guest.last_error();
        let line = format!("{} ({answer}): {text}", name(answer));
        // Where the guide's program had its data is of no account.
        let line = line.replace(&format!("from {DATA_AT},"), "from 11456,");
        assert_eq!(Some(line.as_str()), said.next());
    };

    let wide = [Arg::F32(2.0), ptr(4), ptr(4), Arg::I64(1)];
    let answer = guest.launch(kernel, Shape::ONE, &wide);
    check(&mut guest, answer);
    let right = [Arg::F32(2.0), ptr(4), ptr(4), Arg::I32(1)];
    let answer = guest.launch(kernel, Shape::line(1, 2000), &right);
    check(&mut guest, answer);
    let long = [Arg::F32(2.0), ptr(4), ptr(4_000_000), Arg::I32(1)];
    let answer = guest.launch(kernel, Shape::ONE, &long);
    check(&mut guest, answer);
    let answer = guest.load(SAXPY, "saxpi");
    check(&mut guest, answer);
}

#[test]
fn what_is_said_to_be_refused_is() {
    let (_, section) = FROM_CUDA_C.split_once("## What is refused").unwrap();
    let rows = section.lines().filter(|line| line.contains(".ptx` |"));
    let mut refused = 0;
    for row in rows {
        let file = row.split('`').find(|part| part.ends_with(".ptx")).unwrap();
        let ptx = fs::read_to_string(Path::new(ROOT).join("fixtures/corpus").join(file)).unwrap();
        let refuses = |isolation| {
            let mut guest = Harness::new(&Setup {
                isolation,
                ..Setup::default()
            });
            let entries = ptx.split(".visible .entry ").skip(1);
            let answers: Vec<i64> = entries
                .map(|entry| guest.load(&ptx, entry.split('(').next().unwrap().trim()))
                .collect();
            answers.contains(&AbiError::UnsupportedPtx.code().into())
        };
        assert!(refuses(Some(Isolation::Confined)), "{file}");
        let on_cpu = if refuses(None) {
            "refuses it"
        } else {
            "runs it"
        };
        assert!(row.ends_with(&format!("| {on_cpu} |")), "{file}: {on_cpu}");
        refused += 1;
    }
    assert_eq!(refused, 9);
}
