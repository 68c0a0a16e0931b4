//! The CUDA device: one for each ordinal in a process, made when first asked for and kept as long as anyone uses it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ptx::Admitted;

use super::adopted::adopt;
use super::backing::{Fresh, LEAD_BYTES, ManagedBacking, fresh, lead_bytes};
use super::cache::{Cache, CacheCounters};
use super::compiler::Compilers;
use super::context::{Context, Ordinal, lost_before};
use super::core::Core;
use super::exact::ExactBacking;
use super::flight::Spinner;
use super::gate::Gate;
use super::occupancy;
use super::patience::Patience;
use super::poller::Poller;
use super::probe::{MemoryTraits, Probe};
use super::program::{CudaModule, Loaded, has_state, text_of};
use super::reaper::Reaper;
use super::stream::Lanes;
use super::workers::Workers;
use crate::compiler::{Compiler, Options};
use crate::device::{Abilities, Device, DeviceInfo, Health, Module, Moved, Side};
use crate::error::Error;
use crate::guest_memory::GuestMemory;
use crate::mapping::HostAddr;
use crate::region::{Region, RegionSpec, RegionTable};

/// Address space that the regions of one device may reserve together: two thousand windows of 4 GiB, each of which takes twice as much so
/// that it can begin at a multiple of its size, out of the 128 TiB that a process has.
const REGION_BUDGET_BYTES: u64 = 16 << 40;

/// How long a thread that copies looks out for the next copy.
const COPIERS_ALERT: Duration = Duration::from_micros(100);
/// How long the end of a copy is waited for on the thread that asked for it.
const COPY_SPIN: Duration = Duration::from_micros(20);

/// Threads that load, and processes that compile for them.
const LOADERS: usize = 2;

/// Loaded modules that are kept for the next load of their text.
const MOST_MODULES: usize = 64;
/// Bytes of those texts.
const MOST_TEXT_BYTES: usize = 32 << 20;

/// An NVIDIA GPU. It runs kernels that are confined, and those that the embedder vouches for.
///
/// A fault of a kernel ends the use of CUDA for the whole process: the device is *lost* then, and says so to every
/// call, until the process is started anew.
#[derive(Debug)]
pub struct CudaDevice {
    copiers: Workers,
    loaders: Workers,
    mover: Workers,
    /// Where texts are compiled, if that is not here.
    compilers: Option<Compilers>,
    modules: Cache<Arc<Loaded>>,
    core: Arc<Core>,
    memory: MemoryTraits,
    strategy: Strategy,
}

/// What was found to work.
#[derive(Debug)]
enum Strategy {
    /// [`GuestMemory::Exact`], and why.
    Exact(String),
    /// [`GuestMemory::Guarded`].
    Guarded(Fresh),
}

impl Strategy {
    fn find(wanted: GuestMemory, traits: MemoryTraits, lanes: &Arc<Lanes>) -> Result<Self, Error> {
        if wanted == GuestMemory::Exact {
            return Ok(Self::Exact("as asked for".into()));
        }
        if !traits.concurrent_managed_access {
            return Ok(Self::Exact("no concurrent managed access".into()));
        }
        match fresh(lanes) {
            Ok(fresh) => Ok(Self::Guarded(fresh)),
            // The operating system's words; what the driver says is another error.
            Err(Error::Backend { what, reason }) => Ok(Self::Exact(format!("{what}: {reason}"))),
            Err(error) => Err(error),
        }
    }

    /// Where guests are, for people.
    fn remark(&self) -> String {
        match self {
            Self::Exact(why) => {
                format!("guests on registered host memory, for trusted kernels only ({why})")
            }
            Self::Guarded(_) => "guests on managed memory".into(),
        }
    }
}

impl CudaDevice {
    /// The device of a number: the same one for all who ask while it is in use. The driver is asked, by `find` first of all,
    /// only where it is not in use and was not lost.
    ///
    /// # Errors
    /// What `find` or the driver says; [`Error::DeviceLost`] where a fault ended its use in this process.
    pub(super) fn open(
        number: u32,
        options: &Options,
        find: impl FnOnce() -> Result<Ordinal, Error>,
    ) -> Result<Arc<Self>, Error> {
        static OPEN: Mutex<BTreeMap<(u32, Options), Weak<CudaDevice>>> =
            Mutex::new(BTreeMap::new());

        // Held while opening, so that nobody opens a second one.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (number, options.clone());
        if let Some(device) = open.get(&key).and_then(Weak::upgrade) {
            return Ok(device);
        }
        if let Some(lost) = lost_before(number) {
            return Err(lost);
        }
        let device = Arc::new(Self::start(find()?, number, options)?);
        open.insert(key, Arc::downgrade(&device));
        Ok(device)
    }

    fn start(ordinal: Ordinal, number: u32, options: &Options) -> Result<Self, Error> {
        let Probe {
            info,
            memory,
            runs_cooperative,
        } = Probe::of(ordinal)?;
        let compilers = match &options.compiler {
            Compiler::Child(child) => Some(Compilers::new(child.clone(), number, LOADERS)?),
            Compiler::InProcess => None,
        };
        let context = Context::retain(ordinal)?;
        let lanes = Lanes::new(&context)?;
        let strategy = Strategy::find(options.memory, memory, &lanes)?;
        tracing::info!(
            ?ordinal,
            name = info.name,
            ?memory,
            ?strategy,
            "opened a CUDA device"
        );
        let of_poller = Arc::clone(&context);
        let poller = Poller::start(move || {
            if let Err(error) = of_poller.bind() {
                tracing::error!(%error, "the thread that waits for launches cannot ask the driver");
            }
        })?;
        let core = Core {
            poller,
            reaper: Reaper::start(&context)?,
            lanes,
            context,
            regions: RegionTable::new(REGION_BUDGET_BYTES),
            info,
            runs_cooperative,
            clock: OnceLock::new(),
            patience: Patience::default(),
            gate: Gate::default(),
        };
        Ok(Self {
            copiers: Workers::start("cuda-copier", 4, "copies", COPIERS_ALERT)?,
            loaders: Workers::start("cuda-loader", LOADERS, "loads", Duration::ZERO)?,
            mover: Workers::start("cuda-mover", 1, "moves of memory", Duration::ZERO)?,
            compilers,
            modules: Cache::new(MOST_MODULES, MOST_TEXT_BYTES),
            core: Arc::new(core),
            memory,
            strategy,
        })
    }

    /// How linear memory is made reachable, and why it is so where it is not [`GuestMemory::Guarded`].
    #[must_use]
    pub fn guest_memory(&self) -> (GuestMemory, Option<&str>) {
        match &self.strategy {
            Strategy::Exact(why) => (GuestMemory::Exact, Some(why)),
            Strategy::Guarded(_) => (GuestMemory::Guarded, None),
        }
    }

    /// How it shares memory with its host.
    #[must_use]
    pub fn memory_traits(&self) -> MemoryTraits {
        self.memory
    }

    /// What became of requests for modules that have no variables of their own, which are shared between loads of one text.
    #[must_use]
    pub fn module_cache(&self) -> CacheCounters {
        self.modules.counters()
    }

    /// How often the driver did not say how many blocks of a kernel fit on the device. The bound of cooperative launches
    /// is then the device's, and the driver refuses what is over the kernel's.
    #[must_use]
    pub fn occupancy_failures(&self) -> u64 {
        occupancy::failures()
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.core.info
    }

    fn health(&self) -> Health {
        match self.core.context.lost() {
            None => Health::Good,
            Some(reason) => Health::Lost {
                reason: reason.to_owned(),
            },
        }
    }

    fn regions(&self) -> &Arc<RegionTable> {
        &self.core.regions
    }

    fn new_region(&self, spec: RegionSpec) -> Result<Arc<Region>, Error> {
        let core = &self.core;
        let lead_bytes = match self.strategy {
            Strategy::Exact(_) => LEAD_BYTES as u64,
            Strategy::Guarded(_) => lead_bytes(spec),
        };
        Region::on(&core.regions, spec, lead_bytes, |charge| {
            let (lanes, reaper) = (&core.lanes, &core.reaper);
            Ok(match self.strategy {
                Strategy::Exact(_) => Box::new(ExactBacking::reserve(lanes, reaper, charge)?),
                Strategy::Guarded(fresh) => {
                    Box::new(ManagedBacking::reserve(lanes, reaper, fresh, charge, spec)?)
                }
            })
        })
    }

    fn load(&self, program: &Admitted) -> Result<Arc<dyn Module>, Error> {
        let text = text_of(program)?;
        let core = &self.core;
        core.context.enter()?;
        let confined = program.as_confined();
        if confined.is_some() {
            core.read_clock();
        }
        let lines = confined.map(|verified| &verified.map().lines[..]);
        let compilers = self.compilers.as_ref();
        let load = || Loaded::load(core, compilers, &text, program.program(), lines).map(Arc::new);
        let loaded = if has_state(program.program()) {
            load()?
        } else {
            self.modules.get(&text, load)?
        };
        let module = CudaModule::new(core, loaded, confined)?;
        Ok(Arc::new(module))
    }

    fn defer(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), Error> {
        self.loaders.defer(work)
    }

    fn transfer(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), Error> {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        self.copiers.defer(Box::new(move || {
            work();
            done.store(true, Ordering::Release);
        }))?;
        // Most copies are short. Their caller need not be woken then.
        if let Some(_spinner) = Spinner::new() {
            let begin = Instant::now();
            while !is_done.load(Ordering::Acquire) && begin.elapsed() < COPY_SPIN {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    fn prefetch(&self, region: Arc<Region>, range: Range<u64>, side: Side, done: Moved) {
        let move_it = Box::new(move || done(region.prefetch(range, side)));
        if let Err(error) = self.mover.defer(move_it) {
            // Whoever waits for `done` hears that it is gone.
            tracing::debug!(%error, "memory is left where it is");
        }
    }

    fn adopt(&self, base: HostAddr, bytes: u64) -> Result<Option<Arc<Region>>, Error> {
        adopt(&self.core, self.memory, base, bytes)
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            checks_accesses: false,
            cooperative: self.core.runs_cooperative,
            prefetch: matches!(self.strategy, Strategy::Guarded(_)),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = vec![self.strategy.remark()];
        remarks.extend(self.memory.remark());
        remarks.extend(self.modules.counters().remark());
        let failures = occupancy::failures();
        if failures > 0 {
            remarks.push(format!(
                "the bound of cooperative launches was not known {failures} times"
            ));
        }
        remarks
    }
}
