//! `wasi-cuda launch` as a user meets it: kernels without a guest, on the CPU device.
#![expect(
    clippy::unwrap_used,
    reason = "a test whose process or file fails has failed"
)]

mod command;

use std::fs;
use std::io::Write;
use std::process::Stdio;

use command::{Ended, file, fixture, run, wasi_cuda};

/// `launch` of a file below `fixtures`, without a word about the device.
fn launch(ptx: &str, arguments: &[&str]) -> Ended {
    let ptx = fixture(ptx);
    let quiet = ["launch", "--device", "cpu", "--quiet", &ptx];
    run(&[&quiet, arguments].concat())
}

const VECADD: &str = "corpus/cuda/vecadd.sm_75.ptx";
const KIT: &str = "kernels/kit.ptx";
const FAULTS: &str = "kernels/faults.ptx";

#[test]
fn what_the_kernel_wrote_is_shown() {
    let ended = launch(
        VECADD,
        &[
            "--block=4",
            "--arg=in:f32=0..4",
            "--arg=in:f32=0.5,1,-2,inf",
            "--arg=out:4f32",
            "--arg=u32:4",
        ],
    )
    .with(0);
    let expected = "vecadd: 1 x 1 x 1 blocks of 4 x 1 x 1 threads\n\
        argument 2, 4 f32\n     0:  0.5    2    0  inf\n";
    assert_eq!(
        (ended.stdout.as_str(), ended.stderr.as_str()),
        (expected, "")
    );
}

#[test]
fn files_are_read_and_written() {
    let bytes = |values: [f32; 3]| values.map(f32::to_le_bytes).concat();
    let (a, b) = (
        file("launch_a.bin", &bytes([1.0, 2.0, 3.0])),
        file("launch_c.bin", b""),
    );
    let input = format!("--arg=in:{a}");
    let output = format!("--arg=out:3f32:{b}");
    launch(
        VECADD,
        &["--block=3", &input, &input, &output, "--arg=u32:3"],
    )
    .with(0)
    .printing("written to");
    assert_eq!(fs::read(b).unwrap(), bytes([2.0, 4.0, 6.0]));
}

#[test]
fn memory_that_goes_both_ways_is_shown_with_what_the_kernel_left() {
    let arguments = ["k_store", "--arg=inout:u32=7,8", "--arg=u32:5"];
    launch(KIT, &arguments).with(0).printing("0:  5  8\n");
}

#[test]
fn values_of_every_size_reach_the_kernel() {
    let arguments = [
        "k_echo",
        "--json",
        "--arg=out:6u64",
        "--arg=u8:1",
        "--arg=bytes:0200",
        "--arg=i32:3",
        "--arg=u64:4",
        "--arg=f32:1",
        "--arg=f64:1",
    ];
    let (f32_bits, f64_bits) = (1_f32.to_bits(), 1_f64.to_bits());
    let values = format!(r#""values":[1,2,3,4,{f32_bits},{f64_bits}]"#);
    launch(KIT, &arguments).with(0).printing(&values);
}

#[test]
fn long_buffers_are_cut() {
    let arguments = ["k_store", "--show=2", "--arg=out:100u32", "--arg=u32:5"];
    launch(KIT, &arguments)
        .with(0)
        .printing("0:  5  0\n")
        .printing("and 98 more\n");
}

#[test]
fn repeats_are_timed_and_do_not_change_what_is_shown() {
    let arguments = ["k_count", "--time=5", "--arg=out:1u32"];
    launch(KIT, &arguments)
        .with(0)
        .printing("0:  0\n")
        .printing("time: 5 launches, min ");
}

#[test]
fn machines_get_one_object() {
    let arguments = [
        "k_store",
        "--json",
        "--grid=2,1,1",
        "--arg=inout:f32=1,NaN",
        "--arg=u32:0",
    ];
    let ended = launch(KIT, &arguments).with(0);
    let expected = concat!(
        r#"{"kernel":"k_store","device":{"kind":"cpu","name":"CPU (PTX interpreter)"},"grid":[2,1,1],"#,
        r#""block":[1,1,1],"shared_bytes":0,"mode":"plain","#,
        r#""outputs":[{"argument":0,"type":"f32","values":[0,"NaN"]}],"time":null}"#,
        "\n"
    );
    assert_eq!(ended.stdout, expected);
}

#[test]
fn a_trap_is_shown_with_its_line_and_where_the_access_went() {
    let arguments = ["store_u32", "--arg=out:4u32", "--arg=u64:0"];
    launch(FAULTS, &arguments).with(0);
    let outside = ["k_past", "--json", "--arg=out:4u32", "--arg=u64:1048576"];
    launch(KIT, &outside)
        .with(1)
        .saying(
            "kernel trap: access out of bounds at PTX line 126, block (0, 0, 0), thread (0, 0, 0)",
        )
        .saying("\nthe address is 1048560 bytes past the end of argument 0\n")
        .saying("\n126 | add.u64 %a, %a, %o; st.u32 [%a], 0xdeadbeef; ret;\n    | ^^^^")
        .printing(r#""trap":{"kind":"access out of bounds","line":126,"block":[0,0,0]"#)
        .printing(r#""place":"1048560 bytes past the end of argument 0""#);
}

#[test]
fn a_kernel_without_an_end_is_stopped() {
    launch(FAULTS, &["endless", "--timeout=100ms"])
        .with(1)
        .saying("kernel stopped: its deadline has passed");
}

#[test]
fn what_is_wrong_with_the_kernel_or_its_arguments_is_said() {
    let broken = file(
        "broken.ptx",
        b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k( { ret; }\n",
    );
    run(&["launch", "-q", &broken])
        .with(1)
        .saying("broken.ptx: line 4, column ")
        .saying("^");
    launch(KIT, &[])
        .with(1)
        .saying("which kernel? There are `k_empty`, ");
    launch(KIT, &["k_none"])
        .with(1)
        .saying("no kernel `k_none`");
    launch(KIT, &["k_store"])
        .with(1)
        .saying("kernel `k_store` declares 2 arguments, 0 given");
    launch(KIT, &["k_store", "--arg=u32:1", "--arg=u32:1"])
        .with(1)
        .saying("argument 0 is u32, kernel `k_store` declares .u64");
    launch(KIT, &["k_empty", "--block=2000"])
        .with(1)
        .saying("block is 2000 threads along x, the limit is 1024");
}

#[test]
fn a_kernel_runs_at_each_level_of_isolation() {
    for level in ["confined", "trapping"] {
        launch(KIT, &["k_empty", "--isolation", level]).with(0);
    }
    launch(KIT, &["k_empty", "--isolation=confined", "--as-it-is"])
        .with(126)
        .saying("cannot be used with");
}

#[test]
fn wrong_flags_and_missing_files_are_no_fault_of_the_kernel() {
    launch(KIT, &["k_store", "--arg=f16:1"])
        .with(126)
        .saying("`f16` is none of the types");
    launch(KIT, &["k_store", "--arg=in:nowhere.bin", "--arg=u32:1"])
        .with(126)
        .saying("nowhere.bin");
    launch("nowhere.ptx", &[]).with(126).saying("nowhere.ptx");
}

#[test]
fn the_text_can_come_from_standard_input() {
    let mut command = wasi_cuda(&[
        "launch",
        "-q",
        "--arg=out:1u32",
        "--arg=u32:9",
        "-",
        "k_store",
    ]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text = fs::read(fixture(KIT)).unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let ended: Ended = child.wait_with_output().unwrap().into();
    ended.with(0).printing("0:  9\n");
}
