//! What the cases share: the device under test, guests on it whose kernels the embedder answers for, and arguments.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use abi::AbiError;
use abi::argv::Arg;
use device::cuda::{Compiler, GuestMemory, Options};
use device::{Device, Health, Selector};
use host::TrustedByEmbedder;

use crate::harness::{DATA_AT, GROW, Harness, KIT, Setup, Shape, guest_text_with, name};
use crate::runner::takes_exact_memory;

/// Kernels that go wrong where they are told to.
pub(crate) const FAULTS: &str = include_str!("../../fixtures/kernels/faults.ptx");

/// The word that lets kernels run as they are.
pub(crate) const WORD: TrustedByEmbedder = TrustedByEmbedder::i_vouch_for_this_kernel();

/// The first CUDA device, which all of the process share.
pub(crate) fn cuda() -> Arc<dyn Device> {
    static DEVICE: OnceLock<Arc<dyn Device>> = OnceLock::new();
    Arc::clone(DEVICE.get_or_init(|| open(0)))
}

/// The CUDA device of a number, as the cases open it.
pub(crate) fn open(number: u32) -> Arc<dyn Device> {
    let options = Options {
        memory: if takes_exact_memory() {
            GuestMemory::Exact
        } else {
            GuestMemory::default()
        },
        compiler: Compiler::this_program(),
    };
    device::open_with(Selector::Cuda(number), &options).unwrap()
}

/// An instance on `device` whose kernels the embedder answers for.
pub(crate) fn trusted_on(device: Arc<dyn Device>) -> Setup {
    Setup {
        word: Some(WORD),
        ..Setup::on(device)
    }
}

/// An instance on the CUDA device whose kernels the embedder answers for.
pub(crate) fn trusted() -> Setup {
    trusted_on(cuda())
}

/// A guest of [`trusted`].
pub(crate) fn guest() -> Harness {
    Harness::new(&trusted())
}

/// The text of the generic guest with so many pages of memory.
pub(crate) fn guest_text(pages: u32) -> String {
    let memory = format!(r#"(memory (export "memory") {pages})"#);
    guest_text_with(&format!("{memory} {GROW}"))
}

pub(crate) const fn ptr(offset: u32, len: u32) -> Arg<'static> {
    Arg::Ptr { offset, len }
}

/// A launch answers this code, and a text that holds each of these parts.
#[track_caller]
pub(crate) fn assert_fails(guest: &mut Harness, answer: i64, code: AbiError, parts: &[&str]) {
    let text = guest.last_error();
    assert_eq!(name(answer), code.name(), "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// The device works: a new instance and this one both run a kernel.
#[track_caller]
pub(crate) fn assert_sound(guest: &mut Harness) {
    assert_eq!(cuda().health(), Health::Good);
    guest.assert_usable();
    self::guest().assert_usable();
}

/// What the counter of the module was before this launch added one.
pub(crate) fn count(guest: &mut Harness, kernel: i64) -> u32 {
    guest.run(kernel, &[ptr(DATA_AT, 4)]);
    guest.read_u32(DATA_AT)
}

/// Loads an entry of the kit and launches one thread of it.
pub(crate) fn launch_kit(guest: &mut Harness, entry: &str, args: &[Arg<'_>]) -> i64 {
    let kernel = guest.kernel(KIT, entry);
    guest.launch(kernel, Shape::ONE, args)
}

/// Regions that are gone are given back in the background.
#[track_caller]
pub(crate) fn assert_nothing_is_reserved(device: &Arc<dyn Device>) {
    let begin = Instant::now();
    while device.regions().reserved_bytes() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(1));
    }
}
