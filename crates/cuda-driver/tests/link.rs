//! A program that uses cust and this crate must start where there is no driver, so it must not
//! name `libcuda` among the libraries that the dynamic loader needs. Alone in its process: the
//! first test of another kind would open the driver.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test program that is no good ELF file fails the test"
)]

use std::fs;

/// The names of the libraries that an ELF file needs (`DT_NEEDED`).
fn needed(elf: &[u8]) -> Vec<String> {
    const PT_LOAD: u64 = 1;
    const PT_DYNAMIC: u64 = 2;
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    let number = |at: u64, bytes: usize| -> u64 {
        let at = usize::try_from(at).unwrap();
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&elf[at..at + bytes]);
        u64::from_le_bytes(word)
    };
    assert_eq!(
        elf[..6],
        *b"\x7fELF\x02\x01",
        "a 64-bit little-endian program"
    );

    // Program headers: type, offset, virtual address and size in the file.
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let headers = (0..count).map(|index| table + index * size);
    let headers: Vec<[u64; 4]> = headers
        .map(|at| {
            [
                number(at, 4),
                number(at + 8, 8),
                number(at + 16, 8),
                number(at + 32, 8),
            ]
        })
        .collect();
    let offset_of = |address: u64| {
        let load = headers
            .iter()
            .find(|h| h[0] == PT_LOAD && (h[2]..h[2] + h[3]).contains(&address));
        let [_, offset, start, _] = load.expect("a segment with this address");
        address - start + offset
    };

    let dynamic = headers.iter().find(|h| h[0] == PT_DYNAMIC);
    let [_, offset, _, size] = dynamic.expect("a dynamically linked program");
    let entries = (*offset..offset + size).step_by(16);
    let entries: Vec<(u64, u64)> = entries
        .map(|at| (number(at, 8), number(at + 8, 8)))
        .collect();
    let strings = entries.iter().find(|entry| entry.0 == DT_STRTAB);
    let strings = offset_of(strings.expect("a string table").1);
    let name = |index: u64| {
        let text = &elf[usize::try_from(strings + index).unwrap()..];
        let text = text.split(|&byte| byte == 0).next().unwrap();
        String::from_utf8_lossy(text).into_owned()
    };
    let needed = entries.iter().filter(|entry| entry.0 == DT_NEEDED);
    needed.map(|entry| name(entry.1)).collect()
}

#[test]
fn libcuda_is_opened_at_the_first_call_and_not_by_the_loader() {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    let needed = needed(&program);
    assert!(
        needed.iter().any(|name| name.starts_with("libc.")),
        "{needed:?}"
    );
    assert!(
        !needed.iter().any(|name| name.contains("libcuda")),
        "{needed:?}"
    );

    let mapped = || {
        fs::read_to_string("/proc/self/maps")
            .unwrap()
            .contains("/libcuda.so")
    };
    assert!(!mapped(), "libcuda is there before anyone called it");
    let initialised = cust::init(cust::CudaFlags::empty());
    assert_eq!(mapped(), wasi_cuda_driver::available().is_ok());
    if !mapped() {
        assert_eq!(initialised, Err(cust::error::CudaError::NoDevice));
    }
}
