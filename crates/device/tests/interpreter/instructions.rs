//! What single instructions compute: each line a statement, its operands and what must come out.
//! The file is long because it is such lists.

use device::{LaunchControl, Value};

use crate::bench::{Bench, HEADER, block, entry};

/// Runs a statement for rows of operands, one a lane. `%w1` to `%w3`, `%h1` to `%h3` and `%x1` to `%x3` hold the operands in 32,
/// 16 and 64 bits; the result is the register `result`, from `w0`, `h0` and `x0`.
fn check<const N: usize>(statement: &str, result: &str, rows: &[([u64; N], u64)]) {
    let bench = Bench::new(1);
    let widen = match result {
        "x0" => "",
        "w0" => "cvt.u64.u32 %x0, %w0;",
        _ => "cvt.u64.u16 %x0, %h0;",
    };
    let text = format!(
        "{HEADER}.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b64 %i, %o, %x<9>; .reg .b32 %t, %w<9>; .reg .b16 %h<9>; .reg .pred %p<9>;
ld.param.u64 %i, [in]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x;
mad.wide.u32 %i, %t, 32, %i; mad.wide.u32 %o, %t, 8, %o;
ld.v2.u64 {{%x1, %x2}}, [%i]; ld.u64 %x3, [%i+16];
ld.u32 %w1, [%i]; ld.u32 %w2, [%i+8]; ld.u32 %w3, [%i+16];
ld.u16 %h1, [%i]; ld.u16 %h2, [%i+8]; ld.u16 %h3, [%i+16];
mov.u64 %x0, 0; mov.u32 %w0, 0; mov.u16 %h0, 0;
{statement}
{widen}
st.u64 [%o], %x0; ret; }}"
    );
    let program = match bench.load(&text) {
        Ok(program) => program,
        Err(error) => panic!("{statement} {error}"),
    };
    let mut input = vec![0_u64; rows.len() * 4];
    for (row, place) in rows.iter().zip(input.chunks_mut(4)) {
        place[..N].copy_from_slice(&row.0);
    }
    let window = bench.region.window();
    window.store_run(0, &input).unwrap();
    let values = [
        Value::Pointer {
            offset: 0,
            len: 1024,
        },
        Value::Pointer {
            offset: 4096,
            len: 256,
        },
    ];
    let threads = u32::try_from(rows.len()).unwrap();
    bench
        .start(&program, block(threads), &values, LaunchControl::default())
        .wait()
        .unwrap();
    let mut found = vec![0_u64; rows.len()];
    window.load_run(4096, &mut found).unwrap();
    for ((operands, want), found) in rows.iter().zip(found) {
        assert_eq!(
            found, *want,
            "{statement} {operands:#x?}: {found:#x}, not {want:#x}"
        );
    }
}

fn bits(x: f32) -> u64 {
    x.to_bits().into()
}

const NAN: u64 = 0x7fff_ffff;
const INFINITY: u64 = 0x7f80_0000;

#[test]
fn integer_arithmetic() {
    let max = u64::from(u32::MAX);
    check(
        "add.sat.s32 %w0, %w1, %w2;",
        "w0",
        &[
            ([0x7fff_fff0, 100], 0x7fff_ffff),
            ([0x8000_0000, max], 0x8000_0000),
        ],
    );
    check("sub.s16 %h0, %h1, %h2;", "h0", &[([3, 5], 0xfffe)]);
    check(
        "mul.hi.s32 %w0, %w1, %w2;",
        "w0",
        &[([max, 7], max), ([0x4000_0000, 8], 2)],
    );
    check(
        "mul.hi.u64 %x0, %x1, %x2;",
        "x0",
        &[([u64::MAX, u64::MAX], u64::MAX - 1)],
    );
    check(
        "mul.wide.s16 %w0, %h1, %h2;",
        "w0",
        &[([0xffff, 3], 0xffff_fffd)],
    );
    check(
        "mad.wide.s32 %x0, %w1, %w2, %x3;",
        "x0",
        &[([max, 4, 10], 6)],
    );
    check(
        "mad.hi.u32 %w0, %w1, %w2, %w3;",
        "w0",
        &[([max, max, 3], 1)],
    );
    check(
        "mul24.lo.s32 %w0, %w1, %w2;",
        "w0",
        &[([0x00ff_ffff, 5], 0xffff_fffb)],
    );
    check(
        "div.s32 %w0, %w1, %w2;",
        "w0",
        &[([max - 6, 2], max - 2), ([0x8000_0000, max], 0x8000_0000)],
    );
    check(
        "rem.s64 %x0, %x1, %x2;",
        "x0",
        &[([0_u64.wrapping_sub(7), 3], u64::MAX)],
    );
    check(
        "abs.s32 %w0, %w1;",
        "w0",
        &[([max], 1), ([0x8000_0000], 0x8000_0000)],
    );
    check(
        "min.s16 %h0, %h1, %h2;",
        "h0",
        &[([0xffff, 1], 0xffff), ([5, 4], 4)],
    );
    check("max.u16 %h0, %h1, %h2;", "h0", &[([0xffff, 1], 0xffff)]);
    check("sad.s32 %w0, %w1, %w2, %w3;", "w0", &[([max, 1, 10], 12)]);
}

#[test]
fn carries_pass_from_one_instruction_to_the_next() {
    let max = u64::from(u32::MAX);
    let sum = "add.cc.u32 %w4, %w1, %w2; addc.u32 %w0, %w3, 0;";
    check(sum, "w0", &[([max, 1, 5], 6), ([max, 0, 5], 5)]);
    let difference = "sub.cc.u32 %w4, %w1, %w2; subc.u32 %w0, %w3, 0;";
    check(difference, "w0", &[([0, 1, 5], 4), ([1, 1, 5], 5)]);
    // The flag is set where nothing was borrowed.
    check(
        "sub.cc.u32 %w4, %w1, %w2; addc.u32 %w0, 0, 0;",
        "w0",
        &[([0, 1], 0), ([1, 1], 1)],
    );
    let product = "mad.lo.cc.u32 %w4, %w1, %w2, %w3; madc.hi.u32 %w0, %w1, %w2, 0;";
    check(
        product,
        "w0",
        &[([max, max, max], max - 1 + 1), ([2, 3, max], 1)],
    );
    let wide = "add.cc.u64 %x4, %x1, %x2; addc.u64 %x0, %x3, 0;";
    check(wide, "x0", &[([u64::MAX, 1, 5], 6), ([1, 1, 5], 5)]);
}

#[test]
fn bits_are_moved_as_the_isa_says() {
    let max = u64::from(u32::MAX);
    check(
        "shl.b32 %w0, %w1, %w2;",
        "w0",
        &[([1, 31], 0x8000_0000), ([1, 32], 0), ([1, max], 0)],
    );
    check(
        "shr.s32 %w0, %w1, %w2;",
        "w0",
        &[([0x8000_0000, 99], max), ([0x8000_0000, 4], 0xf800_0000)],
    );
    check("shr.s64 %x0, %x1, %w2;", "x0", &[([1 << 63, 70], u64::MAX)]);
    check(
        "shf.l.clamp.b32 %w0, %w1, %w2, %w3;",
        "w0",
        &[([0x8000_0000, 1, 1], 3), ([0xabcd, 1, 40], 0xabcd)],
    );
    check(
        "shf.r.wrap.b32 %w0, %w1, %w2, %w3;",
        "w0",
        &[([0x10, 1, 36], 0x1000_0001)],
    );
    check(
        "bfe.u32 %w0, %w1, %w2, %w3;",
        "w0",
        &[([0xabcd, 4, 8], 0xbc), ([max, 28, 9], 15), ([1, 40, 4], 0)],
    );
    check(
        "bfe.s32 %w0, %w1, %w2, %w3;",
        "w0",
        &[
            ([0x80, 4, 4], 0xffff_fff8),
            ([0x8000_0000, 30, 8], 0xffff_fffe),
        ],
    );
    check(
        "bfe.s64 %x0, %x1, %w2, %w3;",
        "x0",
        &[([0xf0, 4, 4], u64::MAX), ([0xf0, 4, 0], 0)],
    );
    check(
        "bfi.b32 %w0, %w1, %w2, 8, 4;",
        "w0",
        &[([0xf, 0], 0xf00), ([0, max], 0xffff_f0ff)],
    );
    check("popc.b64 %w0, %x1;", "w0", &[([u64::MAX], 64)]);
    check("clz.b32 %w0, %w1;", "w0", &[([0], 32), ([1], 31)]);
    check(
        "bfind.s32 %w0, %w1;",
        "w0",
        &[([max], max), ([0xffff_fff0], 3), ([0x10], 4)],
    );
    check(
        "bfind.shiftamt.u32 %w0, %w1;",
        "w0",
        &[([1], 31), ([0], max)],
    );
    check("brev.b32 %w0, %w1;", "w0", &[([1], 0x8000_0000)]);
    check(
        "prmt.b32 %w0, %w1, %w2, %w3;",
        "w0",
        &[
            ([0x3322_1100, 0x7766_5544, 0x7531], 0x7755_3311),
            ([0x80, 0, 8], 0x8080_80ff),
        ],
    );
    check(
        "lop3.b32 %w0, %w1, %w2, %w3, 0xe8;",
        "w0",
        &[([0b1100, 0b1010, 0b0110], 0b1110)],
    );
    check(
        "dp4a.s32.u32 %w0, %w1, %w2, %w3;",
        "w0",
        &[([0xff, 0xff, 10], 0xffff_ff0b)],
    );
    check(
        "bmsk.clamp.b32 %w0, %w1, %w2;",
        "w0",
        &[([4, 3], 0x70), ([0, 40], max)],
    );
    check(
        "fns.b32 %w0, %w1, %w2, %w3;",
        "w0",
        &[
            ([0b10110, 0, 2], 2),
            ([0b10110, 4, max], 4),
            ([1, 1, 1], max),
        ],
    );
}

#[test]
fn floats_are_rounded_once_and_in_the_direction_asked_for() {
    let tiny = f32::from_bits(1);
    check(
        "fma.rn.f32 %w0, %w1, %w2, %w3;",
        "w0",
        &[
            (
                [
                    bits(1.0 + f32::EPSILON),
                    bits(1.0 - f32::EPSILON / 2.0),
                    bits(-1.0),
                ],
                bits((1.0 + f32::EPSILON).mul_add(1.0 - f32::EPSILON / 2.0, -1.0)),
            ),
            ([bits(tiny), bits(0.5), bits(0.0)], 0),
            ([bits(3e38), bits(10.0), bits(-3e38)], INFINITY),
        ],
    );
    check(
        "add.rz.f32 %w0, %w1, %w2;",
        "w0",
        &[([bits(1.0), bits(-1e-30)], bits(1.0_f32.next_down()))],
    );
    check(
        "add.rp.f32 %w0, %w1, %w2;",
        "w0",
        &[([bits(1.0), bits(1e-30)], bits(1.0_f32.next_up()))],
    );
    check(
        "add.rm.f32 %w0, %w1, %w2;",
        "w0",
        &[
            ([bits(1.0), bits(-1.0)], bits(-0.0)),
            ([bits(0.0), bits(0.0)], 0),
        ],
    );
    check(
        "mul.rp.f32 %w0, %w1, %w2;",
        "w0",
        &[
            ([bits(f32::MAX), bits(-2.0)], bits(-f32::MAX)),
            ([bits(tiny), bits(tiny)], 1),
        ],
    );
    check(
        "div.rz.f32 %w0, %w1, %w2;",
        "w0",
        &[([bits(1.0), bits(3.0)], bits(1.0_f32 / 3.0) - 1)],
    );
    check(
        "sqrt.rn.f32 %w0, %w1;",
        "w0",
        &[([bits(2.0)], bits(2.0_f32.sqrt())), ([bits(-1.0)], NAN)],
    );
    check(
        "rcp.approx.ftz.f64 %x0, %x1;",
        "x0",
        &[(
            [3.0_f64.to_bits()],
            (1.0_f64 / 3.0).to_bits() & !0xffff_ffff,
        )],
    );
}

#[test]
fn special_values_of_floats() {
    let one = bits(1.0);
    check(
        "add.f32 %w0, %w1, %w2;",
        "w0",
        &[
            ([INFINITY, INFINITY | 1 << 31], NAN),
            ([0x7f80_0001, one], NAN),
            ([0xffc0_1234, one], NAN),
        ],
    );
    check(
        "min.f32 %w0, %w1, %w2;",
        "w0",
        &[
            ([NAN, one], one),
            ([one, NAN], one),
            ([NAN, NAN], NAN),
            ([0, bits(-0.0)], bits(-0.0)),
        ],
    );
    check(
        "max.NaN.f32 %w0, %w1, %w2;",
        "w0",
        &[([NAN, one], NAN), ([bits(-0.0), 0], 0)],
    );
    check(
        "add.ftz.f32 %w0, %w1, %w2;",
        "w0",
        &[
            ([1, 1], 0),
            (
                [bits(-f32::MIN_POSITIVE), bits(f32::MIN_POSITIVE / 2.0)],
                bits(-f32::MIN_POSITIVE),
            ),
        ],
    );
    check(
        "add.sat.f32 %w0, %w1, %w2;",
        "w0",
        &[([one, one], one), ([bits(-3.0), one], 0), ([NAN, one], 0)],
    );
    check(
        "setp.ltu.f32 %p1, %w1, %w2; selp.u32 %w0, 1, 0, %p1;",
        "w0",
        &[([NAN, one], 1), ([one, one], 0), ([0, one], 1)],
    );
    check(
        "setp.ne.f32 %p1, %w1, %w2; selp.u32 %w0, 1, 0, %p1;",
        "w0",
        &[([NAN, one], 0), ([0, one], 1), ([0, bits(-0.0)], 0)],
    );
    check(
        "setp.num.f32 %p1, %w1, %w2; selp.u32 %w0, 1, 0, %p1;",
        "w0",
        &[([NAN, one], 0), ([0, one], 1)],
    );
    check(
        "testp.subnormal.f32 %p1, %w1; selp.u32 %w0, 1, 0, %p1;",
        "w0",
        &[([1], 1), ([one], 0), ([0], 0)],
    );
    let own = "setp.ne.u32 %p1, %w2, 0; @%p1 testp.number.f32 %p1, %w1; selp.u32 %w0, 1, 0, %p1;";
    check(own, "w0", &[([one, 1], 1), ([NAN, 1], 0), ([one, 0], 0)]);
    check(
        "copysign.f32 %w0, %w1, %w2;",
        "w0",
        &[([bits(-1.0), bits(2.0)], bits(-2.0))],
    );
}

#[test]
fn comparisons_combine_with_predicates() {
    let both = "setp.eq.u32 %p3, %w3, 1; setp.lt.and.s32 %p1|%p2, %w1, %w2, %p3; selp.u32 %w4, 1, 0, %p1; selp.u32 %w5, 2, 0, %p2; or.b32 %w0, %w4, %w5;";
    let minus = u64::from(u32::MAX);
    check(
        both,
        "w0",
        &[([minus, 0, 1], 1), ([0, minus, 1], 2), ([minus, 0, 0], 0)],
    );
    // The guard is one of the destinations.
    let own =
        "setp.ne.u32 %p1, %w1, 0; @%p1 setp.lt.u32 %p1|%p2, %w2, %w3; selp.u32 %w0, 1, 0, %p1;";
    check(own, "w0", &[([1, 1, 2], 1), ([1, 2, 1], 0), ([0, 1, 2], 0)]);
    check(
        "set.gt.u32.s32 %w0, %w1, %w2;",
        "w0",
        &[([1, minus], minus), ([0, 1], 0)],
    );
    check(
        "slct.u32.f32 %w0, %w1, %w2, %w3;",
        "w0",
        &[
            ([1, 2, bits(-0.0)], 1),
            ([1, 2, bits(-1.0)], 2),
            ([1, 2, NAN], 2),
        ],
    );
    check(
        "setp.lo.u32 %p1, %w1, %w2; @!%p1 mov.u32 %w0, 7;",
        "w0",
        &[([minus, 0], 7), ([0, 1], 0)],
    );
}

#[test]
fn conversions_extend_saturate_and_round() {
    let minus = u64::from(u32::MAX);
    check("cvt.s64.s32 %x0, %w1;", "x0", &[([minus], u64::MAX)]);
    check("cvt.u16.u32 %h0, %w1;", "h0", &[([0x1_2345], 0x2345)]);
    check(
        "cvt.s32.s8 %w0, %w1;",
        "w0",
        &[([0x1ff], minus), ([0x7f], 0x7f)],
    );
    check(
        "cvt.sat.u8.s32 %w0, %w1;",
        "w0",
        &[([minus], 0), ([300], 255)],
    );
    check("cvt.sat.s16.u32 %w0, %w1;", "w0", &[([40_000], 32_767)]);
    check(
        "cvt.sat.s32.s64 %w0, %x1;",
        "w0",
        &[
            ([1 << 40], 0x7fff_ffff),
            ([0_u64.wrapping_sub(1 << 40)], 0x8000_0000),
        ],
    );
    check(
        "cvt.rni.s32.f32 %w0, %w1;",
        "w0",
        &[
            ([bits(2.5)], 2),
            ([bits(-3.5)], minus - 3),
            ([NAN], 0),
            ([bits(1e20)], 0x7fff_ffff),
        ],
    );
    check(
        "cvt.rmi.s16.f32 %h0, %w1;",
        "h0",
        &[([bits(-1.5)], 0xfffe), ([bits(-1e9)], 0x8000)],
    );
    check(
        "cvt.rzi.u64.f64 %x0, %x1;",
        "x0",
        &[
            ([1.9e10_f64.to_bits()], 19_000_000_000),
            ([(-1.0_f64).to_bits()], 0),
        ],
    );
    check(
        "cvt.rpi.f32.f32 %w0, %w1;",
        "w0",
        &[([bits(-0.5)], bits(-0.0)), ([bits(1.25)], bits(2.0))],
    );
    check(
        "cvt.rn.f32.u64 %w0, %x1;",
        "w0",
        &[([(1 << 40) + (1 << 16) + 1], bits(1_099_511_758_848.0))],
    );
    check(
        "cvt.rz.f32.s32 %w0, %w1;",
        "w0",
        &[([0x7fff_ffff], bits(2_147_483_520.0))],
    );
    check(
        "cvt.rm.f32.f64 %w0, %x1;",
        "w0",
        &[([0.1_f64.to_bits()], bits(0.1_f32) - 1)],
    );
    check(
        "cvt.rn.f16.f32 %h0, %w1;",
        "h0",
        &[
            ([bits(65_520.0)], 0x7c00),
            ([bits(6e-8)], 1),
            ([NAN], 0x7fff),
        ],
    );
    check(
        "cvt.rn.bf16x2.f32 %w0, %w1, %w2;",
        "w0",
        &[([bits(1.0), bits(-2.0)], 0x3f80_c000)],
    );
    check(
        "cvt.rn.satfinite.e4m3x2.f32 %h0, %w1, %w2;",
        "h0",
        &[([bits(1e9), bits(-1.0)], 0x7eb8)],
    );
    check(
        "cvt.sat.f32.f32 %w0, %w1;",
        "w0",
        &[([bits(7.0)], bits(1.0)), ([NAN], 0)],
    );
}

#[test]
fn registers_are_packed_and_unpacked() {
    check(
        "mov.b32 {%h1, %h2}, %w1; mov.b32 %w0, {%h2, %h1};",
        "w0",
        &[([0x1234_5678], 0x5678_1234)],
    );
    check("mov.b64 %x0, {%w2, %w1};", "x0", &[([1, 2], 1 << 32 | 2)]);
    check(
        "mov.b64 {%h1, %h2, %h3, %h4}, %x1; mov.b64 %x0, {%h4, %h3, %h2, %h1};",
        "x0",
        &[([0x1111_2222_3333_4444], 0x4444_3333_2222_1111)],
    );
    check("mov.b64 {_, %w0}, %x1;", "w0", &[([5 << 32], 5)]);
}

#[test]
fn halves_compute_with_one_rounding() {
    check(
        "add.f16 %h0, %h1, %h2;",
        "h0",
        &[([0x3c00, 0x3c00], 0x4000), ([0x7bff, 0x7bff], 0x7c00)],
    );
    check(
        "fma.rn.f16x2 %w0, %w1, %w2, %w3;",
        "w0",
        &[([0x4000_3c00, 0x4000_3c00, 0x3c00_3c00], 0x4500_4000)],
    );
    check(
        "max.bf16 %h0, %h1, %h2;",
        "h0",
        &[([0x7fc0, 0x3f80], 0x3f80)],
    );
    check(
        "sub.bf16x2 %w0, %w1, %w2;",
        "w0",
        &[([0x4040_3f80, 0x3f80_3f80], 0x4000_0000)],
    );
    check(
        "setp.lt.f16 %p1, %h1, %h2; selp.u32 %w0, 1, 0, %p1;",
        "w0",
        &[([0x3c00, 0x4000], 1), ([0x7e00, 0x4000], 0)],
    );
}

#[test]
fn what_the_isa_leaves_open_is_as_on_an_h200() {
    let max = u64::from(u32::MAX);
    check("rem.u32 %w0, %w1, %w2;", "w0", &[([7, 0], max)]);
    check("div.s64 %x0, %x1, %x2;", "x0", &[([7, 0], u64::MAX)]);
    check(
        "bfe.u64 %x0, %x1, %w2, %w3;",
        "x0",
        &[([0x2bdc_069e, 2, 0x8000], 0x0af7_01a7)],
    );
    check(
        "cvt.rni.s8.f64 %w0, %x1;",
        "w0",
        &[([f64::NAN.to_bits()], 0xffff_ff80)],
    );
    check("cvt.rzi.u64.f32 %x0, %w1;", "x0", &[([NAN], 1 << 63)]);
    check(
        "cvt.rn.f32.f64 %w0, %x1;",
        "w0",
        &[([0xfff8_2468_a000_006e], 0xffc1_2345)],
    );
    check(
        "neg.f64 %x0, %x1;",
        "x0",
        &[([0x7ff8_0000_0000_00c6], 0x7ff8_0000_0000_00c6)],
    );
    check(
        "neg.f16 %h0, %h1;",
        "h0",
        &[([0x7e00], 0x7fff), ([0x3c00], 0xbc00)],
    );
    check(
        "cvt.f64.f16 %x0, %h1;",
        "x0",
        &[([0x7c01], 0x7ff8_0400_0000_0000)],
    );
    let minus_zero = bits(-0.0);
    check(
        "fma.rm.f32 %w0, %w1, %w2, %w3;",
        "w0",
        &[([0xa5f2_7158, 0x82dd_98bd, minus_zero], 0)],
    );
    check(
        "div.approx.f32 %w0, %w1, %w2;",
        "w0",
        &[([0xfc3c_5b0f, 0x7f7f_ffff], minus_zero)],
    );
    check(
        "testp.normal.f32 %p1, %w1; selp.u32 %w0, 1, 0, %p1;",
        "w0",
        &[([0], 1), ([1], 0)],
    );
}

/// Addresses of the first half of a warp that follow each other and of the second that do not, or agree, in a register that the
/// load replaces.
#[test]
fn a_load_may_replace_its_own_address() {
    let places = |lane: u32| match lane {
        0..16 => [lane; 2],
        _ => [lane ^ 5, 3],
    };
    for (which, pick) in ["xor.b32 %r1, %t, 5;", "mov.u32 %r1, 3;"]
        .into_iter()
        .enumerate()
    {
        let text = entry(&format!(
            ".shared .align 4 .b8 s[128]; mov.u32 %r2, s; shl.b32 %r3, %t, 2; add.u32 %r3, %r3, %r2;
mad.lo.u32 %r4, %t, 1000, 7; st.shared.u32 [%r3], %r4; bar.warp.sync -1;
{pick} setp.lt.u32 %p1, %t, 16; selp.b32 %r1, %t, %r1, %p1; shl.b32 %r1, %r1, 2; add.u32 %r1, %r1, %r2;
ld.shared.u32 %r1, [%r1]; st.u32 [%o], %r1; ret;"
        ));
        let found = Bench::new(1).words(&text, block(32), 32).unwrap();
        let want: Vec<u32> = (0..32).map(|lane| places(lane)[which] * 1000 + 7).collect();
        assert_eq!(found, want, "{pick}");
    }
}
