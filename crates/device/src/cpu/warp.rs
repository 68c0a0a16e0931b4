//! A warp and the loop that runs its instructions. Calls are in `call.rs`, barriers of the block in `barrier.rs`.
//! The loop is one match over all instructions, which is why this file is long: what each does is in the files that it calls.

use std::time::{Duration, Instant};

use crate::error::TrapKind;

use super::access::Accessing;
use super::atomic::atomic;
use super::barrier::{Barriers, CLUSTER};
use super::code::{BarrierKind, Image, LANES, NO_SLOT, Op};
use super::collective::{Shuffle, match_lanes, parties, reduce, shuffle, vote};
use super::groups::{Frame, Group, Groups, TURN, Turn, Wait};
use super::lanes::{Longs, Regs, Words, blend, blend_bits, lanes};
use super::matrix;
use super::memory::{Fault, LOCAL_BASE, Local, Memory};
use super::phase::{bulk, copy, phase};
use super::system::{self, Services};
use super::timer::read_timer;

/// The longest that `nanosleep` sleeps (PTX ISA, `nanosleep`).
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// 32 threads of a block.
#[derive(Debug, Default)]
pub(super) struct Warp {
    pub(super) words: Vec<Words>,
    pub(super) longs: Vec<Longs>,
    pub(super) predicates: Vec<u32>,
    pub(super) local: Local,
    /// The pc of the call that each lane is in, by depth.
    pub(super) returns: Vec<Words>,
    pub(super) groups: Groups,
    /// Lanes that have not exited.
    pub(super) live: u32,
    pub(super) wake_at: Option<Instant>,
    /// Lanes that have come to the barrier of the cluster.
    pub(super) arrived: u32,
    /// Lanes that have come to it before it was complete, and need not wait any more.
    pub(super) passed: u32,
    /// Rows that local memory may grow to.
    pub(super) most_rows: usize,
    /// Instructions that were more than it had, to be taken from the next.
    pub(super) debt: u32,
    /// Slots that each bank of registers may grow to, and calls that may be open.
    pub(super) most_slots: u32,
}

/// What a warp runs with: the block's and the launch's.
pub(super) struct Machine<'a> {
    pub(super) image: &'a Image,
    pub(super) memory: Memory<'a>,
    pub(super) barriers: &'a mut Barriers,
    pub(super) epoch: Instant,
    pub(super) services: Services<'a>,
}

/// Why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// All that is left waits at barriers, or nothing is left.
    Blocked,
    /// It used up its instructions.
    Fuel,
    /// It sleeps until `wake_at`.
    Sleep,
}

/// Why a group stopped running.
enum Leave {
    /// Its lanes have exited, or are in other groups.
    Gone,
    /// It goes on later.
    Ready,
    /// Some lanes of it, at the current pc.
    Cluster {
        lanes: u32,
    },
    Barrier {
        site: u32,
        lanes: u32,
    },
    Call {
        site: u32,
        lanes: u32,
    },
    Return {
        lanes: u32,
    },
    Sleep,
    /// It waits for other lanes of the warp.
    Warp,
}

impl Warp {
    /// Runs until every group waits or `fuel` instructions are used up.
    pub(super) fn run(
        &mut self,
        machine: &mut Machine<'_>,
        fuel: &mut u32,
    ) -> Result<Pause, (Fault, u32)> {
        let debt = std::mem::take(&mut self.debt);
        self.spend(debt, fuel);
        if *fuel == 0 {
            return Ok(Pause::Fuel);
        }
        while let Some((mut group, turn)) = self.groups.next() {
            let leave = self
                .run_group(machine, &mut group, turn, fuel)
                .map_err(|fault| (fault, group.pc))?;
            let split = |group: &mut Group, groups: &mut Groups, lanes: u32| {
                groups.push(Group {
                    pc: group.pc + 1,
                    mask: group.mask & !lanes,
                    ..*group
                });
                group.mask = lanes;
            };
            match leave {
                Leave::Gone => {}
                Leave::Ready => self.groups.push(group),
                Leave::Warp => self.groups.push(Group {
                    wait: Wait::Warp,
                    ..group
                }),
                Leave::Barrier { site, lanes } => {
                    split(&mut group, &mut self.groups, lanes);
                    self.arrive(machine, site, group)
                        .map_err(|fault| (fault, group.pc))?;
                }
                Leave::Cluster { lanes } => {
                    split(&mut group, &mut self.groups, lanes);
                    let passed = lanes & self.passed;
                    self.passed &= !passed;
                    for (mask, pc, wait) in [
                        (passed, group.pc + 1, Wait::Nothing),
                        (lanes & !passed, group.pc, Wait::Barrier(CLUSTER)),
                    ] {
                        self.groups.push(Group {
                            pc,
                            mask,
                            wait,
                            ..group
                        });
                    }
                }
                Leave::Call { site, lanes } => {
                    split(&mut group, &mut self.groups, lanes);
                    let more = self
                        .call(machine.image, site, group)
                        .map_err(|fault| (fault, group.pc))?;
                    self.spend(more, fuel);
                }
                Leave::Return { lanes } => {
                    split(&mut group, &mut self.groups, lanes);
                    let more = self.return_from(machine.image, group);
                    self.spend(more, fuel);
                }
                Leave::Sleep => {
                    self.groups.push(group);
                    // It may sleep until another has done something.
                    self.groups.rotate();
                    return Ok(Pause::Sleep);
                }
            }
            if *fuel == 0 {
                break;
            }
        }
        Ok(if *fuel == 0 && self.groups.any_runnable() {
            Pause::Fuel
        } else {
            Pause::Blocked
        })
    }

    fn spend(&mut self, instructions: u32, fuel: &mut u32) {
        let left = fuel.saturating_sub(instructions);
        self.debt += instructions - (*fuel - left);
        *fuel = left;
    }

    /// A group comes to a barrier of the block.
    fn arrive(&mut self, machine: &mut Machine<'_>, site: u32, group: Group) -> Result<(), Fault> {
        let site = &machine.image.barriers[site as usize];
        let words = &self.words[group.frame.words as usize..];
        let predicates = &self.predicates[group.frame.predicates as usize..];
        let lane = group.mask.trailing_zeros() as usize;
        let never = Fault {
            kind: TrapKind::BarrierDeadlock,
            lane,
            access: None,
        };
        let id = u8::try_from(words[usize::from(site.id)][lane]).map_err(|_| never)?;
        let threads = site.threads.map(|slot| words[usize::from(slot)][lane]);
        let yes = match site.kind {
            BarrierKind::Arrive | BarrierKind::Sync => 0,
            BarrierKind::And { p, .. }
            | BarrierKind::Or { p, .. }
            | BarrierKind::Popc { p, .. } => p.lanes(predicates, group.mask),
        };
        if site.kind == BarrierKind::Arrive {
            let threads = threads.unwrap_or(0);
            let rounded = if group.mask == self.live {
                32
            } else {
                group.mask.count_ones()
            };
            machine.barriers.pass(id, threads, rounded).ok_or(never)?;
            self.groups.push(Group {
                pc: group.pc + 1,
                ..group
            });
        } else {
            machine
                .barriers
                .arrive(id, threads, group.mask, yes)
                .ok_or(never)?;
            self.groups.push(Group {
                wait: Wait::Barrier(id),
                ..group
            });
        }
        Ok(())
    }

    /// Runs a group until it has to let others run.
    fn run_group(
        &mut self,
        machine: &mut Machine<'_>,
        group: &mut Group,
        turn: Turn,
        fuel: &mut u32,
    ) -> Result<Leave, Fault> {
        let image = machine.image;
        let frame = group.frame;
        let mut regs = Regs {
            w: &mut self.words[frame.words as usize..],
            d: &mut self.longs[frame.longs as usize..],
            p: &mut self.predicates[frame.predicates as usize..],
        };
        let mut others_ready = self.groups.any_ready();
        let mut meeting = if turn == Turn::Ordinary {
            self.groups.meeting_point(frame)
        } else {
            u32::MAX
        };
        let mut forced = turn == Turn::Forced;
        let allowed = if turn == Turn::Boosted {
            (*fuel).min(TURN)
        } else {
            *fuel
        };
        let mut left = allowed;
        let Group {
            mut pc, mut mask, ..
        } = *group;
        // Leaves the group as it now is.
        macro_rules! leave {
            ($why:expr) => {{
                *fuel -= allowed - left;
                group.pc = pc;
                group.mask = mask;
                return Ok($why);
            }};
        }
        // Counts an instruction as so many more.
        macro_rules! spend {
            ($more:expr) => {{
                let more: u32 = $more;
                let spent = more.min(left);
                left -= spent;
                self.debt = self.debt.saturating_add(more - spent);
            }};
        }
        macro_rules! attempt {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(fault) => {
                        group.pc = pc;
                        return Err(fault);
                    }
                }
            };
        }
        // Waits until the members that are alive have come; gives the sets of members, which tiles of a warp have each their own.
        macro_rules! gather {
            ($slot:expr, $active:expr) => {{
                let members = regs.w[usize::from($slot)];
                let wanted = lanes($active).fold(0, |all, lane| all | members[lane]);
                if wanted & self.live & !mask != 0 && !std::mem::take(&mut forced) {
                    group.pc = pc;
                    group.mask = mask;
                    let gained = self.groups.absorb(group);
                    if gained != 0 {
                        mask |= gained;
                        meeting = self.groups.meeting_point(frame);
                        continue;
                    }
                    leave!(Leave::Warp);
                }
                members
            }};
        }
        loop {
            if pc >= meeting || left == 0 {
                leave!(Leave::Ready);
            }
            left -= 1;
            let instruction = &image.code[pc as usize];
            let active = instruction.guard.lanes(regs.p, mask);
            if active == 0 {
                pc += 1;
                continue;
            }
            match &instruction.op {
                Op::Lane { run, slots } => run.call(&mut regs, slots, active),
                Op::Load { run, access } => {
                    attempt!(run.call(&mut Accessing {
                        regs: &mut regs,
                        memory: &mut machine.memory,
                        local: &mut self.local,
                        access,
                        vectors: &image.vectors,
                        frame,
                        mask: active,
                    }));
                    if access.fenced {
                        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
                    }
                }
                Op::Store { run, access } => {
                    if access.fenced {
                        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
                    }
                    attempt!(run.call(&mut Accessing {
                        regs: &mut regs,
                        memory: &mut machine.memory,
                        local: &mut self.local,
                        access,
                        vectors: &image.vectors,
                        frame,
                        mask: active,
                    }));
                }
                Op::Branch { target } => {
                    let target = *target;
                    if target <= pc && others_ready && self.groups.tire() {
                        // The branch runs again when its turn comes.
                        leave!(Leave::Ready);
                    }
                    if active == mask {
                        pc = target;
                        continue;
                    }
                    let (taken, passed) = ((target, active), (pc + 1, mask & !active));
                    let (first, second) = if target <= pc {
                        (taken, passed)
                    } else {
                        (passed, taken)
                    };
                    self.groups.push(Group {
                        pc: second.0,
                        mask: second.1,
                        frame,
                        wait: Wait::Nothing,
                    });
                    (pc, mask) = first;
                    others_ready = true;
                    if turn != Turn::Boosted {
                        meeting = meeting.min(second.0);
                    }
                    continue;
                }
                Op::BranchTable { index, table } => {
                    let indices = regs.w[usize::from(*index)];
                    let targets = &image.tables[*table as usize];
                    let passed = Group {
                        pc: pc + 1,
                        mask: mask & !active,
                        frame,
                        wait: Wait::Nothing,
                    };
                    if lanes(active).any(|lane| targets.get(indices[lane] as usize).is_none()) {
                        let wild = |lane: &usize| targets.get(indices[*lane] as usize).is_none();
                        let lane = lanes(active).find(wild).unwrap_or(0);
                        attempt!(Err(Fault {
                            kind: TrapKind::OutOfBounds,
                            lane,
                            access: None
                        }));
                    }
                    self.groups.push(passed);
                    if lanes(active).any(|lane| targets[indices[lane] as usize] <= pc) {
                        self.groups.tire();
                    }
                    for lane in lanes(active) {
                        let pc = targets[indices[lane] as usize];
                        self.groups.push(Group {
                            pc,
                            mask: 1 << lane,
                            frame,
                            wait: Wait::Nothing,
                        });
                    }
                    leave!(Leave::Gone);
                }
                Op::Exit => {
                    self.live &= !active;
                    machine.barriers.exit(active);
                    mask &= !active;
                    if mask == 0 {
                        leave!(Leave::Gone);
                    }
                }
                Op::Return if frame.depth == 0 => {
                    self.live &= !active;
                    machine.barriers.exit(active);
                    mask &= !active;
                    if mask == 0 {
                        leave!(Leave::Gone);
                    }
                }
                Op::Return => leave!(Leave::Return { lanes: active }),
                Op::Call { site } => leave!(Leave::Call {
                    site: *site,
                    lanes: active
                }),
                Op::ClusterArrive => {
                    self.arrived |= active;
                    machine.barriers.gather();
                }
                Op::ClusterWait => leave!(Leave::Cluster { lanes: active }),
                Op::Barrier { site } => leave!(Leave::Barrier {
                    site: *site,
                    lanes: active
                }),
                Op::Atomic(of) => {
                    attempt!(atomic(
                        &mut regs,
                        &mut machine.memory,
                        &mut self.local,
                        of,
                        frame,
                        active
                    ));
                }
                Op::Shuffle {
                    mode,
                    d,
                    p,
                    a,
                    b,
                    c,
                    members,
                } => {
                    gather!(*members, active);
                    let at = Shuffle {
                        d: *d,
                        p: *p,
                        a: *a,
                        b: *b,
                        c: *c,
                    };
                    shuffle(&mut regs, *mode, at, active);
                }
                Op::Vote {
                    mode,
                    d,
                    p,
                    members,
                } => {
                    let yes = p.lanes(regs.p, active);
                    for (party, voters) in parties(gather!(*members, active), active) {
                        vote(&mut regs, *mode, *d, yes, voters, party);
                    }
                }
                Op::Match {
                    all,
                    wide,
                    d,
                    p,
                    a,
                    members,
                } => {
                    for (party, voters) in parties(gather!(*members, active), active) {
                        let (result, equal) = if *wide {
                            let a = regs.d[usize::from(*a)];
                            match_lanes(|lane| a[lane], *all, voters)
                        } else {
                            let a = regs.w[usize::from(*a)];
                            match_lanes(|lane| u64::from(a[lane]), *all, voters)
                        };
                        blend(&mut regs.w[usize::from(*d)], party, &result);
                        if *p != NO_SLOT {
                            blend_bits(
                                &mut regs.p[usize::from(*p)],
                                party,
                                if equal { u32::MAX } else { 0 },
                            );
                        }
                    }
                }
                Op::Reduce { op, d, a, members } => {
                    let values = regs.w[usize::from(*a)];
                    for (party, voters) in parties(gather!(*members, active), active) {
                        let result = reduce(*op, &values, voters);
                        blend(&mut regs.w[usize::from(*d)], party, &[result; LANES]);
                    }
                }
                Op::SyncWarp { members } => {
                    gather!(*members, active);
                }
                Op::Elect { d, p, members } => {
                    for (party, voters) in parties(gather!(*members, active), active) {
                        let leader = voters.trailing_zeros();
                        if *d != NO_SLOT {
                            blend(&mut regs.w[usize::from(*d)], party, &[leader; LANES]);
                        }
                        blend_bits(
                            &mut regs.p[usize::from(*p)],
                            party,
                            1_u32.checked_shl(leader).unwrap_or(0),
                        );
                    }
                }
                Op::ActiveMask { d } => {
                    blend(&mut regs.w[usize::from(*d)], active, &[active; LANES])
                }
                Op::LocalAddress {
                    d,
                    offset,
                    wide,
                    generic,
                } => {
                    let address = u64::from(frame.local) * 4 + u64::from(*offset);
                    if *wide {
                        let base = if *generic { LOCAL_BASE } else { 0 };
                        blend(
                            &mut regs.d[usize::from(*d)],
                            active,
                            &[base + address; LANES],
                        );
                    } else {
                        let address = u32::try_from(address).unwrap_or(u32::MAX);
                        blend(&mut regs.w[usize::from(*d)], active, &[address; LANES]);
                    }
                }
                Op::Timer { d, timer } => read_timer(&mut regs, *d, *timer, machine.epoch, active),
                Op::Nanosleep { a } => {
                    let nanos = regs.w[usize::from(*a)][active.trailing_zeros() as usize];
                    self.wake_at = Some(
                        Instant::now() + Duration::from_nanos(nanos.into()).min(LONGEST_SLEEP),
                    );
                    pc += 1;
                    leave!(Leave::Sleep);
                }
                Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
                Op::Copy { site } => {
                    let site = &image.copies[*site as usize];
                    attempt!(copy(&regs, &mut machine.memory, site, active));
                }
                Op::Bulk { site } => {
                    let site = &image.bulks[*site as usize];
                    let memory = &mut machine.memory;
                    let local = &mut self.local;
                    let more = attempt!(bulk(&regs, memory, local, site, frame, active));
                    spend!(more);
                }
                Op::Phase { site } => {
                    let site = &image.phases[*site as usize];
                    let memory = &mut machine.memory;
                    let local = &mut self.local;
                    attempt!(phase(&mut regs, memory, local, site, frame, active));
                }
                Op::Matrix { site } => {
                    let site = &image.matrices[*site as usize];
                    attempt!(matrix::run(
                        &mut regs,
                        &mut machine.memory,
                        &mut self.local,
                        site,
                        active
                    ));
                }
                Op::System { site } => {
                    let site = &image.systems[*site as usize];
                    let more = attempt!(system::call(
                        &machine.services,
                        &machine.memory,
                        &mut self.local,
                        site,
                        frame,
                        active
                    ));
                    spend!(more);
                }
                Op::Trap => {
                    let lane = active.trailing_zeros() as usize;
                    attempt!(Err(Fault {
                        kind: TrapKind::TrapInstruction,
                        lane,
                        access: None
                    }));
                }
            }
            pc += 1;
        }
    }

    /// The innermost frame that a group could be in when no function is called.
    pub(super) fn outermost() -> Frame {
        Frame::default()
    }
}
