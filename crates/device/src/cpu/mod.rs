//! The CPU device: a warp-vectorised interpreter of PTX, and the oracle that other devices are compared with.
//!
//! A program is lowered once, at load ([`lower`]): typed registers become slots of 32 lanes, instructions become calls of functions
//! over whole slots. Whatever has no meaning here is refused then, with its line; a loaded program never fails but by what it does.
//! A block is a value that any worker can go on with, so launches share the workers in slices of time, and blocks that wait for each
//! other all make progress.
//!
//! Semantics where PTX leaves a choice:
//! - Lanes that stand at the same place run together; the deepest call, then the lowest place runs first. A group that keeps jumping back
//!   while others could run gives one of them a turn, so spin locks within a warp end.
//! - `.sync` instructions wait for the members that are alive. A source lane that does not take part in a shuffle gives 0.
//! - Exited threads count as arrived at a barrier that names no number of threads. A block whose threads all wait at incomplete barriers
//!   ends with a trap.
//! - Global addresses are offsets in the guest's window; shared and local memory, module variables and parameters have generic addresses
//!   far above 4 GiB. Every access is checked for bounds and alignment; the first trap ends the launch.
//! - Shared and local memory is zero when a block begins.
//! - NaN results of f32 and narrower arithmetic are `0x7fffffff` and `0x7fff`; approximate functions are correctly rounded. What PTX leaves
//!   open (division by zero, NaN as an integer, payloads of f64 NaN) is what an H200 gives.
//! - Atomics run lane by lane in order; memory shared between blocks is accessed by relaxed atomics, with fences where ordering is asked for.
//! - The blocks of a cluster are run together by one worker. Where only the launch would say how many they are, a cluster is one block.
//! - `malloc` takes from 8 MiB that a module has for it; `printf` writes to the launch's log ([`Launch::take_log`]).
//!
//! [`lower`]: Device::load
//! [`Launch::take_log`]: crate::Launch::take_log

mod access;
mod alu;
mod atomic;
mod barrier;
mod block;
mod call;
mod code;
mod collective;
mod convert;
mod float;
mod gather;
mod groups;
mod heap;
mod lane_fn;
mod lanes;
mod lower;
mod matrix;
mod memory;
mod phase;
mod pool;
mod print;
mod program;
mod run;
mod size;
mod system;
mod tile;
mod timer;
mod warp;

use std::sync::Arc;

use crate::device::{Abilities, Device, DeviceInfo, DeviceKind, DeviceLimits, Health, Module};
use crate::error::Error;
use crate::mapping::page_bytes;
use crate::region::{MAX_WINDOW_BYTES, Region, RegionSpec, RegionTable};

use heap::Heap;
use pool::Pool;
use program::CpuModule;

/// Address space for all windows with their guards: an eighth of what a process has, so that the rest of it is not starved.
const DEFAULT_WINDOW_BUDGET: u64 = 16 << 40;
/// Memory for blocks: a dozen of the largest ones, or a cooperative launch of the largest ones.
const DEFAULT_BLOCK_BYTES: u64 = 2 << 30;
/// Address space for the `.global` variables of all loaded programs together.
const GLOBALS_BUDGET: u64 = 1 << 40;
/// The compute capability whose instructions it runs, as far as it does.
const COMPUTE_CAPABILITY: (u32, u32) = (9, 0);

/// How a CPU device is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Threads that run blocks; 0 for one a processor core.
    pub threads: usize,
    /// Bytes of address space that the windows of all regions may reserve together.
    pub window_budget: u64,
    /// Bytes of memory that the blocks of all launches may take together. Launches wait for each other's; one that takes more
    /// by itself is refused.
    pub block_bytes: u64,
    /// The part of each region that confined kernels are given as their window, for whoever looks whether they stay in it; all of it if
    /// `None`.
    pub inset: Option<Inset>,
}

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inset {
    /// Where it begins: at a page of the host.
    pub at: u64,
    /// Its bytes, a power of two.
    pub bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threads: 0,
            window_budget: DEFAULT_WINDOW_BUDGET,
            block_bytes: DEFAULT_BLOCK_BYTES,
            inset: None,
        }
    }
}

/// The CPU device.
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    regions: Arc<RegionTable>,
    globals: Arc<RegionTable>,
    nothing: Arc<Region>,
    pool: Arc<Pool>,
    inset: Option<Inset>,
}

/// A region that guests never see, for variables of programs.
fn own_region(table: &Arc<RegionTable>, bytes: u64) -> Result<Arc<Region>, Error> {
    let page = page_bytes() as u64;
    let spec = RegionSpec {
        window_bytes: bytes.max(page).next_power_of_two().min(MAX_WINDOW_BYTES),
        initial_bytes: bytes,
        maximum_bytes: bytes,
        reserved_bytes: 0,
        guard_bytes: 0,
    };
    Region::anonymous(table, spec)
}

impl CpuDevice {
    /// Starts the device's threads.
    ///
    /// # Errors
    /// [`Error::Backend`] if the operating system refuses a thread or memory.
    pub fn new(config: Config) -> Result<Arc<Self>, Error> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if config.threads == 0 {
            cores()
        } else {
            config.threads
        };
        let globals = RegionTable::new(GLOBALS_BUDGET);
        let nothing = own_region(&globals, 0)?;
        let pool = Arc::new(Pool::new(
            threads,
            config.block_bytes,
            Arc::clone(&nothing),
        )?);
        let info = DeviceInfo {
            kind: DeviceKind::Cpu,
            name: "CPU (PTX interpreter)".into(),
            compute_capability: COMPUTE_CAPABILITY,
            multiprocessors: u32::try_from(threads).unwrap_or(u32::MAX),
            limits: DeviceLimits::ARCHITECTURAL,
        };
        let regions = RegionTable::new(config.window_budget);
        Ok(Arc::new(Self {
            info,
            regions,
            globals,
            nothing,
            pool,
            inset: config.inset,
        }))
    }

    /// The memory of a module's `.global` variables, with their initial values, and of its arena behind them.
    fn globals(&self, variables: &lower::Variables) -> Result<Arc<Region>, Error> {
        let bytes = variables.bytes + variables.heap_bytes;
        if bytes == 0 {
            return Ok(Arc::clone(&self.nothing));
        }
        let region = own_region(&self.globals, bytes)?;
        for (offset, bytes) in &variables.values {
            let written = region.window().store_run(*offset, bytes);
            written.map_err(|_| Error::Backend {
                what: "writing initial values",
                reason: "they lie outside their variables".into(),
            })?;
        }
        Ok(region)
    }
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn health(&self) -> Health {
        Health::Good
    }

    fn regions(&self) -> &Arc<RegionTable> {
        &self.regions
    }

    fn new_region(&self, spec: RegionSpec) -> Result<Arc<Region>, Error> {
        Region::anonymous(&self.regions, spec)
    }

    fn load(&self, program: &ptx::Admitted) -> Result<Arc<dyn Module>, Error> {
        let variables = lower::variables(program.program())?;
        let globals = self.globals(&variables)?;
        let heap = Arc::new(Heap::new(variables.bytes, variables.heap_bytes));
        let pool = Arc::clone(&self.pool);
        let admitted = (program.clone(), self.inset);
        Ok(Arc::new(CpuModule::new(admitted, globals, heap, pool)))
    }

    fn defer(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), Error> {
        self.pool.defer(work)
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            checks_accesses: true,
            cooperative: true,
            prefetch: false,
        }
    }
}

/// For each entry that this device would refuse, the first reason.
#[must_use]
pub fn refusals(program: &ptx::Validated) -> Vec<Error> {
    program
        .entries()
        .iter()
        .filter_map(|entry| lower::lower(program, &entry.entry).err())
        .collect()
}
