//! The traits that a backend implements, and what a device says about itself.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use crate::confinement::Confinement;
use crate::error::Error;
use crate::launch::Launch;
use crate::mapping::HostAddr;
use crate::region::{Region, RegionSpec, RegionTable};

/// A device: makes memory that its kernels can address, and loads programs.
///
/// The trait is object-safe and public, so that an embedder or a bench can bring its own. A backend checks
/// nothing that [`Launch`] stands for; it reports what a caller could not foresee.
pub trait Device: Debug + Send + Sync {
    /// What the device is and what it allows.
    fn info(&self) -> &DeviceInfo;

    /// Whether the device still works.
    fn health(&self) -> Health;

    /// The regions that this device can address: the guard's table.
    fn regions(&self) -> &Arc<RegionTable>;

    /// Makes a region that kernels of this device can address, entered in [`Device::regions`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] or [`Error::Backend`] where the operating system or driver refuses.
    fn new_region(&self, spec: RegionSpec) -> Result<Arc<Region>, Error>;

    /// Loads an admitted program. May take long; see [`Device::defer`].
    ///
    /// # Errors
    /// What the backend's compiler said.
    fn load(&self, program: &ptx::Admitted) -> Result<Arc<dyn Module>, Error>;

    /// Runs work that takes long (reading and loading PTX) away from the caller's thread. The default runs it here,
    /// which suits a device whose loads take no time.
    ///
    /// # Errors
    /// [`Error::Busy`] where too much waits already; the work is dropped.
    fn defer(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), Error> {
        work();
        Ok(())
    }

    /// Runs work that waits for a driver a short while, such as making a buffer or copying to one, away from the caller's
    /// thread. The default runs it here, which suits a device whose copies are the processor's.
    ///
    /// # Errors
    /// [`Error::Busy`] where too much waits already; the work is dropped.
    fn transfer(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), Error> {
        work();
        Ok(())
    }

    /// Moves a range of a region's linear memory to where it will be used next and calls `done` when it is there, on any thread.
    /// It is a hint: what cannot be moved stays where it is. The default moves nothing, which suits a device on the host's
    /// memory.
    fn prefetch(&self, _region: Arc<Region>, _range: Range<u64>, _side: Side, done: Moved) {
        done(Ok(()));
    }

    /// Memory that the embedder itself made addressable to the device, some bytes from a base, as a region that kernels can be
    /// given pointers into. `None` is the answer for all other memory, and by default for any.
    ///
    /// A region made here holds nothing. Whoever owns the memory keeps it, at that address and known to the driver, until
    /// every launch that was given the region has ended: as long as the instance, and for ever where one of its kernels
    /// does not stop. Only kernels that the embedder vouches for run on such memory.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    fn adopt(&self, _base: HostAddr, _bytes: u64) -> Result<Option<Arc<Region>>, Error> {
        Ok(None)
    }

    /// What the device can do that others cannot.
    fn abilities(&self) -> Abilities {
        Abilities {
            checks_accesses: false,
            cooperative: true,
            prefetch: false,
        }
    }

    /// What people who look at the device should know besides [`Device::info`], a few words each.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A loaded program. Its entries share its module variables, which are as initialised when it is loaded.
pub trait Module: Debug + Send + Sync {
    /// One entry, by the name that its author gave it, ready to launch; it keeps what it needs of the module alive.
    ///
    /// # Errors
    /// [`Error::EntryMissing`], or [`Error::Unsupported`] with the line of what this device cannot run.
    fn entry(&self, name: &str) -> Result<Arc<dyn Program>, Error>;

    /// The module's variables in global space, where those lie in the window of each instance that loads it and not with the module:
    /// the instance carves room for them ([`Carved::for_globals`](crate::Carved::for_globals)), keeps it as long as the module, and says
    /// where it is at each launch ([`LaunchControl::globals`](crate::LaunchControl::globals)). `None` where there are no such.
    fn globals(&self) -> Option<&ptx::Globals> {
        None
    }
}

/// One loaded entry, ready to launch.
pub trait Program: Debug + Send + Sync {
    /// The interface and needs of the entry.
    fn attributes(&self) -> &Attributes;

    /// Starts a verified launch and returns at once. The end is reported through [`Launch::signal`], after the backend has
    /// dropped its hold on `launch`, so that its owner can use it again.
    fn launch(self: Arc<Self>, launch: Arc<Launch>);
}

/// What a loaded entry takes and needs.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Parameters and launch directives, from the PTX of the kernel's author; the shared memory is what the device needs for it.
    pub signature: ptx::Signature,
    /// What it asks of its launches because it is confined; `None` where it is not.
    pub confinement: Option<Confinement>,
    /// Most threads a block of this kernel may have.
    pub max_threads_per_block: u32,
    /// Registers a thread uses; 0 where the device has no such notion.
    pub registers: u32,
    /// Bytes of local memory a thread uses.
    pub local_bytes: u32,
    /// Most blocks of one thread each that can be resident at once: an upper bound for cooperative launches.
    pub max_cooperative_blocks: u64,
}

/// What kind of device runs the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The PTX interpreter on the host's processor cores.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// What a device is and what it allows.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// CPU or CUDA.
    pub kind: DeviceKind,
    /// Name for people.
    pub name: String,
    /// Compute capability, major and minor, whose instructions it runs.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors; processor cores on the CPU device.
    pub multiprocessors: u32,
    /// Launch limits.
    pub limits: DeviceLimits,
}

/// Limits on launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Threads of a block, per axis.
    pub block: [u32; 3],
    /// Threads of a block in all.
    pub threads_per_block: u32,
    /// Blocks of a grid, per axis.
    pub grid: [u32; 3],
    /// Blocks of a grid in all.
    pub blocks: u64,
    /// Shared memory of a block, static and dynamic together, in bytes.
    pub shared_bytes: u32,
}

impl DeviceLimits {
    /// Per-axis limits of every compute capability since 3.0 (CUDA C++ Programming Guide, "Compute Capabilities") and the
    /// shared memory of 9.0; what holds where no device was asked.
    pub const ARCHITECTURAL: Self = Self {
        block: [1024, 1024, 64],
        threads_per_block: 1024,
        grid: [i32::MAX.cast_unsigned(), 65_535, 65_535],
        blocks: i32::MAX.cast_unsigned() as u64,
        shared_bytes: 227 * 1024,
    };
}

/// What not every device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// It looks at each access of a kernel before it makes it, so that a guest's text can run as it is.
    pub checks_accesses: bool,
    /// Cooperative launches.
    pub cooperative: bool,
    /// [`Device::prefetch`] moves memory.
    pub prefetch: bool,
}

/// Where memory will be used next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In kernels.
    Device,
    /// In the guest.
    Host,
}

/// What hears of the end of [`Device::prefetch`].
pub type Moved = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Whether a device works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Good,
    /// It failed for good; the process must be restarted to use it again.
    Lost {
        /// What was seen.
        reason: String,
    },
}
