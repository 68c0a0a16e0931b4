//! Confined texts made to keep the verifier busy: each ends soon, accepted or refused as too large.

use std::time::{Duration, Instant};

use wasi_cuda_ptx as ptx;

use ptx::{Confined, ConfinedMap, VerifyError};

/// What takes quadratic time needs minutes.
const SOON: Duration = Duration::from_secs(20);

/// A function of these registers and statements, which no entry calls.
fn function(registers: &str, statements: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\n.func g1(\n    .reg .b64 %wbase,\n    .reg .b64 %wctl,\n    .reg .b64 %wstop,\n    .reg .b64 %wuntil,\n    .reg .b32 %wglob,\n    \
         .reg .b32 %wmask,\n    .reg .b32 %wfirst,\n    .reg .b32 %wspan,\n    .reg .b32 %wtok,\n    .reg .b32 %wlocal,\n    .reg .b32 %wdepth\n)\n{{\n{registers}{statements}    ret;\n}}\n"
    )
}

fn outcome(text: String) -> Result<(), VerifyError> {
    let before = Instant::now();
    let map = ConfinedMap::default();
    let outcome = ptx::verify(Confined { text, map }).map(drop);
    let taken = before.elapsed();
    assert!(taken < SOON, "{outcome:?} took {taken:?}");
    outcome
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

fn registers(count: usize) -> String {
    lines(count, |number| format!("    .reg .b32 %g{number};\n"))
        + "    .reg .pred %g999999;\n    .reg .s32 %wf;\n    .reg .u32 %wone;\n    .reg .pred %wn;\n    .reg .pred %wm;\n    \
           .reg .pred %wq;\n    .reg .u32 %wu;\n    .reg .u32 %wk;\n    .reg .u32 %wv;\n    .reg .u64 %wt;\n"
}

const HEAD: &str = "    mov.s32 %wf, 0;\n    mov.u32 %wv, %clock;\n    mov.u32 %wone, 1;\n    setp.ne.u32 %g999999, %wone, 0;\n";

const LOOK: &str = "    mov.u32 %wk, %clock;\n    \
     sub.u32 %wv, %wk, %wv;\n    \
     setp.lt.u32 %wn, %wv, 33554432;\n    \
     selp.u32 %wv, 0, 33521664, %wn;\n    \
     sub.u32 %wv, %wk, %wv;\n    \
     ld.volatile.global.u32 %wu, [%wstop];\n    \
     mov.u64 %wt, %globaltimer;\n    \
     setp.lt.u64 %wm, %wt, %wuntil;\n    \
     setp.ne.and.u32 %wm, %wu, %wtok, %wm;\n    \
     selp.s32 %wf, 65536, 64, %wn;\n    \
     selp.s32 %wf, %wf, -1, %wm;\n    \
     @!%wm st.volatile.global.u32 [%wctl+8], %wone;\n    \
     @!%wm st.volatile.global.u32 [%wstop], %wtok;\n    \
     @!%wm ld.acquire.sys.global.u32 %wu, [%wstop];\n";

fn meter(label: usize) -> String {
    format!(
        "    sub.s32 %wf, %wf, 65536;\n    setp.ge.s32 %wn, %wf, 0;\n    @%wn bra wc_L{label};\n{LOOK}wc_L{label}:\n"
    )
}

/// Where a loop begins.
fn start(label: usize) -> String {
    format!("wc_L{label}:\n    min.s32 %wf, %wf, 65536;\ng{label}:\n")
}

/// A branch back.
fn back(label: usize, target: usize) -> String {
    let branch = |to| format!("    setp.ge.s32 %wq, %wf, 0;\n    @%wq bra {to}{target};\n");
    let (round, again) = (branch("g"), branch("wc_L"));
    format!(
        "    sub.s32 %wf, %wf, 65536;\n{round}    setp.ge.s32 %wn, %wf, 0;\n    @%wn bra wc_L{label};\n{LOOK}{again}wc_L{label}:\n"
    )
}

#[test]
fn a_ladder_of_branches_over_each_other_ends_soon() {
    let count = 8000;
    let text = lines(count, |number| {
        let next = (number + 2).min(count - 1);
        format!(
            "    @%g999999 bra g{};\n    mov.u32 %g{number}, 0;\ng{}:\n",
            1_000_000 + next,
            1_000_000 + number
        )
    });
    let used = lines(count, |number| {
        format!("    mov.u32 %g{number}, %g{number};\n")
    });
    let text = function(&registers(count), &(HEAD.to_owned() + &text + &used));
    let error = outcome(text).unwrap_err();
    assert!(
        error.to_string().contains("before it is written"),
        "{error}"
    );
}

#[test]
fn a_chain_of_branches_back_ends_soon() {
    let count = 4000;
    let first = format!("    bra g{};\n", 1_000_000 + count - 1);
    let text = lines(count, |number| {
        let target = 1_000_000 + number.saturating_sub(1);
        let back = back(number + 1, target);
        let start = start(1_000_000 + number);
        format!(
            "{start}    mov.u32 %g{number}, %g{};\n{back}",
            (number + 1) % count
        )
    });
    let zeroes = lines(count, |number| format!("    mov.u32 %g{number}, 0;\n"));
    let head = HEAD.to_owned() + &zeroes + &meter(0);
    let text = function(&registers(count), &(head + &first + &text));
    assert_eq!(outcome(text), Ok(()));
}

#[test]
fn a_chain_of_branches_back_over_unwritten_registers_ends_soon() {
    let count = 4000;
    let first = format!("    bra g{};\n", 1_000_000 + count - 1);
    let text = lines(count, |number| {
        let target = 1_000_000 + number.saturating_sub(1);
        let back = back(number + 1, target);
        let start = start(1_000_000 + number);
        format!(
            "{start}    mov.u32 %g{number}, %g{};\n{back}",
            (number + 1) % count
        )
    });
    let text = function(
        &registers(count),
        &(HEAD.to_owned() + &meter(0) + &first + &text),
    );
    assert!(outcome(text).is_err());
}

#[test]
fn more_than_the_limits_is_refused_as_too_large() {
    let long = lines((1 << 17) + 1, |_| "    mov.u32 %g0, 0;\n".to_owned());
    let error = outcome(function(&registers(1), &long)).unwrap_err();
    assert!(error.is_limit(), "{error}");
    let labels = lines((1 << 14) + 1, |number| format!("g{}:\n", number + 10));
    let error = outcome(function("", &labels)).unwrap_err();
    assert!(error.is_limit(), "{error}");
}

#[test]
fn long_lists_that_are_named_often_are_refused_before_they_are_followed() {
    let labels = vec!["a"; 1000].join(", ");
    let branches = "@%p brx.idx %r, t;\n".repeat(1000);
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r;\n.reg .pred %p;\n\
         t: .branchtargets {labels};\nmov.u32 %r, 0;\nsetp.eq.u32 %p, %r, 1;\n{branches}a:\nret;\n}}\n"
    );
    let program = ptx::read(text.as_bytes()).unwrap();
    let options = ptx::ConfineOptions {
        level: ptx::Level::Confined,
        window: ptx::WindowForm::Whole,
        clear_shared: true,
    };
    let refused = ptx::confine(&program, options).unwrap_err();
    assert!(
        refused.to_string().contains("too many targets"),
        "{refused}"
    );
}
