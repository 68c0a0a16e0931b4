//! The inputs of the fuzz targets, seeds and findings, without a fuzzer.

mod fixtures;

use std::fs;

#[test]
fn every_input_of_the_fuzzer_keeps_the_promises() {
    let folder = fixtures::repository("tests/fuzz/corpus/ptx_parse");
    let mut inputs = 0;
    for file in fs::read_dir(folder).expect("the corpus is there") {
        let source = fs::read(file.expect("a file").path()).expect("a file");
        drop(wasi_cuda_ptx::oracle::check_program(&source));
        inputs += 1;
    }
    assert!(inputs > 0, "the corpus is empty");
}

#[test]
fn every_text_of_the_fuzzer_is_confined_or_refused() {
    let folder = fixtures::repository("tests/fuzz/corpus/ptx_verify");
    let mut inputs = 0;
    for file in fs::read_dir(folder).expect("the corpus is there") {
        let source = fs::read(file.expect("a file").path()).expect("a file");
        if let Ok(text) = std::str::from_utf8(&source) {
            drop(wasi_cuda_ptx::oracle::check_confined(text));
            inputs += 1;
        }
    }
    assert!(inputs > 0, "the corpus is empty");
}
