//! What a child made of a text: [`Cubin`], an ELF file whose header and tables lie within its bytes. The driver is told no length, it reads what
//! they say. What its kernels do is checked nowhere, as with all that the driver's compiler makes.

/// `e_machine` of code for NVIDIA's devices.
const MACHINE: u16 = 190;
const HEADER_BYTES: usize = 64;
const SECTION_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
/// `sh_type` of a section that has no bytes in the file, and of the first that a processor defines for itself.
const NO_BITS: u32 = 8;
const FIRST_OWN: u32 = 0x6000_0000;

/// A file of the driver's own format, whole.
#[derive(Debug)]
pub(in crate::cuda) struct Cubin(Vec<u8>);

impl Cubin {
    pub(super) fn new(bytes: Vec<u8>) -> Result<Self, String> {
        match is_whole(&bytes) {
            Some(true) => Ok(Self(bytes)),
            _ => Err(format!("{} bytes that are no cubin", bytes.len())),
        }
    }

    pub(in crate::cuda) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whether all that the file says it has is there; `None` where it ends before that can be told.
fn is_whole(file: &[u8]) -> Option<bool> {
    let header = file.first_chunk::<HEADER_BYTES>()?;
    // 64 bits, the lowest byte first.
    if !header.starts_with(b"\x7fELF\x02\x01") || half(header, 18)? != MACHINE {
        return Some(false);
    }
    let segments = Table {
        at: long(header, 32)?,
        entry_bytes: half(header, 54)?.into(),
        count: half(header, 56)?.into(),
    };
    let sections = Table {
        at: long(header, 40)?,
        entry_bytes: half(header, 58)?.into(),
        count: half(header, 60)?.into(),
    };
    let names: u64 = half(header, 62)?.into();
    if !segments.is_in(file, SEGMENT_BYTES)
        || !sections.is_in(file, SECTION_BYTES)
        || names > sections.count
    {
        return Some(false);
    }
    for index in 0..sections.count {
        let at = usize::try_from(sections.at + index * SECTION_BYTES).ok()?;
        let section = file.get(at..)?;
        let kind = word(section, 4)?;
        let has_bytes = kind != NO_BITS && kind < FIRST_OWN;
        if has_bytes && !is_in(file, long(section, 24)?, long(section, 32)?) {
            return Some(false);
        }
    }
    Some(true)
}

struct Table {
    at: u64,
    entry_bytes: u64,
    count: u64,
}

impl Table {
    fn is_in(&self, file: &[u8], entry_bytes: u64) -> bool {
        self.count == 0
            || (self.entry_bytes == entry_bytes && is_in(file, self.at, self.count * entry_bytes))
    }
}

fn is_in(file: &[u8], at: u64, bytes: u64) -> bool {
    at.checked_add(bytes)
        .is_some_and(|end| end <= file.len() as u64)
}

fn half(from: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*from.get(at..)?.first_chunk()?))
}

fn word(from: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*from.get(at..)?.first_chunk()?))
}

fn long(from: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*from.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of one segment and two sections, 16 bytes long each.
    fn file() -> Vec<u8> {
        let mut file = vec![0; 64 + 56 + 2 * 64 + 16];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, bytes: &[u8]| file[at..][..bytes.len()].copy_from_slice(bytes);
        put(18, &MACHINE.to_le_bytes());
        put(32, &64_u64.to_le_bytes());
        put(40, &120_u64.to_le_bytes());
        for (at, value) in [(54, 56_u16), (56, 1), (58, 64), (60, 2), (62, 1)] {
            put(at, &value.to_le_bytes());
        }
        for (section, kind) in [(120, 1_u32), (184, 8)] {
            put(section + 4, &kind.to_le_bytes());
            put(section + 24, &248_u64.to_le_bytes());
            put(section + 32, &16_u64.to_le_bytes());
        }
        file
    }

    fn is_taken(change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut file = file();
        change(&mut file);
        Cubin::new(file).is_ok()
    }

    #[test]
    fn a_whole_file_is_taken_and_one_that_is_cut_is_not() {
        assert_eq!(Cubin::new(file()).unwrap().bytes(), file());
        for len in 0..file().len() {
            assert!(!is_taken(|file| file.truncate(len)), "{len}");
        }
    }

    #[test]
    fn a_table_or_a_section_that_reaches_past_the_end_is_refused() {
        for at in [32, 40, 120 + 24, 120 + 32] {
            for value in [265, u64::MAX, 1 << 63] {
                let put = |file: &mut Vec<u8>| {
                    file[at..][..8].copy_from_slice(&u64::to_le_bytes(value));
                };
                assert!(!is_taken(put), "{at} {value}");
            }
        }
        for at in [54, 58, 60, 62] {
            let put = |file: &mut Vec<u8>| file[at..][..2].copy_from_slice(&[0xff; 2]);
            assert!(!is_taken(put), "{at}");
        }
    }

    #[test]
    fn a_section_without_bytes_may_say_any_length() {
        assert!(is_taken(|file| file[184 + 32..][..8].fill(0xff)));
    }

    #[test]
    fn other_files_are_refused() {
        for at in [0, 4, 5, 18] {
            assert!(!is_taken(|file| file[at] ^= 1), "{at}");
        }
    }
}
