//! Components: what they can do through the interface in `wit/`, and that it is what core modules can do.

mod behaviours;
mod blocking;
mod parity;
mod rig;
