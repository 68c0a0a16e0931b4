//! The whole corpus of compilers' output through the front end.

mod fixtures;

use fixtures::{corpus, name};
use wasi_cuda_ptx as ptx;

#[test]
fn every_file_prints_and_reads_back_as_the_same_tree() {
    for (path, source) in corpus() {
        let name = name(&path);
        let tree = ptx::parse(&source).unwrap_or_else(|error| panic!("{name}: {error}"));
        let text = ptx::print(&tree);
        let again = ptx::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            tree == again,
            "{name} changed on its way through the printer"
        );
        assert_eq!(ptx::print(&again), text, "{name}");
    }
}

#[test]
fn every_file_is_validated() {
    for (path, source) in corpus() {
        let name = name(&path);
        let program =
            ptx::read(&source).unwrap_or_else(|error| panic!("{name}: {}", error.render(&source)));
        assert!(!program.entries().is_empty(), "{name} has no entry");
        assert_eq!(program.source().unwrap().as_bytes(), source, "{name}");
    }
}
