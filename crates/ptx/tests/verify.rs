//! The texts of `filetests/verify` are accepted, one of each idiom; changed in one place, they are refused.

mod fixtures;

use std::fs;

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::sample::{Index, select};
use proptest::test_runner::Config;
use wasi_cuda_ptx as ptx;

use fixtures::{confined, confined_texts as texts};
use ptx::{LaunchNeeds, WindowForm};

#[test]
fn every_idiom_is_accepted() {
    for (name, text) in texts() {
        if let Err(error) = ptx::verify(confined(&text, &text)) {
            let line = text.lines().nth(error.line.max(1) as usize - 1).unwrap();
            panic!("{name}: {error}\n{line}");
        }
    }
}

#[test]
fn needs_are_those_of_all_that_an_entry_calls() {
    let texts = texts();
    let verified = |name: &str| ptx::verify(confined(&texts[name], &texts[name])).unwrap();
    let blocks = verified("blocks");
    assert_eq!(blocks.needs(0), LaunchNeeds::default());
    assert_eq!(blocks.needs(1).dynamic_padding, Some(128));
    assert_eq!(blocks.window(), WindowForm::Whole);
    assert_eq!(verified("calls").needs(0).call_depth, 64);
    assert_eq!(verified("masked").window(), WindowForm::Masked);
}

/// A change of a text: the text, what is replaced (the first time it is there) and by what.
type Change = (&'static str, &'static str, &'static str);

/// Each makes a text that has to be refused.
#[rustfmt::skip]
const REFUSED: &[Change] = &[
    // The header.
    ("whole", ".target sm_80", ".target sm_80, texmode_independent"),
    ("whole", ".target sm_80", ".target lm_80"),
    // The top level.
    ("whole", "\n.visible .entry", "\n.global .align 4 .b8 g77[4];\n\n.visible .entry"),
    ("whole", "\n.visible .entry", "\n.extern .global .align 4 .b8 g77[4];\n\n.visible .entry"),
    ("whole", "\n.visible .entry", "\n.extern .func (.param .b32 g70) vprintf(\n    .param .b64 g71\n);\n\n.visible .entry"),
    ("whole", "\n.visible .entry", "\n.func g77();\n\n.visible .entry"),
    ("calls", "\n.visible .entry", "\n.alias g77, g11;\n\n.visible .entry"),
    ("whole", ".visible .entry", ".weak .entry"),
    ("calls", ".func (.param .b32 g10) g11(", ".visible .func (.param .b32 g10) g11("),
    ("whole", ".visible .entry g1(", ".visible .entry main("),
    ("masked", ".maxntid 128, 1, 1", ".reqnctapercluster 2, 1, 1"),
    ("masked", ".maxntid 128, 1, 1", ".maxntid 128, 1, 1\n.explicitcluster"),
    ("blocks", "= {1, 2, 3, 4}", "= {1, 2, 3, 256}"),
    ("blocks", ".const .align 64", ".const .align 32"),
    ("blocks", ".shared .align 128", ".shared .align 8"),
    ("blocks", ".shared .align 128 .b8 wc_shared0", ".visible .shared .align 128 .b8 wc_shared0"),
    ("blocks", "wc_dynamic[];", "wc_dynamic[64];"),
    ("blocks", ".local .align 128", ".local .align 16"),
    // Declarations of functions.
    ("whole", "    .reg .b32 %wl1;\n", "    .reg .b32 %wl1;\n    .reg .b32 %h1;\n"),
    ("whole", "    .reg .b32 %wl1;\n", "    .reg .b32 %wl1;\n    .reg .b32 %wk<4>;\n"),
    ("whole", "    .reg .b64 %wa1;\n", "    .reg .b32 %wa1;\n"),
    ("whole", "    .reg .b64 %wbase;\n", "    .reg .b32 %wbase;\n"),
    ("whole", "    ld.global.v4.f32", "    .reg .b64 %g99;\n    ld.global.v4.f32"),
    ("whole", ".param .u64 g2,", ".param .u64 .ptr .global .align 16 g2,"),
    ("whole", ".param .u64 g2,", ".param .u32 g2,"),
    ("whole", ".param .align 8 .b8 g3[24]", ".param .align 8 .b8 g3[32]"),
    ("whole", ".param .align 8 .b8 g3[24]", ".param .align 4 .b8 g3[24]"),
    ("whole", ".param .u64 g2,", ".param .u64 g77,\n    .param .u64 g2,"),
    ("whole", "    .param .u64 wc_base,\n    .param .u64 wc_control,\n", "    .param .u64 wc_control,\n    .param .u64 wc_base,\n"),
    ("whole", "    .param .u32 wc_globals,\n", ""),
    ("whole", ".param .u32 wc_mask", ".param .u32 wc_mask,\n    .param .u32 g77"),
    ("whole", ".param .u32 wc_mask", ".param .u64 wc_mask"),
    ("calls", "    .reg .b32 %wlocal,\n    .reg .b32 %wdepth\n)\n{", "    .reg .b32 %wdepth,\n    .reg .b32 %wlocal\n)\n{"),
    ("calls", "    .reg .b32 %wtok,\n    .reg .b32 %wlocal,\n    .reg .b32 %wdepth\n)\n{", "    .reg .b32 %wlocal,\n    .reg .b32 %wdepth\n)\n{"),
    // Reserved names in an inner scope, and in the way of others.
    ("whole", "    ld.global.v4", "    {\n        .reg .b64 %wa1;\n    }\n    ld.global.v4"),
    ("blocks", "    .reg .b32 %wl1;\n", "    .reg .b32 %wl1;\n    .param .b32 wc_shared0;\n"),
    ("blocks", "    .reg .b32 %wl1;\n", "    .reg .b32 %wl1;\n    .shared .align 128 .b8 wc_shared9[64];\n"),
    // Hidden parameters.
    ("whole", "ld.param.u64 %wbase, [wc_base];", "ld.param.u64 %wbase, [wc_control];"),
    ("whole", "ld.param.u64 %wbase, [wc_base];", "ld.param.u64 %wbase, [wc_base+8];"),
    ("whole", "ld.param.u64 %wbase, [wc_base];", "ld.param.u64 %wbase, [g2];"),
    ("whole", "ld.param.u64 %wbase, [wc_base];", "mov.u64 %wbase, 0;"),
    ("whole", "ld.param.u64 %g1, [g2];", "ld.param.u64 %g1, [wc_base];"),
    ("whole", "ld.param.u64 %g1, [g2];", "mov.b64 %g1, %wbase;"),
    ("whole", "ld.param.u64 %g1, [g2];", "mov.b64 %g1, %wctl;"),
    ("whole", "ld.param.u64 %g1, [g2];", "mov.b64 %g1, {%wlow, %whi};"),
    ("whole", "ld.param.u64 %g1, [g2];", "ld.param.u64 %g1, [g2];\n    ld.param.u64 %wbase, [wc_base];"),
    ("whole", "ld.param.u64 %g1, [g2];", "ld.param.u64 %g1, [g2];\n    st.param.u64 [wc_base], %g1;"),
    ("whole", "ld.param.u64 %g1, [g2];", "ld.param.u64 %g1, [g2+8];"),
    ("whole", "ld.param.u32 %g2, [g3+4];", "ld.param.u32 %g2, [g3+24];"),
    ("whole", "ld.param.u32 %g2, [g3+4];", "ld.param.u32 %g2, [g3+-4];"),
    ("whole", "ld.param.u32 %g2, [g3+4];", "ld.param.u32 %g2, [g3+2];"),
    // The guard of an access in the whole window: dropped, elsewhere, predicated, with a label between, of another width.
    ("whole", "    and.b32 %wl1, %g6, -16;\n", ""),
    ("whole", "    mov.b64 %wa1, {%wl1, %whi};\n", ""),
    ("whole", "and.b32 %wl1, %g6, -16;", "and.b32 %wx1, %g6, -16;"),
    ("whole", "and.b32 %wl1, %g6, -16;", "@%wx and.b32 %wl1, %g6, -16;"),
    ("whole", "mov.b64 %wa1, {%wl1, %whi};", "@%wx mov.b64 %wa1, {%wl1, %whi};"),
    ("whole", "mov.b64 %wa1, {%wl1, %whi};", "mov.b64 %wa1, {%g6, %whi};"),
    ("whole", "mov.b64 %wa1, {%wl1, %whi};", "mov.b64 %wa1, {%wl1, %g6};"),
    ("whole", "mov.b64 %wa1, {%wl1, %whi};", "mov.b64 %wa1, {%wl1, %wl1};"),
    ("whole", "mov.b64 %wa1, {%wl1, %whi};", "mov.b64 %wa1, {%wlow, %whi};"),
    ("whole", "mov.b64 %wa1, {%wl1, %whi};", "mov.b64 %wa1, {%whi, %wl1};"),
    ("whole", "mov.b64 %wa1, {%wl1, %whi};\n", "mov.b64 %wa1, {%wl1, %whi};\ng78:\n"),
    ("whole", "and.b32 %wl1, %g6, -16;\n", "and.b32 %wl1, %g6, -16;\ng78:\n"),
    ("whole", "mov.b64 %wa1, {%wl1, %whi};\n", "mov.b64 %wa1, {%wl1, %whi};\n    mov.b64 %wa1, %g1;\n"),
    ("whole", "mov.b64 %wa1, {%wl1, %whi};\n", "mov.b64 %wa1, {%wl1, %whi};\n    add.s64 %wa1, %wa1, 64;\n"),
    ("whole", "and.b32 %wl1, %g6, -16;\n", "and.b32 %wl1, %g6, -16;\n    add.s32 %wl1, %wl1, 1;\n"),
    ("whole", "and.b32 %wl1, %g6, -16;", "and.b32 %wl1, %g6, -8;"),
    ("whole", "and.b32 %wl1, %g6, -16;", "or.b32 %wl1, %g6, -16;"),
    ("whole", "and.b32 %wl1, %g6, -16;", "and.b32 %wl1, %g6, %g2;"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wa1+-4096];", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wa1+-4112];"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wa1+-4096];", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wa1+-4092];"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wa1+-4096];", "ld.global.v4.f32 {%g3, %g4, _, _}, [%g1];"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wa1+-4096];", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wbase];"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wa1+-4096];", "ld.global.v4.f32 {%g3, %g4, _, _}, [4096];"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wa1+-4096];", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wl1];"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}", "ld.global.v4.f64 {%g3, %g4, _, _}"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}", "ld.shared.v4.f32 {%g3, %g4, _, _}"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}", "ld.local.v4.f32 {%g3, %g4, _, _}"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}", "ld.shared::cluster.v4.f32 {%g3, %g4, _, _}"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}", "ld.mmio.relaxed.sys.global.v4.f32 {%g3, %g4, _, _}"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}, [%wa1+-4096];", "ld.global.L2::cache_hint.v4.f32 {%g3, %g4, _, _}, [%wa1+-4096], %g1;"),
    ("whole", "ld.global.v4.f32 {%g3, %g4, _, _}", "ld.global.v4.f32 {%g3, %g4, %wa2, _}"),
    ("whole", "[%wa1+4064], %g3;", "[%wa1+4096], %g3;"),
    ("whole", "[%wa1+4064], %g3;", "[%wa1+65536], %g3;"),
    ("whole", "[%wa1+4064], %g3;", "[%wa1+4062], %g3;"),
    ("whole", "mov.b64 %wa2, {%wl2, %whi};\n    st.global.u8 [%wa2+1]", "mov.b64 %wa2, {%wl2, %whi};\n    st.global.u16 [%wa2]"),
    ("whole", "atom.global.gpu.relaxed.add.u32 %g2, [%wa1+8], %g2;", "atom.global.gpu.relaxed.add.u32 %wl3, [%wa1+8], %g2;"),
    ("whole", "atom.global.gpu.relaxed.add.u32 %g2, [%wa1+8], %g2;", "atom.global.gpu.relaxed.add.u64 %g1, [%wa1+4], %g1;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "red.add.u32 [%wa3], 1;"),
    ("whole", "st.global.u8 [%wa2+1], %g2;", "st.u8 [%wa2+1], %g2;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "red.async.global.add.u32 [%wa3], 1;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "multimem.red.global.add.u32 [%wa3], 1;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "discard.global.L2 [%wa3], 128;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "applypriority.global.L2::evict_normal [%wa3], 128;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "trap;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "brkpt;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "pmevent 1;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "setmaxnreg.inc.sync.aligned.u32 64;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "griddepcontrol.wait;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "barrier.cluster.arrive;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "mapa.u64 %g1, %g1, 1;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "cvta.global.u64 %g1, %g1;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "cvta.param.u64 %g1, g2;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "mov.u64 %g1, g2;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "mov.u64 %g1, g1;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "mov.u32 %g2, %envreg3;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "alloca.u64 %g1, %g1;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "tex.1d.v4.f32.s32 {%g3, %g4, _, _}, [%g1, {%g2}];"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "isspacep.shared %g5, %g1;"),
    ("whole", "red.global.add.u32 [%wa3], 1;", "nobody.knows %g1;"),
    // The masked window.
    ("masked", "and.b32 %wl1, %g1, %wm4;", "and.b32 %wl1, %g1, %wmask;"),
    ("masked", "and.b32 %wl1, %g1, %wm4;", "and.b32 %wl1, %g1, -4;"),
    ("masked", "and.b32 %wl1, %g1, %wm4;", "and.b32 %wl1, %g1, %g5;"),
    ("masked", "and.b32 %wm4, %wmask, -4;", "or.b32 %wm4, %wmask, -4;"),
    ("masked", "and.b32 %wm4, %wmask, -4;", "and.b32 %wm4, %wmask, -2;"),
    ("masked", "and.b32 %wm4, %wmask, -4;", "and.b32 %wm4, %wmask, -5;"),
    ("masked", "and.b32 %wm4, %wmask, -4;", "mov.b32 %wm4, -4;"),
    ("masked", "and.b32 %wm4, %wmask, -4;", "and.b32 %wm4, %wone, -4;"),
    ("masked", "cvt.u64.u32 %wz1, %wl1;", "cvt.s64.s32 %wz1, %wl1;"),
    ("masked", "cvt.u64.u32 %wz1, %wl1;", "cvt.u64.u32 %wz1, %g1;"),
    ("masked", "add.u64 %wa1, %wbase, %wz1;", "add.u64 %wa1, %wctl, %wz1;"),
    ("masked", "add.u64 %wa1, %wbase, %wz1;", "sub.u64 %wa1, %wbase, %wz1;"),
    ("masked", "add.u64 %wa1, %wbase, %wz1;", "add.u64 %wa1, %wz1, %wz1;"),
    ("masked", "add.u64 %wa1, %wbase, %wz1;", "mad.wide.u32 %wa1, %wl1, 1, %wbase;"),
    // Fuel, the word that says stop, the deadline and the control block; of BEGIN, METER and BACK see `verify_time.rs`.
    ("masked", "mov.s32 %wf, 2048;", "mov.s32 %wf, 2049;"),
    ("masked", "mov.s32 %wf, 2048;", "mov.s32 %wf, 1;"),
    ("masked", "mov.s32 %wf, 2048;", "mov.s32 %wf, -1;"),
    ("masked", "mov.s32 %wf, 2048;", "mov.u32 %wf, 2048;"),
    ("calls", "mov.s32 %wf, 0;", "mov.s32 %wf, 2048;"),
    ("masked", "mov.u32 %wone, 1;", "mov.u32 %wone, 0;"),
    ("masked", "mov.u32 %wone, 1;", "mov.u32 %wone, 65536;"),
    ("calls", "mov.u32 %wdepth, 0;", "mov.u32 %wdepth, 65536;"),
    ("masked", "ld.param.u64 %wstop, [wc_stop];", "ld.param.u64 %wstop, [wc_control];"),
    ("masked", "ld.param.u64 %wuntil, [wc_until];", "mov.u64 %wuntil, %wbase;"),
    ("masked", "ld.param.u64 %wuntil, [wc_until];", "ld.param.u64 %wuntil, [wc_stop];"),
    ("masked", "add.s32 %g2, %g2, 1;", "st.global.u32 [%wstop], %g2;"),
    ("masked", "add.s32 %g2, %g2, 1;", "ld.global.u32 %g2, [%wstop];"),
    ("masked", "add.s32 %g2, %g2, 1;", "mov.u64 %wuntil, %g3;"),
    ("masked", "add.s32 %g2, %g2, 1;", "mov.u64 %g3, %wstop;"),
    ("masked", "add.s32 %g2, %g2, 1;", "add.s32 %wf, %wf, 1;"),
    ("masked", "add.s32 %g2, %g2, 1;", "mov.s32 %wf, 0;"),
    ("masked", "add.s32 %g2, %g2, 1;", "st.global.u64 [%wctl], %g3;"),
    ("masked", "add.s32 %g2, %g2, 1;", "st.global.u32 [%wctl+4], %g2;"),
    ("masked", "add.s32 %g2, %g2, 1;", "st.global.u32 [%wctl+64], %g2;"),
    ("masked", "add.s32 %g2, %g2, 1;", "st.global.u64 [%wctl+60], %g3;"),
    ("masked", "add.s32 %g2, %g2, 1;", "st.global.u32 [%wctl+-4], %g2;"),
    ("masked", "add.s32 %g2, %g2, 1;", "st.u32 [%wctl+8], %g2;"),
    ("masked", "add.s32 %g2, %g2, 1;", "atom.global.add.u32 %g2, [%wctl+4], 1;"),
    ("masked", "add.s32 %g2, %g2, 1;", "mov.u32 %g2, %wu;"),
    ("masked", "add.s32 %g2, %g2, 1;", "mov.u32 %g2, %wu;"),
    ("masked", "add.s32 %g2, %g2, 1;", "mov.u64 %g3, %wuntil;"),
    ("masked", "add.s32 %g2, %g2, 1;", "mov.u64 %g3, %wt;"),
    ("masked", "add.s32 %g2, %g2, 1;", "setp.eq.u32 %wq, %g2, 0;"),
    ("masked", "    bar.sync 0;\n", "    @%wq bra g11;\n    bar.sync 0;\n"),
    // Waits and naps.
    ("masked", "bar.sync 0;", "bar.sync 1;"),
    ("masked", "bar.sync 0;", "bar.sync 0, 64;"),
    ("masked", "bar.sync 0;", "bar.sync %g1;"),
    ("masked", "bar.sync 0;", "bar.arrive 0, 64;"),
    ("masked", "bar.sync 0;", "barrier.cluster.wait;"),
    ("masked", "bar.sync 0;", "mbarrier.arrive.shared.b64 _, [%wa1];"),
    ("masked", "sub.s32 %wf, %wf, 65536;", "sub.s32 %wf, %wf, 65535;"),
    ("masked", "min.u32 %wl3, %g5, 1000;", "min.u32 %wl3, %g5, 1001;"),
    ("masked", "min.u32 %wl3, %g5, 1000;", "max.u32 %wl3, %g5, 1000;"),
    ("masked", "min.u32 %wl3, %g5, 1000;", "min.s32 %wl3, %g5, 1000;"),
    ("masked", "nanosleep.u32 %wl3;", "nanosleep.u32 %g5;"),
    ("masked", "nanosleep.u32 %wl3;", "nanosleep.u32 1000000;"),
    ("masked", "nanosleep.u32 %wl3;", "nanosleep.u32 %wl3;\n    nanosleep.u32 %wl3;"),
    ("masked", "shfl.sync.bfly.b32", "shfl.bfly.b32"),
    // Blocks.
    ("blocks", "wc_shared0[4112];", "wc_shared0[4111];"),
    ("blocks", "wc_const[16]", "wc_const[15]"),
    ("blocks", "wc_local[64];", "wc_local[63];"),
    ("blocks", "and.b32 %wl1, %g1, 4080;", "and.b32 %wl1, %g1, 8176;"),
    ("blocks", "and.b32 %wl1, %g1, 4080;", "and.b32 %wl1, %g1, 4088;"),
    ("blocks", "and.b32 %wl1, %g1, 4080;", "and.b32 %wl1, %g1, -16;"),
    ("blocks", "[wc_shared0+4108]", "[wc_shared0+4112]"),
    ("blocks", "[wc_shared0+4108]", "[wc_shared0+-4]"),
    ("blocks", "[wc_shared0+4108]", "[wc_shared0+4106]"),
    ("blocks", "[wc_shared0+4108]", "[wc_dynamic]"),
    ("blocks", "[wc_shared0+4108]", "[%wcb]"),
    ("blocks", "[%ws1+16];", "[%ws1+32];"),
    ("blocks", "add.u32 %ws1, %wl1, %wsb;", "add.u32 %ws1, %wl1, %wlb;"),
    ("blocks", "add.u32 %ws1, %wl1, %wsb;", "add.u32 %ws1, %wl1, %wl1;"),
    ("blocks", "add.u32 %ws1, %wl1, %wsb;", "add.u32 %ws1, %g1, %wsb;"),
    ("blocks", "add.u32 %ws1, %wl1, %wsb;", "sub.u32 %ws1, %wsb, %wl1;"),
    ("blocks", "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%g1, %g2}, [%ws1];", "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%g1, %g2}, [%ws1+8];"),
    ("blocks", "ldmatrix.sync.aligned.m8n8", "ldmatrix.sync.aligned.m16n16"),
    ("blocks", "cp.async.cg.shared.global [%ws1], [%wa1], 16;", "cp.async.cg.shared.global [%ws1], [%wz1], 16;"),
    ("blocks", "cp.async.cg.shared.global [%ws1], [%wa1], 16;", "cp.async.cg.shared.global [%wa1], [%wa1], 16;"),
    ("blocks", "cp.async.cg.shared.global [%ws1], [%wa1], 16;", "cp.async.cg.shared.global [%ws1+32], [%wa1], 16;"),
    ("blocks", "cp.async.cg.shared.global [%ws1], [%wa1], 16;", "cp.async.cg.shared.global [%ws1], [%wa1], 32;"),
    ("blocks", "cp.async.cg.shared.global [%ws1], [%wa1], 16;", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%ws1], [%wa1], 16, [%ws1];"),
    ("blocks", "min.u32 %wl3, %g1, 16;", "min.u32 %wl3, %g1, 17;"),
    ("blocks", "[%wa1], 16, %wl3;", "[%wa1], 16, %g1;"),
    ("blocks", "min.u32 %wl4, %g2, 4104;", "min.u32 %wl4, %g2, 4120;"),
    ("blocks", "and.b32 %wl5, %wl4, -8;", "and.b32 %wl5, %wl4, -2;"),
    ("blocks", "and.b32 %wl5, %wl4, -8;", "and.b32 %wl5, %g2, -8;"),
    ("blocks", "min.u32 %wl6, %g3, 15;", "min.u32 %wl6, %g3, 16;"),
    ("blocks", "ld.const.u32 %g3, [wc_const+4];", "ld.const.u32 %g3, [wc_const+16];"),
    ("blocks", "ld.const.u32 %g3, [wc_const+4];", "ld.const.u32 %g3, [%wz1];"),
    ("blocks", "ld.const.u8 %g3, [%wc1];", "ld.global.u8 %g3, [%wc1];"),
    ("blocks", "ld.const.u8 %g3, [%wc1];", "ld.u8 %g3, [%wc1];"),
    ("blocks", "[wc_local+60]", "[wc_local+64]"),
    ("blocks", "and.b32 %wl8, %g3, 60;", "and.b32 %wl8, %g3, 124;"),
    ("blocks", "and.b32 %wl9, %g3, 0;", "and.b32 %wl9, %g3, 4;"),
    ("blocks", "mov.u64 %wpb1, g2;", "mov.u64 %wpb1, wc_base;"),
    ("blocks", "sub.u32 %wsm1, %wd, 128;", "sub.u32 %wsm1, %wd, 127;"),
    ("blocks", "sub.u32 %wsm1, %wd, 128;", "sub.u32 %wsm1, %wd, 0;"),
    ("blocks", "sub.u32 %wsm1, %wd, 128;", "add.u32 %wsm1, %wd, 128;"),
    ("blocks", "and.b32 %wsm8, %wsm1, -8;", "and.b32 %wsm8, %wsm1, -4;"),
    ("blocks", "mov.u32 %wd, %dynamic_smem_size;", "mov.u32 %wd, %total_smem_size;"),
    ("blocks", "[%ws20+120]", "[%ws20+128]"),
    ("blocks", "and.b32 %wl20, %g4, %wsm8;", "and.b32 %wl20, %g4, 1016;"),
    ("blocks", "mov.u32 %wsb, wc_dynamic;", "mov.u32 %wsb, wc_shared0;"),
    ("blocks", "    mov.u64 %g5, 7;\n", "    mov.u64 %g5, wc_dynamic;\n"),
    // Calls.
    ("calls", "@%wq call", "call"),
    ("calls", "@%wq call", "@!%wq call"),
    ("calls", "(g3, %wbase, %wctl,", "(g3, %wctl, %wbase,"),
    ("calls", "%wglob, %wmask, %wfirst, %wspan, %wtok, %wlocal, %wnd);", "%wmask, %wglob, %wfirst, %wspan, %wtok, %wlocal, %wnd);"),
    ("calls", "%wfirst, %wspan, %wtok, %wlocal, %wnd);", "%wspan, %wfirst, %wlocal, %wnd);"),
    ("calls", "%wspan, %wtok, %wlocal, %wnd);", "%wspan, %wtok, %wlocal, %wdepth);"),
    ("calls", "%wspan, %wtok, %wlocal, %wnd);", "%wspan, %g1, %wnd);"),
    ("calls", "%wglob, %wmask, %wfirst, %wspan, %wtok, %wlocal, %wnd);", "%wglob, -1, %wfirst, %wspan, %wtok, %wlocal, %wnd);"),
    ("calls", "(g3, %wbase", "(%wbase"),
    ("calls", "    setp.lt.and.u32 %wq, %wdepth, 64, %wq;\n", ""),
    ("calls", "setp.lt.and.u32 %wq, %wdepth, 64, %wq;", "setp.lt.and.u32 %wq, %wdepth, 4096, %wq;"),
    ("calls", "setp.lt.and.u32 %wq, %wdepth, 64, %wq;", "setp.lt.or.u32 %wq, %wdepth, 64, %wq;"),
    ("calls", "setp.lt.and.u32 %wq, %wdepth, 64, %wq;", "setp.gt.and.u32 %wq, %wdepth, 64, %wq;"),
    ("calls", "setp.lt.and.u32 %wq, %wdepth, 64, %wq;", "setp.lt.and.u32 %wq, %g1, 64, %wq;"),
    ("calls", "add.u32 %wnd, %wdepth, 1;", "add.u32 %wnd, %wdepth, 0;"),
    ("calls", "mov.u32 %wlocal, wc_local;", "mov.u32 %wlocal, 0;"),
    ("calls", "    st.param.b32 [g3+12], 0;\n", ""),
    ("calls", "st.param.b32 [g3+12], 0;", "@%wx st.param.b32 [g3+12], 0;"),
    ("calls", "st.param.b32 [g3+12], 0;", "st.param.b32 [g3+16], 0;"),
    ("calls", ".param .align 8 .b8 g3[16];", ".param .align 8 .b8 g3[24];"),
    ("calls", ".param .align 8 .b8 g3[16];", ".param .align 4 .b8 g3[16];"),
    ("calls", ".param .b32 g4;", ".param .b64 g4;"),
    ("calls", "    ld.param.u32 %g1, [g2];\n", "    ld.param.u32 %g1, [g4];\n"),
    ("calls", "    st.param.b32 [g10], %g3;\n", ""),
    ("calls", "ld.param.b64 %g4, [g12];", "ld.param.b64 %g4, [g12+16];"),
    ("calls", "ld.param.b64 %g4, [g12];", "st.param.b64 [g12], %wbase;"),
    ("calls", "call (g4), g11,", "call (g4), g1,"),
    ("calls", "call (g4), g11,", "call (g4), %g2,"),
    ("calls", "call (g4), g11,", "call.uni (g4), g11,"),
    ("calls", "add.u32 %wo1, %wl1, %wlocal;", "add.u32 %wo1, %wl1, %wglob;"),
    ("calls", "and.b32 %wl1, %g3, 252;", "and.b32 %wl1, %g3, 508;"),
    // Branches by number.
    ("table", "min.u32 %wl1, %g2, 2;", "min.u32 %wl1, %g2, 3;"),
    ("table", "brx.idx %wl1, g13;", "brx.idx %g2, g13;"),
    ("table", ".branchtargets g10, g11, g12;", ".branchtargets g10, wc_L12, g12;"),
    ("table", ".branchtargets g10, g11, g12;", ".branchtargets g10, g13, g12;"),
    ("table", "    setp.lt.s32 %wx, %wf, 0;\n    @%wx exit;\n    min.u32", "    min.u32"),
    ("table", "[%ws1];", "[%ws1+4];"),
    // Registers that may be unwritten.
    ("table", "    mov.u32 %g7, 0;\n", "    @%g4 mov.u32 %g7, 0;\n"),
    ("table", "    mov.u32 %g7, 0;\n", ""),
    ("table", "    mov.u32 %g2, 0;\n", ""),
    ("masked", "    mov.u32 %g2, 0;\n", ""),
    ("masked", "    add.s32 %g2, %g2, 1;\n", "    addc.u32 %g2, %g2, 1;\n"),
    // Ends.
    ("table", "    exit;\n}", "}"),
    ("table", "    exit;\n}", "    @%g4 exit;\n}"),
    ("table", "    exit;\n}", "    bra g12;\n}"),
    ("table", "    exit;\n}", "    exit;\ng98:\n}"),
];

#[test]
fn a_change_in_one_place_is_refused() {
    let texts = texts();
    let mut accepted = Vec::new();
    for &(name, from, to) in REFUSED {
        let text = &texts[name];
        assert!(text.contains(from), "{name} has no `{from}`");
        let changed = text.replacen(from, to, 1);
        if ptx::verify(confined(&changed, text)).is_ok() {
            accepted.push(format!("{name}: `{from}` -> `{to}`"));
        }
    }
    assert!(accepted.is_empty(), "accepted:\n{}", accepted.join("\n"));
}

#[test]
fn nothing_is_loaded_that_is_not_in_the_tree() {
    let texts = texts();
    let text = &texts["whole"];
    let changed = text
        .replacen(
            "    ret;\n",
            "    .pragma \"nounroll\";\n/* ; */ ret; // }\n",
            1,
        )
        .replacen(
            ".visible .entry",
            ".file 1 \"name\"\n.section .text { }\n.visible .entry",
            1,
        )
        .replacen("%g6, %wx1;", "%g6,\t0x00 ;", 1);
    let mut confined = confined(&changed, text);
    let lines = u32::try_from(changed.lines().count()).unwrap();
    confined.map.lines = (1..=lines).map(|line| line * 10).collect();
    let verified = ptx::verify(confined).unwrap();
    let loaded = verified.program().source().unwrap();
    assert_eq!(loaded, text.replacen("%g6, %wx1;", "%g6, 0;", 1));
    // The map says where the lines of what is loaded come from.
    let line_of = |text: &str| text.lines().position(|line| line.contains("ret;")).unwrap();
    let written = u32::try_from(line_of(&changed) + 1).unwrap();
    assert_eq!(verified.map().lines[line_of(loaded)], written * 10);
}

/// A text with a line left out, a line twice, or two names of a line exchanged, and what was done.
fn mechanical(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let with = |index: usize, new: &[&str]| {
        let all = [&lines[..index], new, &lines[index + 1..]].concat();
        all.join("\n") + "\n"
    };
    let mut changed = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let shown = line.trim();
        if shown.is_empty() {
            continue;
        }
        changed.push((format!("without `{shown}`"), with(index, &[])));
        changed.push((format!("twice `{shown}`"), with(index, &[line, line])));
        if !line.starts_with("    ") || shown.starts_with('.') {
            continue;
        }
        let names: Vec<(usize, &str)> = line
            .match_indices('%')
            .map(|(start, _)| {
                let rest = &line[start + 1..];
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
                (start, &line[start..start + 1 + end.unwrap_or(rest.len())])
            })
            .collect();
        for (position, &(start, first)) in names.iter().enumerate() {
            for &(other, second) in &names[position + 1..] {
                if first == second {
                    continue;
                }
                let between = &line[start + first.len()..other];
                let rest = &line[other + second.len()..];
                let new = format!("{}{second}{between}{first}{rest}", &line[..start]);
                changed.push((
                    format!("`{}` for `{shown}`", new.trim()),
                    with(index, &[&new]),
                ));
            }
        }
    }
    changed
}

/// What is accepted of a line left out, doubled or with two names exchanged is listed beside the text, for a person to see that it is
/// confined all the same.
#[test]
fn of_mechanical_changes_those_listed_are_accepted() {
    for (name, text) in texts() {
        let accepted: Vec<String> = mechanical(&text)
            .into_iter()
            .filter(|(_, changed)| ptx::verify(confined(changed, &text)).is_ok())
            .map(|(what, _)| what + "\n")
            .collect();
        let accepted = accepted.concat();
        let path = format!("crates/ptx/filetests/verify/{name}.accepted");
        let path = fixtures::repository(&path);
        if std::env::var_os("BLESS").is_some() {
            fs::write(path, accepted).unwrap();
        } else {
            assert_eq!(fs::read_to_string(path).unwrap(), accepted, "{name}");
        }
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(512) })]

    #[test]
    fn any_lines_moved_end_as_a_program_or_a_refusal(
        text in select(texts().into_values().collect::<Vec<_>>()),
        moves in vec((any::<Index>(), any::<Index>()), 1..4),
    ) {
        let mut lines: Vec<&str> = text.lines().collect();
        for (from, to) in moves {
            let (from, to) = (from.index(lines.len()), to.index(lines.len()));
            let line = lines.remove(from);
            lines.insert(to, line);
        }
        drop(ptx::oracle::check_confined(&(lines.join("\n") + "\n")));
    }

    #[test]
    fn any_words_exchanged_end_as_a_program_or_a_refusal(
        text in select(texts().into_values().collect::<Vec<_>>()),
        swaps in vec((any::<Index>(), any::<Index>()), 1..4),
    ) {
        let mut words: Vec<&str> = text.split_inclusive([' ', '.', ',', ';', '\n']).collect();
        for (one, other) in swaps {
            let (one, other) = (one.index(words.len()), other.index(words.len()));
            words.swap(one, other);
        }
        drop(ptx::oracle::check_confined(&words.concat()));
    }

    #[test]
    fn any_text_ends_as_a_program_or_a_refusal(text in ".{0,200}") {
        drop(ptx::oracle::check_confined(&text));
        let header = ".version 8.0\n.target sm_80\n.address_size 64\n";
        drop(ptx::oracle::check_confined(&format!("{header}\n.visible .entry g1()\n{{\n{text}\n}}\n")));
    }
}
