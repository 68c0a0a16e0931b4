//! Command line of wasi-cuda: the clap tree, and what the process exits with. What a subcommand does is in the file of
//! its name.

mod check;
mod completions;
mod device_choice;
mod devices;
mod json;
mod launch;
mod memory_limit;
mod metrics;
mod parse;
mod progress;
mod run;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::error::ErrorKind as UsageKind;
use clap::{Parser, Subcommand};

/// `check` and `launch`: the kernel is wrong.
const KERNEL_IS_WRONG: u8 = 1;
/// `run`: the time limit is reached. The code of timeout(1).
const TIMED_OUT: u8 = 124;
/// Anything that goes wrong outside a guest's control, and a guest that traps. WASI's exit codes end at 125, so this is never a
/// guest's.
const FAILED: u8 = 126;

const HELP: &str = "\
Examples:
  wasi-cuda run guest.wasm             run a guest on the best device there is
  wasi-cuda check kernel.ptx           what a kernel takes, and whether it is in order
  wasi-cuda launch kernel.ptx ...      run a kernel by itself, see `wasi-cuda launch --help`
  wasi-cuda devices                    what there is to run kernels on
  wasi-cuda completions bash           what a shell needs to complete this command line

Exit codes:
  run        the guest's own (0 to 125), or 124 or 126: see `wasi-cuda run --help`
  check      1 if the kernel is not in order
  launch     1 if the kernel is not in order, or did not end well
  all        126 if the command line is wrong, or something went wrong that is not the guest's doing

Results go to stdout, everything else to stderr.";

/// Run WebAssembly guests that launch CUDA kernels, with or without a GPU.
///
/// A guest is a WASI program, a WebAssembly module (preview 1) or component (preview 2), that hands PTX, the assembly language
/// of CUDA, to the imports that this host gives it, and launches its kernels: a module on its own memory, a component on
/// device buffers. Where there is no GPU, the CPU device runs the same kernels.
#[derive(Debug, Parser)]
#[command(name = "wasi-cuda", version, after_help = HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Check(check::Args),
    Launch(launch::Args),
    Devices(devices::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    // A GPU's kernels are compiled in processes that run this program once more.
    device::cuda::serve_compiles();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return answer_usage(&usage),
    };
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Launch(args) => launch::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    let code = outcome.unwrap_or_else(|error| {
        say(format_args!("{error:#}"));
        FAILED
    });
    ExitCode::from(code)
}

/// Prints a help text, or what is wrong with the command line.
fn answer_usage(usage: &clap::Error) -> ExitCode {
    let asked_for = matches!(
        usage.kind(),
        UsageKind::DisplayHelp | UsageKind::DisplayVersion
    );
    // Where the text cannot be written there is nobody to tell.
    usage.print().unwrap_or_default();
    ExitCode::from(if asked_for { 0 } else { FAILED })
}

/// Writes a diagnostic. A stderr that is closed is no reason to stop.
fn say(text: impl Display) {
    writeln!(io::stderr(), "wasi-cuda: {text}").unwrap_or_default();
}

/// Writes a result. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
