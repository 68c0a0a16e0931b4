//! The host's report of where a kernel of this instance last went wrong.

use core::fmt;

use abi::info::{TrapInfo, TrapKind};

use crate::error::{Error, status};
use crate::sys;

/// Where a kernel trapped and why. It prints as one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap(TrapInfo);

impl Trap {
    /// What happened; `None` for a kind that is newer than this crate.
    #[must_use]
    pub const fn kind(&self) -> Option<TrapKind> {
        TrapKind::from_number(self.0.kind)
    }

    /// Line of the PTX text, from 1, if it is known.
    #[must_use]
    pub const fn line(&self) -> Option<u32> {
        match self.0.line {
            0 => None,
            line => Some(line),
        }
    }

    /// Every field as the host wrote it.
    #[must_use]
    pub const fn info(&self) -> &TrapInfo {
        &self.0
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self
            .kind()
            .map_or("a trap of a new kind", TrapKind::meaning);
        f.write_str(what)?;
        if self.0.access_bytes > 0 {
            write!(
                f,
                ": {} bytes at {:#x}",
                self.0.access_bytes, self.0.address
            )?;
        }
        if let Some(line) = self.line() {
            write!(f, ", PTX line {line}")?;
        }
        let [x, y, z] = self.0.block;
        write!(f, ", block ({x}, {y}, {z})")?;
        let [x, y, z] = self.0.thread;
        write!(f, ", thread ({x}, {y}, {z})")
    }
}

/// The last trap of a kernel of this instance, `None` when there was none. It is what to ask for after
/// [`AbiError::KernelTrap`](crate::AbiError).
///
/// # Errors
///
/// `NotAvailable` without a device.
pub fn last_trap() -> Result<Option<Trap>, Error> {
    let mut bytes = [0; TrapInfo::SIZE];
    status(sys::trap_info(&mut bytes))?;
    let info = TrapInfo::from_bytes(&bytes);
    Ok((info.kind != TrapKind::None.number()).then_some(Trap(info)))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;
    use crate::mock;

    #[test]
    fn a_trap_prints_as_a_sentence() {
        assert_eq!(last_trap().unwrap(), None);
        mock::set_trap(TrapInfo {
            kind: TrapKind::OutOfBounds.number(),
            line: 34,
            block: [2, 0, 0],
            thread: [7, 1, 0],
            access_bytes: 4,
            address: 0x1_0000,
        });
        let trap = last_trap().unwrap().unwrap();
        assert_eq!(trap.kind(), Some(TrapKind::OutOfBounds));
        assert_eq!(
            trap.to_string(),
            "an access outside the memory that the kernel may touch: 4 bytes at 0x10000, PTX line 34, \
             block (2, 0, 0), thread (7, 1, 0)"
        );
    }

    #[test]
    fn what_is_not_known_is_not_printed() {
        mock::set_trap(TrapInfo {
            kind: 99,
            ..TrapInfo::NONE
        });
        let trap = last_trap().unwrap().unwrap();
        assert_eq!((trap.kind(), trap.line()), (None, None));
        let text = "a trap of a new kind, block (0, 0, 0), thread (0, 0, 0)";
        assert_eq!(trap.to_string(), text);
    }
}
