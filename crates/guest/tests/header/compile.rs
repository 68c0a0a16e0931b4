//! The header through the compilers that `.ci/install-debian.sh` installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use abi::argv::{Arg, encode};

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"];

/// The compilers and languages that the header is for: a WebAssembly one each, and native ones.
const COMPILERS: &[(&str, &[&str])] = &[
    ("clang", &["--target=wasm32", "-ffreestanding", "-std=c11"]),
    (
        "clang",
        &["--target=wasm32", "-ffreestanding", "-xc++", "-std=c++17"],
    ),
    ("clang", &["-std=c11"]),
    ("clang", &["-xc++", "-std=c++17"]),
    ("gcc", &["-std=c11"]),
    ("g++", &["-xc++", "-std=c++17"]),
];

/// Those whose programs run here.
const NATIVE: &[(&str, &[&str])] = &[("gcc", &["-std=c11"]), ("g++", &["-xc++", "-std=c++17"])];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(compiler: &str, arguments: &[&str], more: &[&Path]) -> Output {
    Command::new(compiler)
        .args(arguments)
        .arg("-I")
        .arg(folder().join("include"))
        .args(more)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; .ci/install-debian.sh installs it"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file of this test's own.
fn file(name: &str, contents: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, contents).unwrap();
    path
}

#[test]
fn compilers_take_it_without_a_warning() {
    let all = folder().join("tests/header/every_helper.c");
    for (compiler, language) in COMPILERS {
        let arguments = [language, &WARNINGS[..], &["-fsyntax-only"]].concat();
        let output = run(compiler, &arguments, &[&all]);
        assert!(
            output.status.success(),
            "{compiler} {arguments:?}: {}",
            text(&output)
        );
    }
}

#[test]
fn arguments_are_the_bytes_of_the_abi() {
    let pair: Vec<u8> = [1.0_f32, 2.0]
        .iter()
        .flat_map(|f| f.to_le_bytes())
        .collect();
    let args = [
        Arg::Ptr {
            offset: 0x1000,
            len: 256,
        },
        Arg::Ptr { offset: 0, len: 0 },
        Arg::I32(-2),
        Arg::U32(0xffff_fffe),
        Arg::I64(-3),
        Arg::U64(1 << 63),
        Arg::F32(0.5),
        Arg::F64(-0.25),
        Arg::Buffer {
            handle: 77,
            offset: 1 << 40,
        },
        Arg::Bytes(&pair),
    ];
    let mut bytes = [0; 256];
    let len = encode(&args, &mut bytes).unwrap();
    let hex: String = bytes[..len]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let expected = format!(
        "launch 5: 1 2 3, 4 5 6, 7: {hex}\n\
         cooperative 5: 8 9 1, 10 1 1, 0: \n\
         a null with a length: InvalidPointer\n\
         too many: KernelArgsUnsupported\n\
         too long: KernelArgsUnsupported\n\
         text: what went wrong\n\
         code -99: an unknown code\n"
    );
    let source = folder().join("tests/header/every_helper.c");
    for (compiler, language) in NATIVE {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("header-{compiler}"));
        let arguments = [language, &["-DHOST", "-O1"][..]].concat();
        let output = run(compiler, &arguments, &[Path::new("-o"), &program, &source]);
        assert!(output.status.success(), "{compiler}: {}", text(&output));
        let output = Command::new(&program).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed, expected, "{compiler}");
    }
}

#[test]
fn mistakes_with_arguments_do_not_compile() {
    let mistakes = [
        ("a_bare_number", "WASI_CUDA_ARGS(n)"),
        ("a_bare_pointer", "WASI_CUDA_ARGS(data)"),
        (
            "elements_of_no_type",
            "WASI_CUDA_ARGS(WASI_CUDA_ELEMENTS((void *)data, 4))",
        ),
        (
            "a_pointer_as_a_number",
            "WASI_CUDA_ARGS(wasi_cuda_u32(data))",
        ),
        ("no_list", "wasi_cuda_u32(n)"),
    ];
    let right = (
        "right",
        "WASI_CUDA_ARGS(WASI_CUDA_ELEMENTS(data, 4), wasi_cuda_u32(n))",
    );
    for (name, args) in mistakes.into_iter().chain([right]) {
        let source = file(
            &format!("mistake-{name}.c"),
            &format!(
                "#include \"wasi_cuda.h\"\n\
                 int32_t go(int64_t kernel, float *data, uint32_t n);\n\
                 int32_t go(int64_t kernel, float *data, uint32_t n) {{\n\
                     (void)data; (void)n;\n\
                     return wasi_cuda_run(kernel, wasi_cuda_x(1), wasi_cuda_x(n), 0, {args});\n\
                 }}\n"
            ),
        );
        for (compiler, language) in COMPILERS {
            let arguments = [language, &WARNINGS[..], &["-fsyntax-only"]].concat();
            let output = run(compiler, &arguments, &[&source]);
            assert_eq!(
                output.status.success(),
                name == "right",
                "{name}: {compiler} {language:?}: {}",
                text(&output)
            );
        }
    }
}
