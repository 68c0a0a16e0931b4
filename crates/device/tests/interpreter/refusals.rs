//! What has no meaning is refused at load, with its line, whatever is wrong with it.

use device::Error;

use crate::bench::{Bench, entry};

#[test]
fn operands_that_do_not_fit_are_refused() {
    let bench = Bench::new(1);
    let statements = [
        "add.s32 %r1, %r2, %x1;",
        "add.s32 %r1, %r2, %p1;",
        "add.s32 %r1, %r2, 1.5;",
        "add.f32 %r1, %r2, 1;",
        "add.s32 %r1, %r2;",
        "add.s32 %r1, %r2, %r3, %r4;",
        "add.s32 5, %r2, %r3;",
        "add.s32 {%r1, %r2}, %r3, %r4;",
        "add.s32 %tid.x, %r1, %r2;",
        "add.s32 %r1, %r2, [%x1];",
        "add %r1, %r2, %r3;",
        "add.s32.s32 %r1, %r2, %r3;",
        "add.b32 %p1, %p2, %p3;",
        "mov.u64 %x1, %r1;",
        "mov.u32 %r1, %tid;",
        "mov.u32 %r1, %tid.q;",
        "mov.b64 {%r1, %r2, %r3}, %x1;",
        "mov.b64 {%r1, %h2}, %x1;",
        "mov.b128 %x1, %x2;",
        "ld.u32 %h1, [%o];",
        "ld.v3.u32 {%r1, %r2, %r3}, [%o];",
        "ld.v2.u32 {%r1, %r2, %r3}, [%o];",
        "ld.v2.u32 {%r1, %x2}, [%o];",
        "ld.v2.u32 {_, _}, [%o];",
        "ld.v8.u64 {%x1, %x2, %x3, %x4, %x5, %x6, %x7, %x8}, [%o];",
        "ld.global.u32 %r1, [%r2];",
        "ld.u32 %r1, [%p1];",
        "ld.shared.u32 %r1, [out];",
        "st.param.u32 [out], %r1;",
        "st.const.u32 [%x1], %r1;",
        "st.v2.u32 [%o], {%r1};",
        "atom.add.f32 %r1, [%o], %r2, %r3;",
        "atom.cas.b32 %r1, [%o], %r2;",
        "atom.mul.u32 %r1, [%o], %r2;",
        "atom.local.add.u32 %r1, [%x1], %r2;",
        "cvt.u32.f32 %r1, %r2;",
        "cvt.rn.u32.u64 %r1, %x2;",
        "cvt.u64.u32 %r1, %r2;",
        "cvt.u32.u64 %r1, %r2;",
        "setp.lt.b32 %p1, %r1, %r2;",
        "setp.lt.and.s32 %p1, %r1, %r2;",
        "setp.zz.s32 %p1, %r1, %r2;",
        "selp.u32 %r1, %r2, %r3, %r4;",
        "shfl.sync.bfly.b64 %x1, %x2, 1, 31, -1;",
        "shfl.bfly.b32 %r1, %r2, 1, 31;",
        "bar.sync;",
        "bar.arrive 1;",
        "barrier.cluster.arrive 1;",
        "barrier.cluster.sync;",
        "mapa.global.u64 %x1, %x2, 0;",
        "mapa.u32 %r1, %r2, 0;",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2}, [%x1], 16;",
        "wmma.load.a.sync.aligned.row.m16n16k8.global.f16 {%r1}, [%x1], 16;",
        "bar.sync 1, 2, 3;",
        "cvta.u64 %x1, %x2;",
        "cp.async.ca.shared.global [%r1], [%x1], 5;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r2}, {%r3}, {%r4};",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2}, [%r3];",
        "lop3.b32 %r1, %r2, %r3, %r4;",
        "madc.lo.u64 %x1, %x2, %x3, %x4;",
        "fma.rz.f64 %x1, %x2, %x3, %x4;",
        "call (%r1), %x1, (%r2);",
        "brx.idx %r1, %r2;",
        "frobnicate.u32 %r1;",
        "mov.u32 %r1, k;",
    ];
    for statement in statements {
        let text = entry(&format!("{statement}\nret;"));
        let line = text.lines().position(|line| line == statement).unwrap() + 1;
        match bench.load(&text) {
            Err(Error::Unsupported {
                device: "cpu",
                line: found,
                what,
            }) => {
                assert_eq!(found as usize, line, "{statement}: {what}");
            }
            // What the front end refuses does not come so far.
            Err(Error::Ptx(_)) => {}
            Err(error) => panic!("{statement}: {error}"),
            Ok(_) => panic!("{statement} was let through"),
        }
    }
}

#[test]
fn programs_that_take_too_much_are_refused() {
    let bench = Bench::new(1);
    let texts = [
        entry(".local .align 8 .b8 l[400000]; .local .align 8 .b8 m[400000]; ret;"),
        entry(".shared .align 8 .b8 s[200000]; .shared .align 8 .b8 t[40000]; ret;"),
        {
            let uses: String = (0..9000)
                .map(|index| format!("add.u32 %q{index}, %q{index}, %t;\n"))
                .collect();
            entry(&format!(".reg .b32 %q<9000>;\n{uses} ret;"))
        },
    ];
    for text in texts {
        assert!(matches!(
            bench.load(&text),
            Err(Error::Unsupported { .. } | Error::Ptx(_))
        ));
    }
}

#[test]
fn registers_that_are_only_declared_take_no_room() {
    let program = Bench::new(1)
        .load(&entry(
            ".reg .b64 %many<1000000>; mov.u64 %many999999, %clock64; ret;",
        ))
        .unwrap();
    assert!(program.attributes().registers < 100);
}

#[test]
fn refusals_name_every_entry_that_would_not_load() {
    let text = format!(
        "{}\n.visible .entry bad() {{ frobnicate; ret; }}\n.visible .entry worse() {{ trap.x; }}",
        entry("ret;")
    );
    let refused = device::cpu::refusals(&ptx::read(text.as_bytes()).unwrap());
    let texts: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "line 9: `frobnicate` is not supported by the cpu device",
            "line 10: `trap.x` is not supported by the cpu device"
        ]
    );
}
