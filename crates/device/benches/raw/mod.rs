//! The driver as a C program uses it: what benches compare with. It finds functions by name and declares the few that it
//! needs; nothing of the library is in it.
#![expect(unsafe_code, reason = "calls the driver as a C program does")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use cuda_driver::symbol;
use device::{Region, Side};

type Context = *mut c_void;
type Module = *mut c_void;
type Function = *mut c_void;
type RawStream = *mut c_void;

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Functions {
            fn find() -> Option<Self> {
                Some(Self {
                    $($name: {
                        let address = symbol($symbol)?;
                        // SAFETY: the driver's function of that name, which cuda.h declares with these types; its result
                        // is an integer of 32 bits.
                        unsafe {
                            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) -> u32>(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    init = c"cuInit"(c_uint);
    retain = c"cuDevicePrimaryCtxRetain"(*mut Context, c_int);
    set_current = c"cuCtxSetCurrent"(Context);
    load = c"cuModuleLoadData"(*mut Module, *const c_char);
    function = c"cuModuleGetFunction"(*mut Function, Module, *const c_char);
    make_stream = c"cuStreamCreate"(*mut RawStream, c_uint);
    synchronize = c"cuStreamSynchronize"(RawStream);
    launch = c"cuLaunchKernel"(
        Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, RawStream, *mut *mut c_void, *mut *mut c_void
    );
    allocate_device = c"cuMemAlloc_v2"(*mut u64, usize);
    allocate_host = c"cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    allocate_managed = c"cuMemAllocManaged"(*mut u64, usize, c_uint);
    free = c"cuMemFree_v2"(u64);
    free_host = c"cuMemFreeHost"(*mut c_void);
    advise = c"cuMemAdvise"(u64, usize, c_int, c_int);
    prefetch = c"cuMemPrefetchAsync"(u64, usize, c_int, RawStream);
    copy_in = c"cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, RawStream);
    copy_out = c"cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, RawStream);
}

/// The driver, with the first device's context.
pub(crate) struct Driver {
    functions: Functions,
    context: Context,
}

// SAFETY: a context handle may be used on every thread (CUDA driver API, "Context Management").
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

#[track_caller]
fn check(result: u32) {
    assert_eq!(result, 0, "the driver's answer");
}

impl Driver {
    /// The driver, if there is one with a device; entered on this thread.
    pub(crate) fn find() -> Option<Arc<Self>> {
        let functions = Functions::find()?;
        // SAFETY: it takes no memory.
        if unsafe { (functions.init)(0) } != 0 {
            return None;
        }
        let mut context = null_mut();
        // SAFETY: `context` is a live place for one handle.
        if unsafe { (functions.retain)(&raw mut context, 0) } != 0 {
            return None;
        }
        let driver = Arc::new(Self { functions, context });
        driver.enter();
        Some(driver)
    }

    /// Makes the context this thread's.
    pub(crate) fn enter(&self) {
        // SAFETY: the context is retained and never released.
        check(unsafe { (self.functions.set_current)(self.context) });
    }

    /// An entry of a text.
    pub(crate) fn kernel(&self, text: &CStr, entry: &CStr) -> Kernel {
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: `module` is a live place for one handle, and the text ends with a NUL.
        check(unsafe { (self.functions.load)(&raw mut module, text.as_ptr()) });
        // SAFETY: as above; the module is loaded and never unloaded.
        check(unsafe { (self.functions.function)(&raw mut function, module, entry.as_ptr()) });
        Kernel(function)
    }

    /// A stream that waits for no other.
    pub(crate) fn stream(self: &Arc<Self>) -> Stream {
        const NON_BLOCKING: c_uint = 1;
        let mut raw = null_mut();
        // SAFETY: `raw` is a live place for one handle.
        check(unsafe { (self.functions.make_stream)(&raw mut raw, NON_BLOCKING) });
        Stream {
            raw,
            driver: Arc::clone(self),
        }
    }

    /// Memory of a kind.
    pub(crate) fn memory(self: &Arc<Self>, kind: Kind, bytes: usize) -> Memory {
        const GLOBAL: c_uint = 1;
        let mut at = 0;
        match kind {
            // SAFETY: `at` is a live place for one address.
            Kind::Device => check(unsafe { (self.functions.allocate_device)(&raw mut at, bytes) }),
            Kind::Managed => {
                // SAFETY: as above.
                check(unsafe { (self.functions.allocate_managed)(&raw mut at, bytes, GLOBAL) });
            }
            Kind::Pinned => {
                let mut host = null_mut();
                // SAFETY: `host` is a live place for one address.
                check(unsafe { (self.functions.allocate_host)(&raw mut host, bytes, 0) });
                at = host.expose_provenance() as u64;
            }
        }
        Memory {
            at,
            bytes,
            kind,
            driver: Arc::clone(self),
        }
    }
}

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    Managed,
    Pinned,
}

/// An entry, never unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Kernel(Function);

// SAFETY: a function handle may be used on every thread in whose context it was made.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// An argument of four or eight bytes.
#[derive(Clone, Copy)]
pub(crate) enum Argument {
    Word(u32),
    Address(u64),
}

/// A stream of its own, never destroyed.
pub(crate) struct Stream {
    raw: RawStream,
    driver: Arc<Driver>,
}

// SAFETY: a stream handle may be used on every thread in whose context it was made.
unsafe impl Send for Stream {}

impl Stream {
    /// Launches along x. The arguments must be those that the kernel takes.
    pub(crate) fn launch<const N: usize>(
        &self,
        kernel: Kernel,
        [blocks, threads]: [u32; 2],
        mut arguments: [Argument; N],
    ) {
        let mut slots = arguments.each_mut().map(|argument| match argument {
            Argument::Word(word) => (&raw mut *word).cast::<c_void>(),
            Argument::Address(address) => (&raw mut *address).cast(),
        });
        let launch = self.driver.functions.launch;
        let (slots, none) = (slots.as_mut_ptr(), null_mut());
        // SAFETY: `slots` has the address of a live value for each argument, which this bench's kernels take in that order; the
        // driver copies them before it returns.
        let result = unsafe {
            launch(
                kernel.0, blocks, 1, 1, threads, 1, 1, 0, self.raw, slots, none,
            )
        };
        check(result);
    }

    /// Waits for all that was put on it.
    pub(crate) fn synchronize(&self) {
        // SAFETY: the stream is live.
        check(unsafe { (self.driver.functions.synchronize)(self.raw) });
    }

    /// Copies all of `from`, which is the host's, to the device's.
    pub(crate) fn copy_in(&self, to: &Memory, from: &Memory) {
        assert!(from.kind == Kind::Pinned && from.bytes <= to.bytes);
        let copy = self.driver.functions.copy_in;
        let from_host = with_exposed_provenance_mut::<c_void>(host(from.at));
        // SAFETY: both are live and as long as the copy, and whoever uses them synchronises first.
        check(unsafe { copy(to.at, from_host, from.bytes, self.raw) });
    }

    /// Copies to all of `to`, which is the host's, from the device's.
    pub(crate) fn copy_out(&self, to: &Memory, from: &Memory) {
        assert!(to.kind == Kind::Pinned && to.bytes <= from.bytes);
        let copy = self.driver.functions.copy_out;
        let to_host = with_exposed_provenance_mut::<c_void>(host(to.at));
        // SAFETY: as in `copy_in`.
        check(unsafe { copy(to_host, from.at, to.bytes, self.raw) });
    }

    /// Moves managed memory to the first device, or to the host.
    pub(crate) fn prefetch(&self, memory: &Memory, to: Side) {
        let prefetch = self.driver.functions.prefetch;
        let place = match to {
            Side::Device => 0,
            Side::Host => -1,
        };
        // SAFETY: the memory is live.
        check(unsafe { prefetch(memory.at, memory.bytes, place, self.raw) });
    }
}

/// An allocation.
pub(crate) struct Memory {
    at: u64,
    bytes: usize,
    kind: Kind,
    driver: Arc<Driver>,
}

fn host(at: u64) -> usize {
    usize::try_from(at).expect("an address of this process")
}

impl Memory {
    /// As an argument.
    pub(crate) fn argument(&self) -> Argument {
        Argument::Address(self.at)
    }

    /// Says that it lies with the host and the first device reaches it there.
    pub(crate) fn advise_host(&self) {
        const PREFERRED_LOCATION: c_int = 3;
        const ACCESSED_BY: c_int = 5;
        for (advice, device) in [(PREFERRED_LOCATION, -1), (ACCESSED_BY, 0)] {
            // SAFETY: the memory is live and managed, or the driver refuses.
            check(unsafe { (self.driver.functions.advise)(self.at, self.bytes, advice, device) });
        }
    }

    /// The host's view. Nothing may run that uses the memory.
    pub(crate) fn words(&self) -> Words<'_> {
        assert_ne!(self.kind, Kind::Device, "the host does not reach it");
        Words::new(with_exposed_provenance_mut(host(self.at)), self.bytes / 4)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let functions = &self.driver.functions;
        match self.kind {
            // SAFETY: allocated once by `memory`, and whoever used it has synchronised.
            Kind::Device | Kind::Managed => check(unsafe { (functions.free)(self.at) }),
            Kind::Pinned => {
                let at = with_exposed_provenance_mut(host(self.at));
                // SAFETY: as above.
                check(unsafe { (functions.free_host)(at) });
            }
        }
    }
}

/// 32-bit words that the device uses too, as the host's code reads and writes them: by plain loads and stores.
pub(crate) struct Words<'a> {
    at: *mut u32,
    count: usize,
    memory: PhantomData<&'a mut [u32]>,
}

impl<'a> Words<'a> {
    fn new(at: *mut u32, count: usize) -> Self {
        Self {
            at,
            count,
            memory: PhantomData,
        }
    }

    /// Words of a region's linear memory. Nothing may run that uses them.
    pub(crate) fn of_region(region: &'a Region, offset: u64, count: usize) -> Self {
        let end = offset + count as u64 * 4;
        assert!(
            offset.is_multiple_of(4) && end <= region.size(),
            "in linear memory"
        );
        let base = region.base().as_ptr().cast::<u32>();
        let words = usize::try_from(offset / 4).expect("a small offset");
        // SAFETY: the words lie in linear memory, which is mapped from its base on for as long as the region lives.
        Self::new(unsafe { base.add(words) }, count)
    }

    /// Writes a value to every word.
    pub(crate) fn write(&self, value: u32) {
        for index in 0..self.count {
            // SAFETY: both constructors were given as many words, which are live.
            let place = unsafe { self.at.add(index) };
            // SAFETY: as above; volatile, since a kernel reads it next.
            unsafe { place.write_volatile(value) };
        }
    }

    /// The sum of every word.
    pub(crate) fn sum(&self) -> u32 {
        let mut sum = 0_u32;
        for index in 0..self.count {
            // SAFETY: as in `write`.
            let place = unsafe { self.at.add(index) };
            // SAFETY: as in `write`; a kernel wrote it last.
            sum = sum.wrapping_add(unsafe { place.read_volatile() });
        }
        sum
    }
}
