//! Loaded modules and entries: code, the variables that entries share, and the pool that runs them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{Attributes, DeviceLimits, Module, Program};
use crate::error::Error;
use crate::launch::{Launch, Mode};
use crate::region::Region;

use super::block::{BLOCK_LOCAL_BYTES, THREAD_LOCAL_BYTES};
use super::code::{FrameSize, Image};
use super::lower::lower;
use super::pool::Pool;

/// Most bytes of registers of a block: what one worker may be made to hold.
const BLOCK_REGISTER_BYTES: u64 = 32 << 20;
/// Most bytes of all blocks of a cooperative launch, which are resident at once.
pub(super) const COOPERATIVE_BYTES: u64 = 512 << 20;
/// Most blocks of a cooperative launch: a GPU of today has about as many at once.
const COOPERATIVE_BLOCKS: u64 = 2048;

/// A module on the CPU device. Its entries are lowered when asked for.
pub(super) struct CpuModule {
    program: ptx::Validated,
    globals: Arc<Region>,
    pool: Arc<Pool>,
}

impl fmt::Debug for CpuModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuModule").finish_non_exhaustive()
    }
}

impl CpuModule {
    pub(super) fn new(program: ptx::Validated, globals: Arc<Region>, pool: Arc<Pool>) -> Self {
        Self {
            program,
            globals,
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
            globals,
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

fn warp_register_bytes(size: FrameSize) -> u64 {
    u64::from(size.words) * 128 + u64::from(size.longs) * 256 + u64::from(size.predicates) * 4
}

impl CpuProgram {
    pub(super) fn new(
        pool: Arc<Pool>,
        id: u64,
        image: Image,
        globals: Arc<Region>,
        signature: ptx::Signature,
    ) -> Result<Self, Error> {
        let size = image
            .functions
            .first()
            .map(|function| function.size)
            .unwrap_or_default();
        let local_bytes = u64::from(size.local) * 4;
        let declared = signature.required_threads.or(signature.max_threads);
        let declared = declared.map_or(u64::MAX, |axes| axes.into_iter().map(u64::from).product());
        let by_registers = BLOCK_REGISTER_BYTES / warp_register_bytes(size).max(1) * 32;
        let by_local = BLOCK_LOCAL_BYTES / local_bytes.max(1) / 32 * 32;
        let threads = declared
            .min(by_registers)
            .min(by_local)
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
            attributes: Attributes {
                max_threads_per_block: u32::try_from(threads).unwrap_or(u32::MAX),
                registers: size.words.saturating_add(size.longs.saturating_mul(2)),
                local_bytes: u32::try_from(local_bytes).unwrap_or(u32::MAX),
                max_cooperative_blocks: 0,
                signature,
            },
            pool,
        };
        program.attributes.max_cooperative_blocks = program.resident_blocks(1, 0);
        Ok(program)
    }

    /// Blocks of this many threads and bytes of dynamic shared memory that can be resident at once.
    fn resident_blocks(&self, threads: u32, shared_bytes: u32) -> u64 {
        let size = self
            .image
            .functions
            .first()
            .map(|function| function.size)
            .unwrap_or_default();
        let warp = warp_register_bytes(size) + u64::from(size.local) * 128 + 4096;
        let block = warp * u64::from(threads.div_ceil(32))
            + u64::from(self.image.static_shared_bytes + shared_bytes);
        (COOPERATIVE_BYTES / block.max(1)).min(COOPERATIVE_BLOCKS)
    }
}

impl Program for CpuProgram {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn launch(self: Arc<Self>, launch: Arc<Launch>) {
        let geometry = launch.geometry();
        if geometry.mode() == Mode::Cooperative {
            let limit = self.resident_blocks(geometry.threads_per_block(), geometry.shared_bytes());
            let given = geometry.blocks();
            if given > limit {
                let signal = Arc::clone(launch.signal());
                drop(launch);
                drop(self);
                signal.complete(Err(Error::GridCooperative {
                    given: given.into(),
                    limit,
                }));
                return;
            }
        }
        let pool = Arc::clone(&self.pool);
        pool.start(self, launch);
    }
}
