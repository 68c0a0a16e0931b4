//! The files in `filetests/`, each with what is expected beside it. `BLESS=1` writes the expectations
//! anew; the difference is for a reviewer to read.

#![expect(clippy::expect_used, reason = "a test without its files fails at once")]

mod fixtures;

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use wasi_cuda_ptx as ptx;

/// Compares what `outcome` says of each file of a folder with the `.out` beside it.
fn check(folder: &str, outcome: impl Fn(&[u8]) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("filetests")
        .join(folder);
    let files = fixtures::ptx_files(&folder);
    assert!(!files.is_empty(), "no files in {}", folder.display());
    let mut wrong = String::new();
    for file in files {
        let found = outcome(&fs::read(&file).expect("the file is there"));
        let expectation = file.with_extension("out");
        if env::var_os("BLESS").is_some() {
            fs::write(&expectation, &found).expect("the folder can be written");
        }
        let expected = fs::read_to_string(&expectation).unwrap_or_default();
        if found != expected {
            let name = fixtures::name(&file);
            writeln!(wrong, "{name}\nexpected:\n{expected}\nfound:\n{found}").expect("a string");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn parse() {
    check("parse", |source| {
        let program = ptx::read(source).unwrap_or_else(|error| panic!("{}", error.render(source)));
        let mut text = ptx::print(program.module());
        for entry in program.entries() {
            write!(text, "\n{entry:#?}\n").expect("a string");
        }
        text
    });
}

#[test]
fn reject() {
    check("reject", |source| match ptx::read(source) {
        Ok(program) => format!("accepted:\n{}", ptx::print(program.module())),
        Err(error) => {
            let class = if error.is_unsupported() {
                "unsupported"
            } else {
                "malformed"
            };
            format!("{class}\n{}", error.render(source))
        }
    });
}

#[test]
fn sandbox() {
    check("sandbox", |source| {
        let program = ptx::read(source).unwrap_or_else(|error| panic!("{}", error.render(source)));
        let confined = ptx::confine(&program, fixtures::options_of(source))
            .unwrap_or_else(|error| panic!("{}", error.render(source)));
        let mut text = String::new();
        for (line, from) in confined.text.lines().zip(&confined.map.lines) {
            let from = match from {
                0 => String::new(),
                line => line.to_string(),
            };
            writeln!(text, "{}", format!("{from:>4} {line}").trim_end()).expect("a string");
        }
        for site in &confined.map.sites {
            writeln!(text, "{site:?}").expect("a string");
        }
        for entry in &confined.map.entries {
            let (name, before) = (&entry.signature.entry, entry.shared_before_dynamic);
            writeln!(
                text,
                "{name} is {}, {before} bytes before dynamic",
                entry.printed
            )
            .expect("a string");
        }
        writeln!(text, "{:?}", confined.map.globals).expect("a string");
        text
    });
}
