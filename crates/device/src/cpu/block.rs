//! A block of threads: its warps take turns until all have exited. Its state is all here, so that another worker can go on with
//! it.

use std::time::{Duration, Instant};

use crate::error::{Access, Error, StopReason, Trap, TrapKind};
use crate::launch::{Geometry, Launch};
use crate::mapping::Window;

use super::barrier::{Barriers, Complete, gather, release};
use super::code::{BarrierKind, Image, LANES, LaneMask, LongPreset, Preset};
use super::heap::Heap;
use super::lanes::{Words, bit, blend, pack};
use super::memory::{Cluster, Control, Fault, Memory, Workspace, halves};
use super::size::Growth;
use super::system::Services;
use super::warp::{Machine, Pause, Warp};

/// Instructions of a warp before the next one runs, where another can.
const WARP_TURN: u32 = 1024;

/// How many times over a bank may be too large before it is made smaller.
const SPARE_ROOM: usize = 16;
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
    pub(super) control: Option<&'a Control>,
    /// The parameter buffer, with what is hidden from the guest.
    pub(super) params: &'a [u8],
    pub(super) heap: &'a Heap,
    pub(super) workers: u32,
    pub(super) epoch: Instant,
}

/// Identifies what a block's memory was last used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tenant {
    pub(super) program: u64,
    pub(super) run: u64,
}

/// A block, or the blocks of a cluster, with all its memory, used for one after another.
#[derive(Debug, Default)]
pub(super) struct Block {
    tenant: Tenant,
    geometry: Option<Geometry>,
    /// Blocks of a cluster along x, y, z, and the index of the first.
    cluster: [u32; 3],
    index: [u32; 3],
    /// Of one block after another, as many each.
    warps: Vec<Warp>,
    next_warp: usize,
    /// Of one block after another, as many bytes each.
    shared: Vec<u8>,
    shared_bytes: usize,
    /// Of each block.
    barriers: Vec<Barriers>,
}

/// Index of the `linear`th of as many things along x, y, z.
fn index(linear: u64, of: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = of.map(|count| u64::from(count.max(1)));
    [linear % x, linear / x % y, linear / x / y].map(|at| u32::try_from(at).unwrap_or(u32::MAX))
}

/// For each axis what a function makes of two numbers.
fn each(a: [u32; 3], b: [u32; 3], of: impl Fn(u32, u32) -> u32) -> [u32; 3] {
    std::array::from_fn(|axis| of(a[axis], b[axis]))
}

impl Block {
    /// Makes it the cluster of this linear index, which is a block where nothing is said of clusters.
    pub(super) fn begin(&mut self, around: &Surroundings<'_>, tenant: Tenant, linear: u64) {
        let geometry = around.launch.geometry();
        let image = around.image;
        self.cluster = image.cluster;
        let clusters = each(geometry.grid(), self.cluster, u32::div_ceil);
        self.index = each(index(linear, clusters), self.cluster, u32::saturating_mul);
        let blocks = self.cluster.iter().product::<u32>() as usize;
        let threads = geometry.threads_per_block();
        let shared_bytes = image.static_shared_bytes + geometry.shared_bytes();
        self.shared_bytes = shared_bytes as usize;
        self.shared.clear();
        self.shared.resize(self.shared_bytes * blocks, 0);
        self.barriers.resize_with(blocks, Barriers::default);
        for barriers in &mut self.barriers {
            barriers.reset(threads);
        }
        self.next_warp = 0;
        let same = self.tenant == tenant && self.geometry == Some(geometry);
        self.tenant = tenant;
        self.geometry = Some(geometry);
        let warps = threads.div_ceil(32) as usize;
        self.warps.resize_with(warps * blocks, Warp::default);
        let entry = &image.functions[0];
        let growth = Growth::of(image, geometry);
        for (number, warp) in self.warps.iter_mut().enumerate() {
            let rank = number / warps;
            let first = u32::try_from(number % warps).unwrap_or(0) * 32;
            warp.live = pack(|lane| first + u32::try_from(lane).unwrap_or(0) < threads);
            warp.groups.reset(entry.start, warp.live);
            warp.wake_at = None;
            warp.arrived = 0;
            warp.passed = 0;
            warp.debt = 0;
            warp.most_rows = growth.most_rows;
            warp.most_slots = growth.most_slots;
            if !same {
                trim(&mut warp.words, entry.size.words);
                trim(&mut warp.longs, entry.size.longs);
                trim(&mut warp.predicates, entry.size.predicates);
                trim(&mut warp.local, entry.size.local);
                trim(&mut warp.returns, 0);
                refill(&mut warp.words, entry.size.words, [0; LANES]);
                refill(&mut warp.longs, entry.size.longs, [0; LANES]);
                refill(&mut warp.predicates, entry.size.predicates, 0);
                for &(slot, preset) in &entry.longs {
                    let value = match preset {
                        LongPreset::Value(value) => value,
                        LongPreset::Parameter(of) => of.read(around.params),
                    };
                    warp.longs[usize::from(slot)] = [value; LANES];
                }
                for &(slot, value) in &entry.predicates {
                    warp.predicates[usize::from(slot)] = if value { u32::MAX } else { 0 };
                }
            }
            refill(&mut warp.local, entry.size.local, [0; LANES]);
            let within = index(rank as u64, self.cluster);
            let place = Place {
                index: each(self.index, within, u32::saturating_add),
                cluster: self.cluster,
                within,
                rank: u32::try_from(rank).unwrap_or(u32::MAX),
                first_thread: first,
                shared_bytes,
            };
            for &(slot, preset) in &entry.words {
                if !same || matches!(preset, Preset::BlockIndex(_) | Preset::ClusterIndex(_)) {
                    warp.words[usize::from(slot)] = value(preset, around, geometry, place);
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
                let rank = self.rank(self.next_warp);
                let (before, rest) = self.shared.split_at_mut(rank * self.shared_bytes);
                let (shared, after) = rest.split_at_mut(self.shared_bytes);
                let mut machine = Machine {
                    image: around.image,
                    memory: Memory {
                        window: around.window,
                        globals: around.globals,
                        shared,
                        cluster: Cluster {
                            rank,
                            bytes: self.shared_bytes,
                            before,
                            after,
                        },
                        constants: &around.image.const_bytes,
                        params: around.params,
                        workspace: around.workspace,
                        control: around.control,
                    },
                    barriers: &mut self.barriers[rank],
                    epoch: around.epoch,
                    services: Services {
                        launch: around.launch,
                        heap: around.heap,
                    },
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
            let rank = self.rank(self.next_warp);
            if self.barriers[rank].take_changed() {
                self.complete_barriers(around.image, rank);
            }
            if self.barriers[rank].take_gathered() {
                gather(&mut self.warps);
            }
            if self.barriers[rank].alive() == 0
                && self.barriers.iter().all(|barriers| barriers.alive() == 0)
            {
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

    /// The rank in its cluster of the block that a warp is of.
    fn rank(&self, warp: usize) -> usize {
        warp / self.warps_of_block()
    }

    fn warps_of_block(&self) -> usize {
        self.warps.len() / self.barriers.len()
    }

    fn complete_barriers(&mut self, image: &Image, rank: usize) {
        let count = self.warps_of_block();
        let warps = &mut self.warps[rank * count..][..count];
        while let Some(complete) = self.barriers[rank].take_complete(warps) {
            for warp in &mut *warps {
                release(warp, complete.id, |warp, group| {
                    tell(warp, group, image, complete)
                });
            }
        }
    }

    fn trap(&self, image: &Image, fault: Fault, pc: u32, warp: usize) -> Trap {
        let [x, y, _] = self.geometry.map_or([1; 3], |geometry| geometry.block());
        let (rank, warp) = (self.rank(warp), warp % self.warps_of_block());
        let linear = u32::try_from(warp * LANES + fault.lane).unwrap_or(u32::MAX);
        let within = index(rank as u64, self.cluster);
        Trap {
            kind: fault.kind,
            line: image.lines.get(pc as usize).copied().unwrap_or(0),
            block: each(self.index, within, u32::saturating_add),
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

impl Block {
    /// Bytes that it holds on to.
    pub(super) fn held_bytes(&self) -> usize {
        let of = |warp: &Warp| {
            let rows = warp.words.capacity() + warp.local.capacity() + warp.returns.capacity();
            rows * size_of::<Words>() + warp.longs.capacity() * 256 + warp.predicates.capacity() * 4
        };
        self.shared.capacity() + self.warps.iter().map(of).sum::<usize>()
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

/// Where a warp is in its launch.
#[derive(Clone, Copy)]
struct Place {
    /// Of the block.
    index: [u32; 3],
    /// Blocks of a cluster.
    cluster: [u32; 3],
    /// Of the block in its cluster.
    within: [u32; 3],
    rank: u32,
    first_thread: u32,
    shared_bytes: u32,
}

/// What a preset slot holds in a warp.
fn value(preset: Preset, around: &Surroundings<'_>, geometry: Geometry, place: Place) -> Words {
    let Place {
        index,
        first_thread,
        ..
    } = place;
    let [x, y, _] = geometry.block();
    let lane =
        |of: &dyn Fn(u32) -> u32| std::array::from_fn(|lane| of(u32::try_from(lane).unwrap_or(0)));
    match preset {
        Preset::Value(value) => [value; LANES],
        Preset::Parameter(of) => {
            let [value, _] = halves(of.read(around.params));
            [value; LANES]
        }
        Preset::BlockIndex(axis) => [index[axis]; LANES],
        Preset::BlockCount(axis) => [geometry.grid()[axis]; LANES],
        Preset::ThreadCount(axis) => [geometry.block()[axis]; LANES],
        Preset::ThreadIndex(0) => lane(&|lane| (first_thread + lane) % x),
        Preset::ThreadIndex(1) => lane(&|lane| (first_thread + lane) / x % y),
        Preset::ThreadIndex(_) => lane(&|lane| (first_thread + lane) / x / y),
        Preset::ClusterBlockIndex(axis) => [place.within[axis]; LANES],
        Preset::ClusterCount(axis) => [geometry.grid()[axis] / place.cluster[axis]; LANES],
        Preset::ClusterIndex(axis) => [index[axis] / place.cluster[axis]; LANES],
        Preset::ClusterRank => [place.rank; LANES],
        Preset::DynamicSharedBytes => [geometry.shared_bytes(); LANES],
        Preset::TotalSharedBytes => [place.shared_bytes; LANES],
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
