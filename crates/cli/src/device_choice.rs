//! Which device runs kernels: the choice of `--device`, and what is said about it.

use std::sync::Arc;

use clap::ValueEnum;
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

/// The device for a choice.
pub(crate) fn choose(choice: DeviceChoice) -> anyhow::Result<Option<Arc<dyn Device>>> {
    let selector = match choice {
        DeviceChoice::None => return Ok(None),
        DeviceChoice::Auto => Selector::Auto,
        DeviceChoice::Cpu => Selector::Cpu,
        DeviceChoice::Cuda => Selector::Cuda(0),
    };
    Ok(Some(device::open(selector)?))
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
