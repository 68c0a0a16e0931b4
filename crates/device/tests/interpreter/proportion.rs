//! Texts that ask for more time or memory than their length is worth: each loads quickly, or is refused.

use std::time::{Duration, Instant};

use device::{Device, Error};
use ptx::Admitted;

use crate::bench::{Bench, HEADER, block, entry};

/// What any text here may take to load, on a busy machine: each takes a tenth of a second where time is proportional to its
/// length, and far more than this where it grows with the square.
const PATIENCE: Duration = Duration::from_secs(5);

fn load_quickly(text: &str) -> Result<(), Error> {
    let begun = Instant::now();
    let outcome = Bench::new(1).load(text).map(drop);
    let elapsed = begun.elapsed();
    assert!(elapsed < PATIENCE, "{elapsed:?} for {} bytes", text.len());
    outcome
}

#[test]
fn a_branch_table_is_kept_once_however_many_branches_use_it() {
    let labels = vec!["L"; 40_000].join(",");
    let branches = "brx.idx %t, T;".repeat(40_000);
    let text = entry(&format!("L: T: .branchtargets {labels};\n{branches} ret;"));
    assert_eq!(load_quickly(&text), Ok(()));
}

#[test]
fn addresses_of_functions_are_found_at_once() {
    let functions: String = (0..60_000).map(|n| format!(".func f{n}();\n")).collect();
    let addresses = vec!["f59999"; 600_000].join(",");
    let text = format!(
        "{HEADER}{functions}.global .u64 t[600000] = {{{addresses}}};\n.entry k() {{ ret; }}"
    );
    assert_eq!(load_quickly(&text), Ok(()));
}

#[test]
fn names_are_found_at_once_in_deep_scopes() {
    let scopes: String = (0..250).map(|n| format!("{{ .reg .b32 %n{n};")).collect();
    let body = "neg.s32 %r1, %r1;".repeat(400_000);
    let text = entry(&format!("{scopes} {body} {} ret;", "}".repeat(250)));
    assert_eq!(load_quickly(&text), Ok(()));
}

#[test]
fn special_registers_of_many_functions_are_found_at_once() {
    let moves: String = ["tid", "ntid", "ctaid", "nctaid"]
        .iter()
        .flat_map(|of| ["x", "y", "z"].map(|axis| format!("mov.u32 %a, %{of}.{axis};")))
        .collect();
    let functions: String = (0..18_000)
        .map(|n| format!(".func f{n}() {{ .reg .b32 %a; {moves} ret; }}\n"))
        .collect();
    let values: String = (0..8_000)
        .map(|n| format!("add.u32 %r1, %r1, {};", n + 100))
        .collect();
    let calls: String = (0..18_000).map(|n| format!("call f{n};")).collect();
    let text = entry(&format!("{values} {calls} ret;"));
    let text = text.replacen(HEADER, &format!("{HEADER}{functions}"), 1);
    assert_eq!(load_quickly(&text), Ok(()));
}

#[test]
fn zeros_that_initial_values_leave_out_are_bounded_for_the_whole_module() {
    let variable = |name: char, rows: usize| {
        let values = vec!["{1}"; rows].join(",");
        format!(".global .b8 {name}[{rows}][4194304] = {{{values}}};\n")
    };
    let load = |variables: &str| load_quickly(&format!("{HEADER}{variables}.entry k() {{ ret; }}"));
    assert_eq!(load(&variable('a', 4)), Ok(()));
    for variables in [variable('a', 60), variable('a', 3) + &variable('b', 2)] {
        match load(&variables) {
            Err(Error::Unsupported { what, .. }) => {
                assert!(what.contains("initial value"), "{what}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_refusal_shows_only_the_start_of_a_long_instruction() {
    let text = entry(&format!(
        "add{} %r1, %r1, %r1;",
        ".modifier".repeat(100_000)
    ));
    let error = load_quickly(&text).unwrap_err().to_string();
    assert!(error.contains("`add.modifier.modifier"), "{error}");
    assert!(error.len() < 200, "{}", error.len());
}

#[test]
fn a_missing_entry_is_answered_with_some_of_those_that_are_there() {
    let entries: String = (0..50_000)
        .map(|n| format!(".entry entry_{n}() {{ ret; }}\n"))
        .collect();
    let program = ptx::read(format!("{HEADER}{entries}").as_bytes()).unwrap();
    let module = Bench::new(1)
        .device
        .load(&Admitted::checked(program))
        .unwrap();
    let error = module.entry("other").unwrap_err().to_string();
    assert!(error.contains("entry_0, entry_1"), "{error}");
    assert!(error.len() < 10_000, "{}", error.len());
}

#[test]
fn the_innermost_declaration_of_a_name_is_meant_single_or_in_a_range() {
    let text = entry(
        ".reg .b32 %a<3>, %b1; mov.u32 %a1, 1; mov.u32 %a2, 2; mov.u32 %b1, 3;
{ .reg .b32 %a<2>; .reg .b32 %b<2>; mov.u32 %a1, 10; mov.u32 %b1, 20; add.u32 %a2, %a2, %a1;
{ .reg .b32 %a1; mov.u32 %a1, 100; add.u32 %a2, %a2, %a1; }
add.u32 %a2, %a2, %b1; add.u32 %a2, %a2, %a1; }
add.u32 %a2, %a2, %a1; mad.lo.u32 %a2, %b1, 1000, %a2; st.u32 [%o], %a2; ret;",
    );
    let found = Bench::new(1).words(&text, block(1), 1).unwrap();
    assert_eq!(found, [2 + 10 + 100 + 20 + 10 + 1 + 3000]);
}
