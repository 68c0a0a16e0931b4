//! Does confined text do what the original does, and nothing else? Corpus files and random kernels run on the CPU device as they are and
//! confined in each way. `differential/oracle.rs` says what must hold.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends where something is not as it must be"
)]

extern crate wasi_cuda_device as device;

#[path = "differential/corpus.rs"]
mod corpus;
#[path = "differential/grammar.rs"]
mod grammar;
#[path = "differential/oracle.rs"]
mod oracle;
#[path = "differential/random.rs"]
mod random;
