//! What compute capability 9.0 brings: clusters that share their shared memory, bulk copies with barriers, vector atomics;
//! from three files of the corpus.

use device::{Error, Value};

use super::{count, int};
use crate::harness::{Case, Random, Rig, Shape, as_it_is, assert_same, corpus, every, isolating};

pub(crate) const CASES: &[Case] = &[
    as_it_is("cluster_dsmem::cluster_hist", cluster_hist),
    isolating("cluster_dsmem::half_a_cluster", half_a_cluster),
    as_it_is("tma_bulk::bulk_inc", bulk_inc),
    every("vec_atomics::scatter_add4", scatter_add4),
];

fn cluster_hist(rig: &Rig) {
    let program = rig.load(&corpus("cuda/cluster_dsmem.sm_90"), "cluster_hist");
    let mut random = Random::new(50);
    for (n, blocks, threads) in [(1, 2, 32), (1000, 2, 256), (5000, 6, 96), (3000, 64, 300)] {
        let words = random.words(n);
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|w| [w.to_le_bytes()[0], w.to_le_bytes()[1]])
            .collect();
        let mut want = vec![3_u32; 512];
        let mut memory = rig.memory();
        let input = memory.place(&bytes);
        let bins = memory.place(&want);
        let values = [input.pointer(), bins.pointer(), Value::I32(int(n))];
        rig.launch(&program, Shape::line(blocks, threads), &values, &memory);
        for word in words {
            want[word as usize & 511] += 1;
        }
        assert_same(&memory.read(bins), &want, (n, blocks, threads));
    }
}

fn half_a_cluster(rig: &Rig) {
    let program = rig.load(&corpus("cuda/cluster_dsmem.sm_90"), "cluster_hist");
    let mut memory = rig.memory();
    let bins = memory.room::<u32>(512);
    let values = [bins.pointer(), bins.pointer(), Value::I32(0)];
    let refused = rig.try_launch(&program, Shape::line(3, 32), &values, &memory);
    match refused {
        Err(error @ Error::Unsupported { .. }) => {
            assert!(error.to_string().contains("3 blocks along x"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

fn bulk_inc(rig: &Rig) {
    let program = rig.load(&corpus("cuda/tma_bulk.sm_90"), "bulk_inc");
    for (blocks, threads) in [(1, 32), (3, 256), (5, 1000)] {
        let data = Random::new(51).integers(blocks * 1024);
        let mut memory = rig.memory();
        let place = memory.place(&data);
        rig.launch(
            &program,
            Shape::line(count(blocks), threads),
            &[place.pointer()],
            &memory,
        );
        let want: Vec<i32> = data.iter().map(|x| x.wrapping_add(1)).collect();
        assert_same(&memory.read(place), &want, (blocks, threads));
    }
}

/// Multiples of 1/8, so that sums are exact in any order.
fn scatter_add4(rig: &Rig) {
    let program = rig.load(&corpus("cuda/vec_atomics.sm_90"), "scatter_add4");
    let mut random = Random::new(52);
    let mut number = || f32::from((random.word() >> 8).to_le_bytes()[0]) / 8.0 - 10.0;
    for (n, places, threads) in [(1, 1, 32), (500, 7, 64), (1000, 300, 250)] {
        let v: Vec<f32> = (0..4 * n).map(|_| number()).collect();
        let index: Vec<i32> = (0..n).map(|i| int(i * 29 % places)).collect();
        let mut want: Vec<f32> = (0..4 * places).map(|_| number()).collect();
        let mut memory = rig.memory();
        let (input, which) = (memory.place(&v), memory.place(&index));
        let output = memory.place(&want);
        let values = [
            input.pointer(),
            which.pointer(),
            output.pointer(),
            Value::I32(int(n)),
        ];
        let shape = Shape::line(count(n).div_ceil(threads), threads);
        rig.launch(&program, shape, &values, &memory);
        for (i, v) in v.iter().enumerate() {
            want[i / 4 * 29 % places * 4 + i % 4] += v;
        }
        assert_same(&memory.read(output), &want, (n, places, threads));
    }
}
