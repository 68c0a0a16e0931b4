//! Control flow, calls, memory spaces and what lanes do together.

use device::{Error, LaunchControl, TrapKind, Value};

use crate::bench::{Bench, HEADER, block, entry};

fn run(body: &str, threads: u32) -> Vec<u32> {
    let text = entry(body);
    let words = Bench::new(1).words(&text, block(threads), threads as usize);
    words.unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The text of an entry that calls functions.
fn with(functions: &str, body: &str) -> String {
    entry(body).replacen(HEADER, &format!("{HEADER}{functions}\n"), 1)
}

#[test]
fn lanes_that_part_come_together_again() {
    // Lane n counts to n; afterwards all 32 are at one place.
    let found = run(
        "mov.u32 %r1, 0;
L: setp.ge.u32 %p1, %r1, %t; @%p1 bra E; add.u32 %r1, %r1, 1; bra L;
E: activemask.b32 %r2; popc.b32 %r2, %r2; mad.lo.u32 %r1, %r1, 100, %r2; st.u32 [%o], %r1; ret;",
        32,
    );
    let want: Vec<u32> = (0..32).map(|lane| lane * 100 + 32).collect();
    assert_eq!(found, want);
}

#[test]
fn a_spin_lock_within_a_warp_ends() {
    // Each lane in turn takes the lock, the word of lane 0 counts.
    let found = run(
        "add.u64 %x1, %base, 4;
L: atom.cas.b32 %r1, [%x1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;
ld.volatile.u32 %r2, [%base]; add.u32 %r2, %r2, 1; st.volatile.u32 [%base], %r2;
atom.exch.b32 %r3, [%x1], 0; ret;",
        32,
    );
    assert_eq!(found[..2], [32, 0]);
}

#[test]
fn a_lock_is_passed_on_whatever_those_who_wait_for_it_do() {
    // The holder stands behind the loop, where it runs last by the rule.
    let functions =
        ".func (.reg .b32 %out) try(.reg .b64 %at) { atom.cas.b32 %out, [%at], 0, 1; ret; }";
    let waits = [
        "L: atom.cas.b32 %r1, [%x1], 0, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra G; nanosleep.u32 50; bra L;",
        "L: call (%r1), try, (%x1); setp.ne.u32 %p1, %r1, 0; @%p1 bra L;",
        "L: atom.cas.b32 %r1, [%x1], 0, 1; min.u32 %r1, %r1, 1; T: .branchtargets G, L; brx.idx %r1, T;",
    ];
    for wait in waits {
        let text = with(
            functions,
            &format!(
                "add.u64 %x1, %base, 4; {wait}
G: ld.volatile.u32 %r2, [%base]; add.u32 %r2, %r2, 1; st.volatile.u32 [%base], %r2;
atom.exch.b32 %r3, [%x1], 0; ret;"
            ),
        );
        let bench = Bench::new(1);
        let program = bench.load(&text).unwrap();
        let control = LaunchControl {
            time: None,
            budget: Some(1 << 20),
            ..LaunchControl::default()
        };
        let pointer = Value::Pointer { offset: 0, len: 8 };
        let completion = bench.start(&program, block(32), &[pointer], control);
        assert_eq!(completion.wait(), Ok(()), "{wait}");
        let mut words = [0_u32; 2];
        bench.region.window().load_run(0, &mut words).unwrap();
        assert_eq!(words, [32, 0], "{wait}");
    }
}

#[test]
fn a_narrow_register_that_was_never_written_may_hold_what_a_wide_one_did() {
    // `use` finds the slots as `fill` left them, above 16 bits.
    let functions = ".func fill(.reg .b32 %in) {
.reg .b32 %a<4>; or.b32 %a0, %in, %in; or.b32 %a1, %in, %in; or.b32 %a2, %in, %in; or.b32 %a3, %in, %in; ret; }
.func (.reg .b32 %out) use() {
.reg .b16 %h<3>; mul.wide.u16 %out, %h0, %h1; mul.hi.u16 %h2, %h0, %h1; mad.wide.u16 %out, %h0, %h1, %out;
mad.hi.u16 %h2, %h0, %h1, %h1; ret; }";
    let text = with(
        functions,
        "call fill, (-1); call (%r1), use; st.u32 [%o], 7; ret;",
    );
    let found = Bench::new(1).words(&text, block(32), 32).unwrap();
    assert_eq!(found, [7; 32]);
}

#[test]
fn lanes_called_from_frames_of_different_size_leave_a_barrier_together() {
    // Both halves stand behind the barrier of `meet` at the same place, but can never join.
    let functions =
        ".func (.reg .b32 %out) meet(.reg .b32 %in) { bar.sync 0; add.u32 %out, %in, 1; ret; }
.func (.reg .b32 %out) small(.reg .b32 %in) { call (%out), meet, (%in); ret; }
.func (.reg .b32 %out) large(.reg .b32 %in) {
.reg .b32 %a<3>; mul.lo.u32 %a1, %in, 3; add.u32 %a2, %a1, 7; call (%out), meet, (%a2); ret; }";
    let text = with(
        functions,
        "setp.lt.u32 %p1, %t, 16; @%p1 bra S; call (%r1), large, (%t); bra E;
S: call (%r1), small, (%t);
E: st.u32 [%o], %r1; ret;",
    );
    let found = Bench::new(1).words(&text, block(32), 32).unwrap();
    let want: Vec<u32> = (0..32)
        .map(|lane| if lane < 16 { lane + 1 } else { 3 * lane + 8 })
        .collect();
    assert_eq!(found, want);
}

#[test]
fn synchronising_instructions_wait_for_their_members() {
    // Odd lanes loop first; the shuffle still sees what they computed.
    let found = run(
        "mov.u32 %r1, %t; and.b32 %r2, %t, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra J;
mov.u32 %r3, 0;
L: add.u32 %r1, %r1, 10; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 50; @%p2 bra L;
J: shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1; st.u32 [%o], %r4; ret;",
        32,
    );
    let want: Vec<u32> = (0..32)
        .map(|lane| (lane ^ 1) + if lane % 2 == 0 { 500 } else { 0 })
        .collect();
    assert_eq!(found, want);
}

#[test]
fn tiles_of_a_warp_shuffle_and_reduce_apart() {
    let found = run(
        "mov.u32 %r1, 0xff; and.b32 %r2, %t, 24; shl.b32 %r1, %r1, %r2;
redux.sync.add.u32 %r3, %t, %r1; st.u32 [%o], %r3; ret;",
        32,
    );
    let want: Vec<u32> = (0..32)
        .map(|lane| (0..8).map(|index| lane / 8 * 8 + index).sum())
        .collect();
    assert_eq!(found, want);
}

#[test]
fn votes_and_matches_count_the_lanes_that_take_part() {
    let found = run(
        "and.b32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 2; vote.sync.ballot.b32 %r2, %p1, 0x0000ffff;
match.any.sync.b32 %r3, %r1, 0x0000ffff; xor.b32 %r4, %r2, %r3; st.u32 [%o], %r4; ret;",
        16,
    );
    let want: Vec<u32> = (0..16_u32)
        .map(|lane| 0x4444 ^ 0x1111 << (lane % 4))
        .collect();
    assert_eq!(found, want);
}

#[test]
fn a_lane_that_has_left_gives_zero() {
    let found = run(
        "mov.u32 %r1, 7; setp.eq.u32 %p1, %t, 3; @%p1 exit;
shfl.sync.idx.b32 %r2|%p2, %r1, 3, 31, -1; selp.u32 %r3, 100, 200, %p2; add.u32 %r2, %r2, %r3; st.u32 [%o], %r2; ret;",
        32,
    );
    assert_eq!((found[0], found[3], found[31]), (100, 0, 100));
}

#[test]
fn branch_tables_send_each_lane_where_its_index_says() {
    let found = run(
        "and.b32 %r1, %t, 3;
T: .branchtargets A, B, C, D;
brx.idx %r1, T;
A: mov.u32 %r2, 10; bra E;
B: mov.u32 %r2, 20; bra E;
C: mov.u32 %r2, 30; bra E;
D: mov.u32 %r2, 40;
E: activemask.b32 %r3; popc.b32 %r3, %r3; add.u32 %r2, %r2, %r3; st.u32 [%o], %r2; ret;",
        32,
    );
    assert_eq!(found[..5], [42, 52, 62, 72, 42]);
    let text = entry("T: .branchtargets A, A;\n brx.idx %t, T;\nA: ret;");
    let Err(Error::Trap(trap)) = Bench::new(1).words(&text, block(5), 5) else {
        panic!("an index past the table")
    };
    assert_eq!((trap.kind, trap.thread), (TrapKind::OutOfBounds, [2, 0, 0]));
}

#[test]
fn names_of_inner_blocks_hide_outer_ones() {
    let found = run(
        "mov.u32 %r1, 1;
{ .reg .b32 %r1; mov.u32 %r1, 5; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra L; st.u32 [%o], %r1; }
{ .reg .b32 %q; mov.u32 %q, 0; L: add.u32 %q, %q, 1; setp.lt.u32 %p1, %q, 3; @%p1 bra L; add.u32 %r1, %r1, %q; }
ld.u32 %r2, [%o]; mad.lo.u32 %r2, %r2, 10, %r1; st.u32 [%o], %r2; ret;",
        1,
    );
    assert_eq!(found, [94]);
}

#[test]
fn barriers_reduce_over_all_threads() {
    let found = run(
        "setp.lt.u32 %p1, %t, 40; bar.red.popc.u32 %r1, 0, %p1; bar.red.and.pred %p2, 1, %p1; bar.red.or.pred %p3, 0, !%p1;
selp.u32 %r2, 100, 0, %p2; selp.u32 %r3, 1000, 0, %p3; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; st.u32 [%o], %r1; ret;",
        70,
    );
    assert_eq!(found, [1040; 70]);
}

#[test]
fn producers_pass_a_barrier_that_consumers_wait_at() {
    let found = run(
        ".shared .align 4 .b8 s[128];
mov.u32 %r1, s; setp.lt.u32 %p1, %t, 32; @!%p1 bra C;
mad.lo.u32 %r2, %t, 4, %r1; add.u32 %r3, %t, 1000; st.shared.u32 [%r2], %r3; bar.arrive 3, 64; ret;
C: bar.sync 3, 64; sub.u32 %r4, 63, %t; mad.lo.u32 %r2, %r4, 4, %r1; ld.shared.u32 %r5, [%r2]; st.u32 [%o], %r5; ret;",
        64,
    );
    assert_eq!((found[32], found[63]), (1031, 1000));
}

#[test]
fn a_producer_that_goes_on_lets_consumers_pass() {
    // The producer does not stop before a consumer has answered.
    let found = run(
        ".shared .align 4 .u32 s; setp.lt.u32 %p1, %t, 32; @!%p1 bra C;
bar.arrive 1, 64; L: ld.volatile.shared.u32 %r1, [s]; setp.eq.u32 %p2, %r1, 0; @%p2 bra L; st.u32 [%o], %r1; ret;
C: bar.sync 1, 64; st.volatile.shared.u32 [s], 5; ret;",
        64,
    );
    assert_eq!(found[..32], [5; 32]);
}

#[test]
fn functions_take_parameters_and_registers_and_call_themselves() {
    let text = format!(
        "{HEADER}.func (.reg .b32 %result) twice(.reg .b32 %x) {{ add.u32 %result, %x, %x; ret; }}
.func (.param .b64 back) fibonacci(.param .b32 n) {{
.reg .b32 %n, %m; .reg .b64 %a, %b; .reg .pred %p;
ld.param.u32 %n, [n]; cvt.u64.u32 %a, %n; setp.lt.u32 %p, %n, 2; @%p bra E;
{{ .param .b32 p0; .param .b64 r0; sub.u32 %m, %n, 1; st.param.b32 [p0], %m; call (r0), fibonacci, (p0); ld.param.b64 %a, [r0]; }}
{{ .param .b32 p0; .param .b64 r0; sub.u32 %m, %n, 2; st.param.b32 [p0], %m; call (r0), fibonacci, (p0); ld.param.b64 %b, [r0]; }}
add.u64 %a, %a, %b;
E: st.param.b64 [back], %a; ret; }}
.visible .entry k(.param .u64 out) {{
.reg .b64 %o, %v; .reg .b32 %t, %w; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %o, %t, 4, %o;
{{ .param .b32 p0; .param .b64 r0; st.param.b32 [p0], %t; call (r0), fibonacci, (p0); ld.param.b64 %v, [r0]; }}
cvt.u32.u64 %w, %v; call (%w), twice, (%w); st.u32 [%o], %w; ret; }}"
    );
    let found = Bench::new(1).words(&text, block(16), 16).unwrap();
    let mut want = vec![0_u32, 1];
    for index in 2..16 {
        want.push(want[index - 1] + want[index - 2]);
    }
    let want: Vec<u32> = want.iter().map(|number| 2 * number).collect();
    assert_eq!(found, want);
}

#[test]
fn generic_addresses_lead_to_every_space() {
    let text = format!(
        "{HEADER}.const .align 8 .u32 c[2] = {{3, 4}};
.global .align 8 .u64 pointer = generic(c);
.global .align 4 .u32 g = 5;
.visible .entry k(.param .u64 out, .param .u32 v) {{
.shared .align 4 .u32 s; .local .align 4 .u32 l;
.reg .b64 %o, %x; .reg .b32 %sum, %v, %n; .reg .pred %p;
ld.param.u64 %o, [out]; st.shared.u32 [s], 10; st.local.u32 [l], 20; mov.u32 %sum, 0;
cvta.shared.u64 %x, s; ld.u32 %v, [%x]; add.u32 %sum, %sum, %v;
isspacep.shared %p, %x; @!%p add.u32 %sum, %sum, 1000;
isspacep.global %p, %x; @%p add.u32 %sum, %sum, 1000;
cvta.local.u64 %x, l; ld.u32 %v, [%x]; add.u32 %sum, %sum, %v;
cvta.const.u64 %x, c; ld.u32 %v, [%x+4]; add.u32 %sum, %sum, %v;
ld.global.u64 %x, [pointer]; ld.u32 %v, [%x]; add.u32 %sum, %sum, %v;
cvta.global.u64 %x, g; atom.add.u32 %v, [%x], 1; add.u32 %sum, %sum, %v;
cvta.param.u64 %x, v; ld.u32 %v, [%x]; add.u32 %sum, %sum, %v;
st.global.u32 [%o], %sum; ret; }}"
    );
    let bench = Bench::new(1);
    let program = bench.load(&text).unwrap();
    let values = [
        device::Value::Pointer { offset: 0, len: 4 },
        device::Value::U32(7),
    ];
    for want in [3 + 4 + 5 + 7 + 30, 3 + 4 + 6 + 7 + 30] {
        bench
            .start(
                &program,
                block(1),
                &values,
                device::LaunchControl::default(),
            )
            .wait()
            .unwrap();
        assert_eq!(bench.region.window().load::<u32>(0), Ok(want));
    }
}

#[test]
fn nothing_is_left_in_shared_and_local_memory() {
    let body = ".shared .align 4 .b8 s[256]; .local .align 4 .b8 l[64];
mov.u32 %r1, s; mad.lo.u32 %r1, %t, 4, %r1; ld.shared.u32 %r2, [%r1]; st.shared.u32 [%r1], 9;
mov.u32 %r3, l; ld.local.u32 %r4, [%r3+8]; st.local.u32 [%r3+8], 9; add.u32 %r2, %r2, %r4;
red.global.add.u32 [%base], %r2; ret;";
    let shape = crate::bench::Shape(20, 64, device::Mode::Plain);
    assert_eq!(Bench::new(2).words(&entry(body), shape, 1).unwrap(), [0]);
}

#[test]
fn nested_initial_values_are_laid_out_by_rows() {
    let text = format!(
        "{HEADER}.global .align 4 .u16 m[2][3] = {{ {{1, 2}}, {{3, 4, 5}} }};
.visible .entry k(.param .u64 out) {{
.reg .b64 %o; .reg .b32 %a, %b; ld.param.u64 %o, [out];
ld.global.v2.u16 {{%a, %b}}, [m+4]; mad.lo.u32 %a, %b, 10, %a; ld.global.u16 %b, [m+10]; mad.lo.u32 %a, %b, 100, %a;
st.u32 [%o], %a; ret; }}"
    );
    assert_eq!(Bench::new(1).words(&text, block(1), 1).unwrap(), [530]);
}

#[test]
fn sleeping_threads_wake() {
    let found = run(
        "nanosleep.u32 20000; mov.u32 %r1, %clock; nanosleep.u32 %t; st.u32 [%o], 1; ret;",
        96,
    );
    assert_eq!(found, [1; 96]);
}
