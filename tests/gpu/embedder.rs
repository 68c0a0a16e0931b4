//! An embedder with linear memory of its own making, which it allocates from the driver or registers with it. No case belongs here.
#![expect(
    unsafe_code,
    reason = "calls the driver, and implements wasmtime's memory traits"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, OnceLock};

use wasmtime::{Config, Engine, LinearMemory, MemoryCreator, MemoryType};

/// What the embedder does with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Registers all but the last page of it.
    AllButAPageRegistered,
    /// Has the driver allocate it, for the host and every device.
    Managed,
    /// Allocates it by itself, and registers it.
    Registered,
}

/// An engine whose linear memories are of this kind and of fixed size.
pub(crate) fn engine(kind: Kind) -> Engine {
    let mut config = Config::new();
    config
        .with_host_memory(Arc::new(Creator(kind)))
        .memory_init_cow(false)
        .memory_reservation(0)
        .memory_guard_size(0);
    Engine::new(&config).unwrap()
}

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A function of the driver.
fn driver(name: &CStr) -> *mut c_void {
    const RTLD_NOW: c_int = 2;
    // SAFETY: both names end with a NUL by their type.
    let library = unsafe { dlopen(c"libcuda.so.1".as_ptr(), RTLD_NOW) };
    assert!(!library.is_null(), "the driver is there");
    // SAFETY: the library is open, since it is not null, and is never closed.
    let found = unsafe { dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    found
}

/// Calls a function of the driver by name, with these types, which are cuda.h's.
macro_rules! call {
    ($name:literal($($value:expr => $ty:ty),*)) => {{
        // SAFETY: the driver's function of that name takes these types, and answers an integer of 32 bits.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> c_uint>(driver($name))
        };
        // SAFETY: every pointer is to a live place, or to memory of this file's own that it allocated.
        let code = unsafe { function($($value),*) };
        assert_eq!(code, 0, "{:?}", $name);
    }};
}

/// Has this thread's calls be about the first device.
fn enter() {
    static CONTEXT: OnceLock<usize> = OnceLock::new();
    let context = *CONTEXT.get_or_init(|| {
        let mut context: *mut c_void = std::ptr::null_mut();
        call!(c"cuDevicePrimaryCtxRetain"(&raw mut context => *mut *mut c_void, 0 => c_int));
        context.expose_provenance()
    });
    let context: *mut c_void = std::ptr::with_exposed_provenance_mut(context);
    call!(c"cuCtxSetCurrent"(context => *mut c_void));
}

struct Creator(Kind);

// SAFETY: engines of this file check bounds in code, and ask for no reservation and no guard. A memory is zero, page
// aligned, of the size asked for, and never moves.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        _ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        assert_eq!((reserved.unwrap_or(0), guard), (0, 0));
        Ok(Box::new(Own::new(self.0, minimum)))
    }
}

/// One memory.
struct Own {
    kind: Kind,
    base: *mut u8,
    layout: Layout,
}

// SAFETY: the memory is this value's own; what the driver is told about it holds for every thread.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

impl Own {
    fn new(kind: Kind, bytes: usize) -> Self {
        const PAGE_BYTES: usize = 64 << 10;
        const GLOBAL: c_uint = 1;
        const MAPPED: c_uint = 2;
        let layout = Layout::from_size_align(bytes.max(PAGE_BYTES), PAGE_BYTES).unwrap();
        enter();
        let registered = match kind {
            Kind::AllButAPageRegistered => layout.size() - PAGE_BYTES,
            Kind::Registered => layout.size(),
            Kind::Managed => {
                let mut at = 0;
                call!(c"cuMemAllocManaged"(
                    &raw mut at => *mut u64, layout.size() => usize, GLOBAL => c_uint
                ));
                let base: *mut u8 = std::ptr::with_exposed_provenance_mut(at.try_into().unwrap());
                // SAFETY: managed memory is mapped on the host too, and this is new.
                unsafe { base.write_bytes(0, layout.size()) };
                return Self { kind, base, layout };
            }
        };
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        assert!(!base.is_null(), "there is memory");
        call!(c"cuMemHostRegister_v2"(
            base.cast() => *mut c_void, registered => usize, MAPPED => c_uint
        ));
        Self { kind, base, layout }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        enter();
        if self.kind == Kind::Managed {
            call!(c"cuMemFree_v2"(self.base.expose_provenance() as u64 => u64));
            return;
        }
        call!(c"cuMemHostUnregister"(self.base.cast() => *mut c_void));
        // SAFETY: allocated with this layout by `new`, and no kernel runs on it: the store, which waits for its launches,
        // is gone before its memories.
        unsafe { dealloc(self.base, self.layout) };
    }
}

// SAFETY: see `Creator`.
unsafe impl LinearMemory for Own {
    fn byte_size(&self) -> usize {
        self.layout.size()
    }

    fn byte_capacity(&self) -> usize {
        self.layout.size()
    }

    fn grow_to(&mut self, _new_size: usize) -> wasmtime::Result<()> {
        wasmtime::bail!("this memory does not grow")
    }

    fn as_ptr(&self) -> *mut u8 {
        self.base
    }
}
