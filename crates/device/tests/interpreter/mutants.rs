//! Texts of the corpus with words changed at random: whatever the front end lets through loads or is refused, and what loads ends in
//! any way but by a panic of the interpreter.

use std::path::Path;
use std::time::{Duration, Instant};

use device::{
    Arguments, Device, Error, Geometry, IntegerPointers, Launch, LaunchControl, Mode, Value,
};
use ptx::Admitted;

use crate::bench::{Bench, MEMORY};

/// How long to go on.
const TIME: Duration = Duration::from_secs(3);

/// Numbers from a fixed sequence.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end.max(1)
    }
}

/// Words and what is between them.
fn split(text: &str) -> Vec<&str> {
    let is_word = |character: char| character.is_ascii_alphanumeric() || "_%$".contains(character);
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if is_word(first) {
            rest.find(|next| !is_word(next)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    parts
}

/// Exchanges a few words for others of the text, or for numbers at the edges.
fn mutate(text: &str, numbers: &mut Numbers) -> String {
    let mut parts = split(text);
    let body = parts.iter().position(|part| *part == "{").unwrap_or(0);
    for _ in 0..1 + numbers.below(3) {
        let at = body + numbers.below(parts.len() - body);
        let edges = [
            "0",
            "-1",
            "4294967295",
            "18446744073709551615",
            "31",
            "u64",
            "s16",
            "f32",
            "b8",
            "pred",
            "shared",
            "v4",
            "_",
        ];
        parts[at] = if numbers.below(3) == 0 {
            edges[numbers.below(edges.len())]
        } else {
            parts[body + numbers.below(parts.len() - body)]
        };
    }
    parts.concat()
}

fn run(bench: &Bench, text: &str) -> Option<bool> {
    let program = ptx::read(text.as_bytes()).ok()?;
    let entries: Vec<String> = program
        .entries()
        .iter()
        .map(|entry| entry.entry.clone())
        .collect();
    let module = bench.device.load(&Admitted::checked(program)).ok()?;
    let mut ran = false;
    for entry in entries {
        let Ok(program) = module.entry(&entry) else {
            continue;
        };
        let attributes = program.attributes();
        let bytes = vec![1_u8; 32_768];
        let values: Vec<Value<'_>> = attributes
            .signature
            .parameters
            .iter()
            .map(|parameter| match (parameter.size, parameter.pointer) {
                (8, _) => Value::U64(1024),
                (4, None) => Value::U32(40),
                (size, _) => Value::Bytes(&bytes[..size as usize]),
            })
            .collect();
        let (block, mode) = (
            [attributes.max_threads_per_block.min(70), 1, 1],
            Mode::Plain,
        );
        let limits = &bench.device.info().limits;
        let Ok(geometry) = Geometry::new([4, 1, 1], block, 1024, mode, limits, Some(attributes))
        else {
            continue;
        };
        let integers = IntegerPointers::Accept;
        let Ok(arguments) = Arguments::new(&values, attributes, integers) else {
            continue;
        };
        let mut launch = std::sync::Arc::default();
        let control = LaunchControl {
            time: Some(Duration::from_millis(200)),
            budget: Some(20_000),
            ..LaunchControl::default()
        };
        let region = Some(&bench.region);
        Launch::prepare(&mut launch, geometry, arguments, region, control).unwrap();
        match launch.start(program).wait() {
            Ok(()) | Err(Error::Trap(_) | Error::Stopped(_)) => ran = true,
            // Clusters of a size that the grid is no multiple of.
            Err(Error::Unsupported { .. }) => {}
            Err(error) => panic!("{error}\n{text}"),
        }
    }
    Some(ran)
}

#[test]
fn mutated_kernels_never_break_the_interpreter() {
    let bench = Bench::new(2);
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/corpus");
    let mut texts = Vec::new();
    for folder in ["clang", "cuda", "triton"] {
        for file in corpus.join(folder).read_dir().unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "ptx") {
                texts.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    texts.sort();
    let seed = std::env::var("WASI_CUDA_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let mut numbers = Numbers(seed);
    let begun = Instant::now();
    let (mut tried, mut ran) = (0, 0);
    while begun.elapsed() < TIME {
        bench
            .region
            .window()
            .store_run(0, &vec![0x40_u8; usize::try_from(MEMORY).unwrap()])
            .unwrap();
        let text = &texts[numbers.below(texts.len())];
        let mutant = mutate(text, &mut numbers);
        tried += 1;
        ran += u32::from(run(&bench, &mutant) == Some(true));
    }
    assert!(ran > 10, "{ran} of {tried} mutants ran");
}
