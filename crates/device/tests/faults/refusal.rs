//! Programs that are refused when they are loaded, with a text that says where and why.

use device::Error;

use crate::check_alive;
use crate::harness::{Case, Rig, corpus, corpus_names, every, isolating, kernels};

pub(crate) const CASES: &[Case] = &[
    isolating("refusal::texture_instructions", texture_instructions),
    isolating("refusal::wgmma_instructions", wgmma_instructions),
    every(
        "refusal::an_entry_that_is_not_there",
        an_entry_that_is_not_there,
    ),
    every("refusal::text_that_is_not_ptx", text_that_is_not_ptx),
    isolating(
        "refusal::what_is_refused_of_the_corpus",
        what_is_refused_of_the_corpus,
    ),
];

/// Expects that an entry is refused for an instruction: the line reported holds it, the text names it.
fn expect_refusal(rig: &Rig, text: &str, entry: &str, instruction: &str) {
    let error = match rig.try_load(text, entry) {
        Err(error) => error,
        Ok(program) => panic!("{program:?} was loaded"),
    };
    let line = match &error {
        Error::Unsupported { line, .. } => *line,
        Error::Ptx(error) => error.line,
        other => panic!("{other:?}"),
    };
    let found = text
        .lines()
        .nth(line as usize - 1)
        .expect("a line of the text");
    assert!(found.contains(instruction), "{error}: {found}");
    assert!(error.to_string().contains(instruction), "{error}");
    check_alive(rig);
}

fn texture_instructions(rig: &Rig) {
    expect_refusal(rig, &corpus("cuda/texture.sm_75"), "tex_sample", "tex.2d");
}

fn wgmma_instructions(rig: &Rig) {
    let text = corpus("triton/matmul.sm_90a");
    expect_refusal(rig, &text, "matmul", "wgmma");
}

fn an_entry_that_is_not_there(rig: &Rig) {
    for name in ["k_stor", "", "k_store\0", "c_words", "K_STORE"] {
        match rig.try_load(&kernels("kit"), name) {
            Err(Error::EntryMissing {
                name: missing,
                entries,
            }) => {
                assert_eq!(missing, name);
                for entry in ["k_empty", "k_store", "k_store_generic"] {
                    assert!(entries.contains(entry), "{entries}");
                }
            }
            other => panic!("{other:?}"),
        }
    }
    check_alive(rig);
}

fn text_that_is_not_ptx(rig: &Rig) {
    for text in ["", "\0\0", "(module)", ".version 7.8", "\u{7f}ELF"] {
        let refused = rig.try_load(text, "k");
        assert!(
            matches!(refused, Err(Error::Ptx(_))),
            "{text:?}: {refused:?}"
        );
    }
    check_alive(rig);
}

/// Files of the corpus with an entry that the CPU device does not run, each with the opcode that it is refused for.
const REFUSED: [(&str, &str); 3] = [
    ("cuda/cdp.sm_90", "mov"),
    ("cuda/texture.sm_75", "tex"),
    ("triton/matmul.sm_90a", "wgmma"),
];

/// Every file is read, and each of its entries loads or is refused for an instruction whose line is given.
fn what_is_refused_of_the_corpus(rig: &Rig) {
    let mut refused = Vec::new();
    for name in corpus_names() {
        let text = corpus(&name);
        let module = match rig.module(&text) {
            Ok(module) => module,
            Err(error) => panic!("{name}: {error}"),
        };
        let validated = ptx::read(text.as_bytes()).expect("it was read before");
        for signature in validated.entries() {
            match module.entry(&signature.entry) {
                Ok(program) => assert_eq!(program.attributes().signature, *signature, "{name}"),
                Err(Error::Unsupported { line, what, .. }) => {
                    let found = text.lines().nth(line as usize - 1).unwrap_or_default();
                    let opcode = what.trim_matches('`').split([' ', '`', '.']).next();
                    let opcode = opcode.unwrap_or_default().to_owned();
                    assert!(
                        !opcode.is_empty() && found.contains(&opcode),
                        "{name}, {line}: {what}"
                    );
                    refused.push((name.clone(), opcode));
                }
                Err(error) => panic!("{name}, {}: {error}", signature.entry),
            }
        }
    }
    refused.dedup();
    let want = REFUSED.map(|(name, opcode)| (name.to_owned(), opcode.to_owned()));
    assert_eq!(refused, want);
}
