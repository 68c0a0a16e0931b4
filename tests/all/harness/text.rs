//! What may be shown to a guest, and what must not happen while it runs.

use std::collections::HashSet;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use abi::AbiError;

/// The name of what an import answered: of its code if it is one.
pub(crate) fn name(answer: i64) -> String {
    let error = i32::try_from(answer).ok().and_then(AbiError::from_code);
    error.map_or(answer.to_string(), |error| error.name().into())
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics from now on, except those of tests that fail.
pub(crate) fn watch_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !panic
                .location()
                .is_some_and(|at| at.file().starts_with("tests/"))
            {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            report(panic);
        }));
    });
}

/// Panics in the host or the device so far.
pub(crate) fn host_panics() -> usize {
    PANICS.load(Ordering::SeqCst)
}

/// Checks that a text is fit for a guest: short, without paths, and without numbers that could be host addresses unless the
/// guest knows them already.
#[track_caller]
pub(crate) fn assert_text_is_clean(text: &str, known: &HashSet<u64>) {
    assert!(
        text.len() <= abi::LAST_ERROR_BYTES,
        "{} bytes: {text}",
        text.len()
    );
    for path in [".rs", "/home", "/root", "/tmp", "/usr", "/work", "crates/"] {
        assert!(!text.contains(path), "a host path: {text}");
    }
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        let (digits, radix, from) = match word.strip_prefix("0x") {
            Some(digits) => (digits, 16, 1 << 32),
            None => (word, 10, 1 << 40),
        };
        let Ok(number) = u64::from_str_radix(digits, radix) else {
            continue;
        };
        assert!(
            number < from || known.contains(&number),
            "{number} looks like a host address: {text}"
        );
    }
}
