//! Loaded modules and entries: code, the variables that entries share, and the pool that runs them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ptx::{Admitted, Signature, Verified};

use crate::confinement::{Confinement, Hidden, Reach, Reins};
use crate::control::Known;
use crate::device::{Attributes, DeviceLimits, Module, Program};
use crate::error::Error;
use crate::launch::{Geometry, Launch, Mode};
use crate::region::Region;

use super::Inset;
use super::code::Image;
use super::heap::Heap;
use super::lower::{self, lower};
use super::memory::{CONTROL_BASE, GLOBALS_BASE};
use super::pool::Pool;
use super::size::{Size, THREAD_LOCAL_BYTES};

/// A module on the CPU device. Its entries are lowered when asked for.
pub(super) struct CpuModule {
    admitted: Admitted,
    inset: Option<Inset>,
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
        (admitted, inset): (Admitted, Option<Inset>),
        globals: Arc<Region>,
        heap: Arc<Heap>,
        pool: Arc<Pool>,
    ) -> Self {
        Self {
            admitted,
            inset,
            globals,
            heap,
            pool,
        }
    }
}

impl Module for CpuModule {
    fn entry(&self, name: &str) -> Result<Arc<dyn Program>, Error> {
        static PROGRAMS: AtomicU64 = AtomicU64::new(1);
        let program = self.admitted.program();
        let verified = self.admitted.as_confined();
        let guests = verified.map_or(&[][..], |verified| &verified.map().entries);
        let missing = || lower::missing(name, guests.iter().map(|entry| &entry.signature));
        let (image, attributed) = match verified {
            None => {
                let image = lower(program, name)?;
                (
                    image,
                    (program.entry(name).ok_or_else(missing)?.clone(), None),
                )
            }
            Some(verified) => {
                let mut entries = verified.map().entries.iter();
                let at = entries.position(|entry| entry.signature.entry == name);
                let at = at.ok_or_else(missing)?;
                let of = &verified.map().entries[at];
                let text = program.entry(&of.printed).ok_or_else(missing)?;
                let image = lower(program, &of.printed).map_err(|error| match error {
                    Error::Unsupported { device, line, what } => Error::Unsupported {
                        device,
                        line: verified.map().guest_line(line).unwrap_or(of.signature.line),
                        what,
                    },
                    error => error,
                })?;
                let signature = Signature {
                    static_shared_bytes: text.static_shared_bytes,
                    ..of.signature.clone()
                };
                let confined = Confined {
                    verified: verified.clone(),
                    signature: text.clone(),
                    inset: self.inset,
                };
                (
                    image,
                    (signature, Some((confined, Confinement::of(verified, at)))),
                )
            }
        };
        let id = PROGRAMS.fetch_add(1, Ordering::Relaxed);
        let (pool, globals) = (Arc::clone(&self.pool), Arc::clone(&self.globals));
        Ok(Arc::new(CpuProgram::new(
            pool,
            id,
            image,
            (globals, Arc::clone(&self.heap)),
            attributed,
        )?))
    }

    fn globals(&self) -> Option<&ptx::Globals> {
        self.admitted
            .as_confined()
            .map(|verified| &verified.map().globals)
    }
}

/// What there is to an entry of confined text.
pub(super) struct Confined {
    verified: Verified,
    /// With the hidden parameters.
    pub(super) signature: Signature,
    pub(super) inset: Option<Inset>,
}

impl Confined {
    /// Where the window of a launch lies to its kernel, and its bytes. The module has no variables of its own to lie there.
    fn window(&self, launch: &Launch) -> (u64, u64) {
        let inset = self.inset.unwrap_or_else(|| Inset {
            at: 0,
            bytes: launch
                .region()
                .map_or(0, |region| region.spec().window_bytes),
        });
        (GLOBALS_BASE + inset.at, inset.bytes)
    }

    /// What a launch that may run until the clock shows `until` takes besides its guest's arguments. The host stops it otherwise: the word
    /// for that is the first of the control block, which nobody but its own threads writes.
    pub(super) fn hidden(&self, launch: &Launch, until: u64) -> Hidden {
        let (base, bytes) = self.window(launch);
        let reins = Reins {
            control: CONTROL_BASE,
            stop: CONTROL_BASE,
            token: 1,
            until,
        };
        let region = launch.region().filter(|_| self.inset.is_none());
        let reach = region.map_or(Reach::new(bytes, bytes, bytes), |region| region.reach());
        Hidden::new(launch, base, bytes, reach, reins)
    }

    pub(super) fn known(&self, guest: &Signature, launch: &Launch) -> Known<'_> {
        let (base, window_bytes) = self.window(launch);
        Known {
            map: self.verified.map(),
            geometry: launch.geometry(),
            line: guest.line,
            base,
            window_bytes,
            told: None,
        }
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
    pub(super) confined: Option<Confined>,
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
        (signature, confined): (Signature, Option<(Confined, Confinement)>),
    ) -> Result<Self, Error> {
        let (confined, confinement) = confined.unzip();
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
            confined,
            attributes: Attributes {
                max_threads_per_block: u32::try_from(threads).unwrap_or(u32::MAX),
                registers: frame.words.saturating_add(frame.longs.saturating_mul(2)),
                local_bytes: u32::try_from(local_bytes).unwrap_or(u32::MAX),
                max_cooperative_blocks: 0,
                confinement,
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
