//! Random kernels with random arguments, the same in every run. `WASI_CUDA_SEED` takes others, `WASI_CUDA_SECONDS` more of them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::grammar::Manner;
use crate::oracle::{Verdict, World, text_of};

/// Numbers from a fixed sequence.
#[derive(Debug)]
struct Numbers(u64);

impl Numbers {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let next = |_| {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.0.to_le_bytes()[7]
        };
        (0..count).map(next).collect()
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// Distinct failures that are told.
const MOST_TOLD: usize = 12;

/// A message without its numbers: failures of one kind are told once, with the shortest kernel.
fn kind(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    first
        .chars()
        .filter(|character| !character.is_ascii_digit())
        .collect()
}

/// How long to look for a shorter kernel that fails in the same way.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the oracle says of a kernel: a verdict, or the panic.
fn check(world: &mut World, bytes: &[u8], manner: Manner, text: &str) -> Result<Verdict, String> {
    let program = ptx::read(text.as_bytes()).map_err(|error| error.to_string())?;
    let checked = catch_unwind(AssertUnwindSafe(|| {
        world.check_with(bytes, manner, &program)
    }));
    checked.map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

/// Leaves out lines as long as the failure stays what it is.
fn shorten(world: &mut World, bytes: &[u8], manner: Manner, failure: &str) -> String {
    let wanted = kind(failure);
    let text = text_of(bytes, manner).replace("; ", ";\n");
    let mut lines: Vec<&str> = text.lines().collect();
    let mut message = failure.to_owned();
    let begun = Instant::now();
    let mut step = lines.len() / 4;
    while step > 0 && begun.elapsed() < PATIENCE {
        let mut at = 0;
        while at < lines.len() && begun.elapsed() < PATIENCE {
            let mut fewer = lines.clone();
            fewer.drain(at..(at + step).min(lines.len()));
            match check(world, bytes, manner, &fewer.join("\n")) {
                Err(found) if kind(&found) == wanted => (lines, message) = (fewer, found),
                _ => at += step,
            }
        }
        step /= 2;
    }
    message
}

fn run(manner: Manner) -> BTreeMap<Verdict, u32> {
    let time = Duration::from_secs(from_environment("WASI_CUDA_SECONDS", 4));
    let mut numbers = Numbers(from_environment("WASI_CUDA_SEED", 1));
    let mut world = World::new();
    let mut verdicts = BTreeMap::new();
    let mut failures: BTreeMap<String, (u32, Vec<u8>, String)> = BTreeMap::new();
    let begun = Instant::now();
    while begun.elapsed() < time {
        let length = 60 + usize::from(numbers.bytes(1)[0]) * 4;
        let bytes = numbers.bytes(length);
        match check(&mut world, &bytes, manner, &text_of(&bytes, manner)) {
            Ok(verdict) => *verdicts.entry(verdict).or_default() += 1,
            Err(message) => {
                let (count, shortest, said) = failures.entry(kind(&message)).or_default();
                *count += 1;
                if *count == 1 || message.len() < said.len() {
                    (*shortest, *said) = (bytes, message);
                }
            }
        }
    }
    println!("{manner:?}: {verdicts:?}, refused: {:#?}", world.refusals);
    for (count, shortest, said) in failures.values().take(MOST_TOLD) {
        let said = shorten(&mut world, shortest, manner, said);
        println!("== {count} times: {said}");
    }
    let told: Vec<_> = failures
        .iter()
        .map(|(kind, (count, ..))| (kind, count))
        .collect();
    assert!(failures.is_empty(), "{told:#?}");
    verdicts
}

fn share(verdicts: &BTreeMap<Verdict, u32>, of: Verdict) -> f64 {
    let all: u32 = verdicts.values().sum();
    f64::from(verdicts.get(&of).copied().unwrap_or(0)) / f64::from(all.max(1))
}

#[test]
fn tame_kernels_write_the_same_bytes() {
    let verdicts = run(Manner::Tame);
    assert!(share(&verdicts, Verdict::Equal) > 0.9, "{verdicts:?}");
}

#[test]
fn wild_kernels_keep_to_their_memory() {
    let verdicts = run(Manner::Wild);
    let ran = share(&verdicts, Verdict::Equal) + share(&verdicts, Verdict::Kept);
    assert!(ran > 0.5, "{verdicts:?}");
}

/// What the fuzz target was given or has found.
#[test]
fn the_fuzz_corpus_holds() {
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fuzz/corpus/confined"
    );
    let mut world = World::new();
    for file in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let (first, bytes) = bytes.split_first().unwrap();
        let manner = Manner::of(*first);
        let program = ptx::read(text_of(bytes, manner).as_bytes()).unwrap();
        world.check_with(bytes, manner, &program);
    }
}
