//! What happens in an instance, told once: to the embedder's audit hook, as a `tracing` event and in metrics. Nothing is decided
//! here, and no event holds a host address or a guest's data.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abi::AbiError;
use device::{Geometry, StopReason, Trap};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, histogram};

use crate::context::InstanceId;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A guest's kernel ran to its end.
    Launch {
        /// Name of the entry.
        kernel: &'a str,
        /// Size of the launch.
        geometry: Geometry,
        /// From the start to the end, as the guest waited.
        took: Duration,
    },
    /// A guest's kernel was loaded.
    Load {
        /// Name of the entry.
        kernel: &'a str,
        /// Bytes of the text.
        ptx_bytes: usize,
        /// From the beginning of the work on it.
        took: Duration,
    },
    /// A call was refused or failed, and this is what the guest was told.
    Refuse {
        /// The code.
        code: AbiError,
        /// The text; empty while the capability is off.
        text: &'a str,
    },
    /// A kernel was stopped: deadline, budget or a caller that had gone.
    Stop {
        /// Why.
        reason: StopReason,
    },
    /// A kernel trapped.
    Trap {
        /// Where and how. An address in it is the kernel's own.
        trap: Trap,
    },
}

/// An embedder's record of what its guests do.
pub trait Audit: Debug + Send + Sync {
    /// Takes note of an event of an instance. It is called where the event happens, on the thread of an import or of a device's
    /// loader, which waits for it.
    fn record(&self, instance: InstanceId, event: &Event<'_>);
}

/// Tells everybody who listens.
pub(crate) fn tell(audit: Option<&Arc<dyn Audit>>, instance: InstanceId, event: &Event<'_>) {
    trace(instance, event);
    if is_measured() {
        measure(event);
    }
    if let Some(audit) = audit {
        audit.record(instance, event);
    }
}

/// Whether anybody wants to know about launches that end well, of which there are many.
pub(crate) fn is_told(audit: Option<&Arc<dyn Audit>>) -> bool {
    audit.is_some() || is_measured() || tracing::enabled!(tracing::Level::DEBUG)
}

fn trace(instance: InstanceId, event: &Event<'_>) {
    let instance = tracing::field::debug(instance);
    match *event {
        Event::Launch {
            kernel,
            geometry,
            took,
        } => {
            let (grid, block) = (geometry.grid(), geometry.block());
            tracing::debug!(instance, kernel, ?grid, ?block, ?took, "a kernel ended");
        }
        Event::Load {
            kernel,
            ptx_bytes,
            took,
        } => tracing::info!(instance, kernel, ptx_bytes, ?took, "a kernel was loaded"),
        Event::Refuse { code, text } => {
            tracing::info!(instance, code = code.name(), text, "a call was refused");
        }
        Event::Stop { reason } => {
            tracing::warn!(instance, %reason, "a kernel was stopped");
        }
        Event::Trap { trap } => {
            let Trap {
                kind,
                line,
                block,
                thread,
                ..
            } = trap;
            tracing::warn!(instance, %kind, line, ?block, ?thread, "a kernel trapped");
        }
    }
}

fn measure(event: &Event<'_>) {
    match *event {
        Event::Launch { took, .. } => {
            counter!("wasi_cuda_launches_total", "outcome" => "done").increment(1);
            histogram!("wasi_cuda_launch_seconds").record(took);
        }
        Event::Load { took, .. } => {
            counter!("wasi_cuda_loads_total").increment(1);
            histogram!("wasi_cuda_load_seconds").record(took);
        }
        Event::Refuse { code, .. } => {
            counter!("wasi_cuda_refusals_total", "code" => code.name()).increment(1);
        }
        Event::Stop { .. } => {
            counter!("wasi_cuda_launches_total", "outcome" => "stopped").increment(1);
        }
        Event::Trap { .. } => {
            counter!("wasi_cuda_launches_total", "outcome" => "trapped").increment(1);
        }
    }
}

/// Whether metrics are counted: what nobody reads costs launches nothing.
static IS_MEASURED: AtomicBool = AtomicBool::new(false);

/// Whether [`enable_metrics`] was called.
pub(crate) fn is_measured() -> bool {
    IS_MEASURED.load(Ordering::Relaxed)
}

/// Has this crate's metrics counted by the recorder of crate `metrics`, and says to it what they mean. Called once, after the
/// recorder was installed and before there is a [`WasiCudaContext`](crate::WasiCudaContext).
pub fn enable_metrics() {
    IS_MEASURED.store(true, Ordering::Relaxed);
    describe_counter!(
        "wasi_cuda_launches_total",
        "Launches that a device began, by how they ended"
    );
    describe_histogram!(
        "wasi_cuda_launch_seconds",
        "How long launches took that ran to their end"
    );
    describe_counter!("wasi_cuda_loads_total", "Kernels that guests loaded");
    describe_histogram!("wasi_cuda_load_seconds", "How long such loads took");
    describe_counter!(
        "wasi_cuda_refusals_total",
        "Calls that were refused or failed, by the code that the guest was told"
    );
    describe_gauge!(
        "wasi_cuda_in_use",
        "What all instances hold now of each thing that limits bound"
    );
}
