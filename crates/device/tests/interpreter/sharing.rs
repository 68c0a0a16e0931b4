//! What blocks, warps and functions share: clusters, barriers in shared memory, fragments of matrices, addresses of functions.

use device::{Error, LaunchControl, Mode, TrapKind, Value};

use crate::bench::{Bench, HEADER, Shape, block, entry};

/// The entry of a body in clusters of so many blocks.
fn clustered(blocks: &str, body: &str) -> String {
    let text = entry(body);
    let directive = format!(") .reqnctapercluster {blocks} {{\n.reg .b64 %o,");
    text.replacen(") {\n.reg .b64 %o,", &directive, 1)
}

#[test]
fn registers_say_where_a_block_is_in_its_cluster() {
    let text = clustered(
        "3, 1, 1",
        "mov.u32 %r1, %ctaid.x; mul.lo.u32 %r2, %r1, 32; mad.wide.u32 %x1, %r2, 1, %base;
mov.u32 %r3, %cluster_ctarank; st.u32 [%x1], %r3;
mov.u32 %r3, %cluster_nctarank; st.u32 [%x1+4], %r3;
mov.u32 %r3, %cluster_ctaid.x; st.u32 [%x1+8], %r3;
mov.u32 %r3, %cluster_nctaid.x; st.u32 [%x1+12], %r3;
mov.u32 %r3, %clusterid.x; st.u32 [%x1+16], %r3;
mov.u32 %r3, %nclusterid.x; st.u32 [%x1+20], %r3;
mov.u32 %r3, %is_explicit_cluster; st.u32 [%x1+24], %r3;
mov.u32 %r3, %ctaid.x; st.u32 [%x1+28], %r3; ret;",
    );
    let found = Bench::new(2)
        .words(&text, Shape(9, 1, Mode::Plain), 72)
        .unwrap();
    let want: Vec<u32> = (0..9)
        .flat_map(|block| [block % 3, 3, block % 3, 3, block / 3, 3, 1, block])
        .collect();
    assert_eq!(found, want);
}

/// Each block writes to the shared memory of the next of its cluster, whose 64 threads read it when all have come.
#[test]
fn blocks_of_a_cluster_write_each_others_shared_memory() {
    let body = |map: &str, store: &str| {
        format!(
            ".shared .align 4 .b8 s[256]; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %ctaid.x;
add.u32 %r3, %r1, 1; and.b32 %r3, %r3, 3; mad.lo.u32 %r4, %r2, 100, %t; {map}
{store} barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
shl.b32 %r5, %t, 2; mov.u32 %r6, s; add.u32 %r5, %r5, %r6; ld.shared.u32 %r7, [%r5];
mad.lo.u32 %r2, %r2, 64, %t; mad.wide.u32 %x1, %r2, 4, %base; st.u32 [%x1], %r7; ret;"
        )
    };
    let narrow = body(
        "mov.u32 %r6, s; mapa.shared::cluster.u32 %r6, %r6, %r3; shl.b32 %r5, %t, 2; add.u32 %r6, %r6, %r5;",
        "st.shared::cluster.u32 [%r6], %r4;",
    );
    let generic = body(
        "mov.u64 %x2, s; cvta.shared.u64 %x2, %x2; mapa.u64 %x2, %x2, %r3; mul.wide.u32 %x3, %t, 4; add.u64 %x2, %x2, %x3;
getctarank.u64 %r8, %x2; setp.ne.u32 %p1, %r8, %r3; @%p1 trap;",
        "atom.add.u32 %r8, [%x2], %r4;",
    );
    for body in [narrow, generic] {
        let text = clustered("4, 1, 1", &body);
        let found = Bench::new(2)
            .words(&text, Shape(8, 64, Mode::Plain), 512)
            .unwrap();
        let want: Vec<u32> = (0..512)
            .map(|at| {
                let (block, thread) = (at / 64, at % 64);
                let writer = block / 4 * 4 + (block % 4 + 3) % 4;
                writer * 100 + thread
            })
            .collect();
        assert_eq!(found, want);
    }
}

#[test]
fn shared_memory_of_no_block_is_out_of_bounds() {
    let text = clustered(
        "2, 1, 1",
        ".shared .b32 s; mov.u32 %r1, s; mapa.shared::cluster.u32 %r1, %r1, 2; ld.shared::cluster.u32 %r2, [%r1]; ret;",
    );
    match Bench::new(1).words(&text, Shape(2, 1, Mode::Plain), 1) {
        Err(Error::Trap(trap)) => assert_eq!(trap.kind, TrapKind::OutOfBounds),
        other => panic!("{other:?}"),
    }
}

/// A thread that comes and does not wait at once passes later; one that waits without having come waits for ever.
#[test]
fn the_barrier_of_a_cluster_counts_who_has_come() {
    let late = clustered(
        "2, 1, 1",
        "barrier.cluster.arrive; setp.lt.u32 %p1, %t, 16; @%p1 bra W;
add.u32 %r1, %t, 5; barrier.cluster.wait; bra S;
W: mov.u32 %r1, 7; barrier.cluster.wait;
S: barrier.cluster.arrive; barrier.cluster.wait; st.u32 [%o], %r1; ret;",
    );
    let found = Bench::new(1)
        .words(&late, Shape(2, 32, Mode::Plain), 32)
        .unwrap();
    let want: Vec<u32> = (0..32).map(|t| if t < 16 { 7 } else { t + 5 }).collect();
    assert_eq!(found, want);
    let never = clustered("2, 1, 1", "barrier.cluster.wait; ret;");
    match Bench::new(1).words(&never, Shape(2, 32, Mode::Plain), 1) {
        Err(Error::Trap(trap)) => assert_eq!(trap.kind, TrapKind::BarrierDeadlock),
        other => panic!("{other:?}"),
    }
}

#[test]
fn phases_end_when_threads_and_bytes_have_come() {
    let text = entry(
        ".shared .align 8 .b64 b; mov.u32 %r1, b; setp.ne.u32 %p1, %t, 0; @%p1 exit;
mbarrier.init.shared::cta.b64 [%r1], 2;
mbarrier.arrive.shared::cta.b64 %x1, [%r1];
mbarrier.test_wait.shared::cta.b64 %p2, [%r1], %x1; selp.u32 %r2, 1, 0, %p2; st.u32 [%base], %r2;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 48;
mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 0; selp.u32 %r2, 1, 0, %p2; st.u32 [%base+4], %r2;
mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 48;
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; selp.u32 %r2, 1, 0, %p2; st.u32 [%base+8], %r2;
mbarrier.test_wait.shared::cta.b64 %p2, [%r1], %x1; selp.u32 %r2, 1, 0, %p2; st.u32 [%base+12], %r2;
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 1, 100; selp.u32 %r2, 1, 0, %p2; st.u32 [%base+16], %r2;
mbarrier.arrive_drop.shared::cta.b64 %x1, [%r1]; mbarrier.arrive.shared::cta.b64 %x1, [%r1];
mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 1; selp.u32 %r2, 1, 0, %p2; st.u32 [%base+20], %r2;
mbarrier.arrive.shared::cta.b64 %x1, [%r1];
mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 0; selp.u32 %r2, 1, 0, %p2; st.u32 [%base+24], %r2;
mbarrier.inval.shared::cta.b64 [%r1]; ret;",
    );
    let found = Bench::new(1).words(&text, block(32), 7).unwrap();
    assert_eq!(found, [0, 0, 1, 1, 0, 1, 1]);
}

#[test]
fn bulk_copies_that_are_not_aligned_or_leave_memory_trap() {
    for (bytes, from, kind) in [
        (24, 0, TrapKind::Misaligned),
        (32, 8, TrapKind::Misaligned),
        (64, 0, TrapKind::OutOfBounds),
    ] {
        let text = entry(&format!(
            ".shared .align 16 .b8 s[32]; .shared .align 8 .b64 b; mov.u32 %r1, s; mov.u32 %r2, b;
mbarrier.init.shared.b64 [%r2], 1; add.u64 %x1, %base, {from};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%x1], {bytes}, [%r2]; ret;"
        ));
        match Bench::new(1).words(&text, block(1), 1) {
            Err(Error::Trap(trap)) => assert_eq!(trap.kind, kind, "{bytes} from {from}"),
            other => panic!("{other:?}"),
        }
    }
}

/// A type of elements: its name, its bytes, and its bits of a small integer.
struct Element(&'static str, usize, fn(i32) -> u64);

fn half(value: i32) -> u64 {
    if value == 0 {
        return 0;
    }
    let size = value.unsigned_abs();
    let exponent = size.ilog2();
    let mantissa = (size << (10 - exponent)) & 0x3ff;
    let sign = u32::from(value < 0) << 15;
    u64::from(sign | (exponent + 15) << 10 | mantissa)
}

fn small(value: i32, bias: u32, mantissa: u32) -> u64 {
    if value == 0 {
        return 0;
    }
    let size = value.unsigned_abs();
    let exponent = size.ilog2();
    let bits = (size << mantissa >> exponent) & ((1 << mantissa) - 1);
    u64::from(u32::from(value < 0) << 7 | (exponent + bias) << mantissa | bits)
}

fn single(value: i32) -> u64 {
    let value = i16::try_from(value).unwrap();
    u64::from(f32::from(value).to_bits())
}

const BF16: Element = Element("bf16", 2, |value| single(value) >> 16);
const F16: Element = Element("f16", 2, half);
const F32: Element = Element("f32", 4, single);
const F64: Element = Element("f64", 8, |value| f64::from(value).to_bits());
const S32: Element = Element("s32", 4, |value| u64::from(value.cast_unsigned()));
const S8: Element = Element("s8", 1, |value| u64::from(value.cast_unsigned() & 0xff));
const U8: Element = Element("u8", 1, |value| u64::from(value.cast_unsigned() & 0xff));
/// Numbers of three and two bits of mantissa, in which -4 to 4 are exact.
const E4M3: Element = Element("e4m3", 1, |value| small(value, 7, 3));
const E5M2: Element = Element("e5m2", 1, |value| half(value) >> 8);
const TF32: Element = Element("tf32", 4, single);

impl Element {
    fn bytes(&self, values: &[i32]) -> Vec<u8> {
        let bits = values.iter().map(|&value| (self.2)(value).to_le_bytes());
        bits.flat_map(|bytes| bytes[..self.1].to_vec()).collect()
    }
}

/// Multiplies small integers, with A by columns and B by rows, so that both orders of memory are met, and a stride beyond the
/// side.
fn multiply(sides: [usize; 3], factors: &Element, sums: &Element, registers: [usize; 3]) {
    let [m, n, k] = sides;
    let (wide_m, wide_n) = (m + 16, n + 16);
    let value = |at: usize, seed: usize| i32::try_from((at * 7 + seed) % 11).unwrap() - 5;
    let a: Vec<i32> = (0..k * wide_m).map(|at| value(at, 1)).collect();
    let b: Vec<i32> = (0..k * wide_n).map(|at| value(at, 4)).collect();
    let c: Vec<i32> = (0..m * n).map(|at| value(at, 9)).collect();
    let list = |kind: &str, count: usize| {
        let names: Vec<_> = (0..count).map(|at| format!("%{kind}{at}")).collect();
        format!("{{{}}}", names.join(","))
    };
    let bank = if factors.1 == 8 { "b64" } else { "b32" };
    let (of_a, of_b, of_c) = (
        list("a", registers[0]),
        list("b", registers[1]),
        list("c", registers[2]),
    );
    let (of, to, shape) = (factors.0, sums.0, format!("m{m}n{n}k{k}"));
    let types = if of == "f16" {
        format!("{to}.{to}")
    } else {
        format!("{to}.{of}.{of}.{to}")
    };
    let text = entry(&format!(
        ".reg .{bank} %a<9>, %b<9>, %c<9>; add.u64 %x1, %base, 4096; add.u64 %x2, %base, 16384;
wmma.load.a.sync.aligned.col.{shape}.global.{of} {of_a}, [%base], {wide_m};
wmma.load.b.sync.aligned.row.{shape}.{of} {of_b}, [%x1], {wide_n};
wmma.load.c.sync.aligned.row.{shape}.global.{to} {of_c}, [%x2];
wmma.mma.sync.aligned.col.row.{shape}.{types} {of_c}, {of_a}, {of_b}, {of_c};
wmma.store.d.sync.aligned.row.{shape}.global.{to} [%x2], {of_c}, {n}; ret;"
    ));
    let bench = Bench::new(1);
    let window = bench.region.window();
    for (at, bytes) in [
        (0, factors.bytes(&a)),
        (4096, factors.bytes(&b)),
        (16384, sums.bytes(&c)),
    ] {
        window.store_run(at, &bytes).unwrap();
    }
    let program = bench.load(&text).unwrap();
    let launch = bench.start(
        &program,
        block(32),
        &[Value::U64(0)],
        LaunchControl::default(),
    );
    assert_eq!(launch.wait(), Ok(()), "{shape} {of}");
    let want: Vec<i32> = (0..m * n)
        .map(|at| {
            let (row, column) = (at / n, at % n);
            let products = (0..k).map(|x| a[x * wide_m + row] * b[x * wide_n + column]);
            c[at] + products.sum::<i32>()
        })
        .collect();
    let mut found = sums.bytes(&want);
    let want = found.clone();
    window.load_run(16384, &mut found).unwrap();
    assert_eq!(found, want, "{shape} {of}");
}

#[test]
fn fragments_of_every_type_and_shape_multiply() {
    multiply([16, 16, 16], &F16, &F32, [8, 8, 8]);
    multiply([32, 8, 16], &F16, &F32, [8, 8, 8]);
    multiply([8, 32, 16], &F16, &F16, [8, 8, 4]);
    multiply([16, 16, 16], &BF16, &F32, [4, 4, 8]);
    multiply([32, 8, 16], &BF16, &F32, [8, 2, 8]);
    multiply([8, 32, 16], &S8, &S32, [1, 4, 8]);
    multiply([16, 16, 16], &S8, &S32, [2, 2, 8]);
    multiply([16, 16, 8], &TF32, &F32, [4, 4, 8]);
    multiply([8, 8, 4], &F64, &F64, [1, 1, 2]);
}

/// Multiplies small integers with `mma`: the words of fragments are laid out here as PTX documents it.
fn multiply_by_layout([m, n, k]: [usize; 3], [of_a, of_b]: [&Element; 2], sums: &Element) {
    let value = |at: usize, seed: usize| i32::try_from((at * 7 + seed) % 9).unwrap() - 4;
    let unsigned = |of: &Element| if of.0 == "u8" { 4 } else { 0 };
    let a: Vec<i32> = (0..m * k).map(|at| value(at, 1) + unsigned(of_a)).collect();
    let b: Vec<i32> = (0..k * n).map(|at| value(at, 3) + unsigned(of_b)).collect();
    let c: Vec<i32> = (0..m * n).map(|at| value(at, 5)).collect();
    // Elements of a row of A, of a column of B and of a row of C that one lane has beside each other.
    let (run_a, run_b) = ((4 / of_a.1).max(1), (4 / of_b.1).max(1));
    let mut bytes = [Vec::new(), Vec::new(), Vec::new()];
    for lane in 0..32 {
        let (group, thread) = (lane / 4, lane % 4);
        for block in 0..k.div_ceil(4 * run_a) {
            for row in (group..m).step_by(8) {
                let first = (thread + 4 * block) * run_a;
                bytes[0].extend(of_a.bytes(&a[row * k + first..][..run_a]));
            }
            let column = (0..run_b).map(|at| b[((thread + 4 * block) * run_b + at) * n + group]);
            bytes[1].extend(of_b.bytes(&column.collect::<Vec<_>>()));
        }
        for row in (group..m).step_by(8) {
            bytes[2].extend(sums.bytes(&c[row * n + 2 * thread..][..2]));
        }
    }
    let wide = of_a.1 == 8;
    let size = if wide { 8 } else { 4 };
    let count = [0, 1, 2].map(|part: usize| bytes[part].len() / 32 / size);
    let bank = if wide { "b64" } else { "b32" };
    let names = |kind: &str, count: usize| {
        (0..count)
            .map(|at| format!("%{kind}{at}"))
            .collect::<Vec<_>>()
    };
    let mut body = format!(".reg .{bank} %a<9>, %b<9>, %c<9>;\n");
    for (part, (kind, count)) in ["a", "b", "c"].into_iter().zip(count).enumerate() {
        body += &format!("mad.wide.u32 %x1, %t, {}, %base;\n", count * size);
        for (at, name) in names(kind, count).iter().enumerate() {
            body += &format!("ld.{bank} {name}, [%x1+{}];\n", 8192 * part + at * size);
        }
    }
    let list = |kind: &str, count: usize| names(kind, count).join(",");
    let shape = format!("m{m}n{n}k{k}");
    body += &format!(
        "mma.sync.aligned.{shape}.row.col.{to}.{}.{}.{to} {{{of_c}}}, {{{}}}, {{{}}}, {{{of_c}}};\n",
        of_a.0,
        of_b.0,
        list("a", count[0]),
        list("b", count[1]),
        to = sums.0,
        of_c = list("c", count[2]),
    );
    for (at, name) in names("c", count[2]).iter().enumerate() {
        body += &format!("st.{bank} [%x1+{}], {name};\n", 16384 + at * size);
    }
    let bench = Bench::new(1);
    let window = bench.region.window();
    for (part, bytes) in bytes.iter().enumerate() {
        window.store_run(8192 * part as u64, bytes).unwrap();
    }
    let program = bench.load(&entry(&(body + "ret;"))).unwrap();
    let launch = bench.start(
        &program,
        block(32),
        &[Value::U64(0)],
        LaunchControl::default(),
    );
    assert_eq!(launch.wait(), Ok(()), "{shape} {}", of_a.0);
    let mut want = Vec::new();
    for lane in 0..32 {
        for row in (lane / 4..m).step_by(8) {
            let sum = |at: usize| {
                let column = 2 * (lane % 4) + at;
                let products = (0..k).map(|x| a[row * k + x] * b[x * n + column]);
                c[row * n + column] + products.sum::<i32>()
            };
            want.extend(sums.bytes(&[sum(0), sum(1)]));
        }
    }
    let mut found = want.clone();
    window.load_run(16384, &mut found).unwrap();
    assert_eq!(found, want, "{shape} {} {}", of_a.0, of_b.0);
}

#[test]
fn documented_fragments_of_every_type_and_shape_multiply() {
    multiply_by_layout([16, 8, 8], [&F16, &F16], &F32);
    multiply_by_layout([16, 8, 16], [&F16, &F16], &F32);
    multiply_by_layout([16, 8, 16], [&F16, &F16], &F16);
    multiply_by_layout([16, 8, 8], [&BF16, &BF16], &F32);
    multiply_by_layout([16, 8, 16], [&BF16, &BF16], &F32);
    multiply_by_layout([16, 8, 4], [&TF32, &TF32], &F32);
    multiply_by_layout([16, 8, 8], [&TF32, &TF32], &F32);
    multiply_by_layout([16, 8, 16], [&S8, &S8], &S32);
    multiply_by_layout([16, 8, 32], [&S8, &S8], &S32);
    multiply_by_layout([16, 8, 32], [&U8, &S8], &S32);
    multiply_by_layout([16, 8, 32], [&E4M3, &E4M3], &F32);
    multiply_by_layout([16, 8, 32], [&E5M2, &E4M3], &F32);
    multiply_by_layout([8, 8, 4], [&F64, &F64], &F64);
    multiply_by_layout([16, 8, 4], [&F64, &F64], &F64);
    multiply_by_layout([16, 8, 8], [&F64, &F64], &F64);
    multiply_by_layout([16, 8, 16], [&F64, &F64], &F64);
}

#[test]
fn functions_are_called_by_address_each_with_its_lanes() {
    let functions = ".func (.reg .u32 r) twice(.reg .u32 a) { add.u32 r, a, a; ret; }
.func (.reg .u32 r) next(.reg .u32 a) { add.u32 r, a, 1; ret; }
.func (.reg .u32 r) count(.reg .u32 a) { .reg .pred %p; .reg .u32 %b; .reg .u64 %f;
setp.eq.u32 %p, a, 0; mov.u32 r, 0; @%p ret; sub.u32 %b, a, 1; mov.u64 %f, count;
P: .callprototype (.reg .u32 _) _ (.reg .u32 _); call (r), %f, (%b), P; add.u32 r, r, 3; ret; }\n";
    for label in [
        "T: .calltargets twice, next, count;",
        "T: .callprototype (.reg .u32 _) _ (.reg .u32 _);",
    ] {
        let body = entry(&format!(
            "rem.u32 %r1, %t, 3; mov.u64 %x1, twice; mov.u64 %x2, next; mov.u64 %x3, count;
setp.eq.u32 %p1, %r1, 1; selp.u64 %x1, %x2, %x1, %p1; setp.eq.u32 %p1, %r1, 2; selp.u64 %x1, %x3, %x1, %p1;
{label} call (%r2), %x1, (%t), T; st.u32 [%o], %r2; ret;"
        ));
        let text = body.replacen(HEADER, &format!("{HEADER}{functions}"), 1);
        let found = Bench::new(1).words(&text, block(40), 40).unwrap();
        let want: Vec<u32> = (0..40)
            .map(|t| match t % 3 {
                0 => 2 * t,
                1 => t + 1,
                _ => 3 * t,
            })
            .collect();
        assert_eq!(found, want, "{label}");
    }
}

/// A function that takes something else than the prototype says is not called.
#[test]
fn functions_of_another_signature_are_not_called() {
    let function = ".func (.reg .u32 r) f(.reg .u64 a) { mov.u32 r, 1; ret; }\n";
    let body = entry(
        "mov.u64 %x1, f; P: .callprototype (.reg .u32 _) _ (.reg .u32 _); call (%r2), %x1, (%t), P; ret;",
    );
    let text = body.replacen(HEADER, &format!("{HEADER}{function}"), 1);
    match Bench::new(1).words(&text, block(1), 1) {
        Err(Error::Trap(trap)) => assert_eq!(trap.kind, TrapKind::OutOfBounds),
        other => panic!("{other:?}"),
    }
}
