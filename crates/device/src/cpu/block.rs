//! A block of threads: its warps take turns until all have exited. Its state is all here, so that another worker can go on with
//! it.

use std::time::{Duration, Instant};

use crate::error::{Access, Error, StopReason, Trap, TrapKind};
use crate::launch::{Geometry, Launch, Mode};
use crate::mapping::Window;

use super::barrier::{Barriers, Complete, release};
use super::code::{BarrierKind, Image, LANES, LaneMask, LongPreset, Preset};
use super::lanes::{Words, bit, blend, pack};
use super::memory::{Fault, Memory, Workspace, halves};
use super::program::COOPERATIVE_BYTES;
use super::warp::{Machine, Pause, Warp};

/// Instructions of a warp before the next one runs, where another can.
const WARP_TURN: u32 = 1024;

/// Most bytes of local memory of all threads of a block: what one worker may be made to hold.
pub(super) const BLOCK_LOCAL_BYTES: u64 = 32 << 20;
/// Most bytes of local memory of a thread, as CUDA has it (compute capabilities, technical specifications).
pub(super) const THREAD_LOCAL_BYTES: u64 = 512 << 10;

/// Most bytes of registers and return addresses that the calls of a block may stack up.
const BLOCK_STACK_BYTES: u64 = 64 << 20;
/// How many times over a bank may be too large before it is made smaller.
const SPARE_ROOM: usize = 16;
/// Bytes of a slot of each bank and of the return addresses of a call.
const STACK_SLOT_BYTES: u64 = 128 + 256 + 4 + 128;

/// What calls may stack up in a block of this launch: blocks of a cooperative one are resident together.
fn stack_bytes(geometry: Geometry) -> u64 {
    match geometry.mode() {
        Mode::Plain => BLOCK_STACK_BYTES,
        Mode::Cooperative => (COOPERATIVE_BYTES / geometry.blocks()).min(BLOCK_STACK_BYTES),
    }
}

/// How a stretch of a block's work ended.
#[derive(Debug)]
pub(super) enum End {
    Failed(Error),
    Finished,
    /// Another worker, or this one later, goes on with it.
    Yielded,
}

/// What tells a block how long to go on.
pub(super) trait Pace {
    /// Called when the instructions granted before are used up, `sleeping` if the block has nothing to do until then.
    fn next(&mut self, sleeping: Option<Duration>) -> Step;
    /// Gives back instructions that were not used.
    fn unused(&mut self, instructions: u32);
}

/// What a block does next.
#[derive(Debug)]
pub(super) enum Step {
    Go(u32),
    Stop(StopReason),
    Yield,
}

/// What the blocks of a launch have in common.
pub(super) struct Surroundings<'a> {
    pub(super) image: &'a Image,
    pub(super) launch: &'a Launch,
    pub(super) window: Window<'a>,
    pub(super) globals: Window<'a>,
    pub(super) workspace: &'a Workspace,
    pub(super) workers: u32,
    pub(super) epoch: Instant,
}

/// Identifies what a block's memory was last used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tenant {
    pub(super) program: u64,
    pub(super) run: u64,
}

/// A block and all its memory, used for one block after another.
#[derive(Debug, Default)]
pub(super) struct Block {
    tenant: Tenant,
    geometry: Option<Geometry>,
    index: [u32; 3],
    warps: Vec<Warp>,
    next_warp: usize,
    shared: Vec<u8>,
    barriers: Barriers,
}

impl Block {
    /// Makes it the block of this linear index.
    pub(super) fn begin(&mut self, around: &Surroundings<'_>, tenant: Tenant, linear: u64) {
        let geometry = around.launch.geometry();
        let image = around.image;
        let [x, y, _] = geometry.grid().map(u64::from);
        self.index = [linear % x, linear / x % y, linear / x / y]
            .map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        let threads = geometry.threads_per_block();
        let shared_bytes = (image.static_shared_bytes + geometry.shared_bytes()) as usize;
        self.shared.clear();
        self.shared.resize(shared_bytes, 0);
        self.barriers.reset(threads);
        self.next_warp = 0;
        let same = self.tenant == tenant && self.geometry == Some(geometry);
        self.tenant = tenant;
        self.geometry = Some(geometry);
        let warps = threads.div_ceil(32) as usize;
        self.warps.resize_with(warps, Warp::default);
        let entry = &image.functions[0];
        let stack = stack_bytes(geometry) / warps as u64;
        let rows = (BLOCK_LOCAL_BYTES.min(stack_bytes(geometry)) / warps as u64 / 128)
            .min(THREAD_LOCAL_BYTES / 4);
        let most_rows = usize::try_from(rows)
            .unwrap_or(usize::MAX)
            .max(entry.size.local as usize);
        let most_slots = u32::try_from(stack / STACK_SLOT_BYTES).unwrap_or(u32::MAX);
        for (number, warp) in self.warps.iter_mut().enumerate() {
            let first = u32::try_from(number).unwrap_or(0) * 32;
            warp.live = pack(|lane| first + u32::try_from(lane).unwrap_or(0) < threads);
            warp.groups.reset(entry.start, warp.live);
            warp.wake_at = None;
            warp.debt = 0;
            warp.most_rows = most_rows;
            warp.most_slots = most_slots;
            if !same {
                trim(&mut warp.words, entry.size.words);
                trim(&mut warp.longs, entry.size.longs);
                trim(&mut warp.local, entry.size.local);
                refill(&mut warp.words, entry.size.words, [0; LANES]);
                refill(&mut warp.longs, entry.size.longs, [0; LANES]);
                refill(&mut warp.predicates, entry.size.predicates, 0);
                for &(slot, preset) in &entry.longs {
                    let value = match preset {
                        LongPreset::Value(value) => value,
                        LongPreset::Parameter(of) => of.read(around.launch.params().backing()),
                    };
                    warp.longs[usize::from(slot)] = [value; LANES];
                }
                for &(slot, value) in &entry.predicates {
                    warp.predicates[usize::from(slot)] = if value { u32::MAX } else { 0 };
                }
            }
            refill(&mut warp.local, entry.size.local, [0; LANES]);
            for &(slot, preset) in &entry.words {
                if !same || matches!(preset, Preset::BlockIndex(_)) {
                    warp.words[usize::from(slot)] =
                        value(preset, around, geometry, self.index, first, shared_bytes);
                }
            }
        }
    }

    /// Runs until the block has finished, failed, or has to make way.
    pub(super) fn run(&mut self, around: &Surroundings<'_>, pace: &mut impl Pace) -> End {
        let mut granted = 0;
        loop {
            if granted == 0 {
                match pace.next(None) {
                    Step::Go(instructions) => granted = instructions,
                    Step::Stop(reason) => return End::Failed(Error::Stopped(reason)),
                    Step::Yield => return End::Yielded,
                }
            }
            if self.warps[self.next_warp].groups.any_runnable()
                && !asleep(&mut self.warps[self.next_warp])
            {
                let mut fuel = granted.min(WARP_TURN);
                granted -= fuel;
                let mut machine = Machine {
                    image: around.image,
                    memory: Memory {
                        window: around.window,
                        globals: around.globals,
                        shared: &mut self.shared,
                        constants: &around.image.const_bytes,
                        params: around.launch.params().backing(),
                        workspace: around.workspace,
                    },
                    barriers: &mut self.barriers,
                    epoch: around.epoch,
                };
                let pause = self.warps[self.next_warp].run(&mut machine, &mut fuel);
                granted += fuel;
                match pause {
                    Err((fault, pc)) => {
                        pace.unused(granted);
                        return End::Failed(Error::Trap(self.trap(
                            around.image,
                            fault,
                            pc,
                            self.next_warp,
                        )));
                    }
                    Ok(Pause::Blocked | Pause::Fuel | Pause::Sleep) => {}
                }
            }
            if self.barriers.take_changed() {
                self.complete_barriers(around.image);
            }
            if self.barriers.alive() == 0 {
                pace.unused(granted);
                return End::Finished;
            }
            let Some(next) = self.next_runnable() else {
                pace.unused(granted);
                if let Some(left) = self.sleeping() {
                    match pace.next(Some(left)) {
                        Step::Go(instructions) => granted = instructions,
                        Step::Stop(reason) => return End::Failed(Error::Stopped(reason)),
                        Step::Yield => return End::Yielded,
                    }
                    continue;
                }
                return End::Failed(Error::Trap(self.deadlock(around.image)));
            };
            self.next_warp = next;
        }
    }

    /// The warp after the last that has something to do now.
    fn next_runnable(&mut self) -> Option<usize> {
        let (count, last) = (self.warps.len(), self.next_warp);
        (1..=count)
            .map(|step| (last + step) % count)
            .find(|&index| {
                let warp = &mut self.warps[index];
                warp.groups.any_runnable() && !asleep(warp)
            })
    }

    /// How long until the first sleeping warp wakes.
    fn sleeping(&self) -> Option<Duration> {
        let now = Instant::now();
        self.warps
            .iter()
            .filter_map(|warp| warp.wake_at)
            .min()
            .map(|at| at.saturating_duration_since(now))
    }

    fn complete_barriers(&mut self, image: &Image) {
        while let Some(complete) = self.barriers.take_complete(&self.warps) {
            for warp in &mut self.warps {
                release(warp, complete.id, |warp, group| {
                    tell(warp, group, image, complete)
                });
            }
        }
    }

    fn trap(&self, image: &Image, fault: Fault, pc: u32, warp: usize) -> Trap {
        let [x, y, _] = self.geometry.map_or([1; 3], |geometry| geometry.block());
        let linear = u32::try_from(warp * LANES + fault.lane).unwrap_or(u32::MAX);
        Trap {
            kind: fault.kind,
            line: image.lines.get(pc as usize).copied().unwrap_or(0),
            block: self.index,
            thread: [linear % x, linear / x % y, linear / x / y],
            access: fault.access.map(|(address, bytes, space)| Access {
                address,
                bytes,
                space: space.into(),
            }),
        }
    }

    /// Every thread that is left waits at a barrier that stays incomplete.
    fn deadlock(&self, image: &Image) -> Trap {
        let waiting = self.warps.iter().enumerate().find_map(|(warp, of)| {
            let group = of
                .groups
                .all()
                .iter()
                .min_by_key(|group| group.mask.trailing_zeros())?;
            Some((warp, *group))
        });
        let (warp, pc, lane) = waiting.map_or((0, 0, 0), |(warp, group)| {
            (warp, group.pc, group.mask.trailing_zeros() as usize)
        });
        self.trap(
            image,
            Fault {
                kind: TrapKind::BarrierDeadlock,
                lane,
                access: None,
            },
            pc,
            warp,
        )
    }
}

/// Whether a warp still sleeps.
fn asleep(warp: &mut Warp) -> bool {
    match warp.wake_at {
        None => false,
        Some(at) if Instant::now() < at => true,
        Some(_) => {
            warp.wake_at = None;
            false
        }
    }
}

/// Makes a bank new.
fn refill<T: Copy>(bank: &mut Vec<T>, len: u32, zero: T) {
    bank.clear();
    bank.resize(len as usize, zero);
}

/// Gives back room that a greedier kernel left.
fn trim<T>(bank: &mut Vec<T>, len: u32) {
    bank.clear();
    if bank.capacity() / SPARE_ROOM > len as usize {
        bank.shrink_to(len as usize);
    }
}

/// Gives a waiting group the result of its `bar.red`.
fn tell(warp: &mut Warp, group: usize, image: &Image, complete: Complete) {
    let group = warp.groups.all()[group];
    let super::code::Op::Barrier { site } = image.code[group.pc as usize].op else {
        return;
    };
    let predicates = &mut warp.predicates[group.frame.predicates as usize..];
    let truth = |yes: bool| if yes { u32::MAX } else { 0 };
    match image.barriers[site as usize].kind {
        BarrierKind::Arrive | BarrierKind::Sync => {}
        BarrierKind::And { d, .. } => {
            super::lanes::blend_bits(
                &mut predicates[usize::from(d)],
                group.mask,
                truth(complete.yes == complete.threads),
            );
        }
        BarrierKind::Or { d, .. } => {
            super::lanes::blend_bits(
                &mut predicates[usize::from(d)],
                group.mask,
                truth(complete.yes > 0),
            );
        }
        BarrierKind::Popc { d, .. } => {
            let words = &mut warp.words[group.frame.words as usize..];
            blend(
                &mut words[usize::from(d)],
                group.mask,
                &[complete.yes; LANES],
            );
        }
    }
}

/// What a preset slot holds in a warp.
fn value(
    preset: Preset,
    around: &Surroundings<'_>,
    geometry: Geometry,
    index: [u32; 3],
    first_thread: u32,
    shared_bytes: usize,
) -> Words {
    let [x, y, _] = geometry.block();
    let lane =
        |of: &dyn Fn(u32) -> u32| std::array::from_fn(|lane| of(u32::try_from(lane).unwrap_or(0)));
    match preset {
        Preset::Value(value) => [value; LANES],
        Preset::Parameter(of) => {
            let [value, _] = halves(of.read(around.launch.params().backing()));
            [value; LANES]
        }
        Preset::BlockIndex(axis) => [index[axis]; LANES],
        Preset::BlockCount(axis) => [geometry.grid()[axis]; LANES],
        Preset::ThreadCount(axis) => [geometry.block()[axis]; LANES],
        Preset::ThreadIndex(0) => lane(&|lane| (first_thread + lane) % x),
        Preset::ThreadIndex(1) => lane(&|lane| (first_thread + lane) / x % y),
        Preset::ThreadIndex(_) => lane(&|lane| (first_thread + lane) / x / y),
        Preset::DynamicSharedBytes => [geometry.shared_bytes(); LANES],
        Preset::TotalSharedBytes => [u32::try_from(shared_bytes).unwrap_or(u32::MAX); LANES],
        Preset::LaneId => lane(&|lane| lane),
        Preset::LaneMask(LaneMask::Equal) => std::array::from_fn(bit),
        Preset::LaneMask(LaneMask::Less) => std::array::from_fn(|lane| bit(lane) - 1),
        Preset::LaneMask(LaneMask::LessOrEqual) => {
            std::array::from_fn(|lane| bit(lane) | (bit(lane) - 1))
        }
        Preset::LaneMask(LaneMask::Greater) => {
            std::array::from_fn(|lane| !(bit(lane) | (bit(lane) - 1)))
        }
        Preset::LaneMask(LaneMask::GreaterOrEqual) => std::array::from_fn(|lane| !(bit(lane) - 1)),
        Preset::WarpId => [first_thread / 32; LANES],
        Preset::WarpCount => [geometry.threads_per_block().div_ceil(32); LANES],
        Preset::Workers => [around.workers; LANES],
    }
}
