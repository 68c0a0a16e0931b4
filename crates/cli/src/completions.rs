//! `wasi-cuda completions`: what a shell reads to complete this command line, made from the clap tree. Nothing is installed.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, print};

const HELP: &str = "\
Examples:
  source <(wasi-cuda completions bash)                                    in ~/.bashrc
  wasi-cuda completions fish >~/.config/fish/completions/wasi-cuda.fish   once

Exit codes:
  0          it was printed
  126        the command line is wrong";

/// Print what makes a shell complete this command line.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The shell that reads it.
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, &name, &mut script);
    let mut script = String::from_utf8(script)?;
    if args.shell == Shell::Bash {
        // In half of its places clap_complete takes a hyphen of the binary's name for the border of a subcommand, so that no
        // subcommand's flags are found.
        script = script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"));
    }
    print(&script)?;
    Ok(0)
}
