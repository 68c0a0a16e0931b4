//! Code in the driver: a loaded text ([`Binary`]), kept until nothing uses it ([`Image`]), and its entries ([`Function`]).
#![expect(unsafe_code, reason = "loads, unloads and inspects modules")]

use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::Arc;

use cust::sys::{self, CUfunction, CUfunction_attribute, CUmodule};

use super::compiler::Cubin;
use super::context::Context;
use super::error::{Failure, check, code};
use super::jit::{LOADING, Logs, OPTIONS};
use super::reaper::{Garbage, Reaper};
use crate::error::Error;

/// What the driver is given to load.
#[derive(Clone, Copy, Debug)]
pub(super) enum Code<'a> {
    Cubin(&'a Cubin),
    Text(&'a CStr),
}

impl Code<'_> {
    fn image(self) -> *const c_void {
        match self {
            Self::Cubin(cubin) => cubin.bytes().as_ptr().cast(),
            Self::Text(text) => text.as_ptr().cast(),
        }
    }
}

/// A module of the driver. Unloading may wait for kernels: the reaper does it.
pub(super) struct Binary {
    raw: CUmodule,
    context: Arc<Context>,
}

// SAFETY: a module handle may be used on every thread in whose context it was made, and the driver locks for itself.
unsafe impl Send for Binary {}
// SAFETY: as above.
unsafe impl Sync for Binary {}

impl Binary {
    /// Loads code, which it compiles where that is a text; what the compiler says is in `logs`. Enter the context first.
    pub(super) fn load(
        context: &Arc<Context>,
        code: Code<'_>,
        logs: &mut Logs,
    ) -> Result<Self, Failure> {
        let mut raw = std::ptr::null_mut();
        let mut options = logs.options();
        let (keys, values) = (options.keys(), options.values());
        let image = code.image();
        // SAFETY: `raw` is a live place for one handle; a text ends with a NUL and a cubin where its header says, by their types;
        // both arrays hold `OPTIONS` options whose buffers are as long as the options say and borrowed by `options` (jit.rs).
        let result = unsafe { sys::cuModuleLoadDataEx(&raw mut raw, image, OPTIONS, keys, values) };
        check(LOADING, result)?;
        Ok(Self {
            raw,
            context: Arc::clone(context),
        })
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        self.context.give_back("unloading a module", || {
            // SAFETY: this value's own handle. Functions of it and launches on them hold the image that held it.
            unsafe { sys::cuModuleUnload(self.raw) }
        });
    }
}

impl fmt::Debug for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binary").finish_non_exhaustive()
    }
}

/// A binary as long as anything uses it; then it is the reaper's.
#[derive(Debug)]
pub(super) struct Image {
    /// There until `drop`.
    binary: Option<Binary>,
    reaper: Arc<Reaper>,
}

impl Image {
    pub(super) fn new(binary: Binary, reaper: &Arc<Reaper>) -> Arc<Self> {
        Arc::new(Self {
            binary: Some(binary),
            reaper: Arc::clone(reaper),
        })
    }

    #[expect(clippy::expect_used, reason = "only `drop` takes the binary")]
    fn binary(&self) -> &Binary {
        self.binary
            .as_ref()
            .expect("an image has its binary until it is dropped")
    }

    /// The entry of a name.
    pub(super) fn function(self: &Arc<Self>, name: &CStr) -> Result<Function, Error> {
        let binary = self.binary();
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a live place for one handle, the module is loaded, and the name ends with a NUL by its type.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut raw, binary.raw, name.as_ptr()) };
        binary
            .context
            .check("finding an entry of a module", result)?;
        Ok(Function {
            raw,
            image: Arc::clone(self),
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Some(binary) = self.binary.take() {
            self.reaper.bury(Garbage::Module(binary));
        }
    }
}

/// An entry of a loaded module. Enter the context before asking it anything.
pub(super) struct Function {
    raw: CUfunction,
    image: Arc<Image>,
}

// SAFETY: as for `Binary`.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Offset and size of a parameter, in bytes.
pub(super) type Extent = (usize, usize);

impl Function {
    /// The handle, valid as long as this value lives.
    pub(super) fn raw(&self) -> CUfunction {
        self.raw
    }

    fn context(&self) -> &Context {
        &self.image.binary().context
    }

    /// An attribute; none of those asked for is ever negative.
    pub(super) fn attribute(&self, which: CUfunction_attribute) -> Result<u32, Error> {
        let mut value = 0;
        // SAFETY: `value` is a live place for one integer, and `image` keeps the function loaded.
        let result = unsafe { sys::cuFuncGetAttribute(&raw mut value, which, self.raw) };
        self.context()
            .check("asking for an attribute of an entry", result)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Lets launches ask for so much dynamic shared memory.
    pub(super) fn allow_dynamic_shared(&self, bytes: u32) -> Result<(), Error> {
        let which = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: `image` keeps the function loaded, and the attribute is one that may be set.
        let result = unsafe { sys::cuFuncSetAttribute(self.raw, which, bytes) };
        self.context()
            .check("allowing an entry its shared memory", result)
    }

    /// Puts the code onto the device now, which the driver otherwise does at the first launch, when it waits for whatever
    /// else runs. Drivers before CUDA 12.4 have no such call; they do it when asked for the attributes.
    pub(super) fn load_eagerly(&self) -> Result<(), Error> {
        type Load = unsafe extern "C" fn(CUfunction) -> u32;
        let Some(address) = cuda_driver::symbol(c"cuFuncLoad") else {
            return Ok(());
        };
        // SAFETY: the driver's function of that name, which cuda.h declares so; its result is an integer of 32 bits.
        let load = unsafe { std::mem::transmute::<*const c_void, Load>(address) };
        // SAFETY: `image` keeps the function loaded.
        match unsafe { load(self.raw) } {
            0 => Ok(()),
            code => Err(self.context().error(Failure {
                what: "putting an entry onto the device",
                code,
            })),
        }
    }

    /// Where the driver reads each parameter; `None` if the driver, older than CUDA 12.4, cannot tell. No more than
    /// `most` are asked for.
    pub(super) fn parameters(&self, most: usize) -> Result<Option<Vec<Extent>>, Error> {
        type Ask = unsafe extern "C" fn(CUfunction, usize, *mut usize, *mut usize) -> u32;
        let Some(address) = cuda_driver::symbol(c"cuFuncGetParamInfo") else {
            return Ok(None);
        };
        // SAFETY: the driver's function of that name, which cuda.h declares so; its result is an integer of 32 bits.
        let ask = unsafe { std::mem::transmute::<*const c_void, Ask>(address) };
        let mut found = Vec::new();
        for index in 0..most {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: both places are live and hold one `size_t` each, and `image` keeps the function loaded.
            let code = unsafe { ask(self.raw, index, &raw mut offset, &raw mut size) };
            match code {
                0 => found.push((offset, size)),
                // There is no such parameter.
                code::INVALID_VALUE => break,
                code => {
                    return Err(self.context().error(Failure {
                        what: "asking for a parameter of an entry",
                        code,
                    }));
                }
            }
        }
        Ok(Some(found))
    }

    /// How many blocks of so many threads and so much dynamic shared memory one multiprocessor runs at once.
    pub(super) fn resident_blocks(&self, threads: u32, shared_bytes: u32) -> Result<u32, Error> {
        let mut blocks = 0;
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        // SAFETY: `blocks` is a live place for one integer, and `image` keeps the function loaded.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                self.raw,
                threads,
                shared_bytes as usize,
            )
        };
        self.context()
            .check("measuring how many blocks fit", result)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").finish_non_exhaustive()
    }
}
