//! The commands in `docs/guide`: each line of a `sh` block that begins with the binary's name is run from the top of the repository
//! and must end well.
#![expect(
    clippy::unwrap_used,
    reason = "a test whose process or file fails has failed"
)]

use std::fs;
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The commands of a page.
fn commands(page: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(format!("{ROOT}/docs/guide/{page}")).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
    lines
        .filter_map(|line| line.strip_prefix("wasi-cuda "))
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

#[test]
fn the_commands_for_operators_work() {
    let commands = commands("operators.md");
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        let ended = Command::new(env!("CARGO_BIN_EXE_wasi-cuda"))
            .args(&command)
            .current_dir(ROOT)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{command:?}: {stderr}");
    }
}
