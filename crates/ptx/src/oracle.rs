//! What must hold for any bytes whatsoever: the oracle of the fuzz target `ptx_parse` and of the property
//! tests. It decides nothing that a program could ask for.

use crate::error::Error;
use crate::limits::MAX_SOURCE_BYTES;
use crate::verify::HIDDEN;
use crate::{
    Confined, ConfinedEntry, ConfinedMap, Signature, Validated, VerifyError, parse, print, read,
    verify,
};

/// Longest message: its own words and a few excerpts.
const MAX_MESSAGE_BYTES: usize = 512;

/// Reads bytes, prints the tree and reads that, and checks each mistake for being fit to be shown.
///
/// # Errors
/// The mistake, where there is one. That is no failure.
///
/// # Panics
/// If the front end does not keep one of its promises: a printed tree reads back as an equal one, prints
/// the same, is validated with the same outcome, and messages are short, printable and in the text.
pub fn check_program(source: &[u8]) -> Result<Validated, Error> {
    let tree = parse(source).inspect_err(|error| check_error(error, source))?;
    let text = print(&tree);
    let outcome = read(source).inspect_err(|error| check_error(error, source));
    if text.len() > MAX_SOURCE_BYTES {
        return outcome;
    }
    match parse(text.as_bytes()) {
        Ok(again) => {
            assert!(
                again == tree,
                "the printed text reads as another tree:\n{text}"
            );
            assert_eq!(print(&again), text, "the tree prints in another way");
        }
        Err(error) => panic!("the printed text does not read back: {error}\n{text}"),
    }
    match (&outcome, read(text.as_bytes())) {
        (Ok(program), Ok(again)) => {
            let lines_apart = |entries: &[Signature]| -> Vec<_> {
                entries
                    .iter()
                    .map(|entry| Signature {
                        line: 0,
                        ..entry.clone()
                    })
                    .collect()
            };
            assert_eq!(lines_apart(program.entries()), lines_apart(again.entries()));
        }
        (Err(error), Err(again)) => assert_eq!(error.kind, again.kind, "{text}"),
        (outcome, again) => panic!("{outcome:?}, but {again:?} for the printed text\n{text}"),
    }
    outcome
}

/// Verifies a text as if it had been made of a guest's with the same parameters but the hidden ones.
///
/// # Errors
/// The refusal, where there is one. That is no failure.
///
/// # Panics
/// If the verifier does not keep one of its promises: a refusal is short, printable and about a line of the text; what is accepted
/// was printed from a tree, and names nothing that is not its own.
pub fn check_confined(source: &str) -> Result<(), VerifyError> {
    let mut map = ConfinedMap::default();
    for printed in read(source.as_bytes()).iter().flat_map(Validated::entries) {
        let own = printed.parameters.len().saturating_sub(HIDDEN.len());
        map.entries.push(ConfinedEntry {
            signature: Signature {
                parameters: printed.parameters[..own].to_vec(),
                ..printed.clone()
            },
            printed: printed.entry.clone(),
            shared_before_dynamic: 0,
        });
    }
    let text = source.to_owned();
    let verified = verify(Confined { text, map }).inspect_err(|error| {
        let message = error.to_string();
        assert!(
            message.len() <= MAX_MESSAGE_BYTES,
            "a long message: {message}"
        );
        assert!(!message.chars().any(char::is_control), "{message:?}");
        let lines = source.lines().count() + 1;
        assert!(
            (0..=lines).contains(&(error.line as usize)),
            "no such line: {message}"
        );
    })?;
    let printed = print(verified.program().module());
    assert_eq!(verified.program().source(), Some(printed.as_str()));
    for line in printed.lines().map(str::trim) {
        assert!(!line.contains("//") && !line.contains('"'), "{line}");
        // What stands in brackets is a name of ours, or a parameter.
        for (place, _) in line.match_indices('[').filter(|_| !line.starts_with('.')) {
            let base = &line[place + 1..];
            let is_parameter = base.starts_with('g') && line.contains(".param.");
            assert!(
                is_parameter || base.starts_with("%w") || base.starts_with("wc_"),
                "{line}"
            );
        }
    }
    Ok(())
}

fn check_error(error: &Error, source: &[u8]) {
    let message = error.to_string();
    assert!(
        message.len() <= MAX_MESSAGE_BYTES,
        "a long message: {message}"
    );
    assert!(
        !message.chars().any(char::is_control),
        "a message with control characters: {message:?}"
    );
    let lines = source.split(|&byte| byte == b'\n').count();
    assert!(
        (1..=lines).contains(&(error.line as usize)),
        "no such line: {message}"
    );
    assert!(error.column >= 1, "no such column: {message}");
    let rendered = error.render(source);
    assert!(
        rendered.starts_with(&message) && rendered.ends_with("^\n"),
        "{rendered}"
    );
}
