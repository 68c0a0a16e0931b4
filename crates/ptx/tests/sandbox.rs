//! The corpus through the rewriter: each file is confined in every form and read again, or refused for the reason that is written here; what is
//! printed is accepted by NVIDIA's assembler for several architectures, where there is one (`.ci/install-ptxas.sh` gets it; without, those
//! tests are reported as ignored).

mod fixtures;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use wasi_cuda_ptx::{self as ptx, ConfineOptions, Level, WindowForm};

/// Names another assembler than the one that `.ci/install-ptxas.sh` installs.
const PTXAS_VARIABLE: &str = "WASI_CUDA_PTXAS";

/// Every way to confine.
const OPTIONS: [(&str, Level, WindowForm); 4] = [
    ("confined.masked", Level::Confined, WindowForm::Masked),
    ("confined.whole", Level::Confined, WindowForm::Whole),
    ("trapping.masked", Level::Trapping, WindowForm::Masked),
    ("trapping.whole", Level::Trapping, WindowForm::Whole),
];

/// Files that are refused, and why.
const REFUSED: [(&str, &str); 11] = [
    (
        "cuda/cdp.sm_90.ptx",
        "line 63, column 2: `mov.u64` cannot be confined: functions have no addresses here",
    ),
    (
        "cuda/cluster_dsmem.sm_90.ptx",
        "line 21, column 1: `explicitcluster` cannot be confined: clusters reach other blocks",
    ),
    (
        "cuda/coop_grid.sm_80.ptx",
        "line 33, column 2: `%envreg2` cannot be confined: this special register is not read",
    ),
    (
        "cuda/dev_malloc.sm_75.ptx",
        "line 44, column 2: `malloc` cannot be confined: it is a function of the system's or of another module",
    ),
    (
        "cuda/func_ptr.sm_75.ptx",
        "line 131, column 16: `.callprototype` cannot be confined: only named functions are called",
    ),
    (
        "cuda/inline_asm.sm_80.ptx",
        "line 71, column 2: `bar.sync` cannot be confined: only barrier 0 for all threads of the block is waited for",
    ),
    (
        "cuda/printf_k.sm_75.ptx",
        "line 74, column 2: `vprintf` cannot be confined: it is a function of the system's or of another module",
    ),
    (
        "cuda/texture.sm_75.ptx",
        "line 49, column 2: `tex.2d.v4.f32.f32` cannot be confined: textures and surfaces are opaque handles",
    ),
    (
        "cuda/tma_bulk.sm_90.ptx",
        "line 37, column 2: `mbarrier.init.shared.b64` cannot be confined: a thread that waits on a barrier in memory cannot be stopped",
    ),
    (
        "cuda/wmma_gemm.sm_80.ptx",
        "line 79, column 2: `wmma.load.a.sync.aligned.row.m16n16k16.global.f16` cannot be confined: its stride decides what it reaches",
    ),
    (
        "triton/matmul.sm_90a.ptx",
        "line 402, column 2: `fence.proxy.async.shared::cta` cannot be confined: it orders copies that are refused themselves",
    ),
];

/// Instructions that are refused, and why. `%d`, `%r` and `%h` are registers of 64, 32 and 16 bits, `%p` is a predicate.
const INSTRUCTIONS: [(&str, &str); 34] = [
    (
        "alloca.u64 %d, 16",
        "`alloca.u64` cannot be confined: it moves the stack pointer",
    ),
    (
        "atom.global.add.noftz.L2::cache_hint.f16 %h, [%d], %h, %d",
        "`atom.global.add.noftz.L2::cache_hint.f16` cannot be confined: cache policies act beyond the guest's memory",
    ),
    (
        "bar.arrive 0, 32",
        "`bar.arrive` cannot be confined: only barrier 0 for all threads of the block is waited for",
    ),
    (
        "bar.sync 0, 32",
        "`bar.sync` cannot be confined: only barrier 0 for all threads of the block is waited for",
    ),
    (
        "bar.sync 1",
        "`bar.sync` cannot be confined: only barrier 0 for all threads of the block is waited for",
    ),
    (
        "bar.sync %r",
        "`bar.sync` cannot be confined: only barrier 0 for all threads of the block is waited for",
    ),
    (
        "bra TABLE",
        "`bra` cannot be confined: its label is a table",
    ),
    (
        "call elsewhere",
        "`elsewhere` cannot be confined: it is a function of the system's or of another module",
    ),
    ("call k", "`call` cannot be confined: it calls an entry"),
    (
        "cp.async.bulk.global.shared::cta.bulk_group [%d], [%r], 16",
        "`cp.async.bulk.global.shared::cta.bulk_group` cannot be confined: its extent or descriptor decides what it reaches",
    ),
    (
        "cvta.const.u64 %d, %d",
        "`cvta.const.u64` cannot be confined: it has a modifier that is not in the table of instructions",
    ),
    (
        "cvta.param.u64 %d, n",
        "`cvta.param.u64` cannot be confined: it has a modifier that is not in the table of instructions",
    ),
    (
        "discard.global.L2 [%d], 128",
        "`discard.global.L2` cannot be confined: it acts on cache lines, which can be wider than the guest's memory",
    ),
    (
        "frobnicate %r",
        "`frobnicate` cannot be confined: it is not in the table of instructions",
    ),
    (
        "isspacep.param %p, %d",
        "`isspacep.param` cannot be confined: it has a modifier that is not in the table of instructions",
    ),
    (
        "ld.const.u32 %r, [variable]",
        "`ld.const.u32` cannot be confined: the variable is in another space",
    ),
    (
        "ld.global.u32 %r, [%h]",
        "`ld.global.u32` cannot be confined: an address has 32 or 64 bits",
    ),
    (
        "ld.global.u32 %r, [elsewhere_too]",
        "`ld.global.u32` cannot be confined: the variable is defined elsewhere",
    ),
    (
        "ld.param.u32 %r, [n+4]",
        "`ld.param.u32` cannot be confined: it reaches outside its variable",
    ),
    (
        "ld.param.u32 %r, [%d]",
        "`ld.param.u32` cannot be confined: it is not known which parameter it reaches",
    ),
    (
        "ld.shared::cluster.u32 %r, [%r]",
        "`ld.shared::cluster.u32` cannot be confined: it reaches other blocks",
    ),
    (
        "mapa.u64 %d, %d, %r",
        "`mapa.u64` cannot be confined: it reaches other blocks' shared memory",
    ),
    (
        "mbarrier.init.shared.b64 [%r], 1",
        "`mbarrier.init.shared.b64` cannot be confined: a thread that waits on a barrier in memory cannot be stopped",
    ),
    (
        "mov.u32 %r, %envreg1",
        "`%envreg1` cannot be confined: this special register is not read",
    ),
    (
        "mov.u64 %d, k",
        "`mov.u64` cannot be confined: functions have no addresses here",
    ),
    (
        "mov.u64 %d, END",
        "`mov.u64` cannot be confined: labels have no addresses here",
    ),
    (
        "multimem.red.global.add.u32 [%d], %r",
        "`multimem.red.global.add.u32` cannot be confined: it reaches memory of several devices",
    ),
    (
        "setmaxnreg.inc.sync.aligned.u32 32",
        "`setmaxnreg.inc.sync.aligned.u32` cannot be confined: it acts on other grids or on the block's resources",
    ),
    (
        "st.async.weak.shared::cluster.u32 [%r], %r",
        "`st.async.weak.shared::cluster.u32` cannot be confined: it has a modifier that is not in the table of instructions",
    ),
    (
        "st.param.u32 [n], %r",
        "`st.param.u32` cannot be confined: it stores to what the function was given",
    ),
    (
        "st.shared.u32 [small+400], %r",
        "`st.shared.u32` cannot be confined: it reaches outside its variable",
    ),
    (
        "tcgen05.alloc.cta_group::1.sync.aligned.b32 [%r], 32",
        "`tcgen05.alloc.cta_group::1.sync.aligned.b32` cannot be confined: a descriptor in a register says which shared memory it reads",
    ),
    (
        "tensormap.replace.tile.rank.global.b1024.b32 [%d], 1",
        "`tensormap.replace.tile.rank.global.b1024.b32` cannot be confined: it makes descriptors of memory",
    ),
    (
        "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%d], {%r}, %r",
        "`wmma.store.d.sync.aligned.row.m16n16k16.global.f32` cannot be confined: its stride decides what it reaches",
    ),
];

fn main() -> ExitCode {
    let assembler = assembler();
    let is_absent = assembler.is_none();
    let assembler = assembler.unwrap_or_default();
    let mut trials = Vec::new();
    for (path, source) in fixtures::corpus()
        .into_iter()
        .chain(fixtures::sandbox_filetests())
    {
        let name = fixtures::name(&path);
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            let trial = move || refused(&source, reason);
            trials.push(Trial::test(
                format!("{name} is refused with its reason"),
                trial,
            ));
            continue;
        }
        let (of_reading, of_assembling) = (source.clone(), source);
        trials.push(Trial::test(
            format!("{name} is confined and read again"),
            move || is_read_again(&of_reading),
        ));
        let assembler = assembler.clone();
        let trial = move || is_assembled(&assembler, &name, &of_assembling);
        let name = format!("{} is assembled when confined", fixtures::name(&path));
        trials.push(
            Trial::test(name, trial)
                .with_kind("ptxas")
                .with_ignored_flag(is_absent),
        );
    }
    for (instruction, reason) in INSTRUCTIONS {
        let trial = move || is_instruction_refused(instruction, reason);
        trials.push(Trial::test(format!("`{instruction}` is refused"), trial));
    }
    for (body, reason) in APART {
        let trial = move || is_apart_refused(body, reason);
        trials.push(Trial::test(format!("`{body}` is refused"), trial));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn assembler() -> Option<PathBuf> {
    let installed = fixtures::repository("target/ptxas/nvidia/cu13/bin/ptxas");
    env::var_os(PTXAS_VARIABLE)
        .map(PathBuf::from)
        .or_else(|| installed.exists().then_some(installed))
}

fn options(level: Level, window: WindowForm) -> ConfineOptions {
    ConfineOptions {
        level,
        window,
        clear_shared: level == Level::Trapping,
    }
}

fn refused(source: &[u8], reason: &str) -> Result<(), Failed> {
    let program = ptx::read(source)?;
    match ptx::confine(&program, options(Level::Confined, WindowForm::Whole)) {
        Ok(_) => Err("it was confined".into()),
        Err(error) if error.is_unsupported() && error.to_string() == reason => Ok(()),
        Err(error) => Err(error.render(source).into()),
    }
}

/// What is stored for a call, or given by it, apart from it.
const APART: [(&str, &str); 3] = [
    (
        "st.param.b32 [a], %r; L: call (g), f, (a);",
        "line 8, column 1: `st.param.b32` cannot be confined: a label, a branch or another call is between it and its call",
    ),
    (
        "st.param.b32 [a], %r; st.param.b32 [b], %r; call (g), f, (a); call (h), f, (b);",
        "line 8, column 23: `st.param.b32` cannot be confined: a label, a branch or another call is between it and its call",
    ),
    (
        "st.param.b32 [a], %r; call (g), f, (a); L: ld.param.b32 %r, [g];",
        "line 8, column 44: `ld.param.b32` cannot be confined: a label, a branch or another call is between it and its call",
    ),
];

fn is_apart_refused(body: &str, reason: &str) -> Result<(), Failed> {
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.func (.param .b32 o) f(.param .b32 i) {{ st.param.b32 [o], 1; ret; }}\n\
         .visible .entry k(.param .u32 n)\n{{\n.reg .b32 %r; .param .b32 a; .param .b32 b; .param .b32 g; .param .b32 h; ld.param.u32 %r, [n];\n\
         {body}\nret;\n}}\n"
    );
    refused(text.as_bytes(), reason)
}

fn is_instruction_refused(instruction: &str, reason: &str) -> Result<(), Failed> {
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.extern .func elsewhere();\n.extern .global .u32 elsewhere_too;\n\
         .global .u32 variable;\n.visible .entry k(.param .u32 n)\n{{\n.reg .b64 %d;\n.reg .b32 %r;\n.reg .b16 %h;\n.reg .pred %p;\n\
         .shared .u32 small;\nTABLE: .branchtargets END;\n{instruction};\nst.global.u64 [%d], %d;\nst.global.u32 [%d], %r;\nEND:\nret;\n}}\n"
    );
    refused(text.as_bytes(), &format!("line 15, column 1: {reason}"))
}

fn is_read_again(source: &[u8]) -> Result<(), Failed> {
    let program = ptx::read(source)?;
    for (form, level, window) in OPTIONS {
        let confined =
            ptx::confine(&program, options(level, window)).map_err(|error| error.render(source))?;
        let again = ptx::read(confined.text.as_bytes())
            .map_err(|error| format!("{form}: {}", error.render(confined.text.as_bytes())))?;
        if ptx::print(again.module()) != confined.text {
            return Err(format!("{form}: it is not as the printer prints it").into());
        }
        for (before, entry) in program.entries().iter().zip(&confined.map.entries) {
            let Some(after) = again.entry(&entry.printed) else {
                return Err(format!("{form}: {} is missing", before.entry).into());
            };
            let shape = |parameters: &[ptx::Parameter]| -> Vec<_> {
                let shape = |parameter: &ptx::Parameter| (parameter.offset, parameter.size);
                parameters.iter().map(shape).collect()
            };
            let (before, after) = (&before.parameters, &after.parameters);
            let hidden = after
                .iter()
                .rev()
                .take_while(|parameter| parameter.name.starts_with("wc_"));
            if shape(before) != shape(&after[..after.len() - hidden.count()]) {
                return Err(format!("{form}: the parameters of {} moved", entry.printed).into());
            }
        }
        let lines = confined.text.lines().count();
        let origins = confined.map.lines.len();
        if origins != lines {
            return Err(format!("{form}: {lines} lines have {origins} origins").into());
        }
        ptx::verify(confined).map_err(|error| format!("{form}: {error}"))?;
    }
    Ok(())
}

/// Architectures to assemble for: that of the file and later ones.
const ARCHITECTURES: [(u32, &str); 5] = [
    (75, "sm_75"),
    (80, "sm_80"),
    (86, "sm_86"),
    (89, "sm_89"),
    (90, "sm_90"),
];

fn is_assembled(assembler: &Path, name: &str, source: &[u8]) -> Result<(), Failed> {
    let program = ptx::read(source)?;
    let target = name
        .split('.')
        .find_map(|part| part.strip_prefix("sm_"))
        .unwrap_or("90");
    let least: u32 = target.trim_end_matches('a').parse()?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("confined")
        .join(name);
    fs::create_dir_all(&folder)?;
    for (form, level, window) in OPTIONS {
        let confined =
            ptx::confine(&program, options(level, window)).map_err(|error| error.render(source))?;
        let path = folder.join(format!("{form}.ptx"));
        fs::write(&path, confined.text)?;
        let own = format!("sm_{target}");
        let mut later = ARCHITECTURES
            .iter()
            .filter(|(number, _)| *number > least && !target.ends_with('a'))
            .map(|(_, name)| *name);
        // The last of them stands for those between: what they take differs little.
        for architecture in std::iter::once(own.as_str()).chain(later.next_back()) {
            let output = Command::new(assembler)
                .arg(format!("-arch={architecture}"))
                .arg("-o")
                .arg(folder.join("object.cubin"))
                .arg(&path)
                .output()?;
            if !output.status.success() {
                let messages = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("{}, {architecture}\n{messages}", path.display()).into());
            }
        }
    }
    Ok(())
}
