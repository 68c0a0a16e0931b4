//! The bound on what a guest may have: all its linear memories together, and all its tables. What a memory is made of is the
//! engine's.

use wasmtime::ResourceLimiter;

/// Most elements of a guest's tables. Compilers make one for each function whose address is taken, so that large programs
/// have some ten thousands; this many take 8 MiB of ours.
const MAX_TABLE_ELEMENTS: usize = 1 << 20;

/// What a guest has and may have.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    memory: Allowance,
    tables: Allowance,
}

/// So many of something.
#[derive(Debug)]
struct Allowance {
    limit: usize,
    used: usize,
    /// What was granted last: given back where the growth fails after all.
    granted: usize,
}

impl Allowance {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            used: 0,
            granted: 0,
        }
    }

    fn grant(&mut self, current: usize, desired: usize) -> bool {
        let more = desired.saturating_sub(current);
        let used = self.used.saturating_add(more);
        let is_granted = used <= self.limit;
        self.granted = if is_granted { more } else { 0 };
        self.used += self.granted;
        is_granted
    }

    fn take_back(&mut self) {
        self.used -= std::mem::take(&mut self.granted);
    }
}

impl MemoryLimit {
    /// So many bytes of linear memory.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        Self {
            memory: Allowance::new(usize::try_from(memory_bytes).unwrap_or(usize::MAX)),
            tables: Allowance::new(MAX_TABLE_ELEMENTS),
        }
    }
}

impl ResourceLimiter for MemoryLimit {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.memory.grant(current, desired))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory.take_back();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.tables.grant(current, desired))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.tables.take_back();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_share_the_limit() {
        let mut limit = MemoryLimit::new(100);
        assert!(limit.memory_growing(0, 60, None).unwrap());
        assert!(!limit.memory_growing(0, 41, None).unwrap());
        assert!(limit.memory_growing(0, 40, None).unwrap());
        assert!(!limit.memory_growing(60, 61, None).unwrap());
        assert!(!limit.memory_growing(40, usize::MAX, None).unwrap());
    }

    #[test]
    fn growth_that_fails_gives_back_what_it_was_granted() {
        let mut limit = MemoryLimit::new(100);
        let failed = || wasmtime::Error::msg("out of memory");
        assert!(limit.memory_growing(0, 80, None).unwrap());
        limit.memory_grow_failed(failed()).unwrap();
        assert!(limit.memory_growing(0, 100, None).unwrap());
        assert!(!limit.memory_growing(100, 101, None).unwrap());
        limit.memory_grow_failed(failed()).unwrap();
        assert!(!limit.memory_growing(100, 101, None).unwrap());
    }
}
