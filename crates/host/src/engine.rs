//! The one recipe for engines whose linear memory a device can address, and the check that an engine follows it.

use std::sync::Arc;

use device::{Device, MAX_WINDOW_BYTES};
use wasmtime::{Config, Engine, Instance, Module, Store};

use crate::guest_mem::GuestMemory;
use crate::memory::WindowMemoryCreator;

/// Choices about an engine's memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Bytes of each memory's window, a power of two up to 4 GiB: linear memory and device buffers share it.
    pub window_bytes: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            window_bytes: MAX_WINDOW_BYTES,
        }
    }
}

impl EngineOptions {
    /// Windows of this size.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u64) -> Self {
        self.window_bytes = bytes;
        self
    }

    /// The configuration.
    ///
    /// # Errors
    /// If the window is no power of two from 64 KiB to 4 GiB.
    pub fn config(self, device: &Arc<dyn Device>) -> wasmtime::Result<Config> {
        let bytes = self.window_bytes;
        if !bytes.is_power_of_two() || !(1 << 16..=MAX_WINDOW_BYTES).contains(&bytes) {
            wasmtime::bail!(
                "a window of {bytes} bytes was asked for; it must be a power of two from 65536 to {MAX_WINDOW_BYTES}"
            );
        }
        let mut config = Config::new();
        // Data segments must be copied: wasmtime maps copy-on-write images only into memory of its own and panics on any
        // other. The base must not move, since kernels and buffers rely on it.
        config
            .with_host_memory(Arc::new(WindowMemoryCreator::new(
                Arc::clone(device),
                bytes,
            )))
            .memory_init_cow(false)
            .memory_may_move(false)
            .memory_reservation(MAX_WINDOW_BYTES)
            .memory_guard_size(32 << 20)
            .shared_memory(false);
        Ok(config)
    }
}

/// A configuration whose linear memories `device` can address. One engine serves one device.
///
/// What else an embedder sets on it is its own affair, except for what [`check_engine`] refuses.
///
/// # Errors
/// See [`EngineOptions::config`]; the default options are in order.
pub fn engine_config(device: &Arc<dyn Device>) -> wasmtime::Result<Config> {
    EngineOptions::default().config(device)
}

/// `(module (memory (export "memory") 1))` with a byte of data.
const PROBE: &[u8] = b"\0asm\x01\0\0\0\
    \x05\x03\x01\x00\x01\
    \x07\x0a\x01\x06memory\x02\x00\
    \x0b\x07\x01\x00\x41\x00\x0b\x01\x2a";

/// Ticks of the epoch that the probe may take: more than there will be.
const PROBE_EPOCHS: u64 = 1 << 32;

/// Checks that linear memories of `engine` are memory of `device`, by making one. Memory that the embedder's own creator makes
/// is in order too where the device takes it: see [`Device::adopt`](device::Device::adopt), also for how long it must be kept.
///
/// # Errors
/// What about the engine's configuration is in the way.
pub fn check_engine(engine: &Engine, device: &Arc<dyn Device>) -> wasmtime::Result<()> {
    if engine.get_pooling_config().is_some() {
        wasmtime::bail!(
            "the engine uses the pooling allocator, which ignores memory creators; see `engine_config`"
        );
    }
    if engine.get_memory_init_cow() {
        wasmtime::bail!(
            "the engine has `memory_init_cow` on, with which data segments cannot go to device memory; see `engine_config`"
        );
    }
    let module = Module::new(engine, PROBE)?;
    let mut store = Store::new(engine, ());
    // Data segments are written by code, which an engine that meters code stops at once unless the store may run some.
    store.set_epoch_deadline(PROBE_EPOCHS);
    // Refused by an engine that does not count fuel, which then needs none.
    store.set_fuel(u64::MAX).unwrap_or_default();
    let instance = Instance::new(&mut store, &module, &[])?;
    let memory = instance.get_memory(&mut store, abi::MEMORY_EXPORT);
    let found =
        memory.map(|memory| GuestMemory::new(memory.data_mut(&mut store)).addressable(device));
    if found.transpose()?.flatten().is_none() {
        wasmtime::bail!(
            "the engine's linear memory is not memory of device `{}`; see `engine_config`",
            device.info().name
        );
    }
    Ok(())
}
