//! Texts made to hang, to overflow the stack or to take memory. Each ends in one error, soon.

use std::time::{Duration, Instant};

use ptx::{Error, Validated};
use wasi_cuda_ptx as ptx;

/// A reader that takes quadratic time on one of these texts needs minutes.
const SOON: Duration = Duration::from_secs(10);

const MIB: usize = 1 << 20;

const HEADER: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// The text of an entry with this body.
fn entry(body: &str) -> String {
    format!("{HEADER}.entry e()\n{{\n{body}\nret;\n}}\n")
}

/// `start`, then `unit` as often as it fits the longest text.
fn filled(start: &str, unit: &str) -> String {
    start.to_owned() + &unit.repeat((8 * MIB - start.len()) / unit.len())
}

/// `start`, then `unit(0)`, `unit(1)` and so on, up to the longest text.
fn numbered(start: &str, unit: impl Fn(usize) -> String) -> String {
    let mut text = start.to_owned();
    for number in 0.. {
        let next = unit(number);
        if text.len() + next.len() > 8 * MIB {
            break;
        }
        text += &next;
    }
    text
}

/// What becomes of a text, in time.
fn outcome(text: &[u8]) -> Result<Validated, Error> {
    let before = Instant::now();
    let outcome = ptx::read(text);
    let taken = before.elapsed();
    assert!(taken < SOON, "{:?} took {taken:?}", outcome.map(drop));
    outcome
}

/// The message for a text, without its place.
fn refusal(text: impl AsRef<[u8]>) -> String {
    match outcome(text.as_ref()) {
        Ok(_) => panic!("the text is accepted"),
        Err(error) => error.kind.to_string(),
    }
}

fn assert_accepted(text: impl AsRef<[u8]>) {
    if let Err(error) = outcome(text.as_ref()) {
        panic!("{error}");
    }
}

#[test]
fn open_parentheses_end_at_the_first() {
    assert_eq!(
        refusal(vec![b'('; 8 * MIB]),
        "expected `.version`, found `(`"
    );
    assert_eq!(
        refusal(filled(HEADER, "(")),
        "expected a directive, found `(`"
    );
    let body = filled(&(HEADER.to_owned() + ".entry e() { call "), "(");
    assert_eq!(refusal(body), "more than 8 levels of nested operands");
}

#[test]
fn open_braces_end_at_the_deepest_block() {
    assert_eq!(
        refusal("{".repeat(1_000_000)),
        "expected `.version`, found `{`"
    );
    assert_eq!(
        refusal(entry(&"{".repeat(1_000_000))),
        "more than 256 levels of blocks"
    );
    let deep = format!("{HEADER}.global .u32 x[2] = {};", "{".repeat(1_000_000));
    assert_eq!(refusal(deep), "more than 8 levels of nested values");
    let deep = format!("{HEADER}.entry e() {{ mov.b64 {}", "{".repeat(1_000_000));
    assert_eq!(refusal(deep), "more than 8 levels of nested operands");
    let section = filled(&(HEADER.to_owned() + ".section .debug_str "), "{");
    assert_eq!(
        refusal(section),
        "expected the `}` of a section, found the end of the text"
    );
}

#[test]
fn what_does_not_end_is_said_to_not_end() {
    assert_eq!(refusal(filled(HEADER, "/*--")), "the comment does not end");
    assert_eq!(refusal(filled(HEADER, "/* \n")), "the comment does not end");
    assert_eq!(
        refusal(filled(&(HEADER.to_owned() + ".pragma \""), "a")),
        "the string does not end"
    );
    assert_eq!(
        refusal(filled(&(HEADER.to_owned() + ".pragma \""), "\\ ")),
        "the string does not end"
    );
    let body = filled(&(HEADER.to_owned() + ".entry e() {"), "\n");
    assert_eq!(
        refusal(body),
        "expected a statement or `}`, found the end of the text"
    );
    let parameters = filled(&(HEADER.to_owned() + ".entry e("), ".param .u32 p,");
    assert_eq!(
        refusal(parameters),
        "expected `.param` or `.reg`, found the end of the text"
    );
}

#[test]
fn numbers_of_any_length_are_read_or_refused() {
    let digits = "9".repeat(MIB);
    let too_large = format!("the number `{}...` does not fit 64 bits", "9".repeat(64));
    assert_eq!(refusal(entry(&format!("mov.b64 _, {digits};"))), too_large);
    assert_eq!(
        refusal(format!("{HEADER}.global .b8 x[{digits}];")),
        too_large
    );
    let hexadecimal = refusal(entry(&format!("mov.b64 _, 0x{digits};")));
    assert!(
        hexadecimal.ends_with("does not fit 64 bits"),
        "{hexadecimal}"
    );
    assert_eq!(
        refusal(entry(".reg .b32 %r<4294967296>;")),
        "the number `4294967296` does not fit 32 bits",
    );
    let floats = entry(&format!("mov.f64 _, 0.{digits};"));
    assert_accepted(floats);
    assert_eq!(
        refusal(entry(&format!("mov.f64 _, {digits}.5;"))),
        too_large
    );
}

#[test]
fn counts_are_refused_before_anything_is_made_from_them() {
    assert_eq!(
        refusal(entry(".reg .b32 %r<4294967295>;")),
        "more than 1048576 registers"
    );
    assert_eq!(
        refusal(entry(".reg .b32 %r<900000>; .reg .v2 .b32 %s<900000>;")),
        "more than 1048576 registers"
    );
    assert_eq!(
        refusal(format!("{HEADER}.global .b8 x[4611686018427387904];")),
        "variables in .global space take 4611686018427387904 bytes with `x`, 4294967296 are the most",
    );
    assert_eq!(
        refusal(format!(
            "{HEADER}.global .v4 .b32 x[4294967296][4294967296];"
        )),
        format!(
            "variables in .global space take {} bytes with `x`, 4294967296 are the most",
            u64::MAX
        ),
    );
    assert_eq!(
        refusal(entry(".shared .b8 x[200000]; .shared .b8 y[200000];")),
        "variables in .shared space take 400000 bytes with `y`, 262144 are the most",
    );
    assert_eq!(
        refusal(format!(
            "{HEADER}.entry e(.param .b8 p[4294967295]) {{ ret; }}"
        )),
        "variables in .param space take 4294967295 bytes with `p`, 32764 are the most",
    );
}

#[test]
fn floods_of_small_tokens_end_at_a_limit() {
    let body = HEADER.to_owned() + ".entry e() {";
    let statements = "more than 524288 statements";
    assert_eq!(refusal(filled(&body, "a;")), statements);
    assert_eq!(refusal(filled(&body, "{}")), statements);
    assert_eq!(
        refusal(filled(&(body.clone() + ".reg .b32 a"), ",a")),
        statements
    );
    assert_eq!(refusal(filled(HEADER, ".alias a,b;")), statements);
    let nodes = "more than 2097152 operands and elements";
    assert_eq!(refusal(filled(&(body.clone() + "a a"), ",a")), nodes);
    assert_eq!(refusal(filled(&(body.clone() + "a"), ".a")), nodes);
    assert_eq!(refusal(filled(&(body.clone() + "a a"), ",{a}")), nodes);
    assert_eq!(
        refusal(filled(&(HEADER.to_owned() + ".global .b8 x[9]={0"), ",0")),
        nodes
    );
    assert_eq!(
        refusal(filled(&(HEADER.to_owned() + ".entry e() .maxntid 1"), ",1")),
        nodes
    );
    let names = refusal(numbered(&body, |number| {
        format!("a{number:x},").replacen("a", "a a", usize::from(number == 0))
    }));
    assert_eq!(names, "more than 524288 names");
}

#[test]
fn many_names_are_checked_in_time() {
    let body = HEADER.to_owned() + ".entry e() {";
    let end = "expected a statement or `}`, found the end of the text";
    assert_eq!(
        refusal(numbered(&body, |number| format!(".reg .b32 r<{number}>;")).as_bytes()),
        end
    );

    // Single names that a range might have, and blocks that hide each other.
    let declarations: String = (0..200_000)
        .map(|number| format!(".reg .b32 %r{};", 100_000 + number))
        .collect();
    assert_accepted(entry(&format!(".reg .b32 %r<9>; {declarations}")));
    let taken = "`%r100000` is declared twice in one scope";
    assert_eq!(
        refusal(entry(&format!("{declarations} .reg .b32 %r<100001>;"))),
        taken
    );
    let blocks = "{ .reg .b32 %r<2>;".repeat(250);
    let uses = "add.s32 %r7, %r7, %r7;".repeat(100_000);
    let ends = "}".repeat(250);
    let hidden = entry(&format!(".reg .b32 %r<9>; {blocks} {uses} {ends}"));
    assert_accepted(hidden);
}

#[test]
fn a_text_over_the_limit_is_refused_by_its_length() {
    let longest = filled(&entry(""), " ");
    assert_accepted(&longest);
    assert_eq!(
        refusal(longest + " "),
        "the text has 8388609 bytes, 8388608 are the most"
    );
}
