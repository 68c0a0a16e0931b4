//! Loaded modules and entries: code, the variables that entries share, and the pool that runs them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{Attributes, DeviceLimits, Module, Program};
use crate::error::Error;
use crate::launch::{Geometry, Launch, Mode};
use crate::region::Region;

use super::code::Image;
use super::heap::Heap;
use super::lower::lower;
use super::pool::Pool;
use super::size::{Size, THREAD_LOCAL_BYTES};

/// A module on the CPU device. Its entries are lowered when asked for.
pub(super) struct CpuModule {
    program: ptx::Validated,
    globals: Arc<Region>,
    heap: Arc<Heap>,
    pool: Arc<Pool>,
}

impl fmt::Debug for CpuModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuModule").finish_non_exhaustive()
    }
}

impl CpuModule {
    pub(super) fn new(
        program: ptx::Validated,
        globals: Arc<Region>,
        heap: Arc<Heap>,
        pool: Arc<Pool>,
    ) -> Self {
        Self {
            program,
            globals,
            heap,
            pool,
        }
    }
}

impl Module for CpuModule {
    fn entry(&self, name: &str) -> Result<Arc<dyn Program>, Error> {
        static PROGRAMS: AtomicU64 = AtomicU64::new(1);
        let image = lower(&self.program, name)?;
        let Some(signature) = self.program.entry(name) else {
            return Err(Error::EntryMissing {
                name: name.into(),
                entries: String::new(),
            });
        };
        let id = PROGRAMS.fetch_add(1, Ordering::Relaxed);
        let (pool, globals) = (Arc::clone(&self.pool), Arc::clone(&self.globals));
        Ok(Arc::new(CpuProgram::new(
            pool,
            id,
            image,
            (globals, Arc::clone(&self.heap)),
            signature.clone(),
        )?))
    }
}

/// One entry on the CPU device.
pub(super) struct CpuProgram {
    pub(super) id: u64,
    pub(super) image: Image,
    /// The module's `.global` variables, shared by all launches.
    pub(super) globals: Arc<Region>,
    /// What the module's kernels allocate of the memory behind them.
    pub(super) heap: Arc<Heap>,
    /// What its blocks take.
    pub(super) size: Size,
    attributes: Attributes,
    pool: Arc<Pool>,
}

impl fmt::Debug for CpuProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuProgram")
            .field("entry", &self.attributes.signature.entry)
            .finish_non_exhaustive()
    }
}

impl CpuProgram {
    pub(super) fn new(
        pool: Arc<Pool>,
        id: u64,
        image: Image,
        (globals, heap): (Arc<Region>, Arc<Heap>),
        signature: ptx::Signature,
    ) -> Result<Self, Error> {
        let frame = image.functions.first();
        let frame = frame.map(|function| function.size).unwrap_or_default();
        let size = Size::of(&image);
        let local_bytes = u64::from(frame.local) * 4;
        let declared = signature.required_threads.or(signature.max_threads);
        let declared = declared.map_or(u64::MAX, |axes| axes.into_iter().map(u64::from).product());
        let threads = declared
            .min(size.most_threads())
            .min(DeviceLimits::ARCHITECTURAL.threads_per_block.into());
        if threads == 0 || local_bytes > THREAD_LOCAL_BYTES {
            let what =
                "a kernel whose registers and local variables leave no room for a warp".into();
            return Err(Error::Unsupported {
                device: "cpu",
                line: signature.line,
                what,
            });
        }
        let mut program = Self {
            id,
            image,
            globals,
            heap,
            size,
            attributes: Attributes {
                max_threads_per_block: u32::try_from(threads).unwrap_or(u32::MAX),
                registers: frame.words.saturating_add(frame.longs.saturating_mul(2)),
                local_bytes: u32::try_from(local_bytes).unwrap_or(u32::MAX),
                max_cooperative_blocks: 0,
                signature,
            },
            pool,
        };
        program.attributes.max_cooperative_blocks = size.resident_blocks(1, 0);
        Ok(program)
    }
}

impl Program for CpuProgram {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn launch(self: Arc<Self>, launch: Arc<Launch>) {
        if let Err(error) = self.fits(launch.geometry()) {
            let signal = Arc::clone(launch.signal());
            drop(launch);
            drop(self);
            signal.complete(Err(error));
            return;
        }
        let pool = Arc::clone(&self.pool);
        pool.start(self, launch);
    }
}

impl CpuProgram {
    /// Whether a launch can ever be run.
    fn fits(&self, geometry: Geometry) -> Result<(), Error> {
        let given = geometry.blocks();
        let grid = geometry.grid();
        for (axis, (given, blocks)) in ['x', 'y', 'z']
            .into_iter()
            .zip(grid.into_iter().zip(self.image.cluster))
        {
            if !given.is_multiple_of(blocks) {
                let what = format!(
                    "a grid of {given} blocks along {axis}, which are no whole clusters of {blocks},"
                );
                return Err(Error::Unsupported {
                    device: "cpu",
                    line: self.attributes.signature.line,
                    what,
                });
            }
        }
        let unit = self.size.unit(geometry);
        let mut needed = (unit, "a block of the kernel");
        if geometry.mode() == Mode::Cooperative {
            let threads = geometry.threads_per_block();
            let limit = self.size.resident_blocks(threads, geometry.shared_bytes());
            if given > limit {
                let given = given.into();
                return Err(Error::GridCooperative { given, limit });
            }
            let units = given / self.size.cluster().max(1);
            needed = (unit.saturating_mul(units), "a cooperative launch");
        }
        let (requested, what) = needed;
        let available = self.pool.block_bytes();
        if requested > available {
            return Err(Error::OutOfMemory {
                what,
                requested,
                available,
            });
        }
        Ok(())
    }
}
