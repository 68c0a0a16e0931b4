//! Functions that CUDA brings along: `vprintf`, `malloc` and `free`.

use crate::error::TrapKind;
use crate::launch::Launch;

use super::code::{Space, System, SystemSite};
use super::groups::Frame;
use super::heap::Heap;
use super::lanes::lanes;
use super::memory::{Fault, GLOBALS_BASE, Local, Memory, fault, read_local, write_local};
use super::print::{MOST_BYTES, Source, print};

/// Bytes that are printed in the time of an instruction.
const BYTES_PER_INSTRUCTION: usize = 4;

/// The memory that a lane's `printf` reads.
struct Reader<'a, 'm> {
    memory: &'a Memory<'m>,
    local: &'a Local,
    lane: usize,
    arguments: u64,
    /// Bytes that were read.
    bytes: usize,
}

impl Reader<'_, '_> {
    /// The format, up to its end.
    fn format(&mut self, address: u64) -> Result<Vec<u8>, Fault> {
        let mut format = Vec::new();
        while format.len() < MOST_BYTES {
            match self.byte(address.wrapping_add(format.len() as u64))? {
                0 => break,
                byte => format.push(byte),
            }
        }
        Ok(format)
    }
}

impl Source for Reader<'_, '_> {
    type Fault = Fault;

    fn argument(&mut self, at: u64, bytes: u64) -> Result<u64, Fault> {
        let address = self.arguments.wrapping_add(at);
        let (local, lane) = (self.local, self.lane);
        let word = if bytes == 8 {
            self.memory
                .load_one::<u64>(local, Space::Generic, address, lane)
        } else {
            let word = self
                .memory
                .load_one::<u32>(local, Space::Generic, address, lane);
            word.map(u64::from)
        };
        word.map_err(|kind| fault(kind, lane, address, bytes, Space::Generic))
    }

    fn byte(&mut self, address: u64) -> Result<u8, Fault> {
        self.bytes += 1;
        let byte = self
            .memory
            .load_one(self.local, Space::Generic, address, self.lane);
        byte.map_err(|kind| fault(kind, self.lane, address, 1, Space::Generic))
    }
}

/// What functions of CUDA's work on besides memory.
pub(super) struct Services<'a> {
    pub(super) launch: &'a Launch,
    pub(super) heap: &'a Heap,
}

/// Runs a call for the lanes of the mask, lowest first. Gives the instructions that it counts as beyond itself.
#[inline(never)]
pub(super) fn call(
    services: &Services<'_>,
    memory: &Memory<'_>,
    local: &mut Local,
    site: &SystemSite,
    frame: Frame,
    mask: u32,
) -> Result<u32, Fault> {
    let at = |word: u32| u64::from(frame.local + word) * 4;
    let mut work = 0;
    for lane in lanes(mask) {
        let argument = |index: usize| {
            let word = site.arguments.get(index);
            word.and_then(|&word| read_local::<u64>(local, at(word), lane))
                .unwrap_or(0)
        };
        let result = match site.of {
            System::Print => {
                let mut reader = Reader {
                    memory,
                    local,
                    lane,
                    arguments: argument(1),
                    bytes: 0,
                };
                let format = reader.format(argument(0))?;
                let (text, count) = print(&format, &mut reader)?;
                work += reader.bytes + text.len();
                if services.launch.print(&text) {
                    u64::from(count)
                } else {
                    u64::MAX
                }
            }
            System::Malloc => {
                let offset = services.heap.allocate(argument(0));
                offset.map_or(0, |offset| GLOBALS_BASE + offset)
            }
            System::Free => {
                let address = argument(0);
                let piece = address
                    .checked_sub(GLOBALS_BASE)
                    .and_then(|at| services.heap.release(at));
                if address != 0 && piece.is_none() {
                    return Err(fault(
                        TrapKind::OutOfBounds,
                        lane,
                        address,
                        1,
                        Space::Generic,
                    ));
                }
                0
            }
        };
        let Some(word) = site.result else { continue };
        let written = match site.of {
            System::Print => {
                let count = u32::try_from(result).unwrap_or(u32::MAX);
                write_local(local, at(word), lane, count)
            }
            _ => write_local(local, at(word), lane, result),
        };
        written.ok_or_else(|| fault(TrapKind::OutOfBounds, lane, at(word), 8, Space::Local))?;
    }
    Ok(u32::try_from(work / BYTES_PER_INSTRUCTION).unwrap_or(u32::MAX))
}
