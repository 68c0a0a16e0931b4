//! The kernels of a context: by unguessable ids that are never used twice, and only ever given to their owner.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abi::{AbiError, KernelHandle};
use dashmap::DashMap;
use dashmap::mapref::one::Ref;
use device::{Device, Program};
use ptx::WindowForm;

use crate::context::InstanceId;
use crate::error::Error;
use crate::isolation::Trust;
use crate::modules::LoadedModule;
use crate::policy::Permit;

/// Most kernels that one registry holds.
const MAX_KERNELS: usize = 1 << 16;

/// Identifies a kernel in a registry. Guests know it as a handle in `1..=i64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelId(u64);

impl KernelId {
    /// The number that stands for the kernel in guests.
    #[must_use]
    pub fn handle(self) -> i64 {
        self.0.cast_signed()
    }

    pub(crate) fn from_handle(handle: i64) -> Option<Self> {
        KernelHandle::new(handle).map(|handle| Self(handle.raw().cast_unsigned()))
    }

    /// A random id: 63 bits that tell nothing about other ids.
    fn random() -> Result<Self, AbiError> {
        random_handle().map(|handle| Self(handle.cast_unsigned()))
    }
}

/// A random number in `1..=i64::MAX`.
pub(crate) fn random_handle() -> Result<i64, AbiError> {
    loop {
        let bits = getrandom::u64().map_err(|_| AbiError::Internal)? >> 1;
        if bits != 0 {
            return Ok(bits.cast_signed());
        }
    }
}

/// Hashes random ids by themselves: a guest cannot choose them.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The map picks its shard from the high bits, of which an id has one less.
        self.0 = id << 1;
    }

    fn write_i64(&mut self, id: i64) {
        self.write_u64(id.cast_unsigned());
    }
}

/// A map by random ids.
pub(crate) type ById<K, V> = DashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Code that is loaded on a device.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) program: Arc<dyn Program>,
    /// Held so that another load of the same text finds the module and its variables.
    pub(crate) module: Arc<LoadedModule>,
}

impl Code {
    pub(crate) fn new(module: Arc<LoadedModule>, entry: &str) -> Result<Self, Error> {
        let program = module.module.entry(entry)?;
        Ok(Self { program, module })
    }
}

/// One kernel: whose it is, what it is called, and its code unless it is a stub.
pub struct KernelEntry {
    owner: InstanceId,
    entry: String,
    ptx_bytes_len: usize,
    code: Option<Code>,
    /// What a guest's load is charged for; an embedder's kernel is charged nothing.
    charge: Option<[Permit; 2]>,
    sequence: u64,
}

impl KernelEntry {
    /// A kernel without code. Launching it checks and records its arguments, then answers
    /// [`InvalidKernel`](AbiError::InvalidKernel).
    pub fn stub(owner: InstanceId, entry: impl Into<String>, ptx_bytes_len: usize) -> Self {
        Self {
            owner,
            entry: entry.into(),
            ptx_bytes_len,
            code: None,
            charge: None,
            sequence: 0,
        }
    }

    /// Loads `entry` of `ptx` on `device` for `owner`.
    ///
    /// A text that is to be isolated and has variables in global space is refused: those lie in the memory of the instance that loads it,
    /// so let the guest do that.
    ///
    /// # Errors
    /// What is wrong with the text or the entry, or what the device cannot run.
    pub fn from_ptx(
        device: &Arc<dyn Device>,
        owner: InstanceId,
        entry: &str,
        ptx: &[u8],
        trust: Trust,
    ) -> Result<Self, Error> {
        let validated = ptx::read(ptx).map_err(device::Error::from)?;
        // It may run on any window.
        let admitted = trust.admit(&**device, validated, WindowForm::Masked)?;
        let code = Code::new(
            LoadedModule::uncharged(device.load(&admitted)?, ptx)?,
            entry,
        )?;
        Ok(Self {
            code: Some(code),
            ..Self::stub(owner, entry, ptx.len())
        })
    }

    pub(crate) fn loaded(
        owner: InstanceId,
        entry: &str,
        len: usize,
        code: Code,
        charge: [Permit; 2],
    ) -> Self {
        Self {
            code: Some(code),
            charge: Some(charge),
            ..Self::stub(owner, entry, len)
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> InstanceId {
        self.owner
    }

    /// Name of the entry.
    #[must_use]
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// Bytes of the text it was loaded from.
    #[must_use]
    pub fn ptx_bytes_len(&self) -> usize {
        self.ptx_bytes_len
    }

    /// The code, or that there is none.
    pub(crate) fn code(&self) -> Result<&Code, Error> {
        self.code.as_ref().ok_or_else(|| Error::KernelStub {
            entry: self.entry.clone(),
        })
    }
}

impl fmt::Debug for KernelEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelEntry")
            .field("owner", &self.owner)
            .field("entry", &self.entry)
            .field("ptx_bytes_len", &self.ptx_bytes_len)
            .field("is_stub", &self.code.is_none())
            .finish_non_exhaustive()
    }
}

/// A kernel in the registry.
pub(crate) type Borrowed<'a> = Ref<'a, KernelId, Arc<KernelEntry>>;

/// The kernels of a context. Clones are the same registry.
#[derive(Clone, Debug, Default)]
pub struct KernelRegistry(Arc<Kernels>);

#[derive(Debug, Default)]
struct Kernels {
    by_id: ById<KernelId, Arc<KernelEntry>>,
    registered: AtomicU64,
}

impl KernelRegistry {
    /// Adds a kernel, for its owner to find by name or to be given the id of.
    ///
    /// # Errors
    /// [`QuotaExceeded`](AbiError::QuotaExceeded) if the registry is full.
    pub fn register(&self, mut kernel: KernelEntry) -> Result<KernelId, AbiError> {
        if self.0.by_id.len() >= MAX_KERNELS {
            return Err(AbiError::QuotaExceeded);
        }
        kernel.sequence = self.0.registered.fetch_add(1, Ordering::Relaxed);
        let id = KernelId::random()?;
        self.0.by_id.insert(id, Arc::new(kernel));
        Ok(id)
    }

    /// The kernel of this id, if `owner` owns it.
    #[must_use]
    pub fn lookup(&self, id: KernelId, owner: InstanceId) -> Option<Arc<KernelEntry>> {
        let found = self.0.by_id.get(&id)?;
        (found.owner == owner).then(|| Arc::clone(&found))
    }

    /// The id of the kernel that was registered last for `owner` under this name; kernels that a guest loaded are not found.
    #[must_use]
    pub fn find(&self, name: &str, owner: InstanceId) -> Option<KernelId> {
        let named = self.0.by_id.iter().filter(|kernel| {
            kernel.owner == owner && kernel.entry == name && kernel.charge.is_none()
        });
        named
            .max_by_key(|kernel| kernel.sequence)
            .map(|kernel| *kernel.key())
    }

    /// Takes a kernel out, if `owner` owns it. Launches that run keep what they need.
    pub fn remove(&self, id: KernelId, owner: InstanceId) -> Option<Arc<KernelEntry>> {
        self.0
            .by_id
            .remove_if(&id, |_, kernel| kernel.owner == owner)
            .map(|(_, kernel)| kernel)
    }

    pub(crate) fn unload(&self, handle: i64, owner: InstanceId) -> Result<(), Error> {
        let invalid = Error::InvalidKernel { handle };
        let id = KernelId::from_handle(handle).ok_or(invalid.clone())?;
        let kernel = self.lookup(id, owner).ok_or(invalid)?;
        if kernel.charge.is_none() {
            return Err(Error::KernelOfEmbedder { handle });
        }
        self.remove(id, owner);
        Ok(())
    }

    pub(crate) fn get(&self, handle: i64, owner: InstanceId) -> Result<Arc<KernelEntry>, Error> {
        self.borrow(handle, owner).map(|kernel| Arc::clone(&kernel))
    }

    /// The kernel for a moment: nothing can be registered or removed until it is dropped.
    pub(crate) fn borrow(&self, handle: i64, owner: InstanceId) -> Result<Borrowed<'_>, Error> {
        KernelId::from_handle(handle)
            .and_then(|id| self.0.by_id.get(&id))
            .filter(|kernel| kernel.owner == owner)
            .ok_or(Error::InvalidKernel { handle })
    }

    /// Removes every kernel that `owner` owns.
    pub(crate) fn clear(&self, owner: InstanceId) {
        self.0.by_id.retain(|_, kernel| kernel.owner != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_given_to_its_owner_only() {
        let (mine, other) = (InstanceId::new(1), InstanceId::new(2));
        let registry = KernelRegistry::default();
        let id = registry.register(KernelEntry::stub(mine, "k", 10)).unwrap();
        assert!(id.handle() > 0);
        assert_eq!(registry.lookup(id, mine).unwrap().entry(), "k");
        assert!(registry.lookup(id, other).is_none());
        assert_eq!(registry.find("k", mine), Some(id));
        assert_eq!(registry.find("k", other), None);
        assert!(registry.remove(id, other).is_none());
        assert!(registry.remove(id, mine).is_some());
        assert!(registry.lookup(id, mine).is_none());
    }

    #[test]
    fn the_last_kernel_of_a_name_is_found() {
        let owner = InstanceId::new(1);
        let registry = KernelRegistry::default();
        for _ in 0..10 {
            let id = registry.register(KernelEntry::stub(owner, "k", 0)).unwrap();
            assert_eq!(registry.find("k", owner), Some(id));
        }
    }

    #[test]
    fn handles_outside_the_range_are_unknown() {
        let registry = KernelRegistry::default();
        for handle in [0, -1, i64::MIN, 1, i64::MAX] {
            let error = registry.get(handle, InstanceId::new(1)).unwrap_err();
            assert_eq!(error, Error::InvalidKernel { handle });
        }
    }
}
