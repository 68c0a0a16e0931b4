//! Modules that an instance has loaded, by text: a second load of the same text shares the first one's variables.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use device::{Device, Module};

use crate::error::Error;
use crate::policy::{Permit, Quota};
use crate::registry::Trust;

/// A module that is loaded, and what its variables are charged for.
#[derive(Debug)]
pub(crate) struct LoadedModule {
    pub(crate) module: Arc<dyn Module>,
    /// None for an embedder's kernel.
    _charge: Option<Permit>,
}

impl LoadedModule {
    /// A module that is not charged for.
    pub(crate) fn uncharged(module: Arc<dyn Module>) -> Arc<Self> {
        Arc::new(Self {
            module,
            _charge: None,
        })
    }
}

/// The modules of one instance that are loaded at present.
#[derive(Debug, Default)]
pub(crate) struct SharedModules(Mutex<HashMap<Box<[u8]>, Weak<LoadedModule>>>);

/// How a module came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    Afresh,
    Shared,
}

impl SharedModules {
    /// The module of this text: one that is loaded, or a new one, whose variables count against `memory`.
    pub(crate) fn load(
        &self,
        device: &Arc<dyn Device>,
        text: &[u8],
        trust: Trust,
        memory: &Arc<Quota>,
    ) -> Result<(Arc<LoadedModule>, Loaded), Error> {
        // Held while loading: one instance's loads of one text must not race to be the first.
        let mut modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(text).and_then(Weak::upgrade) {
            return Ok((module, Loaded::Shared));
        }
        let validated = ptx::read(text).map_err(device::Error::from)?;
        let charge = memory.take(validated.global_bytes())?;
        let module = Arc::new(LoadedModule {
            module: device.load(&trust.admit(validated))?,
            _charge: Some(charge),
        });
        modules.retain(|_, module| module.strong_count() > 0);
        modules.insert(text.into(), Arc::downgrade(&module));
        Ok((module, Loaded::Afresh))
    }
}
