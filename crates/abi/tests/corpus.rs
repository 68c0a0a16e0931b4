//! Replays the corpus of the fuzz target `argv` on a stable compiler.

use std::fs;
use std::path::Path;

use wasi_cuda_abi::argv::{DecodeError, Dialect, decode};
use wasi_cuda_abi::oracle::check_decode;

#[test]
fn every_input_of_the_corpus_decodes_or_is_refused_once() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/argv");
    let mut inputs = 0;
    let mut errors = Vec::new();
    for entry in fs::read_dir(folder).expect("the corpus is checked in") {
        let path = entry.expect("a directory entry").path();
        let bytes = fs::read(&path).expect("a readable input");
        check_decode(&bytes);
        errors.extend(decode(&bytes, Dialect::Current).filter_map(Result::err));
        inputs += 1;
    }
    assert!(inputs > errors.len(), "no input of the corpus is good");
    let hit = |kind: fn(&DecodeError) -> bool| errors.iter().any(kind);
    assert!(hit(|e| matches!(e, DecodeError::TooLong { .. })));
    assert!(hit(|e| matches!(e, DecodeError::TooMany)));
    assert!(hit(|e| matches!(e, DecodeError::Truncated { .. })));
    assert!(hit(|e| matches!(e, DecodeError::UnknownTag { .. })));
}
