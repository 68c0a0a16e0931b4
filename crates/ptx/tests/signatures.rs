//! What is read off the declarations of entries, and how their texts may be wrapped.

mod fixtures;

use ptx::{Class, Signature, Validated};
use wasi_cuda_ptx as ptx;

/// Name, parameters as (declared type, offset, size, alignment, class), size of the buffer.
type Row = (
    &'static str,
    &'static [(&'static str, u32, u32, u32, Class)],
    u32,
);

const POINTER: (&str, u32, u32, u32, Class) = (".u64", 0, 8, 8, Class::Integer);
const SECOND: (&str, u32, u32, u32, Class) = (".u64", 8, 8, 8, Class::Integer);
const WORD_AT_8: (&str, u32, u32, u32, Class) = (".u32", 8, 4, 4, Class::Integer);

/// Every entry of `fixtures/kernels/kit.ptx`, in order.
const KIT: [Row; 21] = [
    ("k_empty", &[], 0),
    ("k_store", &[POINTER, WORD_AT_8], 12),
    ("k_store_generic", &[POINTER, WORD_AT_8], 12),
    (
        "k_copy",
        &[POINTER, SECOND, (".u32", 16, 4, 4, Class::Integer)],
        20,
    ),
    (
        "k_echo",
        &[
            POINTER,
            (".u8", 8, 1, 1, Class::Integer),
            (".u16", 10, 2, 2, Class::Integer),
            (".u32", 12, 4, 4, Class::Integer),
            (".u64", 16, 8, 8, Class::Integer),
            (".f32", 24, 4, 4, Class::Float),
            (".f64", 32, 8, 8, Class::Float),
        ],
        40,
    ),
    (
        "k_gap",
        &[
            (".u32", 0, 4, 4, Class::Integer),
            SECOND,
            (".u32", 16, 4, 4, Class::Integer),
        ],
        20,
    ),
    ("k_tail", &[POINTER, (".u16", 8, 2, 2, Class::Integer)], 10),
    (
        "k_struct",
        &[
            POINTER,
            WORD_AT_8,
            (".b8[32]", 16, 32, 16, Class::Bytes),
            (".u8", 48, 1, 1, Class::Integer),
            (".u8", 49, 1, 1, Class::Integer),
        ],
        50,
    ),
    ("k_ptrattr", &[POINTER, SECOND], 16),
    ("k_vec4", &[POINTER, SECOND], 16),
    ("k_spin", &[POINTER], 8),
    ("k_forever", &[POINTER], 8),
    ("k_trap", &[], 0),
    ("k_wild", &[], 0),
    ("k_past", &[POINTER, SECOND], 16),
    ("k_count", &[POINTER], 8),
    ("k_const", &[POINTER], 8),
    ("k_dynsmem", &[POINTER, WORD_AT_8], 12),
    ("k_bothsmem", &[POINTER], 8),
    ("k_residue", &[POINTER], 8),
    ("k_local", &[POINTER, WORD_AT_8], 12),
];

fn kit() -> Validated {
    ptx::read(&fixtures::kit()).unwrap_or_else(|error| panic!("{error}"))
}

/// The only entry of a text that follows the header.
fn entry(text: &str) -> Signature {
    let text = format!(".version 8.3\n.target sm_90\n.address_size 64\n{text}");
    let program = ptx::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let [entry] = program.entries() else {
        panic!("one entry: {:?}", program.entries())
    };
    entry.clone()
}

#[test]
fn every_kernel_of_the_kit_has_its_parameters_where_they_are() {
    let kit = kit();
    let found: Vec<_> = kit
        .entries()
        .iter()
        .map(|entry| entry.entry.as_str())
        .collect();
    assert_eq!(found, KIT.map(|row| row.0));
    for (name, parameters, size) in KIT {
        let signature = kit.entry(name).expect("the entry is there");
        let found: Vec<_> = signature
            .parameters
            .iter()
            .map(|p| (p.declared.as_str(), p.offset, p.size, p.align, p.class))
            .collect();
        assert_eq!(found, parameters, "{name}");
        assert_eq!(signature.size, size, "{name}");
    }
}

#[test]
fn pointer_attributes_are_kept_and_default_to_words() {
    let kit = kit();
    let pointers = |name| -> Vec<_> {
        let parameters = &kit.entry(name).expect("the entry is there").parameters;
        parameters
            .iter()
            .map(|p| p.pointer.map(|p| (p.space, p.align)))
            .collect()
    };
    assert_eq!(
        pointers("k_ptrattr"),
        [Some((Some(ptx::ast::Space::Global), 16)), Some((None, 1))],
    );
    assert_eq!(pointers("k_store"), [None, None]);
    let bare = entry(".entry k(.param .u64 .ptr p) { ret; }");
    assert_eq!(
        bare.parameters[0].pointer.map(|p| (p.space, p.align)),
        Some((None, 4))
    );
}

#[test]
fn shared_memory_is_that_of_the_module_and_of_the_entry() {
    let kit = kit();
    let bytes = |name| kit.entry(name).map(|entry| entry.static_shared_bytes);
    assert_eq!(bytes("k_empty"), Some(0));
    assert_eq!(bytes("k_bothsmem"), Some(1024));
    assert_eq!(bytes("k_residue"), Some(256));
    assert!(kit.entries().iter().all(|entry| entry.uses_dynamic_shared));

    let shared = entry(
        ".shared .b8 one;
         .func f() { .shared .align 8 .b8 in_function[3]; ret; }
         .entry k() { .shared .u16 two; { .shared .align 16 .b8 inner[5]; } ret; }",
    );
    // 1, then 3 from 8 on, then 2 from 12 on, then 5 from 16 on.
    assert_eq!(shared.static_shared_bytes, 21);
    assert!(!shared.uses_dynamic_shared);
}

#[test]
fn launch_bounds_have_three_axes() {
    let bounds = entry(".entry k() .maxntid 256, 2 .reqnctapercluster 4 { ret; }");
    assert_eq!(bounds.max_threads, Some([256, 2, 1]));
    assert_eq!(bounds.required_threads, None);
    assert_eq!(bounds.cluster, Some([4, 1, 1]));
    let bounds = entry(".entry k() .reqntid 8, 8, 8 .explicitcluster { ret; }");
    assert_eq!(bounds.max_threads, None);
    assert_eq!(bounds.required_threads, Some([8, 8, 8]));
    assert_eq!(bounds.cluster, Some([0, 0, 0]));
}

#[test]
fn classes_follow_the_declared_type() {
    let classes = entry(
        ".entry k(.param .b16 a, .param .s8 b, .param .f16 c, .param .b128 d, .param .v2 .f32 e,
                  .param .b8 f[3])
         { ret; }",
    );
    let found: Vec<_> = classes
        .parameters
        .iter()
        .map(|p| (p.class, p.offset, p.declared.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (Class::Bits, 0, ".b16"),
            (Class::Integer, 2, ".s8"),
            (Class::Float, 4, ".f16"),
            (Class::Bytes, 16, ".b128"),
            (Class::Bytes, 32, ".v2.f32"),
            (Class::Bytes, 40, ".b8[3]"),
        ],
    );
    assert_eq!(classes.size, 43);
}

#[test]
fn an_entry_that_is_only_declared_is_not_listed() {
    let text = b".version 8.0 .target sm_80 .extern .entry k(.param .u64 p);";
    let program = ptx::read(text).expect("the text is fine");
    assert_eq!(program.entries(), []);
    assert_eq!(program.entry("k"), None);
    assert!(
        program
            .function("k")
            .is_some_and(|function| function.body.is_none())
    );
    assert!(program.function("p").is_none());
}

#[test]
fn an_alias_is_the_function_it_stands_for() {
    let text = b".version 8.0 .target sm_80 .func a(); .func b() { ret; } .alias a, b;";
    let program = ptx::read(text).expect("the text is fine");
    assert_eq!(program.function("a"), program.function("b"));
    assert!(
        program
            .function("a")
            .is_some_and(|function| function.body.is_some())
    );
}

#[test]
fn nuls_after_the_text_are_no_part_of_it() {
    let kit_text = fixtures::kit();
    for nuls in [0, 1, 8, 4096] {
        let mut text = kit_text.clone();
        text.resize(text.len() + nuls, 0);
        let program = ptx::read(&text).unwrap_or_else(|error| panic!("{nuls} NULs: {error}"));
        assert_eq!(program.source().map(str::as_bytes), Some(&kit_text[..]));
        assert_eq!(program.entries(), kit().entries());
    }
    let error = ptx::read(&[0; 8]).expect_err("there is no text");
    assert_eq!(error.kind, ptx::ErrorKind::Empty);
    assert!(!error.is_unsupported());
}

#[test]
fn a_name_of_four_thousand_characters_is_found() {
    let name = "k".repeat(4000);
    assert_eq!(entry(&format!(".entry {name}() {{ ret; }}")).entry, name);
}

#[test]
fn a_tree_that_was_built_has_no_source() {
    let tree = ptx::parse(&fixtures::kit()).expect("the kit is fine");
    let program = ptx::validate(tree).expect("the kit is fine");
    assert_eq!(program.source(), None);
    assert_eq!(program.entries(), kit().entries());
}
