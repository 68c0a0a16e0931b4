//! `wasi-cuda devices`: one line for each device that could run kernels here, or why there is none.

use std::fmt::Write;

use device::{Device, Error, Selector};

use crate::print;

/// List the devices that can run kernels here.
///
/// One line for each: the CPU device, which is always there, and every CUDA device, or else the reason why none can
/// be used.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(Args {}: &Args) -> anyhow::Result<u8> {
    let mut text = String::new();
    match device::open(Selector::Cpu) {
        Ok(cpu) => writeln!(text, "cpu: {}", describe(cpu.as_ref()))?,
        Err(error) => writeln!(text, "cpu: {}", reason(&error))?,
    }
    for ordinal in 0.. {
        match device::open(Selector::Cuda(ordinal)) {
            Ok(cuda) => writeln!(text, "cuda {ordinal}: {}", describe(cuda.as_ref()))?,
            Err(error) => {
                // The ordinals end where there is no further device; anything else is worth a line.
                match error {
                    Error::NotAvailable { .. } if ordinal > 0 => {}
                    error => writeln!(text, "cuda: {}", reason(&error))?,
                }
                break;
            }
        }
    }
    print(&text)?;
    Ok(0)
}

fn reason(error: &Error) -> String {
    match error {
        Error::NotAvailable { reason } => format!("not available: {reason}"),
        error => error.to_string(),
    }
}

fn describe(device: &dyn Device) -> String {
    let info = device.info();
    let (major, minor) = info.compute_capability;
    let cores = match info.kind {
        device::DeviceKind::Cpu => "cores",
        device::DeviceKind::Cuda => "multiprocessors",
    };
    let mut text = format!(
        "{}, {} {cores}, compute capability {major}.{minor}, blocks of up to {} threads and {} KiB of shared memory",
        info.name,
        info.multiprocessors,
        info.limits.threads_per_block,
        info.limits.shared_bytes >> 10,
    );
    for remark in device.remarks() {
        text.push_str("; ");
        text.push_str(&remark);
    }
    text
}
