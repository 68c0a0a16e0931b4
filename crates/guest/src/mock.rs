//! A host for the tests of this crate: it knows one PTX text, keeps handles and buffers, and remembers launches. It runs
//! nothing.
#![expect(
    unsafe_code,
    clippy::too_many_arguments,
    reason = "it has the imports' signatures, and reads and writes what they point at"
)]

extern crate std;

use core::cell::RefCell;
use core::slice;
use core::sync::atomic::Ordering;
use std::borrow::ToOwned;
use std::collections::BTreeMap;
use std::string::String;
use std::vec;
use std::vec::Vec;

use abi::AbiError;
use abi::info::{DeviceInfo, KernelInfo, ParamInfo, TrapInfo};

/// The only text that loads; its kernels are `scale` and `fill`.
pub(crate) const PTX: &str = ".version 7.0 .entry scale .entry fill";

/// The kernel that the embedder of this host registered.
pub(crate) const REGISTERED: &str = "registered";

/// One launch, as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Launched {
    pub(crate) entry: String,
    pub(crate) cooperative: bool,
    /// Grid, block and bytes of shared memory.
    pub(crate) numbers: [u32; 7],
    pub(crate) argv: Vec<u8>,
}

#[derive(Default)]
struct Host {
    next: i64,
    kernels: BTreeMap<i64, String>,
    buffers: BTreeMap<i64, Vec<u8>>,
    launches: Vec<Launched>,
    prefetched: Vec<(usize, i32)>,
    failures: u32,
    refusal: Option<(AbiError, String)>,
    text: String,
    trap: Option<TrapInfo>,
}

std::thread_local! {
    // Each test is a thread, and so has a host of its own.
    static HOST: RefCell<Host> = RefCell::default();
}

/// Counts the failures of this thread's host, as an instance counts those of its own.
pub(crate) struct Failures;

pub(crate) static FAILURES: Failures = Failures;

impl Failures {
    pub(crate) fn load(&self, _: Ordering) -> u32 {
        host(|host| host.failures)
    }

    pub(crate) fn store(&self, count: u32, _: Ordering) {
        host(|host| host.failures = count);
    }
}

fn host<T>(act: impl FnOnce(&mut Host) -> T) -> T {
    HOST.with_borrow_mut(act)
}

/// The next call that can fail does.
pub(crate) fn refuse(code: AbiError, text: &str) {
    host(|host| host.refusal = Some((code, text.to_owned())));
}

pub(crate) fn set_trap(trap: TrapInfo) {
    host(|host| host.trap = Some(trap));
}

pub(crate) fn launches() -> Vec<Launched> {
    host(|host| host.launches.clone())
}

pub(crate) fn prefetched() -> Vec<(usize, i32)> {
    host(|host| host.prefetched.clone())
}

/// Kernels and buffers that are not given back.
pub(crate) fn held() -> (usize, usize) {
    host(|host| (host.kernels.len(), host.buffers.len()))
}

impl Host {
    fn fail(&mut self, code: AbiError, text: &str) -> i32 {
        self.text = text.to_owned();
        code.code()
    }

    /// What a test asked to go wrong.
    fn refused(&mut self) -> Option<i32> {
        let (code, text) = self.refusal.take()?;
        Some(self.fail(code, &text))
    }

    fn issue(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    fn buffer(&mut self, buffer: i64, offset: i64, len: usize) -> Result<&mut [u8], i32> {
        let Some(bytes) = self.buffers.get_mut(&buffer) else {
            return Err(self.fail(AbiError::InvalidHandle, "no such buffer"));
        };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(len);
        if end > bytes.len() {
            return Err(self.fail(AbiError::InvalidArgs, "outside the buffer"));
        }
        Ok(&mut self.buffers.get_mut(&buffer).unwrap()[begin..end])
    }
}

unsafe fn given(ptr: *const u8, len: usize) -> Vec<u8> {
    // SAFETY: the caller of an import lends it these bytes.
    unsafe { slice::from_raw_parts(ptr, len) }.to_vec()
}

/// Writes the smaller of both lengths and answers the whole.
unsafe fn put(bytes: &[u8], dst: *mut u8, len: usize) -> i32 {
    let some = len.min(bytes.len());
    // SAFETY: the caller of an import lends it `len` bytes.
    unsafe { slice::from_raw_parts_mut(dst, some) }.copy_from_slice(&bytes[..some]);
    i32::try_from(bytes.len()).unwrap()
}

pub(crate) unsafe fn wasi_cuda_abi_version() -> i32 {
    abi::VERSION
}

pub(crate) unsafe fn wasi_cuda_device_info(dst: *mut u8, len: usize) -> i32 {
    if let Some(code) = host(Host::refused) {
        return code;
    }
    let info = DeviceInfo {
        kind: abi::info::DeviceKind::Cpu.number(),
        name: DeviceInfo::name_bytes("a device of the tests"),
        ..DeviceInfo::from_bytes(&[])
    };
    // SAFETY: passed on.
    unsafe { put(&info.to_bytes(), dst, len) }
}

pub(crate) unsafe fn wasi_cuda_load_ptx(
    ptx: *const u8,
    ptx_len: usize,
    entry: *const u8,
    entry_len: usize,
) -> i64 {
    // SAFETY: passed on.
    let (ptx, entry) = (unsafe { given(ptx, ptx_len) }, unsafe {
        given(entry, entry_len)
    });
    let entry = String::from_utf8(entry).unwrap();
    host(|host| {
        if let Some(code) = host.refused() {
            return code.into();
        }
        if ptx != PTX.as_bytes() || !PTX.split(' ').any(|word| word == entry) {
            return host.fail(AbiError::MalformedPtx, "no such entry").into();
        }
        let handle = host.issue();
        host.kernels.insert(handle, entry);
        handle
    })
}

pub(crate) unsafe fn wasi_cuda_find_kernel(name: *const u8, len: usize) -> i64 {
    // SAFETY: passed on.
    let name = unsafe { given(name, len) };
    host(|host| match name == REGISTERED.as_bytes() {
        true => i64::MAX,
        false => host.fail(AbiError::InvalidKernel, "not registered").into(),
    })
}

pub(crate) unsafe fn wasi_cuda_symbol(kernel: i64, name: *const u8, len: usize) -> i64 {
    // SAFETY: passed on.
    let name = unsafe { given(name, len) };
    host(|host| {
        if !host.kernels.contains_key(&kernel) || name != b"table" {
            return host.fail(AbiError::InvalidArgs, "no such variable").into();
        }
        let handle = host.issue();
        host.buffers.insert(handle, vec![1, 2, 3, 4]);
        handle
    })
}

pub(crate) unsafe fn wasi_cuda_unload(kernel: i64) -> i32 {
    host(|host| match host.kernels.remove(&kernel) {
        Some(_) => 0,
        None => host.fail(AbiError::InvalidKernel, "no such kernel"),
    })
}

pub(crate) unsafe fn wasi_cuda_kernel_info(kernel: i64, dst: *mut u8, len: usize) -> i32 {
    if !host(|host| host.kernels.contains_key(&kernel)) {
        return host(|host| host.fail(AbiError::InvalidKernel, "no such kernel"));
    }
    let param = |offset, size| ParamInfo {
        offset,
        size,
        align: size,
        class: 1,
        flags: 0,
    };
    let info = KernelInfo {
        max_threads: 1024,
        param_count: 2,
        param_stride: 20,
        ..KernelInfo::from_bytes(&[])
    };
    let mut bytes = info.to_bytes().to_vec();
    bytes.extend(param(0, 8).to_bytes());
    bytes.extend(param(8, 4).to_bytes());
    // SAFETY: passed on.
    unsafe { put(&bytes, dst, len) }
}

unsafe fn launch(
    cooperative: bool,
    kernel: i64,
    numbers: [u32; 7],
    argv: *const u8,
    argv_len: usize,
) -> i32 {
    // SAFETY: passed on.
    let argv = unsafe { given(argv, argv_len) };
    host(|host| {
        if let Some(code) = host.refused() {
            return code;
        }
        let Some(entry) = host.kernels.get(&kernel).cloned() else {
            return host.fail(AbiError::InvalidKernel, "no such kernel");
        };
        host.launches.push(Launched {
            entry,
            cooperative,
            numbers,
            argv,
        });
        0
    })
}

pub(crate) unsafe fn wasi_cuda_launch(
    kernel: i64,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    argv: *const u8,
    argv_len: usize,
) -> i32 {
    let numbers = [gx, gy, gz, bx, by, bz, shared];
    // SAFETY: passed on.
    unsafe { launch(false, kernel, numbers, argv, argv_len) }
}

pub(crate) unsafe fn wasi_cuda_launch_cooperative(
    kernel: i64,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    argv: *const u8,
    argv_len: usize,
) -> i32 {
    let numbers = [gx, gy, gz, bx, by, bz, shared];
    // SAFETY: passed on.
    unsafe { launch(true, kernel, numbers, argv, argv_len) }
}

pub(crate) unsafe fn wasi_cuda_sync() -> i32 {
    host(Host::refused).unwrap_or(0)
}

pub(crate) unsafe fn wasi_cuda_alloc(bytes: i64) -> i64 {
    host(|host| {
        if let Some(code) = host.refused() {
            return code.into();
        }
        let handle = host.issue();
        let bytes = vec![0; usize::try_from(bytes).unwrap()];
        host.buffers.insert(handle, bytes);
        handle
    })
}

pub(crate) unsafe fn wasi_cuda_free(buffer: i64) -> i32 {
    host(|host| match host.buffers.remove(&buffer) {
        Some(_) => 0,
        None => host.fail(AbiError::InvalidHandle, "no such buffer"),
    })
}

pub(crate) unsafe fn wasi_cuda_write(buffer: i64, offset: i64, ptr: *const u8, len: usize) -> i32 {
    // SAFETY: passed on.
    let data = unsafe { given(ptr, len) };
    host(|host| match host.buffer(buffer, offset, len) {
        Ok(place) => {
            place.copy_from_slice(&data);
            0
        }
        Err(code) => code,
    })
}

pub(crate) unsafe fn wasi_cuda_read(buffer: i64, offset: i64, ptr: *mut u8, len: usize) -> i32 {
    let found = host(|host| host.buffer(buffer, offset, len).map(|place| place.to_vec()));
    match found {
        Ok(bytes) => {
            // SAFETY: passed on.
            unsafe { put(&bytes, ptr, len) };
            0
        }
        Err(code) => code,
    }
}

pub(crate) unsafe fn wasi_cuda_prefetch(_: *const u8, len: usize, side: i32) -> i32 {
    host(|host| {
        if let Some(code) = host.refused() {
            return code;
        }
        host.prefetched.push((len, side));
        0
    })
}

pub(crate) unsafe fn wasi_cuda_last_error_len() -> i32 {
    host(|host| i32::try_from(host.text.len()).unwrap())
}

pub(crate) unsafe fn wasi_cuda_last_error_copy(dst: *mut u8, len: usize) -> i32 {
    let text = host(|host| host.text.clone());
    let copied = text.len().min(len);
    // SAFETY: passed on.
    unsafe { put(&text.as_bytes()[..copied], dst, len) }
}

pub(crate) unsafe fn wasi_cuda_trap_info(dst: *mut u8, len: usize) -> i32 {
    let trap = host(|host| host.trap.unwrap_or(TrapInfo::NONE));
    // SAFETY: passed on.
    unsafe { put(&trap.to_bytes(), dst, len) }
}
