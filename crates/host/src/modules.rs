//! Modules that an instance has loaded, by text: a second load of the same text shares the first one's variables.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use device::{Carved, Device, Module, Region};
use ptx::WindowForm;

use crate::error::Error;
use crate::isolation::{Isolation, Trust};
use crate::policy::{Permit, Quota};

/// A module that is loaded, and what its variables are charged for.
#[derive(Debug)]
pub(crate) struct LoadedModule {
    pub(crate) module: Arc<dyn Module>,
    /// The text as it was given, for reports.
    pub(crate) text: Arc<[u8]>,
    /// Where the variables of an isolated module lie: in the window of the instance that loaded it.
    pub(crate) variables: Option<Arc<Carved>>,
    /// None for an embedder's kernel.
    _charge: Option<Permit>,
}

impl LoadedModule {
    /// A module of the embedder's, which is not charged for.
    pub(crate) fn uncharged(module: Arc<dyn Module>, text: &[u8]) -> Result<Arc<Self>, Error> {
        if module.globals().is_some() {
            return Err(Error::VariablesWithoutMemory);
        }
        Ok(Arc::new(Self {
            module,
            text: text.into(),
            variables: None,
            _charge: None,
        }))
    }

    /// Where the variables begin in the window; 0 where there are none.
    pub(crate) fn globals_at(&self) -> u32 {
        let variables = self.variables.as_ref();
        variables.map_or(0, |carved| carved.start_u32())
    }

    /// Whether the module's variables, if it has any, lie in this memory.
    fn is_for(&self, region: Option<&Arc<Region>>) -> bool {
        self.variables.as_ref().is_none_or(|variables| {
            region.is_some_and(|region| Arc::ptr_eq(region, variables.region()))
        })
    }
}

/// The modules of one instance that are loaded at present.
#[derive(Debug, Default)]
pub(crate) struct SharedModules(Mutex<HashMap<Arc<[u8]>, Weak<LoadedModule>>>);

/// How a module came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    Afresh,
    Shared,
}

impl SharedModules {
    /// The module of this text: one that is loaded, or a new one, whose variables count against `memory` and lie in `region` if the
    /// device does not keep them.
    pub(crate) fn load(
        &self,
        device: &Arc<dyn Device>,
        text: &Arc<[u8]>,
        isolation: Isolation,
        region: Option<&Arc<Region>>,
        memory: &Arc<Quota>,
    ) -> Result<(Arc<LoadedModule>, Loaded), Error> {
        // Held while loading: one instance's loads of one text must not race to be the first.
        let mut modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(text).and_then(Weak::upgrade)
            && module.is_for(region)
        {
            return Ok((module, Loaded::Shared));
        }
        let validated = ptx::read(text).map_err(device::Error::from)?;
        let charge = memory.take(validated.global_bytes())?;
        let form = region
            .and_then(|region| region.form())
            .unwrap_or(WindowForm::Masked);
        let trust = Trust::Isolated(isolation);
        let module = device.load(&trust.admit(&**device, validated, form)?)?;
        let variables = match (module.globals(), region) {
            (None, _) => None,
            (Some(globals), Some(region)) => Carved::for_globals(region, globals)?.map(Arc::new),
            (Some(_), None) => return Err(Error::MemoryNotOfDevice),
        };
        let module = Arc::new(LoadedModule {
            module,
            text: Arc::clone(text),
            variables,
            _charge: Some(charge),
        });
        modules.retain(|_, module| module.strong_count() > 0);
        modules.insert(Arc::clone(text), Arc::downgrade(&module));
        Ok((module, Loaded::Afresh))
    }
}
