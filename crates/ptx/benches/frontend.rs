//! How many bytes of PTX a second go through the front end, and which step takes how much of that? The
//! corpus stands for what compilers write, `sha256` for one long unrolled kernel. What is refused when confined ends early there.

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wasi_cuda_ptx as ptx;

fn frontend(criterion: &mut Criterion) {
    let corpus = fixtures::corpus();
    let is_sha256 = |name: &str| name == "cuda/sha256.sm_75.ptx";
    let texts = |keep: &dyn Fn(&str) -> bool| -> Vec<Vec<u8>> {
        let kept = corpus
            .iter()
            .filter(|(path, _)| keep(&fixtures::name(path)));
        kept.map(|(_, text)| text.clone()).collect()
    };
    for (name, sources) in [("corpus", texts(&|_| true)), ("sha256", texts(&is_sha256))] {
        let parse = |source: &Vec<u8>| ptx::parse(source).unwrap_or_else(|error| panic!("{error}"));
        let trees: Vec<_> = sources.iter().map(parse).collect();
        let bytes: usize = sources.iter().map(Vec::len).sum();

        let mut group = criterion.benchmark_group(name);
        group
            .throughput(Throughput::Bytes(bytes as u64))
            .sample_size(20);
        group.bench_function("parse", |bencher| {
            bencher.iter(|| {
                sources
                    .iter()
                    .for_each(|source| drop(black_box(parse(source))))
            });
        });
        group.bench_function("read", |bencher| {
            bencher.iter(|| {
                sources
                    .iter()
                    .for_each(|source| drop(black_box(ptx::read(source))))
            });
        });
        group.bench_function("print", |bencher| {
            bencher.iter(|| {
                trees
                    .iter()
                    .for_each(|tree| drop(black_box(ptx::print(tree))))
            });
        });
        let programs: Vec<_> = sources
            .iter()
            .filter_map(|source| ptx::read(source).ok())
            .collect();
        let options = ptx::ConfineOptions {
            level: ptx::Level::Confined,
            window: ptx::WindowForm::Whole,
            clear_shared: false,
        };
        group.bench_function("confine", |bencher| {
            bencher.iter(|| {
                programs
                    .iter()
                    .for_each(|program| drop(black_box(ptx::confine(program, options))))
            });
        });
        group.finish();
    }
}

criterion_group!(benches, frontend);
criterion_main!(benches);
