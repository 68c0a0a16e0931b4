//! What an entry of confined text asks of its launches besides its guest's arguments, as `docs/confinement.md` has it: the windows that
//! it runs on, its hidden parameters, its dynamic shared memory. What it reports is read in `control.rs`.

use ptx::{Signature, Verified, WindowForm};

use crate::error::Error;
use crate::launch::Launch;
use crate::region::{MAX_WINDOW_BYTES, Region};

/// What a confined entry asks of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    window: WindowForm,
    dynamic: Option<DynamicBlock>,
}

/// A block of shared memory whose size the launch decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DynamicBlock {
    /// Bytes that it has at least, behind which nothing is masked.
    padding: u32,
    /// Bytes of it that the guest's variables of fixed size take.
    before: u32,
}

impl Confinement {
    /// Of the entry at a position in the map's entries.
    #[must_use]
    pub fn of(verified: &Verified, entry: usize) -> Self {
        let before = verified.map().entries[entry].shared_before_dynamic;
        let block = |padding| DynamicBlock { padding, before };
        Self {
            window: verified.window(),
            dynamic: verified.needs(entry).dynamic_padding.map(block),
        }
    }

    /// The windows that it runs on.
    #[must_use]
    pub fn window(&self) -> WindowForm {
        self.window
    }

    /// The dynamic shared memory that a launch passes where the guest asked for `given` bytes: a power of two that holds what
    /// the guest's variables take, and the padding behind it. What no number can say is [`u32::MAX`].
    #[must_use]
    pub fn shared_bytes(&self, given: u32) -> u32 {
        let Some(block) = self.dynamic else {
            return given;
        };
        let taken = block.before.saturating_add(given);
        let masked = taken.checked_next_power_of_two().unwrap_or(u32::MAX);
        masked
            .saturating_add(block.padding.saturating_sub(1))
            .max(block.padding)
    }

    /// Whether a block of so much dynamic shared memory holds all that the kernel may touch there.
    pub(crate) fn is_shared_enough(&self, shared_bytes: u32) -> bool {
        self.dynamic
            .is_none_or(|block| shared_bytes >= block.padding.max(1))
    }

    /// Refuses a launch on memory that the entry does not stay inside of.
    pub(crate) fn runs_on(&self, region: Option<&Region>) -> Result<(), Error> {
        let unavailable = |reason: String| Err(Error::NotAvailable { reason });
        let form = region.and_then(Region::form);
        match (self.window, form) {
            (_, None) => unavailable(
                "a confined kernel runs on a whole window of this device, and the memory given is none".into(),
            ),
            (WindowForm::Whole, Some(WindowForm::Masked)) => unavailable(
                "the kernel is confined to a window of 4 GiB, and the memory given has a smaller one, or one \
                 that does not begin at a multiple of 4 GiB"
                    .into(),
            ),
            (WindowForm::Masked, Some(_)) | (WindowForm::Whole, Some(WindowForm::Whole)) => Ok(()),
        }
    }
}

/// What is the guest's of a window, for reports of accesses to the rest: offsets from `first` on, which wrap at 4 GiB, and so many behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) first: u32,
    pub(crate) span: u32,
}

impl Reach {
    /// Of a window with so many bytes of linear memory, where buffers lie from `floor` on. In a window of less than 4 GiB, whose top does not
    /// wrap to its bottom, what lies between them counts as the guest's while there are buffers.
    pub(crate) fn new(size: u64, floor: u64, window_bytes: u64) -> Self {
        let carved = window_bytes.saturating_sub(floor);
        let (first, bytes) = match carved {
            0 => (0, size),
            _ if window_bytes == MAX_WINDOW_BYTES => (floor, carved + size),
            _ => (0, window_bytes),
        };
        Self {
            first: u32::try_from(first).unwrap_or(0),
            span: mask(bytes),
        }
    }
}

/// The values of the hidden parameters, in the order in which they stand behind the guest's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) base: u64,
    pub(crate) control: u64,
    pub(crate) stop: u64,
    pub(crate) until: u64,
    pub(crate) globals: u32,
    pub(crate) mask: u32,
    pub(crate) reach: Reach,
    pub(crate) token: u32,
}

/// What a launch is ended by: the block where it leaves its report, the word that says stop, what it says then, and the time, all as the
/// device has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reins {
    pub(crate) control: u64,
    pub(crate) stop: u64,
    pub(crate) token: u32,
    pub(crate) until: u64,
}

impl Hidden {
    /// For a launch on a window of so many bytes whose first one is at `base` to the kernel.
    pub(crate) fn new(
        launch: &Launch,
        base: u64,
        window_bytes: u64,
        reach: Reach,
        reins: Reins,
    ) -> Self {
        let Reins {
            control,
            stop,
            token,
            until,
        } = reins;
        Self {
            base,
            control,
            stop,
            until,
            globals: launch.control().globals,
            mask: mask(window_bytes),
            reach,
            token,
        }
    }

    /// The address of each, in order, as a driver takes them; valid while this value is borrowed.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "the CPU device reads parameters from a buffer")
    )]
    pub(crate) fn ptrs(&self) -> [*const u8; 9] {
        [
            (&raw const self.base).cast(),
            (&raw const self.control).cast(),
            (&raw const self.stop).cast(),
            (&raw const self.until).cast(),
            (&raw const self.globals).cast(),
            (&raw const self.mask).cast(),
            (&raw const self.reach.first).cast(),
            (&raw const self.reach.span).cast(),
            (&raw const self.token).cast(),
        ]
    }

    /// Writes them into a buffer of parameters where a confined entry, with these last ones, reads them.
    pub(crate) fn put(&self, confined: &Signature, params: &mut Vec<u8>) {
        let wide = [self.base, self.control, self.stop, self.until].map(u64::to_le_bytes);
        let Reach { first, span } = self.reach;
        let narrow = [self.globals, self.mask, first, span, self.token].map(u32::to_le_bytes);
        let narrow = narrow.iter().map(<[u8; 4]>::as_slice).rev();
        let values = narrow.chain(wide.iter().map(<[u8; 8]>::as_slice).rev());
        for (parameter, value) in confined.parameters.iter().rev().zip(values) {
            let at = parameter.offset as usize;
            let end = at + value.len();
            if params.len() < end {
                params.resize(end, 0);
            }
            params[at..end].copy_from_slice(value);
        }
    }
}

/// What keeps an offset in a window of so many bytes, a power of two up to 4 GiB.
pub(crate) fn mask(window_bytes: u64) -> u32 {
    u32::try_from(window_bytes.saturating_sub(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
impl Confinement {
    /// For windows of a form, with a dynamic block of `padding` bytes at least and `before` bytes of other variables in it.
    pub(crate) fn made_up(window: WindowForm, dynamic: Option<(u32, u32)>) -> Self {
        let dynamic = dynamic.map(|(padding, before)| DynamicBlock { padding, before });
        Self { window, dynamic }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_part_of_a_window_is_linear_memory_and_what_is_carved() {
        const WHOLE: u64 = MAX_WINDOW_BYTES;
        let reach = |size, floor, window| {
            let Reach { first, span } = Reach::new(size, floor, window);
            (first, span)
        };
        assert_eq!(reach(0x1_0000, WHOLE, WHOLE), (0, 0xffff));
        assert_eq!(reach(WHOLE, WHOLE, WHOLE), (0, u32::MAX));
        let floor = WHOLE - 0x4000;
        assert_eq!(reach(0x1_0000, floor, WHOLE), (0xffff_c000, 0x1_3fff));
        assert_eq!(reach(floor, floor, WHOLE), (0xffff_c000, u32::MAX));
        assert_eq!(reach(0, WHOLE, WHOLE), (0, 0));
        assert_eq!(reach(0x1_0000, 0x10_0000, 0x10_0000), (0, 0xffff));
        assert_eq!(reach(0x1_0000, 0xf_0000, 0x10_0000), (0, 0xf_ffff));
    }

    #[test]
    fn dynamic_shared_memory_is_a_power_of_two_and_the_padding() {
        let bytes =
            |dynamic, given| Confinement::made_up(WindowForm::Masked, dynamic).shared_bytes(given);
        assert_eq!(bytes(None, 1000), 1000);
        for (padding, before, given, want) in [
            (64, 0, 1000, 1024 + 63),
            (64, 0, 1024, 1024 + 63),
            (64, 24, 1024, 2048 + 63),
            (64, 0, 0, 64),
            (1, 0, 0, 1),
            (0, 0, 0, 1),
            (64, 0, 1 << 31, (1 << 31) + 63),
            (64, 1, 1 << 31, u32::MAX),
            (64, u32::MAX, u32::MAX, u32::MAX),
        ] {
            assert_eq!(
                bytes(Some((padding, before)), given),
                want,
                "{padding} {before} {given}"
            );
        }
    }
}
