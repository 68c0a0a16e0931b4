//! The driver, whether it is there, and a device's primary context: [`Context`], which everything else of this backend holds, so
//! that it is released last. It also knows whether the device is lost.
#![expect(unsafe_code, reason = "retains, binds and releases contexts")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cust::sys::{self, CUcontext, CUdevice, CUlimit, CUresult};

use super::error::{Failure, check, code};
use crate::error::Error;

/// What there is to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// So many devices, at least one.
    Devices(u32),
    /// A driver that has no device.
    NoDevice,
    /// No driver, in the words of the dynamic loader.
    NoDriver(&'static str),
}

/// Looks for a driver, starts it and counts devices. A driver that does not start is a failure.
pub(super) fn presence() -> Result<Presence, Failure> {
    static STARTED: OnceLock<Result<(), Failure>> = OnceLock::new();

    if let Err(why) = cuda_driver::available() {
        return Ok(Presence::NoDriver(why));
    }
    let started = STARTED.get_or_init(|| {
        // SAFETY: `cuInit` takes no memory; 0 is the only value for its flags.
        check("starting the CUDA driver", unsafe { sys::cuInit(0) })
    });
    match *started {
        Err(Failure {
            code: code::NO_DEVICE,
            ..
        }) => return Ok(Presence::NoDevice),
        Err(failure) => return Err(failure),
        Ok(()) => {}
    }
    let mut count = 0;
    // SAFETY: `count` is a live place for one integer.
    let result = unsafe { sys::cuDeviceGetCount(&raw mut count) };
    check("counting CUDA devices", result)?;
    Ok(match u32::try_from(count) {
        Ok(count @ 1..) => Presence::Devices(count),
        _ => Presence::NoDevice,
    })
}

/// A device of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ordinal(CUdevice);

impl Ordinal {
    /// The device of this number. The driver must have been started ([`presence`]).
    pub(super) fn find(number: u32) -> Result<Self, Failure> {
        let what = "finding the CUDA device";
        let code = code::INVALID_DEVICE;
        let number = i32::try_from(number).map_err(|_| Failure { what, code })?;
        let mut device = 0;
        // SAFETY: `device` is a live place for one device number.
        let result = unsafe { sys::cuDeviceGet(&raw mut device, number) };
        check(what, result)?;
        Ok(Self(device))
    }

    pub(super) fn raw(self) -> CUdevice {
        self.0
    }
}

/// Why devices were lost for good in this process, by ordinal.
static LOST: Mutex<BTreeMap<CUdevice, String>> = Mutex::new(BTreeMap::new());

/// Why the device of this number cannot be used again in this process, if that is so. Asks no driver.
pub(super) fn lost_before(number: u32) -> Option<Error> {
    let number = CUdevice::try_from(number).ok()?;
    let lost_ones = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    lost_ones.get(&number).map(|reason| lost(reason))
}

/// The primary context of a device, retained.
pub(super) struct Context {
    raw: CUcontext,
    ordinal: Ordinal,
    /// Why the device is lost, once it is.
    lost: OnceLock<String>,
    /// Held while the limit of local memory is raised.
    local: Mutex<()>,
}

// SAFETY: a context handle may be used on every thread (CUDA driver API, "Context Management"), and the driver locks for itself.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn retain(ordinal: Ordinal) -> Result<Arc<Self>, Failure> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a live place for one handle, and an `Ordinal` is a device that the driver named.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut raw, ordinal.raw()) };
        check("making the CUDA context", result)?;
        Ok(Arc::new(Self {
            raw,
            ordinal,
            lost: OnceLock::new(),
            local: Mutex::new(()),
        }))
    }

    pub(super) fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    /// Makes the context the one that this thread's driver calls are about, unless the device is lost.
    pub(super) fn enter(&self) -> Result<(), Error> {
        match self.lost.get() {
            None => self.bind(),
            Some(reason) => Err(lost(reason)),
        }
    }

    /// As [`enter`](Self::enter), also when the device is lost: for whoever must ask the driver how its work ended.
    pub(super) fn bind(&self) -> Result<(), Error> {
        // SAFETY: the handle is retained as long as this value lives.
        let result = unsafe { sys::cuCtxSetCurrent(self.raw) };
        check("entering the CUDA context", result).map_err(|failure| self.lose(failure))
    }

    /// Turns what a driver call answered into a result. A code that ends CUDA for this process makes the device lost.
    pub(super) fn check(&self, what: &'static str, result: CUresult) -> Result<(), Error> {
        check(what, result).map_err(|failure| self.error(failure))
    }

    /// As [`check`](Self::check), for a failure.
    pub(super) fn error(&self, failure: Failure) -> Error {
        if failure.is_fatal() {
            self.lose(failure)
        } else {
            failure.into()
        }
    }

    /// Takes the device for lost after a failure, whatever its code: for calls that fail only where nobody can tell what the
    /// device still does. Nothing that it may use is freed from then on.
    pub(super) fn lose(&self, failure: Failure) -> Error {
        let reason = self.lost.get_or_init(|| {
            let reason = failure.text();
            tracing::error!(%reason, "the CUDA device is lost to this process");
            if failure.is_fatal() {
                let mut lost_ones = LOST.lock().unwrap_or_else(PoisonError::into_inner);
                lost_ones.insert(self.ordinal.raw(), reason.clone());
            }
            reason
        });
        lost(reason)
    }

    /// Why the device is lost, if it is.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Has the device keep so much local memory for each thread that it can run, which the driver otherwise does at the first
    /// launch that needs it. Waits for whatever runs. Enter the context first.
    pub(super) fn reserve_local(&self, bytes: u32) -> Result<(), Error> {
        let _raising = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let (limit, mut reserved) = (CUlimit::CU_LIMIT_STACK_SIZE, 0);
        // SAFETY: `reserved` is a live place for one size.
        let result = unsafe { sys::cuCtxGetLimit(&raw mut reserved, limit) };
        self.check("asking for the limit of local memory", result)?;
        if bytes as usize <= reserved {
            return Ok(());
        }
        // SAFETY: takes numbers only.
        let result = unsafe { sys::cuCtxSetLimit(limit, bytes as usize) };
        self.check("reserving local memory", result)
    }

    /// Runs `free`, which gives something of the context back to the driver; does nothing where the device is lost, since
    /// the driver then frees nothing before the process ends.
    pub(super) fn give_back(&self, what: &'static str, free: impl FnOnce() -> CUresult) {
        let freed = self.enter().and_then(|()| self.check(what, free()));
        match freed {
            Ok(()) | Err(Error::DeviceLost { .. }) => {}
            Err(error) => {
                tracing::error!(%error, "something of the CUDA device was not given back")
            }
        }
    }
}

fn lost(reason: &str) -> Error {
    Error::DeviceLost {
        reason: reason.to_owned(),
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.lost().is_some() {
            return;
        }
        // SAFETY: retained once by `retain`; every stream, module and allocation holds an `Arc` of this value, so none is left.
        let result = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.ordinal.raw()) };
        if let Err(failure) = check("releasing the CUDA context", result) {
            tracing::error!(error = %failure.text(), "the CUDA context was not released");
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("ordinal", &self.ordinal)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Context {
    /// A context that no driver knows: calls on it fail, and it counts as lost when `reason` is given.
    pub(super) fn detached(reason: &str) -> Arc<Self> {
        Arc::new(Self {
            raw: std::ptr::null_mut(),
            ordinal: Ordinal(0),
            lost: OnceLock::from(reason.to_owned()),
            local: Mutex::new(()),
        })
    }
}
