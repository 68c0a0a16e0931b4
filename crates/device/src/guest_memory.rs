//! The kinds of guest memory that a CUDA device can be asked for, in builds with and without the backend.

/// How linear memory is made reachable for a CUDA device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GuestMemory {
    /// The whole window is managed memory whose pages are closed to the host past the end of linear memory. Where the host cannot
    /// do that, [`Exact`](Self::Exact).
    #[default]
    Guarded,
    /// Exactly what the guest has is memory of the host that is registered with the driver. It serves kernels that the embedder
    /// vouches for only, and is never moved to the device.
    Exact,
}
