//! How much memory blocks take: what their launches are charged for them, and how far calls may grow them.

use crate::launch::{Geometry, Mode};

use super::code::{Callee, FrameSize, Image};

/// Most bytes of registers of a block.
pub(super) const BLOCK_REGISTER_BYTES: u64 = 32 << 20;
/// Most bytes of local memory of all threads of a block.
pub(super) const BLOCK_LOCAL_BYTES: u64 = 32 << 20;
/// Most bytes of local memory of a thread, as CUDA has it (compute capabilities, technical specifications).
pub(super) const THREAD_LOCAL_BYTES: u64 = 512 << 10;
/// Most bytes of registers and return addresses that the calls of a block may stack up.
const BLOCK_STACK_BYTES: u64 = 64 << 20;
/// Bytes of a slot of each bank and of the return addresses of a call.
const STACK_SLOT_BYTES: u64 = 128 + 256 + 4 + 128;
/// Bytes of a warp besides its registers and its local memory.
const WARP_BYTES: u64 = 4096;
/// How many times what it holds a growing vector may take.
const VECTOR_GROWTH: u64 = 2;
/// Most bytes of all blocks of a cooperative launch, which are resident at once, before they call anything.
pub(super) const COOPERATIVE_BYTES: u64 = 512 << 20;
/// Most blocks of a cooperative launch: a GPU of today has about as many at once.
const COOPERATIVE_BLOCKS: u64 = 2048;

fn warp_register_bytes(size: FrameSize) -> u64 {
    u64::from(size.words) * 128 + u64::from(size.longs) * 256 + u64::from(size.predicates) * 4
}

fn warp_local_bytes(size: FrameSize) -> u64 {
    u64::from(size.local) * 128
}

/// What calls may stack up in a block of a launch: blocks of a cooperative one are resident together.
fn stack_bytes(geometry: Geometry) -> u64 {
    match geometry.mode() {
        Mode::Plain => BLOCK_STACK_BYTES,
        Mode::Cooperative => {
            let room = COOPERATIVE_BYTES / (2 * VECTOR_GROWTH) / geometry.blocks().max(1);
            room.min(BLOCK_STACK_BYTES)
        }
    }
}

/// How far calls may grow a warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// Rows of local memory.
    pub(super) most_rows: usize,
    /// Slots of each bank of registers, and calls that are open.
    pub(super) most_slots: u32,
}

impl Growth {
    pub(super) fn of(image: &Image, geometry: Geometry) -> Self {
        let entry = image.functions.first();
        let least = entry.map_or(0, |function| function.size.local as usize);
        let warps = u64::from(geometry.threads_per_block().div_ceil(32));
        let stack = stack_bytes(geometry);
        let rows = (BLOCK_LOCAL_BYTES.min(stack) / warps / 128).min(THREAD_LOCAL_BYTES / 4);
        Self {
            most_rows: usize::try_from(rows).unwrap_or(usize::MAX).max(least),
            most_slots: u32::try_from(stack / warps / STACK_SLOT_BYTES).unwrap_or(u32::MAX),
        }
    }
}

/// The memory that blocks of a program take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    entry: FrameSize,
    static_shared_bytes: u32,
    /// Blocks of a cluster.
    cluster: u64,
    /// Bytes that calls stack up in a warp at most; `None` where functions call themselves, so that only the limits bound it.
    calls: Option<u64>,
}

impl Size {
    pub(super) fn of(image: &Image) -> Self {
        let entry = image.functions.first();
        Self {
            entry: entry.map(|function| function.size).unwrap_or_default(),
            static_shared_bytes: image.static_shared_bytes,
            cluster: image
                .cluster
                .iter()
                .map(|&blocks| u64::from(blocks))
                .product(),
            calls: call_bytes(image),
        }
    }

    /// Threads of a block that its registers and local memory leave room for.
    pub(super) fn most_threads(&self) -> u64 {
        let by_registers = BLOCK_REGISTER_BYTES / warp_register_bytes(self.entry).max(1) * 32;
        let by_local = BLOCK_LOCAL_BYTES / warp_local_bytes(self.entry).max(1) * 32;
        by_registers.min(by_local)
    }

    /// Blocks of a cluster.
    pub(super) fn cluster(&self) -> u64 {
        self.cluster
    }

    /// Bytes of a block before it calls anything.
    fn base(&self, threads: u32, shared_bytes: u32) -> u64 {
        let warp = warp_register_bytes(self.entry) + warp_local_bytes(self.entry) + WARP_BYTES;
        let shared = u64::from(self.static_shared_bytes) + u64::from(shared_bytes);
        warp * u64::from(threads.div_ceil(32)) + shared
    }

    /// The most bytes that a cluster of a launch, or a block where nothing is said of clusters, can come to take.
    pub(super) fn unit(&self, geometry: Geometry) -> u64 {
        let threads = geometry.threads_per_block();
        let stack = stack_bytes(geometry);
        let most = VECTOR_GROWTH * (stack + BLOCK_LOCAL_BYTES.min(stack));
        let calls = self.calls.map_or(most, |bytes| {
            let all = bytes.saturating_mul(VECTOR_GROWTH * u64::from(threads.div_ceil(32)));
            all.min(most)
        });
        (self.base(threads, geometry.shared_bytes()) + calls).saturating_mul(self.cluster)
    }

    /// Blocks of this many threads and bytes of dynamic shared memory that can be resident at once.
    pub(super) fn resident_blocks(&self, threads: u32, shared_bytes: u32) -> u64 {
        let block = self.base(threads, shared_bytes).max(1);
        (COOPERATIVE_BYTES / block).min(COOPERATIVE_BLOCKS)
    }
}

/// The most bytes that calls stack up in a warp beyond the entry's frame. `None` if a function can call itself.
fn call_bytes(image: &Image) -> Option<u64> {
    // Functions, and behind them lists of functions that are called by address, each with what it calls.
    let functions = image.functions.len();
    let mut edges = vec![Vec::new(); functions + image.callees.len()];
    for site in &image.calls {
        edges[site.caller as usize].push(match site.callee {
            Callee::Direct(callee) => callee as usize,
            Callee::Indirect { list, .. } => functions + list as usize,
        });
    }
    for (list, callees) in image.callees.iter().enumerate() {
        edges[functions + list].extend(callees.iter().map(|&(_, callee)| callee as usize));
    }
    let mut callers = vec![0_usize; edges.len()];
    for &callee in edges.iter().flatten() {
        callers[callee] += 1;
    }
    let frame = |node: usize| {
        let size = image.functions.get(node).map(|function| function.size);
        size.map_or(0, |size| {
            warp_register_bytes(size) + warp_local_bytes(size) + 128
        })
    };
    let mut ready: Vec<_> = (0..edges.len())
        .filter(|&node| callers[node] == 0)
        .collect();
    let mut bytes = vec![0_u64; edges.len()];
    let (mut done, mut most) = (0, 0);
    while let Some(node) = ready.pop() {
        done += 1;
        most = most.max(bytes[node]);
        for &callee in &edges[node] {
            bytes[callee] = bytes[callee].max(bytes[node].saturating_add(frame(callee)));
            callers[callee] -= 1;
            if callers[callee] == 0 {
                ready.push(callee);
            }
        }
    }
    (done == edges.len()).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::super::code::{CallSite, FunctionCode};
    use super::*;

    /// An image of functions with so many words each, and calls.
    fn image(words: &[u32], calls: &[(u32, Callee)]) -> Image {
        let function = |&words| FunctionCode {
            size: FrameSize {
                words,
                ..FrameSize::default()
            },
            ..FunctionCode::default()
        };
        let call = |&(caller, callee)| CallSite {
            caller,
            callee,
            arguments: Vec::new(),
            results: Vec::new(),
        };
        Image {
            functions: words.iter().map(function).collect(),
            calls: calls.iter().map(call).collect(),
            callees: vec![vec![(16, 2), (32, 3)]],
            ..Image::default()
        }
    }

    #[test]
    fn calls_take_what_the_deepest_of_them_do() {
        let frame = |words: u64| words * 128 + 128;
        let direct = |caller, callee| (caller, Callee::Direct(callee));
        let calls = [direct(0, 1), direct(1, 2), direct(0, 2), direct(1, 2)];
        let found = call_bytes(&image(&[9, 1, 20, 2], &calls));
        assert_eq!(found, Some(frame(1) + frame(20)));
        let indirect = (1, Callee::Indirect { slot: 0, list: 0 });
        let found = call_bytes(&image(&[9, 1, 2, 30], &[direct(0, 1), indirect]));
        assert_eq!(found, Some(frame(1) + frame(30)));
        let calls = [direct(0, 1), direct(1, 2), direct(2, 1)];
        assert_eq!(call_bytes(&image(&[9, 1, 2, 30], &calls)), None);
    }
}
