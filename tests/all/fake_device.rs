//! A device whose kernels do nothing but end, or not, as the test says.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::{
    Abilities, Attributes, Device, DeviceInfo, DeviceKind, DeviceLimits, Error, Health, Launch,
    Module, Program, Region, RegionSpec, RegionTable,
};
use ptx::Signature;

/// What fits on the device at once, of any kernel.
const MAX_COOPERATIVE_BLOCKS: u64 = 132 * 16;

/// How a launch ends.
pub(crate) type Outcome = Result<(), Error>;

/// A device that reads PTX and runs none of it.
#[derive(Debug)]
pub(crate) struct FakeDevice {
    info: DeviceInfo,
    regions: Arc<RegionTable>,
    runs: Arc<Runs>,
}

/// What the device was asked for, and what it does.
#[derive(Debug)]
pub(crate) struct Runs {
    launches: AtomicUsize,
    script: Mutex<Script>,
    held: Mutex<Vec<Arc<Launch>>>,
}

/// What the device does with loads and launches.
#[derive(Clone, Debug)]
enum Script {
    /// Launches end at once.
    End(Outcome),
    /// Launches are kept, whoever asks for their end.
    Hold,
    /// The device is lost, for this reason.
    Lose(String),
    /// Launches panic.
    PanicInLaunch,
    /// Loads panic.
    PanicInLoad,
}

impl Runs {
    /// Launches so far.
    pub(crate) fn launches(&self) -> usize {
        self.launches.load(Ordering::SeqCst)
    }

    /// How launches end from now on.
    pub(crate) fn end_with(&self, outcome: Outcome) {
        self.follow(Script::End(outcome));
    }

    /// Launches do not end from now on, even when they are asked to.
    pub(crate) fn hold(&self) {
        self.follow(Script::Hold);
    }

    /// The launches that are held end now.
    pub(crate) fn release(&self, outcome: &Outcome) {
        let held = std::mem::take(&mut *lock(&self.held));
        for launch in held {
            end(launch, outcome.clone());
        }
    }

    /// The device is lost.
    pub(crate) fn lose(&self, reason: &str) {
        self.follow(Script::Lose(reason.into()));
    }

    /// Launches panic from now on.
    pub(crate) fn panic_in_launch(&self) {
        self.follow(Script::PanicInLaunch);
    }

    /// Loads panic from now on.
    pub(crate) fn panic_in_load(&self) {
        self.follow(Script::PanicInLoad);
    }

    fn follow(&self, script: Script) {
        *lock(&self.script) = script;
    }

    fn script(&self) -> Script {
        lock(&self.script).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a launch as a device must: it lets go of it first.
fn end(launch: Arc<Launch>, outcome: Outcome) {
    let signal = Arc::clone(launch.signal());
    drop(launch);
    signal.complete(outcome);
}

impl FakeDevice {
    /// A device with the limits of an H200.
    pub(crate) fn open() -> (Arc<dyn Device>, Arc<Runs>) {
        Self::with_budget(1 << 46)
    }

    /// The same with so many bytes of address space for windows.
    pub(crate) fn with_budget(bytes: u64) -> (Arc<dyn Device>, Arc<Runs>) {
        let runs = Arc::new(Runs {
            launches: AtomicUsize::new(0),
            script: Mutex::new(Script::End(Ok(()))),
            held: Mutex::default(),
        });
        let info = DeviceInfo {
            kind: DeviceKind::Cuda,
            name: "fake".into(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            limits: DeviceLimits::ARCHITECTURAL,
        };
        let device = Self {
            info,
            regions: RegionTable::new(bytes),
            runs: Arc::clone(&runs),
        };
        (Arc::new(device), runs)
    }
}

impl Device for FakeDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn health(&self) -> Health {
        match self.runs.script() {
            Script::Lose(reason) => Health::Lost { reason },
            _ => Health::Good,
        }
    }

    fn regions(&self) -> &Arc<RegionTable> {
        &self.regions
    }

    fn new_region(&self, spec: RegionSpec) -> Result<Arc<Region>, Error> {
        Region::anonymous(&self.regions, spec)
    }

    fn load(&self, program: &ptx::Admitted) -> Result<Arc<dyn Module>, Error> {
        match self.runs.script() {
            Script::Lose(reason) => return Err(Error::DeviceLost { reason }),
            Script::PanicInLoad => panic!("a device's load may panic"),
            _ => {}
        }
        let entries = program.program().entries().to_vec();
        Ok(Arc::new(FakeModule {
            entries,
            runs: Arc::clone(&self.runs),
        }))
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            checks_accesses: true,
            cooperative: true,
            prefetch: false,
        }
    }
}

#[derive(Debug)]
struct FakeModule {
    entries: Vec<Signature>,
    runs: Arc<Runs>,
}

impl Module for FakeModule {
    fn entry(&self, name: &str) -> Result<Arc<dyn Program>, Error> {
        let Some(signature) = self
            .entries
            .iter()
            .find(|signature| signature.entry == name)
        else {
            return Err(Error::EntryMissing {
                name: name.into(),
                entries: "others".into(),
            });
        };
        let attributes = Attributes {
            signature: signature.clone(),
            confinement: None,
            max_threads_per_block: 1024,
            registers: 32,
            local_bytes: 0,
            max_cooperative_blocks: MAX_COOPERATIVE_BLOCKS,
        };
        Ok(Arc::new(FakeProgram {
            attributes,
            runs: Arc::clone(&self.runs),
        }))
    }
}

#[derive(Debug)]
struct FakeProgram {
    attributes: Attributes,
    runs: Arc<Runs>,
}

impl Program for FakeProgram {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn launch(self: Arc<Self>, launch: Arc<Launch>) {
        self.runs.launches.fetch_add(1, Ordering::SeqCst);
        match self.runs.script() {
            Script::End(outcome) => end(launch, outcome),
            Script::Hold => lock(&self.runs.held).push(launch),
            Script::Lose(reason) => end(launch, Err(Error::DeviceLost { reason })),
            Script::PanicInLaunch => panic!("a device's launch may panic"),
            Script::PanicInLoad => end(launch, Ok(())),
        }
    }
}
