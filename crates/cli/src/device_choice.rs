//! Which device runs kernels, and where they are compiled for it: the choices of `--device` and `--compiler`, and what is said about them.

use std::sync::Arc;

use clap::ValueEnum;
use device::cuda::{Compiler, Options};
use device::{Device, DeviceKind, Selector};

use crate::say;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceChoice {
    /// The first GPU if there is one; else the CPU device.
    #[default]
    Auto,
    /// The CPU device: interprets kernels on this machine's cores.
    Cpu,
    /// The first GPU.
    Cuda,
    /// No device: a guest is told that none is available.
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompilerChoice {
    /// In processes that run this program once more, each with a context of its own on the GPU: a kernel that takes too long to
    /// compile, or too much memory, is refused.
    #[default]
    Child,
    /// In this process, for as long as it takes.
    InProcess,
}

/// The device for a choice.
pub(crate) fn choose(
    choice: DeviceChoice,
    compiler: CompilerChoice,
) -> anyhow::Result<Option<Arc<dyn Device>>> {
    let selector = match choice {
        DeviceChoice::None => return Ok(None),
        DeviceChoice::Auto => Selector::Auto,
        DeviceChoice::Cpu => Selector::Cpu,
        DeviceChoice::Cuda => Selector::Cuda(0),
    };
    let options = Options {
        compiler: match compiler {
            CompilerChoice::Child => Compiler::this_program(),
            CompilerChoice::InProcess => Compiler::InProcess,
        },
        ..Options::default()
    };
    Ok(Some(device::open_with(selector, &options)?))
}

/// Says which device is used.
pub(crate) fn announce(device: Option<&Arc<dyn Device>>) {
    let Some(device) = device else {
        return say("no device");
    };
    let info = device.info();
    say(format_args!("device {}: {}", kind(info.kind), info.name));
}

/// The name of a kind of device.
pub(crate) fn kind(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Cpu => "cpu",
        DeviceKind::Cuda => "cuda",
    }
}
