//! The binary as a user meets it: arguments, exit codes, what is on stdout and what on stderr. What the imports do is tested
//! where they are.
#![expect(
    clippy::unwrap_used,
    reason = "a test whose process or file fails has failed"
)]

mod command;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use command::{Ended, file, fixture, run, wasi_cuda};

/// What an endless guest is given.
const SHORT: &str = "300ms";
/// Far more than any of these guests takes.
const LONG: Duration = Duration::from_secs(60);

/// `run` on the device that is everywhere.
fn on_cpu(arguments: &[&str]) -> Ended {
    run(&[&["run", "--device", "cpu"], arguments].concat())
}

/// `(module …)` that imports `proc_exit` and starts with `body`.
fn exiting_guest(name: &str, body: &str) -> String {
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
            (memory (export "memory") 1)
            (func (export "_start") {body}))"#
    );
    file(name, text.as_bytes())
}

#[test]
fn vector_add_prints_what_the_kernel_wrote() {
    let guest = fixture("guests/vector_add.wat");
    let ended = on_cpu(&[&guest]).with(0).saying("wasi-cuda: device cpu: ");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [device, sums, verdict] = lines[..] else {
        panic!("three lines: {lines:?}");
    };
    assert!(device.starts_with("device: "));
    assert_eq!(
        sums,
        "vector_add on 64 elements: c[0]=100 c[1]=102 ... c[63]=226"
    );
    assert_eq!(verdict, "ok");
}

#[test]
fn a_guest_is_told_that_there_is_no_device() {
    let guest = fixture("guests/vector_add.wat");
    let ended = run(&["run", "--device", "none", &guest])
        .with(1)
        .saying("wasi-cuda: no device\n")
        .saying("vector_add: load_ptx answered -1: no device");
    assert_eq!(ended.stdout, "");
}

#[test]
fn quiet_does_not_say_which_device_is_used() {
    let guest = fixture("guests/vector_add.wat");
    let ended = on_cpu(&["--quiet", &guest]).with(0);
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_guest_runs_at_each_level_of_isolation() {
    let guest = fixture("guests/vector_add.wat");
    run(&["run", &guest]).with(0).saying("device ");
    for level in ["confined", "trapping"] {
        on_cpu(&["--isolation", level, &guest]).with(0);
    }
}

#[test]
fn exit_codes_of_guests_are_passed_through() {
    for code in [0, 1, 42, 125] {
        let body = format!("(call $proc_exit (i32.const {code}))");
        let guest = exiting_guest(&format!("exit_{code}.wat"), &body);
        on_cpu(&[&guest]).with(code);
    }
    let guest = exiting_guest("exit_126.wat", "(call $proc_exit (i32.const 126))");
    on_cpu(&[&guest]).with(126).saying("invalid exit status");
}

#[test]
fn a_trap_of_the_guest_is_shown_with_its_place() {
    let text = r#"(module $sums
        (func $inner unreachable)
        (func $outer (export "_start") (call $inner)))"#;
    let guest = file("trap.wat", text.as_bytes());
    on_cpu(&[&guest])
        .with(126)
        .saying("trap.wat: wasm trap: wasm `unreachable` instruction executed")
        .saying("sums!inner")
        .saying("sums!outer");
}

#[test]
fn a_kernel_that_left_its_memory_is_reported_with_its_line() {
    let guest = fixture("guests/bad_kernel.wat");
    on_cpu(&[&guest, "wild"])
        .with(1)
        .saying("note: the last kernel trap: access out of bounds at PTX line 7")
        .saying("7 | ")
        .saying("st.global");
}

#[test]
fn the_time_limit_ends_a_guest_that_loops() {
    let guest = exiting_guest("loop.wat", "(loop $again (br $again))");
    let begun = Instant::now();
    on_cpu(&["--timeout", SHORT, &guest])
        .with(124)
        .saying("loop.wat: timed out after 300ms");
    assert!(begun.elapsed() < LONG);
}

#[test]
fn the_time_limit_ends_a_start_function_that_loops() {
    let text =
        r#"(module (func $loop (loop $again (br $again))) (start $loop) (func (export "_start")))"#;
    let guest = file("start_loop.wat", text.as_bytes());
    on_cpu(&["--timeout", SHORT, &guest]).with(124);
}

#[test]
fn the_time_limit_ends_a_kernel_that_loops() {
    let guest = fixture("guests/bad_kernel.wat");
    let begun = Instant::now();
    run(&[
        "run",
        "--device",
        "cpu",
        "--timeout",
        SHORT,
        &guest,
        "endless",
    ])
    .with(124)
    .saying("timed out after 300ms");
    assert!(begun.elapsed() < LONG);
}

#[test]
fn the_time_limit_ends_a_guest_that_waits_for_input() {
    let text = r#"(module
        (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 16) "\40\00\00\00\01\00\00\00")
        (func (export "_start")
            (drop (call $fd_read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 32)))))"#;
    let guest = file("input.wat", text.as_bytes());
    let mut child = wasi_cuda(&["run", "--device", "cpu", "--timeout", SHORT, &guest])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let never_written_to = child.stdin.take();
    let ended = Ended::from(child.wait_with_output().unwrap());
    drop(never_written_to);
    ended.with(124).saying("timed out");
}

#[test]
fn memory_grows_to_its_limit_and_no_further() {
    let grown = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        (call $proc_exit (memory.size))";
    let guest = exiting_guest("grow.wat", grown);
    for device in ["cpu", "none"] {
        for (limit, pages) in [("64K", 1), ("1M", 16), ("3MiB", 48), ("200000", 3)] {
            run(&["run", "--device", device, "--max-memory", limit, &guest]).with(pages);
        }
    }
}

#[test]
fn a_guest_that_begins_with_more_memory_than_it_may_have_does_not_start() {
    let text = r#"(module (memory (export "memory") 17) (func (export "_start")))"#;
    let guest = file("large.wat", text.as_bytes());
    for device in ["cpu", "none"] {
        run(&["run", "--device", device, "--max-memory", "1M", &guest])
            .with(126)
            .saying("large.wat: memory minimum size of 17 pages exceeds memory limits");
        run(&["run", "--device", device, "--max-memory", "2M", &guest]).with(0);
    }
}

#[test]
fn arguments_environment_and_folders_reach_the_guest() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("surroundings");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("greeting"), "hello from here").unwrap();
    let given = format!("{}::/data", folder.display());
    let guest = fixture("guests/surroundings.wat");
    let environment = ["--env", "LEVEL=3", "--env", "MODE=a=b"];
    let mut arguments = vec!["--dir", &given];
    arguments.extend(environment);
    arguments.extend([guest.as_str(), "--timeout", "words here"]);
    let ended = on_cpu(&arguments).with(0);
    assert_eq!(
        ended.stdout,
        "--timeout\0words here\0LEVEL=3\0MODE=a=b\0hello from here"
    );

    const BAD_DESCRIPTOR: i32 = 8;
    let ended = on_cpu(&[&guest]).with(BAD_DESCRIPTOR);
    assert_eq!(ended.stdout, "", "nothing of this process's environment");
}

/// `(component …)` that runs `body`, which leaves 0 if all is well.
fn component(name: &str, body: &str) -> String {
    let text = format!(
        r#"(component
            (core module $m (func (export "run") (result i32) {body}))
            (core instance $i (instantiate $m))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance (export "wasi:cli/run@0.2.0") (export "run" (func $run))))"#
    );
    file(name, text.as_bytes())
}

#[test]
fn a_component_is_given_the_sum_that_the_kernel_wrote() {
    let guest = fixture("components/vector_add.wasm");
    let ended = on_cpu(&[&guest]).with(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let sum = "vector_add on 64 elements: ok";
    assert_eq!(lines, ["device: CPU (PTX interpreter)", sum]);
}

#[test]
fn a_component_is_told_that_there_is_no_device() {
    let guest = fixture("components/vector_add.wasm");
    run(&["run", "--device", "none", &guest])
        .with(1)
        .printing("vector_add: no device: this instance was given none");
}

#[test]
fn how_a_component_ends_is_the_exit_code() {
    on_cpu(&[&component("well.wat", "(i32.const 0)")]).with(0);
    on_cpu(&[&component("badly.wat", "(i32.const 1)")]).with(1);
    on_cpu(&[&component("trap.wat", "(unreachable)")])
        .with(126)
        .saying("unreachable");
    let endless = component("endless.wat", "(loop (br 0)) (unreachable)");
    on_cpu(&["--timeout", SHORT, &endless])
        .with(124)
        .saying("timed out after 300ms");
}

#[test]
fn what_is_counted_can_be_read_while_the_guest_runs() {
    // A load from outside memory, and then a read from stdin, which stays open.
    let guest = file(
        "counted.wat",
        br#"(module
            (import "wasi_cuda" "wasi_cuda_load_ptx" (func $load (param i32 i32 i32 i32) (result i64)))
            (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (func (export "_start")
                (drop (call $load (i32.const -1) (i32.const 1) (i32.const 0) (i32.const 0)))
                (i32.store (i32.const 4) (i32.const 16))
                (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))))"#,
    );
    let mut command = wasi_cuda(&[
        "run",
        "--device",
        "cpu",
        "--quiet",
        "--metrics",
        "0",
        &guest,
    ]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    let address = said
        .strip_prefix("wasi-cuda: metrics on http://")
        .and_then(|rest| rest.strip_suffix("/metrics\n"))
        .unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let refusal = "wasi_cuda_refusals_total{code=\"InvalidPointer\"} 1\n";
    let begun = Instant::now();
    let answer = loop {
        let answer = get("/metrics");
        if answer.contains(refusal) || begun.elapsed() > LONG {
            break answer;
        }
    };
    assert!(answer.contains(refusal), "{answer}");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("# TYPE wasi_cuda_refusals_total counter\n"));
    assert!(get("/").starts_with("HTTP/1.1 404 "));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_cannot_run_is_refused_with_the_name_of_the_file() {
    let component = b"\0asm\x0d\0\x01\0";
    let no_export = "no exported instance named `wasi:cli/run";
    let import = r#"(module (import "env" "missing" (func)) (func (export "_start")))"#;
    let cases: [(&str, &[u8], &str); 6] = [
        ("component.wasm", component, no_export),
        ("component.wat", b"(component)", no_export),
        (
            "import.wat",
            import.as_bytes(),
            "unknown import: `env::missing`",
        ),
        ("start.wat", b"(module)", "_start"),
        (
            "syntax.wat",
            b"(module\n  (func (i32.oops)))",
            "syntax.wat:2:10",
        ),
        ("short.wasm", b"\0asm\x01\0\0\0\x07", "unexpected end"),
    ];
    for (name, contents, reason) in cases {
        let guest = file(name, contents);
        let ended = run(&["run", "--device", "none", &guest])
            .with(126)
            .saying(name)
            .saying(reason);
        assert_eq!(ended.stdout, "");
    }
    let nowhere = fixture("guests/nowhere.wasm");
    on_cpu(&[&nowhere])
        .with(126)
        .saying("nowhere.wasm")
        .saying("No such file");
    let guest = fixture("guests/vector_add.wat");
    on_cpu(&["--dir", "/nowhere/at/all", &guest])
        .with(126)
        .saying("--dir /nowhere/at/all");
}

#[test]
fn check_prints_a_table_of_parameters() {
    let kernel = fixture("corpus/cuda/vecadd.sm_75.ptx");
    let ended = run(&["check", &kernel]).with(0);
    assert_eq!(ended.stderr, "");
    let table = ended.stdout.split_once('\n').unwrap();
    assert!(
        table
            .0
            .ends_with("vecadd.sm_75.ptx: PTX 9.0 for sm_75, 1 kernel")
    );
    assert_eq!(
        table.1,
        "
kernel vecadd (line 15)
  parameter  offset  size  align  class    declared  ptr  name
  0          0       8     8      integer  .u64      -    vecadd_param_0
  1          8       8     8      integer  .u64      -    vecadd_param_1
  2          16      8     8      integer  .u64      -    vecadd_param_2
  3          24      4     4      integer  .u32      -    vecadd_param_3
  threads    as many a block as the device allows
  shared     0 bytes static, no dynamic
  cpu device runs it
"
    );
}

#[test]
fn check_tells_attributes_and_pointers() {
    let text = "\
.version 8.0
.target sm_80
.extern .shared .align 16 .b8 room[];
.visible .entry scale(.param .u64 .ptr .global .align 16 data, .param .f32 by, .param .align 8 .b8 more[24])
.maxntid 128, 2, 1
{
    .shared .align 4 .b8 own[256];
    ret;
}
.visible .entry fixed() .reqntid 64 { ret; }
";
    let kernel = file("attributes.ptx", text.as_bytes());
    let ended = run(&["check", &kernel])
        .with(0)
        .printing("PTX 8.0 for sm_80, 2 kernels")
        .printing("at most 128 x 2 x 1 a block (.maxntid)")
        .printing("256 bytes and what the launch asks for")
        .printing("exactly 64 x 1 x 1 a block (.reqntid)")
        .printing("parameters none");
    let row = |name: &str| {
        let row = ended
            .stdout
            .lines()
            .find(|line| line.ends_with(name))
            .unwrap();
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row(" data"), "0 0 8 8 integer .u64 global, align 16 data");
    assert_eq!(row(" by"), "1 8 4 4 float .f32 - by");
    assert_eq!(row(" more"), "2 16 24 8 bytes .b8[24] - more");

    let one = run(&["check", "--entry", "fixed", &kernel]).with(0);
    assert!(one.stdout.contains("kernel fixed") && !one.stdout.contains("kernel scale"));
    run(&["check", "--entry", "other", &kernel])
        .with(1)
        .saying("no kernel `other`; there are `scale`, `fixed`");
}

#[test]
fn check_shows_a_mistake_with_its_line_and_a_caret() {
    let text = ".version 7.0\n.target sm_75\n.address_size 64\n.entry k() {\n    add.u32 %r1, %r1, 1;\n}\n";
    let kernel = file("mistake.ptx", text.as_bytes());
    let ended = run(&["check", &kernel]).with(1);
    assert_eq!(ended.stdout, "");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(
        lines[0].contains("mistake.ptx: line 5, column "),
        "{lines:?}"
    );
    assert!(
        lines[0].ends_with("register `%r1` is not declared"),
        "{lines:?}"
    );
    assert_eq!(lines[1], "5 |     add.u32 %r1, %r1, 1;");
    assert_eq!(lines[2].trim_start_matches([' ', '|']), "^");
}

#[test]
fn check_tells_what_the_cpu_device_refuses() {
    let kernel = fixture("corpus/cuda/texture.sm_75.ptx");
    run(&["check", &kernel])
        .with(0)
        .printing("cpu device refuses it, line 49: ")
        .printing("49 | tex.2d.v4.f32.f32");
}

#[test]
fn check_reads_standard_input() {
    let text = fs::read(fixture("corpus/cuda/vecadd.sm_75.ptx")).unwrap();
    let from = fs::File::open(file("stdin.ptx", &text)).unwrap();
    let ended: Ended = wasi_cuda(&["check", "-"])
        .stdin(from)
        .output()
        .unwrap()
        .into();
    ended
        .with(0)
        .printing("stdin: PTX 9.0")
        .printing("kernel vecadd");
    run(&["check", &fixture("nowhere.ptx")])
        .with(126)
        .saying("nowhere.ptx");
}

#[test]
fn devices_has_a_line_for_the_cpu_and_one_for_cuda() {
    let ended = run(&["devices"]).with(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("cpu: ") && lines[0].contains("compute capability"));
    assert!(lines[1].starts_with("cuda"), "{lines:?}");
}

#[test]
fn completions_know_every_subcommand_and_its_flags() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let mut ended = run(&["completions", shell]).with(0);
        assert_eq!(ended.stderr, "");
        for word in [
            "run",
            "check",
            "launch",
            "devices",
            "completions",
            "max-memory",
        ] {
            ended = ended.printing(word);
        }
    }
    run(&["completions", "ash"]).with(126).saying("'ash'");
}

/// What bash offers for the last word of a command line, once it has read what is printed for it.
fn completed_by_bash(words: &[&str]) -> String {
    let script = run(&["completions", "bash"]).with(0).stdout;
    let ask = r#"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        registered=$(complete -p "$1") && registered=${registered##* -F }
        "${registered%% *}" "$1" "${@: -1}" "${@: -2:1}"
        echo "${COMPREPLY[*]}""#;
    let shell = Command::new("bash")
        .args(["-c", &format!("{script}{ask}"), "bash"])
        .args(words)
        .output();
    let ended = Ended::from(shell.unwrap()).with(0);
    assert_eq!(ended.stderr, "");
    ended.stdout.trim_end().to_owned()
}

/// Flags of subcommands too, although the binary's name has a hyphen: <https://github.com/clap-rs/clap/issues/6421>.
#[test]
fn bash_completes_subcommands_flags_and_values() {
    for (words, completed) in [
        (&["wasi-cuda", "la"][..], "launch"),
        (&["wasi-cuda", "run", "--max"], "--max-memory"),
        (&["wasi-cuda", "run", "--device", "cu"], "cuda"),
    ] {
        assert_eq!(completed_by_bash(words), completed, "{words:?}");
    }
}

#[test]
fn help_teaches_and_a_wrong_command_line_is_our_failure() {
    for arguments in [&["--help"][..], &["run", "--help"], &["check", "--help"]] {
        run(arguments)
            .with(0)
            .printing("Exit codes:")
            .printing("126");
    }
    run(&["run", "--help"]).printing("wasi-cuda run vector_add.wat");
    for compiler in ["child", "in-process"] {
        on_cpu(&["--compiler", compiler, &fixture("guests/vector_add.wat")]).with(0);
    }
    run(&["--version"]).with(0).printing("wasi-cuda ");
    let guest = fixture("guests/vector_add.wat");
    for wrong in [
        &["run"][..],
        &["frobnicate"],
        &["run", "--device", "gpu", &guest],
        &["run", "--compiler", "elsewhere", &guest],
        &["run", "--timeout", "5", &guest],
        &["run", "--max-memory", "5G", &guest],
        &["run", "--env", "NAME", &guest],
    ] {
        let ended = run(wrong).with(126).saying("error: ");
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn a_text_that_is_too_large_to_confine_is_told_of_as_that() {
    let adds = "add.u32 %r, %r, 1;\n".repeat(140_000);
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 %r;\n{adds}ret;\n}}\n"
    );
    let path = file("too_large.ptx", text.as_bytes());
    run(&["check", &path]).with(0);
    run(&["check", "--isolation", "confined", &path])
        .with(1)
        .printing("confined: refused, too large to confine: ");
}

#[test]
fn a_kernel_in_place_of_a_guest_is_told_of() {
    let kernel = fixture("kernels/kit.ptx");
    on_cpu(&[&kernel])
        .with(126)
        .saying("kit.ptx: is PTX and no guest; `wasi-cuda launch ");
}
