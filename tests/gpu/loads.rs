//! Texts that the driver's compiler does not take: each is refused when it is loaded, with a code and the compiler's words,
//! and leaves nothing behind.

use abi::AbiError;

use crate::harness::{Harness, KIT, VECADD};
use crate::rig::{assert_fails, assert_sound, guest};
use crate::runner::{Case, either, gpu};

pub(crate) const CASES: &[Case] = &[
    either(
        "a_newer_version_is_unsupported",
        a_newer_version_is_unsupported,
    ),
    either(
        "another_target_does_not_compile",
        another_target_does_not_compile,
    ),
    gpu(
        "an_unknown_instruction_is_named_with_its_line",
        an_unknown_instruction_is_named_with_its_line,
    ),
    gpu(
        "operands_of_the_wrong_type_do_not_compile",
        operands_of_the_wrong_type_do_not_compile,
    ),
    either(
        "an_entry_declared_twice_is_refused",
        an_entry_declared_twice_is_refused,
    ),
    either(
        "an_entry_that_is_not_there_is_named",
        an_entry_that_is_not_there_is_named,
    ),
    either("a_text_of_many_entries_loads", a_text_of_many_entries_loads),
    gpu("a_thousand_loads_come_and_go", a_thousand_loads_come_and_go),
];

fn text(version: &str, target: &str, body: &str) -> String {
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n.visible .entry k()\n{{\n\
         .reg .b32 %r<4>; .reg .f32 %f<3>;\n{body}\nret;\n}}\n"
    )
}

/// The line that `body` stands in.
const BODY_LINE: u32 = 7;

#[track_caller]
fn check(ptx: &str, code: AbiError, parts: &[&str]) {
    let mut guest: Harness = guest();
    let answer = guest.load(ptx, "k");
    assert_fails(&mut guest, answer, code, parts);
    assert_eq!(guest.cuda().metrics().kernels, 0);
    assert_sound(&mut guest);
}

fn a_newer_version_is_unsupported() {
    for version in ["9.9", "99.0"] {
        let parts = ["the PTX version or target", "the driver says", version];
        check(
            &text(version, "sm_80", ""),
            AbiError::UnsupportedPtx,
            &parts,
        );
    }
}

fn another_target_does_not_compile() {
    let parts = ["does not compile: "];
    check(&text("9.0", "sm_120", ""), AbiError::MalformedPtx, &parts);
}

fn an_unknown_instruction_is_named_with_its_line() {
    let line = format!("line {BODY_LINE}");
    let parts = ["does not compile: ", "bogus", &line];
    let bogus = text("8.0", "sm_80", "bogus.u32 %r1, 0;");
    check(&bogus, AbiError::MalformedPtx, &parts);
}

fn operands_of_the_wrong_type_do_not_compile() {
    let line = format!("line {BODY_LINE}");
    let parts = ["does not compile: ", &line];
    let mistyped = text("8.0", "sm_80", "add.f64 %r1, %r2, %r3;");
    check(&mistyped, AbiError::MalformedPtx, &parts);
}

fn an_entry_declared_twice_is_refused() {
    let twice = ".version 8.0\n.target sm_80\n.address_size 64\n\
        .visible .entry k() { ret; }\n.visible .entry k() { ret; }\n";
    let parts = ["line 5", "`k` is declared twice"];
    check(twice, AbiError::MalformedPtx, &parts);
}

fn an_entry_that_is_not_there_is_named() {
    let mut guest = guest();
    let answer = guest.load(VECADD, "vecadd_typo");
    let parts = ["no entry `vecadd_typo`", "`vecadd`"];
    assert_fails(&mut guest, answer, AbiError::MalformedPtx, &parts);
    assert_eq!(guest.cuda().metrics().kernels, 0);
    assert_sound(&mut guest);
}

fn a_text_of_many_entries_loads() {
    let mut guest = guest();
    let module = ptx::read(KIT.as_bytes()).unwrap();
    for entry in module.entries() {
        let kernel = guest.kernel(KIT, &entry.entry);
        let (_, params) = guest.kernel_info(kernel);
        assert_eq!(params.len(), entry.parameters.len(), "{}", entry.entry);
    }
}

fn a_thousand_loads_come_and_go() {
    let mut guest = guest();
    for _ in 0..1_000 {
        for entry in ["k_empty", "k_count"] {
            let kernel = guest.kernel(KIT, entry);
            guest.unload(kernel);
        }
    }
    assert_sound(&mut guest);
}
