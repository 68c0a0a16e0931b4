//! Lane functions, loads and stores, each compiled twice: for any processor, and for one whose vectors have 256 bits. Which of
//! the two runs is chosen when a program is lowered; nothing else here knows what they compute.
#![expect(
    unsafe_code,
    reason = "calls functions that need features of the processor, after asking for those"
)]

use super::access::Accessing;
use super::code::Slots;
use super::lanes::Regs;
use super::memory::Fault;

/// What computes a destination from sources, lane by lane, for the lanes of a mask.
pub(super) trait LaneOp {
    /// `FUSED`: whether the processor multiplies and adds in one step.
    fn run<const FUSED: bool>(regs: &mut Regs<'_>, slots: &Slots, mask: u32);
}

type Plain = fn(&mut Regs<'_>, &Slots, u32);
/// Safe to call where [`is_wide`].
type Wide = unsafe fn(&mut Regs<'_>, &Slots, u32);

/// A lane function before it is chosen how it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneFn {
    plain: Plain,
    wide: Wide,
}

/// A lane function that this processor can run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run(Wide);

fn plain<O: LaneOp>(regs: &mut Regs<'_>, slots: &Slots, mask: u32) {
    if cfg!(target_feature = "fma") {
        O::run::<true>(regs, slots, mask);
    } else {
        O::run::<false>(regs, slots, mask);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt")]
fn wide<O: LaneOp>(regs: &mut Regs<'_>, slots: &Slots, mask: u32) {
    O::run::<true>(regs, slots, mask);
}

#[cfg(not(target_arch = "x86_64"))]
use plain as wide;

/// Whether the processor has all that [`wide`] is compiled for.
#[cfg(target_arch = "x86_64")]
fn is_wide() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("fma") && has!("lzcnt") && has!("popcnt")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_wide() -> bool {
    false
}

impl LaneFn {
    pub(super) const fn of<O: LaneOp>() -> Self {
        Self {
            plain: plain::<O>,
            wide: wide::<O>,
        }
    }

    /// The one of the two that this processor runs best.
    pub(super) fn choose(self) -> Run {
        Run(if is_wide() { self.wide } else { self.plain })
    }
}

impl Run {
    #[inline(always)]
    pub(super) fn call(self, regs: &mut Regs<'_>, slots: &Slots, mask: u32) {
        // SAFETY: `choose` makes every `Run`, of a safe function or, where `is_wide`, of `wide::<O>`, which is safe but for the
        // features that `is_wide` asked for.
        unsafe { (self.0)(regs, slots, mask) }
    }
}

/// What loads or stores for the lanes of a mask.
pub(super) trait AccessOp {
    fn run(access: &mut Accessing<'_, '_, '_>) -> Result<(), Fault>;
}

/// Safe to call where [`is_wide`].
type WideAccess = unsafe fn(&mut Accessing<'_, '_, '_>) -> Result<(), Fault>;

/// A load or store that this processor can run.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessRun(WideAccess);

fn plain_access<O: AccessOp>(access: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
    O::run(access)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,fma,lzcnt,popcnt")]
fn wide_access<O: AccessOp>(access: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
    O::run(access)
}

#[cfg(not(target_arch = "x86_64"))]
use plain_access as wide_access;

impl AccessRun {
    /// The way that this processor runs best.
    pub(super) fn of<O: AccessOp>() -> Self {
        Self(if is_wide() {
            wide_access::<O>
        } else {
            plain_access::<O>
        })
    }

    #[inline(always)]
    pub(super) fn call(self, access: &mut Accessing<'_, '_, '_>) -> Result<(), Fault> {
        // SAFETY: `of` makes every `AccessRun`, of a safe function or, where `is_wide`, of `wide_access::<O>`, which is safe but
        // for the features that `is_wide` asked for.
        unsafe { (self.0)(access) }
    }
}
