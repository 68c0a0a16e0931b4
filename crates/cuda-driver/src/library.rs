//! The driver library: opened once, at the first call, and never closed; and the lookup of its
//! functions by name. What a function takes and answers is not known here.
#![expect(unsafe_code, reason = "dlopen, dlsym and dlerror")]

use std::ffi::{CStr, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A handle of `dlopen`.
struct Library(*mut c_void);

// SAFETY: glibc's dl functions take a handle on any thread, and `library` never closes it.
unsafe impl Send for Library {}

// SAFETY: as above; the only use of a shared `Library` is `dlsym`, which is thread-safe.
unsafe impl Sync for Library {}

static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();

fn library() -> Result<*mut c_void, &'static str> {
    match LIBRARY.get_or_init(open) {
        Ok(library) => Ok(library.0),
        Err(why) => Err(why),
    }
}

fn open() -> Result<Library, String> {
    let name = c"libcuda.so.1";
    // SAFETY: `name` is nul-terminated and static. The library's initialisers are the NVIDIA
    // driver's, written to be loaded this way.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(Library(handle));
    }
    // SAFETY: it takes nothing, and its result is used before this thread's next dl call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Err("libcuda.so.1 could not be opened".into());
    }
    // SAFETY: not null, so dlerror's nul-terminated text, valid until this thread's next dl call.
    let text = unsafe { CStr::from_ptr(text) };
    Err(text.to_string_lossy().into_owned())
}

/// Whether a driver library could be opened.
///
/// # Errors
///
/// The dynamic loader's own words when it could not.
pub fn available() -> Result<(), &'static str> {
    crate::entry_points::keep();
    library().map(drop)
}

/// An entry point by name, for functions newer than cust's bindings. `None` when there is no
/// driver or it has no such function.
#[must_use]
pub fn symbol(name: &CStr) -> Option<*const c_void> {
    let library = library().ok()?;
    // SAFETY: `library` is an open handle, since `open` answered it and nothing closes it; `name`
    // is nul-terminated by its type.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

/// One function's address, looked up at its first call.
pub(crate) struct Slot(AtomicPtr<c_void>);

impl Slot {
    const ABSENT: *mut c_void = without_provenance_mut(1);

    pub(crate) const fn new() -> Self {
        Slot(AtomicPtr::new(null_mut()))
    }

    /// The address of the function `name`, which is the same at every call of one slot.
    #[inline]
    pub(crate) fn address(&self, name: &CStr) -> Option<*mut c_void> {
        match self.0.load(Ordering::Acquire) {
            unknown if unknown.is_null() => self.resolve(name),
            absent if absent == Self::ABSENT => None,
            address => Some(address),
        }
    }

    #[cold]
    fn resolve(&self, name: &CStr) -> Option<*mut c_void> {
        let found = symbol(name).map(<*const c_void>::cast_mut);
        self.0
            .store(found.unwrap_or(Self::ABSENT), Ordering::Release);
        found
    }
}
