//! The files that compilers emitted and the kernels of the tests, with arguments that suit most of them and with wild ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device::Value;
use ptx::{Parameter, Signature, Validated};

use crate::grammar::Manner;
use crate::oracle::{Call, MEMORY, Order, Verdict, WAYS, World};

/// What cannot be confined, by file, and a word of the reason.
const REFUSED: &[(&str, &str)] = &[
    ("cuda/cdp.sm_90", "functions have no addresses"),
    ("cuda/cluster_dsmem.sm_90", "clusters reach other blocks"),
    ("cuda/coop_grid.sm_80", "`%envreg2`"),
    ("cuda/dev_malloc.sm_75", "`malloc`"),
    ("cuda/func_ptr.sm_75", "`.callprototype`"),
    ("cuda/inline_asm.sm_80", "only barrier 0"),
    ("cuda/printf_k.sm_75", "`vprintf`"),
    ("cuda/texture.sm_75", "textures"),
    ("cuda/tma_bulk.sm_90", "`mbarrier.init.shared.b64`"),
    ("cuda/wmma_gemm.sm_80", "its stride"),
    ("hostile/barrier_from_a_register", "only barrier 0"),
    ("hostile/barrier_of_a_count", "only barrier 0"),
    ("hostile/barriers_of_other_numbers", "only barrier 0"),
    (
        "hostile/param_past_the_end",
        "it reaches outside its variable",
    ),
    ("kernels/faults", "only barrier 0"),
    ("triton/matmul.sm_90a", "`fence.proxy.async.shared::cta`"),
];

/// Files whose kernels write what time it is, or addresses, or what depends on the order of warps.
const UNLIKE: &[&str] = &[
    // Two warps of its launch here change the same words of shared memory between barriers.
    "cuda/scan.sm_75",
    "cuda/timers.sm_75",
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// Names and texts of all files.
fn files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in [
        "corpus/clang",
        "corpus/cuda",
        "corpus/rust",
        "corpus/triton",
        "hostile",
        "kernels",
    ] {
        for file in fixtures().join(folder).read_dir().unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "ptx") {
                let stem = path.file_stem().unwrap().to_str().unwrap();
                let folder = folder.trim_start_matches("corpus/");
                files.push((
                    format!("{folder}/{stem}"),
                    std::fs::read_to_string(&path).unwrap(),
                ));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn the_verifier_accepts_what_the_rewriter_prints() {
    let mut refused = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, text) in files() {
        let Ok(program) = ptx::read(text.as_bytes()) else {
            continue;
        };
        for way in WAYS {
            match ptx::confine(&program, way) {
                Ok(confined) => {
                    let text = confined.text.clone();
                    if let Err(error) = ptx::verify(confined) {
                        let line = text.lines().nth(error.line.saturating_sub(1) as usize);
                        wrong.push(format!(
                            "{name} {way:?}: {error}: {}",
                            line.unwrap_or_default()
                        ));
                    }
                }
                Err(error) => {
                    refused.insert(name.clone(), error.to_string());
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} refused by the verifier\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let unexpected: Vec<_> = refused
        .iter()
        .filter(|(name, why)| {
            !REFUSED
                .iter()
                .any(|(file, word)| file == name && why.contains(word))
        })
        .collect();
    assert!(
        unexpected.is_empty(),
        "refused by the rewriter: {unexpected:#?}"
    );
    assert_eq!(
        refused.len(),
        REFUSED.len(),
        "something is confined now that was refused"
    );
}

/// What the arguments of a launch are made of.
#[derive(Clone, Copy, Debug)]
enum Taste {
    /// Small numbers, pointers to memory of small numbers.
    Small(u32),
    /// Pointers to memory of floating-point numbers.
    Floats,
    Wild(u32),
}

/// Where pointers of a call point: memory of their own each.
const PLACE: u64 = 0x4000;

fn value<'a>(parameter: &Parameter, index: usize, taste: Taste, bytes: &'a [u8]) -> Value<'a> {
    let mix = |seed: u32| (u64::from(seed) + index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    match (parameter.size, taste) {
        (8, Taste::Wild(seed)) => Value::U64(if mix(seed).is_multiple_of(3) {
            PLACE * (index as u64 + 1)
        } else {
            mix(seed) >> (mix(seed) % 40)
        }),
        (8, _) => Value::U64(PLACE * (index as u64 % 14 + 1)),
        (4, Taste::Small(n)) => Value::Bytes(&bytes[4 * (n as usize)..][..4]),
        (4, Taste::Floats) => Value::Bytes(&bytes[4 * 64..][..4]),
        (4, Taste::Wild(seed)) => {
            Value::Bytes(&bytes[usize::from(mix(seed).to_le_bytes()[6]) * 32..][..4])
        }
        (size, _) => Value::Bytes(&bytes[..size as usize]),
    }
}

fn calls<'a>(entry: &'a Signature, memories: &'a [Vec<u8>; 2], bytes: &'a [u8]) -> Vec<Call<'a>> {
    let tastes = [
        Taste::Small(64),
        Taste::Small(16),
        Taste::Small(100),
        Taste::Small(1),
        Taste::Small(0),
        Taste::Floats,
        Taste::Wild(1),
        Taste::Wild(2),
        Taste::Wild(3),
    ];
    let call = |taste| Call {
        entry: &entry.entry,
        grid: match taste {
            Taste::Wild(seed) => [1 + seed * 7 % 5, 2, 1],
            _ => [2, 1, 1],
        },
        block: entry.required_threads.unwrap_or(match taste {
            Taste::Wild(_) => [37, 2, 1],
            _ => [16, 4, 1],
        }),
        shared_bytes: 16_384,
        values: entry
            .parameters
            .iter()
            .enumerate()
            .map(|(index, parameter)| value(parameter, index, taste, bytes))
            .collect(),
        memory: match taste {
            Taste::Floats => &memories[1],
            Taste::Small(_) | Taste::Wild(_) => &memories[0],
        },
        manner: match taste {
            Taste::Wild(_) => Manner::Wild,
            _ => Manner::Tame,
        },
        order: match taste {
            Taste::Wild(_) => Order::Matters,
            _ => Order::DoesNotMatter,
        },
    };
    tastes.map(call).into()
}

fn run(world: &mut World, program: &Validated, order: Option<Order>) -> BTreeMap<Verdict, u32> {
    let words = u32::try_from(MEMORY / 4).unwrap();
    let small = (0..words)
        .flat_map(|at| (at * 7 % 61).to_le_bytes())
        .collect();
    let floats = (0..words)
        .flat_map(|at| ((at % 13) as f32 - 6.0).to_le_bytes())
        .collect();
    let bytes: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
    let memories = [small, floats];
    let mut verdicts = BTreeMap::new();
    for entry in program.entries() {
        for mut call in calls(entry, &memories, &bytes) {
            call.order = order.unwrap_or(call.order);
            *verdicts.entry(world.check(program, &call)).or_default() += 1;
        }
    }
    verdicts
}

#[test]
fn compiled_kernels_write_the_same_bytes_and_keep_to_their_memory() {
    let mut world = World::new();
    let mut all: BTreeMap<Verdict, u32> = BTreeMap::new();
    for (name, text) in files() {
        if name.starts_with("hostile") {
            continue;
        }
        let Ok(program) = ptx::read(text.as_bytes()) else {
            continue;
        };
        let order = UNLIKE.contains(&name.as_str()).then_some(Order::Matters);
        let verdicts = run(&mut world, &program, order);
        println!("{name}: {verdicts:?}");
        for (verdict, count) in verdicts {
            *all.entry(verdict).or_default() += count;
        }
    }
    println!("{all:?}");
    assert!(
        all.get(&Verdict::Equal).copied().unwrap_or(0) > 300,
        "{all:?}"
    );
}
