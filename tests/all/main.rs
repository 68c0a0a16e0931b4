//! Integration tests: everything that a guest or an embedder can observe, through public APIs. Each file says what it is about;
//! `harness.rs` builds the guests.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

mod behaviours;
mod blocking;
mod buffers;
mod component;
mod concurrency;
mod core_abi;
mod deferred;
mod engine;
mod events;
mod fake_device;
mod fuzz_calls;
mod guard;
mod guests;
mod guides;
mod harness;
mod hostile;
mod hostile_kernels;
mod hostile_ptx;
mod kernel_limits;
mod kernel_values;
mod kernels;
mod launch_order;
mod memories;
mod memory;
mod misbehaving_device;
mod signature;
mod v0_2;
mod wit;
