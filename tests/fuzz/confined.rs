//! A confined kernel does what the original does and keeps to its memory: `cargo fuzz run --fuzz-dir tests/fuzz confined`.
#![no_main]
#![expect(clippy::expect_used, reason = "a finding is a panic")]

#[path = "../../crates/device/tests/differential/grammar.rs"]
mod grammar;
#[path = "../../crates/device/tests/differential/oracle.rs"]
#[allow(dead_code, reason = "tests count what a fuzzer does not")]
mod oracle;

use std::cell::RefCell;

use grammar::Manner;
use oracle::{World, text_of};

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let manner = Manner::of(*first);
    let program = ptx::read(text_of(bytes, manner).as_bytes()).expect("the grammar is of PTX");
    WORLD.with_borrow_mut(|world| world.check_with(bytes, manner, &program));
});
