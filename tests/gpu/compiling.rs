//! Texts that are compiled in processes of their own: what guests are told is what they are told without, and a process that ends, hangs, eats
//! memory or says what it should not costs one load.

mod times;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use abi::AbiError;
use device::cuda::{ChildCompiler, Compiler, Options};
use device::{Health, Selector};

use crate::fake::calls_of;
use crate::harness::tenants::class;
use crate::harness::{Harness, KIT, VECADD};
use crate::rig::{assert_fails, cuda, guest, trusted_on};
use crate::runner::{Case, either, gpu, scripted};

pub(crate) const CASES: &[Case] = &[
    either(
        "refusals_are_the_same_as_in_process",
        refusals_are_the_same_as_in_process,
    ),
    either(
        "texts_compile_in_process_as_well",
        texts_compile_in_process_as_well,
    ),
    either(
        "a_process_is_kept_for_the_next_text",
        a_process_is_kept_for_the_next_text,
    ),
    either("a_process_without_work_ends", a_process_without_work_ends),
    either(
        "a_process_ends_with_its_device",
        a_process_ends_with_its_device,
    ),
    either(
        "a_process_that_was_killed_is_replaced",
        a_process_that_was_killed_is_replaced,
    ),
    either(
        "a_program_that_does_not_serve_is_told_of",
        a_program_that_does_not_serve_is_told_of,
    ),
    scripted("one_text_is_compiled_once", "", one_text_is_compiled_once),
    scripted("a_compiler_that_dies", "", a_compiler_that_dies),
    scripted("a_compiler_that_hangs", "", a_compiler_that_hangs),
    scripted(
        "a_compiler_that_eats_memory",
        "",
        a_compiler_that_eats_memory,
    ),
    scripted(
        "a_compiler_that_says_what_is_no_answer",
        "",
        a_compiler_that_says_what_is_no_answer,
    ),
    scripted(
        "a_linker_that_fails_is_no_loss_of_the_device",
        "cuLinkComplete@1=700",
        a_linker_that_fails_is_no_loss_of_the_device,
    ),
    scripted(
        "a_compiler_ends_in_the_middle_of_a_text",
        "",
        a_compiler_ends_in_the_middle_of_a_text,
    ),
    gpu(
        "a_text_that_takes_too_long_is_refused_in_time",
        a_text_that_takes_too_long_is_refused_in_time,
    ),
    gpu("times_of_loads", times::of_loads).shown(Duration::from_secs(90)),
    gpu("times_beside_a_bomb", times::beside_a_bomb).shown(Duration::from_secs(90)),
];

const LONG: Duration = Duration::from_secs(10);

/// A guest on a device whose texts this compiles.
fn guest_of(compiler: Compiler) -> Harness {
    let options = Options {
        compiler,
        ..Options::default()
    };
    Harness::new(&trusted_on(
        device::open_with(Selector::Cuda(0), &options).unwrap(),
    ))
}

fn child(change: impl FnOnce(&mut ChildCompiler)) -> Compiler {
    let mut child = ChildCompiler::this_program();
    change(&mut child);
    Compiler::Child(child)
}

/// A text of one kernel that does nothing.
fn text(version: &str, target: &str, entry: &str) -> String {
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n.visible .entry {entry}()\n{{\nret;\n}}\n"
    )
}

/// The processes that this one has started and not waited for.
fn children() -> Vec<u32> {
    let own = std::process::id().to_string();
    let parent = |id: &u32| {
        // The name, which may hold anything, ends with the last parenthesis; behind it are state and parent.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_whitespace().nth(1).map(str::to_owned)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| parent(id).as_ref() == Some(&own)).collect()
}

/// Whether a process has ended, and may still be waited for.
fn is_over(id: u32) -> bool {
    match fs::read_to_string(format!("/proc/{id}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    }
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "not yet: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The guest's load of this text fails like this, and its next one works.
#[track_caller]
fn check(guest: &mut Harness, ptx: &str, entry: &str, code: AbiError, parts: &[&str]) {
    let begin = Instant::now();
    let answer = guest.load(ptx, entry);
    assert_fails(guest, answer, code, parts);
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
    guest.kernel(&text("8.0", "sm_80", "k"), "k");
    guest.assert_usable();
    assert_eq!(guest.cuda().device().unwrap().health(), Health::Good);
}

fn refusals_are_the_same_as_in_process() {
    let mut guests = [Compiler::this_program(), Compiler::InProcess].map(guest_of);
    for (version, target) in [("9.9", "sm_80"), ("99.0", "sm_80"), ("9.0", "sm_120")] {
        let ptx = text(version, target, "k");
        let [apart, within] = guests.each_mut().map(|guest| {
            let answer = guest.load(&ptx, "k");
            (answer, guest.last_error())
        });
        assert!(within.0 < 0, "{within:?}");
        assert_eq!(apart, within);
    }
}

fn texts_compile_in_process_as_well() {
    let mut guest = guest_of(Compiler::InProcess);
    guest.kernel(VECADD, "vecadd");
    guest.kernel(KIT, "k_count");
    guest.assert_usable();
    assert_eq!(children(), []);
}

/// The process that was started for a text, and the one that was started ahead beside it.
fn both_children() -> Vec<u32> {
    wait_until("there are two processes", || children().len() == 2);
    children()
}

fn a_process_is_kept_for_the_next_text() {
    let mut guest = guest();
    assert_eq!(children(), [], "none is started before there is work");
    guest.kernel(VECADD, "vecadd");
    let first = both_children();
    for number in 0..3 {
        let entry = format!("k{number}");
        guest.kernel(&text("8.0", "sm_80", &entry), &entry);
    }
    assert_eq!(children(), first);
}

fn a_process_without_work_ends() {
    let mut guest = guest_of(child(|child| child.idle_time = Duration::from_millis(200)));
    guest.kernel(VECADD, "vecadd");
    let first = both_children();
    wait_until("the processes have ended and were waited for", || {
        children().is_empty()
    });
    guest.kernel(&text("8.0", "sm_80", "k"), "k");
    assert_ne!(children(), first);
}

fn a_process_ends_with_its_device() {
    let mut guest = guest_of(Compiler::this_program());
    guest.kernel(VECADD, "vecadd");
    both_children();
    drop(guest);
    wait_until("the processes have ended and were waited for", || {
        children().is_empty()
    });
}

fn a_process_that_was_killed_is_replaced() {
    let mut guest = guest();
    guest.kernel(VECADD, "vecadd");
    let first = both_children();
    let kill = format!("kill -9 {} {}", first[0], first[1]);
    let killed = Command::new("/bin/sh").args(["-c", &kill]).status();
    assert!(killed.unwrap().success());
    wait_until("the processes are over", || {
        first.iter().all(|&child| is_over(child))
    });
    guest.kernel(&text("8.0", "sm_80", "k"), "k");
    let second = both_children();
    assert!(first.iter().all(|child| !second.contains(child)));
}

fn a_program_that_does_not_serve_is_told_of() {
    let script = |script: &str| {
        child(|child| {
            child.program = "/bin/sh".into();
            child.arguments = ["-c", script].map(Into::into).into();
        })
    };
    let not_there = ChildCompiler::program("/not/there");
    let what = "starting a process that compiles failed: ";
    for (compiler, says) in [
        (Compiler::Child(not_there), "No such file"),
        (script("exit 3"), "it ended (exit status: 3)"),
        (
            script("echo Hello, world"),
            "does not begin with `serve_compiles()`",
        ),
    ] {
        let mut guest = guest_of(compiler);
        for _ in 0..3 {
            let answer = guest.load(VECADD, "vecadd");
            assert_fails(&mut guest, answer, AbiError::LaunchFailed, &[what, says]);
        }
        assert_eq!(guest.cuda().device().unwrap().health(), Health::Good);
    }
    wait_until("all have ended", || children().is_empty());
}

fn one_text_is_compiled_once() {
    let (mut one, mut other) = (guest(), guest());
    for guest in [&mut one, &mut other] {
        for _ in 0..3 {
            guest.kernel(VECADD, "vecadd");
        }
    }
    // The process that is started ahead begins with an empty text.
    wait_until("it has compiled that", || calls_of("cuLinkDestroy") == 2);
    for function in ["cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete"] {
        assert_eq!(calls_of(function), 2, "{function}");
    }
    assert_eq!(calls_of("cuModuleLoadDataEx"), 1);
    // Its variables are not shared, and so the module is loaded each time.
    for _ in 0..3 {
        one.kernel(KIT, "k_count");
        other.kernel(KIT, "k_count");
    }
    assert_eq!(calls_of("cuLinkComplete"), 3);
    assert_eq!(calls_of("cuModuleLoadDataEx"), 1 + 6);
}

fn a_compiler_that_dies() {
    let mut guest = guest();
    let entry = "k_compiler_dies";
    let parts = ["does not compile: ", "ended (signal: 11 (SIGSEGV))"];
    let ptx = text("8.0", "sm_80", entry);
    check(&mut guest, &ptx, entry, AbiError::MalformedPtx, &parts);
}

fn a_compiler_that_hangs() {
    let limit = Duration::from_millis(500);
    let mut guest = guest_of(child(|child| child.text_time = limit));
    let entry = "k_compiler_hangs";
    let parts = ["was not compiled: ", "longer than the limit of 500ms"];
    let ptx = text("8.0", "sm_80", entry);
    check(&mut guest, &ptx, entry, AbiError::UnsupportedPtx, &parts);
    wait_until("the process has ended", || children().len() == 1);
}

fn a_text_that_takes_too_long_is_refused_in_time() {
    let limit = Duration::from_secs(1);
    let mut guest = guest_of(child(|child| child.text_time = limit));
    let parts = ["was not compiled: ", "longer than the limit of 1s"];
    let bomb = class("jit_bomb").text;
    check(&mut guest, &bomb, "bomb", AbiError::UnsupportedPtx, &parts);
}

fn a_compiler_that_eats_memory() {
    const LIMIT: u64 = 256 << 20;
    let mut guest = guest_of(child(|child| child.resident_bytes = LIMIT));
    let entry = "k_compiler_eats";
    let limit = format!("limit of {LIMIT} bytes of memory");
    let ptx = text("8.0", "sm_80", entry);
    check(&mut guest, &ptx, entry, AbiError::UnsupportedPtx, &[&limit]);
    wait_until("the process has ended", || children().len() == 1);
}

fn a_compiler_that_says_what_is_no_answer() {
    let mut guest = guest();
    for (entry, says) in [
        ("k_compiler_babbles", "step 7"),
        ("k_compiler_boasts", "a length of 4294967295 bytes"),
        ("k_compiler_cuts", "40 bytes that are no cubin"),
    ] {
        let parts = ["compiling in a process of its own failed: ", says];
        let ptx = text("8.0", "sm_80", entry);
        check(&mut guest, &ptx, entry, AbiError::LaunchFailed, &parts);
    }
}

fn a_linker_that_fails_is_no_loss_of_the_device() {
    let mut guest = guest();
    let parts = ["loading a module failed: ", "700)"];
    check(&mut guest, VECADD, "vecadd", AbiError::LaunchFailed, &parts);
    assert_eq!(cuda().health(), Health::Good);
}

/// What the one that asks says is written here by hand: it dies before it has an answer.
fn a_compiler_ends_in_the_middle_of_a_text() {
    let mut compiler = Command::new(std::env::current_exe().unwrap())
        .env("WASI_CUDA_SERVES_COMPILES", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let ptx = text("8.0", "sm_80", "k_compiler_hangs");
    let mut stdin = compiler.stdin.take().unwrap();
    stdin.write_all(&0_u32.to_le_bytes()).unwrap();
    let len = u32::try_from(ptx.len()).unwrap();
    stdin.write_all(&len.to_le_bytes()).unwrap();
    stdin.write_all(ptx.as_bytes()).unwrap();
    wait_until("it compiles", || calls_of("cuLinkAddData_v2") == 1);
    assert_eq!(compiler.try_wait().unwrap(), None);
    drop(stdin);
    wait_until("it has ended", || is_over(compiler.id()));
    assert!(!compiler.wait().unwrap().success());
}
