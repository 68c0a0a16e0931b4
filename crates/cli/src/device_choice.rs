//! Which device runs kernels: the choice of `--device`, and what is said about it.

use std::sync::Arc;

use anyhow::bail;
use clap::ValueEnum;
use device::{Device, DeviceKind, Selector};
use host::TrustedByEmbedder;

use crate::say;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceChoice {
    /// With --unconfined-kernels the GPU if there is one; else the CPU device.
    #[default]
    Auto,
    /// The CPU device: interprets kernels on this machine's cores.
    Cpu,
    /// The first GPU. Needs --unconfined-kernels.
    Cuda,
    /// No device: a guest is told that none is available.
    None,
}

/// The device for a choice.
pub(crate) fn choose(
    choice: DeviceChoice,
    word: Option<TrustedByEmbedder>,
) -> anyhow::Result<Option<Arc<dyn Device>>> {
    Ok(match (choice, word) {
        (DeviceChoice::None, _) => None,
        (DeviceChoice::Auto, None) | (DeviceChoice::Cpu, _) => Some(device::open(Selector::Cpu)?),
        (DeviceChoice::Auto, Some(_)) => Some(device::open(Selector::Auto)?),
        (DeviceChoice::Cuda, Some(_)) => Some(device::open(Selector::Cuda(0))?),
        (DeviceChoice::Cuda, None) => bail!(
            "--device cuda needs --unconfined-kernels: kernels of guests cannot be confined on a GPU yet"
        ),
    })
}

/// The GPU that `auto` would take with somebody's word for the guest's kernels. A driver that fails is an error, as it would be
/// then.
pub(crate) fn unused_gpu(
    choice: DeviceChoice,
    word: Option<TrustedByEmbedder>,
) -> anyhow::Result<Option<String>> {
    if choice != DeviceChoice::Auto || word.is_some() {
        return Ok(None);
    }
    match device::cuda::devices() {
        Ok(names) => Ok(names.into_iter().next()),
        Err(device::Error::NotAvailable { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Says which device is used, and which one is not.
pub(crate) fn announce(device: Option<&Arc<dyn Device>>, unused_gpu: Option<&str>) {
    match device {
        None => say("no device"),
        Some(device) => {
            let info = device.info();
            say(format_args!("device {}: {}", kind(info.kind), info.name));
        }
    }
    if let Some(gpu) = unused_gpu {
        say(format_args!(
            "note: {gpu} is there, and used with --unconfined-kernels only"
        ));
    }
}

/// The name of a kind of device.
pub(crate) fn kind(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Cpu => "cpu",
        DeviceKind::Cuda => "cuda",
    }
}
