//! What a launch is and every check on it: [`Geometry`] against limits, [`Arguments`] against the signature,
//! [`Launch`] against memory. Each type is the proof of its check; a backend is handed the last one only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ptx::{Class, Parameter, Signature};

use crate::completion::{Completion, Signal};
use crate::confinement::Confinement;
use crate::device::{Attributes, DeviceLimits, Program};
use crate::error::Error;
use crate::params::ParamStorage;
use crate::region::Region;

/// A grid of blocks of threads that a device and a kernel accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    mode: Mode,
}

/// How the blocks of a grid are scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All blocks are resident at once and may wait for each other.
    Cooperative,
    /// In any order.
    #[default]
    Plain,
}

/// Most bytes that a launch keeps of what its kernel prints.
pub const LOG_BYTES: usize = 64 << 10;

const AXES: [char; 3] = ['x', 'y', 'z'];

fn product(axes: [u32; 3]) -> u128 {
    axes.into_iter().map(u128::from).product()
}

impl Geometry {
    /// Checks a grid, a block and the dynamic shared memory against the limits of a device and, where the kernel is known,
    /// of the kernel.
    ///
    /// # Errors
    /// The axis, product or size that is over its limit, with the limit.
    #[inline]
    pub fn new(
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        mode: Mode,
        limits: &DeviceLimits,
        kernel: Option<&Attributes>,
    ) -> Result<Self, Error> {
        for (axis, (given, limit)) in AXES.into_iter().zip(block.into_iter().zip(limits.block)) {
            if given == 0 || given > limit {
                return Err(Error::BlockAxis { axis, given, limit });
            }
        }
        let most = kernel.map_or(limits.threads_per_block, |k| {
            k.max_threads_per_block.min(limits.threads_per_block)
        });
        let threads = product(block);
        if threads > u128::from(most) {
            let given = u64::try_from(threads).unwrap_or(u64::MAX);
            return Err(Error::BlockThreads { given, limit: most });
        }
        for (axis, (given, limit)) in AXES.into_iter().zip(grid.into_iter().zip(limits.grid)) {
            if given == 0 || given > limit {
                return Err(Error::GridAxis { axis, given, limit });
            }
        }
        let blocks = product(grid);
        if blocks > u128::from(limits.blocks) {
            return Err(Error::GridBlocks {
                given: blocks,
                limit: limits.blocks,
            });
        }
        let fixed = kernel.map_or(0, |k| k.signature.static_shared_bytes);
        let given = shared_bytes;
        let confinement = kernel.and_then(|kernel| kernel.confinement);
        let shared_bytes = confinement.map_or(given, |it| it.shared_bytes(given));
        if u64::from(fixed) + u64::from(shared_bytes) > u64::from(limits.shared_bytes) {
            let limit = limits.shared_bytes;
            return Err(if given == shared_bytes {
                Error::SharedBytes {
                    dynamic: given,
                    fixed,
                    limit,
                }
            } else {
                Error::SharedBytesConfined {
                    given,
                    dynamic: shared_bytes,
                    fixed,
                    limit,
                }
            });
        }
        if let Some(kernel) = kernel {
            Self::fits_kernel(kernel, block, blocks, mode)?;
        }
        Ok(Self {
            grid,
            block,
            shared_bytes,
            mode,
        })
    }

    fn fits_kernel(
        kernel: &Attributes,
        block: [u32; 3],
        blocks: u128,
        mode: Mode,
    ) -> Result<(), Error> {
        let signature = &kernel.signature;
        if let Some(required) = signature.required_threads
            && required != block
        {
            return Err(Error::BlockRequired {
                kernel: signature.entry.clone(),
                given: block,
                required,
            });
        }
        if mode == Mode::Cooperative && blocks > u128::from(kernel.max_cooperative_blocks) {
            return Err(Error::GridCooperative {
                given: blocks,
                limit: kernel.max_cooperative_blocks,
            });
        }
        Ok(())
    }

    /// Blocks along x, y, z.
    #[must_use]
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// Threads of a block along x, y, z.
    #[must_use]
    pub fn block(&self) -> [u32; 3] {
        self.block
    }

    /// Dynamic shared memory, in bytes: as much as a block gets, which for a confined kernel is more than was asked for.
    #[must_use]
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// How blocks are scheduled.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Blocks in all.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.grid.into_iter().map(u64::from).product()
    }

    /// Threads of a block in all.
    #[must_use]
    pub fn threads_per_block(&self) -> u32 {
        self.block.into_iter().product()
    }
}

/// One argument, decoded; pointers are offsets in the window that the launch runs on.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "each scalar variant is the Rust type of the same name"
)]
pub enum Value<'a> {
    /// Bytes of an aggregate, or of a scalar of that size.
    Bytes(&'a [u8]),
    F32(f32),
    F64(f64),
    I32(i32),
    I64(i64),
    /// `len` bytes from `offset` in the window.
    Pointer {
        offset: u64,
        len: u64,
    },
    U32(u32),
    U64(u64),
}

impl Value<'_> {
    fn name(&self) -> String {
        match self {
            Self::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Self::F32(_) => "f32".into(),
            Self::F64(_) => "f64".into(),
            Self::I32(_) => "i32".into(),
            Self::I64(_) => "i64".into(),
            Self::Pointer { .. } => "a pointer".into(),
            Self::U32(_) => "u32".into(),
            Self::U64(_) => "u64".into(),
        }
    }

    fn matches(&self, parameter: &Parameter, integer_pointers: IntegerPointers) -> bool {
        let integer = |size: u32| {
            parameter.size == size
                && matches!(parameter.class, Class::Integer | Class::Bits)
                && (parameter.pointer.is_none() || integer_pointers == IntegerPointers::Accept)
        };
        match self {
            Self::Bytes(bytes) => {
                bytes.len() == parameter.size as usize && parameter.pointer.is_none()
            }
            Self::F32(_) => {
                parameter.size == 4 && matches!(parameter.class, Class::Float | Class::Bits)
            }
            Self::F64(_) => {
                parameter.size == 8
                    && matches!(parameter.class, Class::Float | Class::Bits)
                    && parameter.pointer.is_none()
            }
            Self::I32(_) | Self::U32(_) => integer(4),
            Self::I64(_) | Self::U64(_) => integer(8),
            Self::Pointer { .. } => {
                parameter.size == 8 && matches!(parameter.class, Class::Integer | Class::Bits)
            }
        }
    }
}

/// Whether a 64-bit integer may be given for a parameter marked `.ptr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegerPointers {
    /// As guests of the earlier ABI do.
    Accept,
    /// The rule.
    Refuse,
}

/// Arguments whose count, sizes and classes are those of a kernel's signature.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    values: &'a [Value<'a>],
    kernel: &'a Attributes,
}

impl<'a> Arguments<'a> {
    /// Matches values against the signature of a kernel.
    ///
    /// # Errors
    /// [`Error::ArgumentCount`] or [`Error::ArgumentType`] with the index, what was given and what is declared.
    #[inline]
    pub fn new(
        values: &'a [Value<'a>],
        kernel: &'a Attributes,
        integers: IntegerPointers,
    ) -> Result<Self, Error> {
        match_signature(values, &kernel.signature, integers)?;
        Ok(Self { values, kernel })
    }
}

fn match_signature(
    values: &[Value<'_>],
    signature: &Signature,
    integers: IntegerPointers,
) -> Result<(), Error> {
    let parameters = &signature.parameters;
    if values.len() != parameters.len() {
        let kernel = signature.entry.clone();
        return Err(Error::ArgumentCount {
            kernel,
            declared: parameters.len(),
            given: values.len(),
        });
    }
    for (index, (value, parameter)) in values.iter().zip(parameters).enumerate() {
        if !value.matches(parameter, integers) {
            return Err(Error::ArgumentType {
                kernel: signature.entry.clone(),
                index,
                declared: parameter.declared.clone(),
                given: value.name(),
            });
        }
    }
    Ok(())
}

/// Limits on how long a launch may run.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchControl {
    /// How long the kernel may take from its start, waiting for others included, before it is stopped; for ever if `None`.
    pub time: Option<Duration>,
    /// Warp instructions the whole grid may execute, where the device counts them; no limit if `None`.
    pub budget: Option<u64>,
    /// Where in the window the module's variables lie, for a module that has them there ([`Module::globals`](crate::Module::globals)).
    pub globals: u32,
}

impl LaunchControl {
    /// For a backend that starts a launch now: when it is to be stopped. A time that no clock can show is for ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.time.and_then(|time| Instant::now().checked_add(time))
    }
}

/// A launch that is in order: a backend may run it as it is.
#[derive(Debug, Default)]
pub struct Launch {
    geometry: Option<Geometry>,
    params: ParamStorage,
    confinement: Option<Confinement>,
    region: Option<Arc<Region>>,
    control: LaunchControl,
    signal: Arc<Signal>,
    next_block: AtomicU64,
    log: Mutex<Vec<u8>>,
}

impl Launch {
    /// Puts a launch together in `slot`, using again what is there if the device has let go of it: then nothing is
    /// allocated. `region` is the memory that pointers are offsets into.
    ///
    /// # Errors
    /// [`Error::NotAddressable`] with the argument's index: the guard. [`Error::NotAvailable`] if the kernel is confined to other windows
    /// than the region's.
    pub fn prepare(
        slot: &mut Arc<Self>,
        geometry: Geometry,
        arguments: Arguments<'_>,
        region: Option<&Arc<Region>>,
        control: LaunchControl,
    ) -> Result<(), Error> {
        for (index, value) in arguments.values.iter().enumerate() {
            if let Value::Pointer { offset, len } = *value {
                guard(index, offset, len, region.map(Arc::as_ref))?;
            }
        }
        let (confinement, signature) = (arguments.kernel.confinement, &arguments.kernel.signature);
        if let Some(confinement) = confinement {
            confinement.runs_on(region.map(Arc::as_ref))?;
        }
        // A stuck launch still has a report to come.
        if slot.signal.is_stuck() {
            *slot = Arc::default();
        }
        let launch = match Arc::get_mut(slot) {
            Some(launch) => launch,
            None => {
                *slot = Arc::default();
                let Some(launch) = Arc::get_mut(slot) else {
                    unreachable!("a new Arc has one owner")
                };
                launch
            }
        };
        // Pointers are made what the kernel takes here and nowhere else: a confined one sees offsets on every device.
        let pointer = |offset| match (region, confinement) {
            (Some(region), None) => region.pointer(offset),
            (None, _) | (_, Some(_)) => offset,
        };
        launch.params.reset(signature.size as usize);
        for (value, parameter) in arguments.values.iter().zip(&signature.parameters) {
            let at = parameter.offset as usize;
            match *value {
                Value::Bytes(bytes) => launch.params.put(at, bytes),
                Value::F32(value) => launch.params.put(at, &value.to_le_bytes()),
                Value::F64(value) => launch.params.put(at, &value.to_le_bytes()),
                Value::I32(value) => launch.params.put(at, &value.to_le_bytes()),
                Value::I64(value) => launch.params.put(at, &value.to_le_bytes()),
                Value::Pointer { offset, .. } => {
                    launch.params.put(at, &pointer(offset).to_le_bytes())
                }
                Value::U32(value) => launch.params.put(at, &value.to_le_bytes()),
                Value::U64(value) => launch.params.put(at, &value.to_le_bytes()),
            }
        }
        launch.geometry = Some(geometry);
        launch.confinement = confinement;
        // Most launches run on the memory of the launch before: that costs no count of its users.
        if launch.region.as_ref().map(Arc::as_ptr) != region.map(Arc::as_ptr) {
            launch.region = region.cloned();
        }
        launch.control = control;
        launch.next_block = AtomicU64::new(0);
        let log = launch.log.get_mut();
        log.unwrap_or_else(PoisonError::into_inner).clear();
        launch.signal.reset();
        Ok(())
    }

    /// Starts the launch.
    #[inline]
    pub fn start(self: Arc<Self>, program: Arc<dyn Program>) -> Completion {
        if let Some(region) = &self.region {
            region.note_kernel();
        }
        program.launch(Arc::clone(&self));
        Completion::new(self)
    }

    /// A launch that only reports its end.
    #[cfg(test)]
    pub(crate) fn with_signal(signal: Arc<Signal>) -> Self {
        Self {
            signal,
            ..Self::default()
        }
    }

    /// Grid and block.
    ///
    /// # Panics
    /// If the launch was never prepared; a backend is not given such a one.
    #[expect(
        clippy::expect_used,
        reason = "only `start` hands out launches, after `prepare`"
    )]
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry.expect("a started launch was prepared")
    }

    /// The parameter buffer, of the signature's size; pointers in it are what the kernel takes. What a confined kernel takes besides is for
    /// the backend to add.
    #[must_use]
    pub fn params(&self) -> &ParamStorage {
        &self.params
    }

    /// Whether it was prepared for a kernel of these attributes: the parameters are laid out so, pointers are what it takes, and shared memory
    /// is as much as its confinement asks for. A backend whose driver reads parameters unchecked asks before it hands them on.
    #[must_use]
    pub fn fits(&self, kernel: &Attributes) -> bool {
        let (signature, slots) = (&kernel.signature, self.params.slots());
        let shared_bytes = self.geometry().shared_bytes();
        self.params.backing().len() >= signature.size as usize
            && slots.len() == signature.parameters.len()
            && slots
                .iter()
                .zip(&signature.parameters)
                .all(|(&slot, parameter)| slot == parameter.offset)
            && self.confinement == kernel.confinement
            && kernel
                .confinement
                .is_none_or(|confinement| confinement.is_shared_enough(shared_bytes))
    }

    /// The memory that pointers are offsets into.
    #[must_use]
    pub fn region(&self) -> Option<&Arc<Region>> {
        self.region.as_ref()
    }

    /// Deadline and budget.
    #[must_use]
    pub fn control(&self) -> LaunchControl {
        self.control
    }

    /// Where the end is reported.
    #[must_use]
    pub fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// For a backend whose kernels can print: adds a text to the launch's log, whole or not at all. Whether there was room.
    pub fn print(&self, text: &[u8]) -> bool {
        let mut log = self.log();
        let fits = text.len() <= LOG_BYTES - log.len();
        if fits {
            log.extend_from_slice(text);
        }
        fits
    }

    /// Takes what the kernel has printed since the launch was prepared, or since it was last taken: at most [`LOG_BYTES`].
    /// Texts of one thread are in order.
    #[must_use]
    pub fn take_log(&self) -> Vec<u8> {
        std::mem::take(&mut *self.log())
    }

    fn log(&self) -> MutexGuard<'_, Vec<u8>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a backend whose workers share a grid: hands out each block's linear index once, then `None`.
    #[must_use]
    pub fn take_block(&self) -> Option<u64> {
        let block = self.next_block.fetch_add(1, Ordering::Relaxed);
        (block < self.geometry().blocks()).then_some(block)
    }
}

/// The guard: a pointer is passed on only if `len` bytes from `offset` lie in memory that the device can address.
fn guard(index: usize, offset: u64, len: u64, region: Option<&Region>) -> Result<(), Error> {
    let Some(region) = region else {
        let reason = "the guest's memory is plain host memory that the device cannot address (see `engine_config`)";
        return Err(Error::NotAddressable { index, reason });
    };
    if !region.covers(offset, len) {
        let reason = "the window does not lie in the device-addressable memory of the instance";
        return Err(Error::NotAddressable { index, reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
