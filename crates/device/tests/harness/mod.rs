//! What the tests and benches of this crate share: backends, guest memory with canaries, launches
//! through the public API, random data. Nothing here knows a kernel.

mod backend;
mod compare;
mod fixture;
mod memory;
mod random;
mod record;
mod rig;

pub(crate) use backend::{Case, as_it_is, every, isolating, run};
pub(crate) use compare::{About, assert_close, assert_same};
pub(crate) use fixture::{corpus, corpus_names, kernels, kernels_names, line_of};
pub(crate) use memory::{Buffer, Image, Memory, Number, Placed, Plain};
pub(crate) use random::Random;
pub(crate) use record::{Argument, Recorded, Recorder};
pub(crate) use rig::{Admission, Rig, Shape};
